"""Calibration at one time: predicted against observed probabilities in groups of predicted risk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from sumosurv.confidence import shrinkage
from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import incidence_variance, is_robust
from sumosurv.scores._inputs import (
    Array,
    check_rows,
    check_subjects,
    check_time,
    curve_blocks,
    of_cause,
    risk_at,
    risk_groups,
)
from sumosurv.scores._resampling import Resamples, Terms, incidence_limit, mean_of_known, product_limit, ratio

_GRID = 32  # times up to t at which the predicted curves are read for the variance under the model


@dataclass(frozen=True)
class GroupCalibration:
    """The result of `group_calibration`: predicted and observed risk at one time, in groups of predicted risk.

    Attributes
    ----------
    score : float
        Σ (n_g / n) (predicted - observed)²; lower is better.
    statistic, p_value : float
        Σ (predicted - observed)² / Var₀(observed), with the variance that the observed risk has if the predictions are
        right, and its p-value on as many degrees of freedom as groups were used; nan for one of several causes.
    time : float
    cause : int or None
    predicted, observed, std_error : ndarray of shape (groups,)
        From the lowest risk to the highest: mean F(t|x), the Aalen-Johansen estimate (one minus Kaplan-Meier if any
        event counts; nan if a group is not followed up to t) and its standard error, as in `confidence_band`.
    size : ndarray of shape (groups,)
    """

    score: float
    statistic: float
    p_value: float
    time: float
    cause: int | None
    predicted: Array
    observed: Array
    std_error: Array
    size: Array


def group_calibration(
    distribution: SurvivalDistribution,
    y: Any,
    time: float | None = None,
    *,
    cause: int | None = None,
    groups: int = 10,
    sample_weight: Any = None,
) -> GroupCalibration:
    r"""Calibration of the risk at one time, in groups (one-calibration); lower is better; not proper.

    Subjects are divided into groups of equal size by F(t|x), with equal predictions in one group. In each group, the
    mean F(t|x) is compared with the observed risk: one minus the Kaplan-Meier estimate, or the Aalen-Johansen estimate
    of one of several causes. Both assume that censoring is independent of the event within the group. The test is

    .. math:: χ^2 = \sum_g \frac{(\bar S_g(t) - KM_g(t))^2}{V_g}, \qquad
              V_g = \frac{1}{n_g} \Bigl(\bar S_g(t)^2 \int_0^t \frac{d(1/\bar S_g(s))}{G_g(s)} - s^2_g\Bigr),

    on one degree of freedom per group, since the model was fitted to other rows. V_g is the variance of the difference
    if the predictions are right: Greenwood's, with the group's mean predicted curve in place of its Kaplan-Meier
    estimate, G_g the Kaplan-Meier estimate of the censoring and s²_g the variance of S(t|x) within the group. Groups
    whose follow-up ends before t are left out.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    time : float, optional
        The median of the times in y by default.
    cause : int, optional
        The cause, counted from one; any event counts by default. There is no test for one of several causes.
    groups : int, default 10
        Number of groups; fewer if there are fewer subjects.
    sample_weight : array of shape (n,), optional
        Number of subjects that each row represents. The test is nan unless the weights are whole numbers.

    Returns
    -------
    GroupCalibration

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
    Haider et al. (2020), Journal of Machine Learning Research 21; Austin et al. (2022), Diagnostic and Prognostic
    Research 6.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[1, 1, 1, 1], time=[0.4, 1.2, 1.5, 4.0])
    >>> result = group_calibration(Weibull([1.0, 1.0, 3.0, 3.0], 1.0), y, 1.3, groups=2)
    >>> result.predicted.round(3), result.observed
    (array([0.352, 0.727]), array([0., 1.]))
    """
    terms = group_calibration_terms(distribution, check_rows(y, sample_weight), time=time, cause=cause, groups=groups)
    statistic = p_value = float("nan")
    if cause is None and not is_robust(terms.outcome):
        variance = _variance_of_the_model(distribution, terms)
        deviation = (1.0 - terms.observed) - (1.0 - terms.predicted)  # of survival, from which the variance follows
        # S = 1 leaves no variance: there an event is impossible
        tested = ~np.isnan(terms.observed) & ((variance > 0) | (deviation != 0))
        with np.errstate(divide="ignore"):
            statistic = float((np.square(deviation[tested]) / variance[tested]).sum())
        p_value = float(chi2.sf(statistic, int(tested.sum()))) if tested.any() else float("nan")
    std_error = np.where(np.isnan(terms.observed), np.nan, np.sqrt(terms.variance))
    found = terms.predicted, terms.observed, std_error, terms.size
    return GroupCalibration(terms.value, statistic, p_value, terms.time, cause, *found)


# ------------------------------------------------------------------ by group


@dataclass(frozen=True)
class RiskGroups(Terms):
    """Groups of subjects with mean F(t|x) and the Aalen-Johansen estimate; subjects keep their group in resamples.

    Deviations are shrunk before the noise of resampling is added to them, as in `SquareTerms`.
    """

    prediction: Array  # F(t|x) of each subject
    time: float
    parts: list[npt.NDArray[np.intp]]  # rows of each group, in the order of time, events first among ties
    own: npt.NDArray[np.bool_]  # events that count: those of the cause, or all
    size: Array  # the number of subjects in each group, (g,), as the next four
    predicted: Array  # mean prediction
    within: Array  # variance of the predictions
    observed: Array  # observed risk; nan if follow-up ends before the time
    variance: Array  # of the observed risk: Aalen's, which for events of any cause is Greenwood's

    @property
    def value(self) -> float:
        """The score of the sample itself."""
        return float(mean_of_known(np.square(self.predicted - self.observed), self.size))

    def resampled(self, resamples: Resamples) -> Array:
        """Return the score of each resample, shape (r,)."""
        deviation = self.predicted - self.observed
        noise = np.where(np.isnan(deviation), np.nan, np.maximum(self.variance - self.within / self.size, 0.0))
        kept = shrinkage(self.value, float(mean_of_known(noise, self.size)))
        predicted, observed, size = self.of_counts(resamples.counts)
        return mean_of_known(np.square(predicted - observed - (1.0 - kept) * deviation), size)

    def of_counts(self, counts: Array) -> tuple[Array, Array, Array]:
        """Return the predicted risk, the observed risk and the size of the groups in resamples, (r, groups) each."""
        predicted, observed, size = np.empty((3, len(counts), len(self.parts)))
        for g, part in enumerate(self.parts):
            drawn = counts[:, part]
            size[:, g] = drawn.sum(axis=1)
            predicted[:, g] = ratio(drawn @ self.prediction[part], size[:, g])
            observed[:, g] = incidence_limit(drawn, self.outcome[part], self.own[part], self.time)
        return predicted, observed, size


def group_calibration_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    time: float | None = None,
    cause: int | None = None,
    groups: int = 10,
) -> RiskGroups:
    """Return F(t|x) of each subject in groups of predicted risk."""
    outcome = check_subjects(distribution, y)
    curves, other = of_cause(distribution, outcome, cause)
    at, own = check_time(outcome, time), outcome.event & ~other
    risk = risk_at(curves, at)
    parts = risk_groups(risk, outcome, groups)
    size, predicted, within, observed, variance = np.empty((5, len(parts)))
    for g, part in enumerate(parts):
        rows, prediction = outcome[part], risk[part]
        size[g], predicted[g] = rows.total, np.average(prediction, weights=rows.weights)
        within[g] = max(np.average(prediction**2, weights=rows.weights) - predicted[g] ** 2, 0.0)
        observed[g] = incidence_limit(rows.weights[None], rows, own[part], at)[0]
        times, _, steps = incidence_variance(replace(rows, cause=np.where(own[part], 1, 2) * rows.event), 1)
        variance[g] = np.append(0.0, steps)[np.searchsorted(times, at, side="right")]
    return RiskGroups(outcome, risk, at, parts, own, size, predicted, within, observed, variance)


def _variance_of_the_model(distribution: SurvivalDistribution, terms: RiskGroups) -> Array:
    """Return V of `group_calibration` for the groups that are followed up to its time, 0 for the others."""
    early = terms.outcome.time[(terms.outcome.time > 0) & (terms.outcome.time < terms.time)]
    grid = np.unique(
        np.append(np.quantile(np.unique(early), np.linspace(0, 1, _GRID)) if len(early) else early, terms.time)
    )
    weight, member = terms.outcome.weights, np.zeros((len(terms.parts), len(terms.outcome)))
    for g, part in enumerate(terms.parts):
        member[g, part] = weight[part]
    curves = np.sum([member[:, rows] @ block for rows, block in curve_blocks(distribution, grid)], axis=0)
    variance = np.zeros(len(terms.parts))
    for g, part in enumerate(terms.parts):
        if np.isnan(terms.observed[g]) or curves[g, -1] == 0:
            continue
        curve = np.append(1.0, curves[g] / terms.size[g])
        outcome = terms.outcome[part]
        censoring = product_limit(weight[None, part], ~outcome.event)[0]
        before = censoring[np.searchsorted(outcome.time, np.append(0.0, grid), side="left")]
        integral = np.diff(1.0 / curve) @ (0.5 / before[:-1] + 0.5 / before[1:])
        variance[g] = max(curve[-1] ** 2 * integral - terms.within[g], 0.0) / terms.size[g]
    return variance
