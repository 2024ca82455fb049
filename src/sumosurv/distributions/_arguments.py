"""Arguments of a distribution's public methods: shared times or each subject's own, and the shape of the result."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Arguments(NamedTuple):
    """Times, levels or horizons of shape (1, m), shared by all subjects, or (n, m)."""

    values: Tensor
    single: bool  # one value per subject
    tensor: bool  # the caller passed a tensor

    def output(self, result: Tensor) -> Any:
        """Convert a result of shape (n, m, ...) to the shape and array type that the caller expects."""
        return to_output(result[:, 0] if self.single else result, self.tensor)


def read_arguments(shared: Any, own: Any, name: str, own_name: str, n: int, like: Tensor) -> Arguments:
    """Read values that all n subjects share, or each subject's own; exactly one of the two must be given."""
    if (shared is None) == (own is None):
        raise TypeError(f"Give either {name} or {own_name}.")
    given = shared if own is None else own
    values = as_tensor(given, like)
    if own is None and values.ndim > 1:
        raise ValueError(
            f"{name} must be a number or a one-dimensional array shared by all {n} subjects; got shape "
            f"{tuple(values.shape)}. For separate values per subject, pass {own_name}= with shape ({n},) "
            f"or ({n}, m)."
        )
    if own is not None and (values.ndim not in (1, 2) or len(values) != n):
        raise ValueError(
            f"{own_name} must have one row for each of the {n} subjects, shape ({n},) or ({n}, m); got "
            f"shape {tuple(values.shape)}. Pass values shared by all subjects as {name}."
        )
    single = values.ndim == (0 if own is None else 1)
    grid = values.reshape(1, -1) if own is None else values[:, None] if single else values
    return Arguments(grid, single, hasattr(given, "__torch_function__"))


def as_tensor(values: Any, like: Tensor | None = None) -> Tensor:
    """Convert values to a tensor, of the dtype and device of ``like`` if it is given."""
    tensor = values if hasattr(values, "__torch_function__") else torch.from_numpy(np.array(values, dtype=np.float64))
    return tensor if like is None else tensor.to(like)


def is_traced(value: Tensor) -> bool:
    """Whether a model is being exported, so that control flow must not depend on values."""
    return torch.compiler.is_exporting() or (hasattr(value, "__torch_function__") and not isinstance(value, Tensor))


def to_output(result: Tensor, tensor: bool = False) -> Any:
    """Return the tensor itself, or NumPy float64."""
    return result if tensor else result.detach().cpu().double().numpy()


def check_times(t: Tensor, name: str = "times") -> Tensor:
    """Return the times; raise a ValueError if one is negative or missing."""
    if not is_traced(t) and not bool((t >= 0).all()):
        raise ValueError(f"{name} must be zero or more and not missing; got {_first_outside(t, 0.0, math.inf)}.")
    return t


def check_levels(levels: Tensor) -> Tensor:
    """Return the levels of quantiles; raise a ValueError if one is not a probability."""
    if not bool(((levels >= 0) & (levels <= 1)).all()):
        raise ValueError(f"Quantile levels must lie in [0, 1]; got {_first_outside(levels, 0.0, 1.0)}.")
    return levels


def _first_outside(values: Tensor, low: float, high: float) -> float:
    flat = values.reshape(-1)
    return float(flat[~((flat >= low) & (flat <= high))][0])
