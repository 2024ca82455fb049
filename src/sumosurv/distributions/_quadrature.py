"""Quadrature over panels of time, vectorised over subjects, with error control."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.polynomial import legendre
from torch import Tensor

from sumosurv.grouped_sum import add_by_group

Function = Callable[[Tensor, Tensor], Tensor]  # rows (k,) and positions (k or 1, m) to values (k, m)

_MANY = 0.25  # a panel that is inaccurate for a larger proportion of rows is refined for all rows
_SHARED_CUTS = 5  # most times that a panel is halved for all rows
_LEAST = 1e-6  # smallest error estimate of a rule, relative to the difference of the two coarser rules
_PILOT = 128  # rows on which the rules of shared panels are chosen
_MANY_ROWS = 4_096  # more rows than this are worth a pilot
_SIZES = 3, 4, 5, 6, 7, 8, 10, 12  # numbers of nodes to choose from
_DENSE = 31  # nodes that find the errors of these rules, which are exact for polynomials of twice their size
_SAFETY = 10.0  # by which the largest error of the pilot rows is multiplied


def integrate_panels(
    function: Function,
    start: Tensor,
    end: Tensor,
    edges: Tensor,
    precision: float,
    total: Tensor | None = None,
    *,
    smooth: bool = True,
) -> Tensor:
    """Return ``total`` plus ∫ function(u) du from start to end, each (n,), over panels between given edges.

    Panels that most rows share are evaluated on one grid, which is refined while the error is too large for many rows;
    the remaining panels are halved row by row. For a function that is ``smooth`` between the edges, a few nodes suffice
    for an error of 1e-9, and the grid of many rows is chosen on some of them; a function with kinks at unknown
    positions is evaluated at more nodes.
    """
    rows = torch.arange(len(start), device=start.device)
    total = torch.zeros_like(start) if total is None else total
    lower = torch.maximum(edges[None, :-1], start[:, None])
    upper = torch.minimum(edges[None, 1:], end[:, None])
    wanted = upper > lower
    if not bool(wanted.any()):
        return total
    rule, small = _Rule(start, smooth), 1e-9 if smooth else 1e-11
    goal = _Goal(max(small, 16 * precision), max(0.1 * small, 16 * precision))
    usual_lower, usual_upper = lower.median(0).values, upper.median(0).values
    whole = wanted & (lower == usual_lower) & (upper == usual_upper)
    shared = whole.sum(0) > 0.5 * len(rows)  # panels of most rows
    pieces: list[_Panels] = []
    if bool(shared.any()):
        ends, own = (usual_lower[shared], usual_upper[shared]), whole[:, shared]
        if smooth and len(rows) > _MANY_ROWS and bool(own.all()):
            pieces = [_by_pilot(function, rows, *ends, goal)]
        else:
            pieces = rule.on_shared_panels(function, rows, *ends, own, goal)
    rest = wanted & ~(whole & shared)
    if bool(rest.any()):
        who = rows[:, None].expand_as(lower)[rest]
        pieces.append(rule.on_panels(function, who, lower[rest], upper[rest]))
    return _adaptive(function, rule, _Panels.join(pieces), total, goal)


def panel_edges(breaks: Sequence[float], last: float) -> list[float]:
    """Return panel edges from zero to the last time: the breaks, and more, so that a panel ends by 8 × its start."""
    edges = [last]
    for start in sorted(breaks, reverse=True):
        edges += _shrinking(edges[-1], start)
        edges.append(start)
    return [0.0, *sorted({*edges, *_shrinking(edges[-1], last / 512)})]


def _shrinking(high: float, low: float) -> list[float]:
    """high / 8, high / 64, ... down to low."""
    steps = max(0, math.ceil(math.log(high / low) / math.log(8.0)) - 1)
    return [high * (low / high) ** (j / (steps + 1)) for j in range(1, steps + 1)]


def squared_areas(survival: Function, at: Tensor, breaks: Sequence[float], precision: float) -> tuple[Tensor, Tensor]:
    """Return (∫₀^at F², ∫_at^last S²) of each row, where ``last`` is the last of the breaks, for ``at`` up to ``last``.

    Curves are smooth on the panels between the breaks. All rows are evaluated once, at the same times; only the panel
    that contains ``at`` is split for each row.
    """
    last = max(breaks)
    edges = torch.tensor(panel_edges([b for b in breaks if 0.0 < b < last], last)).to(at)
    rows, rule = torch.arange(len(at), device=at.device), _Rule(at, smooth=False)
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

        mean, error = rule.sum(square(values))
        shape = whole.shape
        ends_of_all = edges[:-1].expand(shape), edges[1:].expand(shape)
        on_grid = _Panels(rows[:, None].expand(shape), *ends_of_all, half * mean, half * error)
        cut = rule.on_panels(function, rows, *ends)
        panels, small = _Panels.join([on_grid.pick(whole), cut]), max(1e-10, 16 * precision)
        areas.append(_adaptive(function, rule, panels, torch.zeros_like(at), _Goal(small, 0.1 * small)))
    return areas[0], areas[1]


def _squared_cdf(survival: Tensor) -> Tensor:
    return (1.0 - survival).square()


class _Goal(NamedTuple):
    """The accuracy required of each panel."""

    of_size: float  # relative to the row's whole integral
    of_panel: float  # plus this, relative to the panel's integral

    def missed(self, panels: _Panels, size: Tensor) -> Tensor:
        """Return which panels are not accurate enough, given the size of the whole integral of their rows."""
        return panels.error > self.of_size * size + self.of_panel * panels.integral.abs()


def _adaptive(function: Function, rule: _Rule, panels: _Panels, total: Tensor, goal: _Goal) -> Tensor:
    """Add to each row's total the integrals over its panels, which are halved until each is accurate.

    The size of a row's whole integral is estimated from the first pass.
    """
    size = add_by_group(total, panels.who, panels.integral).abs()
    for _ in range(48):
        missed = goal.missed(panels, size[panels.who])
        total = add_by_group(total, panels.who[~missed], panels.integral[~missed])
        if not bool(missed.any()):
            return total
        left = panels.pick(missed)
        middle = 0.5 * (left.a + left.b)
        who = torch.cat([left.who, left.who])
        panels = rule.on_panels(function, who, torch.cat([left.a, middle]), torch.cat([middle, left.b]))
    return add_by_group(total, panels.who, panels.integral)


class _Panels(NamedTuple):
    """Intervals [a, b] of some rows, the integral over each, and its error."""

    who: Tensor
    a: Tensor
    b: Tensor
    integral: Tensor
    error: Tensor

    def pick(self, which: Tensor) -> _Panels:
        """Return the panels that a mask selects."""
        return _Panels(*(part[which] for part in self))

    @classmethod
    def join(cls, pieces: list[_Panels]) -> _Panels:
        """Return the panels of all pieces, flat."""
        return cls(*(torch.cat([part.reshape(-1) for part in parts]) for parts in zip(*pieces)))


def _by_pilot(function: Function, rows: Tensor, a: Tensor, b: Tensor, goal: _Goal) -> _Panels:
    """Integrate panels that all rows share by Gauss rules, which are chosen on some of the rows.

    If the last Legendre coefficients of a row are no larger than those of the pilot rows, its error is estimated by
    the largest error of the pilot rows; otherwise it is extrapolated from the decay of the coefficients.
    """
    pilot = rows[torch.linspace(0, len(rows) - 1, _PILOT, device=rows.device).long()]
    a, b, rule, worst, usual = _choose_rules(function, pilot, a, b, goal)
    order = rule.argsort(stable=True)
    a, b, worst, usual = (part[order] for part in (a, b, worst, usual))
    counts = torch.bincount(rule, minlength=len(_SIZES)).tolist()
    middle, half = 0.5 * (a + b), 0.5 * (b - a)
    rules = [tuple(part.to(a) for part in rule) for rule in _gauss_rules()]
    own = list(zip(*(torch.split(part, counts) for part in (middle, half, worst, usual))))
    places = [(m[:, None] + h[:, None] * nodes).ravel() for (m, h, *_), (nodes, *_) in zip(own, rules)]
    values = torch.split(function(rows, torch.cat(places)[None]), [len(part) for part in places], dim=1)
    integrals, errors = [], []
    for part, k, (_, h, worst_of_pilot, last_of_pilot), (_, weights, coefficients) in zip(values, _SIZES, own, rules):
        at_nodes = part.reshape(len(rows), len(h), k)
        integral = at_nodes @ weights
        size, last = integral.abs(), (at_nodes @ coefficients[:, :2]).abs().sum(2)
        error = worst_of_pilot * size
        rougher = last > last_of_pilot * size
        last, before = last[rougher], (at_nodes[rougher] @ coefficients[:, 2:]).abs().sum(1)
        decay = (last / before.clamp_min(torch.finfo(a.dtype).tiny)).clamp_max(1.0)
        error[rougher] = _SAFETY * last * decay ** (k / 2 - 1)
        integrals.append(h * integral)
        errors.append(h * error)
    shape = len(rows), len(a)
    return _Panels(
        rows[:, None].expand(shape), a.expand(shape), b.expand(shape), torch.cat(integrals, 1), torch.cat(errors, 1)
    )


def _choose_rules(function: Function, rows: Tensor, a: Tensor, b: Tensor, goal: _Goal) -> tuple[Tensor, ...]:
    """Give each panel the smallest Gauss rule that is accurate for all rows, or halve it.

    Returns the ends of the panels, the places of their rules in `_SIZES`, and the largest error (times a safety factor)
    and last Legendre coefficients, relative to the integral over the panel. Rows to whose whole integral a panel adds
    little do not count for these.
    """
    nodes, weights, of_error, of_last = (part.to(a) for part in _dense_rule())
    tiny = torch.finfo(a.dtype).tiny
    found: list[tuple[Tensor, ...]] = []
    size: Tensor | None = None
    for cut in range(_SHARED_CUTS + 1):
        middle, half = 0.5 * (a + b), 0.5 * (b - a)
        places = middle[:, None] + half[:, None] * nodes
        values = function(rows, places.reshape(1, -1)).reshape(len(rows), *places.shape)
        size = (half * (values @ weights)).sum(1, keepdim=True).abs() if size is None else size
        relative = (half[:, None] * values / size[..., None]).nan_to_num(0.0, 0.0, 0.0)
        share = (relative @ weights).abs()
        most = share.amax(0)[:, None]
        inverse = torch.where(share >= 0.1 * most.T, 1.0 / share.clamp_min(tiny), 0.0)[..., None]
        worst = _SAFETY * ((relative @ of_error).abs() * inverse).amax(0)
        last = (torch.tensordot(relative, of_last, 1).abs().sum(3) * inverse).amax(0)
        enough = worst * most <= goal.of_size + goal.of_panel * most
        enough[:, -1] |= cut == _SHARED_CUTS
        done, rule = enough.any(1), enough.int().argmax(1, keepdim=True)
        parts = a, b, rule[:, 0], worst.gather(1, rule)[:, 0], last.gather(1, rule)[:, 0]
        found.append(tuple(part[done] for part in parts))
        if bool(done.all()):
            break
        a, b = torch.cat([a[~done], middle[~done]]), torch.cat([middle[~done], b[~done]])
    return tuple(torch.cat(parts) for parts in zip(*found))


@cache
def _gauss_rules() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return nodes and weights of Gauss rules on [-1, 1], and weights (k, 4) of the last Legendre coefficients."""
    rules = []
    for k in _SIZES:
        nodes, weights = legendre.leggauss(k)
        series = np.pad(legendre.legvander(nodes, k - 1), ((0, 0), (1, 0)))[:, :-5:-1]
        rules.append((nodes, weights, weights[:, None] * series))
    return [tuple(map(torch.from_numpy, rule)) for rule in rules]  # type: ignore[misc]


