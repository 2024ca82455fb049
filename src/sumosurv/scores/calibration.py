"""Calibration: do the probabilities mean what they say? The paper's score, D-calibration, Kaplan-Meier calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2, rankdata

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import risk_table
from sumosurv.outcome import Surv
from sumosurv.scores._inputs import Array, check_subjects, curve_blocks

__all__ = ["Calibration", "DCalibration", "KMCalibration", "calibration", "d_calibration", "km_calibration"]

PAPER_LEVELS = tuple(np.arange(1, 10) / 10)


@dataclass(frozen=True)
class Calibration:
    """Share of subjects with F(z|x) <= p, beside p.

    Attributes
    ----------
    score : float
        Σ (expected - observed)²; lower is better.
    expected, observed : ndarray of shape (m,)
    """

    score: float
    expected: Array
    observed: Array


@dataclass(frozen=True)
class DCalibration:
    """Share of subjects whose F(t|x) falls into each of B equal bins, with the test of uniformity.

    Attributes
    ----------
    score : float
        Σ (share - 1/B)²; lower is better.
    statistic, p_value : float
        Pearson's χ² = n · B · score and its p-value on B - 1 degrees of freedom; small ones speak against the model.
    edges : ndarray of shape (B + 1,)
    shares : ndarray of shape (B,)
        They sum to one.
    """

    score: float
    statistic: float
    p_value: float
    edges: Array
    shares: Array


@dataclass(frozen=True)
class KMCalibration:
    """Predicted and Kaplan-Meier survival at one time, in groups of predicted risk.

    Attributes
    ----------
    score : float
        Σ (n_g / n) (predicted - observed)²; lower is better.
    statistic, p_value : float
        Σ (predicted - observed)² / Var(observed), and its p-value on as many degrees of freedom as groups were used.
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


def calibration(distribution: SurvivalDistribution, y: Any, *, levels: Any = PAPER_LEVELS) -> Calibration:
    r"""The paper's calibration score; lower is better; not proper.

    .. math:: \hat p_j = \#\{i: F(z_i|x_i) \le p_j\} / n, \qquad cal = \sum_j (p_j - \hat p_j)^2.

    As printed, every z counts, censored or not, as if it were an event: with censoring the true distribution
    does not score 0, and one that predicts earlier times can score better. `d_calibration` is the one to use then.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    levels : array
        p_j; the paper's 0.1, 0.2, ..., 0.9 by default.

    Returns
    -------
    Calibration

    References
    ----------
    Kuleshov, Fenner, Ermon (2018), ICML; Goldstein et al. (2020), NeurIPS.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> result = calibration(Weibull([1.0, 1.0], 1.0), Surv.from_arrays([True, True], [0.3, 1.2]))
    >>> result.observed
    array([0. , 0. , 0.5, 0.5, 0.5, 0.5, 1. , 1. , 1. ])
    """
    expected = check_levels(levels)
    observed = reached(distribution, y, expected).mean(axis=0)
    return Calibration(float(np.square(expected - observed).sum()), expected, observed)


def check_levels(levels: Any) -> Array:
    """Probabilities in [0, 1]."""
    expected = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    if expected.ndim != 1 or not ((expected >= 0) & (expected <= 1)).all():
        raise ValueError(f"levels are probabilities between 0 and 1; got {levels!r}.")
    return expected


def reached(distribution: SurvivalDistribution, y: Any, levels: Array) -> Array:
    """1{F(z|x) <= p}, shape (n, m)."""
    return (_own_cdf(distribution, y)[:, None] <= levels).astype(np.float64)


def d_calibration(distribution: SurvivalDistribution, y: Any, *, bins: int = 10) -> DCalibration:
    r"""D-calibration: is F(T|x) uniform? Lower is better; the truth is best, but not alone.

    An event falls into the bin of F(z|x). A censored row, whose F(T|x) lies somewhere above u = F(z|x), is spread
    evenly over [u, 1]: the bin [a, b) gets (b - max(a, u)) / (1 - u), if positive. Any model that is right on
    average over x, Kaplan-Meier among them, is calibrated too; so this is a check of a model, not a way to choose one.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    bins : int

    Returns
    -------
    DCalibration

    Notes
    -----
    Spreading the censored rows makes the test conservative: the more censoring, the smaller the statistic.

    References
    ----------
    Haider et al. (2020), Journal of Machine Learning Research 21.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False], time=[0.1, 0.5])
    >>> d_calibration(Weibull([1.0, 1.0], 1.0), y, bins=4).shares.round(3)
    array([0.5  , 0.088, 0.206, 0.206])
    """
    if bins < 2:
        raise ValueError(f"bins is 2 or more; got {bins}.")
    shares = bin_shares(distribution, y, bins).mean(axis=0)
    n, score = len(distribution), float(np.square(shares - 1.0 / bins).sum())
    statistic = n * bins * score
    return DCalibration(score, statistic, float(chi2.sf(statistic, bins - 1)), np.linspace(0.0, 1.0, bins + 1), shares)


