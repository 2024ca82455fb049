"""How far the members of a model are apart, as limits around a value."""

from __future__ import annotations

import numpy as np

from sumosurv.explain._quantity import Array

__all__ = ["check_level", "limits"]


def limits(values: Array, weights: Array, level: float) -> tuple[Array, Array]:
    """Between which values a share ``level`` of the members lies, by weight, for every element.

    Parameters
    ----------
    values : array of shape (members, ...)
    weights : array of shape (members,)
        Summing to one.
    level : float

    Returns
    -------
    low, high : arrays of shape (...)
        Quantiles with half of each member's weight on either side of it, linear in between.
    """
    order = np.argsort(values, axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    own = weights[order]
    place = np.cumsum(own, axis=0) - 0.5 * own
    tail = 0.5 * (1.0 - level)
    low, high = (_at(ordered, place, q) for q in (tail, 1.0 - tail))
    return low, high


def _at(ordered: Array, place: Array, level: float) -> Array:
    above = (place < level).sum(axis=0)[None]
    right, left = np.minimum(above, len(ordered) - 1), np.maximum(above - 1, 0)
    ends = [np.take_along_axis(part, at, axis=0)[0] for part in (ordered, place) for at in (left, right)]
    width = ends[3] - ends[2]
    share = np.where(width > 0, (level - ends[2]) / np.where(width > 0, width, 1.0), 0.0)
    return np.asarray(ends[0] + np.clip(share, 0.0, 1.0) * (ends[1] - ends[0]))


def check_level(level: float) -> float:
    """A share between zero and one."""
    if not 0 < level < 1:
        raise ValueError(f"level lies between 0 and 1, such as 0.95; got {level!r}.")
    return float(level)
