"""From rows to tensors: what a fit learns of its rows before there is a network, as plain values."""

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
    "PreparedRows",
    "Resolution",
    "RowOptions",
    "TimeOrigin",
    "event_share",
    "find_time_scale",
    "for_training",
    "read_rows",
]

TimeOrigin = Literal["zero", "first"]
Resolution = float | Literal["auto"] | None

_SHORTEST = 1e-4  # interval, in scaled time, whose probability single precision resolves


@dataclass(frozen=True)
class RowOptions:
    """The settings that decide how rows are read. Fits with equal options can share the rows they read."""

    numeric_scaling: NumericScaling
    one_hot: bool
    time_origin: TimeOrigin = "zero"
    max_components: int | None = None
    resolution: Resolution = None


@dataclass(frozen=True)
class Learned:
    """What was learned of the rows. Together with a method's settings it determines the network.

    Attributes
    ----------
    preprocessor : Preprocessor
        Columns, levels, scales.
    time_origin, time_unit : float
        Origin and length of the networks' time scale, in the user's unit.
    start : mapping
        What the method learned from the outcome of the training rows (time features, cuts, start values), as plain
        values that JSON can hold.
    cells : Cells or None
        The cells that recorded times stand for, in the user's unit; None if times are exact.
    """

    preprocessor: Preprocessor
    time_origin: float
    time_unit: float
    start: Mapping[str, Any]
    cells: Cells | None = None

    def with_start(self, start: Any) -> Learned:
        """The same rows for another method."""
        if not isinstance(start, dict):
            raise TypeError("the start values are not a mapping")
        return replace(self, start=start)

    def example(self) -> torch.Tensor:
        """Two rows of zeros as an encoder reads them."""
        shape = self.preprocessor.row_shape or (self.preprocessor.n_numeric,)
        return torch.zeros(2, *shape)

    def state(self) -> dict[str, Any]:
        """As plain JSON values, without the start values."""
        return {
            "preprocessor": self.preprocessor.state(),
            "time_origin": self.time_origin,
            "time_unit": self.time_unit,
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
        return cls(columns, origin, unit, {}, cells)


@dataclass(frozen=True)
class PreparedRows:
    """The rows of one fit as networks read them: training rows first, then those of ``validation_data``."""

    learned: Learned  # without start values, which depend on the method
    table: Table
    outcome: Outcome  # as it was given
    n_train: int
    known: Mapping[str, Any]  # fitted attributes that every estimator has

    @property
    def log_unit(self) -> float:
        """Difference of an event's log-likelihood between the networks' time scale and the user's."""
        cells = self.learned.cells
        return math.log(self.learned.time_unit if cells is None else cells.width)

    @property
    def training(self) -> Outcome:
        """The outcome of the training rows, as it was given."""
        return self.outcome[: self.n_train]

    def n_training(self, members: Sequence[Member]) -> int:
        """The number of training rows of a member."""
        return len(members[0].train_rows)

    def event_shares(self, members: Sequence[Member]) -> npt.NDArray[np.float64]:
        """For each member, the share of training rows whose likelihood is a density."""
        return np.array([event_share(self.outcome[member.train_rows]) for member in members])

    def batches(self, members: Sequence[Member], batch_size: int, device: torch.device) -> Batches | None:
        """The source of training batches; None if they come from the table."""
        return None

    def own_rows(self) -> tuple[RowNumbers, RowNumbers | None]:
        """The training rows, and those of ``validation_data`` if there are any."""
        every = np.arange(len(self.outcome))
        return every[: self.n_train], every[self.n_train :] if self.n_train < len(every) else None


def read_rows(
    options: RowOptions,
    rows: tuple[Any, Outcome],
    validation_rows: tuple[Any, Outcome] | None,
    known: Mapping[str, Any],
) -> PreparedRows:
    """Learn from checked training rows how to read a table, and read them and the validation rows."""
    X, outcome = rows
    n = len(outcome)
    preprocessor = Preprocessor(
        options.numeric_scaling, one_hot=options.one_hot, max_components=options.max_components
    ).fit(X, outcome.weight)
    inputs = preprocessor.transform(X)
    if validation_rows is not None:
        inputs = Inputs.join([inputs, preprocessor.transform(validation_rows[0])])
        outcome = Outcome.join([outcome, validation_rows[1]])
    cells, origin = find_time_scale(options, outcome[:n], [outcome])
    observed = outcome if cells is None else cells.of(outcome)
    unit = time_unit(observed[:n].on_clock(origin))
    mean_weight = None if observed.weight is None else float(observed.weight[:n].mean())
    trained = for_training(observed.on_clock(origin, unit), mean_weight)
    if not trained.in_interval.any():
        trained = replace(trained, upper=None)
    table = Table(inputs, Observed.of(trained))
    return PreparedRows(Learned(preprocessor, origin, unit, {}, cells), table, outcome, n, known)


def find_time_scale(options: RowOptions, training: Outcome, parts: Sequence[Outcome]) -> tuple[Cells | None, float]:
    """The cells of recorded times, and the origin of the networks' time scale: zero, or the first time.

    ``parts`` are all rows, validation rows included. If times have cells, the first time is the start of its cell.
    """
    if options.time_origin == "zero":
        return _find_cells(training, options.resolution, 0.0), 0.0
    cells = _find_cells(training, options.resolution, min(map(_first_time, parts)))
    return cells, min(_first_time(part if cells is None else cells.of(part)) for part in parts)


def _find_cells(training: Outcome, resolution: Resolution, origin: float) -> Cells | None:
    """The cells of recorded times, of a given width or detected; None if they are too narrow to matter."""
    if resolution is None or not training.event.any():
        return None
    cells = Cells.found(training) if resolution == "auto" else Cells.of_width(training, float(resolution))
    length = training.last_time - origin
    return None if cells is None or cells.width < _SHORTEST * length or length == 0 else cells


def _first_time(outcome: Outcome) -> float:
    """The smallest time or entry time."""
    return float(outcome.time.min() if outcome.entry is None else min(outcome.time.min(), outcome.entry.min()))


def event_share(outcome: Outcome) -> float:
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
