"""Parametric families whose location is linear in x, and their exact likelihood with two derivatives."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import erfcx, expit, log_ndtr
from torch import Tensor

from sumosurv import families
from sumosurv.distributions import (
    GeneralisedGamma,
    Gompertz,
    LogLogistic,
    LogNormal,
    RoystonParmar,
    SurvivalDistribution,
    Weibull,
)
from sumosurv.distributions.parametric import Parametric
from sumosurv.families import LogTerms
from sumosurv.outcome import Outcome

__all__ = ["FAMILIES", "Family", "ParametricLikelihood", "by_autodiff", "make_family"]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
_Start = Callable[[float, float, float], tuple[float, ...]]
_Curve = tuple[Array, Array, Array]  # a function of w, its first and its second derivative

FAMILIES = ("weibull", "exponential", "lognormal", "loglogistic", "gompertz", "generalised_gamma", "spline")

_BLOCK = 20_000  # rows whose derivatives are computed at a time
_LARGEST = 25.0  # log of a shape, beyond which all events are at one time
_LARGEST_W = 300.0  # log of a cumulative hazard whose products stay in the range of numbers
# scale, and minus the mean, of a Gumbel distribution of standard deviation 1: of log t in a Weibull distribution
_GUMBEL_SCALE = np.sqrt(6.0) / np.pi
_GUMBEL_MEAN = np.euler_gamma * _GUMBEL_SCALE
_FAR = 600.0  # log of a scale or level, beyond which it leaves the range of numbers


# ------------------------------------------------------------------ log S and log f of single rows


@dataclass(frozen=True)
class Derivatives:
    """A term of each of n rows, (n,), its gradient (k, n) and its Hessian (k, k, n)."""

    value: Array
    gradient: Array
    hessian: Array

    def __sub__(self, other: Derivatives) -> Derivatives:
        return Derivatives(self.value - other.value, self.gradient - other.gradient, self.hessian - other.hessian)


class Times:
    """Times t of rows, all of them zero or all above zero, and their logarithms."""

    def __init__(self, t: Array) -> None:
        self.t, self.at_zero = t, not t.any()
        self.log_t = t if self.at_zero else np.log(t)


def by_autodiff(
    formula: Callable[[Sequence[Tensor], Tensor], LogTerms], values: Array, t: Array, density: bool
) -> Derivatives:
    """Derivatives of log f or log S at parameters (k, n) and times (n,), for any formula of `sumosurv.families`."""
    own = torch.from_numpy(values).requires_grad_()
    with torch.enable_grad():
        terms = formula(list(own), torch.from_numpy(t))
        chosen = terms.density if density else terms.survival
        first = torch.autograd.grad(chosen.sum(), own, create_graph=True)[0]
        second = [torch.autograd.grad(part.sum(), own, retain_graph=True)[0] for part in first]
    return Derivatives(chosen.detach().numpy(), first.detach().numpy(), torch.stack(second).numpy())


def _location_scale(
    curve: Callable[[Array, bool], _Curve], sign: float, values: Sequence[Array], log_t: Array, density: bool
) -> Derivatives:
    """Derivatives of log f or log S of log T = mu + sigma w, in closed form.

    ``curve`` is the log-density or log-survival function of w; the parameters are mu and ``sign`` times -log sigma.
    """
    log_precision = sign * values[1]
    precision = np.exp(log_precision)
    w = (log_t - values[0]) * precision
    value, slope, curvature = curve(w, density)
    along, bend = w * slope, w * curvature
    gradient, hessian = np.empty((2, len(w))), np.empty((2, 2, len(w)))
    gradient[0], gradient[1] = -precision * slope, sign * (along + 1.0 if density else along)
    hessian[0, 0], hessian[1, 1] = precision**2 * curvature, along + w * bend
    hessian[0, 1] = hessian[1, 0] = -sign * precision * (slope + bend)
    return Derivatives(value + log_precision - log_t if density else value, gradient, hessian)


def _exponential(values: Sequence[Array], log_t: Array, density: bool) -> Derivatives:
    """Derivatives with respect to log scale: those of a Weibull distribution with shape 1."""
    made = _location_scale(_gumbel, 1.0, [values[0], np.zeros(1)], log_t, density)
    return Derivatives(made.value, made.gradient[:1], made.hessian[:1, :1])


def _gumbel(w: Array, density: bool) -> _Curve:
    hazard = np.exp(np.minimum(w, _LARGEST_W))
    return (w - hazard, 1.0 - hazard, -hazard) if density else (-hazard, -hazard, -hazard)


def _logistic(w: Array, density: bool) -> _Curve:
    below, log_above = expit(w), -np.logaddexp(0.0, w)
    spread = below * expit(-w)
    if density:
        return w + 2.0 * log_above, 1.0 - 2.0 * below, -2.0 * spread
    return log_above, -below, -spread


def _normal(w: Array, density: bool) -> _Curve:
    if density:
        return -0.5 * w**2 - 0.5 * np.log(2.0 * np.pi), -w, np.full_like(w, -1.0)
    hazard = np.sqrt(2.0 / np.pi) / erfcx(w / np.sqrt(2.0))
    return log_ndtr(-w), -hazard, -np.clip(hazard * (hazard - w), 0.0, 1.0)  # far out, rounding leaves this range


def _log_difference(first: Derivatives, last: Derivatives) -> Derivatives:
    """Derivatives of log(e^a - e^b), where a is the first term and b < a the last."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # not finite if the terms are equal
        share = -np.expm1(last.value - first.value)
        odds = 1.0 / share - 1.0  # e^b / (e^a - e^b)
        gap = first - last
        outer = gap.gradient[:, None] * gap.gradient[None, :]
        return Derivatives(
            first.value + np.log(share),
            first.gradient + odds * gap.gradient,
            first.hessian + odds * (gap.hessian - (1.0 + odds) * outer),
        )


