"""Fits, predictions and scores of rows on disk, in memory that does not grow with their number."""

from sumosurv.predicted import Figures
from sumosurv.sources import RowSource
from sumosurv.streaming.predicting import predict_to_parquet

__all__ = ["Figures", "RowSource", "predict_to_parquet"]
