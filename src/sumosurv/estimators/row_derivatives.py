"""log S and log f of parametric families for single rows, with two derivatives with respect to their parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import erfcx, expit, log_ndtr
from torch import Tensor

from sumosurv.families import LogTerms

__all__ = ["Derivatives", "by_autodiff", "exponential", "log_difference", "log_logistic", "log_normal", "weibull"]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
_Curve = tuple[Array, Array, Array]  # a function of w, its first and its second derivative

_LARGEST = 300.0  # w beyond which products with exp(w) leave the range of numbers


@dataclass(frozen=True)
class Derivatives:
    """A term of each of n rows, (n,), its gradient (k, n) and its Hessian (k, k, n)."""

    value: Array
    gradient: Array
    hessian: Array

    def __sub__(self, other: Derivatives) -> Derivatives:
        return Derivatives(self.value - other.value, self.gradient - other.gradient, self.hessian - other.hessian)


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


# ------------------------------------------------------------------ log T = mu + sigma w, in closed form


def weibull(values: Array, t: Array, density: bool) -> Derivatives:
    """Derivatives with respect to log scale and log shape; w has a Gumbel distribution."""
    return _location_scale(_gumbel, 1.0, values, t, density)


def exponential(values: Array, t: Array, density: bool) -> Derivatives:
    """Derivatives with respect to log scale."""
    made = weibull(np.vstack([values, np.zeros_like(values)]), t, density)
    return Derivatives(made.value, made.gradient[:1], made.hessian[:1, :1])


def log_logistic(values: Array, t: Array, density: bool) -> Derivatives:
    """Derivatives with respect to log scale and log shape."""
    return _location_scale(_logistic, 1.0, values, t, density)


def log_normal(values: Array, t: Array, density: bool) -> Derivatives:
    """Derivatives with respect to mu and log sigma."""
    return _location_scale(_normal, -1.0, values, t, density)


def _location_scale(
    curve: Callable[[Array, bool], _Curve], sign: float, values: Array, t: Array, density: bool
) -> Derivatives:
    """From the log-density or log-survival function of w; the second parameter is ``sign`` times -log sigma."""
    if not t.any():  # S(0) = 1
        return Derivatives(np.zeros(len(t)), np.zeros_like(values), np.zeros((2, *values.shape)))
    log_t, log_precision = np.log(t), sign * values[1]
    precision = np.exp(log_precision)
    w = (log_t - values[0]) * precision
    value, slope, curvature = curve(w, density)
    along = w * slope
    gradient = np.stack([-precision * slope, sign * (along + 1.0 if density else along)])
    mixed = -sign * precision * (slope + w * curvature)
    hessian = np.array([[precision**2 * curvature, mixed], [mixed, along + w**2 * curvature]])
    return Derivatives(value + log_precision - log_t if density else value, gradient, hessian)


def _gumbel(w: Array, density: bool) -> _Curve:
    hazard = np.exp(np.minimum(w, _LARGEST))
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


def log_difference(first: Derivatives, last: Derivatives) -> Derivatives:
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
