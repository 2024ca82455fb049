r"""The formulas of the distribution families: log S, log f and log λ from parameters and times.

Each formula is a pure function of tensors that broadcast against each other. It has no value-dependent control flow, is
valid at every time from zero to infinity, and can be differentiated twice with respect to its parameters. Networks are
trained on these functions, `sumosurv.distributions` wraps them, and exported models are traced through them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = [
    "LogTerms",
    "generalised_gamma",
    "gompertz",
    "log_logistic",
    "log_normal",
    "normal",
    "proportional_hazards",
    "proportional_survival",
    "spline",
    "spline_slopes",
    "weibull",
]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_NODES, _WEIGHTS = 0.5 * np.polynomial.legendre.leggauss(48)[0] + 0.5, 0.5 * np.polynomial.legendre.leggauss(48)[1]


class LogTerms(NamedTuple):
    """log S(t), log f(t) and log λ(t), all of the same shape."""

    survival: Tensor
    density: Tensor
    hazard: Tensor


def weibull(log_scale: Tensor, log_shape: Tensor, t: Tensor) -> LogTerms:
    r"""Return the terms of S(t) = exp(-(t / scale)^shape)."""
    log_t = _log_time(t)
    log_cumulative = torch.exp(log_shape) * (log_t - log_scale)
    log_survival = torch.where(t > 0, -torch.exp(log_cumulative), 0.0)
    log_hazard = torch.where(t > 0, log_shape - log_t + log_cumulative, _power_at_zero(log_scale, log_shape))
    return LogTerms(log_survival, torch.where(torch.isinf(t), -math.inf, log_hazard + log_survival), log_hazard)


def log_logistic(log_scale: Tensor, log_shape: Tensor, t: Tensor) -> LogTerms:
    r"""Return the terms of S(t) = 1 / (1 + (t / scale)^shape)."""
    log_t = _log_time(t)
    log_odds = torch.exp(log_shape) * (log_t - log_scale)
    log_survival = torch.where(t > 0, logsigmoid(-log_odds), 0.0)
    log_hazard = log_shape - log_t + logsigmoid(log_odds)
    log_hazard = torch.where(t > 0, log_hazard, _power_at_zero(log_scale, log_shape))
    return LogTerms(log_survival, log_hazard + log_survival, log_hazard)


def log_normal(mu: Tensor, log_sigma: Tensor, t: Tensor) -> LogTerms:
    r"""Return the terms of S(t) = Φ((mu - log t) / sigma)."""
    log_t = _log_time(t)
    z = (log_t - mu) * torch.exp(-log_sigma)
    log_survival = torch.where(t > 0, torch.special.log_ndtr(-z), 0.0)
    log_density = torch.where(t > 0, -0.5 * z * z - _HALF_LOG_2PI - log_sigma - log_t, -math.inf)
    return LogTerms(log_survival, log_density, log_density - log_survival)


def normal(mean: Tensor, log_sd: Tensor, t: Tensor) -> LogTerms:
    r"""Return the terms of T normal, given T > 0: S(t) = Φ((mean - t) / sd) / Φ(mean / sd)."""
    precision = torch.exp(-log_sd)
    z, log_positive = (t - mean) * precision, torch.special.log_ndtr(mean * precision)
    log_survival = torch.special.log_ndtr(-z) - log_positive
    log_density = -0.5 * z * z - _HALF_LOG_2PI - log_sd - log_positive
    return LogTerms(log_survival, log_density, log_density - log_survival)


def gompertz(log_level: Tensor, rate: Tensor, t: Tensor, centre: Tensor | float = 0.0) -> LogTerms:
    r"""Return the terms of λ(t) = level · exp(rate · (t - centre)); the level is the hazard at the centre.

    With a negative rate, S does not go to zero.
    """
    log_hazard, growth = log_level + rate * (t - centre), rate * t
    falls = rate < 0
    largest = torch.where(falls, log_level - rate * centre, log_hazard)  # largest log-hazard from zero to t
    change = torch.where(falls, -growth, growth).clamp_max(torch.finfo(t.dtype).max)  # finite: 0 · inf would be NaN
    cumulative = t * torch.exp(largest) * _mean_decay(change)
    limit = torch.where(falls, torch.exp(largest) / torch.where(falls, rate, 1.0), -math.inf)
    log_survival = torch.where(torch.isinf(t), limit, -cumulative)
    # if S is zero, so is f, however large the hazard
    return LogTerms(
        log_survival, torch.where(torch.isinf(log_survival), -math.inf, log_hazard + log_survival), log_hazard
    )


def generalised_gamma(mu: Tensor, log_sigma: Tensor, q: Tensor, t: Tensor) -> LogTerms:
    r"""Return the terms of log T = mu + sigma w, where exp(q w) / q² has a gamma distribution with shape 1 / q².

    q = 1 is the Weibull distribution, q = 0 the log-normal, q = sigma the gamma distribution (Prentice 1974).
    """
    log_t = _log_time(t)
    w = (log_t - mu) * torch.exp(-log_sigma)
    upper = w >= 0
    log_tail = _log_gamma_tail(torch.where(upper, w, -w), torch.where(upper, q, -q))
    below = torch.log1p(-torch.exp(torch.where(upper, -1.0, log_tail)))
    log_survival = torch.where(t > 0, torch.where(upper, log_tail, below), 0.0)
    log_survival = torch.where(torch.isinf(t), -math.inf, log_survival)
    log_density = torch.where(t > 0, _log_gamma_density(w, q) - log_sigma - log_t, -math.inf)
    log_density = torch.where(torch.isinf(t), -math.inf, log_density)
    return LogTerms(log_survival, log_density, log_density - log_survival)


def spline(coefficients: Sequence[Tensor], knots: Tensor, t: Tensor) -> LogTerms:
    r"""Return the terms of a restricted cubic spline of log Λ over log t (Royston and Parmar 2002).

    .. math:: \log Λ(t) = γ_0 + γ_1 z + \sum_j γ_{j+1} v_j(z), \qquad z = \log t,

    where v_j is cubic between the knots, zero before the first and linear beyond the last. The curve is a survival
    function if the slope is positive: see `spline_slopes`.

    Parameters
    ----------
    coefficients : sequence of Tensor
        γ, one entry per knot.
    knots : Tensor of shape (m,)
        Log times, increasing; m >= 2.
    """
    z = _log_time(torch.where(torch.isinf(t), 1.0, t))
    height, slope = coefficients[0] + coefficients[1] * z, coefficients[1] + torch.zeros_like(z)
    for coefficient, (value, rise) in zip(coefficients[2:], _spline_columns(knots, z), strict=True):
        height, slope = height + coefficient * value, slope + coefficient * rise
    log_survival = torch.where(t > 0, -torch.exp(height), 0.0)
    log_survival = torch.where(torch.isinf(t), -math.inf, log_survival)
    at_zero = _power_at_zero(-coefficients[0] / coefficients[1], torch.log(coefficients[1]))
    log_hazard = torch.where(t > 0, height + torch.log(slope) - z, at_zero)
    log_density = torch.where(torch.isinf(log_survival), -math.inf, log_hazard + log_survival)
    return LogTerms(log_survival, log_density, log_hazard)


def spline_slopes(coefficients: Tensor, knots: Tensor) -> Tensor:
    """Return the smallest slope of the splines with coefficients (..., m): shape (...)."""
    points = torch.cat([knots, 0.5 * (knots[1:] + knots[:-1])])
    slopes = coefficients[..., 1:2].expand(*coefficients.shape[:-1], len(points))
    for j, (_, rise) in enumerate(_spline_columns(knots, points)):
        slopes = slopes + coefficients[..., j + 2, None] * rise
    ends, middle = slopes[..., : len(knots)], slopes[..., len(knots) :]
    first, last = ends[..., :-1], ends[..., 1:]
    # between two knots the slope is a parabola: first + b u + c u², u from 0 to 1
    c = 2.0 * (first + last - 2.0 * middle)
    b = last - first - c
    u = torch.where(c > 0, -b / torch.where(c > 0, 2.0 * c, 1.0), 0.0).clamp(0.0, 1.0)
    return torch.minimum((first + b * u + c * u * u).amin(-1), ends.amin(-1))


def proportional_hazards(
    log_risk: Tensor, log_power: Tensor, log_baseline: Tensor, log_slope: Tensor, log_start: Tensor
) -> LogTerms:
    r"""Return the terms of :math:`Λ(t) = e^r (e^{p c(t)} - e^{p c(0)})`.

    Parameters
    ----------
    log_risk, log_power : Tensor
        r and log p.
    log_baseline, log_slope, log_start : Tensor
        c(t), log c'(t) and c(0).
    """
    log_survival, log_cumulative = proportional_survival(log_risk, log_power, log_baseline, log_start)
    log_hazard = log_cumulative + log_power + log_slope
    log_density = torch.where(torch.isinf(log_survival), -math.inf, log_hazard + log_survival)
    return LogTerms(log_survival, log_density, log_hazard)


def proportional_survival(
    log_risk: Tensor, log_power: Tensor, log_baseline: Tensor, log_start: Tensor
) -> tuple[Tensor, Tensor]:
    """Return log S of `proportional_hazards`, and r + p c(t)."""
    power = torch.exp(log_power)
    log_cumulative = log_risk + power * log_baseline
    grown = -torch.expm1(power * (log_start - log_baseline))  # 1 - H(0)^p / H(t)^p
    # at time zero, Λ is zero for every risk, even if the product below would be inf · 0
    return torch.where(grown > 0, -torch.exp(log_cumulative) * grown, 0.0), log_cumulative


def _log_time(t: Tensor) -> Tensor:
    """Return log t; 0 at time zero, where the caller replaces the result."""
    return torch.log(torch.where(t > 0, t, 1.0))


def _power_at_zero(log_scale: Tensor, log_shape: Tensor) -> Tensor:
    """Return the log-hazard at time zero if it is proportional to t^(shape - 1) there."""
    return torch.where(log_shape < 0, math.inf, torch.where(log_shape > 0, -math.inf, -log_scale))


def _mean_decay(x: Tensor) -> Tensor:
    """Return (1 - exp(-x)) / x for x >= 0, by its series near zero, where the derivative of the quotient cancels."""
    small = x < 0.1
    near, far = torch.where(small, x, 0.0), torch.where(small, 1.0, x)
    series = torch.ones_like(x)
    for j in range(10, 1, -1):
        series = 1.0 - near * series / j
    return torch.where(small, series, -torch.expm1(-far) / far)


def _exponential_rests(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Σ_j xʲ / (j + k)! for k = 2, 3, 4: (exp(x) - 1 - x) / x² and so on, by series near zero."""
    small = x.abs() < 1.0
    near, far = torch.where(small, x, 0.0), torch.where(small, 1.0, x)
    series = torch.zeros_like(x)
    for j in range(22, 3, -1):
        series = 1.0 / math.factorial(j) + near * series
    second = (torch.expm1(far) - far) / (far * far)
    third = (second - 0.5) / far
    near_third = 1 / 6 + near * series
    return (
        torch.where(small, 0.5 + near * near_third, second),
        torch.where(small, near_third, third),
        torch.where(small, series, (third - 1 / 6) / far),
    )


