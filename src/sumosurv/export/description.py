"""What a reader of an exported model must know of its columns and times."""

from __future__ import annotations

from typing import Any

from sumosurv._version import __version__
from sumosurv.estimators import SurvivalEstimator
from sumosurv.export.program import preprocessor_of
from sumosurv.preprocessing import CategoricalColumn

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

    Empty text is a missing value, unless it is a level; numbers may have a ".0", and truth values any case.
    """
    found: dict[str, int] = {}
    for code, level in enumerate(column.levels, start=column.n_codes - len(column.levels)):
        texts = [str(level)]
        if isinstance(level, bool):
            texts += [str(level).lower(), str(level).upper()]
        elif isinstance(level, (int, float)) and float(level).is_integer():
            texts += [str(int(level)), f"{int(level)}.0"]
        for text in texts:
            found.setdefault(text, code)
    found.setdefault("", int(column.missing_code))
    return found
