"""The inputs of an exported model, made of rows. The file needs NumPy alone, so that it can be copied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["onnx_inputs"]


def onnx_inputs(model: Any, rows: Any, times: Any) -> dict[str, np.ndarray]:
    """Return the named inputs of an exported model for some rows and times.

    Parameters
    ----------
    model : onnxruntime.InferenceSession or dict
        The opened ONNX file, or the metadata of a file, parsed from JSON.
    rows : DataFrame or sequence of dict
        The covariates by column name, in any order. None, NaN and pandas.NA are missing values; a column that a
        dictionary does not have is missing. An array for a model with an encoder that reads arrays.
    times : sequence of float
        In the unit of the training times.

    Examples
    --------
    >>> about = {"row_shape": None, "numbers": ["age"], "categories": [{"name": "stage"}]}
    >>> given = onnx_inputs(about, [{"age": 61, "stage": "II"}, {"stage": float("nan")}], [1.0, 2.0])
    >>> given["numbers"].tolist(), given["categories"].tolist()
    ([[61.0], [nan]], [['II'], ['']])
    """
    if not isinstance(model, Mapping):
        model = json.loads(model.get_modelmeta().custom_metadata_map["sumosurv"])
    given = {"times": np.array(times, dtype=np.float64)}
    if model["row_shape"] is not None:
        return given | {"array": np.asarray(rows, dtype=np.float32)}
    numbers, categories = model["numbers"], [column["name"] for column in model["categories"]]
    records: Sequence[Mapping[str, Any]] = rows
    if hasattr(rows, "to_dict"):
        records = rows[numbers + categories].to_dict("records")
    if numbers:
        values = [[_value(row, name, np.nan) for name in numbers] for row in records]
        given["numbers"] = np.array(values, dtype=np.float64).reshape(len(records), -1)
    if categories:
        text = [[str(_value(row, name, "")) for name in categories] for row in records]
        given["categories"] = np.array(text, dtype=object).reshape(len(records), -1)
    return given


def _value(row: Mapping[str, Any], name: str, missing: Any) -> Any:
    value = row.get(name)
    try:
        return missing if value is None or bool(value != value) else value
    except TypeError:  # pandas.NA is neither true nor false
        return missing
