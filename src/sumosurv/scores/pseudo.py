"""Scores from pseudo-observations: calibration intercept and slope at one time, and the mean absolute error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import is_whole
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array, check_rows, check_subjects, check_time, curve_table, of_cause
from sumosurv.scores._resampling import Resamples, Terms, product_limit, ratio

_STEPS = 100  # of Fisher scoring, at most
_FLAT = 1e-20  # information per subject below which a fitted line counts as infinite


def calibration_intercept(
    distribution: SurvivalDistribution,
    y: Any,
    time: float | None = None,
    *,
    cause: int | None = None,
    sample_weight: Any = None,
) -> float:
    r"""Calibration intercept at one time: whether predicted risks are too low or too high on average; 0 is best.

    The intercept α of a regression of the event on the predicted risk with slope one,

    .. math:: \log(-\log(1 - F^*(t|x))) = α + \log(-\log(1 - F(t|x))).

    It is positive if the predicted risks F(t|x) are too low: the cumulative hazard is then exp(α) times as high as
    predicted.

    Parameters
    ----------
    distribution : SurvivalDistribution
        Predictions for subjects that the model was not fitted to.
    y : outcome
    time : float, optional
        The median of the times in y by default.
    cause : int, optional
        The cause, counted from one: F is its cumulative incidence. By default any event counts.
    sample_weight : array of shape (n,), optional
        Number of subjects that each row represents.

    Returns
    -------
    float
        nan if follow-up ends before the time, or if no finite value fits.

    Notes
    -----
    The response of each subject is its pseudo-observation n F̂(t) - (n - 1) F̂₋ᵢ(t) of the Kaplan-Meier or
    Aalen-Johansen estimate F̂, which assumes that censoring is independent of x. The regression is a generalised linear
    model with complementary log-log link and constant variance, as in van Geloven et al. (R: ``geepack::geese``).
    Weights that are not whole numbers are jackknifed by the smallest weight.

    References
    ----------
    Andersen, Perme (2010), Statistical Methods in Medical Research 19; van Geloven et al. (2022), BMJ 377.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> rng = np.random.default_rng(0)
    >>> scale = np.exp(rng.normal(size=2000))
    >>> y = Surv.from_arrays(np.ones(2000, bool), scale * rng.exponential(size=2000))
    >>> round(calibration_intercept(Weibull(2.0 * scale, 1.0), y, 1.0), 1)  # log 2: hazards are half of the true ones
    0.7
    """
    return _line("intercept", distribution, y, time, cause, sample_weight)


def calibration_slope(
    distribution: SurvivalDistribution,
    y: Any,
    time: float | None = None,
    *,
    cause: int | None = None,
    sample_weight: Any = None,
) -> float:
    r"""Calibration slope at one time: whether predicted risks are spread too widely or too little; 1 is best.

    The slope β of a regression of the event on the predicted risk,

    .. math:: \log(-\log(1 - F^*(t|x))) = α + β \log(-\log(1 - F(t|x))).

    If β is below one, high risks are too high and low risks too low, as in an overfitted model. For proportional
    hazards, log(-log(1 - F(t|x))) is the linear predictor plus a constant, and β estimates what R's ``rms`` calls the
    slope: the coefficient of the linear predictor in a Cox regression of new data. Here only events up to the time
    count.

    Parameters
    ----------
    distribution, y, time, cause, sample_weight
        As in `calibration_intercept`, where the method is explained.

    Returns
    -------
    float
        nan if follow-up ends before the time, or if all predictions are the same.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> rng = np.random.default_rng(0)
    >>> scale = np.exp(rng.normal(size=2000))
    >>> y = Surv.from_arrays(np.ones(2000, bool), scale * rng.exponential(size=2000))
    >>> round(calibration_slope(Weibull(scale**2, 1.0), y, 1.0), 1)
    0.5
    """
    return _line("slope", distribution, y, time, cause, sample_weight)


def _line(of: Literal["intercept", "slope"], d: Any, y: Any, time: Any, cause: Any, sample_weight: Any) -> float:
    terms = calibration_line_terms(of, d, check_rows(y, sample_weight), time=time, cause=cause)
    if terms.note:
        raise ValueError(terms.note)
    return terms.value


def mean_absolute_error(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    horizon: float | None = None,
    prediction: Literal["median", "mean"] = "median",
    sample_weight: Any = None,
) -> float:
    r"""Mean absolute error of predicted times, with pseudo-observations for censored times (MAE-PO); lower is better.

    .. math:: \frac{\sum_i ω_i |e_i - \hat t_i|}{\sum_i ω_i}, \qquad
              e_i = n \hat θ - (n - 1) \hat θ_{-i}, \quad ω_i = 1 - \hat S(z_i) \quad \text{if censored},

    and e = z, ω = 1 for an event. θ̂ is the restricted mean under the Kaplan-Meier estimate Ŝ of the scored rows. All
    times are restricted to the horizon, beyond which the Kaplan-Meier estimate is unknown; a subject that is followed
    up to the horizon counts with e equal to the horizon and ω = 1.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
        Competing events count as events.
    horizon : float, optional
        The largest time of y by default. Give it if scores of different rows are compared.
    prediction : {"median", "mean"}
        The predicted time: the median, or the restricted mean up to the horizon.
    sample_weight : array of shape (n,), optional
        Number of subjects that each row represents.

    Returns
    -------
    float

    Notes
    -----
    Qi et al. extrapolate the Kaplan-Meier curve linearly to zero instead of restricting times.

    References
    ----------
    Qi et al. (2023), An Effective Meaningful Way to Evaluate Survival Models, ICML.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> round(mean_absolute_error(Weibull([1.0, 2.0, 3.0], 1.0), y), 4)
    0.7566
    """
    terms = mean_absolute_error_terms(
        distribution, check_rows(y, sample_weight), horizon=horizon, prediction=prediction
    )
    return terms.value


# ------------------------------------------------------------------ leaving rows out


def pseudo_observations(counts: Array, outcome: Outcome, steps: Array, own: Array, tail: Array) -> Array:
    r"""Return the pseudo-observations of θ = Σⱼ S(zⱼ-) aⱼ + S(∞) · tail of r weighted samples, shape (r, n).

    aⱼ is ``steps``ⱼ, plus the share of row j among those at risk if it is ``own``. With a share for each event of a
    cause θ is the Aalen-Johansen estimate; with the lengths of the steps between times it is a restricted mean. Row i
    is left out by reducing its count by the unit u, the count of one subject:

    .. math:: θ + \frac{n - u}{u} (θ - θ_{-i}).

    Before row i, θ₋ᵢ has u fewer at risk; after it, the estimate is θ's, times the ratio of the two survival curves.

    Parameters
    ----------
    counts : array of shape (r, n)
        With the sum n.
    outcome : Outcome
        In the order of time, events first among ties.
    steps, own : array of shape (n,)
    tail : array of shape (n,)
        What follows row i if nobody is left after it; the last value belongs to θ.
    """
    weights = outcome.weights
    unit = (1.0 if is_whole(weights) else float(weights[weights > 0].min())) * len(outcome) / outcome.total
    unit = np.minimum(unit, np.min(counts, axis=1, where=counts > 0, initial=np.inf))[:, None]
    at_risk = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    fewer = np.where(at_risk - unit > 1e-9 * unit, at_risk - unit, np.inf)

    def survival(share: Array) -> Array:
        """Return S before and after each row, (r, n + 1)."""
        factors = 1.0 - np.where(outcome.event, share, 0.0)
        return np.pad(np.cumprod(factors, axis=1), ((0, 0), (1, 0)), constant_values=1.0)

    share, share_left = ratio(counts, at_risk), np.minimum(counts / fewer, 1.0)
    share = np.where(np.isnan(share), 0.0, share)
    whole, before = survival(share), survival(share_left)[:, :-1]
    gains = whole[:, :-1] * (steps + own * share)
    total = gains.sum(axis=1, keepdims=True) + whole[:, -1:] * tail[-1]
    lost = before * (steps + own * share_left)
    own_share = np.maximum(counts - unit, 0.0) / fewer
    after = before * (1.0 - np.where(outcome.event, own_share, 0.0))
    rest = total - np.cumsum(gains, axis=1)
    rest = np.where(np.isinf(fewer) | (whole[:, 1:] <= 0), tail, ratio(rest, whole[:, 1:]))
    without = np.cumsum(lost, axis=1) - lost + before * (steps + own * own_share) + after * rest
    return np.where(counts > 0, total + (len(outcome) - unit) / unit * (total - without), 0.0)


@dataclass(frozen=True)
class _Line(Terms):
    """The regression of pseudo-observations on predicted risks; ``note`` says why there is no value."""

    of: Literal["intercept", "slope"]
    own: npt.NDArray[np.bool_]  # events of the cause, (n,)
    scale: Array  # log(-log(1 - F(t|x))), (n,)
    time: float

    def resampled(self, resamples: Resamples) -> Array:
        """The score of each resample, shape (r,)."""
        if self.note:
            return np.full(len(resamples.counts), np.nan)
        order = self.outcome.time_order
        outcome, counts, z = self.outcome[order], resamples.counts[:, order], self.scale[order]
        past = outcome.time <= self.time
        nothing = np.zeros(len(z))
        response = pseudo_observations(counts, outcome, nothing, (self.own[order] & past).astype(np.float64), nothing)
        left = product_limit(counts, outcome.event)[:, int(past.sum())]
        followed = (counts[:, outcome.time >= self.time].sum(axis=1) > 0) | (left == 0)
        # begin where all risks are the mean response, or have that mean if the slope is one
        mean = np.clip(np.mean(counts * response, axis=1, keepdims=True), 1e-3, 1.0 - 1e-3)
        b = np.full_like(mean, 1.0 if self.of == "intercept" else 0.0)
        a = np.log(-np.log1p(-mean)) - b * np.mean(counts * z, axis=1, keepdims=True)
        for _ in range(_STEPS):
            hazard = np.exp(np.clip(a + b * z, -300.0, 6.0))
            slope = hazard * np.exp(-hazard)  # the derivative of the risk
            information, gap = counts * slope**2, counts * slope * (response + np.expm1(-hazard))
            s0, s1, s2 = (np.sum(information * z**k, axis=1, keepdims=True) for k in (0, 1, 2))
            u0, u1 = (np.sum(gap * z**k, axis=1, keepdims=True) for k in (0, 1))
            if self.of == "intercept":
                steps = [ratio(u0, s0), np.zeros_like(u0)]
            else:
                determinant = np.where(s0 * s2 - s1**2 > 1e-10 * s0 * s2, s0 * s2 - s1**2, 0.0)
                steps = [ratio(s2 * u0 - s1 * u1, determinant), ratio(s0 * u1 - s1 * u0, determinant)]
            steps = [np.clip(step, -2.0, 2.0) for step in steps]
            a, b = a + steps[0], b + steps[1]
            size = np.maximum(*np.abs(steps))
            if not (size > 1e-10).any():
                break
        found = (a if self.of == "intercept" else b)[:, 0]
        # a fitted line whose risks are all 0 or 1 is infinite, and stopped by rounding alone
        finite = s0[:, 0] > _FLAT * counts.sum(axis=1)
        return np.where(followed & finite & (size[:, 0] <= 1e-6), found, np.nan)


def calibration_line_terms(
    of: Literal["intercept", "slope"],
    distribution: SurvivalDistribution,
    y: Any,
    *,
    time: float | None = None,
    cause: int | None = None,
) -> _Line:
    """Return the regression of pseudo-observations on the predicted risks at one time."""
    outcome = check_subjects(distribution, y)
    at = check_time(outcome, time)
    scale, own, note = risks_on_log_scale(distribution, outcome, at, cause)
    return _Line(outcome, of, own, scale, at, note=note)


def risks_on_log_scale(
    distribution: SurvivalDistribution, outcome: Outcome, time: float, cause: int | None
) -> tuple[Array, npt.NDArray[np.bool_], str]:
    """Return log(-log(1 - F(t|x))), of one cause if given, the events of the cause, and a note on infinite values."""
    curves, other = of_cause(distribution, check_subjects(distribution, outcome, entry=True), cause)
    with np.errstate(divide="ignore"):
        scale = np.log(-curve_table(curves, np.array([time]), log=True)[:, 0])
    certain, note = np.flatnonzero(np.isinf(scale)), ""
    if len(certain):
        note = (
            f"{len(certain)} predicted risks at time {time:g} are 0 or 1, the first in row {int(certain[0])}, and "
            "log(-log(1 - F)) is infinite for them; use another time, or group_calibration."
        )
    return scale, outcome.event & ~other, note


@dataclass(frozen=True)
class _AbsoluteErrors(Terms):
    """Errors of predicted times, which are restricted to a horizon."""

    predicted: Array
    horizon: float

    def resampled(self, resamples: Resamples) -> Array:
        """The score of each resample, shape (r,)."""
        order = self.outcome.time_order
        outcome, counts = self.outcome[order], resamples.counts[:, order]
        until = np.minimum(outcome.time, self.horizon)
        early = ~outcome.event & (outcome.time < self.horizon)
        steps = np.diff(until, prepend=0.0)
        pseudo = pseudo_observations(counts, outcome, steps, np.zeros(len(steps)), self.horizon - until)
        place = np.searchsorted(outcome.time, outcome.time, side="right")
        weight = np.where(early, 1.0 - product_limit(counts, outcome.event)[:, place], 1.0) * counts
        error = np.abs(np.where(early, pseudo, until) - self.predicted[order])
        return ratio((weight * error).sum(axis=1), weight.sum(axis=1))


def mean_absolute_error_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    horizon: float | None = None,
    prediction: Literal["median", "mean"] = "median",
) -> Terms:
    """Return the absolute errors of the predicted times."""
    if prediction not in ("median", "mean"):
        raise ValueError(f"prediction must be 'median' or 'mean'; got {prediction!r}.")
    outcome = check_subjects(distribution, y)
    last = float(outcome.time[outcome.weights > 0].max()) if horizon is None else float(horizon)
    if not (np.isfinite(last) and last > 0):
        raise ValueError(f"horizon must be a positive number; got {horizon!r}.")
    with torch.no_grad():
        found = distribution.median() if prediction == "median" else distribution.restricted_mean(last)
    return _AbsoluteErrors(outcome, np.minimum(np.asarray(found, dtype=np.float64), last), last)
