"""One side of a contrast: a curve, its median, its restricted means, and the same of each member of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.explain._quantity import Array, QuantityName, QuantityPredictor, predict_members, quantity_predictor
from sumosurv.explain._rows import Rows
from sumosurv.models import predict_distribution
from sumosurv.sources import take_rows

__all__ = ["ContrastPredictor", "Side", "contrast_predictor"]

_STEPS = 32  # into which the search for a median parts an interval of time
_ROWS = 1000  # averaged at once


@dataclass(frozen=True, eq=False)
class Side:
    """Curve (m,), median and means (h,) of one side, and the same of each of k members or fits, (k, ...)."""

    curve: Array
    median: float
    means: Array
    curves: Array
    medians: Array
    each_means: Array

    def with_replicates(self, others: Sequence[Side]) -> Side:
        """The same with other fits instead of members."""
        return replace(
            self,
            curves=np.stack([other.curve for other in others]),
            medians=np.array([other.median for other in others]),
            each_means=np.stack([other.means for other in others]),
        )


@dataclass(frozen=True, eq=False)
class ContrastPredictor:
    """The curve at the requested times, the mean up to the horizons, and the last time at which a median may lie."""

    curve: QuantityPredictor
    mean: QuantityPredictor
    last_time: float

    def of(self, model: Any, rows: Rows) -> ContrastPredictor:
        """The same for another model."""
        made = [
            quantity_predictor(model, rows, q.name, q.times, q.cause) for q in (self.curve.quantity, self.mean.quantity)
        ]
        return ContrastPredictor(made[0], made[1], self.last_time)

    def of_subject(self, rows: Rows) -> Side:
        """Of one row; its median from its own distribution."""
        (curve, curves), (means, each) = (predictor.with_members(rows.table) for predictor in (self.curve, self.mean))
        median, medians = np.nan, np.full(len(curves), np.nan)
        if self.curve.quantity.cause is None:
            with torch.no_grad():
                distribution = predict_distribution(self.curve.model, rows.table)
                median = float(distribution.median()[0])
                members = predict_members(self.curve.model, rows.table).distributions
                medians = np.array([one.median()[0] for one in members])
        return Side(curve[0], _finite(median), means[0], curves[:, 0], _finite(medians), each[:, 0])

    def of_rows(self, rows: Rows, new: Mapping[int, Any], weight: Array | None) -> Side:
        """Means over rows with some columns set; the median is that of the mean curve."""
        table = rows.replaced({place: rows.series(place, [value] * len(rows)) for place, value in new.items()})
        if len(rows) == 1:
            return self.of_subject(Rows(table))
        share = np.full(len(rows), 1.0 / len(rows)) if weight is None else weight / weight.sum()
        (curve, curves), (means, each) = (_averaged(predictor, table, share) for predictor in (self.curve, self.mean))
        median, medians = np.nan, np.full(len(curves), np.nan)
        if self.curve.quantity.cause is None:
            median, medians = self._medians(table, share)
        return Side(curve, median, means, curves, medians, each)

    def _medians(self, table: Any, share: Array) -> tuple[float, Array]:
        """The median of the mean curve, and of the mean curve of each member."""
        with torch.no_grad():
            blocks = [_taken(table, slice(start, start + _ROWS)) for start in range(0, len(share), _ROWS)]
            members = zip(*(predict_members(self.curve.model, rows).distributions for rows in blocks))
            medians = np.array([_median(parts, share, self.last_time) for parts in members])
            if len(medians) == 1:
                return float(medians[0]), medians
            whole = [predict_distribution(self.curve.model, rows) for rows in blocks]
            return _median(whole, share, self.last_time), medians


def contrast_predictor(model: Any, rows: Rows, times: Any, horizons: Any, cause: int | None) -> ContrastPredictor:
    """Check the request; medians are sought up to the last training time, or to the last of the times."""
    curve = quantity_predictor(model, rows, None, times, cause)
    name: QuantityName = "restricted_mean" if cause is None else "restricted_time_lost"
    mean = quantity_predictor(model, rows, name, horizons, cause)
    return ContrastPredictor(curve, mean, curve.quantity.last_time or float(curve.quantity.times[-1]))


def _averaged(predictor: QuantityPredictor, table: Any, share: Array) -> tuple[Array, Array]:
    """The mean over rows, (m,), and that of each member, (k, m); some rows at a time."""
    total, each = np.zeros(()), np.zeros(())
    for start in range(0, len(share), _ROWS):
        rows = slice(start, start + _ROWS)
        values, by_member = predictor.with_members(_taken(table, rows))
        total, each = total + share[rows] @ values, each + share[rows] @ by_member
    return total, each


def _taken(table: Any, rows: slice) -> Any:
    return take_rows(table, rows)


def _median(parts: Sequence[SurvivalDistribution], share: Array, last: float) -> float:
    """Where the mean curve of all rows, which come in parts, reaches one half; NaN if that is after the last time."""
    ends = np.cumsum([len(part) for part in parts])[:-1]
    shares = np.split(share, ends)

    def mean(times: Array) -> Array:
        return np.asarray(sum(own @ np.asarray(part.survival(times)) for own, part in zip(shares, parts)))

    low, high = 0.0, last
    if mean(np.array([high]))[0] > 0.5:
        return float("nan")
    while high - low > 1e-10 * high:
        times = np.linspace(low, high, _STEPS + 1)
        place = int(np.argmax(np.append(mean(times[1:-1]), 0.0) <= 0.5))
        low, high = float(times[place]), float(times[place + 1])
    steps = parts[0].step_table()
    if steps is None:
        return high
    knots = np.asarray(steps[0], dtype=np.float64)
    return float(knots[max(int(np.searchsorted(knots, high, side="right")) - 1, 0)])


def _finite(values: Any) -> Any:
    """NaN for what is never reached."""
    made = np.where(np.isfinite(values), values, np.nan)
    return float(made) if np.ndim(values) == 0 else made
