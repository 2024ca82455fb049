"""Scores of resamples and of blocks of rows, computed from the contributions of single subjects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from sumosurv.confidence import shrinkage
from sumosurv.nonparametric import is_robust, resampler, sum_by_subject
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array

GROUPS = 100  # of subjects, each left out once for the standard errors of rows that come in blocks
_CELLS = 1 << 21  # resamples × subjects held at once


class Resamples:
    """How often each of n subjects was drawn in each of r resamples: their outcome, and counts (r, n)."""

    def __init__(self, outcome: Outcome, counts: Array) -> None:
        self.outcome, self.counts = outcome, counts
        self._order = outcome.time_order
        self.times = outcome.time[self._order]

    @classmethod
    def whole(cls, outcome: Outcome) -> Resamples:
        """Return the sample itself: every subject once, or in proportion to its weight; the counts sum to n."""
        return cls(outcome, (outcome.weights * (len(outcome) / outcome.total))[None])

    @cached_property
    def _censoring(self) -> Array:
        return product_limit(self.counts[:, self._order], ~self.outcome.event[self._order])

    def censoring(self, times: Array, *, before: bool = False) -> Array:
        """Return G(t), or G(t-), by Kaplan-Meier of the censoring times in each resample, shape (r, m)."""
        place = np.searchsorted(self.times, times, side="left" if before else "right")
        return np.asarray(self._censoring[:, place])


class Bootstrap:
    """Bootstrap resamples of the subjects, drawn a few at a time; every iteration yields the same resamples.

    A subject is drawn with all of its rows. Whole-number weights count rows, as if each row were repeated; other
    weights multiply the number of times that a row is drawn.
    """

    def __init__(self, outcome: Outcome, n_resamples: int, rng: np.random.Generator) -> None:
        self.outcome = outcome
        self._seeds = rng.integers(1 << 62, size=n_resamples)
        self._kept: list[Resamples] = []  # if all fit into one part

    def on_time_scale(self, outcome: Outcome) -> Bootstrap:
        """Return the same resamples of the same rows, with their times on another time scale."""
        made = copy(self)
        made.outcome, made._kept = outcome, []
        return made

    def __iter__(self) -> Iterator[Resamples]:
        if self._kept:
            yield from self._kept
            return
        n = len(self.outcome)
        step = max(1, _CELLS // n)
        draw = resampler(self.outcome)
        for start in range(0, len(self._seeds), step):
            seeds = self._seeds[start : start + step]
            counts = np.empty((len(seeds), n))
            for row, seed in zip(counts, seeds):
                row[:] = draw(np.random.default_rng(seed))
            counts *= n / counts.sum(axis=1, keepdims=True)
            part = Resamples(self.outcome, counts)
            if len(seeds) == len(self._seeds):
                self._kept = [part]
            yield part


def product_limit(counts: Array, failed: npt.NDArray[np.bool_]) -> Array:
    """Return Kaplan-Meier curves of r weighted samples: 1, then the estimate after each row, shape (r, n + 1).

    Rows are in the order of time, events before censorings among ties. Tied rows may be taken one after the other,
    (1 - a/n) (1 - b/(n - a)) = 1 - (a + b)/n. The curve steps down at rows that ``failed``: the events, or the
    censorings for the censoring distribution.

    Examples
    --------
    >>> product_limit(np.array([[1.0, 1.0, 2.0], [1.0, 0.0, 1.0]]), np.array([True, False, True]))
    array([[1.  , 0.75, 0.75, 0.  ],
           [1.  , 0.5 , 0.5 , 0.  ]])
    """
    at_risk = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    share = np.divide(counts, at_risk, out=np.zeros_like(counts), where=failed & (counts > 0))
    curve = np.ones((len(counts), counts.shape[1] + 1))
    np.cumprod(1.0 - share, axis=1, out=curve[:, 1:])
    return curve


def incidence_limit(counts: Array, outcome: Outcome, own: npt.NDArray[np.bool_], time: float) -> Array:
    """Return Aalen-Johansen estimates F_k(time) of r weighted samples, (r,); nan if follow-up ends before the time.

    The outcome is in the order of time, events first among ties; ``own`` marks the events of the cause.
    """
    survival, past = product_limit(counts, outcome.event), outcome.time <= time
    at_risk = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    # tied rows may be taken one after the other: S before times the share of those at risk is the same
    share = np.divide(counts, at_risk, out=np.zeros_like(counts), where=counts > 0)
    rise = np.where(past & own, survival[:, :-1] * share, 0.0).sum(axis=1)
    left = survival[:, int(past.sum())]
    followed = (counts[:, outcome.time >= time].sum(axis=1) > 0) | (left == 0)
    return np.where(followed, rise, np.nan)


class WeightedSums:
    """``weights @ values`` of shapes (r, n) and (n, k), with zero for a weight of zero times an infinite value.

    Examples
    --------
    >>> WeightedSums(np.array([[1.0], [-np.inf]]))(np.array([[2.0, 0.0], [1.0, 1.0]]))
    array([[  2.],
           [-inf]])
    """

    def __init__(self, values: Array) -> None:
        infinite = ~np.isfinite(values)
        self._values = np.where(infinite, 0.0, values) if infinite.any() else values
        self._infinite = []  # (column, rows, the sum of their values)
        for column in np.flatnonzero(infinite.any(axis=0)):
            rows = np.flatnonzero(infinite[:, column])
            self._infinite.append((column, rows, values[rows, column].sum()))

    def __call__(self, weights: Array) -> Array:
        """Return the sums for each row of weights, shape (r, k)."""
        sums = np.asarray(weights @ self._values)
        for column, rows, total in self._infinite:
            sums[(weights[:, rows] > 0).any(axis=1), column] = total
        return sums


def ratio(top: Array, bottom: Array) -> Array:
    """Return top / bottom, nan if the bottom is not positive."""
    return np.asarray(np.divide(top, bottom, out=np.full(np.shape(bottom), np.nan), where=bottom > 0))


def mean_of_known(values: Array, weights: Array) -> Array:
    """Return the weighted mean over the last axis of the values that are not nan; nan if all are nan."""
    known = ~np.isnan(values)
    weights = np.where(known, weights, 0.0)
    return ratio((np.where(known, values, 0.0) * weights).sum(axis=-1), weights.sum(axis=-1))


def share_of_pairs(top: Array, bottom: Array) -> Array:
    """Return `ratio` of two first-order sums over pairs, clipped to [0, 1].

    A share of pairs lies between 0 and 1. Its first-order approximation need not, if a resample has few of the pairs of
    the sample.
    """
    return np.clip(ratio(top, bottom), 0.0, 1.0)


# ------------------------------------------------------------------ what subjects contribute


@dataclass(frozen=True)
class Terms(ABC):
    """What the subjects contribute to a score, from which the score of any resample follows."""

    outcome: Outcome
    times: str = field(default="", kw_only=True)  # if the score is not exact: the times of the comparison in words
    note: str = field(default="", kw_only=True)  # and a note on its error

    @property
    def value(self) -> float:
        """The score of the sample itself."""
        return float(self.resampled(Resamples.whole(self.outcome))[0])

    @abstractmethod
    def resampled(self, resamples: Resamples) -> Array:
        """Return the score of each resample, shape (r,)."""


@dataclass(frozen=True)
class MeanTerms(Terms):
    """A function of the means over subjects of k quantities."""

    values: Array  # (n, k)
    combine: Callable[[Array], Array] = itemgetter((slice(None), 0))  # means of resamples, (r, k), to scores, (r,)

    @property
    def value(self) -> float:
        """The score of the sample itself."""
        if self.outcome.weight is None:
            return float(self.combine(self.values.mean(axis=0, keepdims=True))[0])
        return super().value

    def resampled(self, resamples: Resamples) -> Array:
        """Return the score of each resample, shape (r,)."""
        return self.combine(self._sums(resamples.counts) / len(self.values))

    @cached_property
    def _sums(self) -> WeightedSums:
        return WeightedSums(self.values)


@dataclass(frozen=True)
class SquareTerms(Terms):
    r"""Σⱼ (mean of quantity j - target j)², the form of the calibration scores.

    Sampling noise adds Σ s_j²/n to such a sum. Resampling would add it a second time, and would overstate the spread
    if the means are on target. The deviations are therefore shrunk to the size that they have without noise before the
    noise of resampling is added to them:

    .. math:: \sum_j (m^*_j - m_j + κ (m_j - p_j))^2, \qquad
              κ^2 = \max\Bigl(0, 1 - \frac{\sum_j s_j^2/n}{\sum_j (m_j - p_j)^2}\Bigr).
    """

    values: Array  # (n, k)
    target: Array  # (k,)

    @cached_property
    def means(self) -> Array:
        """The mean of each quantity."""
        return np.average(self.values, axis=0, weights=self.outcome.weight)

    @property
    def value(self) -> float:
        """The score of the sample itself."""
        return float(self.combine(self.means))

    def combine(self, means: Array) -> Array:
        """Return the scores for means of shape (..., k)."""
        return np.asarray(np.square(means - self.target).sum(axis=-1))

    def resampled(self, resamples: Resamples) -> Array:
        """Return the score of each resample, shape (r,)."""
        means = self.means
        kept = shrinkage(self.value, float(np.trace(covariance_of_means(self.values - means, resamples.outcome))))
        noise = resamples.counts @ self.values / len(self.values) - means
        return np.asarray(np.square(noise + kept * (means - self.target)).sum(axis=1))


def covariance_of_means(deviation: Array, outcome: Outcome) -> Array:
    """Return the covariance (k, k) of weighted means of k quantities from the deviations of the rows, (n, k).

    Subjects are independent. Whole-number weights count rows, as if each row were repeated.
    """
    if is_robust(outcome):
        by_subject = sum_by_subject(outcome.weights[:, None] * deviation, outcome)
        return np.asarray(by_subject.T @ by_subject / outcome.total**2)
    return np.asarray((outcome.weights * deviation.T) @ deviation / outcome.total**2)


# ------------------------------------------------------------------ estimates, and rows in blocks


@dataclass(frozen=True)
class Estimate:
    """A score of a model and its uncertainty."""

    value: float
    draws: Array = field(default_factory=lambda: np.empty(0))  # the score of each bootstrap resample
    left_out: Array = field(default_factory=lambda: np.empty(0))  # without draws: without each group (jackknife)
    std_error: float = np.nan  # without draws and groups
    times: str = ""  # this and the next as in `MeanTerms`
    note: str = ""

    def __sub__(self, other: Estimate) -> Estimate:
        """Return the difference from another model's score on the same resamples and groups."""
        left_out = np.empty(0)
        if len(self.left_out) == len(other.left_out):
            left_out = self.left_out - other.left_out
        with np.errstate(invalid="ignore"):
            return Estimate(self.value - other.value, self.draws - other.draws, left_out)

    def distance(self, target: float) -> Estimate:
        """Return the distance of the score from a target value."""
        return Estimate(abs(self.value - target), np.abs(self.draws - target), np.abs(self.left_out - target))

    def interval(self, confidence: float) -> tuple[float, float, float]:
        """Return the ends of the confidence interval and the standard error.

        Quantiles of the resamples are extended to the value if it lies outside, as a sum of squares does if it is
        smaller than sampling noise makes it on average.
        """
        if len(self.draws):
            known = self.draws[~np.isnan(self.draws)]
            if len(known) == 0:
                return np.nan, np.nan, np.nan
            tail = 0.5 * (1.0 - confidence)
            # an interval may reach to -inf: take order statistics, no interpolation between infinite values
            low, high = np.quantile(known, [tail, 1.0 - tail], method="inverted_cdf")
            error = float(known.std(ddof=1)) if len(known) > 1 and np.isfinite(known).all() else np.nan
            return min(float(low), self.value), max(float(high), self.value), error
        error, n = self.std_error, len(self.left_out)
        if n:
            error = float(np.sqrt((n - 1) / n * np.square(self.left_out - self.left_out.mean()).sum()))
        width = float(ndtri(0.5 + 0.5 * confidence)) * error
        return self.value - width, self.value + width, error


