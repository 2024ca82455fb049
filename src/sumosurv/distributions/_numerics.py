"""Inverting and integrating survival curves: vectorised over subjects, in log time, with error control."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["integrate_panels", "invert_log_survival", "mean_survival_time", "panel_edges", "squared_areas"]

_LOG_MIN, _LOG_MAX = -700.0, 690.0  # exp of these is still a normal float64
_GOAL = 1e-12  # relative error of a quantile


def invert_log_survival(
    log_both: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], rows: Tensor, level: Tensor
) -> Tensor:
    r"""The smallest t with log S(t) <= level, by a safeguarded Newton iteration.

    With u = log t and Λ = -log S, solves log Λ(eᵘ) = log(-level). Its slope is t·λ(t)/Λ(t), which is
    constant for a Weibull distribution and slowly varying for most others, so that Newton's steps are
    long and few; a bracket falls back to bisection where they leave it. Only what is not yet settled is
    evaluated again.

    Parameters
    ----------
    log_both : callable
        (rows, times), both of shape (k,), to (log S, log f) of these subjects at these times.
    rows : Tensor of shape (k,)
        The subject of each level.
    level : Tensor of shape (k,)
        log of the survival probabilities to reach; 0 gives t = 0.
    """
    target = torch.log(-level)  # -inf for level 0, inf for level -inf
    at_start = log_both(rows, torch.zeros_like(level))[0] <= level  # a curve may lose mass at time zero
    result = torch.where((level >= 0) | at_start, torch.zeros_like(level), torch.full_like(level, math.inf))
    search = _Search((torch.isfinite(target) & ~at_start).nonzero()[:, 0], target)
    for _ in range(400):
        if len(search.who) == 0:
            break
        log_survival, log_density = log_both(rows[search.who], torch.exp(search.u))
        who, u = search.advance(log_survival, log_density)
        result[who] = u
    else:
        result[search.who] = torch.exp(search.u)
    return result


class _Search:
    """The state of the iteration for the levels that are not settled: places, brackets, the last gap."""

    def __init__(self, who: Tensor, target: Tensor) -> None:
        self.who, self.target = who, target[who]
        self.u = torch.zeros_like(self.target)
        self.low, self.high = torch.full_like(self.u, -math.inf), torch.full_like(self.u, math.inf)
        self.last_gap = torch.full_like(self.u, math.inf)
        self.hit = torch.zeros_like(self.who, dtype=torch.bool)  # the curve is at the level in ``high``

    def advance(self, log_survival: Tensor, log_density: Tensor) -> tuple[Tensor, Tensor]:
        """One step from the curve at the current places; returns those that settled, with their times."""
        tolerance = 4 * torch.finfo(self.u.dtype).eps
        probe = tolerance**0.6
        u = self.u
        cumulative = (-log_survival).clamp_min(0.0)
        gap = torch.log(cumulative) - self.target
        reached = gap >= -tolerance
        self.hit = torch.where(reached & (u <= self.high), gap <= tolerance, self.hit)
        self.low = torch.where(reached, self.low, torch.maximum(self.low, u))
        self.high = torch.where(reached, torch.minimum(self.high, u), self.high)
        low, high = self.low, self.high
        slope = torch.exp(u + log_density - log_survival - torch.log(cumulative))
        newton = u + (-gap / slope).nan_to_num(nan=math.inf).clamp(-8.0, 8.0)
        middle = torch.where(torch.isinf(high), low + 8.0, 0.5 * (low + high))
        middle = torch.where(torch.isinf(low), high - 8.0, middle)
        # a step curve lends itself a density that is not its slope: trust the steps only while they help
        trusted = (newton > low) & (newton < high) & (slope > 0) & (gap.abs() <= 0.5 * self.last_gap)
        # on the level: a look to the left tells a crossing from a flat stretch, whose start is wanted
        proposal = torch.where(trusted, newton, middle)
        proposal = torch.where(self.hit & (u == high) & (self.last_gap > 2 * tolerance), u - probe, proposal)
        proposal = proposal.clamp(_LOG_MIN, _LOG_MAX)
        width = tolerance * u.abs().clamp_min(1.0)
        bracketed = (high - low <= 4 * width) | (self.hit & (high - low <= 1.5 * probe))
        stuck = (proposal - u).abs() <= width
        # Newton's steps shrink faster and faster: where the one to come is below the goal, this one is the last
        shrink = torch.where(torch.isinf(self.last_gap), math.inf, gap.abs() / self.last_gap)
        arrived = trusted & (gap.abs() > tolerance) & ((newton - u).abs() * shrink <= max(_GOAL, tolerance))
        self.u = torch.where(bracketed, high, proposal)
        self.last_gap = gap.abs()
        return self._settle(bracketed | stuck | arrived)

    def _settle(self, done: Tensor) -> tuple[Tensor, Tensor]:
        u, low, high = self.u[done], self.low[done], self.high[done]
        t = torch.exp(u)
        t = torch.where(torch.isinf(high) & (u >= _LOG_MAX), math.inf, t)  # never got so low
        t = torch.where(torch.isinf(low) & (u <= _LOG_MIN), 0.0, t)  # was there from the start
        settled = self.who[done]
        for name in ("who", "target", "u", "low", "high", "last_gap", "hit"):
            setattr(self, name, getattr(self, name)[~done])
        return settled, t


def mean_survival_time(
    survival: Callable[[Tensor, Tensor], Tensor],
    horizon: Tensor,
    scale: Tensor,
    precision: float = 0.0,
    breaks: Sequence[float] = (),
) -> Tensor:
    r"""∫₀^horizon S(t) dt by adaptive Gauss-Kronrod quadrature in log time.

    The relative error is about 1e-10, or 16 times the ``precision`` of a curve known less well (single precision).

    Parameters
    ----------
    survival : callable
        (rows of shape (k,), times of shape (k, m)) to S of shape (k, m).
    horizon : Tensor of shape (n,)
        Upper limits, inf allowed: then the far end is found from the decay of t·S(t), and the result is
        inf where that does not decay.
    scale : Tensor of shape (n,)
        A typical time of each subject; only a starting point.
    precision : float
        The relative rounding error of ``survival``: panels are not cut in pursuit of it.
    breaks : sequence of float
        Times at which S is not smooth: panels end there.
    """
    rows = torch.arange(len(horizon), device=horizon.device)
    end = torch.where(torch.isinf(horizon), _far_end(survival, rows, scale), torch.log(horizon))
    diverges = torch.isinf(end) & (end > 0)
    empty = torch.isinf(end) & (end < 0)
    ends = torch.where(torch.isinf(end), torch.zeros_like(end), end)
    result = _integrate(survival, rows, ends, max(1e-12, 16.0 * precision), breaks)
    result = torch.where(diverges, math.inf, result)
    return torch.where(empty, torch.zeros_like(result), result)


def _far_end(survival: Callable[[Tensor, Tensor], Tensor], rows: Tensor, scale: Tensor) -> Tensor:
    """log of a time past which ∫ S is below 1e-13 of the whole, in steps of 2 from ``scale``; inf if there is none."""
    exponents = 2.0 * torch.arange(-14, 343, device=scale.device).to(scale)  # up to the largest number there is
    shared = bool((scale == scale[0]).all()) if len(scale) else False
    u = torch.log(scale[:1] if shared else scale)[:, None] + exponents  # one grid for all where it can be
    mass = torch.exp(u) * survival(rows, torch.exp(u))
    tail = mass.flip(1).cumsum(1).flip(1)
    small = tail <= 1e-14 * tail[:, :1]
    first = small.to(torch.int8).argmax(1)
    found = small.any(1)
    places = u.expand(len(rows), -1).gather(1, first[:, None])[:, 0]
    return torch.where(found, places, math.inf)


def _integrate(
    survival: Callable[[Tensor, Tensor], Tensor],
    rows: Tensor,
    end: Tensor,
    tolerance: float,
    breaks: Sequence[float],
) -> Tensor:
    """∫₀^exp(end) S(t) dt for each row, over panels of log time cut in two until each is accurate."""
    if len(rows) == 0:
        return torch.zeros_like(end)
    # Panel edges at multiples of 2 in log time; below the first S hardly changes, or the time is too short to matter.
    top = torch.ceil(end / 2) * 2
    highest, lowest = float(top.max()), float(top.min())
    for panels in (6, 9, 14, 22, 44, 88, 176, 352, 704):
        count = panels + round((highest - lowest) / 2)
        edges = highest - 2.0 * torch.arange(count + 1, device=end.device).to(end)
        first = torch.exp(edges[-1])
        s_first = survival(rows, first.expand(1, 1))[:, 0]
        # S >= S(end) up to the end: the integral is at least that
        least = torch.maximum(first * s_first, torch.exp(end) * survival(rows, torch.exp(end)[:, None])[:, 0])
        if bool((first * (1.0 - s_first) <= 1e-13 * least).all()):
            break
    kinks = torch.tensor([math.log(b) for b in breaks if b > 0]).to(end)
    edges = torch.cat([edges, kinks[(kinks > edges[-1]) & (kinks < edges[0])]]).sort().values
    return integrate_panels(
        lambda rows, u: torch.exp(u) * survival(rows, torch.exp(u)),
        torch.full_like(end, float(edges[0])),
        end,
        edges,
        tolerance / 16.0,
        (first * s_first).expand_as(end),
    )


def integrate_panels(
    function: Callable[[Tensor, Tensor], Tensor],
    start: Tensor,
    end: Tensor,
    edges: Tensor,
    precision: float,
    total: Tensor | None = None,
) -> Tensor:
    """``total`` plus ∫ function(u) du from start to end, each (n,), over panels between given edges.

    For functions that are smooth between the edges. ``function`` takes rows (k,) and places (k or 1, m). Panels that
    all rows share are evaluated on one grid; those whose error is too large are then cut in two, row by row.
    """
    rows = torch.arange(len(start), device=start.device)
    total = torch.zeros_like(start) if total is None else total
    lower = torch.maximum(edges[None, :-1], start[:, None])
    upper = torch.minimum(edges[None, 1:], end[:, None])
    wanted = upper > lower
    if not bool(wanted.any()):
        return total
    rule = _Rule(start)
    usual_lower, usual_upper = lower.median(0).values, upper.median(0).values
    whole = wanted & (lower == usual_lower) & (upper == usual_upper)
    shared = whole.sum(0) > 0.5 * len(rows)  # panels of most rows
    pieces: list[_Panels] = []
    if bool(shared.any()):
        on_grid = rule.on_grid(function, rows, usual_lower[shared], usual_upper[shared])
        pieces.append(on_grid.pick(whole[:, shared]))
    rest = wanted & ~(whole & shared)
    if bool(rest.any()):
        who = rows[:, None].expand_as(lower)[rest]
        pieces.append(rule.on_panels(function, who, lower[rest], upper[rest]))
    return _adaptive(
        function, rule, _Panels.join(pieces), total, max(1e-11, 16 * precision), max(1e-12, 16 * precision)
    )


def panel_edges(breaks: Sequence[float], last: float) -> list[float]:
    """Edges of panels from zero to the last time: at the breaks, and no panel more than eight times its start."""
    edges = [last]
    for start in sorted(breaks, reverse=True):
        edges += _shrinking(edges[-1], start)
        edges.append(start)
    return [0.0, *sorted({*edges, *_shrinking(edges[-1], last / 512)})]


def _shrinking(high: float, low: float) -> list[float]:
    """high / 8, high / 64, ... down to low."""
    steps = max(0, math.ceil(math.log(high / low) / math.log(8.0)) - 1)
    return [high * (low / high) ** (j / (steps + 1)) for j in range(1, steps + 1)]


def squared_areas(
    survival: Callable[[Tensor, Tensor], Tensor], at: Tensor, breaks: Sequence[float], precision: float
) -> tuple[Tensor, Tensor]:
    """(∫₀^at F², ∫_at^last S²) of each row, where ``last`` is the last of the breaks and ``at`` does not exceed it.

    Over panels between the breaks, on which curves are smooth. All rows are evaluated once, on the same times; only the
    panel in which ``at`` lies is cut in two for each row.
    """
    last = max(breaks)
    edges = torch.tensor(panel_edges([b for b in breaks if 0.0 < b < last], last)).to(at)
    rows, rule = torch.arange(len(at), device=at.device), _Rule(at)
    half = 0.5 * torch.diff(edges)
    places = (0.5 * (edges[1:] + edges[:-1])[:, None] + half[:, None] * rule.nodes).reshape(1, -1)
    values = survival(rows, places).reshape(len(at), len(half), -1)
    own = (torch.searchsorted(edges, at, right=True) - 1).clamp(0, len(half) - 1)
    panel = torch.arange(len(half), device=at.device)
    areas = []
    for square, whole, ends in (
        (_squared_cdf, panel < own[:, None], (edges[own], at)),
        (torch.square, panel > own[:, None], (at, edges[own + 1])),
    ):

        def function(rows: Tensor, t: Tensor, square: Callable[[Tensor], Tensor] = square) -> Tensor:
            return square(survival(rows, t))

        sums = rule.sum(square(values), half.expand(whole.shape))
        shape = whole.shape
        on_grid = _Panels(rows[:, None].expand(shape), edges[:-1].expand(shape), edges[1:].expand(shape), *sums)
        cut = rule.on_panels(function, rows, *ends)
        panels, error = _Panels.join([on_grid.pick(whole), cut]), max(1e-10, 16 * precision)
        areas.append(_adaptive(function, rule, panels, torch.zeros_like(at), error, 0.1 * error))
    return areas[0], areas[1]


def _squared_cdf(survival: Tensor) -> Tensor:
    return (1.0 - survival).square()


def _adaptive(
    function: Callable[[Tensor, Tensor], Tensor],
    rule: _Rule,
    panels: _Panels,
    total: Tensor,
    of_size: float,
    of_panel: float,
) -> Tensor:
    """Add to each row's total the integrals over its panels, cut in two until their errors are small enough.

    Small is ``of_size`` of the row's whole integral, as the first pass saw it, or ``of_panel`` of the panel's own.
    """
    size = total.index_add(0, panels.who, panels.integral)
    for _ in range(48):
        done = panels.error <= of_size * size[panels.who].abs() + of_panel * panels.integral.abs()
        total = total.index_add(0, panels.who[done], panels.integral[done])
        if bool(done.all()):
            return total
        left = panels.pick(~done)
        middle = 0.5 * (left.a + left.b)
        who = torch.cat([left.who, left.who])
        panels = rule.on_panels(function, who, torch.cat([left.a, middle]), torch.cat([middle, left.b]))
    return total.index_add(0, panels.who, panels.integral)


class _Panels(NamedTuple):
    """Stretches [a, b] of some rows, the integral over each, and its error."""

    who: Tensor
    a: Tensor
    b: Tensor
    integral: Tensor
    error: Tensor

    def pick(self, which: Tensor) -> _Panels:
        """Some of them."""
        return _Panels(*(part[which] for part in self))

    @classmethod
    def join(cls, pieces: list[_Panels]) -> _Panels:
        """All of them in one."""
        return cls(*(torch.cat([part.reshape(-1) for part in parts]) for parts in zip(*pieces)))


class _Rule:
    """The 7-point Gauss and the 15-point Kronrod rule on the same nodes."""

    def __init__(self, like: Tensor) -> None:
        self.nodes, self.kronrod, self.gauss = (torch.from_numpy(part).to(like) for part in _gauss_kronrod())

    def on_grid(self, function: Callable[[Tensor, Tensor], Tensor], rows: Tensor, a: Tensor, b: Tensor) -> _Panels:
        """The same panels for all rows: results of shape (rows, panels)."""
        centre, half = 0.5 * (a + b), 0.5 * (b - a)
        places = (centre[:, None] + half[:, None] * self.nodes).reshape(1, -1)
        values = function(rows, places).reshape(len(rows), len(a), -1)
        shape = values.shape[:2]
        who = rows[:, None].expand(shape)
        return _Panels(who, a.expand(shape), b.expand(shape), *self.sum(values, half.expand(shape)))

    def on_panels(self, function: Callable[[Tensor, Tensor], Tensor], who: Tensor, a: Tensor, b: Tensor) -> _Panels:
        """Panels of single rows."""
        half = 0.5 * (b - a)
        values = function(who, 0.5 * (a + b)[:, None] + half[:, None] * self.nodes)
        return _Panels(who, a, b, *self.sum(values, half))

    def sum(self, values: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
        """The integral, and its error as QUADPACK estimates it: Gauss's own error says much too much of Kronrod's."""
        fine = values @ self.kronrod
        coarse = (fine - values @ self.gauss).abs()
        spread = (values - 0.5 * fine[..., None]).abs() @ self.kronrod
        error = spread * (200.0 * coarse / spread.clamp_min(torch.finfo(values.dtype).tiny)).pow(1.5).clamp_max(1.0)
        return half * fine, half * error


def _gauss_kronrod() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes on [-1, 1], the 15-point Kronrod weights, and the 7-point Gauss weights on the same nodes."""
    x = np.array([0.991455371120812639206854697526329, 0.949107912342758524526189684047851,
                  0.864864423359769072789712788640926, 0.741531185599394439863864773280788,
                  0.586087235467691130294144991693160, 0.405845151377397166906606412076961,
                  0.207784955007898467600689403773245, 0.0])  # fmt: skip
    k = np.array([0.022935322010529224963732008058970, 0.063092092629978553290700663189204,
                  0.104790010322250183839876322541518, 0.140653259715525918745189590510238,
                  0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
                  0.204432940075298892414161999234649, 0.209482141084727828012999174891714])  # fmt: skip
    g = np.array([0.0, 0.129484966168869693270611432679082, 0.0, 0.279705391489276667901467771423780,
                  0.0, 0.381830050505118944950369775488975, 0.0, 0.417959183673469387755102040816327])  # fmt: skip
    return (
        np.concatenate([-x, x[:-1][::-1]]),
        np.concatenate([k, k[:-1][::-1]]),
        np.concatenate([g, g[:-1][::-1]]),
    )
