"""Inputs of an exported model from rows. This file imports only NumPy, so that it can be copied to other projects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

__all__ = ["onnx_inputs"]

_LARGEST = 1e300  # larger numbers overflow; training has the same limit
_DATES = (date, time, timedelta, np.datetime64, np.timedelta64)


def onnx_inputs(model: Any, rows: Any, times: Any) -> dict[str, np.ndarray]:
    """Return the named inputs of an exported model for some rows and times.

    Parameters
    ----------
    model : onnxruntime.InferenceSession or dict
        The opened ONNX file, or the metadata of a file, parsed from JSON.
    rows : DataFrame or sequence of dict
        The covariates by column name, in any order. None, NaN and pandas.NA are missing values, and so is a column
        that only some of the dictionaries have. For a model whose encoder reads arrays, an array.
    times : sequence of float
        Times in the unit of the training times.

    Raises
    ------
    TypeError
        If ``rows`` has another type.
    ValueError
        If there are no rows, if a column is missing or occurs twice, or if a value does not have the type of its
        column: a finite number in a numeric column; text, a number or a truth value in a category.

    Examples
    --------
    >>> about = {"row_shape": None, "numbers": ["age"], "categories": [{"name": "stage"}]}
    >>> given = onnx_inputs(about, [{"age": 61, "stage": "II"}, {"stage": float("nan")}], [1.0, 2.0])
    >>> given["numbers"].tolist(), given["categories"].tolist()
    ([[61.0], [nan]], [['II'], ['']])
    """
    if not isinstance(model, Mapping):
        model = json.loads(model.get_modelmeta().custom_metadata_map["sumosurv"])
    given = {"times": _checked_times(times)}
    if model["row_shape"] is not None:
        return given | {"array": np.asarray(rows, dtype=np.float32)}
    numbers, categories = model["numbers"], model["categories"]
    names = numbers + [column["name"] for column in categories]
    records: Sequence[Mapping[str, Any]]
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):
        for name in names:
            if (count := list(rows.columns).count(name)) != 1:
                raise ValueError(f"The table has {count} columns named {name!r}; the model needs exactly one.")
        records = rows[names].to_dict("records")
    elif isinstance(rows, (list, tuple)) and all(isinstance(row, Mapping) for row in rows):
        records = rows
        for name in names:
            if rows and not any(name in row for row in rows):
                raise ValueError(f"No row has a value {name!r}; write None if it is missing.")
    else:
        raise TypeError(f"rows must be a DataFrame of pandas or a list of dictionaries; got {type(rows).__name__}.")
    if not len(records):
        raise ValueError("rows is empty; pass at least one row.")
    if numbers:
        values = [[_number(row, name) for name in numbers] for row in records]
        given["numbers"] = np.array(values, dtype=np.float64).reshape(len(records), -1)
    if categories:
        text = [[_text(row, column) for column in categories] for row in records]
        given["categories"] = np.array(text, dtype=object).reshape(len(records), -1)
    return given


def _checked_times(times: Any) -> np.ndarray:
    found = np.atleast_1d(np.asarray(times))
    if found.ndim != 1 or found.dtype.kind not in "iuf" or np.isnan(found).any():
        raise ValueError(f"times must be a list of numbers, none of them missing; got {times!r}.")
    return found.astype(np.float64)


def _number(row: Mapping[str, Any], name: str) -> float:
    value = _value(row, name)
    if value is None:
        return np.nan
    if not isinstance(value, (Real, Decimal)) or isinstance(value, (bool, np.timedelta64)):
        raise ValueError(f"Column {name!r} was numeric in training and now holds {value!r}; give it as numbers.")
    try:
        number = float(value)
    except OverflowError:  # a Fraction or an integer beyond the range of floats
        number = np.inf
    if abs(number) > _LARGEST:
        raise ValueError(f"Column {name!r} holds {value!r}; replace such values or mark them as missing (NaN).")
    return number


def _text(row: Mapping[str, Any], column: Mapping[str, Any]) -> str:
    """The text of a level; 1 and True, and 0 and False, stand for each other."""
    value, codes = _value(row, column["name"]), column.get("codes", {})
    if value is None:
        return ""
    if isinstance(value, _DATES) or not isinstance(value, (str, Real, Decimal, np.bool_)):
        raise ValueError(f"Column {column['name']!r} was a category in training and now holds {value!r}.")
    if str(value) not in codes and isinstance(value, (Real, np.bool_)) and value in (0, 1):
        other = str(int(value)) if isinstance(value, (bool, np.bool_)) else str(bool(value))
        return other if other in codes else str(value)
    return str(value)


def _value(row: Mapping[str, Any], name: str) -> Any:
    """A value, or None if it is missing."""
    value: Any = row.get(name)
    try:
        return None if value is None or bool(value != value) else value
    except (TypeError, ValueError):  # pandas.NA and arrays have no truth value
        return None if np.ndim(value) == 0 else value
