"""Confidence limits from resamples, and checks of the arguments that ask for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def resampled_limits(resampled: Floats, estimate: Any, level: float) -> tuple[Floats, Floats]:
    """Quantiles over resamples, the first axis, extended to the estimate if it lies outside."""
    low, high = np.quantile(resampled, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    return np.minimum(low, estimate), np.maximum(high, estimate)


def shrinkage(square: float, noise: float) -> float:
    """Return the factor κ of deviations that removes the expected noise from their sum of squares."""
    return float(np.sqrt(max(0.0, 1.0 - noise / square))) if square > 0 else 0.0


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
