"""Fitted models for programs that do not have this library: ONNX files and torch.export programs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from sklearn.utils.validation import check_is_fitted

from sumosurv.estimators import SurvivalEstimator
from sumosurv.export.inputs import onnx_inputs
from sumosurv.export.program import check_exportable
from sumosurv.files import check_writable

__all__ = ["export_onnx", "export_torch", "onnx_inputs"]

Precision = Literal["double", "single"]


def export_onnx(model: SurvivalEstimator, path: str | Path, *, precision: Precision = "double") -> None:
    """Write a fitted model as an ONNX file, which runs without this library.

    Preprocessing and mixture are inside. Inputs are ``numbers``, (rows, columns) in float64, NaN if missing;
    ``categories``, (rows, columns) as text, empty if missing; and ``times``, (times,). Outputs are ``survival`` and
    ``density``, (rows, times), ``risk``, (rows,), and for competing risks ``incidence``, (rows, times, causes). The
    metadata entry ``sumosurv`` names the columns and levels, as JSON. See docs/export.md.

    Parameters
    ----------
    model : SurvivalEstimator
        Fitted; of a search, what it predicts with is written.
    path : path
    precision : {"double", "single"}
        Precision of the networks: "double" gives what the library gives; "single" is half the size and faster, with an
        error in S of about 1e-6.

    Raises
    ------
    TypeError
        The method has no exact curve to write: its curves are steps, or the solution of an equation.
    """
    model = _check(model, path, precision)
    if find_spec("onnx") is None:
        raise ModuleNotFoundError(
            "ONNX files are written with the package onnx; install sumosurv[export].", name="onnx"
        )
    from sumosurv.export.onnx_file import write_onnx

    write_onnx(model, path, precision)


def export_torch(model: SurvivalEstimator, path: str | Path, *, precision: Precision = "double") -> None:
    """Write a fitted model as a ``torch.export`` program (.pt2), which runs with torch alone.

    As `export_onnx`, but categories are codes, (rows, columns) in int64; the extra file ``sumosurv.json`` lists them.
    """
    model = _check(model, path, precision)
    from sumosurv.export.torch_file import write_torch

    write_torch(model, path, precision)


def _check(model: SurvivalEstimator, path: str | Path, precision: str) -> SurvivalEstimator:
    check_is_fitted(model)
    model = vars(model).get("best_estimator_", model)  # of a search
    if precision not in ("double", "single"):
        raise ValueError(f"precision is 'double' or 'single'; got {precision!r}.")
    check_exportable(model)
    check_writable(path)
    return model
