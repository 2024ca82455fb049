"""The exact likelihood of a parametric family whose location is linear in x, and its maximum by Newton's method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
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
from sumosurv.estimators.regression import newton_step
from sumosurv.families import LogTerms
from sumosurv.networks import Observed
from sumosurv.networks.population import Curves, log_likelihood_terms
from sumosurv.outcome import Outcome

__all__ = ["FAMILIES", "Family", "Maximum", "ParametricLikelihood", "make_family", "maximise"]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
_Start = Callable[[float, float, float], tuple[float, ...]]

FAMILIES = ("weibull", "exponential", "lognormal", "loglogistic", "gompertz", "generalised_gamma", "spline")

_BLOCK = 20_000  # rows whose derivatives are computed at a time
_LARGEST = 25.0  # log of a shape, beyond which all events are at one time
_FAR = 600.0  # log of a scale or level, beyond which it leaves the range of numbers


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
        Mean and standard deviation of log t, and log of the event rate, to k values at which Newton's method starts.
    accelerates : bool
        Whether exp(β) is a ratio of times; otherwise it is a ratio of hazards.
    valid : callable
        Whether parameters (strata, k) are a distribution; Newton's steps are shortened until they are.
    """

    parameters: tuple[str, ...]
    formula: Callable[[Sequence[Tensor], Tensor], LogTerms]
    distribution: Callable[[Tensor], SurvivalDistribution]
    start: _Start
    accelerates: bool = True
    valid: Callable[[Tensor], bool] = lambda baseline: bool((baseline[:, 1:].abs() <= _LARGEST).all())

    def without_events(self) -> Array:
        """Parameters of a stratum without events: the event is as late as numbers allow."""
        values = np.array(self.start(0.0, 1.0, 0.0))
        values[0] = _FAR if self.accelerates else -_FAR
        return values


def make_family(name: str, knots: Array | None = None) -> Family:
    """A family by its name; ``knots`` are those of the spline, in log time."""
    if name == "weibull":
        return _from_distribution(Weibull, ("intercept", "log_shape"), lambda mean, sd, log_rate: (mean, -np.log(sd)))
    if name == "exponential":
        return Family(
            ("intercept",),
            lambda p, t: families.weibull(p[0], torch.zeros_like(p[0]), t),
            lambda p: Weibull(torch.exp(p[:, 0].clamp(-_FAR, _FAR)), 1.0),
            lambda mean, sd, log_rate: (-log_rate,),
        )
    if name == "lognormal":
        return _from_distribution(LogNormal, ("intercept", "log_sigma"), lambda mean, sd, log_rate: (mean, np.log(sd)))
    if name == "loglogistic":
        return _from_distribution(
            LogLogistic, ("intercept", "log_shape"), lambda mean, sd, log_rate: (mean, 0.5 - np.log(sd))
        )
    if name == "generalised_gamma":
        return _from_distribution(
            GeneralisedGamma,
            ("intercept", "log_sigma", "q"),
            lambda mean, sd, log_rate: (mean, np.log(sd), 0.5),
            valid=lambda baseline: bool(
                (baseline[:, 1].abs() <= _LARGEST).all() & (baseline[:, 2].abs() <= 10.0).all()
            ),
        )
    if name == "gompertz":
        return _from_distribution(
            Gompertz,
            ("intercept", "rate"),
            lambda mean, sd, log_rate: (log_rate, 0.0),
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
        lambda mean, sd, log_rate: (-mean / sd, 1.0 / sd, *[0.0] * (len(knots) - 2)),
        accelerates=False,
        valid=lambda baseline: bool((families.spline_slopes(baseline, at) > 0).all()),
    )


def _from_distribution(
    distribution: type[Parametric], parameters: tuple[str, ...], start: _Start, **options: Any
) -> Family:
    return Family(
        parameters,
        lambda p, t: distribution.formula(*p, t),
        lambda p: distribution.from_formula(*p.clamp(-_FAR, _FAR).unbind(1)),
        start,
        **options,
    )


