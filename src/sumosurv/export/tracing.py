"""Torch code run on values of an ONNX graph: every operation adds nodes to the graph.

The networks and distributions of the library are written once, in torch; a `Value` takes the place of a tensor in them.
Each value also carries two examples, real tensors that torch computes for inputs of two sizes. They give its type and
its shape: a length that differs between the examples is open, and stands in the shape as a `Size`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

_TYPES = {
    torch.float64: TensorProto.DOUBLE,
    torch.float32: TensorProto.FLOAT,
    torch.int64: TensorProto.INT64,
    torch.bool: TensorProto.BOOL,
}


class Graph:
    """Nodes in order, each with one output; equal nodes and equal constants are kept once."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.sizes: dict[tuple[int, ...], Size] = {}  # open lengths, by the lengths in the examples
        self._known: dict[Any, str] = {}  # names of nodes and constants, by their content

    def add(self, operator: str, inputs: Sequence[Any], *, dtype: torch.dtype | None = None, **attributes: Any) -> str:
        """Return the name of a node with these inputs, as in `name`."""
        names = [self.name(part, dtype) for part in inputs]
        key = repr((operator, names, attributes))
        if key not in self._known:
            self._known[key] = name = f"v{len(self.nodes)}"
            # nodes are named because onnxruntime 1.20 names the nodes that it fuses after them
            self.nodes.append(helper.make_node(operator, names, [name], name=name, **attributes))
        return self._known[key]

    def name(self, part: Any, dtype: torch.dtype | None = None) -> str:
        """Return the name of a value, tensor, number or list of lengths; values of another type are converted."""
        if isinstance(part, str):
            return part
        if isinstance(part, Value):
            return part.name if dtype in (None, part.dtype) else self.cast(part.name, dtype)
        if isinstance(part, list):
            if any(isinstance(length, Size) for length in part):
                lengths: list[Any] = [length.name if isinstance(length, Size) else [length] for length in part]
                return self.add("Concat", lengths, axis=0) if len(part) > 1 else str(lengths[0])
            return self.constant(np.array(part, dtype=np.int64))
        return self.constant(torch.as_tensor(part, dtype=dtype).detach().numpy())

    def cast(self, name: str, dtype: torch.dtype | None) -> str:
        """Return the name of a value converted to a type."""
        return self.add("Cast", [name], to=int(_TYPES[dtype]))  # type: ignore[index]

    def constant(self, values: npt.NDArray[Any]) -> str:
        """Return the name of a constant."""
        key = str(values.dtype), values.shape, values.tobytes()
        if key not in self._known:
            self._known[key] = name = f"c{len(self.initializers)}"
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name))
        return self._known[key]

    def prune(self, outputs: Sequence[str]) -> None:
        """Remove nodes and constants that no output needs."""
        wanted, kept = set(outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                kept.append(node)
                wanted |= set(node.input)
        self.nodes = kept[::-1]
        self.initializers = [constant for constant in self.initializers if constant.name in wanted]


class Size:
    """A length that is known when the graph runs: the name of a value that holds it, and its values in the examples."""

    def __init__(self, graph: Graph, name: str, lengths: tuple[int, ...]) -> None:
        self.graph, self.name, self.lengths = graph, name, lengths

    def _with(self, node: str, function: Callable[[int, int], int], other: int | Size) -> int | Size:
        lengths = tuple(map(function, self.lengths, other.lengths if isinstance(other, Size) else (other,) * 2))
        if len(set(lengths)) == 1:
            return lengths[0]
        return Size(self.graph, self.graph.add(node, [[self], [other]]), lengths)

    def __add__(self, other: int | Size) -> int | Size:
        return self._with("Add", operator.add, other)

    def __sub__(self, other: int | Size) -> int | Size:
        return self._with("Sub", operator.sub, other)

    def __mul__(self, other: int | Size) -> int | Size:
        return self._with("Mul", operator.mul, other)

    def __floordiv__(self, other: int) -> int | Size:
        return self._with("Div", operator.floordiv, other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.lengths == other.lengths

    def __hash__(self) -> int:
        return hash(self.lengths)

    __radd__, __rmul__ = __add__, __mul__


class Value:
    """A tensor that is known when the graph runs: its name, and two examples of it."""

    def __init__(self, graph: Graph, name: str, examples: Sequence[Tensor]) -> None:
        self.graph, self.name, self.examples = graph, name, examples

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _apply(function.__name__.strip("_"), function, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if not hasattr(Tensor, name):
            raise AttributeError(name)

        def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(tensor, name)(*args, **kwargs)

        return lambda *args, **kwargs: _apply(name, method, (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind())

    def __len__(self) -> int:
        return int(self.shape[0])  # an open length raises a TypeError

    @property
    def shape(self) -> tuple[Any, ...]:
        """The length of each axis: a number, or a `Size` if it is open."""
        lengths = zip(*(example.shape for example in self.examples))
        return tuple(each[0] if len(set(each)) == 1 else self._size(axis, each) for axis, each in enumerate(lengths))

    def _size(self, axis: int, lengths: tuple[int, ...]) -> Size:
        known = self.graph.sizes
        if lengths not in known:
            name = self.graph.add("Gather", [self.graph.add("Shape", [self.name]), [axis]], axis=0)
            known[lengths] = Size(self.graph, name, lengths)
        return known[lengths]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.examples[0].ndim

    @property
    def dtype(self) -> torch.dtype:
        """The type of the elements."""
        return self.examples[0].dtype

    @property
    def device(self) -> torch.device:
        """The device on which constants are made."""
        return torch.device("cpu")

    @property
    def T(self) -> Any:  # noqa: N802  (torch's name)
        """The transpose of a matrix."""
        return self.movedim(0, 1)


def _operation(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: _apply(name, function, args, {})


for _name in ("add", "sub", "mul", "truediv", "matmul", "pow", "and", "or", "lt", "gt", "le", "ge", "eq"):
    setattr(Value, f"__{_name}__", _operation(_name, getattr(operator, f"__{_name}__")))
for _name in ("add", "sub", "mul", "truediv"):
    setattr(Value, f"__r{_name}__", _operation(f"r{_name}", getattr(Tensor, f"__r{_name}__")))
for _name in ("neg", "invert", "getitem"):
    setattr(Value, f"__{_name}__", _operation(_name, getattr(operator, _name)))
Value.__hash__ = object.__hash__  # type: ignore[method-assign]  # equality is that of elements, as in torch


def _apply(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation of `OPERATIONS`; if it gives the name of a node, torch computes the examples."""
    from sumosurv.export.operations import OPERATIONS

    if name not in OPERATIONS:
        raise TypeError(
            f"The model, or its encoder, uses torch's {name!r}, which cannot be exported to ONNX; "
            "export_torch supports everything that torch.export can trace."
        )
    result = OPERATIONS[name](*args, **kwargs)
    if not isinstance(result, str):
        return result
    examples = [function(*example(args, i), **example(kwargs, i)) for i in range(2)]
    return Value(graph_of(args), result, examples)


def example(part: Any, place: int = 0) -> Any:
    """Return arguments with each value, and each open length, replaced by one of its examples."""
    if isinstance(part, Value):
        return part.examples[place]
    if isinstance(part, Size):
        return part.lengths[place]
    if isinstance(part, (list, tuple)):
        return type(part)(example(own, place) for own in part)
    if isinstance(part, dict):
        return {name: example(own, place) for name, own in part.items()}
    if isinstance(part, slice):
        return slice(*(example(end, place) for end in (part.start, part.stop, part.step)))
    return part


def graph_of(parts: Sequence[Any]) -> Graph:
    """Return the graph of the first value among some arguments, or in a list among them."""
    flat = [own for part in parts for own in (part if isinstance(part, (list, tuple)) else [part])]
    return next(part.graph for part in flat if isinstance(part, Value))
