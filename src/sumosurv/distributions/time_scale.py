"""Changes of the time scale, `Rescaled` and `Delayed`, and conditioning on survival, `Conditional` and `Remaining`."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions._arguments import as_tensor, check_times
from sumosurv.distributions._numerics import mean_survival_time
from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.wrapper import Wrapper


class _TimeScale(Wrapper):
    r"""T = scale · T₀ + start, given T₀ > after if ``after`` is not None.

    S(t) = S₀((t - start) / scale) / S₀(after) from the earliest possible time on, and 1 before. ``start`` is a number
    or has shape (n, 1); ``after`` has shape (n, 1).
    """

    def __init__(
        self, base: SurvivalDistribution, scale: float, start: float | Tensor, after: Tensor | None = None
    ) -> None:
        self.base, self.scale, self.start, self.after = base, float(scale), start, after
        if base.last_time is not None and not isinstance(start, Tensor):
            self.last_time = max(self.scale * base.last_time + start, 0.0)
        self._log_reach = self._log_survival_at_condition()

    def _log_survival_at_condition(self) -> Tensor | None:
        """log P(T₀ > after), shape (n, 1); None without a condition."""
        if self.after is None:
            return None
        # a condition of probability zero would give 0 / 0: the event then happens immediately
        return self.base._log_survival(self.after).clamp_min(torch.finfo(self._like.dtype).min)

    def checked(self) -> Self:
        """Return the distribution; raise a ValueError if its condition has probability zero for some subject."""
        if self.after is not None and self._log_reach is not None:
            none = self._log_reach[:, 0] <= torch.finfo(self._like.dtype).min
            if bool(none.any()):
                row = int(none.nonzero()[0])
                raise ValueError(
                    f"Subject {row} has survival probability zero at after = {float(self.after[row]):g}, so that the "
                    "conditional distribution is undefined; use an earlier time."
                )
        return self

    @property
    def _first(self) -> float | Tensor:
        """The earliest possible time, a number or (n, 1)."""
        if isinstance(self.start, Tensor):  # each subject's own time origin
            return 0.0
        return max(self.start, 0.0) if self.after is None or self.start < 0 else self.after

    @property
    def _breaks(self) -> tuple[float, ...]:
        if isinstance(self.start, Tensor):
            return ()
        moved = (self.scale * b + self.start for b in self.base._breaks)
        return (self.start,) * (self.start > 0) + tuple(b for b in moved if b > 0)

    def _with(self, base: SurvivalDistribution) -> Self:
        made = super()._with(base)
        made.start = self.start.to(base._like) if isinstance(self.start, Tensor) else self.start
        made.after = None if self.after is None else self.after.to(base._like)
        made._log_reach = made._log_survival_at_condition()
        return made

    def _take(self, rows: Tensor) -> Self:
        made = super()._with(self.base._take(rows))
        made.start = self.start[rows] if isinstance(self.start, Tensor) else self.start
        made.after = None if self.after is None else self.after[rows]
        made._log_reach = None if self._log_reach is None else self._log_reach[rows]
        return made

    def _moved(self, t: Tensor) -> Tensor:
        """(t - start) / scale, zero or more.

        By a true division: CUDA multiplies by the reciprocal of a Python number, which can move a time that equals a
        knot of a step function to the wrong side of the knot.
        """
        later = (t - self.start).clamp_min(0.0) if isinstance(self.start, Tensor) or self.start else t
        return later if self.scale == 1 else later / torch.full((), self.scale, dtype=t.dtype, device=t.device)

    def _own(self, t: Tensor) -> Tensor:
        """The times on the time scale of T₀ at which the base is evaluated."""
        return self._moved(t) if self.after is None else torch.maximum(self._moved(t), self.after)

    def _from_first(self, t: Tensor, values: Tensor, before: float) -> Tensor:
        """Values of shape (n, m), or (n, m, K), with ``before`` at impossible times."""
        first = self._first
        if not isinstance(first, Tensor) and first == 0:
            return values
        early = t < first
        return torch.where(early if values.ndim == 2 else early[..., None], before, values)

    def _given_survival(self, t: Tensor, log_survival: Tensor) -> Tensor:
        if self._log_reach is None:
            return self._from_first(t, log_survival, 0.0)
        return torch.where(t <= self._first, 0.0, (log_survival - self._log_reach).clamp_max(0.0))

    def _given_density(self, t: Tensor, log_density: Tensor) -> Tensor:
        log_density = log_density - math.log(self.scale)
        if self._log_reach is not None:
            log_density = log_density - (self._log_reach if log_density.ndim == 2 else self._log_reach[..., None])
        return self._from_first(t, log_density, -math.inf)

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._given_survival(t, self.base._log_survival(self._own(t)))

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self._given_density(t, self.base._log_cause_density(self._own(t)))

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        log_survival, log_density = self.base._log_both(self._own(t))
        return self._given_survival(t, log_survival), self._given_density(t, log_density)

    def _log_hazard(self, t: Tensor) -> Tensor:
        return self._from_first(t, self.base._log_hazard(self._own(t)) - math.log(self.scale), -math.inf)

    def _survival(self, t: Tensor) -> Tensor:
        if self.after is not None:
            return super()._survival(t)
        return self._from_first(t, self.base._survival(self._own(t)), 1.0)

    def _density(self, t: Tensor) -> Tensor:
        if self.after is not None:
            return super()._density(t)
        return self._from_first(t, self.base._density(self._own(t)) / self.scale, 0.0)

    def _incidence(self, t: Tensor) -> Tensor:
        if self.after is None:
            return self._from_first(t, self.base._incidence(self._own(t)), 0.0)
        return super()._incidence(t) if self.n_causes == 1 else self.base._incidence_since(self.after, self._own(t))

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        if self.after is None and self._first > 0:  # there may be a jump at the first time
            return super()._incidence_since(start, t)
        return self.base._incidence_since(self._own(start), self._own(t))

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        own_level = level if self._log_reach is None else level + self._log_reach
        t = self.scale * self.base._inverse_log_survival(own_level) + self.start
        return torch.where(level >= 0, 0.0, t.clamp_min(self._first))

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        if self.after is not None:
            return self._remaining_mean(torch.zeros_like(horizon), horizon)
        return horizon.clamp_max(self._first) + self.scale * self.base._restricted_mean(self._own(horizon))

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        own_start, own_end = (self._own(t[:, None])[:, 0] for t in (start, end))
        rest = self.scale * self.base._remaining_mean(own_start, own_end)
        first = self._first[:, 0] if isinstance(self._first, Tensor) else self._first
        certain = end.clamp_max(first) - start.clamp_max(first)
        if self.after is None and self._first > 0:
            # subjects who are event-free before the first time may have the event at that time
            rest = torch.where(start < first, self.base._survival(self._like.new_zeros(1, 1))[:, 0], 1.0) * rest
        return certain + rest

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        if self.after is None:
            return self.scale * self.base._restricted_time_lost(self._own(horizon))
        if self.n_causes == 1 or self.step_table() is not None:
            return super()._restricted_time_lost(horizon)
        # integrate from the first time on, because there is a kink
        first = (self._like.new_zeros(len(self), 1) + self._first).double()
        length = (horizon.double() - first[:, 0]).clamp_min(0.0)

        def free(k: int, rows: Tensor, t: Tensor) -> Tensor:
            later = (first[rows] + t).clamp_max(torch.finfo(self._like.dtype).max).to(self._like)
            return (1.0 - self._take(rows)._incidence(later)[..., k]).to(t)

        means = [mean_survival_time(partial(free, k), length, self._precision) for k in range(self.n_causes)]
        return (length[:, None] - torch.stack(means, dim=-1)).to(horizon)

    def _cause_shares(self, t: Tensor) -> Tensor:
        return self.base._cause_shares(self._own(t))

    def _sample(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        if self.after is not None:
            return super()._sample(size, rng)
        times, causes = self.base._sample(size, rng)
        return self.scale * times + self.start, causes

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """Return the table of the base with its knots on this time scale; None if the time scale differs by subject."""
        known = None if isinstance(self.start, Tensor) else self.base.step_table()
        if known is None:
            return None
        knots, survival = self._first_times(known[0]), known[1]
        if self._log_reach is not None:
            survival = torch.exp((torch.log(survival) - self._log_reach).clamp_max(0.0))
        elif self.start > 0 and bool((survival[:, 0] < 1).any()):
            knots = torch.cat([knots[:1], knots.new_tensor([self.start]), knots[1:]])
            survival = torch.cat([torch.ones_like(survival[:, :1]), survival], dim=1)
        last = torch.cat([knots[1:] > knots[:-1], torch.ones_like(knots[:1], dtype=torch.bool)])  # of equal knots
        return (knots, survival) if bool(last.all()) else (knots[last], survival[:, last])

    def ranking(self) -> Tensor | None:
        """Return the ranking of the base; None with a condition, which may change the order."""
        return self.base.ranking() if self.after is None else None

    def _first_times(self, own: Tensor) -> Tensor:
        """Return the smallest non-negative floating-point time that ``_moved`` maps to ``own`` or later.

        Because ``_moved`` rounds, this time can be several floating-point numbers away from ``scale · own + start``. It
        is found by bisection over the bits of the numbers, which as integers have the same order as the numbers.
        """
        bits = torch.int64 if own.dtype == torch.float64 else torch.int32
        low, high = (torch.full_like(own, end).view(bits) for end in (0.0, math.inf))
        while bool((low < high).any()):
            middle = low + (high - low) // 2
            reached = self._moved(middle.view(own.dtype)) >= own
            low, high = torch.where(reached, low, middle + 1), torch.where(reached, middle, high)
        return high.view(own.dtype)


class Rescaled(_TimeScale):
    r"""The same distribution in another time unit: T = scale · T₀.

    Parameters
    ----------
    base : SurvivalDistribution
        The distribution of T₀.
    scale : float
        The unit of T₀ in units of T: 365.25 to convert a distribution from years to days.

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
    r"""A distribution shifted to a later start, T = start + T₀: S(t) = S₀(t - start), and 1 before ``start``.

    Parameters
    ----------
    base : SurvivalDistribution
        The distribution of T₀.
    start : float
        The delay, zero or more.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> late = Delayed(Weibull([2.0], [1.0]), 3.0)
    >>> late.survival([2.0, 3.0, 5.0]).round(6), late.mean().round(6)
    (array([[1.      , 1.      , 0.367879]]), array([5.]))
    """

    def __init__(self, base: SurvivalDistribution, start: float) -> None:
        if not (math.isfinite(start) and start >= 0):
            raise ValueError(f"start must be finite and zero or more; got {start}.")
        super().__init__(base, 1.0, float(start))


