"""Functions of torch on values of an ONNX graph, by name.

onnxruntime has convolutions and mean pooling in single precision alone: values of float64 are rounded on the way in.
Functions that ONNX has no operator for are made of those that it has, accurate to float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.polynomial.chebyshev import chebinterpolate
from scipy.special import erfcx as exact_erfcx
from scipy.special import ndtri as exact_ndtri
from torch import Tensor

from sumosurv.export.tracing import Value, joint


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
            raise TypeError(f"A convolution with padding={padding!r} cannot be exported to ONNX; pass a number.")
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
            raise TypeError("Pooling with ceil_mode or return_indices cannot be exported to ONNX.")
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
            raise TypeError("Pooling with ceil_mode or divisor_override cannot be exported to ONNX.")
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
            raise TypeError(f"Adaptive pooling to {output_size!r} cannot be exported to ONNX; pool to 1.")
        over = x.graph.numbers(*range(2, 2 + axes))
        return x.new(operator, [x.name, over], [*x.shape[:2], *[1] * axes], keepdims=1)

    return apply


_CONVOLUTIONS: dict[str, Callable[..., Any]] = {}
for _axes in (1, 2):
    _CONVOLUTIONS |= {
        f"conv{_axes}d": _convolution(_axes),
        f"max_pool{_axes}d": _max_pool(_axes),
        f"avg_pool{_axes}d": _mean_pool(_axes),
        f"adaptive_avg_pool{_axes}d": _to_one("ReduceMean", _axes),
        f"adaptive_max_pool{_axes}d": _to_one("ReduceMax", _axes),
    }


Floats = npt.NDArray[np.float64]

_CENTRE = 0.3  # |p - 1/2| up to which ndtri is a polynomial in (p - 1/2)²
_SMALLEST = 1e-4  # probability: a table of normal scores has some 257 ranks
_TURN = 3.0  # of the map from [0, ∞] to [-1, 1]


def ndtri(p: Tensor) -> Tensor:
    """The normal quantile of probabilities between 0.0001 and 0.9999."""
    away = p - 0.5
    near = away * _CENTRAL(away * away)
    far = torch.sign(away) * _OUTER(torch.sqrt(-torch.log((0.5 - away.abs()).clamp_min(_SMALLEST))))
    return torch.where(away.abs() <= _CENTRE, near, far)


def log_ndtr(z: Tensor) -> Tensor:
    r"""log Φ(z), by :math:`Φ(-z) = \tfrac12 e^{-z²/2} \operatorname{erfcx}(z / \sqrt 2)`."""
    x = z.abs() * math.sqrt(0.5)
    half = 0.5 * _MILLS(1.0 - 2.0 * _TURN / (x + _TURN)) / (1.0 + x)
    return torch.where(z < 0, torch.log(half) - x * x, torch.log(1.0 - half * torch.exp(-x * x)))


def searchsorted(
    knots: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many knots are below each value; of equal ones too, from the right."""
    values, knots = values[..., None], knots[..., None, :]
    below = values >= knots if right or side == "right" else values > knots
    return below.to(torch.int64).sum(-1)


class _Polynomial:
    """The Chebyshev interpolant of a function on an interval."""

    def __init__(self, function: Callable[[Floats], Floats], low: float, high: float, degree: int) -> None:
        self.middle, self.half = 0.5 * (low + high), 0.5 * (high - low)
        scaled: Any = lambda x: function(self.middle + self.half * x)  # noqa: E731
        self.coefficients = [float(c) for c in chebinterpolate(scaled, degree)]

    def __call__(self, x: Tensor) -> Tensor:
        """By Clenshaw's recurrence."""
        x = (x - self.middle) / self.half
        first, second = torch.zeros_like(x), torch.zeros_like(x)
        for c in self.coefficients[:0:-1]:
            first, second = 2.0 * x * first - second + c, first
        return x * first - second + self.coefficients[0]


def _scaled_erfcx(y: Floats) -> Floats:
    """(1 + x) erfcx(x) at y = 1 - 2c / (x + c)."""
    x = 2.0 * _TURN / np.maximum(1.0 - y, 1e-300) - _TURN
    with np.errstate(over="ignore", invalid="ignore"):
        found = (1.0 + x) * exact_erfcx(x)
    result: Floats = np.where(np.isfinite(found) & (x < 1e15), found, 1.0 / math.sqrt(math.pi))
    return result


