"""Distributions with a formula: Weibull, log-normal, log-logistic, Gompertz, and the normal one cut at zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.tail import mean_growth

__all__ = ["Gompertz", "LogLogistic", "LogNormal", "Normal", "Weibull"]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_ALONE = 40.0  # 1 + exp(40) is exp(40) in float64


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


def _ordered(level: Tensor, other: Tensor) -> Tensor | None:
    """A level as the order of the curves, where the other parameter is the same for all subjects."""
    return level[:, 0] if len(other) and bool((other == other[0]).all()) else None


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

    def ranking(self) -> Tensor | None:
        """Minus the scale, where all have the same shape."""
        return _ordered(-self.scale, self.shape)

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

    def ranking(self) -> Tensor | None:
        """Minus mu, where all have the same sigma."""
        return _ordered(-self.mu, self.sigma)

    def _take(self, rows: Tensor) -> LogNormal:
        return LogNormal(self.mu[rows, 0], self.sigma[rows, 0])

    def _log_survival(self, t: Tensor) -> Tensor:
        return _log_ndtr((self.mu - torch.log(t)) / self.sigma)

    def _log_density(self, t: Tensor) -> Tensor:
        log_t = torch.log(t)
        z = (log_t - self.mu) / self.sigma
        log_density = -0.5 * z * z - _HALF_LOG_2PI - torch.log(self.sigma) - log_t
        return torch.where((t == 0) | torch.isinf(t), -math.inf, log_density)


class LogLogistic(SurvivalDistribution):
    r"""log T is logistic: S(t) = 1 / (1 + (t / scale)^shape).

    Parameters
    ----------
    scale, shape : float or array of shape (n,)
        Both positive; the scale is the median. The mean is finite for a shape above 1.

    Examples
    --------
    >>> d = LogLogistic(scale=[2.0, 2.0], shape=[1.0, 2.0])
    >>> d.survival(6.0), d.quantile(0.75).round(6), d.mean().round(6)
    (array([0.25, 0.1 ]), array([6.      , 3.464102]), array([     inf, 3.141593]))
    """

    def __init__(self, scale: Any, shape: Any) -> None:
        self.scale, self.shape = _parameters(("scale", scale, True), ("shape", shape, True))

    def __len__(self) -> int:
        return len(self.scale)

    @property
    def _like(self) -> Tensor:
        return self.scale

    def ranking(self) -> Tensor | None:
        """Minus the scale, where all have the same shape."""
        return _ordered(-self.scale, self.shape)

    def _take(self, rows: Tensor) -> LogLogistic:
        return LogLogistic(self.scale[rows, 0], self.shape[rows, 0])

    def _log_ratio(self, t: Tensor) -> Tensor:
        """log(t / scale), by the ratio of the roots: that of the times themselves can overflow. 0 at t = 0."""
        return 2.0 * torch.log(torch.sqrt(torch.where(t > 0, t, self.scale)) / torch.sqrt(self.scale))

    def _log_survival(self, t: Tensor) -> Tensor:
        return torch.where(t > 0, logsigmoid(-self.shape * self._log_ratio(t)), 0.0)

    def _log_hazard(self, t: Tensor) -> Tensor:
        log_ratio = self._log_ratio(t)
        log_odds = self.shape * log_ratio
        early, late = (self.shape - 1.0) * log_ratio + logsigmoid(-log_odds), logsigmoid(log_odds) - log_ratio
        at_zero = torch.where(self.shape < 1.0, math.inf, torch.where(self.shape > 1.0, -math.inf, 0.0))
        power = torch.where(t > 0, torch.where(log_ratio > 0, late, early), at_zero)
        return torch.log(self.shape) - torch.log(self.scale) + power

    def _log_density(self, t: Tensor) -> Tensor:
        return torch.where(torch.isinf(t), -math.inf, self._log_hazard(t) + self._log_survival(t))

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        log_odds = torch.log(-torch.expm1(level)) - level
        half = torch.exp(0.5 * log_odds / self.shape)  # in two steps, so that only the result can overflow
        return self.scale * half * half

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        if not bool(torch.isinf(horizon).all()):
            return self._remaining_mean(torch.zeros_like(horizon), horizon)
        scale, shape = self.scale[:, 0], self.shape[:, 0]
        angle = math.pi * (shape - 1.0).clamp(0.0, 1.0) / shape  # sin(π / shape) is the sine of this
        return torch.where(shape > 1.0, scale * math.pi / (shape * torch.sin(angle)), math.inf)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        """Quadrature up to a time past which S is a power of t to rounding, whose integral has a formula."""
        scale, shape = self.scale[:, 0], self.shape[:, 0]
        cut = torch.maximum(start, scale * torch.exp(_ALONE / shape)).clamp_max(torch.finfo(start.dtype).max)
        near = super()._remaining_mean(start, torch.minimum(end, cut))
        excess, log_length = shape - 1.0, torch.log(torch.maximum(end, cut)) - torch.log(cut)
        safe = torch.where(excess == 0, 1.0, excess)
        power = torch.where(excess == 0, log_length, -torch.expm1(-safe * log_length) / safe)
        reached = self._log_survival(cut[:, None])[:, 0] - self._log_survival(start[:, None])[:, 0]
        return near + cut * torch.exp(reached) * power


class Gompertz(SurvivalDistribution):
    r"""A hazard that grows exponentially, λ(t) = level · exp(rate · t).

    S(t) = exp(-level (exp(rate · t) - 1) / rate).

    Parameters
    ----------
    level, rate : float or array of shape (n,)
        The hazard at time zero and its rate of growth, both positive; a rate towards zero gives the exponential
        distribution.

    Examples
    --------
    >>> d = Gompertz(level=[0.5, 0.5], rate=[1e-12, 1.0])
    >>> d.survival(2.0).round(6), d.hazard(2.0).round(6)
    (array([0.367879, 0.040986]), array([0.5     , 3.694528]))
    """

    def __init__(self, level: Any, rate: Any) -> None:
        self.level, self.rate = _parameters(("level", level, True), ("rate", rate, True))

    def __len__(self) -> int:
        return len(self.level)

    @property
    def _like(self) -> Tensor:
        return self.level

    def ranking(self) -> Tensor | None:
        """The level, where all have the same rate."""
        return _ordered(self.level, self.rate)

    def _take(self, rows: Tensor) -> Gompertz:
        return Gompertz(self.level[rows, 0], self.rate[rows, 0])

    def _log_survival(self, t: Tensor) -> Tensor:
        growth = self.rate * t
        late = growth > _ALONE
        near = self.level * t * mean_growth(torch.where(late, 0.0, growth))
        # by logarithms: exp(growth) may overflow where its product with the level does not
        far = torch.exp(torch.where(late, growth, -math.inf) + torch.log(self.level) - torch.log(self.rate))
        return -torch.where(late, far, near)

    def _log_hazard(self, t: Tensor) -> Tensor:
        return torch.log(self.level) + self.rate * t

    def _log_density(self, t: Tensor) -> Tensor:
        return torch.where(torch.isinf(t), -math.inf, self._log_hazard(t) + self._log_survival(t))

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        unit = -level / self.level  # when a constant hazard would get there
        growth = self.rate * unit
        huge, none = torch.isinf(growth), growth < 1e-30
        safe = torch.where(huge | none, 1.0, growth)
        near = unit * torch.where(none, 1.0, torch.log1p(safe) / safe)
        far = torch.log(torch.where(huge, -level, 1.0)) + torch.log(self.rate) - torch.log(self.level)
        return torch.where(huge, far / self.rate, near)


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
