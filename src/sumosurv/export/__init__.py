"""Fitted models for programs that do not have this library: ONNX files and torch.export programs."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from sklearn.utils.validation import check_is_fitted

from sumosurv.estimators import SurvivalEstimator
from sumosurv.export.inputs import onnx_inputs
from sumosurv.export.program import SurvivalProgram, check_exportable, described
from sumosurv.files import check_writable, replacing

__all__ = ["export_onnx", "export_torch", "onnx_inputs"]

Precision = Literal["double", "single"]

_ROWS, _TIMES = 3, 5  # of the example with which torch.export traces; the program accepts other numbers


def export_onnx(model: SurvivalEstimator, path: str | Path, *, precision: Precision = "double") -> None:
    """Write a fitted model as an ONNX file, which runs without this library.

    The file includes preprocessing and all components of a mixture. Inputs are ``numbers``, (rows, columns) in float64,
    NaN if missing; ``categories``, (rows, columns) as text, empty if missing; and ``times``, (times,). Outputs are
    ``survival`` and ``density``, (rows, times), ``risk``, (rows,), and for competing risks ``incidence``, (rows, times,
    causes). The metadata entry ``sumosurv`` names the columns and levels, as JSON. See docs/export.md.

    Parameters
    ----------
    model : SurvivalEstimator
        Fitted model. For a search, the estimator with which it predicts is written.
    path : path
    precision : {"double", "single"}
        Precision of the networks. "double" agrees with the library up to rounding; "single" is half the size and
        faster, with an error in S of about 1e-7.

    Raises
    ------
    TypeError
        If the method cannot be exported: see docs/export.md for the methods that can.
    """
    model = _check(model, path, precision)
    if find_spec("onnx") is None:
        raise ModuleNotFoundError(
            "ONNX files are written with the package onnx: pip install 'sumosurv[export]'.", name="onnx"
        )
    from sumosurv.export.onnx_file import write_onnx

    write_onnx(model, path, precision)


def export_torch(model: SurvivalEstimator, path: str | Path, *, precision: Precision = "double") -> None:
    """Write a fitted model as a ``torch.export`` program (.pt2), which runs with torch alone.

    Inputs and outputs are those of `export_onnx`, except that categories are codes, (rows, columns) in int64, which the
    extra file ``sumosurv.json`` lists.
    """
    model = _check(model, path, precision)
    program, about = SurvivalProgram(model, precision), described(model)
    times = torch.linspace(0.0, model.last_time_, _TIMES, dtype=torch.float64)
    given: tuple[torch.Tensor, ...]
    if about["row_shape"] is not None:
        given = torch.zeros(_ROWS, *about["row_shape"]), times
    else:
        numbers = torch.zeros(_ROWS, len(about["numbers"]), dtype=torch.float64)
        given = numbers, torch.zeros(_ROWS, len(about["categories"]), dtype=torch.long), times
    open_axes: Any = ({0: torch.export.Dim.DYNAMIC},) * len(given)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about its own functions
        made = torch.export.export(program, given, dynamic_shapes=(open_axes,), strict=False)
        with replacing(Path(path)) as partial, partial.open("wb") as file:
            torch.export.save(made, file, extra_files={"sumosurv.json": json.dumps(about, allow_nan=False)})


def _check(model: SurvivalEstimator, path: str | Path, precision: str) -> SurvivalEstimator:
    check_is_fitted(model)
    model = vars(model).get("best_estimator_", model)  # for a search
    if precision not in ("double", "single"):
        raise ValueError(f"precision must be 'double' or 'single'; got {precision!r}.")
    check_exportable(model)
    check_writable(path)
    return model
