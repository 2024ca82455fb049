"""The operations of torch that can be exported to ONNX, by name.

An operation gets the arguments of the torch function, in which `Value` takes the place of tensors. It returns the name
of the node that it adds, or a value made of other operations. Functions without an ONNX operator are composed of those
that there are, accurate in float64. onnxruntime has convolutions and mean pooling in single precision only: float64 is
rounded before them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.polynomial.chebyshev import chebinterpolate
from scipy.special import erfcx as exact_erfcx
from scipy.special import ndtri as exact_ndtri
from torch import Tensor

from sumosurv.export.tracing import Value, example, graph_of

_LAST = 2**63 - 1  # the end of an axis of any length


def _node(operator: str, *inputs: Any, dtype: torch.dtype | None = None, **attributes: Any) -> str:
    return graph_of(inputs).add(operator, inputs, dtype=dtype, **attributes)


# ---------------------------------------------------------------------- element by element


def _binary(operator: str, a: Any, b: Any) -> str:
    """An operator of two values, one of which may be a tensor or a number."""
    dtype = torch.result_type(example(a), example(b))
    return _node("And" if operator == "Mul" and dtype == torch.bool else operator, a, b, dtype=dtype)


def _reflected(operator: str, b: Any, a: Any) -> str:
    return _binary(operator, a, b)


def _unary(operator: str, x: Value, inplace: bool = False) -> str:
    return _node(operator, x)


def _clamp(x: Value, low: float | None = None, high: float | None = None) -> str:
    made = x.name if low is None else _node("Max", x, low, dtype=x.dtype)
    return made if high is None else x.graph.add("Min", [made, high], dtype=x.dtype)


def _where(condition: Any, first: Any, second: Any) -> str:
    graph, dtype = graph_of((condition, first, second)), torch.result_type(example(first), example(second))
    return graph.add("Where", [condition, graph.name(first, dtype), graph.name(second, dtype)])


def _softplus(x: Any) -> Any:
    return x.clamp_min(0.0) + torch.log(1.0 + torch.exp(-x.abs()))


def _is_finite(x: Any) -> Any:
    return ~(torch.isinf(x) | torch.isnan(x))


def _to(x: Any, *kinds: Any, dtype: torch.dtype | None = None) -> Any:
    """Another type; the device does not matter."""
    kind = kinds[-1] if kinds else dtype
    wanted = kind if isinstance(kind, torch.dtype) else getattr(kind, "dtype", x.dtype)
    if not isinstance(x, Value):  # a constant, of the type of a value
        return x.to(wanted)
    return x if wanted == x.dtype else x.graph.cast(x.name, wanted)


# ---------------------------------------------------------------------- shapes


def _getitem(x: Any, index: Any) -> str:
    if not isinstance(x, Value):  # table[members, places] for all members (K, 1) and places (1, n)
        return _node("Gather", x, index[1].squeeze(0), axis=1)
    items = list(index) if isinstance(index, tuple) else [index]
    if any(item is Ellipsis for item in items):
        place = next(i for i, item in enumerate(items) if item is Ellipsis)
        known = sum(item is not None and item is not Ellipsis for item in items)
        items[place : place + 1] = [slice(None)] * (x.ndim - known)
    made, axis = x.name, 0
    for item in items:
        if item is None:
            made = x.graph.add("Unsqueeze", [made, [axis]])
        elif isinstance(item, slice):
            if item != slice(None):
                ends = [item.start or 0], [_LAST if item.stop is None else item.stop]
                made = x.graph.add("Slice", [made, *ends, [axis], [item.step or 1]])
        else:
            made = x.graph.add("Gather", [made, torch.as_tensor(item)], axis=axis)
        axis += not isinstance(item, int)
    return made


def _movedim(x: Value, source: int, destination: int) -> str:
    order = list(range(x.ndim))
    order.insert(destination % x.ndim, order.pop(source))
    return _node("Transpose", x, perm=order)


def _lengths(shape: tuple[Any, ...]) -> list[Any]:
    """A shape that was given as one argument or as several."""
    return list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else list(shape)


def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return x.reshape(*x.shape[:start_dim], -1, *x.shape[end_dim % x.ndim + 1 :])


def _split(x: Any, sizes: Sequence[Any], dim: int = 0) -> tuple[Any, ...]:
    ends = [sum(sizes[:k], 0) for k in range(len(sizes) + 1)]
    before = (slice(None),) * (dim % x.ndim)
    return tuple(x[(*before, slice(*pair))] for pair in pairwise(ends))


def _unbind(x: Any, dim: int = 0) -> tuple[Any, ...]:
    return tuple(x[(*(slice(None),) * (dim % x.ndim), k)] for k in range(x.shape[dim]))


def _cat(parts: Sequence[Any], dim: int = 0) -> str:
    """Without parts of length zero, which onnxruntime does not accept in every version."""
    kept = [part for part in parts if part.shape[dim] != 0] or parts[:1]
    dtype = reduce(torch.promote_types, [part.dtype for part in kept])
    return graph_of(parts).add("Concat", kept, dtype=dtype, axis=dim % parts[0].ndim)


def _stack(parts: Sequence[Any], dim: int = 0) -> Any:
    return torch.cat([part.unsqueeze(dim) for part in parts], dim)


def _filled(value: float, x: Value) -> str:
    return x.graph.add("Expand", [x.graph.name(value, x.dtype), list(x.shape)])


# ---------------------------------------------------------------------- sums and products


def _reduced(operator: str, x: Value, dim: int | Sequence[int], keepdim: bool = False) -> str:
    return _node(operator, x, [dim] if isinstance(dim, int) else list(dim), keepdims=int(keepdim))


def _all(x: Value, dim: int, keepdim: bool = False) -> str:
    least = x.graph.add("ReduceMin", [x.to(torch.int64), [dim]], keepdims=int(keepdim))
    return x.graph.cast(least, torch.bool)


def _linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    made = x @ weight.T
    return made if bias is None else made + bias


# ---------------------------------------------------------------------- convolutions and pooling


def _each(number: int | Sequence[int], x: Value) -> list[int]:
    """One number for each axis of an image or a sequence."""
    axes = x.ndim - 2
    return [number] * axes if isinstance(number, int) else [int(n) for n in number] * (axes // len(number))


def _convolution(
    x: Value,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> str:
    if isinstance(padding, str):
        raise TypeError(f"A convolution with padding={padding!r} cannot be exported to ONNX; pass a number.")
    options: Any = {"strides": _each(stride, x), "pads": _each(padding, x) * 2, "dilations": _each(dilation, x)}
    inputs = [x, weight.float(), *([] if bias is None else [bias.float()])]
    options |= {"kernel_shape": list(weight.shape[2:]), "group": groups}
    return x.graph.cast(_node("Conv", *inputs, dtype=torch.float32, **options), x.dtype)


def _max_pool(
    x: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> str:
    if ceil_mode or return_indices:
        raise TypeError("Pooling with ceil_mode or return_indices cannot be exported to ONNX.")
    return _node("MaxPool", x, dilations=_each(dilation, x), **_window(x, kernel_size, stride, padding))


def _mean_pool(
    x: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> str:
    if ceil_mode or divisor_override is not None:
        raise TypeError("Pooling with ceil_mode or divisor_override cannot be exported to ONNX.")
    options = _window(x, kernel_size, stride, padding) | {"count_include_pad": int(count_include_pad)}
    return x.graph.cast(_node("AveragePool", x, dtype=torch.float32, **options), x.dtype)


def _window(x: Value, kernel_size: Any, stride: Any, padding: Any) -> dict[str, Any]:
    kernel = _each(kernel_size, x)  # torch has an empty stride for None
    return {"kernel_shape": kernel, "strides": _each(stride, x) if stride else kernel, "pads": _each(padding, x) * 2}


def _pool_to_one(operator: str, x: Value, output_size: Any, return_indices: bool = False) -> str:
    """Adaptive pooling, to one value for each channel."""
    if return_indices or set(_each(output_size, x)) != {1}:
        raise TypeError(f"Adaptive pooling to {output_size!r} cannot be exported to ONNX; pool to 1.")
    return _node(operator, x, list(range(2, x.ndim)), keepdims=1)


# ---------------------------------------------------------------------- functions that ONNX does not have
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
        first: Any = self.coefficients[-1]
        second: Any = 0.0
        for c in self.coefficients[-2:0:-1]:
            first, second = 2.0 * x * first - second + c, first
        result: Tensor = x * first - second + self.coefficients[0]
        return result


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


# ---------------------------------------------------------------------- the table

_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "truediv": "Div", "minimum": "Min", "maximum": "Max"}
_BINARY |= {"lt": "Less", "gt": "Greater", "le": "LessOrEqual", "ge": "GreaterOrEqual", "eq": "Equal"}
_BINARY |= {"and": "And", "or": "Or", "bitwise_and": "And", "bitwise_or": "Or", "bmm": "MatMul", "matmul": "MatMul"}
_UNARY = {"exp": "Exp", "log": "Log", "tanh": "Tanh", "sin": "Sin", "cos": "Cos", "sqrt": "Sqrt", "relu": "Relu"}
_UNARY |= {"sign": "Sign", "abs": "Abs", "neg": "Neg", "sigmoid": "Sigmoid", "invert": "Not"}
_UNARY |= {"isinf": "IsInf", "isnan": "IsNaN"}
_POOLING = {"conv": _convolution, "max_pool": _max_pool, "avg_pool": _mean_pool}
_POOLING |= {
    "adaptive_avg_pool": partial(_pool_to_one, "ReduceMean"),
    "adaptive_max_pool": partial(_pool_to_one, "ReduceMax"),
}

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(_binary, operator) for name, operator in _BINARY.items()},
    **{f"r{name}": partial(_reflected, _BINARY[name]) for name in ("add", "sub", "mul", "truediv")},
    **{name: partial(_unary, operator) for name, operator in _UNARY.items()},
    **{f"{name}{axes}d": write for name, write in _POOLING.items() for axes in (1, 2)},
    "all": _all,
    "baddbmm": lambda bias, a, b: torch.bmm(a, b) + bias,
    "cat": _cat,
    "clamp": _clamp,
    "clamp_max": lambda x, high: _clamp(x, high=high),
    "clamp_min": _clamp,
    "contiguous": lambda x: x,
    "double": lambda x: x.to(torch.float64),
    "expand": lambda x, *shape: _node("Expand", x, [1 if n == -1 else n for n in _lengths(shape)]),
    "expm1": lambda x: torch.exp(x) - 1.0,
    "flatten": _flatten,
    "gather": lambda table, dim, places: _node("GatherElements", table, places, axis=dim),
    "gelu": lambda x, **_: x * torch.exp(torch.special.log_ndtr(x)),
    "getitem": _getitem,
    "isfinite": _is_finite,
    "linear": _linear,
    "log_sigmoid": lambda x: -_softplus(-x),
    "log_softmax": lambda x, dim: _node("LogSoftmax", x, axis=dim),
    "logsumexp": partial(_reduced, "ReduceLogSumExp"),
    "masked_fill": lambda x, mask, value: _where(mask, value, x),
    "mean": partial(_reduced, "ReduceMean"),
    "movedim": _movedim,
    "new_full": lambda x, shape, value: torch.full(tuple(shape), value, dtype=x.dtype),
    "new_tensor": lambda x, values: torch.tensor(values, dtype=x.dtype),
    "new_zeros": lambda x, *shape: torch.zeros(*shape, dtype=x.dtype),
    "numel": lambda x: math.prod(x.shape),
    "ones_like": partial(_filled, 1.0),
    "pow": lambda x, power: reduce(mul, [x] * power),
    "reshape": lambda x, *shape: _node("Reshape", x, _lengths(shape)),
    "searchsorted": searchsorted,
    # no product with Sigmoid, which onnxruntime replaces by a function that it has in single precision only
    "silu": lambda x, inplace=False: x * (0.5 + 0.5 * torch.tanh(0.5 * x)),
    "softplus": _softplus,
    "special_log_ndtr": log_ndtr,
    "special_ndtri": ndtri,
    "split": _split,
    "squeeze": lambda x, dim: _node("Squeeze", x, [dim]),
    "stack": _stack,
    "sum": partial(_reduced, "ReduceSum"),
    "to": _to,
    "unbind": _unbind,
    "unsqueeze": lambda x, dim: _node("Unsqueeze", x, [dim]),
    "where": _where,
    "zeros_like": partial(_filled, 0.0),
}
