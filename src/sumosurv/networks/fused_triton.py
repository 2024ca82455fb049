# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The mixed network on CUDA as one kernel: hidden layers live in registers, only the result is written to memory.

It equals `FusedCurve` in single precision. Needs Triton, which CUDA builds of PyTorch bring.
"""

import subprocess

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.errors import TritonError

from sumosurv.distributions.monotone import Quantity
from sumosurv.networks.fused import FusedCurve

# What compiling or launching a kernel can raise: Triton's own errors, CUDA's, and those of the C compiler.
FAILURES: tuple[type[Exception], ...] = (TritonError, RuntimeError, subprocess.CalledProcessError, OSError)

_KINDS: dict[Quantity, int] = {"log_survival": 0, "survival": 1, "density": 2, "log_both": 3}
_WIDEST = 128  # units of a layer, a tile of them being held in registers


def supports(curve: FusedCurve) -> bool:
    """Whether the kernel covers this network: up to three hidden layers of at most 128 units."""
    widths = [curve.width, *(len(layer.weight) for layer in curve.layers)]
    return len(widths) <= 3 and max(widths) <= _WIDEST


def evaluate(
    curve: FusedCurve, quantity: Quantity, code: Tensor, t: Tensor, log_start: Tensor | None
) -> tuple[Tensor, ...]:
    """As `FusedCurve.evaluate`, for float32 codes on a CUDA device."""
    n, m = len(code), t.shape[1]
    results = tuple(code.new_empty(n, m) for _ in range(2 if quantity == "log_both" else 1))
    if n * m == 0:
        return results
    value, slope = (part.movedim(-1, 0).to(code.dtype).contiguous() for part in curve.times(t))  # (F, n or 1, m)
    units, time_weight, layers, out_weight = _padded(curve)
    first = layers[0] if layers else (time_weight, out_weight, False)
    second = layers[1] if len(layers) > 1 else first
    block = 128 if units <= 32 else 64
    own_times = value.shape[1] > 1
    _mixed_network[(triton.cdiv(n * m, block),)](
        code.contiguous(),
        time_weight,
        value,
        slope,
        first[0],
        first[1],
        second[0],
        second[1],
        out_weight,
        curve.out_bias,
        code if log_start is None else log_start.contiguous(),
        results[0],
        results[-1],
        n * m,
        m,
        code.shape[1],
        m if own_times else 0,
        n * m if own_times else m,
        WIDTH=curve.width,
        UNITS=units,
        FEATURES=value.shape[0],
        LAYERS=len(layers),
        RESIDUAL_1=first[2],
        RESIDUAL_2=second[2],
        GATE=curve.gate,
        SKIP=curve.skip,
        KIND=_KINDS[quantity],
        ANCHORED=log_start is not None,
        BLOCK=block,
        num_warps=4,
    )
    return results


def _padded(curve):
    """Weights with as many units as the next power of two, those added having no weight in what follows."""
    widest = max([curve.width, *(len(layer.weight) for layer in curve.layers)])
    units = max(16, triton.next_power_of_2(widest))

    def pad(part, rows, columns):
        return torch.nn.functional.pad(part, (0, columns - part.shape[1], 0, rows - part.shape[0])).contiguous()

    layers = [(pad(weight.T, units, units), pad(bias.T, 1, units), residual) for weight, bias, residual in curve.layers]
    time_weight = pad(curve.time_weight.T, curve.time_weight.shape[1], units)
    return units, time_weight, layers, pad(curve.out_weight, 1, units)


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _softplus(x):
    """log(1 + exp(x)); log(1 + e) by way of u = 1 + e, so that tiny e are not lost."""
    e = tl.exp(-tl.abs(x))
    u = 1.0 + e
    d = u - 1.0
    tiny = d == 0.0
    log1p = tl.where(tiny, e, tl.log(u) * (e / tl.where(tiny, 1.0, d)))
    return tl.maximum(x, 0.0) + log1p


@triton.jit
def _write(h, dh, start, first, second, place, keep, KIND: tl.constexpr, ANCHORED: tl.constexpr):
    """The survival head, and the only write to memory."""
    if KIND == 1:
        survival = _sigmoid(-h)
        if ANCHORED:
            survival = tl.minimum(survival * tl.exp(-start), 1.0)
        tl.store(first + place, survival, mask=keep)
    if KIND == 2:
        density = dh * _sigmoid(h) * _sigmoid(-h)
        if ANCHORED:
            density = density * tl.exp(-start)
        tl.store(first + place, density, mask=keep)
    if KIND == 0:
        log_survival = -_softplus(h)
        if ANCHORED:
            log_survival = tl.minimum(log_survival - start, 0.0)
        tl.store(first + place, log_survival, mask=keep)
    if KIND == 3:
        log_survival = -_softplus(h)
        log_density = tl.log(dh) - _softplus(-h) + log_survival
        if ANCHORED:
            log_survival = tl.minimum(log_survival - start, 0.0)
            log_density = log_density - start
        tl.store(first + place, log_survival, mask=keep)
        tl.store(second + place, log_density, mask=keep)


@triton.jit
def _layer(s, ds, weight, bias, unit, UNITS: tl.constexpr, RESIDUAL: tl.constexpr, SLOPE: tl.constexpr):
    """One hidden layer, and the slope through it; tensor cores would lose precision."""
    w = tl.load(weight + unit[:, None] * UNITS + unit[None, :])
    new = _sigmoid(tl.dot(s, w, input_precision="ieee") + tl.load(bias + unit)[None, :])
    d_new = ds
    if SLOPE:
        d_new = new * (1.0 - new) * tl.dot(ds, w, input_precision="ieee")
    if RESIDUAL:
        new += s
        if SLOPE:
            d_new += ds
    return new, d_new


@triton.jit(do_not_specialize=["cells", "feature_stride"])
def _mixed_network(
    code,
    time_weight,
    value,
    slope,
    weight_1,
    bias_1,
    weight_2,
    bias_2,
    out_weight,
    out_bias,
    start,
    first,
    second,
    cells,
    m,
    code_stride,
    row_stride,
    feature_stride,
    WIDTH: tl.constexpr,
    UNITS: tl.constexpr,
    FEATURES: tl.constexpr,
    LAYERS: tl.constexpr,
    RESIDUAL_1: tl.constexpr,
    RESIDUAL_2: tl.constexpr,
    GATE: tl.constexpr,
    SKIP: tl.constexpr,
    KIND: tl.constexpr,
    ANCHORED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    cell = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = cell < cells
    row, column = cell // m, cell % m
    unit = tl.arange(0, UNITS)
    own = code + row * code_stride
    z = 2.0 * tl.load(own[:, None] + unit[None, :], mask=keep[:, None] & (unit < WIDTH)[None, :], other=0.0)
    dz = tl.zeros((BLOCK, UNITS), dtype=tl.float32)
    path = tl.zeros((BLOCK,), dtype=tl.float32)
    d_path = tl.zeros((BLOCK,), dtype=tl.float32)
    for f in tl.static_range(FEATURES):
        at = f * feature_stride + row * row_stride + column
        tau = tl.load(value + at, mask=keep, other=0.0)
        d_tau = tau
        if KIND >= 2:
            d_tau = tl.load(slope + at, mask=keep, other=0.0)
        if GATE:
            gate = tl.load(own + WIDTH + f, mask=keep, other=0.0)
            tau = tau * gate
            d_tau = d_tau * gate
        w = tl.load(time_weight + f * UNITS + unit)
        z += tau[:, None] * w[None, :]
        if KIND >= 2:
            dz += d_tau[:, None] * w[None, :]
        if SKIP:
            direct = tl.load(own + (code_stride - FEATURES) + f, mask=keep, other=0.0)
            path += tau * direct
            d_path += d_tau * direct
    s = _sigmoid(z)
    ds = s * (1.0 - s) * dz
    if LAYERS >= 1:
        s, ds = _layer(s, ds, weight_1, bias_1, unit, UNITS, RESIDUAL_1, KIND >= 2)
    if LAYERS >= 2:
        s, ds = _layer(s, ds, weight_2, bias_2, unit, UNITS, RESIDUAL_2, KIND >= 2)
    w_out = tl.load(out_weight + unit)
    h = tl.sum(s * w_out[None, :], axis=1) + tl.load(out_bias) + path
    dh = tl.sum(ds * w_out[None, :], axis=1) + d_path
    begin = tl.zeros((BLOCK,), dtype=tl.float32)
    if ANCHORED:
        begin = tl.load(start + row, mask=keep, other=0.0)
    _write(h, dh, begin, first, second, cell, keep, KIND, ANCHORED)
