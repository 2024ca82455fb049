"""One side of a contrast: a curve, its median, its restricted means, and the same of each member of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sumosurv.explain._members import predict_members
from sumosurv.explain._quantity import Array, Asked, QuantityName, ask
from sumosurv.explain._rows import Rows
from sumosurv.models import predict_distribution

__all__ = ["Questions", "Side", "ask_for_sides"]

_FINE = 200  # steps of the follow-up, for the median of a mean curve
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
class Questions:
    """The curve at the times asked for, the mean up to the horizons, and a fine curve for the median."""

    curve: Asked
    mean: Asked
    fine: Asked | None  # not of a cause

    def of(self, model: Any, rows: Rows) -> Questions:
        """The same of another model."""
        parts = [self.curve, self.mean, *([] if self.fine is None else [self.fine])]
        made = [ask(model, rows, q.name, q.times, q.cause) for q in (part.quantity for part in parts)]
        return Questions(made[0], made[1], made[2] if len(made) == 3 else None)

    def of_subject(self, rows: Rows) -> Side:
        """Of one row; its median from its own distribution."""
        (curve, curves), (means, each) = (asked.with_members(rows.table) for asked in (self.curve, self.mean))
        median, medians = np.nan, np.full(len(curves), np.nan)
        if self.fine is not None:
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
        (curve, curves), (means, each) = (_averaged(asked, table, share) for asked in (self.curve, self.mean))
        median, medians = np.nan, np.full(len(curves), np.nan)
        if self.fine is not None:
            mean, by_member = _averaged(self.fine, table, share)
            times = self.fine.quantity.times
            median, medians = _median(times, mean), np.array([_median(times, one) for one in by_member])
        return Side(curve, median, means, curves, medians, each)


def ask_for_sides(model: Any, rows: Rows, times: Any, horizons: Any, cause: int | None) -> Questions:
    """Check what is asked for; the fine curve reaches to the last training time, or to the last of the times."""
    curve = ask(model, rows, None, times, cause)
    name: QuantityName = "restricted_mean" if cause is None else "restricted_time_lost"
    mean = ask(model, rows, name, horizons, cause)
    last = curve.quantity.last_time or float(curve.quantity.times[-1])
    fine = ask(model, rows, "survival", np.linspace(0.0, last, _FINE + 1), None) if cause is None else None
    return Questions(curve, mean, fine)


def _averaged(asked: Asked, table: Any, share: Array) -> tuple[Array, Array]:
    """The mean over rows, (m,), and that of each member, (k, m); some rows at a time."""
    total, each = np.zeros(()), np.zeros(())
    for start in range(0, len(share), _ROWS):
        rows = slice(start, start + _ROWS)
        values, by_member = asked.with_members(table.iloc[rows] if hasattr(table, "iloc") else table[rows])
        total, each = total + share[rows] @ values, each + share[rows] @ by_member
    return total, each


def _median(times: Array, curve: Array) -> float:
    """Where a falling curve reaches one half, linear between times; NaN if it does not."""
    if curve[-1] > 0.5:
        return float("nan")
    place = int(np.argmax(curve <= 0.5))
    if place == 0:
        return float(times[0])
    high, low = curve[place - 1], curve[place]
    return float(times[place - 1] + (high - 0.5) / (high - low) * (times[place] - times[place - 1]))


def _finite(values: Any) -> Any:
    """NaN for what is never reached."""
    made = np.where(np.isfinite(values), values, np.nan)
    return float(made) if np.ndim(values) == 0 else made