# ------------------------------------------------------------------ families


@dataclass(frozen=True)
class Family:
    """A family with k parameters per stratum, the first of which is the location: an intercept plus β·x.

    Parameters
    ----------
    parameters : tuple of str
        Names of the k parameters.
    formula : callable
        k tensors and times to log S, log f and log λ.
    distribution : callable
        Parameters (n, k) to the distribution of n subjects.
    start : callable
        Mean and standard deviation of log T, and log of the event rate, to k values at which Newton's method starts.
    accelerates : bool
        Whether exp(β) is a ratio of times; otherwise it is a ratio of hazards.
    exact : callable, optional
        k arrays of parameters, log t, and whether log f or log S is asked for, to its derivatives in closed form. None:
        they come from automatic differentiation of ``formula``.
    valid : callable
        Whether parameters (strata, k) are a distribution; Newton's steps are shortened until they are.
    """

    parameters: tuple[str, ...]
    formula: Callable[[Sequence[Tensor], Tensor], LogTerms]
    distribution: Callable[[Tensor], SurvivalDistribution]
    start: _Start
    accelerates: bool = True
    exact: Callable[[Sequence[Array], Array, bool], Derivatives] | None = None
    valid: Callable[[Array], bool] = lambda baseline: bool((np.abs(baseline[:, 1:]) <= _LARGEST).all())

    def derivatives(self, values: Sequence[Array], when: Times, density: bool) -> Derivatives:
        """log f or log S at each time, with its derivatives with respect to the k parameters.

        An array of parameters has one value per time or, for all but the location, one for all.
        """
        if self.exact is None:
            return by_autodiff(self.formula, np.stack(np.broadcast_arrays(*values)), when.t, density)
        if when.at_zero:  # S(0) = 1
            k, n = len(values), len(when.t)
            return Derivatives(np.zeros(n), np.zeros((k, n)), np.zeros((k, k, n)))
        return self.exact(values, when.log_t, density)

    def without_events(self) -> Array:
        """Parameters of a stratum without events: the event is as late as numbers allow."""
        values = np.array(self.start(0.0, 1.0, 0.0))
        values[0] = _FAR if self.accelerates else -_FAR
        return values


def make_family(name: str, knots: Array | None = None) -> Family:
    """A family by its name; ``knots`` are those of the spline, in log time."""
    if name == "weibull":
        return _from_distribution(
            Weibull,
            ("intercept", "log_shape"),
            lambda mean, sd, log_rate: (mean + _GUMBEL_MEAN * sd, -np.log(_GUMBEL_SCALE * sd)),
            exact=partial(_location_scale, _gumbel, 1.0),
        )
    if name == "exponential":
        return Family(
            ("intercept",),
            lambda p, t: families.weibull(p[0], torch.zeros_like(p[0]), t),
            lambda p: Weibull(torch.exp(p[:, 0].clamp(-_FAR, _FAR)), 1.0),
            lambda mean, sd, log_rate: (-log_rate,),
            exact=_exponential,
        )
    if name == "lognormal":
        return _from_distribution(
            LogNormal,
            ("intercept", "log_sigma"),
            lambda mean, sd, log_rate: (mean, np.log(sd)),
            exact=partial(_location_scale, _normal, -1.0),
        )
    if name == "loglogistic":
        return _from_distribution(
            LogLogistic,
            ("intercept", "log_shape"),
            lambda mean, sd, log_rate: (mean, 0.5 - np.log(sd)),
            exact=partial(_location_scale, _logistic, 1.0),
        )
    if name == "generalised_gamma":
        return _from_distribution(
            GeneralisedGamma,
            ("intercept", "log_sigma", "q"),
            lambda mean, sd, log_rate: (mean, np.log(sd), 0.5),
            valid=lambda baseline: bool((np.abs(baseline[:, 1:]) <= [_LARGEST, 10.0]).all()),
        )
    if name == "gompertz":
        return _from_distribution(
            Gompertz,
            ("intercept", "rate"),
            lambda mean, sd, log_rate: (log_rate, 0.0),
            far=(_FAR, np.inf),  # the rate is not a logarithm
            accelerates=False,
            valid=lambda baseline: True,
        )
    assert name == "spline"
    assert knots is not None
    at = torch.from_numpy(knots)
    return Family(
        ("intercept", *(f"gamma_{j}" for j in range(1, len(knots)))),
        lambda p, t: families.spline(p, at, t),
        lambda p: RoystonParmar(p, at),
        lambda mean, sd, log_rate: (
            -(mean / sd + _GUMBEL_MEAN) / _GUMBEL_SCALE,
            1.0 / (_GUMBEL_SCALE * sd),
            *[0.0] * (len(knots) - 2),
        ),
        accelerates=False,
        valid=lambda baseline: bool((families.spline_slopes(torch.from_numpy(baseline), at) > 0).all()),
    )


