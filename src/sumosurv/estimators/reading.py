"""From rows to tensors: what a fit learns of its rows before it has a network, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.networks import Inputs, Observed, Table
from sumosurv.outcome import Cells, Outcome
from sumosurv.preprocessing import NumericScaling, Preprocessor, time_unit
from sumosurv.stored import as_number
from sumosurv.training import Batches, Member
from sumosurv.training.data import RowNumbers

__all__ = [
    "Learned",
    "Prepared",
    "Reading",
    "Resolution",
    "TimeOrigin",
    "find_clock",
    "for_training",
    "read_rows",
    "share_seen",
]

TimeOrigin = Literal["zero", "first"]
Resolution = float | Literal["auto"] | None

_SHORTEST = 1e-4  # interval, in scaled time, whose probability single precision resolves


@dataclass(frozen=True)
class Reading:
    """The settings that decide how rows are read. Two fits that agree in them read the same rows alike."""

    numeric_scaling: NumericScaling
    one_hot: bool
    time_origin: TimeOrigin = "zero"
    max_components: int | None = None
    resolution: Resolution = None


@dataclass(frozen=True)
class Learned:
    """What was learned of the rows; with an estimator's settings it determines the network.

    Attributes
    ----------
    preprocessor : Preprocessor
        Columns, levels, scales.
    time_origin, time_unit : float
        When the networks' clock starts and how long it runs, in the user's unit.
    cells : Cells or None
        What recorded times stand for, where that is a cell and no point of time; in the user's unit.
    start : mapping
        What the method learned from the outcome of the training rows (time features, cuts, start values): plain
        values that JSON can hold.
    """

    preprocessor: Preprocessor
    time_origin: float
    time_unit: float
    start: Mapping[str, Any]
    cells: Cells | None = None

    def with_start(self, start: Any) -> Learned:
        """The same rows for another method."""
        if not isinstance(start, dict):
            raise TypeError("what was learned of the outcome is no mapping")
        return replace(self, start=start)

    def example(self) -> torch.Tensor:
        """Two rows of zeros as an encoder reads them."""
        shape = self.preprocessor.row_shape or (self.preprocessor.n_numeric,)
        return torch.zeros(2, *shape)

    def state(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "preprocessor": self.preprocessor.state(),
            "time_origin": self.time_origin,
            "time_unit": self.time_unit,
            "start": dict(self.start),
            "cells": None if self.cells is None else asdict(self.cells),
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """What is too large for JSON: the principal components of a wide table."""
        projection = self.preprocessor.projection
        return {} if projection is None else {"projection": torch.from_numpy(projection)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Learned:
        """The inverse of `state` and `tensors`."""
        unit = as_number(state["time_unit"], "the unit of time", above=0.0)
        origin = as_number(state["time_origin"], "the origin of time", low=0.0)
        columns = Preprocessor.from_state(state["preprocessor"], tensors.get("projection"))
        cells = None
        if (own := state.get("cells")) is not None:
            cells = Cells(as_number(own["width"], "width", above=0.0), as_number(own["ahead"], "ahead", low=0.0))
        return cls(columns, origin, unit, {}, cells).with_start(state["start"])


@dataclass(frozen=True)
class Prepared:
    """The rows of one fit as networks read them: training rows first, then those of ``validation_data``."""

    preprocessor: Preprocessor
    time_origin: float
    time_unit: float
    table: Table
    outcome: Outcome  # as it was given
    n_train: int
    known: Mapping[str, Any]  # fitted attributes that every estimator has
    cells: Cells | None = None  # what recorded times stand for, where that is no point of time

    @property
    def log_unit(self) -> float:
        """What the log-likelihood of an event loses from the networks' terms to the user's unit of time."""
        return math.log(self.time_unit if self.cells is None else self.cells.width)

    @property
    def training(self) -> Outcome:
        """The outcome of the training rows, times counted from the start of the networks' clock."""
        return self.outcome[: self.n_train].on_clock(self.time_origin)

    def n_training(self, members: Sequence[Member]) -> int:
        """How many training rows a member has."""
        return len(members[0].train_rows)

    def share_seen(self, members: Sequence[Member]) -> npt.NDArray[np.float64]:
        """The share of training rows whose likelihood is a density, of each member."""
        return np.array([share_seen(self.outcome[member.train_rows]) for member in members])

    def batches(self, members: Sequence[Member], batch_size: int, device: torch.device) -> Batches | None:
        """Where the batches of training come from, if not from the table."""
        return None

    def own_rows(self) -> tuple[RowNumbers, RowNumbers | None]:
        """The training rows, and those of ``validation_data`` if there are any."""
        every = np.arange(len(self.outcome))
        return every[: self.n_train], every[self.n_train :] if self.n_train < len(every) else None


