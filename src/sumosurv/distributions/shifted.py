"""A distribution whose clock was started late."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Shifted"]


class Shifted(SurvivalDistribution):
    r"""T = T₀ - by, given T₀ > by: S(t) = S₀(t + by) / S₀(by).

    Parameters
    ----------
    base : SurvivalDistribution
        Of T₀.
    by : float
        How much of T₀ is over when the clock starts; zero or more.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> late = Shifted(Weibull([2.0], [1.0]), 0.5)  # exponential life has no memory
    >>> late.survival([1.0]).round(6), late.mean().round(6)
    (array([0.606531]), array([2.]))
    """

    def __init__(self, base: SurvivalDistribution, by: float) -> None:
        if not (math.isfinite(by) and by >= 0):
            raise ValueError(f"by is finite and zero or more; got {by}.")
        self.base, self.by = base, float(by)
        self._log_reach = base._log_survival(base._like.new_full((1, 1), self.by))

    def __len__(self) -> int:
        return len(self.base)

    @property
    def _like(self) -> Tensor:
        return self.base._like

    def _take(self, rows: Tensor) -> Shifted:
        return Shifted(self.base._take(rows), self.by)

    def _log_survival(self, t: Tensor) -> Tensor:
        return (self.base._log_survival(t + self.by) - self._log_reach).clamp_max(0.0)

    def _log_density(self, t: Tensor) -> Tensor:
        return self.base._log_density(t + self.by) - self._log_reach

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        t = (self.base._inverse_log_survival(level + self._log_reach) - self.by).clamp_min(0.0)
        return torch.where(level >= 0, torch.zeros_like(t), t)
