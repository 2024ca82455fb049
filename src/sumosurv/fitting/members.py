"""The predictions of each member of a model, and their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution

__all__ = ["Members", "check_level", "limits", "spread"]

Array = npt.NDArray[np.float64]

_CELLS = 1 << 23  # members × rows × times held at once


@dataclass(frozen=True)
class Members:
    """The members of a mixture, for the same rows.

    Attributes
    ----------
    distributions : tuple of SurvivalDistribution
    weights : ndarray
        Of the members in the mixture, summing to one.
    """

    distributions: tuple[SurvivalDistribution, ...]
    weights: Array

    @classmethod
    def equal(cls, distributions: Sequence[SurvivalDistribution]) -> Members:
        """Members that all count the same."""
        return cls(tuple(distributions), np.full(len(distributions), 1.0 / len(distributions)))

    @classmethod
    def join(cls, parts: Sequence[Members], weights: Array) -> Members:
        """The members of several mixtures, which are mixed with these weights."""
        every = tuple(member for part in parts for member in part.distributions)
        return cls(every, np.concatenate([weight * part.weights for part, weight in zip(parts, weights)]))

    def __len__(self) -> int:
        return len(self.distributions)


def spread(members: Members, times: Array, level: float) -> tuple[Array, Array]:
    """Lower and upper end of the central share ``level`` of the members' S(t|x), each of shape (rows, times)."""
    n = len(members.distributions[0])
    lower, upper = np.empty((2, n, len(times)))
    step = max(1, _CELLS // (len(members) * max(len(times), 1)))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        with torch.no_grad():
            curves = np.stack([member[rows].survival(times) for member in members.distributions])
        lower[rows], upper[rows] = limits(curves, members.weights, level)
    return lower, upper


def limits(values: Array, weights: Array, level: float) -> tuple[Array, Array]:
    """Between which values the central share ``level`` of the members lies, by weight, for every element.

    Parameters
    ----------
    values : array of shape (members, ...)
    weights : array of shape (members,)
        Summing to one.
    level : float

    Returns
    -------
    lower, upper : arrays of shape (...)
        Each value stands at the middle of its weight, linear in between; levels before the first middle get the
        smallest value, those past the last one the largest.
    """
    order = np.argsort(values, axis=0, kind="stable")
    ordered, own = np.take_along_axis(values, order, axis=0), weights[order]
    middle = np.cumsum(own, axis=0) - 0.5 * own
    lower, upper = (_between(ordered, middle, q) for q in (0.5 - 0.5 * level, 0.5 + 0.5 * level))
    return lower, upper


def _between(ordered: Array, middle: Array, level: float) -> Array:
    if len(ordered) == 1:
        return np.asarray(ordered[0])
    above = np.clip((middle < level).sum(axis=0), 1, len(ordered) - 1)[None]  # the first that is not below it
    ends = [(np.take_along_axis(ordered, k, 0), np.take_along_axis(middle, k, 0)) for k in (above - 1, above)]
    (low, first), (high, last) = ends
    share = np.clip((level - first) / (last - first), 0.0, 1.0)
    return np.asarray((low + share * (high - low))[0])


def check_level(level: float) -> float:
    """A share between zero and one."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is a probability between 0 and 1, such as 0.95; got {level!r}.")
    return float(level)
