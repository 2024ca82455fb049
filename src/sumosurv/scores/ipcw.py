"""Scores at a time, weighted for censoring: Brier, binomial log-likelihood, and their integrals."""

from __future__ import annotations

from typing import Any

import numpy as np

from sumosurv.distributions import SurvivalDistribution
from sumosurv.scores._inputs import Array, check_rows, check_times, times_weight
from sumosurv.scores._losses import SQUARED, Losses, Rule, logarithmic, quadrature
from sumosurv.scores._resampling import Terms
from sumosurv.scores._weighting import OnZero, Weighting

__all__ = [
    "binomial_log_likelihood",
    "binomial_log_likelihood_terms",
    "brier",
    "brier_terms",
    "integrated_binomial_log_likelihood",
    "integrated_binomial_log_likelihood_terms",
    "integrated_brier",
    "integrated_brier_terms",
]


def brier(
    distribution: SurvivalDistribution,
    y: Any,
    times: Any,
    *,
    censoring: SurvivalDistribution,
    normalize: bool = False,
    left_limit: bool = True,
    on_zero: OnZero = "raise",
    max_weight: float = np.inf,
    min_followed: float = 0.0,
    cause: int | None = None,
    sample_weight: Any = None,
) -> Array:
    r"""Brier score at given times, of each subject; lower is better; proper only if G is right given x.

    .. math:: BS^t = \frac{S(t|x)^2 1\{z \le t, d = 1\}}{G(z-)} + \frac{(1 - S(t|x))^2 1\{z > t\}}{G(t)}.

    The mean over subjects (``.mean(axis=0)``) is the score that is plotted against t. The values by subject allow a
    bootstrap or a paired comparison of two models.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    times : float or array of shape (m,)
    censoring : SurvivalDistribution
        G, the distribution of the censoring time: one curve for all, such as ``kaplan_meier(y, censoring=True)`` of the
        training or the test rows, or one curve per row from a model of the censoring (`censoring_given_x`). Use the
        same G for all models that are compared.
    normalize : bool
        Divide by the mean weight at each time, as pycox does, so that the weights average to one.
    left_limit : bool
        Weight events by 1 / G(z-) = 1 / P(C >= z), the probability that an event at z is seen. False takes G(z), as
        scikit-survival does: the same unless an event and a censoring share a time.
    on_zero : {"raise", "drop"}
        What to do if a row needs a weight 1/0, because the rows behind G were all censored earlier: raise an error that
        names the time, or give the row the weight 0, as scikit-survival does.
    max_weight : float
        Largest weight. With a finite value, G = 0 gives this weight and no error is raised (pycox).
    min_followed : float
        Leave rows out at times t with a smaller G(t|x), and take the mean over the others. If no subject with such x is
        followed up to t, only events are observed there, and a curve that falls to zero would gain; weights cannot
        correct this. The default, 0, keeps all rows.
    sample_weight : array of shape (n,), optional
        How many rows each row counts for. Values are multiplied by weights scaled to a mean of one, so that their mean
        is the weighted mean. Pass the same weights to G: ``kaplan_meier(y, censoring=True, sample_weight=...)``.
    cause : int, optional
        Score the cumulative incidence F_k of one cause, counted from one: S is then 1 - F_k, and a subject with an
        event of another cause at z <= t counts as event-free, with weight 1 / G(z-). The default is any cause.

    Returns
    -------
    ndarray of shape (n,) for a number, (n, m) for an array of times

    Notes
    -----
    ``kaplan_meier(y, censoring=True)`` excludes subjects with an event at t from the risk set of a censoring at t
    (events come first), as scikit-survival does. pycox flips the events and applies Kaplan-Meier, so that its risk set
    is larger at times with events and censorings. That estimate is
    ``kaplan_meier(Surv.from_arrays(~y["event"], y["time"]))``. Without ties between events and censorings all agree.

    References
    ----------
    Graf et al. (1999), Statistics in Medicine 18.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> brier(d, y, [0.5, 2.5], censoring=kaplan_meier(y, censoring=True)).round(4)
    array([[0.1548, 0.0067],
           [0.0489, 0.    ],
           [0.0236, 0.6394]])
    """
    weighting = Weighting(censoring, left_limit, on_zero, max_weight, normalize, min_followed)
    losses = Losses.of(distribution, check_rows(y, sample_weight), SQUARED, cause)
    return times_weight(losses.at_times(times, weighting), sample_weight)


def binomial_log_likelihood(
    distribution: SurvivalDistribution,
    y: Any,
    times: Any,
    *,
    censoring: SurvivalDistribution,
    floor: float | None = None,
    normalize: bool = False,
    left_limit: bool = True,
    on_zero: OnZero = "raise",
    max_weight: float = np.inf,
    min_followed: float = 0.0,
    cause: int | None = None,
    sample_weight: Any = None,
) -> Array:
    r"""Binomial log-likelihood at given times, of each subject; higher is better; proper only if G is right given x.

    .. math:: BLL^t = \frac{\log(1 - S(t|x)) 1\{z \le t, d = 1\}}{G(z-)} + \frac{\log S(t|x) 1\{z > t\}}{G(t)}.

    (The paper prints S instead of log S in the second term.) The score is exact: -inf for an event of probability zero.

    Parameters
    ----------
    distribution, y, times, censoring, normalize, left_limit, on_zero, max_weight, cause
        As in `brier`.
    floor : float, optional
        Move probabilities into [floor, 1 - floor] first (pycox: 1e-7).

    Returns
    -------
    ndarray of shape (n,) for a number, (n, m) for an array of times

    References
    ----------
    Graf et al. (1999), Statistics in Medicine 18.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> binomial_log_likelihood(d, y, 2.5, censoring=kaplan_meier(y, censoring=True)).round(4)
    array([-0.0857, -0.    , -1.6667])
    """
    weighting = Weighting(censoring, left_limit, on_zero, max_weight, normalize, min_followed)
    losses = Losses.of(distribution, check_rows(y, sample_weight), logarithmic(floor), cause)
    return times_weight(losses.at_times(times, weighting), sample_weight)


