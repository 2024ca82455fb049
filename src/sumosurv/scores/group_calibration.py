"""Kaplan-Meier calibration at one time: predicted against observed survival in groups of predicted risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from sumosurv.distributions import SurvivalDistribution
from sumosurv.scores._groups import GroupTerms, check_group_options
from sumosurv.scores._inputs import Array, check_rows, check_subjects, curve_blocks, risk_groups
from sumosurv.scores._resampling import product_limit

__all__ = ["KMCalibration", "km_calibration", "km_calibration_terms"]

_GRID = 32  # times up to t at which the predicted curves are read for the variance under the model


@dataclass(frozen=True)
class KMCalibration:
    """Predicted and Kaplan-Meier survival at one time, in groups of predicted risk.

    Attributes
    ----------
    score : float
        Σ (n_g / n) (predicted - observed)²; lower is better.
    statistic, p_value : float
        Σ (predicted - observed)² / Var₀(observed), with the variance that the observed survival has if the
        predictions are right, and its p-value on as many degrees of freedom as groups were used.
    time : float
    predicted, observed, std_error : ndarray of shape (groups,)
        Mean S(t|x), Kaplan-Meier estimate (nan where a group is not followed up to t) and its Greenwood standard error.
    size : ndarray of shape (groups,)
    """

    score: float
    statistic: float
    p_value: float
    time: float
    predicted: Array
    observed: Array
    std_error: Array
    size: Array


def km_calibration(
    distribution: SurvivalDistribution,
    y: Any,
    time: float | None = None,
    *,
    groups: int = 10,
    sample_weight: Any = None,
) -> KMCalibration:
    r"""Kaplan-Meier calibration at one time (one-calibration); lower is better; not proper.

    Subjects are put into groups of equal size by S(t|x), equal predictions together; in each, the mean S(t|x) is set
    against the Kaplan-Meier estimate of the group. The test is

    .. math:: χ^2 = \sum_g \frac{(\bar S_g(t) - KM_g(t))^2}{V_g}, \qquad
              V_g = \frac{1}{n_g} \Bigl(\bar S_g(t)^2 \int_0^t \frac{d(1/\bar S_g(s))}{G_g(s)} - s^2_g\Bigr),

    on one degree of freedom per group, since the model was fitted to other rows. V_g is the variance of the difference
    if the predictions are right: Greenwood's, with the group's mean predicted curve in place of its Kaplan-Meier
    estimate, G_g the Kaplan-Meier estimate of the censoring and s²_g the variance of S(t|x) within the group. Groups
    whose follow-up ends before t do not enter.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    time : float, optional
        The median of the times in y by default.
    groups : int
        Fewer are made where there are fewer subjects.
    sample_weight : array of shape (n,), optional
        How many subjects each row counts for. There are then no standard errors and no test (nan).

    Returns
    -------
    KMCalibration

    Notes
    -----
    The test of Greenwood, Nam and D'Agostino (Demler et al. 2015) divides by Greenwood's variance of the observed
    survival instead. A group that happens to have few events then has a small variance as well, and the truth is
    rejected too often: with ten groups of 50 subjects in 10 to 20 % of samples at the nominal level of 5 %, over six
    designs with none to four fifths of the rows censored. With the variance above it is rejected in 4 to 6 %
    (``benchmarks/calibration_level.py``).

    References
    ----------
    D'Agostino, Nam (2003), Handbook of Statistics 23; Demler, Paynter, Cook (2015), Statistics in Medicine 34;
    Haider et al. (2020), Journal of Machine Learning Research 21.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[1, 1, 1, 1], time=[0.4, 1.2, 1.5, 4.0])
    >>> result = km_calibration(Weibull([1.0, 1.0, 3.0, 3.0], 1.0), y, 1.3, groups=2)
    >>> result.predicted.round(3), result.observed
    (array([0.273, 0.648]), array([0., 1.]))
    """
    terms = km_calibration_terms(distribution, check_rows(y, sample_weight), time=time, groups=groups)
    followed, deviation = ~np.isnan(terms.observed), terms.predicted - terms.observed
    variance = _variance_of_the_model(distribution, terms, followed)
    tested = followed & ((variance > 0) | (deviation != 0))  # S = 1 leaves no variance: there an event is impossible
    with np.errstate(divide="ignore"):
        statistic = float((np.square(deviation[tested]) / variance[tested]).sum())
    p_value = float(chi2.sf(statistic, int(tested.sum()))) if tested.any() else float("nan")
    if terms.outcome.weight is not None:
        statistic, p_value = float("nan"), float("nan")
    return KMCalibration(
        terms.value, statistic, p_value, terms.time, terms.predicted, terms.observed, terms.std_error, terms.size
    )


@dataclass(frozen=True)
class SurvivalGroups(GroupTerms):
    """The groups of `km_calibration`: mean S(t|x) and the Kaplan-Meier estimate."""

    def observe(self, counts: Array, part: npt.NDArray[np.intp]) -> Array:
        """Kaplan-Meier estimates of a group."""
        time = self.outcome.time[part]
        curve = product_limit(counts, self.outcome.event[part])[:, np.searchsorted(time, self.time, side="right")]
        followed = (counts[:, time >= self.time].sum(axis=1) > 0) | (curve == 0)
        return np.where(followed, curve, np.nan)

    def variance_of(self, part: npt.NDArray[np.intp]) -> float:
        """Greenwood's variance of the Kaplan-Meier estimate."""
        past = self.outcome.event[part] & (self.outcome.time[part] <= self.time)
        at_risk = np.arange(len(part), 0, -1.0)[past]
        if len(at_risk) and at_risk[-1] == 1:
            return 0.0  # everybody had the event
        survival = np.prod(1.0 - 1.0 / at_risk)
        # tied events taken one after the other: 1/(n(n-1)) + 1/((n-1)(n-2)) = 2/(n(n-2))
        return float(survival**2 * (1.0 / (at_risk * (at_risk - 1.0))).sum())


