"""Extrapolation beyond the last training time: a Gompertz tail that starts from the hazard at that time."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from sumosurv.distributions._arguments import is_traced
from sumosurv.distributions._quadrature import integrate_panels
from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.wrapper import Wrapper
from sumosurv.families import gompertz

_LARGE = 40.0  # 1 + exp(-40) is 1 in float64


def tail_start(log_survival: Tensor, log_density: Tensor, least: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return Λ and log λ at the horizon, from log S and log f there; λ is kept positive, so that every tail ends.

    ``least`` is a lower bound of the hazard.
    """
    tiny = torch.finfo(log_survival.dtype).tiny
    # a subject whose survival probability is zero at the horizon has no tail
    log_hazard = torch.where(torch.isinf(log_survival), 0.0, log_density - log_survival)
    return (-log_survival).clamp_min(tiny), log_hazard.clamp_min(math.log(max(least, tiny)))


def tail_log_terms(
    cumulative: Tensor, log_hazard: Tensor, growth: Tensor | float, t: Tensor, horizon: float
) -> tuple[Tensor, Tensor]:
    r"""Return log S and log f beyond the horizon T; for earlier t, their values at the horizon.

    .. math:: λ(t) = λ(T) e^{g (t - T)}, \qquad Λ(t) = Λ(T) + λ(T) (e^{g (t - T)} - 1) / g.
    """
    rate = torch.as_tensor(growth, dtype=t.dtype, device=t.device)
    tail = gompertz(log_hazard, rate, (t - horizon).clamp_min(0.0))
    log_survival = tail.survival - cumulative
    # if the survival probability is zero, so is the density, however large the hazard
    return log_survival, torch.where(torch.isinf(log_survival), -math.inf, tail.hazard + log_survival)


