"""Calibration of incidences at one time: predicted against Aalen-Johansen in groups of predicted risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.scores._groups import GroupTerms, check_group_options
from sumosurv.scores._inputs import Array, check_rows, check_subjects, curve_blocks, of_cause, risk_groups
from sumosurv.scores._resampling import incidence_limit, incidence_steps

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
    terms = incidence_calibration_terms(
        distribution, check_rows(y, sample_weight), time=time, cause=cause, groups=groups
    )
    return IncidenceCalibration(
        terms.value, terms.time, cause, terms.predicted, terms.observed, terms.std_error, terms.size
    )


def incidence_calibration_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    time: float | None = None,
    cause: int | None = None,
    groups: int = 10,
) -> IncidenceGroups:
    """F_k(t|x) of each subject, and the groups that it makes."""
    outcome = check_subjects(distribution, y)
    curves, other = of_cause(distribution, outcome, cause)
    at = check_group_options(outcome, time, groups)
    incidence = np.empty(len(outcome))
    for rows, block in curve_blocks(curves, np.array([at]), log=True):
        incidence[rows] = -np.expm1(block[:, 0])
    own = outcome.event if other is None else outcome.event & ~other
    return IncidenceGroups(outcome, incidence, at, risk_groups(incidence, outcome, groups), own)


@dataclass(frozen=True)
class IncidenceGroups(GroupTerms):
    """The groups of `incidence_calibration`: mean F_k(t|x) and the Aalen-Johansen estimate.

    Parameters
    ----------
    outcome, prediction, time, parts
        As in `GroupTerms`.
    own : bool array of shape (n,)
        Events of the cause.
    """

    own: npt.NDArray[np.bool_]

    def observe(self, counts: Array, part: npt.NDArray[np.intp]) -> Array:
        """Aalen-Johansen estimates of a group."""
        return incidence_limit(counts, self.outcome[part], self.own[part], self.time)

    def variance_of(self, part: npt.NDArray[np.intp]) -> float:
        """Aalen's variance of the estimate."""
        before, share = incidence_steps(np.ones((1, len(part))), self.outcome.event[part])
        past = self.outcome.time[part] <= self.time
        rise = np.where(past & self.own[part], before[0] * share[0], 0.0)
        ahead = rise.sum() - np.cumsum(rise)  # F(t) - F after each row
        n = np.arange(len(part), 0, -1.0)
        event, own = past & self.outcome.event[part], past & self.own[part]
        any_cause = np.divide(ahead**2, n * (n - 1), out=np.zeros_like(n), where=event & (n > 1))
        this = np.where(own, before[0] ** 2 * (n - 1) / n**3 - 2.0 * ahead * before[0] / n**2, 0.0)
        return max(float((any_cause + this).sum()), 0.0)
