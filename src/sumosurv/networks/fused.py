"""Prediction with the mixed network: the same values as `MixedNetwork`, without gradients and several times faster.

Throughout, tanh z = 2σ(2z) - 1 with σ the logistic function; the 2 and the -1 are folded into the weights of the next
layer. The speed comes from the following:

- On a grid that all subjects share, the first layer is one product of the time features of the grid with a small table
  per subject.
- Subjects are processed a few at a time, so that the hidden layers stay in the cache; only the result goes to memory.
- In every matrix, units are rows and cells (subject, time) are columns, which is the faster layout for the product of a
  small square matrix with a long one.
- Time features are computed once for all members that share them.
"""

from __future__ import annotations

from collections import deque
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sumosurv.distributions.monotone import NEEDS_SLOPE, Quantity, survival_head
from sumosurv.networks.layers import TimeFeatures, Workspace, positive_weight
from sumosurv.warn import warn_user

_CACHE_BYTES = 1 << 22  # size of one hidden layer per CPU thread
_GPU_CELLS = 1 << 20  # subjects × times at once, on a GPU without the kernel
_LARGEST = {torch.float64: 350.0, torch.float32: 40.0}  # products of two exponentials of such numbers are finite
_CACHED_TIMES = 1 << 18  # most times, over all subjects, whose features are cached for the next member


