"""Fits, predictions and scores of rows on disk, in memory that does not grow with their number."""

from sumosurv.sources import RowSource
from sumosurv.streaming.predicting import PredictionTable, predict_to_parquet

__all__ = ["PredictionTable", "RowSource", "predict_to_parquet"]