def read_rows(
    reading: Reading,
    rows: tuple[Any, Outcome],
    validation_rows: tuple[Any, Outcome] | None,
    known: Mapping[str, Any],
) -> Prepared:
    """Learn from checked training rows how to read a table, and read them and the validation rows."""
    X, outcome = rows
    n = len(outcome)
    preprocessor = Preprocessor(
        reading.numeric_scaling, one_hot=reading.one_hot, max_components=reading.max_components
    ).fit(X, outcome.weight)
    inputs = preprocessor.transform(X)
    if validation_rows is not None:
        inputs = Inputs.join([inputs, preprocessor.transform(validation_rows[0])])
        outcome = Outcome.join([outcome, validation_rows[1]])
    cells, origin = find_clock(reading, outcome[:n], [outcome])
    observed = outcome if cells is None else cells.of(outcome)
    unit = time_unit(observed[:n].on_clock(origin))
    mean_weight = None if observed.weight is None else float(observed.weight[:n].mean())
    trained = for_training(observed.on_clock(origin, unit), mean_weight)
    if not trained.in_interval.any():
        trained = replace(trained, upper=None)
    table = Table(inputs, Observed.of(trained))
    return Prepared(preprocessor, origin, unit, table, outcome, n, known, cells)


def find_clock(reading: Reading, training: Outcome, parts: Sequence[Outcome]) -> tuple[Cells | None, float]:
    """The cells of recorded times, and the origin of the networks' clock: zero, or the first time.

    ``parts`` are all rows, those of validation included. Where times have cells, it is the start of the first cell.
    """
    if reading.time_origin == "zero":
        return _find_cells(training, reading.resolution, 0.0), 0.0
    cells = _find_cells(training, reading.resolution, min(map(_first_time, parts)))
    return cells, min(_first_time(part if cells is None else cells.of(part)) for part in parts)


def _find_cells(training: Outcome, resolution: Resolution, origin: float) -> Cells | None:
    """The cells of recorded times, of a given width or found; None where they are too narrow to matter."""
    if resolution is None or not training.event.any():
        return None
    cells = Cells.found(training) if resolution == "auto" else Cells.of_width(training, float(resolution))
    length = training.last_time - origin
    return None if cells is None or cells.width < _SHORTEST * length or length == 0 else cells


def _first_time(outcome: Outcome) -> float:
    """The smallest time at which anything is known to have begun."""
    return float(outcome.time.min() if outcome.entry is None else min(outcome.time.min(), outcome.entry.min()))


def share_seen(outcome: Outcome) -> float:
    """The share of rows whose likelihood is a density."""
    return float(outcome.event.mean() if outcome.weight is None else np.average(outcome.event, weights=outcome.weight))


def for_training(outcome: Outcome, mean_weight: float | None) -> Outcome:
    """The rows as single precision can learn from them.

    Weights are divided by their mean over the training rows. The two ends of a very short interval have nearly the same
    survival probability: such an event is taken at the middle of its interval, and its term is a density.
    """
    if outcome.weight is not None:
        assert mean_weight is not None
        outcome = replace(outcome, weight=outcome.weight / mean_weight)
    if outcome.upper is None:
        return outcome
    short = outcome.in_interval & (np.where(outcome.in_interval, outcome.upper, np.inf) - outcome.time < _SHORTEST)
    time = np.where(short, outcome.at_midpoints().time, outcome.time)
    return replace(outcome, event=outcome.event | short, time=time, upper=np.where(short, time, outcome.upper))