class ParametricLikelihood:
    """The log-likelihood of coefficients and of the parameters of each stratum, with two derivatives.

    The argument is a vector of b coefficients, followed by S values of each of the k parameters of the family.

    Parameters
    ----------
    family : Family
    x : array of shape (n, b)
    outcome : Outcome
        With events, right-, left- and interval-censored rows, delayed entry and weights.
    stratum : int array of shape (n,)
        From 0 to S - 1.
    offset : array of shape (n,), optional
        Added to the location.
    """

    def __init__(self, family: Family, x: Array, outcome: Outcome, stratum: Whole, offset: Array | None = None) -> None:
        self.family, self.x, self.outcome = family, x, outcome
        self._offset = np.zeros(len(x)) if offset is None else offset
        self.n_strata, self._stratum, self._weight = int(stratum.max()) + 1, stratum, outcome.weights
        self._blocks = [slice(i, i + _BLOCK) for i in range(0, len(x), _BLOCK)]
        self._observed = {rows.start: Observed.of(outcome[rows], torch.float64) for rows in self._blocks}
        member = np.eye(self.n_strata)[stratum]
        # what the parameters that enter each of the k values of a row are multiplied by
        self._columns = [np.hstack([x, member]), *[member] * (len(family.parameters) - 1)]

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
            values.append(self.family.start(mean, max(sd, 1e-3), float(np.log(events) - log_exposure)))
        return np.concatenate([np.zeros(self.x.shape[1]), np.array(values).T.reshape(-1)])

    def __call__(self, parameters: Array) -> tuple[float, Array, Array]:
        """Value, gradient and information (minus the Hessian); the value is -inf for invalid parameters."""
        k, b, size = len(self.family.parameters), self.x.shape[1], len(parameters)
        value, gradient, information = 0.0, np.zeros(size), np.zeros((size, size))
        if not self.family.valid(torch.from_numpy(parameters[b:].reshape(k, -1).T.copy())):
            return -np.inf, gradient, information
        places = self._places()
        for rows in self._blocks:
            terms, first, second = self._derivatives(parameters, rows)
            weight, z = self._weight[rows], [columns[rows] for columns in self._columns]
            value += float((weight * terms).sum())
            if not np.isfinite(value):  # too far from the maximum
                return -np.inf, gradient, information
            for i in range(k):
                gradient[places[i]] += (weight * first[i]) @ z[i]
                for j in range(i + 1):
                    part = (z[i] * (-weight * second[i, j])[:, None]).T @ z[j]
                    information[np.ix_(places[i], places[j])] += part
                    if i != j:
                        information[np.ix_(places[j], places[i])] += part.T
        return value, gradient, information

    def score_residuals(self, parameters: Array) -> Array:
        """Contribution of each row to the gradient per unit of its weight, (n, size)."""
        made = np.zeros((len(self.x), len(parameters)))
        for rows in self._blocks:
            first = self._derivatives(parameters, rows)[1]
            for place, columns, part in zip(self._places(), self._columns, first):
                made[rows, place] = columns[rows] * part[:, None]
        return made

    def _places(self) -> list[Whole]:
        """Where the parameters that enter each of the k values of a row are in the vector."""
        b, k = self.x.shape[1], len(self.family.parameters)
        own = b + np.arange(k * self.n_strata).reshape(k, -1)
        return [np.concatenate([np.arange(b), own[0]]), *own[1:]]

    def _derivatives(self, parameters: Array, rows: slice) -> tuple[Array, Array, Array]:
        """Log-likelihood of some rows (n,), and its derivatives with respect to their values, (k, n) and (k, k, n)."""
        b, k = self.x.shape[1], len(self.family.parameters)
        values = parameters[b:].reshape(k, -1)[:, self._stratum[rows]]
        values[0] += self.x[rows] @ parameters[:b] + self._offset[rows]
        own = torch.from_numpy(values).requires_grad_()
        with torch.enable_grad():
            terms = log_likelihood_terms(_FamilyCurves(self.family, own), self._observed[rows.start])
            first = torch.autograd.grad(terms.sum(), own, create_graph=True)[0]
            second = [torch.autograd.grad(part.sum(), own, retain_graph=True)[0] for part in first]
        return terms.detach().numpy(), first.detach().numpy(), torch.stack(second).numpy()


class _FamilyCurves(Curves):
    """The curves of n rows, given their k values (k, n), at times of shape (n,)."""

    def __init__(self, family: Family, values: Tensor) -> None:
        self._family, self._values = family, values

    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._family.formula(list(self._values), t)[:2]


@dataclass(frozen=True)
class Maximum:
    """Where a penalised likelihood is largest.

    The value and the information of the likelihood are with the penalty at the maximum, and at the start.
    """

    parameters: Array
    value: float
    information: Array
    start_value: float
    start_information: Array
    n_iter: int
    decrement: float | None  # if it is too large to have converged


def maximise(
    likelihood: Callable[[Array], tuple[float, Array, Array]],
    start: Array,
    penalty: Array,
    max_iter: int,
    tol: float,
) -> Maximum:
    """Newton's method for a likelihood that need not be concave, less half of penalty · parameters².

    The information is scaled to a diagonal of one, so that units of time and columns do not matter, and directions of
    negative curvature are taken with the opposite sign: every step goes uphill.
    """

    def at(parameters: Array) -> tuple[float, Array, Array]:
        value, gradient, information = likelihood(parameters)
        penalised = value - 0.5 * float(penalty @ parameters**2)
        return penalised, gradient - penalty * parameters, information + np.diag(penalty)

    parameters, converged, decrement = start, False, np.inf
    value, gradient, information = at(parameters)
    first_value, first_information = value, information
    for steps in range(max_iter):
        n_iter = steps
        unit = np.sqrt(np.abs(np.diag(information)))
        unit = np.where(unit > 0, unit, 1.0)
        eigenvalues, vectors = np.linalg.eigh(information / np.outer(unit, unit))
        along = vectors.T @ (gradient / unit)
        step = vectors @ (along / np.maximum(np.abs(eigenvalues), 1e-10)) / unit
        decrement = float(gradient @ step)
        converged = decrement <= tol * max(1.0, abs(value)) and eigenvalues[0] > -1e-8
        found = None if converged else newton_step(at, parameters, step, value)
        if found is None:
            break
        gain = found[1][0] - value
        parameters, (value, gradient, information) = found
        if gain <= 1e-10 * abs(value) and decrement > 1e-4:  # at the boundary of the valid parameters
            break
    # a decrement that rounding keeps from falling further is small
    converged = converged or decrement <= 1e-12 * max(1.0, abs(value))
    missed = None if converged else decrement
    return Maximum(parameters, value, information, first_value, first_information, n_iter, missed)
