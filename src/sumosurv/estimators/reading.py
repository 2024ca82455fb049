"""From rows to tensors: what a fit learns of its rows before it has a network, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from sumosurv.networks import Inputs, Observed, Table
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import NumericScaling, Preprocessor, time_unit
from sumosurv.stored import as_number
from sumosurv.training.data import RowNumbers

__all__ = ["Learned", "Prepared", "Reading", "TimeOrigin", "read_rows"]

TimeOrigin = Literal["zero", "first"]

_SHORTEST = 1e-4  # interval, in scaled time, whose probability single precision resolves


@dataclass(frozen=True)
class Reading:
    """The settings that decide how rows are read. Two fits that agree in them read the same rows alike."""

    numeric_scaling: NumericScaling
    one_hot: bool
    time_origin: TimeOrigin = "zero"
    max_components: int | None = None


@dataclass(frozen=True)
class Learned:
    """What was learned of the rows; with an estimator's settings it determines the network.

    Attributes
    ----------
    preprocessor : Preprocessor
        Columns, levels, scales.
    time_origin, time_unit : float
        When the networks' clock starts and how long it runs, in the user's unit.
    start : mapping
        What the method learned from the outcome of the training rows (time features, cuts, start values): plain
        values that JSON can hold.
    """

    preprocessor: Preprocessor
    time_origin: float
    time_unit: float
    start: Mapping[str, Any]

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
        return cls(columns, origin, unit, {}).with_start(state["start"])


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

    @property
    def training(self) -> Outcome:
        """The outcome of the training rows, times counted from the start of the networks' clock."""
        return self.outcome[: self.n_train].on_clock(self.time_origin)

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
    origin = _first_time(outcome) if reading.time_origin == "first" else 0.0
    unit = time_unit(outcome[:n].on_clock(origin))
    table = Table(inputs, Observed.of(_for_training(outcome.on_clock(origin, unit), n)))
    return Prepared(preprocessor, origin, unit, table, outcome, n, known)


def _first_time(outcome: Outcome) -> float:
    """The smallest time at which anything is known to have begun."""
    return float(outcome.time.min() if outcome.entry is None else min(outcome.time.min(), outcome.entry.min()))


def _for_training(outcome: Outcome, n_train: int) -> Outcome:
    """The rows as single precision can learn from them.

    Weights have mean one over the training rows. The two ends of a very short interval have nearly the same survival
    probability: such an event is taken at the middle of its interval, and its term is a density.
    """
    if outcome.weight is not None:
        outcome = replace(outcome, weight=outcome.weight / outcome.weight[:n_train].mean())
    if outcome.upper is None:
        return outcome
    short = outcome.in_interval & (np.where(outcome.in_interval, outcome.upper, np.inf) - outcome.time < _SHORTEST)
    time = np.where(short, outcome.at_midpoints().time, outcome.time)
    made = replace(outcome, event=outcome.event | short, time=time, upper=np.where(short, time, outcome.upper))
    return made if made.in_interval.any() else replace(made, upper=None)
