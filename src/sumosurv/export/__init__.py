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
    """Write a fitted model as an ONNX file; see `SurvivalEstimator.export_onnx`."""
    _check(model, path, precision)
    if find_spec("onnx") is None:
        raise ModuleNotFoundError(
            "ONNX files are written with the package onnx; install sumosurv[export].", name="onnx"
        )
    from sumosurv.export.onnx_file import write_onnx

    write_onnx(model, path, precision)


def export_torch(model: SurvivalEstimator, path: str | Path, *, precision: Precision = "double") -> None:
    """Write a fitted model as a torch.export program; see `SurvivalEstimator.export_torch`."""
    _check(model, path, precision)
    from sumosurv.export.torch_file import write_torch

    write_torch(model, path, precision)


def _check(model: SurvivalEstimator, path: str | Path, precision: str) -> None:
    check_is_fitted(model)
    if precision not in ("double", "single"):
        raise ValueError(f"precision is 'double' or 'single'; got {precision!r}.")
    check_exportable(model)
    check_writable(path)
