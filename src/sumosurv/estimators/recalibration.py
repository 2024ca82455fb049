"""What `Conformal` learns from calibration rows: a map of survival probabilities, and lower predictive bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import marginal_curve, risk_table
from sumosurv.outcome import Outcome, check_outcome

__all__ = ["BoundScores", "choose_cutoff", "just_before", "probabilities", "recalibration", "score_rows"]

Array = npt.NDArray[np.float64]

_EVENTS_PER_BIN = 10
_KEPT = 256  # scores that are kept, so that a model holds no rows
_LEVEL = 0.9  # the level for which the cut-off is chosen
_SUBSET = 500  # rows on which it is chosen
_LEAST = 0.1  # of P(C >= c₀ | x) at a cut-off that is chosen, for all but a twentieth of the rows

Censoring = Callable[[Any, Array], Array]  # P(C >= t | x), of rows and a time for each


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
    kept = _shrinkage(known, levels, values) if shrink and len(levels) else 1.0
    return (levels, levels + kept * (values - levels)) if kept > 0 else none


def _shrinkage(known: Outcome, levels: Array, values: Array) -> float:
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
            "Recalibration does not support competing risks; recalibrate the model of each cause: "
            "CauseSpecific(Conformal(estimator=...))."
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


# ------------------------------------------------------------------ lower bounds, by weighted conformal prediction


@dataclass(frozen=True)
class BoundScores:
    """Scores of the calibration rows, which tell how much they surprise a model, and their weights."""

    cutoff: float  # c₀: the bound is one for min(T, c₀), and so for T
    scores: Array  # S(min(T, c₀)|x), increasing: large where an event came early
    mass: Array  # the weights 1 / P(C >= min(T, c₀)) of all rows with a score up to this one

    @classmethod
    def of(cls, cutoff: float, scores: Array, weights: Array) -> BoundScores:
        """Scores of the rows whose min(T, c₀) is known; if there are many, some stand for those below them."""
        order = np.argsort(scores, kind="stable")
        scores, mass = scores[order], np.cumsum(weights[order])
        if len(scores) > _KEPT:  # the mass of a score that is left out is counted at the next larger one: never too low
            kept = np.unique(np.searchsorted(mass, np.linspace(0, mass[-1], _KEPT + 1)[1:] * (1 - 1e-12)))
            scores, mass = scores[kept], mass[kept]
        return cls(cutoff, scores, mass)

    def thresholds(self, level: float, own_weight: Array) -> Array:
        """The survival probability at which the bound of a new row lies, given its largest weight; inf for none.

        The smallest q such that scores up to q have the share ``level`` of all mass, the new row's counted as beyond.
        """
        total = float(self.mass[-1]) if len(self.mass) else 0.0
        place = np.searchsorted(self.mass, level * (total + own_weight) * (1 - 1e-12))
        return np.append(self.scores, np.inf)[place]

    def bound(self, distribution: SurvivalDistribution, level: float, own_weight: Array) -> Array:
        """L(x) of each subject: the time at which S(t|x) falls to its threshold, c₀ at most."""
        found = self.thresholds(level, own_weight)
        with torch.no_grad():
            times = distribution.quantile(own_levels=np.clip(1.0 - found, 0.0, 1.0))
        return np.where(np.isinf(found), 0.0, np.minimum(times, self.cutoff))


def score_rows(
    distribution: SurvivalDistribution, outcome: Outcome, rows: Any, censoring: Censoring, cutoff: float
) -> BoundScores:
    r"""Scores of the rows whose min(T, c₀) was seen: events before c₀, and all that were followed up to it.

    Given that it was seen, (x, min(T, c₀)) has the density of the population times P(C >= min(T, c₀) | x); its inverse
    is the weight that undoes this.
    """
    until = np.minimum(outcome.time, cutoff)
    seen = outcome.event | (outcome.time >= cutoff)
    with torch.no_grad():
        scores = distribution.survival(own_times=until)[seen]
    probability = censoring(rows, until)[seen]
    if (probability <= 0).any() or (censoring(rows, np.full(len(until), cutoff)) <= 0).all():
        raise ValueError(
            "Under the estimated censoring distribution, nobody is followed up to the cut-off "
            f"{cutoff:g}; choose an earlier cutoff."
        )
    return BoundScores.of(cutoff, scores, outcome.weights[seen] / probability)


def choose_cutoff(distribution: SurvivalDistribution, outcome: Outcome, rows: Any, censoring: Censoring) -> float:
    """The cut-off with the largest mean bound at level 0.9 on some rows, which should not be those of the calibration.

    A late one cuts off little, an early one needs weights less far from one.
    """
    candidates = np.unique(np.quantile(outcome.time, np.linspace(0.1, 0.9, 9)))
    best, chosen = -1.0, float(candidates[0])
    some = np.arange(len(outcome))[:: max(1, len(outcome) // _SUBSET)]
    for cutoff in candidates:
        probability = censoring(rows, np.full(len(outcome), cutoff))
        if np.quantile(probability, 0.05) < _LEAST:
            break
        scores = score_rows(distribution, outcome, rows, censoring, float(cutoff))
        mean = float(scores.bound(distribution[some], _LEVEL, 1.0 / probability[some]).mean())
        if mean > best:
            best, chosen = mean, float(cutoff)
    return chosen


def just_before(curves: SurvivalDistribution, times: Array) -> Array:
    """P(C >= t) of each subject at its own time, or of one curve for all: the left limit, one at zero."""
    before = np.nextafter(times, -1.0).clip(0.0)
    with torch.no_grad():
        found = curves.survival(before)[0] if len(curves) == 1 else curves.survival(own_times=before)
    return np.where(times > 0, found, 1.0)
