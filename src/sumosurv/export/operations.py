"""Functions of torch on values of an ONNX graph, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from sumosurv.export import special
from sumosurv.export.convolutions import CONVOLUTIONS
from sumosurv.export.tracing import Value, joint

__all__ = ["FUNCTIONS"]


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