def _separate_exponentials(rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return e^-row and e^-column, from which σ(row + column) = 1 / (1 + e^-row e^-column); None if that overflows.

    An exponential per row and column instead of one per cell: a third of the time on a CPU, nothing gained on a GPU.
    """
    if rows.is_cuda or max(float(part.abs().amax()) for part in (rows, columns)) > _LARGEST[rows.dtype]:
        return None
    return torch.exp(-rows)[:, :, None], torch.exp(-columns)[:, None]


class Layer(NamedTuple):
    """σ(weight x + bias), plus x if ``residual``; units are rows, cells are columns."""

    weight: Tensor
    bias: Tensor
    residual: bool


class MemberTimes:
    """Computes τ and τ', and caches them because the members of a mixture are evaluated in turn at the same times."""

    def __init__(self, features: TimeFeatures, member: int) -> None:
        self._features = TimeFeatures(features.kind)
        own = member if features.table.shape[0] > 1 else 0
        self._features.table = features.table[own : own + 1].detach()
        self._kept: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=3)  # room for the times, zero and the horizon

    def breaks(self) -> list[float]:
        """Return the times at which a feature is not smooth."""
        return self._features.breaks()

    def __call__(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and slopes, (n or 1, m, F), in the precision of the table or better."""
        for times, value, slope in self._kept:
            if times.shape == t.shape and times.dtype == t.dtype and torch.equal(times, t):
                return value, slope
        exact = t.to(torch.promote_types(t.dtype, self._features.table.dtype))
        value, slope = (part[0] for part in self._features(exact[None]))
        if t.numel() <= _CACHED_TIMES:
            self._kept.append((t.clone(), value, slope))  # the caller may modify its tensor
        return value, slope


class FusedCurve:
    """h and dh/dt of one member, and its survival function or density, for many subjects and times.

    Parameters
    ----------
    mixed : MixedNetwork
        The population.
    member : int
        Index of the member.
    times : MemberTimes
        The member's time features.
    exact_slope : bool
        False if the network's derivative is not "forward"; then only survival can be evaluated.
    """

    def __init__(self, mixed: Any, member: int, times: MemberTimes, *, exact_slope: bool = True) -> None:
        self.times, self.exact_slope = times, exact_slope
        self.gate, self.skip, self.width = bool(mixed.gate), bool(mixed.skip), int(mixed.width)
        self.trainable = any(p.requires_grad for p in mixed.parameters())
        with torch.no_grad():
            self._fold(mixed, member)

    def _fold(self, mixed: Any, k: int) -> None:
        """Convert the weights from tanh to σ: a = 2s - c, with s = σ(2z) summed over residual connections."""

        def positive(raw: Tensor) -> Tensor:
            return positive_weight(raw[k].detach(), mixed.positive)

        self.time_weight = 2.0 * positive(mixed.time_weight).T.contiguous()  # (width, F)
        self.layers: list[Layer] = []
        shift = 1.0
        for place, (raw, bias) in enumerate(zip(mixed.weights, mixed.biases), start=1):
            if mixed.active.numel() and not bool(mixed.active[k, place]):
                continue  # this member of a stacked population has fewer layers
            weight = positive(raw).T.contiguous()
            residual = mixed.residual and weight.shape[0] == weight.shape[1]
            own = bias[k, 0].detach() - shift * weight.sum(1)
            self.layers.append(Layer(4.0 * weight, 2.0 * own[:, None], residual))
            shift = shift + 1.0 if residual else 1.0
        last = positive(mixed.out_weight).T.contiguous()
        self.out_weight = 2.0 * last  # (1, width)
        self.out_bias = mixed.out_bias[k, 0].detach() - shift * last.sum(1)

    def to(self, dtype: torch.dtype) -> FusedCurve:
        """Return the curve with its weights in another precision."""
        made = object.__new__(FusedCurve)
        made.__dict__.update(self.__dict__)
        made.time_weight, made.out_weight, made.out_bias = (
            part.to(dtype) for part in (self.time_weight, self.out_weight, self.out_bias)
        )
        made.layers = [Layer(w.to(dtype), b.to(dtype), residual) for w, b, residual in self.layers]
        return made

    def supports(self, quantity: Quantity, code: Tensor, t: Tensor) -> bool:
        """Whether this class can compute ``quantity``: no gradient is required and no slope but the forward one."""
        if quantity in NEEDS_SLOPE and not self.exact_slope:
            return False
        if code.dtype != self.time_weight.dtype:
            return False
        return not (torch.is_grad_enabled() and (self.trainable or code.requires_grad or t.requires_grad))

    def evaluate(self, quantity: Quantity, code: Tensor, t: Tensor, log_start: Tensor | None) -> tuple[Tensor, ...]:
        """Compute ``quantity``, (n, m) per part, for ``code`` (n, w), times (n or 1, m) and log S(0) (n, 1)."""
        with torch.no_grad():
            if code.is_cuda and (kernel := _triton_kernel()) is not None and kernel.supports(self, code.dtype):
                try:
                    results: tuple[Tensor, ...] = kernel.evaluate(self, quantity, code, t, log_start)
                    return results
                except torch.OutOfMemoryError:
                    raise
                except kernel.FAILURES as error:
                    _disable_triton(error)
            return self._by_tiles(quantity, code, t, log_start)

    def _by_tiles(self, quantity: Quantity, code: Tensor, t: Tensor, log_start: Tensor | None) -> tuple[Tensor, ...]:
        n, m, with_slope = len(code), t.shape[1], quantity in NEEDS_SLOPE
        results = tuple(code.new_empty(n, m) for _ in range(2 if quantity == "log_both" else 1))
        if n * m == 0:
            return results
        work, shared = Workspace(code), len(t) == 1
        ready = self.times(t) if shared or t.numel() <= _CACHED_TIMES else None
        cache = _CACHE_BYTES * torch.get_num_threads()
        cells = _GPU_CELLS if code.is_cuda else cache // (code.element_size() * self._widest())
        step = max(1, cells // m)
        if shared and ready is not None:
            grid = [part[0].T.contiguous().to(code.dtype) for part in ready]  # (F, m) each
            with_one = torch.cat([grid[0], torch.ones_like(grid[0][:1])])
            separate = (
                None if self.gate else _separate_exponentials(2.0 * code[:, : self.width].T, self.time_weight @ grid[0])
            )
        for i in range(0, n, step):
            rows = slice(i, min(i + step, n))
            if shared:
                exponentials = None if separate is None else (separate[0][:, rows], separate[1])
                h, slope = self._on_grid(code[rows], with_one, grid[1], exponentials, with_slope, work)
            else:
                times = self.times(t[rows]) if ready is None else (ready[0][rows], ready[1][rows])
                h, slope = self._own_times(code[rows], times, with_slope, work)
            parts = survival_head(quantity, h, slope, None if log_start is None else log_start[rows])
            for result, part in zip(results, parts):
                result[rows] = part
        return results

    def _widest(self) -> int:
        return max([self.width, *(len(layer.weight) for layer in self.layers)])

    def _on_grid(
        self,
        code: Tensor,
        value: Tensor,
        slope: Tensor,
        exponentials: tuple[Tensor, Tensor] | None,
        with_slope: bool,
        work: Workspace,
    ) -> tuple[Tensor, Tensor | None]:
        """h and its slope, (n, m), on a common grid with features ``value`` (F + 1, m; the last row is ones)."""
        n, f, m = len(code), *slope.shape
        gates = code[:, self.width : self.width + f] if self.gate else code.new_ones(n, 1)
        cells = (self.width, n, m)
        s, ds = work("s", *cells), None
        if exponentials is not None:
            torch.mul(*exponentials, out=s).add_(1.0).reciprocal_()
        else:
            # each subject's gated weights, with its covariate term in the last column
            table = work("table", f + 1, self.width, n)
            torch.mul(self.time_weight.T[:, :, None], gates.T[:, None], out=table[:f])
            torch.mul(code[:, : self.width].T, 2.0, out=table[f])
            torch.mm(table.flatten(1).T, value, out=s.view(-1, m)).sigmoid_()
        if with_slope:
            ds = work("ds", *cells)
            if self.gate:
                torch.mm(table[:f].flatten(1).T, slope, out=ds.view(-1, m))
            else:
                ds.copy_((self.time_weight @ slope)[:, None])
            ds.mul_(torch.addcmul(s, s, s, value=-1, out=work("steep", *cells)))
            ds = ds.view(self.width, -1)
        h, dh = self._deep_layers(s.view(self.width, -1), ds, work)
        h, dh = h.view(n, m), None if dh is None else dh.view(n, m)
        if self.skip:
            direct = code[:, -f:] * gates
            h.addmm_(direct, value[:-1])
            if dh is not None:
                dh.addmm_(direct, slope)
        return h, dh

    def _own_times(
        self, code: Tensor, times: tuple[Tensor, Tensor], with_slope: bool, work: Workspace
    ) -> tuple[Tensor, Tensor | None]:
        """h and its slope at each subject's own times, given the time features (n, m, F)."""
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
        h, dh = self._deep_layers(s, ds, work)
        h, dh = h.view(n, m), None if dh is None else dh.view(n, m)
        if self.skip:
            direct = code[:, -f:, None]
            h.add_((value @ direct)[:, :, 0])
            if dh is not None:
                dh.add_((slope @ direct)[:, :, 0])
        return h, dh

    def _deep_layers(self, s: Tensor, ds: Tensor | None, work: Workspace) -> tuple[Tensor, Tensor | None]:
        """h and its slope, (cells,) each, from the first layer's s and ds (width, cells)."""
        for place, (weight, bias, residual) in enumerate(self.layers):
            shape, turn = (len(weight), s.shape[1]), place % 2  # a layer reads one buffer and writes the other
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


_triton_failed = False


def _triton_kernel() -> ModuleType | None:
    """Return the module with the CUDA kernel; None if Triton is missing or has failed before."""
    if _triton_failed or find_spec("triton") is None:
        return None
    from sumosurv.networks import fused_triton

    return fused_triton


def _disable_triton(error: Exception) -> None:
    """Warn that the kernel cannot be compiled or launched, and predict without it from now on."""
    global _triton_failed
    _triton_failed = True
    warn_user(
        f"The fused CUDA kernel could not be used ({type(error).__name__}: {error}); prediction continues in PyTorch.",
        RuntimeWarning,
    )


def fused_curves(mixed: Any, *, exact_slope: bool = True) -> list[FusedCurve]:
    """Return the curve of each member; members with common time features share one cache."""
    members = int(mixed.out_bias.shape[0])
    shared = MemberTimes(mixed.features, 0) if mixed.features.table.shape[0] == 1 else None
    return [
        FusedCurve(mixed, k, MemberTimes(mixed.features, k) if shared is None else shared, exact_slope=exact_slope)
        for k in range(members)
    ]
