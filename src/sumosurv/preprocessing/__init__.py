"""From a table of covariates to network inputs: column types, levels, scaling."""

from sumosurv.preprocessing.columns import CategoricalColumn, NumericColumn, NumericScaling, is_categorical
from sumosurv.preprocessing.levels import LevelNotes, find_rewritten, ways_to_write
from sumosurv.preprocessing.preprocessor import Preprocessor, TableSummary, check_columns
from sumosurv.preprocessing.reader import ColumnReader

__all__ = [
    "CategoricalColumn",
    "ColumnReader",
    "LevelNotes",
    "NumericColumn",
    "NumericScaling",
    "Preprocessor",
    "TableSummary",
    "check_columns",
    "find_rewritten",
    "is_categorical",
    "ways_to_write",
]
