"""Distributions with a formula: Weibull, log-normal, and the normal distribution cut at zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["LogNormal", "Normal", "Weibull"]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _parameters(*values: tuple[str, Any, bool]) -> list[Tensor]:
    """Broadcast named parameters to one column (n, 1) each; the flag says whether it must be positive."""
    tensors = []
    for name, value, positive in values:
        column = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value, dtype=np.float64))
        if column.ndim > 1:
            raise ValueError(f"{name} is a number or one per subject; got shape {tuple(column.shape)}.")
        if not bool(torch.isfinite(column).all()) or (positive and not bool((column > 0).all())):
            raise ValueError(f"{name} must be finite{' and positive' if positive else ''} for every subject.")
        tensors.append(column.reshape(-1))
    n = max(len(column) for column in tensors)
    if any(len(column) not in (1, n) for column in tensors):
        raise ValueError(f"Parameters must be for the same subjects; they have {[len(column) for column in tensors]}.")
    return [column.expand(n)[:, None] for column in tensors]


def _log_ndtr(z: Tensor) -> Tensor:
    """log Φ(z)."""
    result: Tensor = torch.special.log_ndtr(z)
    return result


class Weibull(SurvivalDistribution):
    r"""S(t) = exp(-(t / scale)^shape).

    Parameters
    ----------
    scale, shape : float or array of shape (n,)
        Both positive; shape 1 is the exponential distribution.
    """

    def __init__(self, scale: Any, shape: Any) -> None:
        self.scale, self.shape = _parameters(("scale", scale, True), ("shape", shape, True))

    def __len__(self) -> int:
        return len(self.scale)

    @property
    def _like(self) -> Tensor:
        return self.scale

    def _take(self, rows: Tensor) -> Weibull:
        return Weibull(self.scale[rows, 0], self.shape[rows, 0])

    def _log_survival(self, t: Tensor) -> Tensor:
        return -torch.exp(self.shape * torch.log(t / self.scale))

    def _log_hazard(self, t: Tensor) -> Tensor:
        log_ratio = torch.log(t / self.scale)
        # 0 · log 0 = 0 for the exponential distribution at t = 0
        power = torch.where(self.shape == 1.0, torch.zeros_like(log_ratio), (self.shape - 1.0) * log_ratio)
        return torch.log(self.shape / self.scale) + power

    def _log_density(self, t: Tensor) -> Tensor:
        return torch.where(torch.isinf(t), -math.inf, self._log_hazard(t) + self._log_survival(t))


class LogNormal(SurvivalDistribution):
    r"""log T is normal: S(t) = Φ((mu - log t) / sigma).

    Parameters
    ----------
    mu, sigma : float or array of shape (n,)
        Mean and standard deviation of log T.
    """

    def __init__(self, mu: Any, sigma: Any) -> None:
        self.mu, self.sigma = _parameters(("mu", mu, False), ("sigma", sigma, True))

    def __len__(self) -> int:
        return len(self.mu)

    @property
    def _like(self) -> Tensor:
        return self.mu

    def _take(self, rows: Tensor) -> LogNormal:
        return LogNormal(self.mu[rows, 0], self.sigma[rows, 0])

    def _log_survival(self, t: Tensor) -> Tensor:
        return _log_ndtr((self.mu - torch.log(t)) / self.sigma)

    def _log_density(self, t: Tensor) -> Tensor:
        log_t = torch.log(t)
        z = (log_t - self.mu) / self.sigma
        log_density = -0.5 * z * z - _HALF_LOG_2PI - torch.log(self.sigma) - log_t
        return torch.where((t == 0) | torch.isinf(t), -math.inf, log_density)


class Normal(SurvivalDistribution):
    r"""T normal, given T > 0: S(t) = Φ((mean - t) / sd) / Φ(mean / sd).

    Parameters
    ----------
    mean, sd : float or array of shape (n,)
        Mean and standard deviation before the cut at zero.
    """

    def __init__(self, mean: Any, sd: Any) -> None:
        self.location, self.sd = _parameters(("mean", mean, False), ("sd", sd, True))

    def __len__(self) -> int:
        return len(self.location)

    @property
    def _like(self) -> Tensor:
        return self.location

    def _take(self, rows: Tensor) -> Normal:
        return Normal(self.location[rows, 0], self.sd[rows, 0])

    def _log_survival(self, t: Tensor) -> Tensor:
        return _log_ndtr((self.location - t) / self.sd) - _log_ndtr(self.location / self.sd)

    def _log_density(self, t: Tensor) -> Tensor:
        z = (t - self.location) / self.sd
        return -0.5 * z * z - _HALF_LOG_2PI - torch.log(self.sd) - _log_ndtr(self.location / self.sd)
