"""The map of survival probabilities that makes a model agree with rows that it did not see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import marginal_curve, risk_table
from sumosurv.outcome import Outcome, check_outcome

__all__ = ["probabilities", "recalibration"]

Array = npt.NDArray[np.float64]

_EVENTS_PER_BIN = 10


def recalibration(known: Outcome, bins: int, *, shrink: bool = True) -> tuple[Array, Array]:
    """The knots of g, survival probabilities of the base, and its values there; see `Conformal`.

    Parameters
    ----------
    known : Outcome
        On the scale of F(t|x), as `probabilities` gives it, of rows that the base was not fitted to.
    bins : int
        Intervals between knots, of equal probability; fewer where there are few events.
    shrink : bool
        Take out of g what is expected by chance.
    """
    none = np.empty(0), np.empty(0)
    events = float(known.weights[known.had_event].sum())
    bins = min(bins, int(events) // _EVENTS_PER_BIN)
    if bins < 2:
        return none
    curve = marginal_curve(known)
    before = np.append(1.0, curve.table[0].numpy()[:-1])  # the share of S(T|x) up to each 1 - F
    n = known.total
    u, g = (1.0 - curve.times.numpy())[::-1], (before * n / (n + 1.0))[::-1]
    inside = (u > 0) & (u < 1) & (g > 0)
    u, g = u[inside], g[inside]
    place = np.searchsorted(g, np.arange(1, bins) / bins * (1 - 1e-12))
    knots = np.unique(place[place < len(g)])
    # knots with the same value would make g flat, and a density of zero
    knots = knots[np.append(True, np.diff(g[knots]) > 0)[: len(knots)]]
    levels, values = np.ascontiguousarray(u[knots]), np.ascontiguousarray(g[knots])
    kept = _kept(known, levels, values) if shrink and len(levels) else 1.0
    return (levels, levels + kept * (values - levels)) if kept > 0 else none


def _kept(known: Outcome, levels: Array, values: Array) -> float:
    """The share of the deviation of g from the identity that is more than chance: max(0, 1 - k/χ²).

    χ² compares, between one knot and the next, the fall of log g with that of log u, which are independent, and divides
    by Greenwood's variance of the former; k is the number of knots. Where events lie between two times there is no such
    variance, and the number of events takes the place of the rows at risk.
    """
    order = np.arange(len(levels))[::-1]  # from survival one downwards
    falls = [-np.diff(np.log(np.append(1.0, part[order]))) for part in (values, levels)]
    if known.upper is None:
        times, events, at_risk = risk_table(known)
        left = at_risk - events
        steps = np.divide(events, at_risk * left, out=np.zeros_like(left), where=left > 1e-12 * at_risk)
        total = np.append(0.0, np.cumsum(steps))
        # g at a knot is the estimate just before the event there
        variance = np.diff(np.append(0.0, total[np.searchsorted(times, 1.0 - levels[order] - 1e-12)]))
    else:
        seen = float(known.weights[known.had_event].sum())
        variance = np.diff(np.append(0.0, (1.0 - levels[order]) / (levels[order] * seen)))
    used = variance > 0
    excess = float((np.square(falls[0] - falls[1])[used] / variance[used]).sum())
    return max(0.0, 1.0 - int(used.sum()) / excess) if excess > 0 else 0.0


def probabilities(base: SurvivalDistribution, y: Any) -> Outcome:
    """The same rows with F(t|x) for every time t."""
    outcome = check_outcome(y, n_rows=len(base))
    if base.n_causes > 1:
        raise ValueError(
            "Recalibration is for one kind of event, and this model tells causes apart; recalibrate a model of "
            "each cause: CauseSpecific(Conformal(estimator=...))."
        )
    upper = entry = None
    event, inside = outcome.event, outcome.in_interval
    with torch.no_grad():
        time = base.cdf(own_times=outcome.time)
        if outcome.entry is not None:
            entry = np.clip(base.cdf(own_times=outcome.entry), 0.0, np.nextafter(time, 0.0))
        if outcome.upper is not None:
            last = base.cdf(own_times=np.where(inside, outcome.upper, outcome.time))
            event = event | (inside & (last <= time))  # where the curve is flat between two times, F is known exactly
            upper = np.where(event, time, np.where(inside, last, np.inf))
    return replace(outcome, event=event, time=time, entry=entry, upper=upper, cause=None, group=None)