def _from_distribution(
    distribution: type[Parametric],
    parameters: tuple[str, ...],
    start: _Start,
    far: tuple[float, ...] = (_FAR,),
    **options: Any,
) -> Family:
    bound = torch.tensor(far, dtype=torch.float64)
    return Family(
        parameters,
        lambda p, t: distribution.formula(*p, t),
        lambda p: distribution.from_formula(*p.clamp(-bound, bound).unbind(1)),
        start,
        **options,
    )


# ------------------------------------------------------------------ likelihood


class ParametricLikelihood:
    """The log-likelihood of coefficients and of the parameters of each stratum, with two derivatives.

    The argument is a vector of b coefficients, followed by S values of each of the k parameters of the family.

    Parameters
    ----------
    family : Family
    x : array of shape (p, n)
    outcome : Outcome
        With events, right-, left- and interval-censored rows, delayed entry and weights.
    stratum : int array of shape (n,)
        From 0 to S - 1.
    offset : array of shape (n,)
        Added to the location.
    centre, transform : arrays of shape (p,) and (p, b)
        The coefficients are those of the b columns transformᵀ (x - centre).
    """

    def __init__(
        self, family: Family, x: Array, outcome: Outcome, stratum: Whole, offset: Array, centre: Array, transform: Array
    ) -> None:
        self.family, self.outcome = family, outcome
        self.n_columns, self.n_rows = transform.shape[1], len(outcome)
        self.n_strata, self._stratum = int(stratum.max()) + 1, stratum
        self._blocks = []
        for rows in _rows_of_one_kind(outcome):  # avoids a second full copy of the columns
            own = np.take(x, rows, axis=1, mode="clip") - centre[:, None]
            self._blocks.append(_Block(rows, transform.T @ own, outcome, stratum, self.n_strata, offset))

    def without_columns(self) -> ParametricLikelihood:
        """The log-likelihood of the parameters of the strata, with coefficients of zero."""
        made = copy.copy(self)
        made.n_columns, made._blocks = 0, [copy.copy(block) for block in self._blocks]
        for block in made._blocks:
            block.location = block.stratum
        return made

    def start(self) -> Array:
        """Coefficients of zero, and parameters from the mean and spread of log t in each stratum."""
        known, values = self.outcome.at_midpoints(), []
        for s in range(self.n_strata):
            rows = known[(self._stratum == s) & (known.time > 0)]
            if not len(rows):
                values.append(self.family.start(0.0, 1.0, 0.0))
                continue
            log_time, weight = np.log(rows.time), rows.weights
            mean = float(np.average(log_time, weights=weight))
            sd = float(np.sqrt(np.average((log_time - mean) ** 2, weights=weight)))
            at_risk = rows.time - (0.0 if rows.entry is None else rows.entry)
            largest = float(at_risk.max())
            log_exposure = np.log(largest) + np.log(float((weight * (at_risk / largest)).sum()))
            events = max(float((weight * rows.event).sum()), 0.5)
            # what censoring hides of log t, exactly if its hazard is proportional and the distribution is Weibull
            mean += _GUMBEL_SCALE * sd * float(np.log(weight.sum() / events))
            values.append(self.family.start(mean, max(sd, 1e-3), float(np.log(events) - log_exposure)))
        return np.concatenate([np.zeros(self.n_columns), np.array(values).T.reshape(-1)])

    def __call__(self, parameters: Array) -> tuple[float, Array, Array]:
        """Value, gradient and information (minus the Hessian); the value is -inf for invalid parameters."""
        size, own = len(parameters), self._own(parameters)
        value, gradient, information = 0.0, np.zeros(size), np.zeros((size, size))
        if not self.family.valid(own.T):
            return -np.inf, gradient, information
        places = self._places()
        for block in self._blocks:
            terms = block.log_likelihood(self.family, parameters[: self.n_columns], own)
            value += float(block.weight @ terms.value)
            if not np.isfinite(value):  # too far from the maximum
                return -np.inf, gradient, information
            columns = block.columns(len(own))
            for i, place in enumerate(places):
                gradient[place] += columns[i] @ (block.weight * terms.gradient[i])
                for j in range(i + 1):
                    part = _weighted_product(columns[i], -block.weight * terms.hessian[i, j], columns[j])
                    information[place, places[j]] += part
                    if i != j:
                        information[places[j], place] += part.T
        return value, gradient, information

    def score_residuals(self, parameters: Array) -> Array:
        """Contribution of each row to the gradient per unit of its weight, (n, size)."""
        made, own = np.zeros((self.n_rows, len(parameters))), self._own(parameters)
        for block in self._blocks:
            gradient = block.log_likelihood(self.family, parameters[: self.n_columns], own).gradient
            for place, columns, part in zip(self._places(), block.columns(len(own)), gradient):
                made[block.rows, place] = (columns * part).T
        return made

    def _own(self, parameters: Array) -> Array:
        """The parameters of the family, (k, strata)."""
        return parameters[self.n_columns :].reshape(len(self.family.parameters), -1)

    def _places(self) -> list[slice]:
        """Where the parameters that enter each of the k values of a row are in the vector."""
        ends = self.n_columns + self.n_strata * np.arange(1, len(self.family.parameters) + 1)
        return [slice(0, ends[0]), *(slice(end - self.n_strata, end) for end in ends[1:])]


