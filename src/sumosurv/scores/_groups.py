"""Predicted against observed probabilities at one time, in groups of predicted risk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array, median_time
from sumosurv.scores._resampling import Resamples, ratio, shrinkage

__all__ = ["GroupTerms", "check_group_options"]


def check_group_options(outcome: Outcome, time: float | None, groups: int) -> float:
    """The time at which groups are compared, the median of the times where none is given."""
    at = median_time(outcome) if time is None else float(time)
    if not (np.isfinite(at) and at >= 0):
        raise ValueError(f"time is a number, zero or more; got {time}.")
    if groups < 1:
        raise ValueError(f"groups is 1 or more; got {groups}.")
    return at


@dataclass(frozen=True)
class GroupTerms(ABC):
    """Groups of subjects with a predicted and an observed probability each; in resamples the subjects stay in them.

    A score defines what is observed in a group and its variance. Deviations are shrunk before the noise of resampling
    is added to them, as in `SquareTerms`.

    Parameters
    ----------
    outcome : Outcome
    prediction : array of shape (n,)
        The predicted probability of each subject.
    time : float
    parts : list of arrays
        The rows of each group, in the order of time, events first among ties.
    """

    outcome: Outcome
    prediction: Array
    time: float
    parts: list[npt.NDArray[np.intp]]

    @abstractmethod
    def observe(self, counts: Array, part: npt.NDArray[np.intp]) -> Array:
        """The probability estimated in each of r resamples of a group, (r,); nan where follow-up ends before it."""

    @abstractmethod
    def variance_of(self, part: npt.NDArray[np.intp]) -> float:
        """The variance of the estimate in a group."""

    @cached_property
    def size(self) -> Array:
        """Subjects in each group."""
        return np.array([self.outcome[part].total for part in self.parts])

    @cached_property
    def predicted(self) -> Array:
        """Mean prediction of each group."""
        return np.array([np.average(self.prediction[part], weights=self.outcome.weights[part]) for part in self.parts])

    @cached_property
    def observed(self) -> Array:
        """What is observed in each group, nan where follow-up ends before the time."""
        return np.asarray(self._groups(self.outcome.weights[None])[1][0])

    @cached_property
    def variance(self) -> Array:
        """The variance of what is observed in each group."""
        return np.array([self.variance_of(part) for part in self.parts])

    @cached_property
    def std_error(self) -> Array:
        """Its square root; nan where follow-up ends before the time, or rows are weighted."""
        unknown = np.isnan(self.observed) | (self.outcome.weight is not None)
        return np.where(unknown, np.nan, np.sqrt(self.variance))

    @property
    def value(self) -> float:
        """The score of the sample itself."""
        return float(_weighted_mean(np.square(self.predicted - self.observed), self.size))

    def resampled(self, resamples: Resamples) -> Array:
        """The score of each resample, shape (r,)."""
        deviation = self.predicted - self.observed
        within = np.array([self.prediction[part].var() for part in self.parts]) / self.size
        noise = np.where(np.isnan(deviation), np.nan, np.maximum(self.variance - within, 0.0))
        kept = shrinkage(self.value, float(_weighted_mean(noise, self.size)))
        predicted, observed, size = self._groups(resamples.counts)
        return _weighted_mean(np.square(predicted - observed - (1.0 - kept) * deviation), size)

    def _groups(self, counts: Array) -> tuple[Array, Array, Array]:
        """(predicted, observed, size) of the groups, each of shape (r, groups)."""
        predicted, observed, size = np.empty((3, len(counts), len(self.parts)))
        for g, part in enumerate(self.parts):
            drawn = counts[:, part]
            size[:, g] = drawn.sum(axis=1)
            predicted[:, g] = ratio(drawn @ self.prediction[part], size[:, g])
            observed[:, g] = self.observe(drawn, part)
        return predicted, observed, size


def _weighted_mean(values: Array, weights: Array) -> Array:
    """Mean over the last axis of the values that are known; nan where none is."""
    known = ~np.isnan(values)
    weights = np.where(known, weights, 0.0)
    return ratio((np.where(known, values, 0.0) * weights).sum(axis=-1), weights.sum(axis=-1))