def _log_gamma_density(w: Tensor, q: Tensor) -> Tensor:
    """Return the log-density of w if exp(q w) / q² has a gamma distribution with shape a = 1 / q²."""
    square = q * q
    small = square < 0.1
    near, a = torch.where(small, square, 0.0), 1.0 / torch.where(small, 1.0, square)
    # log Γ(a) minus Stirling's formula; by its series if a is large
    series = near * (1 / 12 - near**2 * (1 / 360 - near**2 * (1 / 1260 - near**2 * (1 / 1680 - near**2 / 1188))))
    rest = torch.where(small, series, torch.lgamma(a) - (a - 0.5) * torch.log(a) + a - _HALF_LOG_2PI)
    return -_HALF_LOG_2PI - rest - w * w * _exponential_rests(q * w)[0]


def _log_gamma_tail(w: Tensor, q: Tensor) -> Tensor:
    """Return log P(W > w) for w >= 0, by quadrature: torch has no derivative of the incomplete gamma function.

    With f(w + s) = f(w) exp(-e(s)), the integral of exp(-e) is truncated where the convex function e is about 38. Its
    first two derivatives are also integrals, and enter as a polynomial in w and q around their values.
    """
    w, q = w + torch.zeros_like(q), q + torch.zeros_like(w)
    at, shape = w.detach(), q.detach()
    with torch.no_grad():
        start = [part[..., None] for part in _cumulants(at, shape)]
        slope = start[1][..., 0].clamp_max(1e300)
        low, high = torch.full_like(at, -2.0), torch.full_like(at, 14.0)
        for _ in range(9):
            middle = 0.5 * (low + high)
            s = torch.exp(middle) / (1.0 + slope)
            second = _exponential_rests(shape * s)[0]
            short = slope * s * (1.0 + shape * s * second) + s * s * second < 38.0
            low, high = torch.where(short, middle, low), torch.where(short, high, middle)
        length = torch.exp(high) / (1.0 + slope)
        nodes, weights = (torch.from_numpy(part).to(at) for part in (_NODES**3, 3.0 * _NODES**2 * _WEIGHTS))
        ends = _cumulants(at[..., None] + length[..., None] * nodes, shape[..., None])
        # finite unless f(w) is zero
        gaps = [torch.where(torch.isfinite(b - a), b - a, 0.0) for a, b in zip(start, ends)]
        exponent, by_w, by_q, by_ww, by_wq, by_qq = gaps
        share = torch.exp(-exponent) * weights
        total = share.sum(-1, keepdim=True)
        share = share / total

        def mean(values: Tensor) -> Tensor:
            return (share * values).sum(-1)

        log_integral, mean_w, mean_q = torch.log(total[..., 0]) + torch.log(length), mean(by_w), mean(by_q)
        of_ww = mean(by_w * by_w - by_ww) - mean_w * mean_w
        of_wq = mean(by_w * by_q - by_wq) - mean_w * mean_q
        of_qq = mean(by_q * by_q - by_qq) - mean_q * mean_q
    dw, dq = w - at, q - shape
    curved = 0.5 * of_ww * dw * dw + of_wq * dw * dq + 0.5 * of_qq * dq * dq
    return _log_gamma_density(w, q) + log_integral - mean_w * dw - mean_q * dq + curved


def _cumulants(v: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    """Return (exp(q v) - 1 - q v) / q² and its derivatives by v, q, v v, v q and q q."""
    x, square = q * v, v * v
    second, third, fourth = _exponential_rests(x)
    first = 1.0 + x * second
    return (
        square * second,
        v * first,
        v * square * (second - 2.0 * third),
        1.0 + x * first,
        square * (first - second),
        square * square * (second - 4.0 * third + 6.0 * fourth),
    )


def _spline_columns(knots: Tensor, z: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return v_j and its derivative at log times z, for each inner knot."""
    first, last = knots[0], knots[-1]
    inside = torch.minimum(torch.maximum(z, first), last)
    made = []
    for knot in knots[1:-1]:
        share = (last - knot) / (last - first)
        own, whole = (inside - knot).clamp_min(0.0), inside - first
        rise = 3.0 * (own * own - share * whole * whole)
        made.append((own**3 - share * whole**3 + rise * (z - last).clamp_min(0.0), rise))
    return made