class _Block:
    """Rows of one kind: all of them have an event, are censored, or have an event in an interval."""

    def __init__(self, rows: Whole, x: Array, outcome: Outcome, stratum: Whole, n_strata: int, offset: Array) -> None:
        self.rows, self.weight, self.offset = rows, outcome.weights[rows], offset[rows]
        self.location = np.vstack([x, stratum[rows] == np.arange(n_strata)[:, None]])
        self.stratum = self.location[len(x) :]
        self._place = stratum[rows] if n_strata > 1 else stratum[:1]
        self.event, self.time = bool(outcome.event[rows[0]]), Times(outcome.time[rows])
        late = outcome.entry is not None and outcome.entry[rows[0]] > 0
        self.entry = Times(outcome.entry[rows]) if outcome.entry is not None and late else None
        inside = outcome.upper is not None and not self.event and np.isfinite(outcome.upper[rows[0]])
        self.upper = Times(outcome.upper[rows]) if outcome.upper is not None and inside else None

    def columns(self, k: int) -> list[Array]:
        """What the parameters that enter each of the k values of a row are multiplied by."""
        return [self.location, *[self.stratum] * (k - 1)]

    def log_likelihood(self, family: Family, coef: Array, own: Array) -> Derivatives:
        """log f(t), log S(t) or log(S(t) - S(u)), less log S(entry), and derivatives with respect to the k values."""
        values = list(own[:, self._place])
        values[0] = values[0] + self.offset + coef @ self.location[: len(coef)]
        terms = family.derivatives(values, self.time, density=self.event)
        if self.upper is not None:
            terms = _log_difference(terms, family.derivatives(values, self.upper, density=False))
        if self.entry is not None:
            terms -= family.derivatives(values, self.entry, density=False)
        return terms


def _weighted_product(left: Array, weight: Array, right: Array) -> Array:
    """Σ of weight · left · rightᵀ over rows, for columns (a, n) and (b, n)."""
    if left is right and len(left) > 1 and weight.min() >= 0:
        left = left * np.sqrt(weight)
        return np.asarray(left @ left.T)  # a symmetric product, which takes half the time
    return np.asarray((left * weight) @ right.T)


def _rows_of_one_kind(outcome: Outcome) -> Iterator[Whole]:
    """The rows in parts that are alike: an event or not, an interval or not, a time of zero or not, entry or not."""
    kind = 2 * outcome.event + (outcome.time > 0)
    if outcome.upper is not None:
        kind = 2 * kind + np.isfinite(outcome.upper)
    if outcome.entry is not None:
        kind = 2 * kind + (outcome.entry > 0)
    for each in np.unique(kind):
        rows = np.flatnonzero(kind == each)
        yield from np.split(rows, range(_BLOCK, len(rows), _BLOCK))
