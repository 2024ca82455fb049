"""Cumulative incidences known at a table of times: Aalen-Johansen, Fine-Gray, discrete-time networks."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.competing import CompetingRisksDistribution
from sumosurv.distributions.rows import Rows
from sumosurv.distributions.tabulated import Between, Tabulated

__all__ = ["TabulatedRisks"]


class TabulatedRisks(CompetingRisksDistribution):
    r"""Cumulative incidences given at times t₁ < ... < t_m, the same times for every subject.

    Parameters
    ----------
    times : array of shape (m,)
        Increasing, zero or more. Where the first is positive, t = 0 with incidences of zero is put before it.
    incidence : array of shape (m, K) or (n, m, K)
        F_k at those times, non-decreasing, their sum at most one.
    survival : array of shape (m,) or (n, m), optional
        S at those times, where it is known better than as one minus the sum, which is the default: to end at zero
        exactly, for example. It must agree with that to rounding.
    between : {"step", "density", "hazard"}
        What the curves do between two times. "step": they stay, then jump at the next time, as Aalen-Johansen does.
        "density": they rise along lines (constant densities in each cell). "hazard": the hazard of all causes together
        is constant in each cell, and so are the causes' shares of it (the last cell is open-ended).
    half_width : int
        k of the interpolated densities of step curves, which have none of their own: f_k is that of `Tabulated` for
        the curve 1 - F_k on the times at which F_k rises in some of the subjects. Every cause has its own times, so
        that a rare cause has wide windows and not a density of zero between its events. The density of T is the sum.
    widen : bool
        Let windows in which a subject's F_k does not rise grow until it does, as in `Tabulated`.

    Notes
    -----
    Past the last time "step" and "density" curves stay where they are.

    Examples
    --------
    >>> d = TabulatedRisks([1.0, 2.0], [[0.5, 0.0], [0.5, 0.25]])
    >>> d.cumulative_incidence(1.5), d.survival(2.0)
    (array([[0.5, 0. ]]), array([0.25]))
    """

    def __init__(
        self,
        times: Any,
        incidence: Any,
        survival: Any = None,
        *,
        between: Between = "step",
        half_width: int = 2,
        widen: bool = False,
    ) -> None:
        table = _tensor(incidence)
        table = table[None] if table.ndim == 2 else table
        knots = _tensor(times).to(table)
        if knots.ndim != 1 or table.ndim != 3 or table.shape[1] != len(knots) or 0 in table.shape[1:]:
            raise ValueError(
                "incidence has one row per time and one column per cause, or one such table per subject: times "
                f"{tuple(knots.shape)}, incidence {tuple(table.shape)}."
            )
        if bool(torch.isnan(table).any()) or bool((table < 0).any()) or bool((torch.diff(table, dim=1) < 0).any()):
            raise ValueError("incidence must be zero or more and never decrease from one time to the next.")
        rest = 1.0 - table.sum(-1)
        rounding = 64 * torch.finfo(table.dtype).eps
        if bool((rest < -rounding).any()):
            raise ValueError(f"The incidences of all causes sum to one at most; got {1.0 - float(rest.min()):g}.")
        if survival is None:
            curve = rest.clamp_min(0.0)
        else:
            curve = _tensor(survival).to(table)
            curve = curve[None] if curve.ndim == 1 else curve
            if curve.shape != rest.shape or bool(((curve - rest).abs() > rounding * len(knots)).any()):
                raise ValueError("survival and the incidences of all causes must sum to one at every time.")
        if len(knots) and knots[0] > 0:
            knots = torch.cat([knots.new_zeros(1), knots])
            table = torch.cat([torch.zeros_like(table[:, :1]), table], dim=1)
            curve = torch.cat([torch.ones_like(curve[:, :1]), curve], dim=1)
        self.total = Tabulated(knots, curve, between=between, half_width=half_width, widen=widen)
        self.table = table
        self._rises = _rises(table)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def n_causes(self) -> int:
        """K."""
        return int(self.table.shape[2])

    @property
    def times(self) -> Tensor:
        """The times of the table, the first of them zero."""
        return self.total.times

    @property
    def _like(self) -> Tensor:
        return self.table

    @property
    def _breaks(self) -> tuple[float, ...]:
        return tuple(self.times.tolist())

    def _with(self, total: Tabulated, table: Tensor) -> Self:
        """A changed copy of a table that was checked already; causes keep their times."""
        made = copy.copy(self)
        made.total, made.table = total, table
        return made

    def _take(self, rows: Tensor) -> Self:
        return self._with(self.total._take(rows), self.table[rows])

    def repeat(self, n: int) -> Self:
        """One subject's curves as the distribution of n subjects (no copy is made)."""
        return self._with(self.total.repeat(n), self.table.expand(n, -1, -1))

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The table of S, for ``between="step"``."""
        return self.total.step_table()

    # ------------------------------------------------------------------

    def _f(self, index: Tensor) -> Tensor:
        """F at table indices of shape (n or 1, m)."""
        if index.shape[0] == 1:
            return self.table[:, index[0]]
        return self.table.gather(1, index[..., None].expand(-1, -1, self.n_causes))

    def _rise(self, i: Tensor) -> Tensor:
        """How far F rises from time i to the next; past the last time, as in the last cell."""
        i = i.clamp_max(max(len(self.times) - 2, 0))
        return self._f((i + 1).clamp_max(len(self.times) - 1)) - self._f(i)

    def _cell_shares(self, i: Tensor) -> Tensor:
        """The causes' shares of the cell's rise; zero where there is none."""
        rise = self._rise(i)
        total = rise.sum(-1, keepdim=True)
        return torch.where(total > 0, rise / torch.where(total > 0, total, 1.0), 0.0)

    def _log_survival(self, t: Tensor) -> Tensor:
        return self.total._log_survival(t)

    def _incidence(self, t: Tensor) -> Tensor:
        i = self.total._cell(t)
        start = self._f(i)
        if self.total.between == "step":
            return start
        if self.total.between == "density":
            j = (i + 1).clamp_max(len(self.times) - 1)
            width = torch.where(j > i, self.times[j] - self.times[i], 1.0)
            share = torch.where(j > i, (t - self.times[i]) / width, torch.zeros_like(t))
            return start + share[..., None] * (self._f(j) - start)
        s_start = self.total._s(i)
        fallen = -s_start * torch.expm1(self.total._log_survival(t) - torch.log(s_start))
        return start + fallen[..., None] * self._cell_shares(i)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        if self.total.between == "step":
            return torch.stack([self._curve(k)._log_density(t) for k in range(self.n_causes)], dim=-1)
        log_share = torch.log(self._cell_shares(self.total._cell(t)))
        return self.total._log_density(t)[..., None] + log_share

    def _curve(self, k: int) -> Tabulated:
        """1 - F of the cause in column k: steps on the times at which it rises, or lines on all."""
        total = self.total
        own = self._rises[k] if total.between == "step" else slice(None)
        table = (1.0 - self.table[:, own, k]).clamp_min(0.0)
        made = Tabulated(self.times[own], table[:1], between=total.between, half_width=total.half_width)
        return made._with(rows=Rows(table), widen=total.widen)

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        return self.total._inverse_log_survival(level)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self.total._restricted_mean(horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        return self.total._remaining_mean(start, end)

    def cause(self, k: int) -> SurvivalDistribution:
        """The distribution of the time of an event of cause k; see `CompetingRisksDistribution.cause`."""
        number = self._check_cause(k)
        if self.total.between == "hazard":
            return super().cause(k)
        made = self._curve(number - 1)
        made.last_time = self.last_time
        return made


def _tensor(values: Any) -> Tensor:
    return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values, dtype=np.float64))


def _rises(table: Tensor) -> list[Tensor]:
    """For each cause the places at which the incidence of some subject rises, and the first."""
    rises = (torch.diff(table, dim=1) > 0).any(0)
    first = torch.ones_like(rises[:1])
    return [column.nonzero()[:, 0] for column in torch.cat([first, rises]).unbind(1)]
