"""Distributions given survival so far: `Conditional` keeps the time origin, `Remaining` moves it."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from sumosurv.distributions._arguments import as_tensor, check_times
from sumosurv.distributions._numerics import mean_survival_time
from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Conditional", "Remaining"]


class Conditional(SurvivalDistribution):
    r"""Time and cause given T > after, with the same time origin.

    .. math:: S(t \mid T > s) = S(t) / S(s), \qquad F_k(t \mid T > s) = (F_k(t) - F_k(s)) / S(s) \quad (t \ge s)

    Before s, S is one and F_k is zero.

    Parameters
    ----------
    base : SurvivalDistribution
    after : float or array of shape (n,)
        Time up to which each subject is known to be event-free.
    """

    def __init__(self, base: SurvivalDistribution, after: Any) -> None:
        start = check_times(as_tensor(after, base._like), "after")
        if start.ndim == 0:
            start = start.expand(len(base))
        if start.shape != (len(base),):
            raise ValueError(
                f"after is a number or one time per subject ({len(base)}); got shape {tuple(start.shape)}."
            )
        self.base, self.after, self.last_time = base, start[:, None], base.last_time
        self._log_reach = base._log_survival(self.after)
        if bool(torch.isinf(self._log_reach).any()):
            row = int(torch.isinf(self._log_reach[:, 0]).nonzero()[0])
            raise ValueError(
                f"Subject {row} has survival probability zero at after = {float(start[row]):g}, so that the "
                "conditional distribution is undefined; use an earlier time."
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
        return self.base._breaks

    @property
    def _description(self) -> str:
        return f"{self.base._description}, given survival so far"

    def _take(self, rows: Tensor) -> Self:
        return type(self)(self.base._take(rows), self.after[rows, 0])

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The table of the base, given survival so far."""
        known = self.base.step_table()
        return None if known is None else (known[0], self._survival(known[0][None]))

    def _log_survival(self, t: Tensor) -> Tensor:
        log_survival = self.base._log_survival(torch.maximum(t, self.after)) - self._log_reach
        return torch.where(t <= self.after, 0.0, log_survival.clamp_max(0.0))  # rounding may not put S above one

    def _log_cause_density(self, t: Tensor) -> Tensor:
        log_density = self.base._log_cause_density(torch.maximum(t, self.after)) - self._log_reach[..., None]
        return torch.where((t < self.after)[..., None], -math.inf, log_density)

    def _incidence(self, t: Tensor) -> Tensor:
        return self.base._incidence_since(self.after, torch.maximum(t, self.after))

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        return self.base._incidence_since(torch.maximum(start, self.after), torch.maximum(t, self.after))

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        t = torch.maximum(self.base._inverse_log_survival(level + self._log_reach), self.after)
        return torch.where(level >= 0, torch.zeros_like(t), t)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self._remaining_mean(torch.zeros_like(horizon), horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        first = torch.maximum(start, self.after[:, 0])
        certain = torch.minimum(first, end) - start
        return certain + self.base._remaining_mean(first, torch.maximum(end, first))

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        if self.n_causes == 1 or self.step_table() is not None:
            return super()._restricted_time_lost(horizon)
        # integrate from `after` on, so that quadrature need not find the kink there
        start = self.after[:, 0].double()
        length = (horizon.double() - start).clamp_min(0.0)
        free = [
            mean_survival_time(partial(self._free_since, k), length, torch.ones_like(length), self._precision)
            for k in range(self.n_causes)
        ]
        return (length[:, None] - torch.stack(free, dim=-1)).to(horizon)

    def _free_since(self, k: int, rows: Tensor, t: Tensor) -> Tensor:
        """1 - F of the cause in column k, at times counted from `after`."""
        start = self.after[rows]
        later = (start + t).clamp_max(torch.finfo(self._like.dtype).max).to(self._like)
        base = self.base if len(rows) == len(self) and t.shape[0] == 1 else self.base._take(rows)
        return (1.0 - base._incidence_since(start, later)[..., k]).to(t)

    def _cause_shares(self, t: Tensor) -> Tensor:
        return self.base._cause_shares(t)


class Remaining(SurvivalDistribution):
    r"""T - after, and the cause, given T > after: S(t) = S₀(after + t) / S₀(after).

    Parameters
    ----------
    base : SurvivalDistribution
    after : float or array of shape (n,)
        Time up to which each subject is known to be event-free: the new time origin.
    """

    def __init__(self, base: SurvivalDistribution, after: Any) -> None:
        self.given = Conditional(base, after)
        first = self.given.after[:1]
        if base.last_time is not None and bool((self.given.after == first).all()):  # otherwise it differs by subject
            self.last_time = max(base.last_time - float(first.sum()), 0.0)

    @property
    def after(self) -> Tensor:
        """Each subject's time origin, (n, 1)."""
        return self.given.after

    def __len__(self) -> int:
        return len(self.given)

    @property
    def n_causes(self) -> int:
        """The number of causes."""
        return self.given.n_causes

    @property
    def _like(self) -> Tensor:
        return self.given._like

    @property
    def _description(self) -> str:
        return f"{self.given.base._description}, remaining life"

    def _take(self, rows: Tensor) -> Self:
        made = copy.copy(self)
        made.given = self.given._take(rows)
        return made

    def _log_survival(self, t: Tensor) -> Tensor:
        return torch.where(t <= 0, 0.0, self.given._log_survival(t + self.after))

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self.given._log_cause_density(t + self.after)

    def _incidence(self, t: Tensor) -> Tensor:
        return self.given._incidence(t + self.after)

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        return self.given._incidence_since(start + self.after, t + self.after)

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        later = self.given._inverse_log_survival(level) - self.after
        return torch.where(level >= 0, 0.0, later.clamp_min(0.0))

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        first = self.after[:, 0]
        return self.given._remaining_mean(first, first + horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        return self.given._remaining_mean(start + self.after[:, 0], end + self.after[:, 0])

    def _cause_shares(self, t: Tensor) -> Tensor:
        return self.given._cause_shares(t + self.after)
