"""The members of a model: what they say one by one, and how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution

__all__ = ["Members", "spread"]

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
    tails = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        with torch.no_grad():
            curves = np.stack([member[rows].survival(times) for member in members.distributions])
        lower[rows], upper[rows] = _weighted_quantiles(curves, members.weights, tails)
    return lower, upper


def _weighted_quantiles(values: Array, weights: Array, levels: Array) -> Array:
    """Quantiles over the first axis, (levels, ...): each value stands at the middle of its weight, linear between.

    Levels before the first middle get the smallest value, those past the last one the largest.
    """
    order = np.argsort(values, axis=0, kind="stable")
    ordered, own = np.take_along_axis(values, order, axis=0), weights[order]
    middle = np.cumsum(own, axis=0) - 0.5 * own
    found = np.empty((len(levels), *values.shape[1:]))
    for i, level in enumerate(levels):
        above = np.clip((middle < level).sum(axis=0), 1, len(values) - 1)[None]  # the first that is not below it
        ends = [(np.take_along_axis(ordered, k, 0), np.take_along_axis(middle, k, 0)) for k in (above - 1, above)]
        (low, first), (high, last) = ends
        share = np.clip((level - first) / (last - first), 0.0, 1.0)
        found[i] = (low + share * (high - low))[0]
    return found
