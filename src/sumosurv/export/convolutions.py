"""Convolutions and pooling of torch on values of an ONNX graph.

onnxruntime has convolutions and mean pooling in single precision alone: values of float64 are rounded on the way in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from sumosurv.export.tracing import Value

__all__ = ["CONVOLUTIONS"]


def _each(number: int | Sequence[int], axes: int) -> list[int]:
    """One number for each axis."""
    return [number] * axes if isinstance(number, int) else [int(n) for n in number] * (axes // len(number))


def _lengths(x: Value, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]) -> list[Any]:
    """Lengths of the axes after a window has passed along them."""
    sizes = zip(x.shape[2:], kernel, stride, padding, dilation)
    return [(int(n) + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]  # type: ignore[arg-type]


def _convolution(axes: int) -> Callable[..., Value]:
    def apply(
        x: Value,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Value:
        if isinstance(padding, str):
            raise TypeError(f"A convolution with padding={padding!r} cannot be written as ONNX here; give a number.")
        kernel, step = list(weight.shape[2:]), _each(stride, axes)
        rim, gap = _each(padding, axes), _each(dilation, axes)
        single = x.to(torch.float32)
        parts = [weight, *([] if bias is None else [bias])]
        inputs = [single.name, *(single.like(part.to(torch.float32)).name for part in parts)]
        shape = [x.shape[0], weight.shape[0], *_lengths(x, kernel, step, rim, gap)]
        options: Any = {"kernel_shape": kernel, "strides": step, "pads": rim * 2, "dilations": gap, "group": groups}
        return single.new("Conv", inputs, shape, **options).to(x.dtype)

    return apply


def _max_pool(axes: int) -> Callable[..., Value]:
    def apply(
        x: Value,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Value:
        if ceil_mode or return_indices:
            raise TypeError("Pooling with ceil_mode or return_indices cannot be written as ONNX here.")
        kernel = _each(kernel_size, axes)
        step = _each(stride, axes) if stride else kernel  # torch has an empty stride for None
        rim, gap = _each(padding, axes), _each(dilation, axes)
        shape = [*x.shape[:2], *_lengths(x, kernel, step, rim, gap)]
        return x.new("MaxPool", [x.name], shape, kernel_shape=kernel, strides=step, pads=rim * 2, dilations=gap)

    return apply


def _mean_pool(axes: int) -> Callable[..., Value]:
    def apply(
        x: Value,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        if ceil_mode or divisor_override is not None:
            raise TypeError("Pooling with ceil_mode or divisor_override cannot be written as ONNX here.")
        kernel, rim = _each(kernel_size, axes), _each(padding, axes)
        step, single = _each(stride, axes) if stride else kernel, x.to(torch.float32)
        shape = [*x.shape[:2], *_lengths(x, kernel, step, rim, [1] * axes)]
        options: Any = {"kernel_shape": kernel, "strides": step, "pads": rim * 2}
        made = single.new("AveragePool", [single.name], shape, count_include_pad=int(count_include_pad), **options)
        return made.to(x.dtype)

    return apply


def _to_one(operator: str, axes: int) -> Callable[..., Value]:
    """Adaptive pooling, to one value for each channel."""

    def apply(x: Value, output_size: Any, return_indices: bool = False) -> Value:
        if return_indices or set(_each(output_size, axes)) != {1}:
            raise TypeError(f"Adaptive pooling to {output_size!r} cannot be written as ONNX here; pool to 1.")
        over = x.graph.numbers(*range(2, 2 + axes))
        return x.new(operator, [x.name, over], [*x.shape[:2], *[1] * axes], keepdims=1)

    return apply


CONVOLUTIONS: dict[str, Callable[..., Any]] = {}
for _axes in (1, 2):
    CONVOLUTIONS |= {
        f"conv{_axes}d": _convolution(_axes),
        f"max_pool{_axes}d": _max_pool(_axes),
        f"avg_pool{_axes}d": _mean_pool(_axes),
        f"adaptive_avg_pool{_axes}d": _to_one("ReduceMean", _axes),
        f"adaptive_max_pool{_axes}d": _to_one("ReduceMax", _axes),
    }
