"""Smoothed calibration at one time: what happens to subjects with a given predicted risk, and how far off they are."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators import CoxPH, FineGray
from sumosurv.nonparametric import aalen_johansen, refuse_intervals
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.quantiles import quantiles

__all__ = ["SmoothCalibration", "smooth_calibration"]

Array = npt.NDArray[np.float64]

_PLACES = {  # of knots among the predictions (Harrell 2015, table 2.3)
    3: (0.1, 0.5, 0.9),
    4: (0.05, 0.35, 0.65, 0.95),
    5: (0.05, 0.275, 0.5, 0.725, 0.95),
}
_GRID = 51


@dataclass(frozen=True, repr=False)
class SmoothCalibration:
    """Predicted and observed risk at one time, the latter smoothed.

    Attributes
    ----------
    ici : float
        Integrated calibration index: the mean absolute difference of predicted and observed risk over the subjects.
    e50, e90, emax : float
        Its median, its 90 % quantile and its maximum.
    ici_interval : tuple of float
        Limits of the ICI by resampling; nan without resamples.
    time : float
    cause : int or None
    predicted, observed : ndarray of shape (n,)
        F(t|x) of each subject, and the risk of subjects with such a prediction.
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
    stop: bool = True,
    level: float = 0.95,
    n_bootstrap: int = 0,
    random_state: Any = None,
    sample_weight: Any = None,
) -> SmoothCalibration:
    r"""Calibration of the risk at one time without groups: a curve, and its mean distance from the diagonal.

    The hazard is regressed on the prediction by Cox's model,

    .. math:: λ(t|x) = λ_0(t) \exp s\big(\log(-\log(1 - F(t_0|x)))\big),

    with a restricted cubic spline s; for one of several causes the hazard of the subdistribution, by Fine and Gray's.
    What this model gives for the risk at t₀ is the observed risk of subjects with such a prediction. If hazards are
    proportional and the predictions right, s is the identity.

    Parameters
    ----------
    distribution : SurvivalDistribution
        Predicted for subjects that the model was not fitted to.
    y : outcome
        Of these subjects. Rows that enter late are at risk from their entry on (not with a ``cause``).
    time : float
        t₀.
    cause : int, optional
        Counted from one; without one an event is one of any cause.
    knots : {3, 4, 5}
        Of the spline, at Harrell's quantiles of the predictions; fewer where these coincide.
    stop : bool
        End follow-up at t₀: what happens later, when hazards may no longer be proportional, then has no influence.
        False takes all of it, as Austin et al. do.
    level : float
        Of the limits.
    n_bootstrap : int
        Resamples of the subjects for the limits, each with a regression of its own; 0 for none.
    random_state : int, Generator or None
        Of the resamples.
    sample_weight : array of shape (n,), optional
        How many subjects each row counts for.

    Returns
    -------
    SmoothCalibration

    Notes
    -----
    The ICI of a model that is right is not zero: the curve has noise, of the order of √(F (1 - F) / n). Compare models
    on the same rows, or look at limits. Like all calibration it does not see how well risks are told apart: a model
    that gives everyone the same right risk has an ICI near zero.

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
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, such as 0.95; got {level!r}.")
    if not isinstance(n_bootstrap, (int, np.integer)) or n_bootstrap < 0:
        raise ValueError(f"n_bootstrap must be a non-negative integer; got {n_bootstrap!r}.")
    last = float(outcome.time[outcome.weights > 0].max())
    if last < float(time):
        raise ValueError(
            f"Nobody is followed up to time {float(time):g}: the last time is {last:g}. Take an earlier one."
        )
    scale = _log_hazard(distribution, outcome, float(time), cause)
    predicted = -np.expm1(-np.exp(scale))
    smoother = _Smoother(outcome, scale, float(time), cause, knots, stop)
    places = smoother.places()
    grid = -np.expm1(-np.exp(places))
    observed, curve = smoother(outcome.weights, scale, places)
    distance = np.abs(predicted - observed)
    of = None if outcome.weight is None else outcome.weight
    e50, e90 = quantiles(distance, [0.5, 0.9], of)
    interval, lower, upper = smoother.limits(places, level, n_bootstrap, np.random.default_rng(random_state))
    return SmoothCalibration(
        float(np.average(distance, weights=of)),
        float(e50),
        float(e90),
        float(distance.max()),
        interval,
        float(time),
        cause,
        predicted,
        observed,
        grid,
        curve,
        lower,
        upper,
    )


def _log_hazard(distribution: Any, outcome: Outcome, time: float, cause: int | None) -> Array:
    """log(-log(1 - F(t|x))), or that of a cause; refused where it is infinite, which no regression can read."""
    if not isinstance(distribution, SurvivalDistribution):
        raise TypeError(
            f"The first argument is a SurvivalDistribution, such as model.predict_distribution(X); got "
            f"{type(distribution).__name__}."
        )
    if len(distribution) != len(outcome):
        raise ValueError(f"The distribution is for {len(distribution)} subjects and y has {len(outcome)} rows.")
    of = distribution
    if cause is not None:
        if distribution.n_causes == 1 and outcome.n_causes > 1:
            raise ValueError(
                f"cause={cause} needs a distribution with {outcome.n_causes} causes, as in y; the distribution has one."
            )
        of = distribution.cause(cause)
    with torch.no_grad(), np.errstate(divide="ignore"):
        scale = np.log(-np.asarray(of.log_survival(time), dtype=np.float64))
    certain = np.flatnonzero(np.isinf(scale))
    if len(certain):
        raise ValueError(
            f"{len(certain)} predicted risks at time {time:g} are 0 or 1, the first in row {int(certain[0])}, and have "
            "no place on the scale of log(-log(1 - F)); take another time, or km_calibration."
        )
    return scale


class _Smoother:
    """The regression of the hazard on the prediction, for any weights of the rows."""

    def __init__(self, outcome: Outcome, scale: Array, time: float, cause: int | None, knots: int, stop: bool) -> None:
        if cause is not None and outcome.cause is not None:
            other = np.where(outcome.cause == cause, 1, 2) * (outcome.cause > 0)
            outcome = replace(outcome, cause=other)
        else:
            outcome = outcome.any_cause()
        if stop:
            late = outcome.time > time
            code = None if outcome.cause is None else np.where(late, 0, outcome.cause)
            outcome = replace(
                outcome,
                event=outcome.event & ~late,
                time=np.minimum(outcome.time, time),
                cause=code,
                group=outcome.group,
            )
        self.rows = np.flatnonzero((outcome.entry < outcome.time) if outcome.entry is not None else outcome.time >= 0)
        self.outcome, self.time, self.scale = outcome, time, scale
        at = np.unique(quantiles(scale, _PLACES[knots], outcome.weight))
        self.basis = _Spline(at) if scale.max() - scale.min() > 1e-9 else None

    def places(self) -> Array:
        """Where the curve is drawn: evenly, and at quantiles of the predictions."""
        if self.basis is None:
            return self.scale[:1]
        even = np.linspace(self.scale.min(), self.scale.max(), _GRID)
        return np.unique(np.append(even, np.quantile(self.scale, np.linspace(0, 1, _GRID))))

    def __call__(self, weights: Array, *places: Array) -> list[Array]:
        """The observed risk of some predictions, given as log(-log(1 - F))."""
        counted = self.rows[weights[self.rows] > 0]
        outcome = replace(self.outcome[counted], weight=weights[counted])
        if self.basis is None:
            found = float(aalen_johansen(outcome).incidence_at([self.time])[0, 0])
            return [np.full(len(z), found) for z in places]
        model = CoxPH() if outcome.cause is None else FineGray()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Columns left out", UserWarning)  # few predictions differ
            model.fit(self.basis(self.scale[counted]), outcome)
        return [model.predict_cumulative_incidence(self.basis(z), [self.time])[:, 0, 0] for z in places]

    def limits(
        self, places: Array, level: float, n: int, rng: np.random.Generator
    ) -> tuple[tuple[float, float], Array, Array]:
        """Quantiles over resamples: of the ICI, and of the curve."""
        if n == 0:
            nothing = np.full(len(places), np.nan)
            return (float("nan"), float("nan")), nothing, nothing
        subject = np.arange(len(self.outcome))
        if self.outcome.group is not None:
            subject = np.unique(self.outcome.group, return_inverse=True)[1]
        size = int(subject.max()) + 1
        predicted = -np.expm1(-np.exp(self.scale))
        ici, curves = np.empty(n), np.empty((n, len(places)))
        for b in range(n):
            drawn = np.bincount(rng.integers(size, size=size), minlength=size)[subject] * self.outcome.weights
            observed, curves[b] = self(drawn, self.scale, places)
            ici[b] = np.average(np.abs(observed - predicted), weights=drawn)
        tails = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
        low, high = np.quantile(ici, tails)
        lower, upper = np.quantile(curves, tails, axis=0)
        return (float(low), float(high)), lower, upper


class _Spline:
    """A restricted cubic spline of log(-log(1 - F)): linear before the first and past the last knot."""

    def __init__(self, knots: Array) -> None:
        self.knots = knots

    def __call__(self, z: Array) -> Array:
        """The columns of the spline, the first of them linear."""
        k = self.knots
        columns = [z]
        width = (k[-1] - k[0]) ** 2
        for inner in k[:-2]:
            left, right = k[-2], k[-1]
            cube = np.maximum(z - inner, 0.0) ** 3
            cube = cube - np.maximum(z - left, 0.0) ** 3 * (right - inner) / (right - left)
            columns.append((cube + np.maximum(z - right, 0.0) ** 3 * (left - inner) / (right - left)) / width)
        return np.stack(columns, axis=1)
