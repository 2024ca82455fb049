"""A distribution on another time scale: another time unit, or a later or earlier time origin."""

from __future__ import annotations

import copy
import math
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Delayed", "Rescaled", "Shifted"]


class _TimeScale(SurvivalDistribution):
    r"""T = scale · T₀ + start: S(t) = S₀((t - start) / scale) from ``start`` on, and 1 before.

    With ``positive``, T given T > 0: S is divided by its value at zero. A negative start requires it.
    """

    def __init__(self, base: SurvivalDistribution, scale: float, start: float, *, positive: bool = False) -> None:
        self.base, self.scale, self.start, self._positive = base, float(scale), float(start), positive
        if base.last_time is not None:
            self.last_time = max(self.scale * base.last_time + self.start, 0.0)
        self._log_reach = self._log_survival_at_zero()

    def _log_survival_at_zero(self) -> Tensor | None:
        """log P(scale · T₀ + start > 0), shape (n, 1), if that is a condition."""
        if not self._positive:
            return None
        # a condition of probability zero would give 0 / 0: such a subject has its event at once
        return self.base._log_survival(self._own(self._like.new_zeros(1, 1))).clamp_min(
            torch.finfo(self._like.dtype).min
        )

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
        moved = (self.scale * b + self.start for b in self.base._breaks)
        return (self.start,) * (self.start > 0) + tuple(b for b in moved if b > 0)

    @property
    def _description(self) -> str:
        return self.base._description

    def _with(self, base: SurvivalDistribution) -> Self:
        made = copy.copy(self)
        made.base = base
        made._log_reach = made._log_survival_at_zero()
        return made

    def _take(self, rows: Tensor) -> Self:
        return self._with(self.base._take(rows))

    def single(self) -> Self:
        """The same time scale, with the base in single precision."""
        return self._with(self.base.single())

    def _own(self, t: Tensor) -> Tensor:
        """Times on the time scale of T₀.

        By a true division: CUDA multiplies by the reciprocal of a Python number, which can put a time that is a knot
        of a step curve on the wrong side of it.
        """
        later = t if self.start == 0 else (t - self.start).clamp_min(0.0)
        return later if self.scale == 1 else later / torch.full((), self.scale, dtype=t.dtype, device=t.device)

    def _from_start(self, t: Tensor, values: Tensor, before: float) -> Tensor:
        """Values of shape (n, m), or (n, m, K), with ``before`` at times before the start."""
        if self.start <= 0:
            return values
        early = t < self.start
        return torch.where(early if values.ndim == 2 else early[..., None], before, values)

    def _given_survival(self, t: Tensor, log_survival: Tensor) -> Tensor:
        if self._log_reach is None:
            return self._from_start(t, log_survival, 0.0)
        return torch.where(t > 0, (log_survival - self._log_reach).clamp_max(0.0), 0.0)

    def _given_density(self, t: Tensor, log_density: Tensor) -> Tensor:
        log_density = log_density - math.log(self.scale)
        if self._log_reach is not None:
            log_density = log_density - (self._log_reach if log_density.ndim == 2 else self._log_reach[..., None])
        return self._from_start(t, log_density, -math.inf)

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._given_survival(t, self.base._log_survival(self._own(t)))

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self._given_density(t, self.base._log_cause_density(self._own(t)))

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        log_survival, log_density = self.base._log_both(self._own(t))
        return self._given_survival(t, log_survival), self._given_density(t, log_density)

    def _log_hazard(self, t: Tensor) -> Tensor:
        return self._from_start(t, self.base._log_hazard(self._own(t)) - math.log(self.scale), -math.inf)

    def _survival(self, t: Tensor) -> Tensor:
        if self._log_reach is not None:
            return super()._survival(t)
        return self._from_start(t, self.base._survival(self._own(t)), 1.0)

    def _density(self, t: Tensor) -> Tensor:
        if self._log_reach is not None:
            return super()._density(t)
        return self._from_start(t, self.base._density(self._own(t)) / self.scale, 0.0)

    def _incidence(self, t: Tensor) -> Tensor:
        if self._log_reach is not None:
            zero = self._like.new_zeros(len(self), 1)
            return self.base._incidence_since(self._own(zero), self._own(t))
        return self._from_start(t, self.base._incidence(self._own(t)), 0.0)

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        if self.start > 0:  # there may be a jump at the start of the base
            return super()._incidence_since(start, t)
        return self.base._incidence_since(self._own(start), self._own(t))

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        own_level = level if self._log_reach is None else level + self._log_reach
        t = self.scale * self.base._inverse_log_survival(own_level)
        return torch.where(level >= 0, 0.0, (t + self.start).clamp_min(0.0))

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        if self._log_reach is not None:
            return self._remaining_mean(torch.zeros_like(horizon), horizon)
        return horizon.clamp_max(self.start) + self.scale * self.base._restricted_mean(self._own(horizon))

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        rest = self.scale * self.base._remaining_mean(self._own(start), self._own(end))
        if self.start <= 0:
            return rest
        certain = end.clamp_max(self.start) - start.clamp_max(self.start)
        # those who are known to be event-free at a time before the start may have the event at the start itself
        still = torch.where(start < self.start, self.base._survival(self._like.new_zeros(1, 1))[:, 0], 1.0)
        return certain + still * rest

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        if self._log_reach is not None:
            return super()._restricted_time_lost(horizon)
        return self.scale * self.base._restricted_time_lost(self._own(horizon))

    def _cause_shares(self, t: Tensor) -> Tensor:
        return self.base._cause_shares(self._own(t))

    def _sample(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        if self._log_reach is not None:
            return super()._sample(size, rng)
        times, causes = self.base._sample(size, rng)
        return self.scale * times + self.start, causes

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The table of the base, its knots on this time scale."""
        known = self.base.step_table()
        if known is None:
            return None
        own_knots, survival = known
        knots = self._first_times(own_knots)
        if self._log_reach is not None:
            survival = torch.exp((torch.log(survival) - self._log_reach).clamp_max(0.0))
        elif self.start > 0 and bool((survival[:, 0] < 1).any()):
            knots = torch.cat([knots[:1], knots.new_tensor([self.start]), knots[1:]])
            survival = torch.cat([torch.ones_like(survival[:, :1]), survival], dim=1)
        last = torch.cat([knots[1:] > knots[:-1], torch.ones_like(knots[:1], dtype=torch.bool)])  # of equal knots
        return (knots, survival) if bool(last.all()) else (knots[last], survival[:, last])

    def ranking(self) -> Tensor | None:
        """That of the base; T given T > 0 may have another order."""
        return None if self._positive else self.base.ranking()

    def _first_times(self, own: Tensor) -> Tensor:
        """The first floating-point time, zero or more, whose time on the time scale of T₀ is ``own`` or later.

        Neither ``scale · own + start`` nor a number next to it in every case: ``_own`` rounds. Found by bisection
        over the numbers in their order, which is that of their bits read as integers.
        """
        bits = torch.int64 if own.dtype == torch.float64 else torch.int32
        low, high = (torch.full_like(own, end).view(bits) for end in (0.0, math.inf))
        while bool((low < high).any()):
            middle = low + (high - low) // 2
            reached = self._own(middle.view(own.dtype)) >= own
            low, high = torch.where(reached, low, middle + 1), torch.where(reached, middle, high)
        return high.view(own.dtype)


class Rescaled(_TimeScale):
    r"""T = scale · T₀, the same distribution in another unit of time: f(t) = f₀(t / scale) / scale.

    Parameters
    ----------
    base : SurvivalDistribution
        Of T₀.
    scale : float
        The unit of T₀ in units of T: 365.25 for a distribution in years that is wanted in days.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> Rescaled(Weibull([2.0], [1.0]), 365.25).mean().round(6)
    array([730.5])
    """

    def __init__(self, base: SurvivalDistribution, scale: float) -> None:
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"scale must be finite and positive; got {scale}.")
        super().__init__(base, scale, 0.0)


class Delayed(_TimeScale):
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
    >>> late.survival([2.0, 3.0, 5.0]).round(6), late.mean().round(6)
    (array([[1.      , 1.      , 0.367879]]), array([5.]))
    """

    def __init__(self, base: SurvivalDistribution, start: float) -> None:
        if not (math.isfinite(start) and start >= 0):
            raise ValueError(f"start is finite and zero or more; got {start}.")
        super().__init__(base, 1.0, start)


class Shifted(_TimeScale):
    r"""T = T₀ - by, given T₀ > by: S(t) = S₀(t + by) / S₀(by).

    Parameters
    ----------
    base : SurvivalDistribution
        Of T₀.
    by : float
        The time of T₀ that becomes the time origin; zero or more.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> late = Shifted(Weibull([2.0], [1.0]), 0.5)  # an exponential distribution has no memory
    >>> late.survival(1.0).round(6), late.mean().round(6)
    (array([0.606531]), array([2.]))
    """

    def __init__(self, base: SurvivalDistribution, by: float) -> None:
        if not (math.isfinite(by) and by >= 0):
            raise ValueError(f"by is finite and zero or more; got {by}.")
        super().__init__(base, 1.0, -by, positive=True)
        self.by = float(by)
