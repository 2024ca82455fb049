r"""The formulas of the distribution families: log S, log f and log λ from parameters and times.

Each formula is a pure function of tensors that broadcast against each other. It makes no decision on a value, is valid
at every time from zero to infinity, and can be differentiated twice with respect to its parameters. Networks are
trained on these functions, `sumosurv.distributions` wraps them, and exported models are traced through them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["LogTerms", "gompertz", "log_logistic", "log_normal", "normal", "proportional_hazards", "weibull"]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


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
    r"""Return the terms of λ(t) = level · exp(rate · (t - centre)); the level is the hazard at the centre."""
    log_hazard = log_level + rate * (t - centre)
    cumulative = t * torch.exp(log_hazard) * _mean_decay(rate * t)
    log_survival = torch.where(torch.isinf(t), -math.inf, -cumulative)
    # where S is zero so is f, however large the hazard
    return LogTerms(
        log_survival, torch.where(torch.isinf(log_survival), -math.inf, log_hazard - cumulative), log_hazard
    )


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
    power = torch.exp(log_power)
    log_cumulative = log_risk + power * log_baseline
    grown = -torch.expm1(power * (log_start - log_baseline))  # 1 - H(0)^p / H(t)^p
    # at time zero Λ is zero for every risk, also where the product below would be inf · 0
    log_survival = torch.where(grown > 0, -torch.exp(log_cumulative) * grown, 0.0)
    log_hazard = log_cumulative + log_power + log_slope
    log_density = torch.where(torch.isinf(log_survival), -math.inf, log_hazard + log_survival)
    return LogTerms(log_survival, log_density, log_hazard)


def _log_time(t: Tensor) -> Tensor:
    """Return log t, and 0 at time zero, where the caller replaces what it computes from it."""
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
