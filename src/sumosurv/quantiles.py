"""Quantiles and moments of rows that may count more than once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def quantiles(values: Floats, levels: Any, weight: Floats | None = None) -> Floats:
    """Quantiles by linear interpolation, as NumPy has them; with whole weights, those of the rows repeated.

    Values of shape (columns, rows) give one row of quantiles per column; weights are those of the rows.

    Examples
    --------
    >>> quantiles(np.array([3.0, 1.0]), [0.25, 0.5], np.array([1.0, 3.0]))
    array([1., 1.])
    """
    if weight is None:
        return np.moveaxis(np.quantile(values, levels, axis=-1), 0, -1)
    if values.ndim > 1:
        return np.stack([quantiles(column, levels, weight) for column in values])
    order = np.argsort(values, kind="stable")
    ordered, ends = values[order], np.cumsum(weight[order])
    place = np.asarray(levels, dtype=np.float64) * max(float(ends[-1]) - 1.0, 0.0)

    def at(position: Floats) -> Floats:
        found = np.searchsorted(ends, position, side="right")
        return np.asarray(ordered[np.minimum(found, len(ordered) - 1)], dtype=np.float64)

    low = at(np.floor(place))
    return low + (place - np.floor(place)) * (at(np.floor(place) + 1.0) - low)


def resampled_limits(resampled: Floats, estimate: Any, level: float) -> tuple[Floats, Floats]:
    """Quantiles over resamples, the first axis, extended to the estimate if it lies outside."""
    low, high = np.quantile(resampled, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    return np.minimum(low, estimate), np.maximum(high, estimate)


def shrinkage(square: float, noise: float) -> float:
    """Return the factor κ of deviations that removes the expected noise from their sum of squares."""
    return float(np.sqrt(max(0.0, 1.0 - noise / square))) if square > 0 else 0.0


def mean_and_width(values: Floats, weight: Floats | None = None) -> tuple[Floats, Floats]:
    """Mean and standard deviation (of the rows themselves, not an estimate for others), along the last axis."""
    if weight is None:
        return values.mean(axis=-1), values.std(axis=-1)
    centre = np.average(values, weights=weight, axis=-1)
    return centre, np.sqrt(np.average((values - centre[..., None]) ** 2, weights=weight, axis=-1))


def check_level(level: float, name: str = "level") -> float:
    """Return a confidence level; raise ValueError unless it lies between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"{name} must be a probability between 0 and 1, such as 0.95; got {level!r}.")
    return float(level)


def check_resamples(n_bootstrap: int, smallest: int = 0) -> int:
    """Return a number of resamples; raise ValueError unless it is a whole number that is large enough."""
    if not isinstance(n_bootstrap, (int, np.integer)) or n_bootstrap < smallest:
        raise ValueError(f"n_bootstrap must be a whole number, {smallest} or more; got {n_bootstrap!r}.")
    return int(n_bootstrap)
