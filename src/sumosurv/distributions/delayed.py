"""A distribution whose events begin late: none before a given time."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Delayed"]


class Delayed(SurvivalDistribution):
    r"""T = start + T₀: S(t) = S₀(t - start) from ``start`` on, and 1 before.

    Parameters
    ----------
    base : SurvivalDistribution
        Of T₀.
    start : float
        Zero or more.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> late = Delayed(Weibull([2.0], [1.0]), 3.0)
    >>> late.survival([[2.0, 3.0, 5.0]]).round(6), late.mean().round(6)
    (array([[1.      , 1.      , 0.367879]]), array([5.]))
    """

    def __init__(self, base: SurvivalDistribution, start: float) -> None:
        if not (math.isfinite(start) and start >= 0):
            raise ValueError(f"start is finite and zero or more; got {start}.")
        self.base, self.start = base, float(start)

    def __len__(self) -> int:
        return len(self.base)

    @property
    def _like(self) -> Tensor:
        return self.base._like

    @property
    def _breaks(self) -> tuple[float, ...]:
        return self.start, *(self.start + b for b in self.base._breaks)

    def _take(self, rows: Tensor) -> Delayed:
        return Delayed(self.base._take(rows), self.start)

    def single(self) -> Delayed:
        """The same start, the base in single precision."""
        return Delayed(self.base.single(), self.start)

    def _own(self, t: Tensor) -> Tensor:
        return (t - self.start).clamp_min(0.0)

    def _log_survival(self, t: Tensor) -> Tensor:
        return torch.where(t < self.start, 0.0, self.base._log_survival(self._own(t)))

    def _survival(self, t: Tensor) -> Tensor:
        return torch.where(t < self.start, 1.0, self.base._survival(self._own(t)))

    def _log_density(self, t: Tensor) -> Tensor:
        return torch.where(t < self.start, -math.inf, self.base._log_density(self._own(t)))

    def _density(self, t: Tensor) -> Tensor:
        return torch.where(t < self.start, 0.0, self.base._density(self._own(t)))

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        log_survival, log_density = self.base._log_both(self._own(t))
        early = t < self.start
        return torch.where(early, 0.0, log_survival), torch.where(early, -math.inf, log_density)

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        t = self.start + self.base._inverse_log_survival(level)
        return torch.where(level >= 0, torch.zeros_like(t), t)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return horizon.clamp_max(self.start) + self.base._restricted_mean(self._own(horizon))

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        certain = end.clamp_max(self.start) - start.clamp_max(self.start)
        return certain + self.base._remaining_mean(self._own(start), self._own(end))

    def _sample(self, size: int, rng: np.random.Generator) -> Tensor:
        return self.start + self.base._sample(size, rng)
