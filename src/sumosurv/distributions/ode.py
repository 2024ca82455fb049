"""The distribution whose cumulative hazard solves an ordinary differential equation."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions._quadrature import integrate_panels
from sumosurv.distributions.base import SurvivalDistribution

# (code of shape (r, w), number of steps J) -> Λ and log dΛ/dτ at the J + 1 nodes τ = j / J, each (r, J + 1)
Solution = Callable[[Tensor, int], tuple[Tensor, Tensor]]

_HORIZON = 1.0  # the last training time, in scaled time
_MIN_STEPS, _MAX_STEPS = 64, 1024  # of a table
_CELLS = {"cpu": 1 << 15, "cuda": 1 << 22}  # subjects × times evaluated at once


def solver_time(t: Tensor, offset: float | None) -> Tensor:
    r"""The solver's time τ = log(1 + t/c) / log(1 + 1/c) for scaled time t in [0, 1]; τ = t if the offset c is None."""
    return t if offset is None else torch.log1p(t / offset) / math.log1p(1.0 / offset)


def scaled_time(tau: Tensor, offset: float | None) -> Tensor:
    """Return the scaled time at which the solver's time is τ."""
    return tau if offset is None else offset * torch.expm1(tau * math.log1p(1.0 / offset))


def solver_time_log_slope(t: Tensor, offset: float | None) -> Tensor:
    """log dτ/dt."""
    return torch.zeros_like(t) if offset is None else -torch.log((t + offset) * math.log1p(1.0 / offset))


class _Tables(NamedTuple):
    """Tables of Λ and log dΛ/dτ by number of steps, and, for each row of ``code``, its table and its row there."""

    group: Tensor
    place: Tensor
    tables: list[tuple[Tensor, Tensor]]