def km_calibration_terms(
    distribution: SurvivalDistribution, y: Any, *, time: float | None = None, groups: int = 10
) -> SurvivalGroups:
    """S(t|x) of each subject, and the groups that it makes."""
    outcome = check_subjects(distribution, y)
    at = check_group_options(outcome, time, groups)
    survival = np.empty(len(outcome))
    for rows, block in curve_blocks(distribution, np.array([at])):
        survival[rows] = block[:, 0]
    return SurvivalGroups(outcome, survival, at, risk_groups(survival, outcome, groups))


def _variance_of_the_model(
    distribution: SurvivalDistribution, terms: SurvivalGroups, followed: npt.NDArray[np.bool_]
) -> Array:
    """V of `km_calibration` for the groups that are followed up to its time, 0 for the others."""
    early = terms.outcome.time[(terms.outcome.time > 0) & (terms.outcome.time < terms.time)]
    grid = np.unique(np.append(np.quantile(early, np.linspace(0, 1, _GRID)) if len(early) else early, terms.time))
    total, group = np.zeros((len(terms.parts), len(grid))), np.full(len(terms.outcome), -1, dtype=np.intp)
    for g, part in enumerate(terms.parts):
        group[part] = g
    for rows, block in curve_blocks(distribution, grid):
        for g in range(len(terms.parts)):
            total[g] += block[group[rows] == g].sum(axis=0)
    variance = np.zeros(len(terms.parts))
    for g, part in enumerate(terms.parts):
        if not followed[g] or total[g, -1] == 0:
            continue
        curve = np.append(1.0, total[g] / len(part))
        outcome = terms.outcome[part]
        censoring = product_limit(np.ones((1, len(part))), ~outcome.event)[0]
        before = censoring[np.searchsorted(outcome.time, np.append(0.0, grid), side="left")]
        integral = np.diff(1.0 / curve) @ (0.5 / before[:-1] + 0.5 / before[1:])
        variance[g] = max(curve[-1] ** 2 * integral - terms.prediction[part].var(), 0.0) / len(part)
    return variance