def is_mean_extrapolated(mean: npt.NDArray[Any], within: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether more than 1 % of a mean lies beyond the last training time, up to which the mean is ``within``."""
    return np.asarray(within < 0.99 * mean)


def tail_area(log_hazard: Tensor, growth: float, length: Tensor) -> Tensor:
    """Return ∫ S(T + u) / S(T) du from zero to the length, which may be inf; all (n,) and float64."""
    if growth == 0:
        hazard = torch.exp(log_hazard)
        return -torch.expm1(-hazard * length) / hazard
    scale, rate = _unit_hazard_time(log_hazard, growth), log_hazard.new_tensor(growth)

    def survival(rows: Tensor, x: Tensor) -> Tensor:
        return torch.exp(gompertz(log_hazard[rows, None], rate, scale[rows, None] * x).survival)

    # Λ increases by one within the typical time and is convex: after 40 typical times, S is below e^-40
    edges = torch.tensor([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, _LARGE], dtype=length.dtype, device=length.device)
    ends = (length / scale).clamp_max(_LARGE)
    return scale * integrate_panels(survival, torch.zeros_like(ends), ends, edges, torch.finfo(length.dtype).eps)


def _unit_hazard_time(log_hazard: Tensor, growth: float) -> Tensor:
    """Return the time beyond the horizon in which Λ increases by one: log(1 + g/λ) / g for g > 0."""
    log_ratio = math.log(growth) - log_hazard
    grown = softplus(log_ratio) / growth
    return torch.where(log_ratio < -_LARGE, torch.exp(-log_hazard), grown)


_Terms = Callable[[Tensor], tuple[Tensor, ...]]


class Continued(Wrapper):
    r"""A distribution that is extrapolated beyond the horizon T by a Gompertz tail.

    .. math:: λ_k(t) = λ_k(T) e^{g (t - T)}, \qquad
       F_k(t) = F_k(T) + \frac{λ_k(T)}{λ(T)} (S(T) - S(t)) \quad \text{for } t > T:

    the hazards of all causes grow at the same rate.

    Parameters
    ----------
    base : SurvivalDistribution
        A distribution with a density.
    horizon : float
        T.
    growth : float
        g ≥ 0; zero for a constant hazard.
    least : float, default 0.0
        The hazard from which the tail starts if the hazard of the base at T is lower.

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
                "horizon must be positive, growth and least must be zero or more, and all must be finite; "
                f"got {horizon}, {growth}, {least}."
            )
        self.base, self.horizon, self.growth, self.last_time = base, float(horizon), float(growth), base.last_time
        self.least = float(least)
        self._start_cache: tuple[Tensor, Tensor] | None = None
        self._whole: tuple[Continued, Tensor] | None = None  # the distribution and the rows of it that this one is
        self._area_cache: Tensor | None = None  # ∫ S from zero to the horizon

    @cached_property
    def _log_shares(self) -> Tensor:
        """log λ_k(T) / λ(T), (n, 1, K)."""
        log_density = self.base._log_cause_density(self._like.new_full((1, 1), self.horizon))
        alike = torch.isinf(log_density).all(-1, keepdim=True)  # no density for any cause
        return torch.log_softmax(torch.where(alike, 0.0, log_density), dim=-1)

    @property
    def _breaks(self) -> tuple[float, ...]:
        return (*(b for b in self.base._breaks if b < self.horizon), self.horizon)

    @property
    def _start(self) -> tuple[Tensor, Tensor]:
        """Λ and log λ at the horizon, (n, 1) each."""
        if self._start_cache is None and self._whole is not None:
            whole, rows = self._whole
            self._start_cache = whole._start[0][rows], whole._start[1][rows]
        elif self._start_cache is None:
            last = self._like.new_full((1, 1), self.horizon)
            self._start_cache = tail_start(*self.base._log_both(last), self.least)
        return self._start_cache

    def _with(self, base: SurvivalDistribution) -> Self:
        return type(self)(base, self.horizon, self.growth, self.least)

    def _take(self, rows: Tensor) -> Self:
        part = self._with(self.base._take(rows))
        if self._start_cache is not None or 4 * len(rows) >= len(self):
            part._whole = self, rows  # one start for all parts, because iterations take rows repeatedly
        part._area_cache = None if self._area_cache is None else self._area_cache[rows]
        return part

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._join(lambda u: (self.base._log_survival(u),), lambda u: self._tail(u)[:1], t)[0]

    def _survival(self, t: Tensor) -> Tensor:
        return self._join(lambda u: (self.base._survival(u),), lambda u: (torch.exp(self._tail(u)[0]),), t)[0]

    def _log_density(self, t: Tensor) -> Tensor:
        return self._log_both(t)[1]

    def _density(self, t: Tensor) -> Tensor:
        return self._join(lambda u: (self.base._density(u),), lambda u: (torch.exp(self._tail(u)[1]),), t)[0]

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        log_survival, log_density = self._join(self.base._log_both, self._tail, t)
        return log_survival, log_density

    def _log_cause_density(self, t: Tensor) -> Tensor:
        if self.n_causes == 1:
            return super()._log_cause_density(t)
        near = self.base._log_cause_density(t.clamp_max(self.horizon))
        if not self._reaches_beyond(t):
            return near
        far = self._log_density(t)[..., None] + self._log_shares
        return torch.where((t > self.horizon)[..., None], far, near)

    def _incidence(self, t: Tensor) -> Tensor:
        if self.n_causes == 1:
            return super()._incidence(t)
        near = self.base._incidence(t.clamp_max(self.horizon))
        if not self._reaches_beyond(t):
            return near
        log_start = -self._start[0]
        fall = torch.exp(log_start) * self._fall(log_start, t)
        at_horizon = self.base._incidence(self._like.new_full((1, 1), self.horizon))
        far = at_horizon + torch.exp(self._log_shares) * fall[..., None]
        return torch.where((t > self.horizon)[..., None], far, near)

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        near, late = start.clamp_max(self.horizon), torch.maximum(start, start.new_tensor(self.horizon))
        log_start, log_late = self._log_survival(start), self._log_survival(late)
        reach = torch.exp(log_late - log_start).nan_to_num(0.0)  # probability of reaching the horizon, or one after it
        far = torch.exp(self._log_shares) * (reach * self._fall(log_late, torch.maximum(t, late)))[..., None]
        inside = self.base._incidence_since(near, torch.maximum(t.clamp_max(self.horizon), near))
        return inside + far

    def _fall(self, log_start: Tensor, t: Tensor) -> Tensor:
        """1 - S(t) / S(start); zero if S(start) is zero."""
        fall = -torch.expm1((self._log_survival(t) - log_start).clamp_max(0.0))
        return torch.where(torch.isinf(log_start), 0.0, fall)

    def _reaches_beyond(self, t: Tensor) -> bool:
        """Whether the tail is needed; it is when a program is traced, which must serve all times."""
        return is_traced(t) or bool((t > self.horizon).any())

    def _tail(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return tail_log_terms(*self._start, self.growth, t, self.horizon)

    def _join(self, near: _Terms, far: _Terms, t: Tensor) -> tuple[Tensor, ...]:
        """Evaluate the base up to the horizon and the tail beyond it, each only at the times where it is needed."""
        if not self._reaches_beyond(t):
            return near(t)
        beyond = t > self.horizon
        if is_traced(t) or t.shape[0] > 1:
            pairs = zip(far(t), near(t.clamp_max(self.horizon)))
            return tuple(torch.where(beyond, late, early) for late, early in pairs)
        columns = beyond[0]
        late = far(t[:, columns])
        if bool(columns.all()):
            return late
        joined = [torch.cat(pair, dim=1) for pair in zip(near(t[:, ~columns]), late)]
        order = torch.cat([(~columns).nonzero()[:, 0], columns.nonzero()[:, 0]]).argsort()
        ordered = bool((order[1:] > order[:-1]).all())  # as in a sorted grid
        return tuple(joined) if ordered else tuple(part[:, order] for part in joined)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        whole = bool((horizon >= self.horizon).all())
        inside = self._area() if whole else self.base._restricted_mean(horizon.clamp_max(self.horizon))
        return inside + self._tail_mean(torch.exp(-self._start[0][:, 0]), horizon)

    def _area(self) -> Tensor:
        """∫ S from zero to the horizon, cached because every mean up to a later time contains it."""
        if self._area_cache is not None:
            return self._area_cache
        area = self.base._restricted_mean(self._like.new_full((len(self),), self.horizon))
        if not area.requires_grad:
            self._area_cache = area
        return area

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        if bool((start >= self.horizon).any()):
            return super()._remaining_mean(start, end)
        inside = self.base._remaining_mean(start, end.clamp_max(self.horizon))
        reach = torch.exp(-self._start[0] - self._log_survival(start[:, None]))[:, 0]
        return inside + self._tail_mean(reach, end)

    def _tail_mean(self, reach: Tensor, end: Tensor) -> Tensor:
        """Return the contribution of the tail to a mean, given the probability of reaching the horizon."""
        length = (end.double() - self.horizon).clamp_min(0.0)
        return (reach.double() * tail_area(self._start[1][:, 0].double(), self.growth, length)).to(reach)
