"""Calibration of F(z|x): the paper's score and D-calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Cells
from sumosurv.scores._inputs import Array, check_rows, check_subjects
from sumosurv.scores._resampling import SquareTerms, covariance_of_means

PAPER_LEVELS = tuple(np.arange(1, 10) / 10)


@dataclass(frozen=True)
class Calibration:
    """The result of `calibration`: the share of subjects with F(z|x) <= p at each level p.

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
    """The result of `d_calibration`: the share of subjects whose F(t|x) falls into each of B equal bins, with a test.

    Attributes
    ----------
    score : float
        Σ (share - 1/B)²; lower is better.
    statistic, df, p_value : float
        Pearson's χ², corrected for censored rows, weights and subjects with several rows, its degrees of freedom and
        its p-value. A small p-value is evidence against the model.
    edges : ndarray of shape (B + 1,)
    shares : ndarray of shape (B,)
        They sum to one.
    """

    score: float
    statistic: float
    df: float
    p_value: float
    edges: Array
    shares: Array


def calibration(
    distribution: SurvivalDistribution, y: Any, *, levels: Any = PAPER_LEVELS, sample_weight: Any = None
) -> Calibration:
    r"""The paper's calibration score; lower is better; not proper.

    .. math:: \hat p_j = \#\{i: F(z_i|x_i) \le p_j\} / n, \qquad cal = \sum_j (p_j - \hat p_j)^2.

    As in the paper, every z counts as an event, censored or not. With censoring the true distribution does not score 0,
    and one that predicts earlier times can score better; use `d_calibration` instead.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    levels : array
        p_j; the paper's 0.1, 0.2, ..., 0.9 by default.
    sample_weight : array of shape (n,), optional
        Number of subjects that each row represents.

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
    terms = calibration_terms(distribution, check_rows(y, sample_weight), levels=levels)
    return Calibration(terms.value, terms.target, terms.means)


def calibration_terms(distribution: SurvivalDistribution, y: Any, *, levels: Any = PAPER_LEVELS) -> SquareTerms:
    """Return 1{F(z|x) <= p} of each subject, shape (n, m), with means p if calibrated."""
    expected = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    if expected.ndim != 1 or not ((expected >= 0) & (expected <= 1)).all():
        raise ValueError(f"levels must be probabilities between 0 and 1; got {levels!r}.")
    outcome = check_subjects(distribution, y)
    below = (_cdf_at(distribution, outcome.time)[:, None] <= expected).astype(np.float64)
    return SquareTerms(outcome, below, expected)


def d_calibration(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    bins: int = 10,
    resolution: Cells | None = None,
    sample_weight: Any = None,
) -> DCalibration:
    r"""D-calibration: is F(T|x) uniform? Lower is better; the truth scores best, but others can score as well.

    An event falls into the bin of F(z|x). A censored row, whose F(T|x) lies above u = F(z|x), is spread evenly over
    [u, 1]: the bin [a, b) gets (b - max(a, u)) / (1 - u), if positive. An interval-censored event is spread over
    [F(lower|x), F(upper|x)] in the same way. With left truncation, F is conditional on T > entry. Any model that is
    right on average over x is calibrated, including Kaplan-Meier: use the score to check a model, not to choose one.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    bins : int, default 10
    resolution : Cells, optional
        Cells of time to which times were rounded: an event then lies somewhere in its cell. ``model.cells_`` are the
        cells that a model was fitted with.
    sample_weight : array of shape (n,), optional
        Number of subjects that each row represents.

    Returns
    -------
    DCalibration

    Notes
    -----
    Censored rows are spread over the bins, so that the shares vary less than those of observed times. Pearson's test on
    B - 1 degrees of freedom, which Haider et al. use, then hardly ever rejects. Here the statistic and its degrees of
    freedom are those of Rao and Scott (second order), from the estimated covariance V of the shares:
    χ² = score · tr V / tr V² with (tr V)² / tr V² degrees of freedom.

    References
    ----------
    Haider et al. (2020), Journal of Machine Learning Research 21; Rao, Scott (1984), Annals of Statistics 12.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False], time=[0.1, 0.5])
    >>> d_calibration(Weibull([1.0, 1.0], 1.0), y, bins=4).shares.round(3)
    array([0.5  , 0.088, 0.206, 0.206])
    """
    outcome = check_rows(y, sample_weight, entry=True, intervals=True)
    terms = d_calibration_terms(distribution, outcome, bins=bins, resolution=resolution)
    spread = covariance_of_means(terms.values - terms.target, outcome)
    mean, square = float(np.trace(spread)), float(np.square(spread).sum())
    statistic, df = (terms.value * mean / square, mean**2 / square) if square > 0 else (0.0, float(bins - 1))
    p_value, edges = float(chi2.sf(statistic, df)), np.linspace(0.0, 1.0, bins + 1)
    return DCalibration(terms.value, statistic, df, p_value, edges, terms.means)


def d_calibration_terms(
    distribution: SurvivalDistribution, y: Any, *, bins: int = 10, resolution: Cells | None = None
) -> SquareTerms:
    """Return how each subject is spread over the bins, shape (n, bins); calibrated means are 1/bins."""
    if bins < 2:
        raise ValueError(f"bins must be 2 or more; got {bins}.")
    outcome = check_subjects(distribution, y, entry=True, intervals=True)
    if resolution is not None:
        outcome = resolution.of(outcome)
    if outcome.entry is not None:
        distribution = distribution.conditional(outcome.entry)
    u = _cdf_at(distribution, outcome.time)
    last = np.ones(len(u))
    if outcome.upper is not None:
        known = np.flatnonzero(outcome.in_interval)
        last[known] = _cdf_at(distribution[known], outcome.upper[known])
    own = np.minimum((u * bins).astype(np.intp), bins - 1)
    start = np.arange(bins) / bins
    inside = np.minimum(start + 1.0 / bins, last[:, None]) - np.maximum(start, u[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.clip(inside, 0.0, None) / (last - u)[:, None]
    certain = outcome.event | (u >= last)
    spread[certain] = 0.0
    spread[certain, own[certain]] = 1.0
    return SquareTerms(outcome, np.asarray(spread, dtype=np.float64), np.full(bins, 1.0 / bins))


def _cdf_at(distribution: SurvivalDistribution, time: Array) -> Array:
    """Return F(z|x), some rows at a time."""
    u = np.empty(len(time))
    for start in range(0, len(time), 1 << 15):
        rows = slice(start, min(start + (1 << 15), len(time)))
        with torch.no_grad():
            u[rows] = distribution[rows].cdf(own_times=time[rows])
    return u
