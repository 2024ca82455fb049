"""What a reader of an exported model must know of its columns and times."""

from __future__ import annotations

from typing import Any

from sumosurv._version import __version__
from sumosurv.estimators import SurvivalEstimator
from sumosurv.export.program import preprocessor_of
from sumosurv.preprocessing import CategoricalColumn, ways_to_write

__all__ = ["described", "spellings"]


def described(model: SurvivalEstimator) -> dict[str, Any]:
    """The columns in their order, the levels of categories with their codes, and the last training time."""
    columns = preprocessor_of(model)
    return {
        "version": __version__,
        "method": type(model).__name__,
        "last_time": model.last_time_,
        "causes": model.n_causes_,
        "row_shape": columns.row_shape,
        "numbers": [c.name for c in columns.columns if not isinstance(c, CategoricalColumn)],
        "categories": [
            {"name": c.name, "codes": spellings(c)} for c in columns.columns if isinstance(c, CategoricalColumn)
        ],
    }


def spellings(column: CategoricalColumn) -> dict[str, int]:
    """The text of each level, in all ways that it may be written, and its code.

    A level's own text counts before another way to write some other level. Empty text is a missing value, unless it is
    a level.
    """
    first = column.n_codes - len(column.levels)
    found = {str(level): code for code, level in enumerate(column.levels, start=first)}
    other: dict[str, set[int]] = {}
    for code, level in enumerate(column.levels, start=first):
        for text in ways_to_write(level):
            other.setdefault(text, set()).add(code)
    found |= {text: codes.pop() for text, codes in other.items() if text not in found and len(codes) == 1}
    found.setdefault("", column.missing_code)
    return found
