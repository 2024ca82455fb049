"""Curves known at a table of times: Kaplan-Meier, Breslow, Aalen-Johansen, Fine-Gray, discrete-time networks."""

from __future__ import annotations

import copy
import math
from typing import Any, Literal

import torch
from torch import Tensor

from sumosurv.distributions._arguments import as_tensor
from sumosurv.distributions.base import SurvivalDistribution

Between = Literal["step", "density", "hazard"]


class Tabulated(SurvivalDistribution):
    r"""Survival curves, or cumulative incidences, tabulated at times that all subjects share.

    Parameters
    ----------
    times : array of shape (m,)
        Increasing, zero or more. If the first time is positive, t = 0 with S = 1 is added before it.
    survival : array of shape (m,) or (n, m)
        S at these times, non-increasing in [0, 1]. With ``incidence`` it is optional, and must equal one minus the sum
        of the incidences up to rounding.
    incidence : array of shape (m, K) or (n, m, K), optional
        F_k at these times for K causes: non-decreasing, with a sum of at most one.
    between : {"step", "density", "hazard"}
        Shape of the curves between two times.

        ========= ==================================================================================================
        "step"    S is constant, then jumps at the next time, as Kaplan-Meier and Aalen-Johansen do.
        "density" S is linear: constant densities in each cell.
        "hazard"  log S is linear: a constant hazard in each cell, of which each cause has a constant share.
                  The last cell is open-ended.
        ========= ==================================================================================================
    half_width : int, default 2
        k of the interpolated density of a step function, which has no density. With i such that tᵢ <= t < tᵢ₊₁,

        f(t) = -(S(tᵢ₊ₖ) - S(tᵢ₋ₖ₊₁)) / (tᵢ₊ₖ - tᵢ₋ₖ₊₁).

        At the ends of the table, the two indices stop at the first and the last time, at least one cell apart; the last
        window also applies to later times. With k > 1, the density need not integrate to one and can inflate the
        likelihood. With competing risks, f_k is computed from 1 - F_k at the times at which F_k increases for some
        subject, so that a rare cause has wide windows instead of density zero between its events; f is the sum of all
        f_k.
    widen : bool, default False
        Widen a window in which a subject's curve is flat to the smallest half-width in which it decreases. The density
        is then zero only if the whole curve is flat. Use it for curves that decrease at few of the times, such as those
        of forests.

    Notes
    -----
    After the last time a "step" or "density" curve is flat; if its value is above zero, the mean and the quantiles that
    it does not reach are infinite. A curve with an atom at zero (an event at time zero in Kaplan-Meier) has S(0) < 1.

    Examples
    --------
    >>> d = Tabulated([1.0, 2.0, 4.0], [0.5, 0.25, 0.0], between="density")
    >>> d.survival(1.5).round(6), d.density(3.0).round(6), d.mean().round(6)
    (array([0.375]), array([0.125]), array([1.375]))
    >>> risks = Tabulated([1.0, 2.0], incidence=[[0.5, 0.0], [0.5, 0.25]])
    >>> risks.cumulative_incidence(1.5), risks.survival(2.0)
    (array([[0.5, 0. ]]), array([0.25]))
    """

    def __init__(
        self,
        times: Any,
        survival: Any = None,
        incidence: Any = None,
        *,
        between: Between = "step",
        half_width: int = 2,
        widen: bool = False,
    ) -> None:
        if survival is None and incidence is None:
            raise TypeError("Give survival or incidence.")
        if incidence is None:
            table = as_tensor(survival)
            table, by_cause = table[None] if table.ndim == 1 else table, None
        else:
            table, by_cause = _check_incidence(incidence, survival)
        knots = as_tensor(times).to(table)
        if knots.ndim != 1 or table.ndim != 2 or table.shape[1] != len(knots) or len(knots) == 0:
            raise ValueError(
                f"survival and incidence must have one column per time: times {tuple(knots.shape)}, survival "
                f"{tuple(table.shape)}."
            )
        if not bool(torch.isfinite(knots).all()) or bool((knots < 0).any()) or bool((torch.diff(knots) <= 0).any()):
            raise ValueError("times must be finite, zero or more and strictly increasing.")
        if not bool(((table >= 0) & (table <= 1)).all()) or bool((torch.diff(table, dim=1) > 0).any()):
            raise ValueError("survival must lie in [0, 1] and never increase from one time to the next.")
        if between not in ("step", "density", "hazard"):
            raise ValueError(f"between must be 'step', 'density' or 'hazard'; got {between!r}.")
        if between == "hazard" and bool((table <= 0).any()):
            raise ValueError("A curve of constant hazards never reaches zero; use between='density' for one that does.")
        if half_width < 1:
            raise ValueError(f"half_width must be 1 or more; got {half_width}.")
        if knots[0] > 0:
            knots = torch.cat([knots.new_zeros(1), knots])
            table = torch.cat([table.new_ones(len(table), 1), table], dim=1)
            by_cause = None if by_cause is None else torch.cat([torch.zeros_like(by_cause[:, :1]), by_cause], dim=1)
        self.times = knots
        self._values = table  # S, (n, m); or the risks, (n,), if there is a baseline
        self._baseline: Tensor | None = None  # Λ of proportional hazards, (m,)
        self._by_cause: Tensor | None = by_cause  # F_k, (n, m, K)
        self._rises = [] if by_cause is None else _rises(by_cause)
        self.between: Between = between
        self.half_width, self.widen = half_width, widen

    @classmethod
    def proportional(cls, times: Any, cumulative_hazard: Any, risk: Any, *, half_width: int = 2) -> Tabulated:
        """Step functions S(t) = exp(-risk · Λ(t)) of proportional hazards; their table is computed only when needed.

        Parameters
        ----------
        times : array of shape (m,)
            As in the constructor.
        cumulative_hazard : array of shape (m,)
            Λ at these times, non-negative and non-decreasing.
        risk : array of shape (n,)
            The hazard of each subject relative to Λ.
        half_width : int, default 2
            As in the constructor.

        Examples
        --------
        >>> Tabulated.proportional([1.0, 2.0], [0.1, 0.3], [1.0, 2.0]).survival(2.5).round(4)
        array([0.7408, 0.5488])
        """
        hazard, risks = as_tensor(cumulative_hazard), as_tensor(risk)
        if risks.ndim != 1 or not bool(((risks >= 0) & torch.isfinite(risks)).all()):
            raise ValueError("risk must be one finite number per subject, zero or more.")
        made = cls(times, torch.exp(-hazard), half_width=half_width)  # checks times and Λ
        if len(made.times) > len(hazard):
            hazard = torch.cat([hazard.new_zeros(1), hazard])
        return made._with(risks, baseline=hazard)

    @property
    def table(self) -> Tensor:
        """S at the times, (n, m); for proportional hazards, computed at every access."""
        return self._values if self._baseline is None else torch.exp(-self._values[:, None] * self._baseline)

    @property
    def incidence(self) -> Tensor:
        """F_k at the times, (n, m, K)."""
        return 1.0 - self.table[..., None] if self._by_cause is None else self._by_cause

    @property
    def is_stored(self) -> bool:
        """Whether the table is in memory; False if it is computed from proportional hazards when needed."""
        return self._baseline is None

    @property
    def _is_repeated(self) -> bool:
        """Whether all subjects share one row in memory."""
        return self.is_stored and self._values.stride(0) == 0

    def ranking(self) -> Tensor | None:
        """Return the risks for proportional hazards, zeros if all subjects share one curve, and None otherwise."""
        if self._is_repeated:
            return torch.zeros_like(self._values[:, 0])
        return None if self.is_stored else self._values

    def __len__(self) -> int:
        return len(self._values)

    @property
    def _like(self) -> Tensor:
        return self._values

    @property
    def n_causes(self) -> int:
        """The number of causes."""
        return 1 if self._by_cause is None else int(self._by_cause.shape[2])

    @property
    def _breaks(self) -> tuple[float, ...]:
        return () if self._by_cause is None else tuple(self.times.tolist())

    def _take(self, rows: Tensor) -> Tabulated:
        repeated = self._is_repeated and len(self) > 0
        values = self._values[:1].expand(len(rows), -1) if repeated else self._values[rows]
        return self._with(values, None if self._by_cause is None else self._by_cause[rows], self._baseline)

    def _with(self, values: Tensor, by_cause: Tensor | None = None, baseline: Tensor | None = None) -> Tabulated:
        """Return a copy with other rows, which are not checked; the times at which each F_k increases are kept."""
        made = copy.copy(self)
        made._values, made._by_cause, made._baseline = values, by_cause, baseline
        return made

    def repeat(self, n: int) -> Tabulated:
        """Return the curves of one subject as the distribution of n subjects, without copying."""
        if len(self) != 1:
            raise ValueError(f"repeat requires a single curve; this distribution has {len(self)}.")
        by_cause = None if self._by_cause is None else self._by_cause.expand(n, -1, -1)
        return self._with(self.table.expand(n, -1), by_cause)

    def with_half_width(self, half_width: int) -> Tabulated:
        """Return the same curves with another half-width k of the interpolated density."""
        if half_width < 1:
            raise ValueError(f"half_width must be 1 or more; got {half_width}.")
        made = copy.copy(self)
        made.half_width = half_width
        return made

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The table itself, for ``between="step"``."""
        return (self.times, self.table) if self.between == "step" else None

    # ------------------------------------------------------------------

    def _cell(self, t: Tensor) -> Tensor:
        """i with tᵢ <= t < tᵢ₊₁."""
        return torch.searchsorted(self.times, t.contiguous(), right=True) - 1

    def _s(self, index: Tensor) -> Tensor:
        """S at table indices of shape (n or 1, m)."""
        if self._baseline is not None:
            return torch.exp(-self._values[:, None] * self._baseline[index])
        return self._values[:, index[0]] if index.shape[0] == 1 else self._values.gather(1, index)

    def _log_survival(self, t: Tensor) -> Tensor:
        i = self._cell(t)
        start = self._s(i)
        if self.between == "step":
            return torch.log(start)
        last = len(self.times) - 1
        j = (i + 1).clamp_max(last)
        if self.between == "density":
            width = torch.where(j > i, self.times[j] - self.times[i], 1.0)
            share = torch.where(j > i, (t - self.times[i]) / width, torch.zeros_like(t))
            return torch.log(start + share * (self._s(j) - start))
        return torch.log(start) - self._log_decrease(i, t - self.times[i])

    def _log_density(self, t: Tensor) -> Tensor:
        if self._by_cause is not None and self.between == "step":
            return super()._log_density(t)  # the sum over causes, each with its own windows
        i = self._cell(t)
        last = len(self.times) - 1
        if self.between == "hazard":
            fall, width = self._cell_decrease(i)
            return torch.log(fall) - torch.log(width) + self._log_survival(t)
        if self.between == "density":
            j = (i + 1).clamp_max(last)
            fall = self._s(i) - self._s(j)
            width = self.times[j] - self.times[i]
            return torch.where(width > 0, torch.log(fall) - torch.log(width), -math.inf)
        k = self._widened(i) if self.widen else min(self.half_width, len(self.times))
        right = (i + k).clamp(min(1, last), last)
        left = torch.minimum((i - k + 1).clamp_min(0), (right - 1).clamp_min(0))
        fall, width = self._s(left) - self._s(right), self.times[right] - self.times[left]
        return torch.where(width > 0, torch.log(fall) - torch.log(width), -math.inf)

    def _widened(self, i: Tensor) -> Tensor:
        """Return the smallest half-width of at least k in whose window the subject's curve decreases, (n, m)."""
        here, falling = self._s(i).contiguous(), -self.table.contiguous()
        before = torch.searchsorted(falling, -here)  # where the curve reaches this level; 0 if at the start
        after = torch.searchsorted(falling, -here, right=True)  # where the curve leaves this level; m if never
        far = torch.full_like(before, len(self.times))
        to_left = torch.where(before > 0, i - before + 2, far)
        to_right = torch.where(after < len(self.times), after - i, far)
        return torch.minimum(to_left, to_right).clamp_min(self.half_width)

    def _cell_decrease(self, i: Tensor) -> tuple[Tensor, Tensor]:
        """The decrease of log S in cells of constant hazard, and their widths; those of the last cell beyond the table.

        Their ratio, the hazard, can overflow and is never computed.
        """
        last = len(self.times) - 1
        if last == 0:
            return torch.zeros_like(self._s(i)), self.times.new_ones(i.shape)
        i = i.clamp_max(last - 1)
        return torch.log(self._s(i)) - torch.log(self._s(i + 1)), self.times[i + 1] - self.times[i]

    def _log_decrease(self, i: Tensor, passed: Tensor) -> Tensor:
        """Return the decrease of log S since the start of a cell."""
        fall, width = self._cell_decrease(i)
        return torch.where(fall > 0, fall * (passed / width), torch.zeros_like(fall))

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        wanted = torch.exp(level)
        last = len(self.times) - 1
        # rounding of log and exp must not move a level in the table beyond its knot
        slack = 4 * torch.finfo(level.dtype).eps
        j = torch.searchsorted(-self.table.contiguous(), -(wanted * (1 + slack)).contiguous())  # first S_j <= wanted
        reached = j <= last
        knot = j.clamp_max(last)
        at_knot = self.times[knot]
        if self.between == "step" or last == 0:
            t = torch.where(reached, at_knot, math.inf)
        elif self.between == "density":
            i = (knot - 1).clamp_min(0)
            s_i, s_j = self.table.gather(1, i), self.table.gather(1, knot)
            share = ((s_i - wanted) / (s_i - s_j).clamp_min(torch.finfo(level.dtype).tiny)).clamp(0.0, 1.0)
            inside = self.times[i] + share * (at_knot - self.times[i])
            t = torch.where(reached, torch.where(knot > 0, inside, at_knot), math.inf)
        else:
            i = torch.where(reached, (knot - 1).clamp(0, last - 1), last - 1)
            s_i = self.table.gather(1, i)
            whole, fall = torch.log(s_i) - torch.log(self.table.gather(1, i + 1)), (torch.log(s_i) - level).clamp_min(0)
            inside = self.times[i] + fall / whole * (self.times[i + 1] - self.times[i])
            t = torch.where(whole > 0, inside, torch.where(reached, at_knot, math.inf))
        return torch.where(level >= torch.log(self.table[:, :1]), torch.zeros_like(t), t)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self._area(torch.zeros_like(horizon), horizon, torch.zeros_like(horizon))

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        return self._area(start, end, self._log_survival(start[:, None])[:, 0])

    def _area(self, start: Tensor, end: Tensor, log_unit: Tensor) -> Tensor:
        """The exact area under S / exp(log_unit) from start to end, summed over cells."""
        knots, table = self.times, self.table
        lower = torch.maximum(knots, start[:, None])
        stop = torch.cat([knots[1:], knots.new_full((1,), math.inf)])
        width = torch.maximum(torch.minimum(stop, end[:, None]), lower) - lower
        s_lower = torch.exp(self._log_survival(lower) - log_unit[:, None])
        if self.between == "hazard":
            cell = torch.arange(len(knots), device=knots.device)[None]
            area = s_lower * _exponential_area(*self._cell_decrease(cell), width)
        else:
            area = torch.where(s_lower > 0, s_lower * width, torch.zeros_like(width))
            if self.between == "density":
                fall = (table[:, :-1] - table[:, 1:]) * torch.exp(-log_unit[:, None])
                area[:, :-1] -= 0.5 * fall * (width[:, :-1] / (knots[1:] - knots[:-1])) * width[:, :-1]
        return area.sum(1)

    # ------------------------------------------------------------------ by cause

    def _f(self, index: Tensor) -> Tensor:
        """F at table indices of shape (n or 1, m)."""
        assert self._by_cause is not None
        if index.shape[0] == 1:
            return self._by_cause[:, index[0]]
        return self._by_cause.gather(1, index[..., None].expand(-1, -1, self.n_causes))

    def _cell_shares(self, i: Tensor) -> Tensor:
        """The causes' shares of the increase of F in cell i, or in the last cell; zero if F does not increase."""
        i = i.clamp_max(max(len(self.times) - 2, 0))
        rise = self._f((i + 1).clamp_max(len(self.times) - 1)) - self._f(i)
        total = rise.sum(-1, keepdim=True)
        return torch.where(total > 0, rise / torch.where(total > 0, total, 1.0), 0.0)

    def _incidence(self, t: Tensor) -> Tensor:
        if self._by_cause is None:
            return super()._incidence(t)
        i = self._cell(t)
        start = self._f(i)
        if self.between == "step":
            return start
        if self.between == "density":
            j = (i + 1).clamp_max(len(self.times) - 1)
            width = torch.where(j > i, self.times[j] - self.times[i], 1.0)
            share = torch.where(j > i, (t - self.times[i]) / width, torch.zeros_like(t))
            return start + share[..., None] * (self._f(j) - start)
        s_start = self._s(i)
        fallen = -s_start * torch.expm1(self._log_survival(t) - torch.log(s_start))
        return start + fallen[..., None] * self._cell_shares(i)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        if self._by_cause is None:
            return super()._log_cause_density(t)
        if self.between == "step":
            return torch.stack([self._curve(k)._log_density(t) for k in range(self.n_causes)], dim=-1)
        return self._log_density(t)[..., None] + torch.log(self._cell_shares(self._cell(t)))

    def _curve(self, k: int) -> Tabulated:
        """1 - F of the cause in column k: steps at the times at which F increases, or linear between all times."""
        assert self._by_cause is not None
        own = self._rises[k] if self.between == "step" else slice(None)
        made = self._with((1.0 - self._by_cause[:, own, k]).clamp_min(0.0))
        made.times = self.times[own]
        return made

    def cause(self, k: int) -> SurvivalDistribution:
        """The distribution of the time of an event of cause k; see `SurvivalDistribution.cause`."""
        made = super().cause(k)
        return made if made is self or self.between == "hazard" else self._curve(k - 1)


