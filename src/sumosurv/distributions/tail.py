"""The extrapolation beyond the last training time: a Gompertz tail from the hazard that was reached there."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sumosurv.distributions._quadrature import integrate_panels

__all__ = ["mean_growth", "tail_area", "tail_log_terms", "tail_start"]

_LARGE = 40.0  # exp(40) - 1 is exp(40) in float64


def mean_growth(x: Tensor) -> Tensor:
    """Return (exp(x) - 1) / x for x >= 0, by its series near zero, where the derivative of the quotient cancels."""
    small = x < 0.01
    near, far = torch.where(small, x, 0.0), torch.where(small, 1.0, x)
    series = torch.ones_like(x)
    for j in range(8, 1, -1):
        series = 1.0 + near * series / j
    return torch.where(small, series, torch.expm1(far) / far)


def tail_start(log_survival: Tensor, log_density: Tensor, least: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return Λ and log λ at the horizon, from log S and log f there; neither is zero, so that every tail ends.

    ``least`` is a lower bound of the hazard.
    """
    tiny = torch.finfo(log_survival.dtype).tiny
    # a subject whose survival probability is zero at the horizon has no tail
    log_hazard = torch.where(torch.isinf(log_survival), 0.0, log_density - log_survival)
    return (-log_survival).clamp_min(tiny), log_hazard.clamp_min(math.log(max(least, tiny)))


def tail_log_terms(
    cumulative: Tensor, log_hazard: Tensor, growth: Tensor | float, t: Tensor, horizon: float
) -> tuple[Tensor, Tensor]:
    r"""Return log S and log f beyond the horizon T; those at the horizon for earlier t.

    .. math:: λ(t) = λ(T) e^{g (t - T)}, \qquad Λ(t) = Λ(T) + λ(T) (e^{g (t - T)} - 1) / g.
    """
    later = (t - horizon).clamp(0.0, torch.finfo(t.dtype).max)
    log_survival = -cumulative - _rise(log_hazard, growth * later, later)
    log_density = log_hazard + growth * later + log_survival
    never = torch.isinf(t)
    # if the survival probability is zero, so is the density, however large the hazard
    return log_survival.masked_fill(never, -math.inf), torch.where(
        never | torch.isinf(log_survival), -math.inf, log_density
    )


def tail_area(log_hazard: Tensor, growth: float, length: Tensor) -> Tensor:
    """Return ∫ S(T + u) / S(T) du from zero to the length, which may be inf; all (n,) and float64."""
    if growth == 0:
        hazard = torch.exp(log_hazard)
        return -torch.expm1(-hazard * length) / hazard
    scale = _typical(log_hazard, growth)

    def survival(rows: Tensor, x: Tensor) -> Tensor:
        u = scale[rows, None] * x
        return torch.exp(-_rise(log_hazard[rows, None], growth * u, u))

    # Λ has risen by one at the typical time and is convex: at 40 of them S is below e^-40
    edges = torch.tensor([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, _LARGE], dtype=length.dtype, device=length.device)
    ends = (length / scale).clamp_max(_LARGE)
    return scale * integrate_panels(survival, torch.zeros_like(ends), ends, edges, torch.finfo(length.dtype).eps)


def _typical(log_hazard: Tensor, growth: float) -> Tensor:
    """Return the time beyond the horizon after which Λ has risen by one: log(1 + g/λ) / g."""
    constant = torch.exp(-log_hazard)
    if growth == 0:
        return constant
    log_ratio = math.log(growth) - log_hazard
    grown = torch.where(log_ratio > _LARGE, log_ratio, torch.log1p(torch.exp(log_ratio.clamp_max(_LARGE)))) / growth
    return torch.where(log_ratio < -_LARGE, constant, grown)


def _rise(log_hazard: Tensor, x: Tensor, later: Tensor) -> Tensor:
    """Λ(T + u) - Λ(T) with x = g·u, by logarithms: exp(x) may overflow where its product with the hazard does not."""
    large = x > _LARGE
    log_mean = torch.where(large, x - torch.log(x.clamp_min(1.0)), torch.log(mean_growth(torch.where(large, 0.0, x))))
    return torch.exp(log_hazard + torch.log(later) + log_mean)
