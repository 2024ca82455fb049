"""The estimates of `Conformal`: a map of survival probabilities, and the scores of lower predictive bounds."""

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
_KEPT = 256  # scores that are stored, so that a model contains no rows
_LEVEL = 0.9  # the level for which the cut-off is chosen
_SUBSET = 500  # rows on which the cut-off is chosen
_LEAST = 0.1  # smallest P(C >= c₀ | x) at the chosen cut-off, for 95 % of the rows

Censoring = Callable[[Any, Array], Array]  # P(C >= t | x) for rows and one time per row


def recalibration(known: Outcome, bins: int, *, shrink: bool = True) -> tuple[Array, Array]:
    """Return the knots of g, which are survival probabilities of the base, and its values there; see `Conformal`.

    Parameters
    ----------
    known : Outcome
        Held-out rows with times on the scale of F(t|x), from `probabilities`.
    bins : int
        Number of intervals of equal probability between knots; fewer if there are few events.
    shrink : bool
        Remove the deviation of g from the identity that is expected by chance.
    """
    none = np.empty(0), np.empty(0)
    events = float(known.weights[known.had_event].sum())
    bins = min(bins, int(events) // _EVENTS_PER_BIN)
    if bins < 2:
        return none
    curve = marginal_curve(known)
    before = np.append(1.0, curve.table[0].numpy()[:-1])  # the proportion of S(T|x) up to each 1 - F
    n = known.total
    u, g = (1.0 - curve.times.numpy())[::-1], (before * n / (n + 1.0))[::-1]
    inside = (u > 0) & (u < 1) & (g > 0)
    u, g = u[inside], g[inside]
    place = np.searchsorted(g, np.arange(1, bins) / bins * (1 - 1e-12))
    knots = np.unique(place[place < len(g)])
    # between knots with the same value, g would be flat and the density zero
    knots = knots[np.append(True, np.diff(g[knots]) > 0)[: len(knots)]]
    levels, values = np.ascontiguousarray(u[knots]), np.ascontiguousarray(g[knots])
    kept = _shrinkage(known, levels, values) if shrink and len(levels) else 1.0
    return (levels, levels + kept * (values - levels)) if kept > 0 else none


def _shrinkage(known: Outcome, levels: Array, values: Array) -> float:
    """Return the proportion of the deviation of g from the identity that exceeds chance: max(0, 1 - k/χ²).

    χ² sums over the k knots: the squared difference between the decreases of log g and log u since the knot before,
    divided by Greenwood's variance of the decrease of log g; these decreases are independent. With interval-censored
    events there is no such variance, and the number of events replaces the number at risk.
    """
    order = np.arange(len(levels))[::-1]  # in order of decreasing survival probability
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
    """Return the outcome with every time t replaced by F(t|x)."""
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
            event = event | (inside & (last <= time))  # if the curve is flat between the two times, F is known exactly
            upper = np.where(event, time, np.where(inside, last, np.inf))
    return replace(outcome, event=event, time=time, entry=entry, upper=upper, cause=None, group=None)


# ------------------------------------------------------------------ lower bounds, by weighted conformal prediction


@dataclass(frozen=True)
class BoundScores:
    """Conformity scores of the calibration rows, and their cumulative weights."""

    cutoff: float  # c₀: a lower bound of min(T, c₀) is also one of T
    scores: Array  # S(min(T, c₀)|x), in increasing order; large for early events
    mass: Array  # cumulative sums of the weights 1 / P(C >= min(T, c₀))

    @classmethod
    def of(cls, cutoff: float, scores: Array, weights: Array) -> BoundScores:
        """Sort the scores of rows whose min(T, c₀) is known; if there are many, keep a subset."""
        order = np.argsort(scores, kind="stable")
        scores, mass = scores[order], np.cumsum(weights[order])
        if len(scores) > _KEPT:  # the weight of a dropped score counts at the next larger score: conservative
            kept = np.unique(np.searchsorted(mass, np.linspace(0, mass[-1], _KEPT + 1)[1:] * (1 - 1e-12)))
            scores, mass = scores[kept], mass[kept]
        return cls(cutoff, scores, mass)

    def thresholds(self, level: float, own_weight: Array) -> Array:
        """Return the survival probability at which the bound of each new row lies, given its largest weight, or inf.

        It is the smallest q such that scores up to q have a proportion ``level`` of the total weight, including that of
        the new row.
        """
        total = float(self.mass[-1]) if len(self.mass) else 0.0
        place = np.searchsorted(self.mass, level * (total + own_weight) * (1 - 1e-12))
        return np.append(self.scores, np.inf)[place]

    def bound(self, distribution: SurvivalDistribution, level: float, own_weight: Array) -> Array:
        """Return L(x) of each subject: the time at which S(t|x) decreases to its threshold, at most c₀."""
        found = self.thresholds(level, own_weight)
        with torch.no_grad():
            times = distribution.quantile(own_levels=np.clip(1.0 - found, 0.0, 1.0))
        return np.where(np.isinf(found), 0.0, np.minimum(times, self.cutoff))


def score_rows(
    distribution: SurvivalDistribution, outcome: Outcome, rows: Any, censoring: Censoring, cutoff: float
) -> BoundScores:
    r"""Score the rows whose min(T, c₀) was observed: events before c₀, and rows followed up to c₀.

    In these rows, (x, min(T, c₀)) has the density of the population times P(C >= min(T, c₀) | x), up to a constant. The
    weights are the inverse of this probability.
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
    """Return the cut-off with the largest mean bound at level 0.9, on rows that should not be calibration rows.

    A late cut-off truncates few bounds; an early cut-off has weights closer to one.
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
    """Return P(C >= t), the left limit, at each subject's own time; ``curves`` has one curve per subject, or one."""
    before = np.nextafter(times, -1.0).clip(0.0)
    with torch.no_grad():
        found = curves.survival(before)[0] if len(curves) == 1 else curves.survival(own_times=before)
    return np.where(times > 0, found, 1.0)
