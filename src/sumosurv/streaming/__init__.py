"""Fits, predictions and scores of rows on disk, in memory that does not grow with their number."""
