"""Another distribution up to a horizon, and a Gompertz tail past it."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.tail import tail_area, tail_log_terms, tail_parameters

__all__ = ["Continued"]


class Continued(SurvivalDistribution):
    r"""The distribution of a base up to the horizon T; beyond it the hazard continues from its value there.

    .. math:: λ_k(t) = λ_k(T) e^{g (t - T)}, \qquad
       F_k(t) = F_k(T) + \frac{λ_k(T)}{λ(T)} (S(T) - S(t)) \quad \text{for } t > T:

    the hazards of all causes grow alike.

    Parameters
    ----------
    base : SurvivalDistribution
        With a density.
    horizon : float
        T.
    growth : float
        g ≥ 0; zero for a constant hazard.
    least : float
        What the hazard past T starts from where that of the base is lower.

    Examples
    --------
    >>> from sumosurv.distributions import LogNormal
    >>> heavy = LogNormal(0.0, 2.0)
    >>> heavy.mean().round(2), Continued(heavy, 3.0, 0.5).mean().round(2)
    (array([7.39]), array([2.03]))
    """

    def __init__(self, base: SurvivalDistribution, horizon: float, growth: float, least: float = 0.0) -> None:
        if not (0 < horizon < math.inf and 0 <= growth < math.inf and 0 <= least < math.inf):
            raise ValueError(
                "The horizon is positive, growth and least hazard are not negative, all finite; "
                f"got {horizon}, {growth}, {least}."
            )
        self.base, self.horizon, self.growth, self.last_time = base, float(horizon), float(growth), base.last_time
        self.least = float(least)
        log_survival, log_density = base._log_both(base._like.new_full((1, 1), self.horizon))
        # where nobody is left at the horizon there is no tail
        log_hazard = torch.where(torch.isinf(log_survival), 0.0, log_density - log_survival)
        if self.least > 0:
            log_hazard = log_hazard.clamp_min(math.log(self.least))
        self._start = tail_parameters(log_survival, log_hazard)  # (n, 1) each

    @cached_property
    def _log_shares(self) -> Tensor:
        """log λ_k(T) / λ(T), (n, 1, K)."""
        log_density = self.base._log_cause_density(self._like.new_full((1, 1), self.horizon))
        alike = torch.isinf(log_density).all(-1, keepdim=True)  # nobody is left, or nothing happens
        return torch.log_softmax(torch.where(alike, 0.0, log_density), dim=-1)

    def __len__(self) -> int:
        return len(self.base)

    @property
    def n_causes(self) -> int:
        """The number of causes."""
        return self.base.n_causes

    @property
    def _like(self) -> Tensor:
        return self.base._like

    @property
    def _breaks(self) -> tuple[float, ...]:
        return (*(b for b in self.base._breaks if b < self.horizon), self.horizon)

    @property
    def _description(self) -> str:
        return self.base._description

    def _take(self, rows: Tensor) -> Self:
        return type(self)(self.base._take(rows), self.horizon, self.growth, self.least)

    def single(self) -> Self:
        """The same with a base in single precision."""
        return type(self)(self.base.single(), self.horizon, self.growth, self.least)

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._log_both(t)[0]

    def _log_density(self, t: Tensor) -> Tensor:
        return self._log_both(t)[1]

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        near = self.base._log_both(t.clamp_max(self.horizon))
        far = tail_log_terms(*self._start, self.growth, t, self.horizon)
        log_survival, log_density = (torch.where(t > self.horizon, b, a) for a, b in zip(near, far))
        return log_survival, log_density

    def _log_cause_density(self, t: Tensor) -> Tensor:
        near = self.base._log_cause_density(t.clamp_max(self.horizon))
        far = self._log_density(t)[..., None] + self._log_shares
        return torch.where((t > self.horizon)[..., None], far, near)

    def _incidence(self, t: Tensor) -> Tensor:
        near = self.base._incidence(t.clamp_max(self.horizon))
        log_start = -self._start[0]
        fall = torch.exp(log_start) * self._fall(log_start, t)
        at_horizon = self.base._incidence(self._like.new_full((1, 1), self.horizon))
        far = at_horizon + torch.exp(self._log_shares) * fall[..., None]
        return torch.where((t > self.horizon)[..., None], far, near)

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        near, late = start.clamp_max(self.horizon), torch.maximum(start, start.new_tensor(self.horizon))
        log_start, log_late = self._log_survival(start), self._log_survival(late)
        reach = torch.exp(log_late - log_start).nan_to_num(0.0)  # of the horizon, or of the start itself
        far = torch.exp(self._log_shares) * (reach * self._fall(log_late, torch.maximum(t, late)))[..., None]
        inside = self.base._incidence_since(near, torch.maximum(t.clamp_max(self.horizon), near))
        return inside + far

    def _fall(self, log_start: Tensor, t: Tensor) -> Tensor:
        """1 - S(t) / S(start), and zero if nobody is left at the start."""
        fall = -torch.expm1((self._log_survival(t) - log_start).clamp_max(0.0))
        return torch.where(torch.isinf(log_start), 0.0, fall)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        inside = self.base._restricted_mean(horizon.clamp_max(self.horizon))
        return inside + self._tail_mean(torch.exp(-self._start[0][:, 0]), horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        if bool((start >= self.horizon).any()):
            return super()._remaining_mean(start, end)
        inside = self.base._remaining_mean(start, end.clamp_max(self.horizon))
        reach = torch.exp(-self._start[0] - self._log_survival(start[:, None]))[:, 0]
        return inside + self._tail_mean(reach, end)

    def _tail_mean(self, reach: Tensor, end: Tensor) -> Tensor:
        """What the tail adds to a mean, for those who reach it with a given probability."""
        length = (end.double() - self.horizon).clamp_min(0.0)
        return (reach.double() * tail_area(self._start[1][:, 0].double(), self.growth, length)).to(reach)
