"""The datasets of the paper: real ones, verified by checksum, and simulated ones with their true distributions."""

from sumosurv.datasets._catalogue import ChecksumError
from sumosurv.datasets._sources import DatasetUnavailableError
from sumosurv.datasets.real import Dataset, Fold, available, fold, fold_by_customer, fold_source, load
from sumosurv.datasets.simulated import Simulated, simulate, true_distribution
from sumosurv.sources import read_parquet, write_parquet

__all__ = [
    "ChecksumError",
    "Dataset",
    "DatasetUnavailableError",
    "Fold",
    "Simulated",
    "available",
    "fold",
    "fold_by_customer",
    "fold_source",
    "load",
    "read_parquet",
    "simulate",
    "true_distribution",
    "write_parquet",
]
