# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The mixed network as one CUDA kernel: hidden layers stay in registers, only the result is written to memory.

It computes the same as `FusedCurve`, in the precision of ``code``. It needs Triton, which CUDA builds of PyTorch
install.
"""

import os
import subprocess

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.errors import TritonError

from sumosurv.distributions.monotone import NEEDS_SLOPE, Quantity
from sumosurv.networks.fused import FusedCurve

# Errors of compiling or launching a kernel: from Triton, CUDA and the C compiler.
FAILURES: tuple[type[Exception], ...] = (TritonError, RuntimeError, subprocess.CalledProcessError, OSError)

_KINDS: dict[Quantity, int] = {"log_survival": 0, "survival": 1, "density": 2, "log_both": 3}
_WIDEST = {torch.float32: 128, torch.float64: 64}  # most units per layer: tiles of units are held in registers
_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")  # the interpreter cannot run inline assembly


def supports(curve: FusedCurve, dtype: torch.dtype) -> bool:
    """Whether the kernel supports the network: up to three hidden layers of 128 units, or 64 in double precision."""
    widths = [curve.width, *(len(layer.weight) for layer in curve.layers)]
    return len(widths) <= 3 and max(widths) <= _WIDEST.get(dtype, 0)


def evaluate(
    curve: FusedCurve, quantity: Quantity, code: Tensor, t: Tensor, log_start: Tensor | None
) -> tuple[Tensor, ...]:
    """As `FusedCurve.evaluate`, for ``code`` on a CUDA device."""
    n, m = len(code), t.shape[1]
    results = tuple(code.new_empty(n, m) for _ in range(2 if quantity == "log_both" else 1))
    if n * m == 0:
        return results
    features = curve.times(t)[: 2 if quantity in NEEDS_SLOPE else 1]
    value, *slope = (part.movedim(-1, 0).to(code.dtype).contiguous() for part in features)  # (F, n or 1, m)
    units, time_weight, layers, out_weight = _padded(curve)
    first = layers[0] if layers else (time_weight, out_weight, False)
    second = layers[1] if len(layers) > 1 else first
    block, warps = (32, 2 if units <= 32 else 4) if layers else (2048 // code.itemsize, 8)  # the fastest on an H200
    own_times = value.shape[1] > 1
    _mixed_network[(triton.cdiv(n * m, block),)](
        code.contiguous(),
        time_weight,
        value,
        slope[0] if slope else value,
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
        num_warps=warps,
    )
    return results


def _padded(curve):
    """Pad the weights to a power of two of units; the added units have zero weight in the next layer."""
    widest = max([curve.width, *(len(layer.weight) for layer in curve.layers)])
    units = max(16, triton.next_power_of_2(widest))

    def pad(part, rows, columns):
        missing = rows - part.shape[0], columns - part.shape[1]
        return (torch.nn.functional.pad(part, (0, missing[1], 0, missing[0])) if any(missing) else part).contiguous()

    layers = [(pad(weight.T, units, units), pad(bias.T, 1, units), residual) for weight, bias, residual in curve.layers]
    time_weight = pad(curve.time_weight.T, curve.time_weight.shape[1], units)
    return units, time_weight, layers, pad(curve.out_weight, 1, units)


@triton.jit
def _sigmoid(x, FACTOR: tl.constexpr = 1.0):
    """The logistic function of FACTOR x, by an approximate reciprocal that takes a third of the time of a division."""
    d = 1.0 + tl.exp2(x * (-1.4426950408889634 * FACTOR))
    if _INTERPRETED:
        r = 1.0 / d
    elif d.dtype == tl.float32:  # accurate to the last bit but one
        r = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [d], tl.float32, is_pure=True, pack=1)
    else:  # accurate to 20 bits; each of two Newton steps doubles that; zero if d is infinite
        near = tl.inline_asm_elementwise("rcp.approx.ftz.f64 $0, $1;", "=d,d", [d], tl.float64, is_pure=True, pack=1)
        r = near * (2.0 - d * near)
        r = tl.where(near == 0.0, near, r * (2.0 - d * r))
    return r


@triton.jit
def _softplus(x):
    """log(1 + exp(x)), with log(1 + e) computed from u = 1 + e so that tiny e are not lost."""
    e = tl.exp(-tl.abs(x))
    u = 1.0 + e
    d = u - 1.0
    tiny = d == 0.0
    log1p = tl.where(tiny, e, tl.log(u) * (e / tl.where(tiny, 1.0, d)))
    return tl.maximum(x, 0.0) + log1p


@triton.jit
def _write(h, dh, start, first, second, place, keep, KIND: tl.constexpr):
    """Apply the survival head and write the result, the only write to memory."""
    if KIND == 1:
        result = tl.minimum(_sigmoid(-h) * tl.exp(-start), 1.0)
    elif KIND == 2:
        result = dh * _sigmoid(h) * _sigmoid(-h) * tl.exp(-start)
    else:
        log_survival = -_softplus(h)
        result = tl.minimum(log_survival - start, 0.0)
        if KIND == 3:
            tl.store(second + place, tl.log(dh) - _softplus(-h) + log_survival - start, mask=keep)
    tl.store(first + place, result, mask=keep)


@triton.jit
def _layer(s, ds, weight, bias, unit, UNITS: tl.constexpr, RESIDUAL: tl.constexpr, SLOPE: tl.constexpr):
    """One hidden layer and its slope; products are in full precision, which TF32 would lose."""
    w = tl.load(weight + unit[:, None] * UNITS + unit[None, :])
    new = _sigmoid(tl.dot(s, w, input_precision="ieee", out_dtype=s.dtype) + tl.load(bias + unit)[None, :])
    d_new = ds
    if SLOPE:
        d_new = new * (1.0 - new) * tl.dot(ds, w, input_precision="ieee", out_dtype=s.dtype)
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
    real: tl.constexpr = code.dtype.element_ty
    base = tl.program_id(0).to(tl.int64) * BLOCK
    cell = base + tl.arange(0, BLOCK)
    keep = cell < cells
    place = (base % m).to(tl.int32) + tl.arange(0, BLOCK)  # a 64-bit division takes several times as long
    row, column = base // m + place // m, place % m
    unit = tl.arange(0, UNITS)
    own = code + row * code_stride
    h = tl.zeros((BLOCK,), dtype=real) + tl.load(out_bias)
    dh = tl.zeros((BLOCK,), dtype=real)
    times = ()
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
        if SKIP:
            direct = tl.load(own + (code_stride - FEATURES) + f, mask=keep, other=0.0)
            h += tau * direct
            dh += d_tau * direct
        times = times + ((tau, d_tau),)  # type: ignore[assignment]  # noqa: RUF005
    if LAYERS == 0:  # unit by unit, so that threads exchange no partial sums
        for u in tl.static_range(WIDTH):
            z = tl.load(own + u, mask=keep, other=0.0)
            dz = tl.zeros((BLOCK,), dtype=real)
            for f in tl.static_range(FEATURES):
                w = tl.load(time_weight + f * UNITS + u)
                z += times[f][0] * (0.5 * w)
                dz += times[f][1] * w
            s = _sigmoid(z, 2.0)
            w = tl.load(out_weight + u)
            h += s * w
            dh += s * (1.0 - s) * dz * w
    else:
        z = 2.0 * tl.load(own[:, None] + unit[None, :], mask=keep[:, None] & (unit < WIDTH)[None, :], other=0.0)
        dz = tl.zeros((BLOCK, UNITS), dtype=real)
        for f in tl.static_range(FEATURES):
            w = tl.load(time_weight + f * UNITS + unit)
            z += times[f][0][:, None] * w[None, :]
            dz += times[f][1][:, None] * w[None, :]
        s = _sigmoid(z)
        ds = s * (1.0 - s) * dz
        s, ds = _layer(s, ds, weight_1, bias_1, unit, UNITS, RESIDUAL_1, KIND >= 2)
        if LAYERS >= 2:
            s, ds = _layer(s, ds, weight_2, bias_2, unit, UNITS, RESIDUAL_2, KIND >= 2)
        w_out = tl.load(out_weight + unit)
        h += tl.sum(s * w_out[None, :], axis=1)
        dh += tl.sum(ds * w_out[None, :], axis=1)
    begin = tl.zeros((BLOCK,), dtype=real)
    if ANCHORED:
        begin = tl.load(start + row, mask=keep, other=0.0)
    _write(h, dh, begin, first, second, cell, keep, KIND)
