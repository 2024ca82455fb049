"""The values that parameters may have: one declaration for each, checked when an estimator is fitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Allowed:
    """Values that a parameter may have, in words and as a function; alternatives are joined by ``|``."""

    words: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Allowed) -> Allowed:
        return Allowed(f"{self.words} or {other.words}", lambda value: self.holds(value) or other.holds(value))


Constraints = dict[str, Allowed]  # by the names of the parameters

NONE = Allowed("None", lambda value: value is None)
BOOLEAN = Allowed("True or False", lambda value: isinstance(value, (bool, np.bool_)))


def integer(low: int) -> Allowed:
    """Integers from ``low`` on."""
    return Allowed(f"an integer of at least {low}", lambda value: _is_integer(value) and value >= low)


def number(
    *, low: float = -math.inf, above: float = -math.inf, below: float = math.inf, high: float = math.inf
) -> Allowed:
    """Finite numbers in a range: ``low`` and ``high`` are included, ``above`` and ``below`` are not."""
    bounds = ((low, "at least"), (above, "above"), (high, "at most"), (below, "below"))
    words = " and ".join(f"{relation} {bound:g}" for bound, relation in bounds if math.isfinite(bound))

    def holds(value: Any) -> bool:
        real = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        return real and math.isfinite(value) and low <= value <= high and above < value < below

    return Allowed(f"a number {words}", holds)


def one_of(*names: str) -> Allowed:
    """Some words."""
    return Allowed(" or ".join(map(repr, names)), lambda value: isinstance(value, str) and value in names)


def instance_of(kind: type | tuple[type, ...], words: str) -> Allowed:
    """Instances of a class."""
    return Allowed(words, lambda value: isinstance(value, kind))


def widths(least: int = 0) -> Allowed:
    """Sequences of positive widths of layers, at least ``least`` of them."""

    def holds(value: Any) -> bool:
        listed = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)
        return listed and len(value) >= least and all(_is_integer(width) and width >= 1 for width in value)

    return Allowed(f"a sequence of {'one or more ' if least else ''}positive integers", holds)


FRACTION = number(low=0, below=1)


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError that names an invalid parameter and the values that it may have.

    The constraints are those of all classes from which the estimator is derived (``_parameter_constraints``).
    """
    constraints: Constraints = {}
    for cls in reversed(type(estimator).__mro__):
        constraints |= vars(cls).get("_parameter_constraints", {})
    for name, allowed in constraints.items():
        value = getattr(estimator, name)
        if not allowed.holds(value):
            raise ValueError(f"{name} of {type(estimator).__name__} must be {allowed.words}; got {value!r}.")
