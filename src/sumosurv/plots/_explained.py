"""What pictures of explanations share: which times are drawn, and what they are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.explain import Quantity

__all__ = ["at_times", "name_of_time", "number_text", "quantity_label"]


def at_times(quantity: Quantity, times: Any, count: int) -> npt.NDArray[np.int64]:
    """Positions of some of the times of a quantity: those asked for, or up to ``count`` of them spread evenly."""
    known = quantity.columns
    if times is None:
        steps = (np.arange(count) + 1) / (count + 1) if len(known) > count else np.linspace(0, 1, len(known))
        return np.unique((steps * (len(known) - 1)).round().astype(np.int64))
    asked = np.atleast_1d(np.asarray(times, dtype=np.float64))
    found = np.array([int(np.argmin(np.abs(known - t))) for t in asked])
    wrong = np.flatnonzero(~np.isclose(known[found], asked))
    if len(wrong):
        raise ValueError(
            f"The result has no time {asked[wrong[0]]:g}; the nearest is {known[found[wrong[0]]]:g}. Compute it with "
            "times= that hold it."
        )
    return found


def name_of_time(quantity: Quantity, place: int, unit: str) -> str:
    """ "t = 5 years", "up to 5 years", or nothing for a median."""
    if quantity.name == "median":
        return ""
    before = "up to" if quantity.name.startswith("restricted") else "t ="
    return f"{before} {number_text(quantity.times[place])}{f' {unit}' if unit else ''}"


def number_text(value: float) -> str:
    """A number in a few characters, without exponents where it can be."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def quantity_label(quantity: Quantity, unit: str) -> str:
    """For an axis: with the unit where the quantity is a time."""
    return quantity.label + (f" ({unit})" if unit and not quantity.is_curve else "")
