"""Functions of torch on values of an ONNX graph, by name.

onnxruntime has convolutions and mean pooling in single precision alone: values of float64 are rounded on the way in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from sumosurv.export import special
from sumosurv.export.tracing import Value, joint

__all__ = ["CONVOLUTIONS", "FUNCTIONS"]


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


def _where(condition: Any, first: Any, second: Any) -> Value:
    """One or the other."""
    anchor: Value = next(part for part in (first, second, condition) if isinstance(part, Value))
    if anchor is condition and not isinstance(first, torch.Tensor) and not isinstance(second, torch.Tensor):
        anchor = Value(anchor.graph, "", (), torch.float64)
    if isinstance(first, torch.Tensor) and not isinstance(second, (torch.Tensor, Value)):
        anchor = anchor.like(first)
    if isinstance(second, torch.Tensor) and not isinstance(first, (torch.Tensor, Value)):
        anchor = anchor.like(second)
    c, a, b = (anchor.like(part) for part in (condition, first, second))
    common = torch.promote_types(a.dtype, b.dtype)
    shape = joint(c.shape, joint(a.shape, b.shape))
    return a.new("Where", [c.name, a.to(common).name, b.to(common).name], shape, common)


def _cat(parts: Sequence[Any], dim: int = 0) -> Value:
    anchor = next(part for part in parts if isinstance(part, Value))
    values = [anchor.like(part) for part in parts]
    axis = dim % values[0].ndim
    kept = [value for value in values if value.shape[axis] != 0] or values[:1]
    shape = list(kept[0].shape)
    for value in kept[1:]:
        shape[axis] = value.shape[axis] + shape[axis]
    return kept[0] if len(kept) == 1 else anchor.new("Concat", [v.name for v in kept], shape, kept[0].dtype, axis=axis)


def _stack(parts: Sequence[Any], dim: int = 0) -> Value:
    axis = dim % (parts[0].ndim + 1)
    return _cat([part.unsqueeze(axis) for part in parts], axis)


def _baddbmm(bias: Any, a: Any, b: Any) -> Value:
    made: Value = _bmm(a, b).binary("Add", bias)
    return made


def _bmm(a: Any, b: Any) -> Value:
    made: Value = (a if isinstance(a, Value) else b).like(a) @ b
    return made


def _gather(table: Any, dim: int, places: Value) -> Value:
    source = places.like(table)
    return source.new("GatherElements", [source.name, places.name], places.shape, axis=dim)


def _picked(table: torch.Tensor, index: tuple[torch.Tensor, Value]) -> Value:
    """``table[members, places]`` for all members (K, 1) and places (1, n)."""
    places = index[1].squeeze(0)
    source = places.like(table)
    shape = (source.shape[0], *places.shape, *source.shape[2:])
    return source.new("Gather", [source.name, places.name], shape, axis=1)


def _softplus(x: Value) -> Value:
    return x.clamp_min(0.0) + (1.0 + (-x.abs()).unary("Exp")).unary("Log")


def _expm1(x: Value) -> Value:
    return x.unary("Exp") - 1.0


def _log_softmax(x: Value, dim: int) -> Value:
    return x.new("LogSoftmax", [x.name], x.shape, axis=dim)


def _linear(x: Value, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Value:
    made = x @ weight.T
    return made if bias is None else made + bias


def _isfinite(x: Value) -> Value:
    return ~(_isinf(x) | x.unary("IsNaN", torch.bool))


def _isinf(x: Value) -> Value:
    return x.unary("IsInf", torch.bool)


def _either(operator: str) -> Callable[[Any, Any], Value]:
    """A comparison or sum whose first operand may be a tensor."""

    def apply(a: Any, b: Any) -> Value:
        anchor: Value = a if isinstance(a, Value) else b
        boolean = operator in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")
        return anchor.like(a).binary(operator, b, dtype=torch.bool if boolean else None)

    return apply


def _elementwise(operator: str) -> Callable[..., Value]:
    return lambda x, inplace=False: x.unary(operator)


_OPERATORS = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "truediv": "Div",
    "minimum": "Min",
    "maximum": "Max",
}
_COMPARED = {"lt": "Less", "gt": "Greater", "le": "LessOrEqual", "ge": "GreaterOrEqual", "eq": "Equal", "or": "Or"}
_ELEMENTWISE = {
    "exp": "Exp",
    "log": "Log",
    "tanh": "Tanh",
    "sin": "Sin",
    "cos": "Cos",
    "sqrt": "Sqrt",
    "sigmoid": "Sigmoid",
}
_ELEMENTWISE |= {"relu": "Relu", "sign": "Sign", "abs": "Abs", "neg": "Neg"}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _either(operator) for name, operator in (_OPERATORS | _COMPARED).items()},
    **{name: _elementwise(operator) for name, operator in _ELEMENTWISE.items()},
    **CONVOLUTIONS,
    "radd": lambda a, b: b + a if isinstance(b, Value) else a + b,
    "rmul": lambda a, b: b * a if isinstance(b, Value) else a * b,
    "rsub": lambda a, b: _either("Sub")(b, a),
    "rtruediv": lambda a, b: _either("Div")(b, a),
    "and": lambda a, b: _either("And")(a, b),
    "bitwise_or": _either("Or"),
    "bitwise_and": _either("And"),
    "baddbmm": _baddbmm,
    "bmm": _bmm,
    "matmul": _bmm,
    "cat": _cat,
    "expm1": _expm1,
    "flatten": Value.flatten,
    "gather": _gather,
    "getitem": _picked,
    "gelu": lambda x, **_: x * special.log_ndtr(x).unary("Exp"),  # type: ignore[attr-defined]
    "isfinite": _isfinite,
    "isinf": _isinf,
    "isnan": lambda x: x.unary("IsNaN", torch.bool),
    "linear": _linear,
    "log_softmax": _log_softmax,
    "log_sigmoid": lambda x: -_softplus(-x),
    "ones_like": lambda x: x.like(torch.ones((1,) * x.ndim, dtype=x.dtype)).expand(x.shape),
    "searchsorted": special.searchsorted,
    # no product with Sigmoid, which onnxruntime replaces by a function that it has in single precision alone
    "silu": lambda x, inplace=False: x * (0.5 + 0.5 * (0.5 * x).unary("Tanh")),
    "softplus": _softplus,
    "special_log_ndtr": special.log_ndtr,
    "special_ndtri": special.ndtri,
    "split": Value.split,
    "stack": _stack,
    "to": lambda tensor, like: tensor.to(like.dtype),
    "where": _where,
    "zeros_like": lambda x: x.like(torch.zeros((1,) * x.ndim, dtype=x.dtype)),
}
