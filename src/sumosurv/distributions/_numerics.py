"""Inverting and integrating survival curves: vectorised over subjects, in log time, with error control."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sumosurv.distributions._quadrature import integrate_panels

_LOG_MIN, _LOG_MAX = -700.0, 690.0  # exp of these is still a normal float64
_GOAL = 1e-12  # relative error of a quantile
_FIRST_LOOKS = 12  # most times at which all curves are evaluated before a search for quantiles


def invert_log_survival(
    log_both: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    rows: Tensor,
    level: Tensor,
    start: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    r"""Return the smallest t with log S(t) <= level, by a safeguarded Newton iteration.

    With u = log t and Λ = -log S, solves log Λ(eᵘ) = log(-level). Its slope is t·λ(t)/Λ(t), which is constant for a
    Weibull distribution and varies slowly for most others, so that a few Newton steps suffice. A step that leaves the
    bracket is replaced by bisection. Only levels that have not converged are evaluated again.

    Parameters
    ----------
    log_both : callable
        (rows, times), both of shape (k,), to (log S, log f) of these subjects at these times.
    rows : Tensor of shape (k,)
        The subject of each level.
    level : Tensor of shape (k,)
        log of the survival probabilities to reach; 0 gives t = 0.
    start : (log t, log S at zero), optional
        For each level, (k,): log t at which its search begins, and the curve at zero; see `starting_points`.
    """
    target = torch.log(-level)  # -inf for level 0, inf for level -inf
    begin, at_zero = (torch.zeros_like(target), log_both(rows, torch.zeros_like(level))[0]) if start is None else start
    at_start = at_zero <= level  # a curve may have an atom at time zero
    result = torch.where((level >= 0) | at_start, torch.zeros_like(level), torch.full_like(level, math.inf))
    search = _Search((torch.isfinite(target) & ~at_start).nonzero()[:, 0], target, begin)
    for _ in range(400):
        if len(search.who) == 0:
            break
        log_survival, log_density = log_both(rows[search.who], torch.exp(search.u))
        who, u = search.advance(log_survival, log_density)
        result[who] = u
    else:
        result[search.who] = torch.exp(search.u)
    return result


def starting_points(
    log_survival: Callable[[Tensor], Tensor], breaks: Sequence[float], level: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return log t at which the search for each level (n, m) begins, and log S at zero, flat; None without breaks.

    The starting point is found by linear interpolation of log Λ over log t between some of the breaks.
    """
    breaks = sorted(b for b in breaks if b > 0)
    if len(breaks) < 3:
        return None
    times = torch.tensor([0.0, *breaks[:: math.ceil(len(breaks) / _FIRST_LOOKS)]]).to(level)
    known = log_survival(times[None]).detach()
    u, heights = torch.log(times[1:]), torch.log((-known[:, 1:]).clamp_min(0.0)).contiguous()
    target = torch.log(-level).contiguous()
    right = torch.searchsorted(heights, target).clamp(1, len(u) - 1)
    low, high = heights.gather(1, right - 1), heights.gather(1, right)
    share = ((target - low) / (high - low)).nan_to_num(nan=0.5, posinf=0.5, neginf=0.5)
    places = u[right - 1] + share.clamp(-2.0, 3.0) * (u[right] - u[right - 1])
    return places.reshape(-1), known[:, :1].expand_as(level).reshape(-1)


