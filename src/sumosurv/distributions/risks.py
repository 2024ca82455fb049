"""Competing risks made of others: mixtures, other clocks, what is left given survival so far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions._numerics import mean_survival_time
from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.clocks import Delayed, Rescaled, _Clock
from sumosurv.distributions.competing import CompetingRisksDistribution
from sumosurv.distributions.continued import Continued
from sumosurv.distributions.tabulated import joint_knots
from sumosurv.distributions.wrappers import Conditional, Mixture, Remaining

__all__ = [
    "ConditionalRisks",
    "ContinuedRisks",
    "DelayedRisks",
    "MixtureRisks",
    "RemainingRisks",
    "RescaledRisks",
    "continued",
    "delayed",
    "mixture",
    "rescaled",
]


class MixtureRisks(Mixture, CompetingRisksDistribution):
    r"""F_k(t) = Σ wᵢ F_ki(t), and likewise S and the densities: a `Mixture` that keeps the causes.

    Parameters
    ----------
    components : sequence of CompetingRisksDistribution
        All for the same n subjects and the same causes.
    weights : sequence of float, optional
        Positive, summing to one; equal by default.
    """

    components: tuple[CompetingRisksDistribution, ...]

    def __init__(self, components: Sequence[CompetingRisksDistribution], weights: Any = None) -> None:
        super().__init__(components, weights)
        if len({part.n_causes for part in components}) != 1:
            raise ValueError(
                f"Components must have the same causes; they have {[part.n_causes for part in components]}."
            )

    @property
    def n_causes(self) -> int:
        """K."""
        return self.components[0].n_causes

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The mixture of the tables on all of their knots, where all components are step functions."""
        knots = joint_knots(self.components)
        return None if knots is None else (knots, self._survival(knots[None]))

    def _incidence(self, t: Tensor) -> Tensor:
        return self._sum(part._incidence(t) for part in self.components)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self._mix([part._log_cause_density(t) for part in self.components])

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        log_each = torch.stack([part._log_survival(start)[:, 0] for part in self.components])
        shares = torch.softmax(log_each + torch.as_tensor(np.log(self.weights)).to(log_each)[:, None], dim=0)
        since = [part._incidence_since(start, t) for part in self.components]
        return torch.stack([share[:, None, None] * part for share, part in zip(shares.nan_to_num(0.0), since)]).sum(0)

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        return self._sum(part._restricted_time_lost(horizon) for part in self.components)

    def _sample_with_causes(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        choice = torch.from_numpy(rng.choice(len(self.components), size=(len(self), size), p=self.weights))
        times = self._like.new_empty(len(self), size)
        causes = torch.zeros((len(self), size), dtype=torch.int64, device=times.device)
        for i, part in enumerate(self.components):
            rows, columns = (index.to(times.device) for index in (choice == i).nonzero(as_tuple=True))
            if len(rows):
                drawn, who = part._take(rows)._sample_with_causes(1, rng)
                times[rows, columns], causes[rows, columns] = drawn[:, 0], who[:, 0]
        return times, causes


class ConditionalRisks(Conditional, CompetingRisksDistribution):
    r"""Time and cause given T > after: F_k(t | T > s) = (F_k(t) - F_k(s)) / S(s) for t >= s, and 0 before.

    Parameters
    ----------
    base : CompetingRisksDistribution
    after : float or array of shape (n,)
        Time up to which each subject is known to be event-free.
    """

    base: CompetingRisksDistribution

    def __init__(self, base: CompetingRisksDistribution, after: Any) -> None:
        super().__init__(base, after)

    @property
    def n_causes(self) -> int:
        """K."""
        return self.base.n_causes

    @property
    def _breaks(self) -> tuple[float, ...]:
        return self.base._breaks

    def _incidence(self, t: Tensor) -> Tensor:
        return self.base._incidence_since(self.after, torch.maximum(t, self.after))

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        return self.base._incidence_since(torch.maximum(start, self.after), torch.maximum(t, self.after))

    def _log_cause_density(self, t: Tensor) -> Tensor:
        log_density = self.base._log_cause_density(torch.maximum(t, self.after)) - self._log_reach[..., None]
        return torch.where((t < self.after)[..., None], -torch.inf, log_density)

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        if self.step_table() is not None:
            return super()._restricted_time_lost(horizon)
        # from the time that is known to be survived on: quadrature need not find the kink there
        start = self.after[:, 0].double()
        length = (horizon.double() - start).clamp_min(0.0)
        kept = [
            mean_survival_time(partial(self._kept, k), length, torch.ones_like(length), self._precision)
            for k in range(self.n_causes)
        ]
        return (length[:, None] - torch.stack(kept, dim=-1)).to(horizon)

    def _kept(self, k: int, rows: Tensor, t: Tensor) -> Tensor:
        """1 - F of the cause in column k, at times counted from the one that is known to be survived."""
        start = self.after[rows]
        later = (start + t).clamp_max(torch.finfo(self._like.dtype).max).to(self._like)
        base = self.base if len(rows) == len(self) and t.shape[0] == 1 else self.base._take(rows)
        return (1.0 - base._incidence_since(start, later)[..., k]).to(t)

    def _cause_shares(self, t: Tensor) -> Tensor:
        return self.base._cause_shares(t)

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The table of the base, given survival so far."""
        known = self.base.step_table()
        return None if known is None else (known[0], self._survival(known[0][None]))


class RemainingRisks(Remaining, CompetingRisksDistribution):
    """`Remaining` with the causes of its base."""

    given: ConditionalRisks

    @property
    def n_causes(self) -> int:
        """K."""
        return self.given.n_causes

    def _take(self, rows: Tensor) -> Self:
        return Remaining._take(self, rows)

    def _incidence(self, t: Tensor) -> Tensor:
        return self.given._incidence(t + self.after)

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        return self.given._incidence_since(start + self.after, t + self.after)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self.given._log_cause_density(t + self.after)

    def _log_density(self, t: Tensor) -> Tensor:
        return CompetingRisksDistribution._log_density(self, t)

    def _cause_shares(self, t: Tensor) -> Tensor:
        return self.given._cause_shares(t + self.after)


class ContinuedRisks(Continued, CompetingRisksDistribution):
    r"""`Continued` for competing risks: past the horizon T all hazards grow alike.

    .. math:: λ_k(t) = λ_k(T) e^{g (t - T)}, \qquad
       F_k(t) = F_k(T) + \frac{λ_k(T)}{λ(T)} (S(T) - S(t)) \quad \text{for } t > T.
    """

    base: CompetingRisksDistribution

    def __init__(self, base: CompetingRisksDistribution, horizon: float, growth: float, least: float = 0.0) -> None:
        super().__init__(base, horizon, growth, least)
        last = base._like.new_full((1, 1), self.horizon)
        self._at_horizon = base._incidence(last)  # (n, 1, K), and so is the next
        log_density = base._log_cause_density(last)
        alike = torch.isinf(log_density).all(-1, keepdim=True)  # nobody is left, or nothing happens
        self._log_shares = torch.log_softmax(torch.where(alike, 0.0, log_density), dim=-1)

    @property
    def n_causes(self) -> int:
        """K."""
        return self.base.n_causes

    def _incidence(self, t: Tensor) -> Tensor:
        near = self.base._incidence(t.clamp_max(self.horizon))
        log_start = -self._start[0]
        fall = torch.exp(log_start) * self._fall(log_start, t)
        far = self._at_horizon + torch.exp(self._log_shares) * fall[..., None]
        return torch.where((t > self.horizon)[..., None], far, near)

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        near, late = start.clamp_max(self.horizon), torch.maximum(start, start.new_tensor(self.horizon))
        log_start, log_late = self._log_survival(start), self._log_survival(late)
        reach = torch.exp(log_late - log_start).nan_to_num(0.0)  # the horizon, or the start itself
        far = torch.exp(self._log_shares) * (reach * self._fall(log_late, torch.maximum(t, late)))[..., None]
        inside = self.base._incidence_since(near, torch.maximum(t.clamp_max(self.horizon), near))
        return inside + far

    def _log_cause_density(self, t: Tensor) -> Tensor:
        near = self.base._log_cause_density(t.clamp_max(self.horizon))
        far = self._log_density(t)[..., None] + self._log_shares
        return torch.where((t > self.horizon)[..., None], far, near)

    def _fall(self, log_start: Tensor, t: Tensor) -> Tensor:
        """1 - S(t) / S(start), and zero where nobody is left at the start."""
        fall = -torch.expm1((self._log_survival(t) - log_start).clamp_max(0.0))
        return torch.where(torch.isinf(log_start), 0.0, fall)


class _ClockRisks(_Clock, CompetingRisksDistribution):
    """T = scale · T₀ + start with the causes of T₀."""

    base: CompetingRisksDistribution

    @property
    def n_causes(self) -> int:
        """K."""
        return self.base.n_causes

    def _incidence(self, t: Tensor) -> Tensor:
        incidence = self.base._incidence(self._own(t))
        return torch.where((t < self.start)[..., None], 0.0, incidence) if self.start > 0 else incidence

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        if self.start > 0:  # nothing happens before the start; at it, there may be a jump
            return super()._incidence_since(start, t)
        return self.base._incidence_since(self._own(start), self._own(t))

    def _log_cause_density(self, t: Tensor) -> Tensor:
        log_density = self.base._log_cause_density(self._own(t)) - float(np.log(self.scale))
        return torch.where((t < self.start)[..., None], -torch.inf, log_density) if self.start > 0 else log_density

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        return self.scale * self.base._restricted_time_lost(self._own(horizon))

    def _cause_shares(self, t: Tensor) -> Tensor:
        return self.base._cause_shares(self._own(t))

    def _sample_with_causes(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        times, causes = self.base._sample_with_causes(size, rng)
        return self.scale * times + self.start, causes


class RescaledRisks(_ClockRisks, Rescaled):
    """`Rescaled` for competing risks."""


class DelayedRisks(_ClockRisks, Delayed):
    """`Delayed` for competing risks."""


def mixture(components: Sequence[SurvivalDistribution], weights: Any = None) -> SurvivalDistribution:
    """The mixture of distributions, with causes where they have them; a single one is returned as it is.

    Parameters
    ----------
    components : sequence of SurvivalDistribution
        All for the same subjects, and all with the same causes or none.
    weights : sequence of float, optional
        Positive, summing to one; equal by default.
    """
    if len(components) == 1:
        return components[0]
    with_causes = [part for part in components if isinstance(part, CompetingRisksDistribution)]
    if not with_causes:
        return Mixture(components, weights)
    if len(with_causes) < len(components):
        raise ValueError(
            f"{len(with_causes)} of {len(components)} components have causes; a mixture needs all of them to, or none."
        )
    return MixtureRisks(with_causes, weights)


def rescaled(base: SurvivalDistribution, scale: float) -> SurvivalDistribution:
    """`Rescaled`, with causes where the base has them."""
    return RescaledRisks(base, scale) if isinstance(base, CompetingRisksDistribution) else Rescaled(base, scale)


def delayed(base: SurvivalDistribution, start: float) -> SurvivalDistribution:
    """`Delayed`, with causes where the base has them."""
    return DelayedRisks(base, start) if isinstance(base, CompetingRisksDistribution) else Delayed(base, start)


def continued(base: SurvivalDistribution, horizon: float, growth: float, least: float = 0.0) -> SurvivalDistribution:
    """`Continued`, with causes where the base has them."""
    made = ContinuedRisks if isinstance(base, CompetingRisksDistribution) else Continued
    return made(base, horizon, growth, least)  # type: ignore[arg-type]
