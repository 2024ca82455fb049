"""What results share: means over time, and tables that fit on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.explain._quantity import Array, Quantity

__all__ = ["as_text", "beyond", "check_count", "counted", "mean_over_time", "spread_out", "table_at_times"]

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
    text = str(frame.to_string(float_format=lambda value: f"{value:.4g}"))
    return text + beyond(quantity.times[chosen] if quantity.name != "median" else np.empty(0), quantity)


def check_count(name: str, given: Any, usual: int) -> int:
    """A whole number of things, 1 or more; the usual one where none is given."""
    if given is None:
        return usual
    if not isinstance(given, (int, np.integer)) or given < 1:
        raise ValueError(f"{name} is a whole number, 1 or more, or None; got {given!r}.")
    return int(given)


def counted(number: int, what: str) -> str:
    """A number of things in words: 1 row, 2 rows."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def beyond(times: Array, quantity: Quantity) -> str:
    """A line that says which of some times lie past the training data; nothing if none does."""
    last = quantity.last_time
    if last is None or not (times > last).any():
        return ""
    return f"\nPast {last:.4g}, the last training time, predictions are extrapolated."


def as_text(value: Any) -> str:
    """A value of a column in a few characters."""
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _short(name: str) -> str:
    return name if len(name) <= 28 else name[:27] + "…"