@cache
def _dense_rule() -> tuple[Tensor, ...]:
    """Return a Gauss rule of many nodes, and weights of its values for the polynomial through these.

    The weights give the error of each rule of `_gauss_rules`, (nodes, sizes), and the last two Legendre coefficients
    from its nodes, (nodes, sizes, 2).
    """
    nodes, weights = legendre.leggauss(_DENSE)
    to_series = (legendre.legvander(nodes, _DENSE - 1) * weights[:, None]).T * (np.arange(_DENSE) + 0.5)[:, None]
    errors, lasts = [], []
    for own_nodes, own_weights, coefficients in _gauss_rules():
        interpolate = legendre.legvander(own_nodes.numpy(), _DENSE - 1) @ to_series
        errors.append(own_weights.numpy() @ interpolate - weights)
        lasts.append(coefficients.numpy().T[:2] @ interpolate)
    found = nodes, weights, np.stack(errors, axis=1), np.moveaxis(np.array(lasts), 2, 0)
    return tuple(torch.from_numpy(np.ascontiguousarray(part)) for part in found)


class _Rule:
    """Patterson's nested rules of 3, 7 and 15 nodes, exact to degrees 5, 11 and 23."""

    def __init__(self, like: Tensor, smooth: bool) -> None:
        self.smooth = smooth
        nodes, *weights = (torch.from_numpy(part).to(like) for part in _patterson())
        self.nodes = nodes
        self.of_1, self.of_3, self.of_7, self.of_15 = weights

    def on_shared_panels(
        self, function: Function, rows: Tensor, a: Tensor, b: Tensor, whole: Tensor, goal: _Goal
    ) -> list[_Panels]:
        """Integrate panels that rows share (``whole``, (rows, panels)), refining them until few rows miss the goal.

        A panel is refined by more nodes first, then by halving, up to a limit. Returns the panels of each pass.
        """
        found: list[_Panels] = []
        size: Tensor | None = None
        for _ in range(_SHARED_CUTS):
            values = self._at_nodes(function, rows, a, b, slice(0, 7))
            if self.smooth:
                made = self._panels(rows, a, b, *self._sum_7(values))
                size = (made.integral.abs() * whole).sum(1, keepdim=True) if size is None else size
                coarse = self._mostly_missed(made, whole, size, goal)
                found.append(made.pick(whole & ~coarse))
                if not bool(coarse.any()):
                    return found
                a, b, whole, values = a[coarse], b[coarse], whole[:, coarse], values[:, coarse]
            more = self._at_nodes(function, rows, a, b, slice(7, 15))
            made = self._panels(rows, a, b, *self.sum(torch.cat([values, more], dim=2)))
            size = (made.integral.abs() * whole).sum(1, keepdim=True) if size is None else size
            coarse = self._mostly_missed(made, whole, size, goal)
            found.append(made.pick(whole & ~coarse))
            middle = 0.5 * (a + b)
            a, b = torch.cat([a[coarse], middle[coarse]]), torch.cat([middle[coarse], b[coarse]])
            whole = whole[:, coarse].repeat(1, 2)
            if not len(a):
                return found
        values = self._at_nodes(function, rows, a, b, slice(0, 15))
        return [*found, self._panels(rows, a, b, *self.sum(values)).pick(whole)]

    @staticmethod
    def _mostly_missed(made: _Panels, whole: Tensor, size: Tensor, goal: _Goal) -> Tensor:
        return (whole & goal.missed(made, size)).sum(0) > _MANY * whole.sum(0)

    def _at_nodes(self, function: Function, rows: Tensor, a: Tensor, b: Tensor, which: slice) -> Tensor:
        """Evaluate the function at some nodes of shared panels, (rows, panels, nodes)."""
        places = (0.5 * (a + b))[:, None] + (0.5 * (b - a))[:, None] * self.nodes[which]
        return function(rows, places.reshape(1, -1)).reshape(len(rows), *places.shape)

    @staticmethod
    def _panels(rows: Tensor, a: Tensor, b: Tensor, mean: Tensor, error: Tensor) -> _Panels:
        half, shape = 0.5 * (b - a), mean.shape
        return _Panels(rows[:, None].expand(shape), a.expand(shape), b.expand(shape), half * mean, half * error)

    def on_panels(self, function: Function, who: Tensor, a: Tensor, b: Tensor) -> _Panels:
        """Integrate panels of single rows."""
        half = 0.5 * (b - a)
        mean, error = self.sum(function(who, 0.5 * (a + b)[:, None] + half[:, None] * self.nodes))
        return _Panels(who, a, b, half * mean, half * error)

    def sum(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the integral over [-1, 1] by all 15 nodes, and its error."""
        return _sum(values, self.of_15, self.of_7, self.of_3, self.smooth)

    def _sum_7(self, values: Tensor) -> tuple[Tensor, Tensor]:
        return _sum(values, self.of_7[:7], self.of_3[:7], self.of_1[:7], self.smooth)


def _sum(values: Tensor, fine: Tensor, middle: Tensor, coarse: Tensor, smooth: bool) -> tuple[Tensor, Tensor]:
    """Return the integral by the finest of three rules, and an estimate of its error.

    The estimate is QUADPACK's. For a smooth function, the error decreases from the second rule to the third by a larger
    factor than from the first to the second; ten times the error extrapolated in this way is used if it is smaller.
    Two rules may agree by chance, so the error is never assumed to decrease by more than a factor of a million.
    """
    best, second = values @ fine, values @ middle
    gap, tiny = (best - second).abs(), torch.finfo(values.dtype).tiny
    spread = (values - 0.5 * best[..., None]).abs() @ fine
    quadpack = spread * (200.0 * gap / spread.clamp_min(tiny)).pow(1.5).clamp_max(1.0)
    if not smooth:
        return best, quadpack
    before = (second - values @ coarse).abs()
    fallen = gap * (10.0 * gap / before.clamp_min(tiny)).clamp_max(1.0)
    return best, torch.maximum(torch.minimum(quadpack, fallen), _LEAST * before)


def _patterson() -> tuple[np.ndarray, ...]:
    """Return 15 nodes on [-1, 1], whose first 1, 3 and 7 are also rules, and the weights of the four rules."""
    x = np.array([0.0, 0.774596669241483377035853079956480,
                  0.434243749346802558002071502844628, 0.960491268708020283423507092629080,
                  0.223386686428966881628203986843998, 0.621102946737226402940687443816595,
                  0.888459232872256998890420167258503, 0.993831963212755022208512841307951])  # fmt: skip
    w_15 = np.array([0.225510499798206687386422549155950, 0.134415255243784220359968764802492,
                     0.200628529376989021033931873331359, 0.0516032829970797396969201205678610,
                     0.219156858401587496403693161643774, 0.171511909136391380787353165019717,
                     0.0929271953151245376858942226541688, 0.0170017196299402603390274174026535])  # fmt: skip
    w_7 = np.array([0.450916538658474142345110087045571, 0.268488089868333440728569280666710,
                    0.401397414775962222905051818618432, 0.104656226026467265193823857192073])  # fmt: skip
    w_3, w_1 = np.array([8.0, 5.0]) / 9.0, np.array([2.0])

    def both_sides(half: np.ndarray, sign: float = 1.0) -> np.ndarray:
        pairs = np.stack([sign * half[1:], half[1:]], axis=1).ravel()
        return np.concatenate([half[:1], pairs, np.zeros(15 - 1 - len(pairs))])

    return both_sides(x, -1.0), *(both_sides(w) for w in (w_1, w_3, w_7, w_15))
