"""Torch code run on values of an ONNX graph: every operation adds nodes in place of computing.

What the library's networks and distributions say in torch is said once; `Value` answers to the same operations. An
operation that is not here raises a TypeError that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import torch

from sumosurv.export.graph import Dim, Graph, Size, onnx_type

Shape = tuple[Dim, ...]

_COMPARISONS = ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")


def _operator(name: str, *, swap: bool = False) -> Callable[[Value, Any], Value]:
    return lambda value, other: value.binary(name, other, swap=swap)


class Value:
    """A tensor that exists when the graph runs: a name, a shape whose sizes may be open, and a type."""

    def __init__(self, graph: Graph, name: str, shape: Sequence[Dim], dtype: torch.dtype) -> None:
        self.graph, self.name, self.shape, self.dtype = graph, name, tuple(shape), dtype

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        from sumosurv.export.operations import FUNCTIONS

        name = function.__name__.strip("_")
        own = FUNCTIONS.get(name)
        if own is None:
            raise TypeError(
                f"The model, or its encoder, uses torch's {name!r}, which cannot be exported to ONNX; "
                "export_torch supports everything that torch.export can trace."
            )
        return own(*args, **(kwargs or {}))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def device(self) -> torch.device:
        """Where torch's own tensors beside it are made."""
        return torch.device("cpu")

    @property
    def T(self) -> Value:  # noqa: N802  (torch's name)
        """Rows and columns exchanged."""
        return self.movedim(0, 1)

    def __len__(self) -> int:
        return int(self.shape[0])  # type: ignore[arg-type]  # an open size is an error

    def __iter__(self) -> Iterator[Value]:
        return iter(self.unbind())

    def numel(self) -> Dim:
        """The number of elements."""
        return _product(self.shape)

    # ------------------------------------------------------------------ making values

    def new(
        self, operator: str, inputs: Sequence[str], shape: Sequence[Dim], dtype: torch.dtype | None = None, **more: Any
    ) -> Value:
        """What an operator of ONNX makes of named values."""
        return Value(self.graph, self.graph.add(operator, inputs, **more), shape, dtype or self.dtype)

    def like(self, other: Any) -> Value:
        """A number or a tensor as a value of the same graph; a number gets this one's type."""
        if isinstance(other, Value):
            return other
        tensor = other if isinstance(other, torch.Tensor) else torch.tensor(other, dtype=self.dtype)
        tensor = tensor.detach()
        return Value(self.graph, self.graph.constant(tensor.numpy()), tuple(tensor.shape), tensor.dtype)

    def to(self, *kinds: torch.dtype | torch.device | Value | torch.Tensor) -> Value:
        """Another type; the device does not matter."""
        kind = kinds[-1]
        if isinstance(kind, torch.device):
            return self
        dtype = kind if isinstance(kind, torch.dtype) else kind.dtype
        return self if dtype == self.dtype else self.new("Cast", [self.name], self.shape, dtype, to=onnx_type(dtype))

    def double(self) -> Value:
        """In float64."""
        return self.to(torch.float64)

    def new_zeros(self, *shape: int) -> torch.Tensor:
        """Zeros of the same type."""
        return torch.zeros(*shape, dtype=self.dtype)

    def new_full(self, shape: Sequence[int], value: float) -> torch.Tensor:
        """A constant of the same type."""
        return torch.full(tuple(shape), value, dtype=self.dtype)

    def new_tensor(self, values: Sequence[float]) -> torch.Tensor:
        """Constants of the same type."""
        return torch.tensor(values, dtype=self.dtype)

    # ------------------------------------------------------------------ shapes

    def __getitem__(self, index: Any) -> Value:
        items = list(index) if isinstance(index, tuple) else [index]
        if Ellipsis in [item if item is Ellipsis else None for item in items]:
            place = next(i for i, item in enumerate(items) if item is Ellipsis)
            known = sum(item is not None and item is not Ellipsis for item in items)
            items[place : place + 1] = [slice(None)] * (self.ndim - known)
        made, axis = self, 0
        for item in items:
            if item is None:
                made = made.unsqueeze(axis)
                axis += 1
            elif isinstance(item, int):
                made = made._slice(axis, item, item + 1 if item != -1 else None).squeeze(axis)
            elif isinstance(item, torch.Tensor):
                picked = (*made.shape[:axis], len(item), *made.shape[axis + 1 :])
                made = made.new("Gather", [made.name, made.like(item).name], picked, axis=axis)
                axis += 1
            else:
                made = made._slice(axis, item.start, item.stop)
                axis += 1
        return made

    def _slice(self, axis: int, start: Dim | None, stop: Dim | None) -> Value:
        if start is None and stop is None:
            return self
        size = self.shape[axis]
        first = _place(0 if start is None else start, size)
        last = _place(size if stop is None else stop, size)
        g, shape = self.graph, list(self.shape)
        shape[axis] = last - first
        return self.new("Slice", [self.name, g.size(first), g.size(last), g.numbers(axis)], shape)

    def movedim(self, source: int, destination: int) -> Value:
        """One axis moved to another place."""
        order = list(range(self.ndim))
        order.insert(destination % self.ndim, order.pop(source))
        return self.new("Transpose", [self.name], [self.shape[axis] for axis in order], perm=order)

    def unsqueeze(self, axis: int) -> Value:
        """A new axis of one."""
        shape = list(self.shape)
        shape.insert(axis, 1)
        return self.new("Unsqueeze", [self.name, self.graph.numbers(axis)], shape)

    def squeeze(self, axis: int) -> Value:
        """Without an axis of one."""
        shape = [size for place, size in enumerate(self.shape) if place != axis]
        return self.new("Squeeze", [self.name, self.graph.numbers(axis)], shape)

    def reshape(self, *shape: Any) -> Value:
        """Another shape; one size may be -1."""
        wanted = _listed(shape)
        if -1 in wanted:
            total, known = self.numel(), _product(size for size in wanted if size != -1)
            wanted[wanted.index(-1)] = total // known if isinstance(known, int) else _quotient(total, known)
        return self.new("Reshape", [self.name, self.graph.shape(wanted)], wanted)

    def flatten(self, start: int = 0, end: int = -1) -> Value:
        """The axes from one on as one."""
        return self.reshape(*self.shape[:start], _product(self.shape[start:]))

    def expand(self, *shape: Any) -> Value:
        """Repeated along axes of one."""
        wanted = _listed(shape)
        own = [1] * (len(wanted) - self.ndim) + list(self.shape)
        wanted = [size if new == -1 else new for new, size in zip(wanted, own)]
        return (
            self if tuple(wanted) == self.shape else self.new("Expand", [self.name, self.graph.shape(wanted)], wanted)
        )

    def contiguous(self) -> Value:
        """Itself."""
        return self

    def unbind(self, axis: int = 0) -> tuple[Value, ...]:
        """The parts along an axis of known size."""
        count = int(self.shape[axis])  # type: ignore[arg-type]
        return tuple(self._slice(axis, k, k + 1).squeeze(axis) for k in range(count))

    def split(self, sizes: Sequence[Dim], dim: int = 0) -> tuple[Value, ...]:
        """Parts of given sizes along an axis."""
        parts, start = [], 0
        for size in sizes:
            stop: Any = size + start
            parts.append(self._slice(dim, start, stop))
            start = stop
        return tuple(parts)

    # ------------------------------------------------------------------ arithmetic

    def binary(self, operator: str, other: Any, *, swap: bool = False) -> Value:
        """An operator of this value and another, one of which may be repeated to the shape of the other."""
        a, b = self, self.like(other)
        if a.dtype != b.dtype:
            common = torch.promote_types(a.dtype, b.dtype)
            a, b = a.to(common), b.to(common)
        names = [b.name, a.name] if swap else [a.name, b.name]
        return a.new(operator, names, joint(a.shape, b.shape), torch.bool if operator in _COMPARISONS else a.dtype)

    def unary(self, operator: str, dtype: torch.dtype | None = None) -> Value:
        """An operator of each element."""
        return self.new(operator, [self.name], self.shape, dtype)

    __add__ = __radd__ = _operator("Add")
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", swap=True)
    __truediv__, __rtruediv__ = _operator("Div"), _operator("Div", swap=True)
    __and__, __or__ = _operator("And"), _operator("Or")
    __lt__, __gt__ = _operator("Less"), _operator("Greater")
    __le__, __ge__ = _operator("LessOrEqual"), _operator("GreaterOrEqual")
    __eq__ = _operator("Equal")  # type: ignore[assignment]  # as torch has it
    __hash__ = object.__hash__

    def __mul__(self, other: Any) -> Value:
        return self.binary("And" if self.dtype == torch.bool else "Mul", other)

    __rmul__ = __mul__

    def __pow__(self, power: int) -> Value:
        made = self
        for _ in range(power - 1):
            made = made * self
        return made

    def __neg__(self) -> Value:
        return self.unary("Neg")

    def __invert__(self) -> Value:
        return self.unary("Not")

    def clamp(self, low: float | None = None, high: float | None = None) -> Value:
        """Kept within two limits."""
        made = self if low is None else self.binary("Max", low)
        return made if high is None else made.binary("Min", high)

    def clamp_min(self, low: float) -> Value:
        """Not below a limit."""
        return self.clamp(low=low)

    def clamp_max(self, high: float) -> Value:
        """Not above a limit."""
        return self.clamp(high=high)

    def masked_fill(self, mask: Any, value: float) -> Value:
        """A number where the mask is true."""
        return self.new(
            "Where", [self.like(mask).name, self.like(value).name, self.name], joint(self.shape, mask.shape)
        )

    def abs(self) -> Value:
        """Without the sign."""
        return self.unary("Abs")

    def _reduced(self, operator: str, dim: int, keepdim: bool = False) -> Value:
        axis = dim % self.ndim
        shape = [1 if place == axis else size for place, size in enumerate(self.shape) if keepdim or place != axis]
        return self.new(operator, [self.name, self.graph.numbers(axis)], shape, keepdims=int(keepdim))

    def sum(self, dim: int, keepdim: bool = False) -> Value:
        """Over one axis."""
        return self._reduced("ReduceSum", dim, keepdim)

    def mean(self, dim: int, keepdim: bool = False) -> Value:
        """Over one axis."""
        return self._reduced("ReduceMean", dim, keepdim)

    def all(self, dim: int, keepdim: bool = False) -> Value:
        """Over one axis."""
        return self.to(torch.int64)._reduced("ReduceMin", dim, keepdim) > 0

    def __matmul__(self, other: Any) -> Value:
        b = self.like(other)
        return self.new(
            "MatMul", [self.name, b.name], (*joint(self.shape[:-2], b.shape[:-2]), self.shape[-2], b.shape[-1])
        )


def _listed(shape: tuple[Any, ...]) -> list[Any]:
    """A shape that was given as one argument or as several."""
    return list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], (int, Size)) else list(shape)


def _product(sizes: Iterable[Dim]) -> Dim:
    one: Dim = 1
    return reduce(lambda total, size: size * total, sizes, one)


def _place(at: Dim, size: Dim) -> Any:
    """An end of a slice, counted from the front."""
    return size + at if isinstance(at, int) and at < 0 else at


def joint(a: Shape, b: Shape) -> Shape:
    """The shape of two values together."""
    longest = max(len(a), len(b))
    first, second = (1,) * (longest - len(a)) + tuple(a), (1,) * (longest - len(b)) + tuple(b)
    made: list[Dim] = []
    for x, y in zip(first, second):
        if x != y and x != 1 and y != 1:
            raise ValueError("shapes do not fit together")
        made.append(y if x == 1 else x)
    return tuple(made)


def _quotient(total: Dim, part: Dim) -> Dim:
    """What is left of a product of sizes beside some of them."""
    (own, count), (other, times) = (next(iter(Size.of(size).terms.items())) for size in (total, part))
    left = list(own)
    for name in other:
        left.remove(name)
    return Size({tuple(left): count // times}).plain()
