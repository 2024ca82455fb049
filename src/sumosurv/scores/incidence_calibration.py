"""Calibration of incidences at one time: predicted against Aalen-Johansen in groups of predicted risk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array, check_rows, check_subjects, curve_blocks, median_time, of_cause, risk_groups
from sumosurv.scores._resampling import Resamples, product_limit, ratio, shrinkage

__all__ = ["IncidenceCalibration", "incidence_calibration", "incidence_calibration_terms"]


@dataclass(frozen=True)
class IncidenceCalibration:
    """Predicted and Aalen-Johansen incidence at one time, in groups of predicted risk.

    Attributes
    ----------
    score : float
        Σ (n_g / n) (predicted - observed)²; lower is better.
    time : float
    cause : int or None
    predicted, observed, std_error : ndarray of shape (groups,)
        Mean F_k(t|x), the Aalen-Johansen estimate (nan where a group is not followed up to t) and its standard error.
    size : ndarray of shape (groups,)
    """

    score: float
    time: float
    cause: int | None
    predicted: Array
    observed: Array
    std_error: Array
    size: Array


def incidence_calibration(
    distribution: SurvivalDistribution,
    y: Any,
    time: float | None = None,
    *,
    cause: int | None = None,
    groups: int = 10,
    sample_weight: Any = None,
) -> IncidenceCalibration:
    r"""Calibration of the cumulative incidence of one cause at one time; lower is better; not proper.

    .. math:: \sum_g \frac{n_g}{n} \big(\bar F_{k,g}(t) - AJ_{k,g}(t)\big)^2

    Subjects are put into groups of equal size by F_k(t|x), equal predictions together; in each, the mean F_k(t|x) is
    set against the Aalen-Johansen estimate of the group, which assumes that censoring says nothing about the event
    within the group.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    time : float, optional
        The median of the times in y by default.
    cause : int, optional
        Counted from one; without one, an event is one of any cause, and the estimate one minus Kaplan-Meier.
    groups : int
        Fewer are made where there are fewer subjects.
    sample_weight : array of shape (n,), optional
        How many subjects each row counts for. There are then no standard errors (nan).

    Returns
    -------
    IncidenceCalibration

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import CauseMixture, Weibull
    >>> y = Surv.from_arrays(event=[1, 2, 1, 2], time=[0.4, 1.2, 1.5, 4.0], causes=2)
    >>> d = CauseMixture(np.zeros((4, 2)), [Weibull([1.0, 1.0, 3.0, 3.0], 1.0)] * 2)
    >>> found = incidence_calibration(d, y, 1.3, cause=1, groups=2)
    >>> found.predicted.round(3), found.observed
    (array([0.176, 0.364]), array([0. , 0.5]))
    """
    outcome = check_rows(y, sample_weight)
    terms = incidence_calibration_terms(distribution, outcome, time=time, cause=cause, groups=groups)
    unknown = np.isnan(terms.observed) | (outcome.weight is not None)
    error = np.where(unknown, np.nan, np.sqrt(terms.variance))
    return IncidenceCalibration(terms.value, terms.time, cause, terms.predicted, terms.observed, error, terms.size)


def incidence_calibration_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    time: float | None = None,
    cause: int | None = None,
    groups: int = 10,
) -> GroupIncidences:
    """F_k(t|x) of each subject, and the groups that it makes."""
    outcome = check_subjects(distribution, y)
    curves, other = of_cause(distribution, outcome, cause)
    at = median_time(outcome) if time is None else float(time)
    if not (np.isfinite(at) and at >= 0):
        raise ValueError(f"time is a number, zero or more; got {time}.")
    if groups < 1:
        raise ValueError(f"groups is 1 or more; got {groups}.")
    incidence = np.empty(len(outcome))
    for rows, block in curve_blocks(curves, np.array([at]), log=True):
        incidence[rows] = -np.expm1(block[:, 0])
    own = outcome.event if other is None else outcome.event & ~other
    return GroupIncidences(outcome, own, incidence, at, risk_groups(incidence, outcome, groups))


@dataclass(frozen=True)
class GroupIncidences:
    """The groups of `incidence_calibration`; in resamples the subjects stay in them.

    Deviations are shrunk before the noise of resampling is added to them, as in `SquareTerms`.

    Parameters
    ----------
    outcome : Outcome
    own : bool array of shape (n,)
        Events of the cause.
    incidence : array of shape (n,)
        F_k(t|x).
    time : float
    parts : list of arrays
        The rows of each group, in the order of time, events first among ties.
    """

    outcome: Outcome
    own: npt.NDArray[np.bool_]
    incidence: Array
    time: float
    parts: list[npt.NDArray[np.intp]]

    @cached_property
    def size(self) -> Array:
        """Subjects in each group."""
        return np.array([self.outcome[part].total for part in self.parts])

    @cached_property
    def predicted(self) -> Array:
        """Mean F_k(t|x) of each group."""
        return np.array([np.average(self.incidence[part], weights=self.outcome.weights[part]) for part in self.parts])

    @cached_property
    def observed(self) -> Array:
        """Aalen-Johansen estimate of each group, nan where follow-up ends before the time."""
        return np.asarray(self._groups(self.outcome.weights[None])[1][0])

    @cached_property
    def variance(self) -> Array:
        """Aalen's variance of these estimates."""
        made = []
        for part in self.parts:
            before, share = self._steps(np.ones((1, len(part))), part)
            past = self.outcome.time[part] <= self.time
            rise = np.where(past & self.own[part], before[0] * share[0], 0.0)
            ahead = rise.sum() - np.cumsum(rise)  # F(t) - F after each row
            n = np.arange(len(part), 0, -1.0)
            event, own = past & self.outcome.event[part], past & self.own[part]
            any_cause = np.divide(ahead**2, n * (n - 1), out=np.zeros_like(n), where=event & (n > 1))
            this = np.where(own, before[0] ** 2 * (n - 1) / n**3 - 2.0 * ahead * before[0] / n**2, 0.0)
            made.append(max(float((any_cause + this).sum()), 0.0))
        return np.array(made)

    @property
    def value(self) -> float:
        """The score of the sample itself."""
        return float(_weighted_mean(np.square(self.predicted - self.observed), self.size))

    def resampled(self, resamples: Resamples) -> Array:
        """The score of each resample, shape (r,)."""
        deviation = self.predicted - self.observed
        within = np.array([self.incidence[part].var() for part in self.parts]) / self.size
        noise = np.where(np.isnan(deviation), np.nan, np.maximum(self.variance - within, 0.0))
        kept = shrinkage(self.value, float(_weighted_mean(noise, self.size)))
        predicted, observed, size = self._groups(resamples.counts)
        return _weighted_mean(np.square(predicted - observed - (1.0 - kept) * deviation), size)

    def _steps(self, drawn: Array, part: npt.NDArray[np.intp]) -> tuple[Array, Array]:
        """S before each row of a group, and the row's share of those at risk, each of shape (r, rows).

        Tied rows may be taken one after the other: S before times the share is the same.
        """
        survival = product_limit(drawn, self.outcome.event[part])[:, :-1]
        at_risk = np.cumsum(drawn[:, ::-1], axis=1)[:, ::-1]
        return survival, np.divide(drawn, at_risk, out=np.zeros_like(drawn), where=drawn > 0)

    def _groups(self, counts: Array) -> tuple[Array, Array, Array]:
        """(predicted, observed, size) of the groups, each of shape (r, groups)."""
        predicted, observed, size = np.empty((3, len(counts), len(self.parts)))
        for g, part in enumerate(self.parts):
            drawn, time = counts[:, part], self.outcome.time[part]
            size[:, g] = drawn.sum(axis=1)
            predicted[:, g] = ratio(drawn @ self.incidence[part], size[:, g])
            before, share = self._steps(drawn, part)
            past = time <= self.time
            rise = np.where(past & self.own[part], before * share, 0.0).sum(axis=1)
            left = product_limit(drawn, self.outcome.event[part])[:, int(past.sum())]
            followed = (drawn[:, time >= self.time].sum(axis=1) > 0) | (left == 0)
            observed[:, g] = np.where(followed, rise, np.nan)
        return predicted, observed, size


def _weighted_mean(values: Array, weights: Array) -> Array:
    """Mean over the last axis of the values that are known; nan where none is."""
    known = ~np.isnan(values)
    weights = np.where(known, weights, 0.0)
    return ratio((np.where(known, values, 0.0) * weights).sum(axis=-1), weights.sum(axis=-1))
