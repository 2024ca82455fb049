"""Rows as tensors, and the values that a fit learns from its rows before it builds networks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.interpolate import PchipInterpolator
from scipy.special import logit

from sumosurv.model_files import as_number
from sumosurv.networks import Inputs, Observed, Table
from sumosurv.networks.layers import LOG_OFFSET, TimeFeatureKind, TimeFeatures
from sumosurv.nonparametric import marginal_curve
from sumosurv.outcome import Cells, Outcome
from sumosurv.preprocessing import LevelNotes, NumericScaling, Preprocessor
from sumosurv.preprocessing.columns import quantiles
from sumosurv.training.batches import Batches, Member, RowNumbers

TimeOrigin = Literal["zero", "first"]
Resolution = float | Literal["auto"] | None

ONE_OUTCOME = "Give time and event as one: fit(X, Surv.from_arrays(event, time))."

_FEATURES = {
    "entry": "delayed entry (left truncation)",
    "intervals": "interval-censored events",
    "causes": "competing risks",
    "weights": "sample weights",
}

_TIME_KNOTS, _EVENTS_PER_KNOT = 10, 8  # of the marginal time feature
_CLOSEST = 1e-2  # smallest distance between two knots in log time
_SHORTEST = 1e-4  # shortest interval, in scaled time, whose probability single precision resolves


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
    """Values learned from the rows. Together with a method's settings, they determine the network."""

    preprocessor: Preprocessor  # columns, levels, scales
    time_origin: float  # origin and unit of scaled time, in the user's time unit
    time_unit: float
    # values that the method learned from the training outcome, as JSON values
    start: Mapping[str, Any]
    cells: Cells | None = None  # of rounded times, in the user's time unit; None if times are exact

    def with_start(self, start: Any) -> Learned:
        """Return a copy with the start values of a method."""
        if not isinstance(start, dict):
            raise TypeError("the start values are not a mapping")
        return replace(self, start=start)

    def observe(self, outcome: Outcome, mean_weight: float | None) -> Outcome:
        """Return an outcome in scaled time, prepared for training in single precision.

        Weights are divided by their mean over the training rows. The two ends of a very short interval have nearly the
        same survival probability; an event in such an interval is moved to its midpoint, and its term is a density.
        """
        observed = outcome if self.cells is None else self.cells.of(outcome)
        made = observed.on_time_scale(self.time_origin, self.time_unit)
        if made.weight is not None:
            assert mean_weight is not None
            made = replace(made, weight=made.weight / mean_weight)
        if made.upper is None:
            return made
        short = made.in_interval & (np.where(made.in_interval, made.upper, np.inf) - made.time < _SHORTEST)
        time = np.where(short, made.at_midpoints().time, made.time)
        return replace(made, event=made.event | short, time=time, upper=np.where(short, time, made.upper))

    def example(self) -> torch.Tensor:
        """Return two rows of zeros in the shape of an encoder's input."""
        shape = self.preprocessor.row_shape or (self.preprocessor.n_numeric,)
        return torch.zeros(2, *shape)

    def state(self) -> dict[str, Any]:
        """Return the learned values as plain JSON values, without the start values."""
        return {
            "preprocessor": self.preprocessor.state(),
            "time_origin": self.time_origin,
            "time_unit": self.time_unit,
            "cells": None if self.cells is None else asdict(self.cells),
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the values that are too large for JSON: the principal components of a wide table."""
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
    """The rows of one fit as tensors: training rows first, then those of ``validation_data``."""

    learned: Learned  # without start values, which depend on the method
    table: Table
    outcome: Outcome  # as it was given
    n_train: int

    @property
    def log_unit(self) -> float:
        """Log-likelihood of an event in scaled time minus that in the user's time unit."""
        cells = self.learned.cells
        return math.log(self.learned.time_unit if cells is None else cells.width)

    @property
    def training(self) -> Outcome:
        """The outcome of the training rows, as it was given."""
        return self.outcome[: self.n_train]

    def n_training(self, members: Sequence[Member]) -> int:
        """Return the number of training rows of a member."""
        return len(members[0].train_rows)

    def event_shares(self, members: Sequence[Member]) -> npt.NDArray[np.float64]:
        """Return, for each member, the proportion of training rows whose likelihood is a density."""
        return np.array([event_share(self.outcome[member.train_rows]) for member in members])

    def batches(self, members: Sequence[Member], batch_size: int, device: torch.device) -> Batches | None:
        """Return the source of training batches; None to draw batches from the table."""
        return None

    def own_rows(self) -> tuple[RowNumbers, RowNumbers | None]:
        """Return the training rows, and the rows of ``validation_data`` if there are any."""
        every = np.arange(len(self.outcome))
        return every[: self.n_train], every[self.n_train :] if self.n_train < len(every) else None


def read_rows(
    options: RowOptions, rows: tuple[Any, Outcome], validation_rows: tuple[Any, Outcome] | None
) -> PreparedRows:
    """Fit the preprocessor and the time scale to checked training rows, and convert training and validation rows."""
    X, outcome = rows
    n = len(outcome)
    preprocessor = Preprocessor(
        options.numeric_scaling, one_hot=options.one_hot, max_components=options.max_components
    ).fit(X, outcome.weight)
    inputs = preprocessor.transform(X)
    if validation_rows is not None:
        notes = LevelNotes()
        preprocessor.note_levels(validation_rows[0], notes)
        notes.warn()
        inputs = Inputs.join([inputs, preprocessor.transform(validation_rows[0])])
        outcome = Outcome.join([outcome, validation_rows[1]])
    learned = learn_time_scale(options, preprocessor, outcome[:n], [outcome])
    trained = learned.observe(outcome, None if outcome.weight is None else float(outcome.weight[:n].mean()))
    if not trained.in_interval.any():
        trained = replace(trained, upper=None)
    return PreparedRows(learned, Table(inputs, Observed.of(trained)), outcome, n)


def learn_time_scale(
    options: RowOptions, preprocessor: Preprocessor, training: Outcome, parts: Sequence[Outcome]
) -> Learned:
    """Learn the cells of rounded times and the time scale of the networks, whose origin is zero or the first time.

    ``parts`` are all rows, validation rows included. If times have cells, the first time is the start of its cell.
    """
    late = options.time_origin == "first"
    cells = _find_cells(training, options.resolution, min(map(_first_time, parts)) if late else 0.0)
    in_cells = [part if cells is None else cells.of(part) for part in (training, *parts)]
    origin = min(map(_first_time, in_cells[1:])) if late else 0.0
    return Learned(preprocessor, origin, time_unit(in_cells[0].on_time_scale(origin)), {}, cells)


def _find_cells(training: Outcome, resolution: Resolution, origin: float) -> Cells | None:
    """Return the cells of rounded times, of a given or detected width; None if they are too narrow to matter."""
    if resolution is None or not training.event.any():
        return None
    cells = Cells.found(training) if resolution == "auto" else Cells.of_width(training, float(resolution))
    length = training.last_time - origin
    return None if cells is None or cells.width < _SHORTEST * length or length == 0 else cells


def _first_time(outcome: Outcome) -> float:
    """The smallest time or entry time."""
    return float(outcome.time.min() if outcome.entry is None else min(outcome.time.min(), outcome.entry.min()))


def event_share(outcome: Outcome) -> float:
    """Return the proportion of rows whose likelihood is a density."""
    return float(outcome.event.mean() if outcome.weight is None else np.average(outcome.event, weights=outcome.weight))


# ------------------------------------------------------------------ time


def time_unit(outcome: Outcome) -> float:
    """Return the largest training time, which becomes 1 in scaled time; 1 if all times are zero.

    In scaled time t' = t / unit, the density is f(t) = f'(t') / unit.
    """
    return outcome.last_time or 1.0


def time_features(kind: TimeFeatureKind, y: Outcome, unit: float) -> TimeFeatures:
    """Fit time features to the outcome of the training rows; see `TimeFeatures`.

    "marginal" has one knot per eight events, at most ten. It needs two distinct event times; with fewer, "log" is used.
    """
    y = y.on_time_scale(unit=unit)
    if kind == "linear":
        low, high = float(y.time.min()), y.last_time
        return TimeFeatures("linear", torch.tensor([[[low], [high - low if high > low else 1.0]]]))
    if kind == "log":
        return TimeFeatures("log")
    middle = y.at_midpoints()
    events, weight = middle.time[middle.event], None if y.weight is None else y.weight[middle.event]
    count = float(weight.sum()) if weight is not None else len(events)
    n_knots = int(np.clip(count // _EVENTS_PER_KNOT, 2, _TIME_KNOTS))
    levels = (np.arange(n_knots) + 0.5) / n_knots
    places = quantiles(events, levels, weight) if len(events) else np.zeros(0)
    places = places[np.diff(np.log(places + LOG_OFFSET), prepend=-np.inf) > _CLOSEST]
    if len(places) < 2:
        return TimeFeatures("log")
    curve = marginal_curve(y)
    before = curve.cdf(np.nextafter(places, -np.inf).clip(0))[0]
    least = 0.5 / max(y.total, 2.0)
    share = np.clip(0.5 * (before + curve.cdf(places)[0]), least, 1 - least)
    x, odds = np.log(places + LOG_OFFSET), 0.5 * logit(share)
    slopes = PchipInterpolator(x, odds).derivative()(x)
    return TimeFeatures("marginal", torch.from_numpy(np.stack([x, odds, np.maximum(slopes, 1e-3)]))[None])


# ------------------------------------------------------------------ checks of arguments of fit


def check_validation_data(given: Any) -> None:
    """Raise a ValueError unless ``validation_data`` is None, (X, y) or (X, y, weights)."""
    if given is None:
        return
    fits = isinstance(given, (tuple, list)) and len(given) in (2, 3)
    if fits and len(given) == 3 and not isinstance(given[1], Outcome):
        y = np.asarray(given[1])
        fits = y.ndim != 1 or y.dtype.names is not None  # plain times: the third item would be events
    if not fits:
        size = f" of length {len(given)}" if hasattr(given, "__len__") else ""
        raise ValueError(
            f"validation_data must be a pair (X, y) of rows for early stopping, or (X, y, sample_weight); got "
            f"{type(given).__name__}{size}. {ONE_OUTCOME}"
        )


def check_learns_from(name: str, able: Collection[str], outcome: Outcome) -> None:
    """Raise a ValueError if the outcome has a feature that a method does not support."""
    present = {
        "entry": outcome.entry is not None,
        "intervals": outcome.upper is not None,
        "causes": outcome.cause is not None,
        "weights": outcome.weight is not None,
    }
    for feature, found in present.items():
        if found and feature not in able:
            others = "SumoNet and ParametricRegression do."
            if feature == "causes":
                others = f"SumoNet does. For one model per cause, use CauseSpecific({name}())."
            raise ValueError(f"{name} does not support {_FEATURES[feature]}; {others}")