def _quotient(square: Floats) -> Floats:
    """The normal quantile of 1/2 + q, divided by q, as a function of q²."""
    q = np.sqrt(np.maximum(square, 1e-8))
    result: Floats = np.where(square < 1e-8, math.sqrt(2 * math.pi), exact_ndtri(0.5 + q) / q)
    return result


_CENTRAL = _Polynomial(_quotient, 0.0, _CENTRE**2, 20)
_OUTER = _Polynomial(
    lambda r: -exact_ndtri(np.exp(-r * r)), math.sqrt(-math.log(0.5 - _CENTRE)), math.sqrt(-math.log(_SMALLEST)), 24
)
_MILLS = _Polynomial(_scaled_erfcx, -1.0, 1.0, 40)


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


def _linear(x: Value, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Value:
    made = x @ weight.T
    return made if bias is None else made + bias


def _either(operator: str) -> Callable[[Any, Any], Value]:
    """An operator whose first operand may be a tensor."""
    return lambda a, b: (a if isinstance(a, Value) else b.like(a)).binary(operator, b)


def _elementwise(operator: str, x: Value, inplace: bool = False) -> Value:
    return x.unary(operator)


_OPERATORS = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "truediv": "Div"}
_OPERATORS |= {"minimum": "Min", "maximum": "Max"}
_COMPARED = {"lt": "Less", "gt": "Greater", "le": "LessOrEqual", "ge": "GreaterOrEqual", "eq": "Equal", "or": "Or"}
_ELEMENTWISE = {"exp": "Exp", "log": "Log", "tanh": "Tanh", "sin": "Sin", "cos": "Cos", "sqrt": "Sqrt"}
_ELEMENTWISE |= {"relu": "Relu", "sign": "Sign", "abs": "Abs", "neg": "Neg", "sigmoid": "Sigmoid"}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _either(operator) for name, operator in (_OPERATORS | _COMPARED).items()},
    **{name: partial(_elementwise, operator) for name, operator in _ELEMENTWISE.items()},
    **_CONVOLUTIONS,
    "radd": lambda a, b: b + a if isinstance(b, Value) else a + b,
    "rmul": lambda a, b: b * a if isinstance(b, Value) else a * b,
    "rsub": lambda a, b: _either("Sub")(b, a),
    "rtruediv": lambda a, b: _either("Div")(b, a),
    "and": lambda a, b: _either("And")(a, b),
    "bitwise_or": _either("Or"),
    "bitwise_and": _either("And"),
    "baddbmm": lambda bias, a, b: _bmm(a, b) + bias,
    "bmm": _bmm,
    "matmul": _bmm,
    "cat": _cat,
    "expm1": lambda x: x.unary("Exp") - 1.0,
    "flatten": Value.flatten,
    "gather": _gather,
    "getitem": _picked,
    "gelu": lambda x, **_: x * log_ndtr(x).unary("Exp"),  # type: ignore[attr-defined]
    "isfinite": lambda x: ~(x.unary("IsInf", torch.bool) | x.unary("IsNaN", torch.bool)),
    "isinf": lambda x: x.unary("IsInf", torch.bool),
    "isnan": lambda x: x.unary("IsNaN", torch.bool),
    "linear": _linear,
    "log_softmax": lambda x, dim: x.new("LogSoftmax", [x.name], x.shape, axis=dim),
    "logsumexp": lambda x, dim: x._reduced("ReduceLogSumExp", dim),
    "log_sigmoid": lambda x: -_softplus(-x),
    "ones_like": lambda x: x.like(torch.ones((1,) * x.ndim, dtype=x.dtype)).expand(x.shape),
    "searchsorted": searchsorted,
    # no product with Sigmoid, which onnxruntime replaces by a function that it has in single precision alone
    "silu": lambda x, inplace=False: x * (0.5 + 0.5 * (0.5 * x).unary("Tanh")),
    "softplus": _softplus,
    "special_log_ndtr": log_ndtr,
    "special_ndtri": ndtri,
    "split": Value.split,
    "stack": _stack,
    "to": lambda tensor, like: tensor.to(like.dtype),
    "where": _where,
    "zeros_like": lambda x: x.like(torch.zeros((1,) * x.ndim, dtype=x.dtype)),
}
