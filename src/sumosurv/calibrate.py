"""Smoothed calibration at one time: the observed risk of subjects with a given predicted risk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.confidence import check_level, check_resamples, resampled_limits, shrinkage
from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators.basis import Basis
from sumosurv.estimators.fine_gray import SubdistributionLikelihood
from sumosurv.estimators.partial_likelihood import PartialLikelihood, ever_at_risk
from sumosurv.estimators.regression import Maximum, is_separated, maximise
from sumosurv.nonparametric import aalen_johansen, refuse_intervals, resampler
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.preprocessing.columns import quantiles
from sumosurv.scores.pseudo import risks_on_log_scale
from sumosurv.warn import warn_user

__all__ = ["SmoothCalibration", "smooth_calibration"]

Array = npt.NDArray[np.float64]

_PLACES = {  # of knots among the predictions (Harrell 2015, table 2.3)
    3: (0.1, 0.5, 0.9),
    4: (0.05, 0.35, 0.65, 0.95),
    5: (0.05, 0.275, 0.5, 0.725, 0.95),
}
_GRID = 51
_MOST_STEPS, _CONVERGED = 100, 1e-16  # of Newton's method


@dataclass(frozen=True, repr=False)
class SmoothCalibration:
    """The result of `smooth_calibration`: predicted and smoothed observed risk at one time.

    Attributes
    ----------
    ici : float
        Integrated calibration index: the mean absolute difference of predicted and observed risk over the subjects.
    e50, e90, emax : float
        The median, the 90 % quantile and the maximum of this difference.
    ici_interval : tuple of float
        Limits of the ICI in samples of this size; like the ICI itself, they include sampling noise. nan without
        resamples.
    time : float
    cause : int or None
    predicted, observed : ndarray of shape (n,)
        F(t|x) of each subject, and the observed risk of subjects with this prediction.
    grid, curve, lower, upper : ndarray of shape (m,)
        The calibration curve at m predictions, from the smallest to the largest, and its limits by resampling.
    """

    ici: float
    e50: float
    e90: float
    emax: float
    ici_interval: tuple[float, float]
    time: float
    cause: int | None
    predicted: Array
    observed: Array
    grid: Array
    curve: Array
    lower: Array
    upper: Array

    def __repr__(self) -> str:
        low, high = self.ici_interval
        limits = "" if np.isnan(low) else f" ({low:.4f} to {high:.4f})"
        of = "" if self.cause is None else f" of cause {self.cause}"
        return (
            f"SmoothCalibration of {len(self.predicted)} predicted risks{of} at time {self.time:g}: ICI {self.ici:.4f}"
            f"{limits}, E50 {self.e50:.4f}, E90 {self.e90:.4f}, largest {self.emax:.4f}"
        )


def smooth_calibration(
    distribution: SurvivalDistribution,
    y: Any,
    time: float,
    *,
    cause: int | None = None,
    knots: int = 3,
    censor_at_time: bool = True,
    level: float = 0.95,
    n_bootstrap: int = 0,
    random_state: Any = None,
    sample_weight: Any = None,
) -> SmoothCalibration:
    r"""Calibration of the risk at one time without groups: a curve, and its mean distance from the diagonal.

    The hazard is regressed on the prediction with a Cox model,

    .. math:: λ(t|x) = λ_0(t) \exp s\big(\log(-\log(1 - F(t_0|x)))\big),

    with a restricted cubic spline s; for one of several causes, the subdistribution hazard with a Fine-Gray model. The
    risk at t₀ under this model is the observed risk of subjects with this prediction. If hazards are proportional and
    the predictions are right, s is the identity.

    Parameters
    ----------
    distribution : SurvivalDistribution
        Predictions for held-out subjects.
    y : outcome
        The outcome of these subjects. Rows with delayed entry are at risk from their entry on (not with a ``cause``).
    time : float
        The horizon t₀.
    cause : int, optional
        The cause, counted from one; any cause by default.
    knots : {3, 4, 5}, default 3
        Number of knots of the spline, at Harrell's quantiles of the predictions; fewer if these coincide.
    censor_at_time : bool, default True
        End follow-up at t₀, so that later times, at which hazards may no longer be proportional, have no influence.
        If False, the whole follow-up is used, as in Austin et al.
    level : float, default 0.95
        Confidence level of the limits.
    n_bootstrap : int, default 0
        Number of resamples of the subjects for the limits, each with its own regression; 0 for no limits.
    random_state : int, Generator or None
        Seed of the resamples.
    sample_weight : array of shape (n,), optional
        Number of subjects that each row represents.

    Returns
    -------
    SmoothCalibration

    Notes
    -----
    The ICI of the true model is not zero: the curve has noise, of the order of √(F (1 - F) / n). Compare models on the
    same rows. Resampling adds this noise a second time. The deviations of the curve are therefore shrunk first, as
    for the calibration scores of `evaluate`, and limits are extended to the ICI if it lies outside. Calibration does
    not measure discrimination: a model that predicts the same, correct risk for everyone has an ICI near zero.

    References
    ----------
    Austin, Harrell, van Klaveren (2020), Statistics in Medicine 39; Austin et al. (2022), Diagnostic and Prognostic
    Research 6; van Houwelingen (2007), Scandinavian Journal of Statistics 34 (the Cox model stopped at t₀).

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> rng = np.random.default_rng(0)
    >>> scale = np.exp(rng.normal(size=500))
    >>> y = Surv.from_arrays(np.ones(500, bool), scale * rng.exponential(size=500))
    >>> right, wrong = (smooth_calibration(Weibull(s, 1.0), y, 1.0).ici for s in (scale, 0.5 * scale))
    >>> right < 0.05 < 0.12 < wrong
    True
    """
    outcome = check_outcome(y, sample_weight=sample_weight)
    refuse_intervals(outcome, "risk sets", "d_calibration and log_likelihood take them")
    if knots not in _PLACES:
        raise ValueError(f"knots must be 3, 4 or 5; got {knots!r}.")
    if not (np.ndim(time) == 0 and 0.0 < float(time) < np.inf):
        raise ValueError(f"time must be a positive number; got {time!r}.")
    check_level(level)
    check_resamples(n_bootstrap)
    last = float(outcome.time[outcome.weights > 0].max())
    if last < float(time):
        raise ValueError(
            f"Nobody is followed up to time {float(time):g}: the last time is {last:g}. Choose an earlier time."
        )
    scale, _, note = risks_on_log_scale(distribution, outcome, float(time), cause)
    if note:
        raise ValueError(note)
    predicted = -np.expm1(-np.exp(scale))
    smoother = _Smoother(outcome, scale, float(time), cause, knots, censor_at_time)
    places = smoother.places()
    columns = smoother.columns(scale), smoother.columns(places)
    observed, curve = smoother(outcome.weights, *columns)
    if smoother.separated:
        warn_user(
            f"Too few events for a calibration curve at time {float(time):g}: some predicted risks separate all events "
            "from the other rows, so that the curve is 0 or 1 there. Choose a later time, or use group_calibration."
        )
    distance = np.abs(predicted - observed)
    ici = float(np.average(distance, weights=outcome.weight))
    e50, e90 = quantiles(distance, [0.5, 0.9], outcome.weight)
    interval, lower, upper = (float("nan"), float("nan")), np.full(len(places), np.nan), np.full(len(places), np.nan)
    if n_bootstrap:
        draw, rng = resampler(outcome), np.random.default_rng(random_state)
        drawn = [draw(rng) for _ in range(n_bootstrap)]
        again, curves = zip(*(smoother(weights, *columns) for weights in drawn))
        lower, upper = resampled_limits(np.stack(curves), curve, level)
        noise = np.stack(again) - observed
        square = np.average(distance**2, weights=outcome.weight)
        noise_square = np.average(np.square(noise).mean(axis=0), weights=outcome.weight)
        moved = np.abs(noise + shrinkage(float(square), float(noise_square)) * (observed - predicted))
        found = np.array([np.average(own, weights=weights) for own, weights in zip(moved, drawn)])
        low, high = resampled_limits(found, ici, level)
        interval = float(low), float(high)
    grid = -np.expm1(-np.exp(places))
    emax = float(distance.max())
    return SmoothCalibration(
        ici, float(e50), float(e90), emax, interval, float(time), cause, predicted, observed, grid, curve, lower, upper
    )


class _Smoother:
    """The regression of the hazard on the prediction, for any weights of the rows."""

    def __init__(
        self, outcome: Outcome, scale: Array, time: float, cause: int | None, knots: int, censor_at_time: bool
    ) -> None:
        if cause is None or outcome.cause is None:
            outcome = outcome.any_cause()
        else:
            outcome = replace(outcome, cause=np.where(outcome.cause == cause, 1, 2) * (outcome.cause > 0))
        if censor_at_time:
            late = outcome.time > time
            code = None if outcome.cause is None else np.where(late, 0, outcome.cause)
            outcome = replace(outcome, event=outcome.event & ~late, time=np.minimum(outcome.time, time), cause=code)
        rows = (outcome.entry < outcome.time) if outcome.entry is not None else outcome.time >= 0
        if outcome.cause is None:
            rows &= ever_at_risk(outcome)
        self.outcome, self.time, self.scale, self.rows = outcome, time, scale, np.flatnonzero(rows)
        self.knots = np.unique(quantiles(scale, _PLACES[knots], outcome.weight))
        self.flat = scale.max() - scale.min() <= 1e-9  # all predictions are the same
        splines = _spline(scale[self.rows], self.knots)
        self.centre, self.basis = splines.mean(axis=0), Basis(splines)  # redundant columns are left out
        self.start = np.zeros(len(self.basis.kept))  # the coefficients from which Newton's method starts
        found = None if self.flat else self._fit(self._counted(outcome.weights))
        self.separated = found is not None and is_separated(found[1], self.basis.columns)
        if found is not None and not self.separated:
            self.start = found[1].parameters

    def places(self) -> Array:
        """Return where the curve is drawn: evenly, and at quantiles of the predictions."""
        if self.flat:
            return self.scale[:1]
        even = np.linspace(self.scale.min(), self.scale.max(), _GRID)
        return np.unique(np.append(even, quantiles(self.scale, np.linspace(0, 1, _GRID), self.outcome.weight)))

    def columns(self, z: Array) -> Array:
        """Return the columns of the regression at some predictions, given as log(-log(1 - F))."""
        return np.asarray((_spline(z, self.knots) - self.centre)[:, self.basis.kept] @ self.basis.transform)

    def __call__(self, weights: Array, *places: Array) -> list[Array]:
        """Return the observed risk at some predictions, given by their columns."""
        counted, outcome = self._counted(weights)
        if self.flat:
            risk = float(aalen_johansen(outcome).cumulative_incidence(self.time)[0, 0])
            return [np.full(len(columns), risk) for columns in places]
        found = self._fit((counted, outcome))
        if found is None:
            return [np.zeros(len(columns)) for columns in places]
        likelihood, beta = found[0], found[1].parameters
        with np.errstate(divide="ignore"):
            log_hazard = np.log(likelihood.cumulative_hazard(beta, self.time))
        hazards = (np.exp(np.clip(log_hazard + columns @ beta, -700.0, 700.0)) for columns in places)
        return [-np.expm1(-hazard) for hazard in hazards]

    def _counted(self, weights: Array) -> tuple[npt.NDArray[np.bool_], Outcome]:
        """Return which of the rows of the regression have a weight, and their outcome."""
        counted = weights[self.rows] > 0
        rows = self.rows[counted]
        return counted, replace(self.outcome[rows], weight=weights[rows], group=None)

    def _fit(self, rows: tuple[npt.NDArray[np.bool_], Outcome]) -> tuple[Any, Maximum] | None:
        """Return the likelihood and its maximum; None if there is no event."""
        counted, outcome = rows
        own = outcome.event if outcome.cause is None else outcome.cause == 1
        if not (own & (outcome.time <= self.time)).any():
            return None
        x, cox = self.basis.columns[counted], outcome.cause is None
        likelihood = PartialLikelihood(x, outcome, "efron") if cox else SubdistributionLikelihood(x, outcome, 1)
        return likelihood, maximise(likelihood, self.start, np.zeros_like(self.start), _MOST_STEPS, _CONVERGED)


def _spline(z: Array, knots: Array) -> Array:
    """Return the columns of a restricted cubic spline, the first of them linear; linear beyond the outer knots."""
    columns = [z]
    for inner in knots[:-2]:
        left, right = knots[-2], knots[-1]
        cube = np.maximum(z - inner, 0.0) ** 3
        cube = cube - np.maximum(z - left, 0.0) ** 3 * (right - inner) / (right - left)
        cube = cube + np.maximum(z - right, 0.0) ** 3 * (left - inner) / (right - left)
        columns.append(cube / (right - knots[0]) ** 2)
    return np.stack(columns, axis=1)