def integrated_brier(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    censoring: SurvivalDistribution,
    times: Any = None,
    n_times: int = 100,
    rule: Rule = "trapezoid",
    normalize: bool = False,
    left_limit: bool = True,
    on_zero: OnZero = "raise",
    max_weight: float = np.inf,
    min_followed: float = 0.0,
    cause: int | None = None,
    sample_weight: Any = None,
) -> Array:
    r"""Integrated Brier score (IBS) of each subject; lower is better; proper only if G is right given x.

    .. math:: IBS = \frac{1}{t_m - t_1} \int_{t_1}^{t_m} BS^t dt.

    Parameters
    ----------
    distribution, y, censoring, normalize, left_limit, on_zero, max_weight, cause
        As in `brier`.
    times : array of shape (m,), tuple (low, high) or None
        A grid; or a range, or None for that from the smallest positive to the largest time of y, filled with
        ``n_times`` evenly spaced times.
    n_times : int
    rule : {"trapezoid", "simpson"}
        How the grid is integrated: as scikit-survival does, or as pycox does.

    Returns
    -------
    ndarray of shape (n,)
        Their mean is the IBS. With ``normalize=True``, ``rule="simpson"``, Kaplan-Meier of the flipped events of the
        test rows and times=None it is pycox's (and so the convention of the paper's tables).

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> float(integrated_brier(d, y, censoring=kaplan_meier(y, censoring=True)).mean().round(4))
    0.1889
    """
    weighting = Weighting(censoring, left_limit, on_zero, max_weight, normalize, min_followed)
    losses = Losses.of(distribution, check_rows(y, sample_weight), SQUARED, cause)
    return times_weight(losses.integrated(times, n_times, rule, weighting), sample_weight)


def integrated_binomial_log_likelihood(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    censoring: SurvivalDistribution,
    times: Any = None,
    n_times: int = 100,
    rule: Rule = "trapezoid",
    floor: float | None = None,
    normalize: bool = False,
    left_limit: bool = True,
    on_zero: OnZero = "raise",
    max_weight: float = np.inf,
    min_followed: float = 0.0,
    cause: int | None = None,
    sample_weight: Any = None,
) -> Array:
    r"""Integrated binomial log-likelihood (IBLL) of each subject; higher is better; proper only if G is right given x.

    .. math:: IBLL = \frac{1}{t_m - t_1} \int_{t_1}^{t_m} BLL^t dt.

    Parameters
    ----------
    distribution, y, censoring, times, n_times, rule, normalize, left_limit, on_zero, max_weight, cause
        As in `integrated_brier`.
    floor : float, optional
        As in `binomial_log_likelihood`.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> score = integrated_binomial_log_likelihood(d, y, times=(0.5, 2.5), censoring=kaplan_meier(y, censoring=True))
    >>> float(score.mean().round(4))
    -0.5019
    """
    weighting = Weighting(censoring, left_limit, on_zero, max_weight, normalize, min_followed)
    losses = Losses.of(distribution, check_rows(y, sample_weight), logarithmic(floor), cause)
    return times_weight(losses.integrated(times, n_times, rule, weighting), sample_weight)


# ------------------------------------------------------------------ by subject; G of the rows themselves without one

_ONE = np.ones(1)


def brier_terms(
    distribution: SurvivalDistribution, y: Any, *, times: float, cause: int | None = None, **weighting: Any
) -> Terms:
    """Return what each subject contributes to `brier` at one time."""
    return Losses.of(distribution, y, SQUARED, cause).terms(check_times(times), _ONE, **weighting)


def binomial_log_likelihood_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    times: float,
    floor: float | None = None,
    cause: int | None = None,
    **weighting: Any,
) -> Terms:
    """Return what each subject contributes to `binomial_log_likelihood` at one time."""
    return Losses.of(distribution, y, logarithmic(floor), cause).terms(check_times(times), _ONE, **weighting)


def integrated_brier_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    times: Any = None,
    n_times: int = 100,
    rule: Rule = "trapezoid",
    cause: int | None = None,
    **weighting: Any,
) -> Terms:
    """Return what each subject contributes to `integrated_brier`."""
    losses = Losses.of(distribution, y, SQUARED, cause)
    return losses.terms(*quadrature(times, losses.outcome.time, n_times, rule), **weighting)


def integrated_binomial_log_likelihood_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    times: Any = None,
    n_times: int = 100,
    rule: Rule = "trapezoid",
    floor: float | None = None,
    cause: int | None = None,
    **weighting: Any,
) -> Terms:
    """Return what each subject contributes to `integrated_binomial_log_likelihood`."""
    losses = Losses.of(distribution, y, logarithmic(floor), cause)
    return losses.terms(*quadrature(times, losses.outcome.time, n_times, rule), **weighting)