class Ode(SurvivalDistribution):
    r"""Distribution of `Soden` and `SurvNode`: the cumulative hazard solves an ordinary differential equation.

    S(t|x) = exp(-Λ(t|x)), with dΛ/dτ = q(Λ, τ, x) and Λ(0) = 0, on a time scale τ(t).

    The equation is solved once per subject, over [0, 1], when a value is first needed. The number of steps is doubled
    until the solution between the nodes has an error below ``tolerance``. Later values are interpolated in this table:
    Λ by the polynomial of degree five through values and slopes at three nodes, log q by the polynomial through values
    at six nodes. The density is f(t) = q τ'(t) exp(-Λ).

    Parameters
    ----------
    solution : callable
        (code, steps J) to (Λ, log q) at τ = j/J, each of shape (rows, J + 1).
    code : Tensor of shape (r, w)
        Embedding of the covariates: one row per subject (r = n), or one row for all subjects.
    log_risk : Tensor of shape (n,), optional
        Proportional hazards: subject i has exp(log_risk[i]) times the hazard of ``code[0]``, and the equation is solved
        for ``code[0]`` only.
    offset : float or None, default 0.01
        c of the time scale τ(t) = log(1 + t/c) / log(1 + 1/c); None for τ = t.
    tolerance : float, default 1e-05
        Largest error of Λ, relative to Λ + min(1, Λ(1)); q may have three times this error, relative to 1 + q. The
        errors are those of the table with half the steps; the table in use is about 30 times more accurate.

    Notes
    -----
    The equation is solved up to t = 1, the last training time, and S is constant afterwards; `Continued` extrapolates.

    Examples
    --------
    >>> def exponential(code, steps):
    ...     tau = torch.linspace(0, 1, steps + 1, dtype=code.dtype)
    ...     return torch.exp(code) * tau, code.expand(-1, steps + 1)
    >>> d = Ode(exponential, torch.tensor([[0.0], [1.0]], dtype=torch.float64), offset=None)
    >>> d.survival(0.5).round(6)
    array([0.606531, 0.256881])
    """

    def __init__(
        self,
        solution: Solution,
        code: Tensor,
        *,
        log_risk: Tensor | None = None,
        offset: float | None = 1e-2,
        tolerance: float = 1e-5,
    ) -> None:
        # beyond this limit, S is 0 or 1; the risk must be finite, so that its product with Λ(0) = 0 is zero
        limit = 0.8 * math.log(torch.finfo(code.dtype).max)
        self.log_risk = None if log_risk is None else log_risk.clamp(-limit, limit)
        self.solution, self.code = solution, code
        self.offset, self.tolerance = offset, tolerance
        n = len(code) if log_risk is None else len(log_risk)
        everyone = torch.arange(n, device=code.device)
        self.rows = everyone if log_risk is None else torch.zeros_like(everyone)  # row numbers in the table
        self._table_cache: _Tables | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def _like(self) -> Tensor:
        return self.code

    def _take(self, rows: Tensor) -> Ode:
        if 4 * len(rows) >= len(self):  # for a large part of the rows, solve for all rows once
            self._table()
        part = copy.copy(self)
        part.rows = self.rows[rows]
        part.log_risk = None if self.log_risk is None else self.log_risk[rows]
        if self._table_cache is None:  # solve for these subjects alone
            used, part.rows = torch.unique(part.rows, return_inverse=True)
            part.code = self.code[used]
        return part

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._log_terms(t, density=False)[0]

    def _log_density(self, t: Tensor) -> Tensor:
        return self._log_terms(t, density=True)[1]

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        log_survival, log_density = self._log_terms(t, density=True)
        return log_survival, log_density

    def _log_terms(self, t: Tensor, *, density: bool) -> list[Tensor]:
        """Return log S, and log f if ``density``."""
        log_survival, *log_density = self._inside(t.clamp_max(_HORIZON), density=density)
        return [log_survival, *(torch.where(t > _HORIZON, -math.inf, part) for part in log_density)]

    def _table(self) -> _Tables:
        """Solve for all rows of ``code``, each with as many steps as the tolerance requires."""
        if self._table_cache is None:
            pending = torch.arange(len(self.code), device=self.code.device)
            group, place = torch.zeros_like(pending), torch.zeros_like(pending)
            tables: list[tuple[Tensor, Tensor]] = []
            with torch.no_grad():
                coarse, steps = self.solution(self.code, _MIN_STEPS), _MIN_STEPS
                while len(pending):
                    steps *= 2
                    fine = self.solution(self.code[pending], steps)
                    done = self._agree(coarse, fine) | (steps >= _MAX_STEPS)
                    who = pending[done]
                    group[who], place[who] = len(tables), torch.arange(len(who), device=who.device)
                    tables.append((fine[0][done], fine[1][done]))
                    pending, coarse = pending[~done], (fine[0][~done], fine[1][~done])
            self._table_cache = _Tables(group, place, tables)
        return self._table_cache

    def _agree(self, coarse: tuple[Tensor, Tensor], fine: tuple[Tensor, Tensor]) -> Tensor:
        """Return the rows whose coarse table agrees with the fine one at all nodes of the fine one."""
        steps = fine[0].shape[1] - 1
        tau = torch.arange(steps + 1, device=self.code.device).to(self.code)[None] / steps
        tau = tau.expand(len(fine[0]), -1)
        cumulative, log_hazard = _read_cumulative(*coarse, tau), _read_log_slope(coarse[1], tau)
        allowed = self.tolerance * (fine[0] + fine[0][:, -1:].clamp_max(1.0))
        loose = (3.0 * self.tolerance * (1.0 + torch.exp(-fine[1]))).clamp_max(0.01)
        close = ((cumulative - fine[0]).abs() <= allowed) & ((log_hazard - fine[1]).abs() <= loose)
        return close.all(1)

    def _inside(self, t: Tensor, *, density: bool) -> list[Tensor]:
        group, place, tables = self._table()
        tau = solver_time(t, self.offset)
        step = max(1, _CELLS.get(t.device.type, _CELLS["cpu"]) // max(t.shape[1], 1))
        parts, order = [], []
        for g, (values, log_slopes) in enumerate(tables):
            for rows in torch.split((group[self.rows] == g).nonzero()[:, 0], step):
                own = (tau if len(tau) == 1 else tau[rows]).expand(len(rows), -1)
                at = place[self.rows[rows]]
                cumulative = _read_cumulative(values[at], log_slopes[at], own)
                parts.append([cumulative, _read_log_slope(log_slopes[at], own)] if density else [cumulative])
                order.append(rows)
        if not parts:  # no rows
            return [tau.new_zeros(0, t.shape[1])] * (2 if density else 1)
        back = torch.argsort(torch.cat(order))
        cumulative, *log_hazard = (torch.cat(columns)[back] for columns in zip(*parts))
        if self.log_risk is not None:
            cumulative = cumulative * torch.exp(self.log_risk)[:, None]
            log_hazard = [part + self.log_risk[:, None] for part in log_hazard]
        return [-cumulative, *(part + solver_time_log_slope(t, self.offset) - cumulative for part in log_hazard)]

    # ------------------------------------------------------------------ means

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self._remaining_mean(torch.zeros_like(horizon), horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        if bool((end > _HORIZON).any()):
            return super()._remaining_mean(start, end)
        self._table()  # solve before rows are taken, so that all share the table
        log_first = self._log_survival(start[:, None])

        def remaining(rows: Tensor, t: Tensor) -> Tensor:
            return torch.exp((self._take(rows)._log_survival(t.to(self.code)) - log_first[rows]).to(t))

        edges = torch.tensor([0.0, *(_HORIZON * 0.5**j for j in range(10, -1, -1))], dtype=torch.float64)
        precision = max(self._precision, 1e-11)  # pieces of the table join up to a rounding error
        area = integrate_panels(remaining, start.double(), end.double(), edges.to(start.device), precision)
        return area.to(start)


def _read_cumulative(values: Tensor, log_slopes: Tensor, tau: Tensor) -> Tensor:
    """Λ at τ (r, m) in [0, 1], from tables (r, J + 1) with J even."""
    steps = values.shape[1] - 1
    place = (tau.detach() * (steps // 2)).floor().clamp(0, steps // 2 - 1).long()
    s = tau * (steps // 2) - place
    first, middle, last = (values.gather(1, 2 * place + j) for j in range(3))
    slopes = [torch.exp(log_slopes.gather(1, 2 * place + j)) * (2.0 / steps) for j in range(3)]
    known = (middle - first, slopes[1] - slopes[0], last - first, slopes[2] - slopes[0])
    known = (known[0] - 0.5 * slopes[0], known[1], known[2] - slopes[0], known[3])
    rising = torch.zeros_like(s)
    for row in _quintic()[::-1]:
        rising = rising * s + sum(weight * part for weight, part in zip(row, known))
    # rounding errors must not move the polynomial outside the range of its ends
    return torch.minimum(torch.maximum(first + s * (slopes[0] + s * rising), first), last)


def _read_log_slope(log_slopes: Tensor, tau: Tensor) -> Tensor:
    """log dΛ/dτ at τ (r, m) in [0, 1], from a table (r, J + 1)."""
    steps = log_slopes.shape[1] - 1
    left = (tau.detach() * steps).floor().long().sub(2).clamp(0, steps - 5)
    x = tau * steps - left
    gaps = [x - j for j in range(6)]
    log_hazard = torch.zeros_like(x)
    for j in range(6):
        weight = torch.ones_like(x)
        for k in range(6):
            if k != j:
                weight = weight * (gaps[k] / (j - k))
        log_hazard = log_hazard + weight * log_slopes.gather(1, left + j)
    return log_hazard


@lru_cache(maxsize=1)
def _quintic() -> tuple[tuple[float, ...], ...]:
    """Coefficients of s², ..., s⁵ given the value and slope at s = 1/2 and s = 1, if both are 0 at s = 0."""
    powers = np.arange(2, 6)
    conditions = [row for s in (0.5, 1.0) for row in (s**powers, powers * s ** (powers - 1))]
    return tuple(tuple(float(v) for v in row) for row in np.linalg.inv(np.array(conditions)))
