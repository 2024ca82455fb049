"""The values of a numeric column in the training rows: from where to where, and what is usual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sumosurv.quantiles import quantiles
from sumosurv.stored import as_flag, as_number

__all__ = ["Range"]


@dataclass(frozen=True)
class Range:
    """Smallest value, median and largest value of a column, and whether all its values are whole numbers.

    Examples
    --------
    >>> import numpy as np
    >>> Range.of(np.array([40.0, 52.0, 71.0]))
    Range(low=40.0, middle=52.0, high=71.0, whole=True)
    """

    low: float
    middle: float
    high: float
    whole: bool

    @classmethod
    def of(cls, values: npt.NDArray[np.float64], weight: npt.NDArray[np.float64] | None = None) -> Self | None:
        """Of the values that are there; None if there are none. The median is one of them if they are whole."""
        if len(values) == 0:
            return None
        whole = bool((values == np.round(values)).all())
        middle = float(quantiles(values, np.array([0.5]), weight)[0])
        return cls(float(values.min()), float(np.floor(middle)) if whole else middle, float(values.max()), whole)

    @classmethod
    def from_state(cls, state: Any) -> Self | None:
        """As a model file describes it, checked; None where it does not."""
        if state is None:
            return None
        low, middle, high = (as_number(state[name], name) for name in ("low", "middle", "high"))
        if not low <= middle <= high:
            raise ValueError(f"a column ranges from {low} over {middle} to {high}")
        return cls(low, middle, high, as_flag(state["whole"], "whole"))