class _Search:
    """The state of the iteration for the levels that have not converged: positions, brackets, the last gap."""

    def __init__(self, who: Tensor, target: Tensor, begin: Tensor) -> None:
        self.who, self.target, self.u = who, target[who], begin[who]
        self.low, self.high = torch.full_like(self.u, -math.inf), torch.full_like(self.u, math.inf)
        self.last_gap = torch.full_like(self.u, math.inf)
        self.hit = torch.zeros_like(self.who, dtype=torch.bool)  # the curve equals the level at ``high``

    def advance(self, log_survival: Tensor, log_density: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step, given the curve at the current positions; return the levels that converged and their times."""
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
        # the interpolated density of a step function is not its slope: use Newton steps only while they help
        trusted = (newton > low) & (newton < high) & (slope > 0) & (gap.abs() <= 0.5 * self.last_gap)
        # at the level: a probe to the left tells a crossing from a flat stretch, whose start is the quantile
        proposal = torch.where(trusted, newton, middle)
        proposal = torch.where(self.hit & (u == high) & (self.last_gap > 2 * tolerance), u - probe, proposal)
        proposal = proposal.clamp(_LOG_MIN, _LOG_MAX)
        width = tolerance * u.abs().clamp_min(1.0)
        bracketed = (high - low <= 4 * width) | (self.hit & (high - low <= 1.5 * probe))
        stuck = (proposal - u).abs() <= width
        # Newton steps shrink superlinearly: if the next step would be below the goal, this one is the last
        shrink = torch.where(torch.isinf(self.last_gap), math.inf, gap.abs() / self.last_gap)
        arrived = trusted & (gap.abs() > tolerance) & ((newton - u).abs() * shrink <= max(_GOAL, tolerance))
        self.u = torch.where(bracketed, high, proposal)
        self.last_gap = gap.abs()
        return self._settle(bracketed | stuck | arrived)

    def _settle(self, done: Tensor) -> tuple[Tensor, Tensor]:
        u, low, high = self.u[done], self.low[done], self.high[done]
        t = torch.exp(u)
        t = torch.where(torch.isinf(high) & (u >= _LOG_MAX), math.inf, t)  # the level is never reached
        t = torch.where(torch.isinf(low) & (u <= _LOG_MIN), 0.0, t)  # the level is reached at time zero
        settled = self.who[done]
        for name in ("who", "target", "u", "low", "high", "last_gap", "hit"):
            setattr(self, name, getattr(self, name)[~done])
        return settled, t


def mean_survival_time(
    survival: Callable[[Tensor, Tensor], Tensor],
    horizon: Tensor,
    precision: float = 0.0,
    breaks: Sequence[float] = (),
) -> Tensor:
    r"""∫₀^horizon S(t) dt by adaptive quadrature (Patterson's rules) in log time.

    The relative error is about 1e-10, or 16 times the ``precision`` of a less accurate curve (single precision).

    Parameters
    ----------
    survival : callable
        (rows of shape (k,), times of shape (k, m)) to S of shape (k, m).
    horizon : Tensor of shape (n,)
        Upper limits. For inf, the end is found from the decay of t·S(t), and the result is inf if that does not
        decay.
    precision : float
        The relative rounding error of ``survival``, below which panels are not subdivided.
    breaks : sequence of float
        Times at which S is not smooth: panels end there.
    """
    rows = torch.arange(len(horizon), device=horizon.device)
    end, open_ended = torch.log(horizon), torch.isinf(horizon)
    if bool(open_ended.any()):
        end = torch.where(open_ended, _far_end(survival, rows, end), end)
    diverges = torch.isinf(end) & (end > 0)
    empty = torch.isinf(end) & (end < 0)
    ends = torch.where(torch.isinf(end), torch.zeros_like(end), end)
    result = _integrate(survival, rows, ends, max(1e-12, 16.0 * precision), breaks)
    result = torch.where(diverges, math.inf, result)
    return torch.where(empty, torch.zeros_like(result), result)


def _far_end(survival: Callable[[Tensor, Tensor], Tensor], rows: Tensor, like: Tensor) -> Tensor:
    """Return the log of a time beyond which ∫ S is below 1e-13 of the whole, in steps of 2; inf if there is none."""
    u = 2.0 * torch.arange(-14, 343, device=like.device).to(like)[None]  # up to the largest float64
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
    """∫₀^exp(end) S(t) dt for each row, over panels of log time that are halved until each is accurate."""
    if len(rows) == 0:
        return torch.zeros_like(end)
    # Panel edges at multiples of 2 in log time. Before the first edge, S hardly changes or the time is negligible.
    top = torch.ceil(end / 2) * 2
    highest, lowest = float(top.max()), float(top.min())
    for panels in (6, 9, 14, 22, 44, 88, 176, 352, 704):
        count = panels + round((highest - lowest) / 2)
        edges = highest - 2.0 * torch.arange(count + 1, device=end.device).to(end)
        first = torch.exp(edges[-1])
        s_first = survival(rows, first.expand(1, 1))[:, 0]
        # the integral is at least end · S(end), because S does not increase
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
        smooth=False,
    )