def bin_shares(distribution: SurvivalDistribution, y: Any, bins: int) -> Array:
    """How each subject is spread over the bins, shape (n, bins); rows sum to one."""
    event, _ = check_subjects(distribution, y)
    u = _own_cdf(distribution, y)
    own = np.minimum((u * bins).astype(np.intp), bins - 1)
    start = np.arange(bins) / bins
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.clip(start + 1.0 / bins - np.maximum(start, u[:, None]), 0.0, None) / (1.0 - u[:, None])
    certain = event | (u >= 1.0)
    spread[certain] = 0.0
    spread[certain, own[certain]] = 1.0
    return np.asarray(spread, dtype=np.float64)


def _own_cdf(distribution: SurvivalDistribution, y: Any) -> Array:
    time = check_subjects(distribution, y)[1]
    u = np.empty(len(time))
    for start in range(0, len(time), 1 << 15):
        rows = slice(start, min(start + (1 << 15), len(time)))
        with torch.no_grad():
            u[rows] = distribution[rows].cdf(own_times=time[rows])
    return u


def km_calibration(
    distribution: SurvivalDistribution, y: Any, time: float | None = None, *, groups: int = 10
) -> KMCalibration:
    r"""Kaplan-Meier calibration at one time (one-calibration); lower is better; not proper.

    Subjects are put into groups of equal size by S(t|x), equal predictions together; in each, the mean S(t|x) is set
    against the Kaplan-Meier estimate of the group. The test is that of Greenwood, Nam and D'Agostino,

    .. math:: χ^2 = \sum_g (\bar S_g - KM_g)^2 / Var(KM_g),

    on one degree of freedom per group, since the model was fitted to other rows. Groups with no variance estimate
    (nobody had the event, everybody had it, or follow-up ended before t) do not enter the test.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    time : float, optional
        The median of the times in y by default.
    groups : int
        Fewer are made where there are fewer subjects.

    Returns
    -------
    KMCalibration

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
    event, observed_time = check_subjects(distribution, y)
    at = float(np.median(observed_time)) if time is None else float(time)
    if not (np.isfinite(at) and at >= 0):
        raise ValueError(f"time is a number, zero or more; got {time}.")
    if groups < 1:
        raise ValueError(f"groups is 1 or more; got {groups}.")
    survival = np.empty(len(event))
    for rows, block in curve_blocks(distribution, np.array([at])):
        survival[rows] = block[:, 0]
    # by middle ranks, so that equal predictions are never parted and the order of the rows does not matter
    group = np.floor((rankdata(survival) - 0.5) / len(survival) * groups)
    parts = [np.flatnonzero(group == g) for g in np.unique(group)]
    predicted = np.array([survival[part].mean() for part in parts])
    estimates = [_greenwood(event[part], observed_time[part], at) for part in parts]
    observed, std_error = np.array([pair[0] for pair in estimates]), np.array([pair[1] for pair in estimates])
    size = np.array([float(len(part)) for part in parts])
    followed = ~np.isnan(observed)
    square = np.square(predicted - observed)
    score = float(np.average(square[followed], weights=size[followed])) if followed.any() else float("nan")
    tested = followed & (std_error > 0)
    statistic = float((square[tested] / np.square(std_error[tested])).sum())
    p_value = float(chi2.sf(statistic, int(tested.sum()))) if tested.any() else float("nan")
    return KMCalibration(score, statistic, p_value, at, predicted, observed, std_error, size)


def _greenwood(event: Any, time: Array, at: float) -> tuple[float, float]:
    """Kaplan-Meier estimate at a time and its standard error; nan where follow-up ends before it."""
    times, deaths, at_risk = risk_table(Surv.from_arrays(event, time))
    past = times <= at
    survival = float(np.prod(1.0 - deaths[past] / at_risk[past]))
    if times[-1] < at and survival > 0:
        return float("nan"), float("nan")
    if survival == 0:
        return 0.0, 0.0
    return survival, survival * float(np.sqrt((deaths[past] / (at_risk[past] * (at_risk[past] - deaths[past]))).sum()))