class Conditional(_TimeScale):
    r"""Distribution of time and cause given T > after, with the same time origin.

    .. math:: S(t \mid T > s) = S(t) / S(s), \qquad F_k(t \mid T > s) = (F_k(t) - F_k(s)) / S(s) \quad (t \ge s)

    Before s, S is one and F_k is zero. If S(s) = 0, the event happens at s; `SurvivalDistribution.conditional` raises
    an error instead.

    Parameters
    ----------
    base : SurvivalDistribution
    after : float or array of shape (n,)
        Time up to which each subject is known to be event-free.
    """

    def __init__(self, base: SurvivalDistribution, after: Any) -> None:
        super().__init__(base, 1.0, 0.0, _check_after(base, after))

    @property
    def _description(self) -> str:
        return f"{self.base._description}, given survival so far"


class Remaining(_TimeScale):
    r"""Distribution of the remaining time T - after given T > after: S(t) = S₀(after + t) / S₀(after).

    If S₀(after) = 0, the event happens immediately; `SurvivalDistribution.remaining` raises an error instead.

    Parameters
    ----------
    base : SurvivalDistribution
    after : float or array of shape (n,)
        Time up to which each subject is known to be event-free: the new time origin.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> late = Remaining(Weibull([2.0], [1.0]), 0.5)  # an exponential distribution has no memory
    >>> late.survival(1.0).round(6), late.mean().round(6)
    (array([0.606531]), array([2.]))
    """

    def __init__(self, base: SurvivalDistribution, after: Any) -> None:
        times = _check_after(base, after)
        shared = bool((times == times[:1]).all())
        super().__init__(base, 1.0, -float(times[:1].sum()) if shared else -times, times)

    @property
    def _description(self) -> str:
        return f"{self.base._description}, remaining life"


def _check_after(base: SurvivalDistribution, after: Any) -> Tensor:
    """Times of shape (n, 1); raise a ValueError if they are not one time per subject."""
    times = check_times(as_tensor(after, base._like), "after")
    if times.shape not in ((), (len(base),)):
        raise ValueError(
            f"after must be a number or one time per subject ({len(base)}); got shape {tuple(times.shape)}."
        )
    return times.expand(len(base))[:, None]
