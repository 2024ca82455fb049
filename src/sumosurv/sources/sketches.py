"""Summaries of rows that are seen once, of bounded size; two of them merge into that of all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from sumosurv.sources.hashing import Hashes

Floats = npt.NDArray[np.float64]
Rows = TypeVar("Rows")


class QuantileSketch:
    r"""The distribution of weighted numbers, by at most ``size`` of them at each of a few levels.

    Up to ``size`` distinct numbers it is exact: each is kept with its weight. Past that, parts of the rows are
    summarised by ``size`` numbers at even steps of weight, and the summaries of two parts are put together and
    summarised again: a binary tree, of which one summary per level is kept. Each summary moves the rank of a number by
    at most half a step, so that ranks are off by at most ``error`` of the total weight, about
    :math:`\frac{1}{2 m} \log_2(n / m)` for n rows and m = ``size``. The smallest and the largest number are exact.

    Examples
    --------
    >>> sketch = QuantileSketch(size=4)
    >>> sketch.add(np.array([3.0, 1.0, 1.0]))
    >>> sketch.points()
    (array([1., 3.]), array([2., 1.]))
    """

    def __init__(self, size: int = 8192) -> None:
        self.size = size
        self.low, self.high = math.inf, -math.inf
        self.total = 0.0
        self._moved = 0.0  # by how much weight ranks may be off
        self._levels: list[tuple[Floats, Floats] | None] = []
        self._held: list[tuple[Floats, Floats | None]] = []  # numbers that no summary has yet
        self._n_held = 0

    def add(self, values: Floats, weight: Floats | None = None) -> None:
        """Take in more numbers, none of them missing."""
        if len(values) == 0:
            return
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        self.total += float(len(values) if weight is None else weight.sum())
        self._held.append((np.asarray(values, dtype=np.float64), weight))
        self._n_held += len(values)
        if self._n_held >= 8 * self.size:
            self._settle()

    def merge(self, other: QuantileSketch) -> None:
        """Take in the numbers of another sketch."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.total += other.total
        self._moved += other._moved
        self._held += other._held
        self._n_held += other._n_held
        for level, part in enumerate(other._levels):
            if part is not None:
                self._put(part, level)
        if self._n_held >= 8 * self.size:
            self._settle()

    @property
    def exact(self) -> bool:
        """Whether every distinct number is kept with its weight."""
        self._settle()
        return self._moved == 0.0

    @property
    def error(self) -> float:
        """By how much of the total weight ranks may be off, at most."""
        self._settle()
        return self._moved / self.total if self.total else 0.0

    def points(self) -> tuple[Floats, Floats]:
        """Increasing numbers and their weights, which stand for all; first and last are the extremes."""
        self._settle()
        parts = [part for part in self._levels if part is not None]
        if not parts:
            return np.zeros(0), np.zeros(0)
        values, weight = _distinct(parts)
        values = values.copy()
        values[0], values[-1] = self.low, self.high
        return values, weight

    def _settle(self) -> None:
        """Summarise what is held."""
        if self._held:
            held, self._held, self._n_held = self._held, [], 0
            self._put(self._summary(_distinct(held)), 0)

    def _put(self, part: tuple[Floats, Floats], level: int) -> None:
        """Put a summary at its level; two of one level become one of the next."""
        while True:
            self._levels += [None] * (level + 1 - len(self._levels))
            other = self._levels[level]
            if other is None:
                self._levels[level] = part
                return
            self._levels[level] = None
            part = self._summary(_distinct([other, part]))
            level += 1

    def _summary(self, part: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """At most ``size`` of the numbers, each with the weight of its step."""
        values, weight = part
        if len(values) <= self.size:
            return part
        ends = np.cumsum(weight)
        step = float(ends[-1]) / self.size
        places = np.searchsorted(ends, (np.arange(self.size) + 0.5) * step)
        self._moved += 0.5 * step
        chosen, count = np.unique(np.minimum(places, len(values) - 1), return_counts=True)
        return values[chosen], np.asarray(count * step, dtype=np.float64)


def _distinct(parts: Sequence[tuple[Floats, Floats | None]]) -> tuple[Floats, Floats]:
    """Distinct numbers of several parts, increasing, and their weights: one each where there are none."""
    values = np.concatenate([part[0] for part in parts])
    if all(weight is None for _, weight in parts):
        values = np.sort(values)
        first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
        return values[first], np.diff(first, append=len(values)).astype(np.float64)
    weights = np.concatenate([np.ones(len(part)) if weight is None else weight for part, weight in parts])
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return values[first], np.add.reduceat(weights, first)


class LevelSketch:
    """How often each level of a category occurs; exact up to ``most`` levels.

    Past that the rarest are forgotten (Misra and Gries, 1982): a level that is kept is counted short by at most
    ``short``, and one that is not kept occurs at most so often.
    """

    def __init__(self, most: int = 10_000) -> None:
        self.most = most
        self.counts: dict[Any, float] = {}
        self.short = 0.0

    def add(self, counts: dict[Any, float]) -> None:
        """Take in more rows, as counts of their levels."""
        for level, count in counts.items():
            self.counts[level] = self.counts.get(level, 0.0) + count
        if len(self.counts) > 2 * self.most:
            self._forget()

    def levels(self) -> dict[Any, float]:
        """Levels and their counts, ``most`` at most."""
        if len(self.counts) > self.most:
            self._forget()
        return self.counts

    def _forget(self) -> None:
        cut = sorted(self.counts.values())[-self.most - 1]
        self.counts = {level: count - cut for level, count in self.counts.items() if count > cut}
        self.short += cut


class Moments:
    """Weight, mean and variance of numbers, exactly (Chan, Golub and LeVeque, 1983)."""

    def __init__(self) -> None:
        self.total, self.mean, self._squares = 0.0, 0.0, 0.0

    def add(self, values: Floats, weight: Floats | None = None) -> None:
        """Take in more numbers."""
        if len(values) == 0:
            return
        total = float(len(values) if weight is None else weight.sum())
        if total == 0.0:
            return
        mean = float(np.average(values, weights=weight))
        spread = (values - mean) ** 2
        both, gap = self.total + total, mean - self.mean
        squares = float(spread.sum() if weight is None else weight @ spread)
        self._squares += squares + gap * gap * self.total * total / both
        self.mean += gap * total / both
        self.total = both

    @property
    def width(self) -> float:
        """The standard deviation of the numbers themselves."""
        return math.sqrt(self._squares / self.total) if self.total else 0.0


class RowSample(Generic[Rows]):
    """The rows with the smallest hashes: a random sample of at most ``size`` rows, in whatever order they come.

    Rows of any kind that can be taken by number and put together; those of one subject have the same hash, and are
    taken or left together, but for the last subject's.
    """

    def __init__(self, size: int, take: Any, join: Any) -> None:
        self.size, self._take, self._join = size, take, join
        self._parts: list[Rows] = []
        self._hashes: list[Hashes] = []
        self._limit = np.uint64(2**64 - 1)  # no row above it can be among the smallest

    def add(self, rows: Rows, hashes: Hashes) -> None:
        """Take in more rows, each with its hash."""
        near = np.flatnonzero(hashes <= self._limit)
        if len(near) == 0:
            return
        self._parts.append(self._take(rows, near))
        self._hashes.append(hashes[near])
        if sum(map(len, self._hashes)) > 2 * self.size:
            self._cut()

    def rows(self) -> Rows | None:
        """The sample, by increasing hash; None before there was a row."""
        if not self._parts:
            return None
        self._cut()
        return self._parts[0]

    def _cut(self) -> None:
        rows, hashes = self._join(self._parts), np.concatenate(self._hashes)
        order = np.argsort(hashes, kind="stable")[: self.size]
        self._parts, self._hashes = [self._take(rows, order)], [hashes[order]]
        if len(order) == self.size:
            self._limit = self._hashes[0][-1]
