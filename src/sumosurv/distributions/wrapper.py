"""Distributions built from one other (`Wrapper`) or several (`Combination`); and `Recalibrated`."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.tabulated import Tabulated


class Wrapper(SurvivalDistribution):
    """A distribution with the subjects and causes of its ``base``."""

    base: SurvivalDistribution

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
        return self.base._breaks

    @property
    def _description(self) -> str:
        return self.base._description

    def _with(self, base: SurvivalDistribution) -> Self:
        """Return a copy with another base."""
        made = copy.copy(self)
        made.base = base
        return made

    def _take(self, rows: Tensor) -> Self:
        return self._with(self.base._take(rows))

    def single(self) -> Self:
        """Return the distribution with its base in single precision."""
        return self._with(self.base.single())


class Combination(SurvivalDistribution):
    """A distribution built from several others with the same subjects."""

    components: tuple[SurvivalDistribution, ...]

    @abstractmethod
    def _with(self, components: Sequence[SurvivalDistribution], rows: Tensor | None = None) -> Self:
        """Return a copy with other components, whose subjects are the given rows."""

    def __len__(self) -> int:
        return len(self.components[0])

    @property
    def _like(self) -> Tensor:
        return self.components[0]._like

    @property
    def _breaks(self) -> tuple[float, ...]:
        return tuple(sorted({b for part in self.components for b in part._breaks}))

    def _take(self, rows: Tensor) -> Self:
        return self._with([part._take(rows) for part in self.components], rows)

    def single(self) -> Self:
        """Return the distribution with its components in single precision."""
        return self._with([part.single() for part in self.components])


class _Map:
    """g: increasing and linear between its knots, from (0, 0) to (1, 1)."""

    def __init__(self, levels: Any, values: Any) -> None:
        u, v = (np.atleast_1d(np.asarray(part, dtype=np.float64)) for part in (levels, values))
        for name, knots in (("levels", u), ("values", v)):
            ends = np.concatenate([[0.0], knots, [1.0]]) if knots.ndim == 1 else np.zeros(2)
            if knots.shape != u.shape or not bool((np.diff(ends) > 0).all()):
                raise ValueError(f"{name} must be increasing probabilities above 0 and below 1; got {knots}.")
        self.levels, self.values = u, v
        self.u, self.v = (torch.from_numpy(np.concatenate([[0.0], part])) for part in (u, v))
        self.slopes = torch.diff(self.v, append=torch.ones(1)) / torch.diff(self.u, append=torch.ones(1))

    def to(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return knots (the first is zero), values and slopes, with the dtype and device of ``like``."""
        return self.u.to(like), self.v.to(like), self.slopes.to(like)

    def apply(self, log_u: Tensor, *, inverse: bool = False) -> tuple[Tensor, Tensor]:
        """Return log g(u) and log g'(u) for log u, or the same for the inverse of g; accurate near 0 and 1."""
        u, v, slopes = self.to(log_u)
        if inverse:
            u, v, slopes = v, u, 1.0 / slopes
        if len(u) == 1:
            return log_u, torch.zeros_like(log_u)
        probability = torch.exp(log_u)
        piece = torch.searchsorted(u[1:], probability.detach().contiguous(), right=True)
        first, last = piece == 0, piece == len(u) - 1
        inner = torch.where(first | last, 0.5, v[piece] + slopes[piece] * (probability - u[piece]))
        near_one = torch.where(last, slopes[-1] * torch.expm1(log_u), 0.0)
        value = torch.where(last, torch.log1p(near_one), torch.log(inner))
        return torch.where(first, log_u + torch.log(slopes[0]), value), torch.log(slopes)[piece]


class Recalibrated(Wrapper):
    r"""A distribution recalibrated by `Conformal`: S(t) = g(S₀(t)), with g increasing and piecewise linear.

    .. math:: f(t) = g'(S_0(t)) \, f_0(t)

    The order of the subjects does not change at any time. Below the first knot, g is proportional to u, so the shape of
    the curve there is that of the base.

    Parameters
    ----------
    base : SurvivalDistribution
    levels : array of shape (k,)
        The knots u of g: survival probabilities of the base, increasing, above 0 and below 1.
    values : array of shape (k,)
        g at the knots, also increasing, above 0 and below 1.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> d = Recalibrated(Weibull([1.0, 2.0], 1.0), levels=[0.5], values=[0.4])
    >>> d.survival(own_times=Weibull([1.0, 2.0], 1.0).median())
    array([0.4, 0.4])
    """

    def __init__(self, base: SurvivalDistribution, levels: Any, values: Any) -> None:
        if not isinstance(base, SurvivalDistribution):
            raise TypeError(f"base must be a SurvivalDistribution; got {type(base).__name__}.")
        if base.n_causes > 1:
            raise ValueError(
                f"Recalibration is for a single cause, and base has {base.n_causes}; recalibrate each base.cause(k)."
            )
        self.base, self._map, self.last_time = base, _Map(levels, values), base.last_time

    @classmethod
    def of(cls, base: SurvivalDistribution, levels: Any, values: Any) -> SurvivalDistribution:
        """The recalibrated distribution; for step functions, the mapped table with an interpolated density."""
        made = cls(base, levels, values)
        known = made.step_table()
        if known is None or not isinstance(base, Tabulated):
            return made
        table = Tabulated(*known, half_width=base.half_width, widen=base.widen)
        table.last_time = base.last_time
        return table

    @property
    def _description(self) -> str:
        return f"recalibrated {self.base._description}"

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The mapped table of the base, if the base is a step function."""
        known = self.base.step_table()
        return None if known is None else (known[0], torch.exp(self._map.apply(torch.log(known[1]))[0]))

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._map.apply(self.base._log_survival(t))[0]

    def _log_density(self, t: Tensor) -> Tensor:
        return self._log_both(t)[1]

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        log_survival, log_density = self.base._log_both(t)
        value, slope = self._map.apply(log_survival)
        return value, log_density + slope

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        return self.base._inverse_log_survival(self._map.apply(level, inverse=True)[0].clamp_max(0.0))

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self._remaining_mean(torch.zeros_like(horizon), horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        """Integrate c + s S₀ over each piece on which g(u) = c + s u."""
        u, v, slopes = self._map.to(self._like)
        log_start = self._log_survival(start[:, None])[:, 0]
        total, until = torch.zeros_like(start), torch.zeros_like(start)
        for piece in range(len(u) - 1, -1, -1):
            since, level = until, float(u[piece])
            if piece:
                levels = self._like.new_full((len(self), 1), math.log(level))
                until = self.base._inverse_log_survival(levels)[:, 0]
            else:
                until = torch.full_like(start, math.inf)
            first, last = torch.maximum(start, since), torch.minimum(end, until)
            rows = (last > first).nonzero()[:, 0]
            if not len(rows):
                continue
            a, b = first[rows], last[rows]
            part = self.base._take(rows)
            log_weight = part._log_survival(a[:, None])[:, 0] + torch.log(slopes[piece]) - log_start[rows]
            area = torch.exp(log_weight) * part._remaining_mean(a, b)
            if piece:
                constant = (v[piece] - slopes[piece] * u[piece]) * torch.exp(-log_start[rows])
                area = torch.where(torch.isinf(b), math.inf, area + constant * (b - a))
            total = total.index_add(0, rows, area)
        return total
