"""Turnbull's estimate: the intervals that have mass if events are known to lie between two times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.isotonic import isotonic_regression

from sumosurv.outcome import Outcome, check_outcome
from sumosurv.warn import warn_user

Floats = npt.NDArray[np.float64]

_NO_MASS = 1e-12
_ALMOST_ALL = 1.0 - 1e-10  # the largest hazard before the last interval, with delayed entry


@dataclass(frozen=True, eq=False)
class TurnbullIntervals:
    """The intervals (lower, upper] with mass under Turnbull's estimate, increasing and disjoint.

    The data do not say where the mass lies within an interval. The limits are equal if it lies at that time, and the
    last upper limit is inf if some mass lies beyond the last time.
    """

    lower: Floats  # this and the next: limits, (m,)
    upper: Floats
    mass: Floats  # their probabilities, which sum to one
    # the largest violation of the Karush-Kuhn-Tucker conditions, per row; without entry times the mean log-likelihood
    # is within this of its maximum
    gap: float
    n_iter: int

    def survival(self, times: Any) -> Floats:
        """Return S(t) with the mass of each interval spread evenly over it; mass beyond the last time is not spread."""
        t = np.asarray(times, dtype=np.float64)
        last = np.isinf(self.upper)
        lower, upper = self.lower[~last], self.upper[~last]
        fallen = np.append(0.0, np.cumsum(self.mass[~last]))
        place = np.searchsorted(upper, t, side="right")  # intervals that have ended
        inside = np.append(lower, np.inf)[place] < t
        width = np.append(upper - lower, 1.0)[place]
        share = np.where(inside, (t - np.append(lower, 0.0)[place]) / np.where(width > 0, width, 1.0), 0.0)
        return np.asarray(np.maximum(1.0 - fallen[place] - share * np.append(self.mass[~last], 0.0)[place], 0.0))


def turnbull_intervals(
    y: Any, *, sample_weight: Any = None, tol: float = 1e-9, max_iter: int = 5000
) -> TurnbullIntervals:
    """The intervals of Turnbull's estimate and their probabilities; see `sumosurv.nonparametric.turnbull`.

    Parameters
    ----------
    y : outcome
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.
    tol : float, default 1e-09
        The iteration stops when no condition is violated by more than this, per row.
    max_iter : int, default 5000

    Examples
    --------
    >>> from sumosurv import Surv
    >>> found = turnbull_intervals(Surv.interval(lower=[0.0, 1.0, 2.0], upper=[2.0, 3.0, 3.0]))
    >>> found.lower.tolist(), found.upper.tolist(), found.mass.round(3).tolist()
    ([1.0, 2.0], [2.0, 3.0], [0.5, 0.5])
    """
    outcome = check_outcome(y, sample_weight=sample_weight)
    if outcome.weight is not None and not outcome.weight.all():
        outcome = outcome[outcome.weight > 0]
    problem = _Likelihood(outcome)
    mass = np.full(problem.m, 1.0 / problem.m)
    gap, n_iter = np.inf, 0
    for n_iter in range(max_iter + 1):
        slopes = problem.slopes(mass)
        gap = problem.gap(slopes)
        if gap <= tol or n_iter == max_iter:
            break
        mass = problem.em(problem.minorant(mass, slopes))
    if gap > tol:
        warn_user(
            f"Turnbull's estimate has not converged in {max_iter} steps: the optimality conditions "
            f"are violated by {gap:.2g} per row, and tol is {tol:g}. Increase max_iter or tol.",
            ConvergenceWarning,
        )
    has = mass > _NO_MASS
    kept = mass[has] / mass[has].sum()
    return TurnbullIntervals(problem.lower[has], problem.upper[has], kept, float(gap), n_iter)


@dataclass(frozen=True)
class _Slopes:
    gained: Floats  # Σᵢ wᵢ / P(Aᵢ) over the rows whose interval has support j
    paid: Floats  # Σᵢ wᵢ / P(T > vᵢ) over the rows under observation at support j
    probability: Floats  # P(Aᵢ)


class _Likelihood:
    """The log-likelihood of masses on the m supports, rows with the same supports taken together.

    A support lies between a lower limit and an upper limit or an entry, with no other limit between: mass anywhere
    else could be moved into one and no row would lose (Turnbull 1976; entries as in Frydman 1994). At one time,
    exact events come before upper limits and entries, and lower limits, which are open, after them.
    """

    def __init__(self, outcome: Outcome) -> None:
        low, exact = outcome.time, outcome.event
        high = np.where(exact, low, np.inf) if outcome.upper is None else outcome.upper
        entry = outcome.entries
        late = entry > 0
        self.lower, opens, self.upper = _supports(low, high, exact, entry[late])
        self.m = m = len(self.lower)
        closed = np.append(0, np.cumsum(~opens))
        tied = np.searchsorted(self.lower, low), np.searchsorted(self.lower, low, side="right")
        start = tied[0] + np.where(exact, 0, closed[tied[1]] - closed[tied[0]])
        end = np.searchsorted(self.upper, high, side="right")
        pairs, row = np.unique(start * (m + 1) + end, return_inverse=True)
        self.weight = np.bincount(row, weights=outcome.weights)
        self.start, self.end = pairs // (m + 1), pairs % (m + 1)
        self.single = self.end == self.start + 1
        first = np.where(late, np.searchsorted(self.upper, entry, side="right"), 0)
        self.entering = np.bincount(first, weights=outcome.weights, minlength=m + 1)[:m]
        self.truncated = bool((first > 0).any())
        self.total = float(outcome.weights.sum())

    def __call__(self, mass: Floats) -> float:
        probability, after = self._probabilities(mass)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = (self.weight * np.log(probability)).sum()
            value -= (self.entering * np.where(self.entering > 0, np.log(after[:-1]), 0.0)).sum()
        return float(value) if np.isfinite(value) else -np.inf

    def _probabilities(self, mass: Floats) -> tuple[Floats, Floats]:
        """P(Aᵢ), and S before each support; summed from the tail, where S may be tiny."""
        after = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        probability = np.where(self.single, mass[self.start], after[self.start] - after[self.end])
        return probability, after

    def slopes(self, mass: Floats) -> _Slopes:
        probability, after = self._probabilities(mass)
        ratio = self.weight / probability
        ends = np.bincount(self.start, weights=ratio, minlength=self.m + 1)
        ends -= np.bincount(self.end, weights=ratio, minlength=self.m + 1)
        paid = np.divide(self.entering, after[:-1], out=np.zeros(self.m), where=self.entering > 0)
        return _Slopes(np.maximum(np.cumsum(ends)[:-1], 0.0), np.cumsum(paid), probability)

    def gap(self, slopes: _Slopes) -> float:
        """Return how much the log-likelihood can still gain per row and unit of mass; at most zero at the maximum."""
        scale = np.maximum(slopes.paid, self.total) if self.truncated else self.total
        return float(((slopes.gained - slopes.paid) / scale).max())

    def em(self, mass: Floats) -> Floats:
        """One EM step: the expected events on each support, over the expected rows at risk there."""
        events = mass * self.slopes(mass).gained
        if not self.truncated:
            return np.asarray(events / events.sum())
        at_risk = np.cumsum(self.entering) - np.append(0.0, np.cumsum(events)[:-1])
        hazard = np.divide(events, np.maximum(at_risk, events), out=np.zeros(self.m), where=events > 0)
        hazard = np.append(np.minimum(hazard[:-1], _ALMOST_ALL), 1.0)
        return np.asarray(np.append(1.0, np.cumprod(1.0 - hazard)[:-1]) * hazard)

    def minorant(self, mass: Floats, slopes: _Slopes) -> Floats:
        """One step of the iterative convex minorant on F, halved until the likelihood rises."""
        if self.m == 1:
            return mass
        slope = -np.diff(slopes.gained - slopes.paid)  # in F after each support but the last
        with np.errstate(over="ignore", divide="ignore"):
            bend = self.weight / slopes.probability**2
        bends = np.bincount(self.start, weights=bend, minlength=self.m + 1)
        bends = (bends + np.bincount(self.end, weights=bend, minlength=self.m + 1))[1 : self.m]
        if not (np.isfinite(bends).all() and bends.all()):
            return mass
        wanted = np.cumsum(mass)[:-1] + slope / bends
        fitted = isotonic_regression(wanted, sample_weight=bends, y_min=0.0, y_max=1.0)
        target = np.maximum(np.diff(np.concatenate([[0.0], fitted, [1.0]])), 0.0)
        before = self(mass)
        for size in 0.5 ** np.arange(14.0):
            new: Floats = mass + size * (target - mass)
            if self(new) > before:
                return new
        return mass


def _supports(
    low: Floats, high: Floats, exact: npt.NDArray[np.bool_], entry: Floats
) -> tuple[Floats, npt.NDArray[np.bool_], Floats]:
    """Return the lower ends of the supports, whether these are open, and the upper ends."""
    limits = np.concatenate([low, high, entry])
    is_lower = np.arange(len(limits)) < len(low)
    rank = np.ones(len(limits))
    rank[: len(low)] = np.where(exact, 0.0, 2.0)
    order = np.lexsort((rank, limits))
    limits, is_lower, rank = limits[order], is_lower[order], rank[order]
    at = np.flatnonzero(is_lower[:-1] & ~is_lower[1:])
    return limits[at], rank[at] == 2.0, limits[at + 1]
