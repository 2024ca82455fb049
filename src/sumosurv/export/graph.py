"""An ONNX graph under construction: nodes, constants, and sizes that are known only when it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx import TensorProto, helper, numpy_helper

_TYPES = {
    torch.float64: TensorProto.DOUBLE,
    torch.float32: TensorProto.FLOAT,
    torch.int64: TensorProto.INT64,
    torch.bool: TensorProto.BOOL,
}


def onnx_type(dtype: torch.dtype) -> int:
    """The type of ONNX for one of torch."""
    return int(_TYPES[dtype])


class Size:
    """A number of rows or times, or a sum of products of such numbers: a polynomial with whole coefficients."""

    def __init__(self, terms: Mapping[tuple[str, ...], int]) -> None:
        self.terms = {names: count for names, count in terms.items() if count}

    @classmethod
    def of(cls, value: Dim) -> Size:
        """A plain number as one."""
        return value if isinstance(value, Size) else cls({(): int(value)})

    def __add__(self, other: Dim) -> Dim:
        terms = dict(self.terms)
        for names, count in Size.of(other).terms.items():
            terms[names] = terms.get(names, 0) + count
        return Size(terms).plain()

    def __sub__(self, other: Dim) -> Dim:
        return self + Size({names: -count for names, count in Size.of(other).terms.items()})

    def __mul__(self, other: Dim) -> Dim:
        terms: dict[tuple[str, ...], int] = {}
        for names, count in self.terms.items():
            for more, times in Size.of(other).terms.items():
                key = tuple(sorted((*names, *more)))
                terms[key] = terms.get(key, 0) + count * times
        return Size(terms).plain()

    def __floordiv__(self, other: int) -> Dim:
        if any(count % other for count in self.terms.values()):
            raise ValueError(f"a size is not a multiple of {other}")
        return Size({names: count // other for names, count in self.terms.items()}).plain()

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, Size)) and self.terms == Size.of(other).terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def plain(self) -> Dim:
        """An int, where that is what it is."""
        return self.terms.get((), 0) if set(self.terms) <= {()} else self


Dim = int | Size


class Graph:
    """Nodes one after another, each with a name of its own; equal nodes and constants are kept once."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.known: dict[str, str] = {}  # names of nodes by what they compute
        self.constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.initializers: list[Any] = []
        self.sizes: dict[str, str] = {}  # names of numbers of rows and times, and of the values that hold them

    def add(self, operator: str, inputs: Sequence[str], *, domain: str = "", **attributes: Any) -> str:
        """A node with one output; its name. A node that is there already serves again."""
        key = repr((operator, list(inputs), domain, attributes))
        if key in self.known:
            return self.known[key]
        self.known[key] = name = f"v{len(self.nodes)}"
        # nodes have names, since onnxruntime 1.20 calls what it fuses after them, and wants these to differ
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def constant(self, values: npt.NDArray[Any]) -> str:
        """The name of a constant."""
        key = (str(values.dtype), values.shape, values.tobytes())
        if key not in self.constants:
            self.constants[key] = name = f"c{len(self.constants)}"
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name))
        return self.constants[key]

    def numbers(self, *values: int) -> str:
        """A constant of whole numbers."""
        return self.constant(np.array(values, dtype=np.int64))

    def note_size(self, name: str, value: str, axis: int) -> Size:
        """Call the length of an axis of a value by a name."""
        self.sizes[name] = self.add("Gather", [self.add("Shape", [value]), self.numbers(axis)], axis=0)
        return Size({(name,): 1})

    def size(self, size: Dim) -> str:
        """A value of shape (1,) that holds a size."""
        if not isinstance(size, Size):
            return self.numbers(size)
        total: str | None = None
        for names, count in size.terms.items():
            product = self.numbers(count)
            for name in names:
                product = (
                    self.sizes[name] if product == self.numbers(1) else self.add("Mul", [product, self.sizes[name]])
                )
            total = product if total is None else self.add("Add", [total, product])
        assert total is not None
        return total

    def shape(self, shape: Sequence[Dim]) -> str:
        """A value that holds a shape."""
        if not any(isinstance(size, Size) for size in shape):
            return self.numbers(*[size for size in shape if isinstance(size, int)])
        return self.add("Concat", [self.size(size) for size in shape], axis=0)

    def prune(self, outputs: Sequence[str]) -> None:
        """Leave out nodes and constants that no output needs."""
        wanted, kept = set(outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                kept.append(node)
                wanted |= set(node.input)
        self.nodes = kept[::-1]
        self.initializers = [constant for constant in self.initializers if constant.name in wanted]
