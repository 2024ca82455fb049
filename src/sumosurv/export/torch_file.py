"""A fitted model as a torch.export program."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from torch.export import Dim

from sumosurv.estimators import SurvivalEstimator
from sumosurv.export.description import described
from sumosurv.export.program import SurvivalProgram, preprocessor_of
from sumosurv.files import replacing

__all__ = ["write_torch"]

_ROWS, _TIMES = 3, 5  # of the example that is followed; neither is fixed by it


def write_torch(model: SurvivalEstimator, path: str | Path, precision: Literal["double", "single"]) -> None:
    """Write the program of a fitted model; see `sumosurv.export.export_torch`."""
    program = SurvivalProgram(model, precision)
    columns, about = preprocessor_of(model), described(model)
    times = torch.linspace(0.0, model.last_time_, _TIMES, dtype=torch.float64)
    given: tuple[torch.Tensor, ...]
    if columns.row_shape is not None:
        given = torch.zeros(_ROWS, *columns.row_shape), times
    else:
        numbers = torch.zeros(_ROWS, len(about["numbers"]), dtype=torch.float64)
        given = numbers, torch.zeros(_ROWS, len(about["categories"]), dtype=torch.long), times
    open_axes: Any = ({0: Dim.DYNAMIC},) * len(given)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", FutureWarning)  # torch's, of its own names
        made = torch.export.export(program, given, dynamic_shapes=(open_axes,), strict=False)
        with replacing(Path(path)) as partial, partial.open("wb") as file:
            torch.export.save(made, file, extra_files={"sumosurv.json": json.dumps(about, allow_nan=False)})