class Partial(Protocol):
    """The contribution of one block of rows to a score; contributions of several blocks can be merged."""

    def merge(self, other: Self) -> None:
        """Take in the rows of another block."""

    def estimate(self) -> Estimate:
        """Return the score of all rows."""


class PartialMeans:
    """Weighted sums over rows of `MeanTerms` or `SquareTerms`, by group of subjects."""

    def __init__(self, terms: Any, sums: Array, weights: Array) -> None:
        self._terms, self._sums, self._weights = terms, sums, weights

    @classmethod
    def of(cls, terms: Terms, weights: Array, group: npt.NDArray[np.intp]) -> Self:
        """Sum the terms of one block, whose rows belong to groups 0 to 99."""
        assert isinstance(terms, (MeanTerms, SquareTerms))
        sums = np.zeros((GROUPS, terms.values.shape[1]))
        with np.errstate(invalid="ignore"):
            np.add.at(sums, group, weights[:, None] * terms.values)
        form = replace(terms, values=terms.values[:0], outcome=terms.outcome[:0])
        return cls(form, sums, np.bincount(group, weights=weights, minlength=GROUPS).astype(np.float64))

    def merge(self, other: Self) -> None:
        """Take in the rows of another block."""
        self._sums, self._weights = self._sums + other._sums, self._weights + other._weights

    def estimate(self) -> Estimate:
        """Return the score of all rows, and the scores without each group unless it is a sum of squares."""
        total = self._sums.sum(axis=0)
        value = float(self._terms.combine(total[None] / self._weights.sum())[0])
        used = self._weights > 0
        if isinstance(self._terms, SquareTerms) or not np.isfinite(value) or used.sum() < 2:
            return Estimate(value)
        others = (self._weights.sum() - self._weights[used])[:, None]
        return Estimate(value, left_out=self._terms.combine((total - self._sums[used]) / others))
