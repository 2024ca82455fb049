"""From a table of covariates to network inputs: column types, levels, scaling; the unit of time."""

from sumosurv.preprocessing.columns import CategoricalColumn, NumericColumn, NumericScaling, learn_column
from sumosurv.preprocessing.levels import find_rewritten, telling_unseen, ways_to_write
from sumosurv.preprocessing.preprocessor import Preprocessor
from sumosurv.preprocessing.reader import ColumnReader
from sumosurv.preprocessing.time import time_features, time_unit
from sumosurv.preprocessing.types import check_text, is_categorical, read_numbers

__all__ = [
    "CategoricalColumn",
    "ColumnReader",
    "NumericColumn",
    "NumericScaling",
    "Preprocessor",
    "check_text",
    "find_rewritten",
    "is_categorical",
    "learn_column",
    "read_numbers",
    "telling_unseen",
    "time_features",
    "time_unit",
    "ways_to_write",
]
