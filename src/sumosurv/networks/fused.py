r"""The mixed network for prediction: the same numbers as `MixedNetwork`, without gradients and several times faster.

What makes it fast, with σ the logistic function and tanh z = 2σ(2z) - 1 throughout, the 2 and the -1 being folded into
the weights of the next layer:

- Without gates the first layer is a sum of a part of the subject and a part of time, so that
  σ(A + B) = 1 / (1 + exp(-A) exp(-B)) needs exponentials once per subject and once per time, and one division per cell.
- With gates it is one product of the time features of the grid with a small table per subject.
- Subjects are taken a few at a time, so that the hidden layers stay in the cache; only the result is written to memory.
- Units are the rows and cells (subject, time) the columns of every matrix: of the two ways to lay out a product of a
  small square matrix with a long one, the one that processors are better at.
- Features of time are computed once for all members that share them.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from sumosurv.distributions.monotone import HEADS, NEEDS_SLOPE, Quantity
from sumosurv.networks.layers import Positive, positive_weight
from sumosurv.networks.time import TimeFeatures

__all__ = ["FusedCurve", "fused_curves"]

_CACHE_BYTES = 1 << 21  # of one hidden layer, for each thread of the CPU
_GPU_CELLS = 1 << 20  # subjects × times at once where there is no kernel
_LARGEST_EXPONENT = {torch.float64: 700.0, torch.float32: 85.0}  # exp of it is still finite
_KEPT_CELLS = 1 << 18  # times of subjects' own whose features are kept for the next member


class Mixed(Protocol):
    """What is read of a `MixedNetwork`."""

    features: TimeFeatures
    positive: Positive
    residual: bool
    gate: bool
    skip: bool
    width: int
    active: Tensor
    time_weight: nn.Parameter
    weights: nn.ParameterList
    biases: nn.ParameterList
    out_weight: nn.Parameter
    out_bias: nn.Parameter

    def parameters(self) -> Iterator[nn.Parameter]:
        """All of its parameters."""


class Layer(NamedTuple):
    """σ(weight x + bias), with x added where ``residual``; units are rows, cells are columns."""

    weight: Tensor
    bias: Tensor
    residual: bool


class MemberTimes:
    """τ and τ' of one time axis, kept while the members of a mixture ask for the same times one after another."""

    def __init__(self, features: TimeFeatures, member: int) -> None:
        self._features = TimeFeatures(features.kind)
        own = member if features.table.shape[0] > 1 else 0
        self._features.table = features.table[own : own + 1].detach()
        self._kept: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=3)  # the times, zero, the ends of the tail

    def breaks(self) -> list[float]:
        """Times at which a feature is not smooth."""
        return self._features.breaks()

    def __call__(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Features and slopes, (n or 1, m, F), in the precision of the table or better."""
        for times, value, slope in self._kept:
            if times.shape == t.shape and times.dtype == t.dtype and torch.equal(times, t):
                return value, slope
        exact = t.to(torch.promote_types(t.dtype, self._features.table.dtype))
        value, slope = (part[0] for part in self._features(exact[None]))
        if t.numel() <= _KEPT_CELLS:
            self._kept.append((t.clone(), value, slope))  # a caller may change its own
        return value, slope


class Workspace:
    """Memory for the hidden layers that every tile uses again: fresh pages cost more than the arithmetic on them."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._held: dict[str, Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """An uninitialised tensor; one of the same name may be overwritten."""
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < size:
            held = self._held[name] = self._like.new_empty(size)
        return held[:size].view(shape)


class FusedCurve:
    """h and dh/dt of one member, and what the survival head makes of them, for many subjects and times.

    Parameters
    ----------
    mixed : MixedNetwork
        The population.
    member : int
        Which of its members.
    times : MemberTimes
        Its features of time.
    exact_slope : bool
        False where the caller wants another derivative than the one carried forward; then only survival is offered.
    """

    def __init__(self, mixed: Mixed, member: int, times: MemberTimes, *, exact_slope: bool = True) -> None:
        self.times, self.exact_slope = times, exact_slope
        self.gate, self.skip, self.width = mixed.gate, mixed.skip, mixed.width
        self.trainable = any(p.requires_grad for p in mixed.parameters())
        with torch.no_grad():
            self._fold(mixed, member)

    def _fold(self, mixed: Mixed, k: int) -> None:
        """The weights of σ in place of tanh: a = 2s - c with s = σ(2z), summed over residual connections."""

        def positive(raw: Tensor) -> Tensor:
            return positive_weight(raw[k].detach(), mixed.positive)

        self.time_weight = 2.0 * positive(mixed.time_weight).T.contiguous()  # (width, F)
        self.layers: list[Layer] = []
        shift = 1.0
        for place, (raw, bias) in enumerate(zip(mixed.weights, mixed.biases), start=1):
            if mixed.active.numel() and not bool(mixed.active[k, place]):
                continue  # a member of a stack that has fewer layers
            weight = positive(raw).T.contiguous()
            residual = mixed.residual and weight.shape[0] == weight.shape[1]
            own = bias[k, 0].detach() - shift * weight.sum(1)
            self.layers.append(Layer(4.0 * weight, 2.0 * own[:, None], residual))
            shift = shift + 1.0 if residual else 1.0
        last = positive(mixed.out_weight).T.contiguous()
        self.out_weight = 2.0 * last  # (1, width)
        self.out_bias = mixed.out_bias[k, 0].detach() - shift * last.sum(1)

    def to(self, dtype: torch.dtype) -> FusedCurve:
        """The same curve with its weights rounded to another precision."""
        made = object.__new__(FusedCurve)
        made.__dict__.update(self.__dict__)
        made.time_weight, made.out_weight, made.out_bias = (
            part.to(dtype) for part in (self.time_weight, self.out_weight, self.out_bias)
        )
        made.layers = [Layer(w.to(dtype), b.to(dtype), residual) for w, b, residual in self.layers]
        return made

    def serves(self, quantity: Quantity, code: Tensor, t: Tensor) -> bool:
        """Whether this path can answer: no gradient is wanted, and the slope is the one carried forward."""
        if quantity in NEEDS_SLOPE and not self.exact_slope:
            return False
        if code.dtype != self.time_weight.dtype:
            return False
        return not (torch.is_grad_enabled() and (self.trainable or code.requires_grad or t.requires_grad))

    def evaluate(self, quantity: Quantity, code: Tensor, t: Tensor, log_start: Tensor | None) -> tuple[Tensor, ...]:
        """A quantity of the survival head, each (n, m), for codes (n, w), times (n or 1, m) and log S(0) (n, 1)."""
        with torch.no_grad():
            on_cuda = code.is_cuda and code.dtype == torch.float32
            if on_cuda and (kernel := _triton_kernel()) is not None and kernel.supports(self):
                try:
                    results: tuple[Tensor, ...] = kernel.evaluate(self, quantity, code, t, log_start)
                    return results
                except torch.OutOfMemoryError:
                    raise
                except kernel.FAILURES as error:
                    _give_up_triton(error)
            return self._by_tiles(quantity, code, t, log_start)

    def _by_tiles(self, quantity: Quantity, code: Tensor, t: Tensor, log_start: Tensor | None) -> tuple[Tensor, ...]:
        n, m, with_slope = len(code), t.shape[1], quantity in NEEDS_SLOPE
        results = tuple(code.new_empty(n, m) for _ in range(2 if quantity == "log_both" else 1))
        if n * m == 0:
            return results
        work = Workspace(code)
        tile = self._shared_grid(code, t, with_slope) if t.shape[0] == 1 else None
        ready = self.times(t) if tile is None and t.numel() <= _KEPT_CELLS else None
        cache = _CACHE_BYTES * torch.get_num_threads()
        cells = _GPU_CELLS if code.is_cuda else cache // (code.element_size() * self._widest())
        step = max(1, cells // m)
        for i in range(0, n, step):
            rows = slice(i, min(i + step, n))
            if tile is None:
                times = self.times(t[rows]) if ready is None else (ready[0][rows], ready[1][rows])
                h, slope = self._own_times(code[rows], times, with_slope, work)
            else:
                h, slope = tile(rows, work)
            start = None if log_start is None else log_start[rows]
            _head(quantity, h, slope, start, [result[rows] for result in results])
        return results

    def _widest(self) -> int:
        return max([self.width, *(len(layer.weight) for layer in self.layers)])

    # ------------------------------------------------------------------ the first layer

    def _shared_grid(self, code: Tensor, t: Tensor, with_slope: bool) -> _Tile:
        """The first layer for one grid of times that all subjects share: a function of a slice of the subjects."""
        value, slope = (part[0].T.contiguous().to(code.dtype) for part in self.times(t))
        if not self.gate:
            limit = _LARGEST_EXPONENT[code.dtype]
            of_time, of_subject = self.time_weight @ value, 2.0 * code[:, : self.width]
            if bool((of_time.abs() < limit).all()) and bool((of_subject.abs() < limit).all()):
                return _Separable(self, code, value, slope, with_slope)
        return _Gated(self, code, value, slope, with_slope)

    def _own_times(
        self, code: Tensor, times: tuple[Tensor, Tensor], with_slope: bool, work: Workspace
    ) -> tuple[Tensor, Tensor | None]:
        """h and its slope where each subject has times of its own, given by their features (n, m, F)."""
        value, slope = (part.to(code.dtype) for part in times)
        n, m, f = value.shape
        if self.gate:
            gates = code[:, None, self.width : self.width + f]
            value, slope = value * gates, slope * gates
        cells = (self.width, n * m)
        s = torch.mm(self.time_weight, value.reshape(-1, f).T, out=work("s", *cells))
        s.view(self.width, n, m).add_(2.0 * code[:, : self.width].T[:, :, None])
        s.sigmoid_()
        ds = None
        if with_slope:
            ds = torch.mm(self.time_weight, slope.reshape(-1, f).T, out=work("ds", *cells))
            ds.mul_(torch.addcmul(s, s, s, value=-1, out=work("steep", *cells)))
        h, dh = self.deep_layers(s, ds, work)
        h, dh = h.view(n, m), None if dh is None else dh.view(n, m)
        if self.skip:
            direct = code[:, -f:, None]
            h.add_((value @ direct)[:, :, 0])
            if dh is not None:
                dh.add_((slope @ direct)[:, :, 0])
        return h, dh

    # ------------------------------------------------------------------ the others

    def deep_layers(self, s: Tensor, ds: Tensor | None, work: Workspace) -> tuple[Tensor, Tensor | None]:
        """h and its slope, (cells,) each, from the first layer's s and ds (width, cells)."""
        for place, (weight, bias, residual) in enumerate(self.layers):
            shape, turn = (len(weight), s.shape[1]), place % 2  # a layer reads one half of the memory, writes the other
            new = torch.addmm(bias, weight, s, out=work(f"new {turn}", *shape)).sigmoid_()
            d_new = None
            if ds is not None:
                d_new = torch.mm(weight, ds, out=work(f"d_new {turn}", *shape))
                d_new.mul_(torch.addcmul(new, new, new, value=-1, out=work("steep", *shape)))
            if residual:
                new.add_(s)
                d_new = None if d_new is None or ds is None else d_new.add_(ds)
            s, ds = new, d_new
        h = torch.mm(self.out_weight, s, out=work("h", 1, s.shape[1]))[0].add_(self.out_bias)
        return h, None if ds is None else torch.mm(self.out_weight, ds, out=work("dh", 1, s.shape[1]))[0]


def _head(
    quantity: Quantity, h: Tensor, slope: Tensor | None, log_start: Tensor | None, results: Sequence[Tensor]
) -> None:
    """The survival head of a tile, written where it belongs; h and its slope are used up."""
    if quantity == "survival":
        torch.sigmoid(h.neg_(), out=results[0])
    elif quantity == "density" and slope is not None:
        torch.mul(slope, torch.sigmoid(h), out=results[0])
        results[0].mul_(h.neg_().sigmoid_())
    else:
        for result, part in zip(results, HEADS[quantity](h, slope, log_start)):
            result.copy_(part)
        return
    if log_start is not None:
        results[0].mul_(torch.exp(-log_start))
        if quantity == "survival":
            results[0].clamp_max_(1.0)


class _Tile(ABC):
    """A shared grid with features and slopes (F, m), ready to be evaluated for a slice of the subjects."""

    def __init__(self, curve: FusedCurve, code: Tensor, value: Tensor, slope: Tensor, with_slope: bool) -> None:
        self.curve, self.with_slope, f = curve, with_slope, len(value)
        self.value, self.slope = value, slope
        self.gates = code[:, curve.width : curve.width + f] if curve.gate else None
        self.direct: Tensor | None = None
        if curve.skip:
            self.direct = code[:, -f:] if self.gates is None else code[:, -f:] * self.gates
        self.prepare(code)

    @abstractmethod
    def prepare(self, code: Tensor) -> None:
        """What is computed once for all subjects."""

    @abstractmethod
    def first_layer(self, rows: slice, work: Workspace) -> tuple[Tensor, Tensor | None]:
        """s and its slope, (width, rows × m)."""

    def __call__(self, rows: slice, work: Workspace) -> tuple[Tensor, Tensor | None]:
        """h and its slope, (rows, m)."""
        h, dh = self.curve.deep_layers(*self.first_layer(rows, work), work)
        m = self.value.shape[1]
        h, dh = h.view(-1, m), None if dh is None else dh.view(-1, m)
        if self.direct is not None:
            h.addmm_(self.direct[rows], self.value)
            if dh is not None:
                dh.addmm_(self.direct[rows], self.slope)
        return h, dh


class _Separable(_Tile):
    """No gates: exponentials of the subject's part and of the time's part meet in one division."""

    def prepare(self, code: Tensor) -> None:
        self.of_subject = torch.exp(-2.0 * code[:, : self.curve.width].T.contiguous())[:, :, None]
        self.of_time = torch.exp(-(self.curve.time_weight @ self.value))[:, None, :]
        self.rate = (self.curve.time_weight @ self.slope)[:, None, :]

    def first_layer(self, rows: slice, work: Workspace) -> tuple[Tensor, Tensor | None]:
        of_subject = self.of_subject[:, rows]
        shape = (self.curve.width, of_subject.shape[1], self.of_time.shape[2])
        s = torch.mul(of_subject, self.of_time, out=work("s", *shape)).add_(1.0).reciprocal_()
        if not self.with_slope:
            return s.flatten(1), None
        ds = torch.addcmul(s, s, s, value=-1, out=work("ds", *shape)).mul_(self.rate)
        return s.flatten(1), ds.flatten(1)


class _Gated(_Tile):
    """One product of each subject's gated weights, its own part beside them, with the grid's features."""

    def prepare(self, code: Tensor) -> None:
        self.own = code[:, : self.curve.width].T
        self.with_one = torch.cat([self.value, torch.ones_like(self.value[:1])])

    def first_layer(self, rows: slice, work: Workspace) -> tuple[Tensor, Tensor | None]:
        own, width, f = self.own[:, rows], self.curve.width, len(self.value)
        table = work("table", *own.shape, f + 1)
        weight = self.curve.time_weight[:, None, :]
        if self.gates is None:
            table[:, :, :f] = weight
        else:
            torch.mul(weight, self.gates[rows], out=table[:, :, :f])
        torch.mul(own, 2.0, out=table[:, :, f])
        table = table.flatten(0, 1)
        shape = (len(table), self.value.shape[1])
        s = torch.mm(table, self.with_one, out=work("s", *shape)).sigmoid_()
        if not self.with_slope:
            return s.view(width, -1), None
        ds = torch.mm(table[:, :-1], self.slope, out=work("ds", *shape))
        ds.mul_(torch.addcmul(s, s, s, value=-1, out=work("steep", *shape)))
        return s.view(width, -1), ds.view(width, -1)


_triton_failed = False


def _triton_kernel() -> ModuleType | None:
    """The module with the CUDA kernel, if Triton is there and has not failed before."""
    if _triton_failed or find_spec("triton") is None:
        return None
    from sumosurv.networks import fused_triton

    return fused_triton


def _give_up_triton(error: Exception) -> None:
    """A kernel that cannot be compiled or launched here: say so once, and go on without it."""
    global _triton_failed
    _triton_failed = True
    warnings.warn(
        f"The fused CUDA kernel could not be used ({type(error).__name__}: {error}); prediction goes on in PyTorch.",
        RuntimeWarning,
        stacklevel=4,
    )


def fused_curves(mixed: Mixed, *, exact_slope: bool = True) -> list[FusedCurve]:
    """The curve of each member; those that share their time features share what is kept of them."""
    members = int(mixed.out_bias.shape[0])
    shared = MemberTimes(mixed.features, 0) if mixed.features.table.shape[0] == 1 else None
    return [
        FusedCurve(mixed, k, MemberTimes(mixed.features, k) if shared is None else shared, exact_slope=exact_slope)
        for k in range(members)
    ]
