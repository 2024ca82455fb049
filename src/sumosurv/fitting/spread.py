"""The predictions of each member of a model, and their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution

Array = npt.NDArray[np.float64]

_CELLS = 1 << 23  # members × rows × times held at once


@dataclass(frozen=True)
class Members:
    """The members of a mixture, for the same rows."""

    distributions: tuple[SurvivalDistribution, ...]
    weights: Array  # in the mixture; they sum to one

    @classmethod
    def equal(cls, distributions: Sequence[SurvivalDistribution]) -> Members:
        """Return members with equal weights."""
        return cls(tuple(distributions), np.full(len(distributions), 1.0 / len(distributions)))

    @classmethod
    def join(cls, parts: Sequence[Members], weights: Array) -> Members:
        """Return the members of a weighted mixture of mixtures."""
        every = tuple(member for part in parts for member in part.distributions)
        return cls(every, np.concatenate([weight * part.weights for part, weight in zip(parts, weights)]))

    def __len__(self) -> int:
        return len(self.distributions)


def spread(members: Members, times: Array, level: float) -> tuple[Array, Array]:
    """Return lower and upper limits of the central proportion ``level`` of the members' S(t|x), each (rows, times)."""
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
    """Return the limits of the central proportion ``level`` of the members, by weight, for every element.

    A quantile is averaged over a window of levels as wide as the weight of a typical member. It is monotone in every
    value, so the limits of survival curves are monotone too.

    Parameters
    ----------
    values : array of shape (members, ...)
    weights : array of shape (members,)
        Summing to one.
    level : float

    Returns
    -------
    lower, upper : arrays of shape (...)
        With equal weights, these are quantiles with linear interpolation between the midpoints of the members' weights.
    """
    order = np.argsort(values, axis=0, kind="stable")
    ordered, ends = np.take_along_axis(values, order, axis=0), np.cumsum(weights[order], axis=0)
    width = float(np.square(weights).sum())
    lower, upper = (_mean_quantile(ordered, ends, q, width) for q in (0.5 - 0.5 * level, 0.5 + 0.5 * level))
    return lower, upper


def _mean_quantile(ordered: Array, ends: Array, level: float, width: float) -> Array:
    """Return the mean quantile over a window around a level, inside [0, 1]."""
    first = min(max(level - 0.5 * width, 0.0), 1.0 - width)
    share = np.diff(np.clip((ends - first) / width, 0.0, 1.0), axis=0, prepend=0.0)
    return np.asarray(np.clip((share * ordered).sum(axis=0), ordered[0], ordered[-1]))  # despite rounding