def _exponential_area(fall: Tensor, cell: Tensor, width: Tensor) -> Tensor:
    """∫₀^width exp(-fall·t / cell) dt, also for fall 0 and width inf."""
    fallen = torch.where(fall > 0, fall * (width / cell), torch.zeros_like(width))
    safe = torch.where(fall > 0, fall, torch.ones_like(fall))
    part = torch.where(fallen > 0, -torch.expm1(-fallen) / fallen, torch.ones_like(fallen))
    return torch.where(torch.isinf(width) & (fall > 0), cell / safe, width * part)


def _check_incidence(incidence: Any, survival: Any) -> tuple[Tensor, Tensor]:
    """S of shape (n, m) and F of shape (n, m, K); raise a ValueError if they are inconsistent."""
    table = as_tensor(incidence)
    table = table[None] if table.ndim == 2 else table
    if table.ndim != 3 or 0 in table.shape[1:]:
        raise ValueError(
            "incidence must have one row per time and one column per cause, or one such table per subject; got shape "
            f"{tuple(table.shape)}."
        )
    if bool(torch.isnan(table).any()) or bool((table < 0).any()) or bool((torch.diff(table, dim=1) < 0).any()):
        raise ValueError("incidence must be zero or more and never decrease from one time to the next.")
    rest = 1.0 - table.sum(-1)
    rounding = 64 * torch.finfo(table.dtype).eps * table.shape[1]  # error of a sum of as many jumps
    if bool((rest < -rounding).any()):
        raise ValueError(f"The incidences of all causes must sum to at most one; got {1.0 - float(rest.min()):g}.")
    if survival is None:
        return rest.clamp_min(0.0), table
    curve = as_tensor(survival).to(table)
    curve = curve[None] if curve.ndim == 1 else curve
    if curve.shape != rest.shape or bool(((curve - rest).abs() > rounding).any()):
        raise ValueError("survival and the incidences of all causes must sum to one at every time.")
    return curve, table


def _rises(table: Tensor) -> list[Tensor]:
    """For each cause, the first position and those at which some subject's F_k increases by more than rounding."""
    rises = (torch.diff(table, dim=1) > 16 * torch.finfo(table.dtype).eps).any(0)
    first = torch.ones_like(rises[:1])
    return [column.nonzero()[:, 0] for column in torch.cat([first, rises]).unbind(1)]
