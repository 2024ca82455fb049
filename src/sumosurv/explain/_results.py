"""What results share: means over time, and tables that fit on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.explain._quantity import Array, Quantity

__all__ = ["as_text", "mean_over_time", "spread_out", "table_at_times"]

_SHOWN = 5


def mean_over_time(values: Array, quantity: Quantity) -> Array:
    """The mean over the last axis; of curves by the trapezoidal rule, so that uneven times count as they should."""
    times = quantity.times
    if not quantity.is_curve or len(times) < 2:
        return np.asarray(values.mean(axis=-1))
    width = np.diff(times)
    return np.asarray((0.5 * (values[..., 1:] + values[..., :-1]) * width).sum(axis=-1) / width.sum())


def spread_out(count: int, most: int) -> npt.NDArray[np.int64]:
    """All of ``count`` positions if they are few; else so many at equal steps, the last among them."""
    return np.arange(count) if count <= most else ((np.arange(most) + 1) / most * (count - 1)).round().astype(np.int64)


def table_at_times(values: Array, names: Sequence[str], quantity: Quantity) -> str:
    """Values of shape (names, m) at up to five of the times, as text."""
    chosen = spread_out(values.shape[1], _SHOWN)
    if quantity.name == "median":
        heads = ["median"]
    else:
        heads = [f"{'to' if quantity.name.startswith('restricted') else 't ='} {quantity.times[i]:.4g}" for i in chosen]
    frame = pd.DataFrame(values[:, chosen], index=[_short(name) for name in names], columns=heads)
    return str(frame.to_string(float_format=lambda value: f"{value:.4g}"))


def as_text(value: Any) -> str:
    """A value of a column in a few characters."""
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _short(name: str) -> str:
    return name if len(name) <= 28 else name[:27] + "…"
