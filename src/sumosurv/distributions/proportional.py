"""Hazards in a constant proportion to a common smooth one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["ProportionalHazards", "proportional_log_terms"]


def proportional_log_terms(
    log_risk: Tensor, log_power: Tensor, log_baseline: Tensor, log_slope: Tensor, log_start: Tensor
) -> tuple[Tensor, Tensor]:
    r"""log S and log f of :math:`Λ(t) = e^r (e^{p c(t)} - e^{p c(0)})`.

    Parameters
    ----------
    log_risk, log_power : Tensor
        r and log p.
    log_baseline, log_slope, log_start : Tensor
        c(t), log c'(t) and c(0).
    """
    power = torch.exp(log_power)
    log_hazard = log_risk + power * log_baseline
    grown = -torch.expm1(power * (log_start - log_baseline))  # 1 - H(0)^p / H(t)^p
    # at time zero it is zero, whatever the risk; the difference of two terms that overflow would be none
    log_survival = torch.where(grown > 0, -torch.exp(log_hazard) * grown, 0.0)
    gone = torch.isinf(log_survival)
    log_density = log_hazard + log_power + log_slope + log_survival
    return log_survival, torch.where(gone, -math.inf, log_density)


class ProportionalHazards(SurvivalDistribution):
    r"""Λ(t|x) = e^{r(x)} (e^{p c(t)} - e^{p c(0)}): hazards of subjects that differ by a factor, the same at all times.

    Parameters
    ----------
    log_baseline : callable
        c(t) and log c'(t) of times in a tensor of two axes: a smooth function that increases, finite at zero.
    log_risk : Tensor of shape (n,)
        r.
    log_power : Tensor of shape ()
        log p.
    breaks : tuple of float
        Times at which c is not smooth.
    """

    def __init__(
        self,
        log_baseline: Callable[[Tensor], tuple[Tensor, Tensor]],
        log_risk: Tensor,
        log_power: Tensor,
        breaks: tuple[float, ...] = (),
    ) -> None:
        if not bool(torch.isfinite(log_risk).all()):
            raise ValueError("The log risk must be finite for every subject.")
        self.log_baseline, self.log_risk, self.log_power, self._own_breaks = log_baseline, log_risk, log_power, breaks
        self._log_start = log_baseline(log_risk.new_zeros(1, 1))[0]

    def __len__(self) -> int:
        return len(self.log_risk)

    @property
    def _like(self) -> Tensor:
        return self.log_risk

    @property
    def _breaks(self) -> tuple[float, ...]:
        return self._own_breaks

    def _take(self, rows: Tensor) -> Self:
        return type(self)(self.log_baseline, self.log_risk[rows], self.log_power, self._own_breaks)

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._log_both(t)[0]

    def _log_density(self, t: Tensor) -> Tensor:
        return self._log_both(t)[1]

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return proportional_log_terms(self.log_risk[:, None], self.log_power, *self.log_baseline(t), self._log_start)
