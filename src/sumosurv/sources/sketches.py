"""Summaries of rows that are seen once, of bounded size, which merge into that of all rows; and hashes of rows.

Hashes look random and belong to a row or to a subject: splits and samples need no list of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome import Outcome

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]
Rows = TypeVar("Rows")

_TIMES = 65_536  # of each kind of event
_SAMPLED = 100_000


def hashed(values: Any, seed: int) -> Hashes:
    """64 bits of each value (a row number, the name of a subject), the same wherever it occurs."""
    plain = np.asarray(values)
    if plain.dtype.kind in "iu":
        bits = plain.astype(np.uint64)
    else:
        bits = pd.util.hash_array(plain.astype(object) if plain.dtype.kind in "OUT" else plain)
    return _mixed(bits + np.uint64((2 * seed + 1) * 0x9E3779B97F4A7C15 % 2**64))


def uniform(hashes: Hashes) -> npt.NDArray[np.float64]:
    """Convert hashes to numbers in [0, 1)."""
    return np.asarray((hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _mixed(bits: Hashes) -> Hashes:
    """The finaliser of splitmix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


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
        """The largest error of a rank, as a share of the total weight."""
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
    """Distinct numbers of several parts, increasing, and their weights, which are one per number if not given."""
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


# ------------------------------------------------------------------ outcomes


class OutcomeSketch:
    """The outcome of many rows by few, with weights: a `QuantileSketch` of the times of each kind of event.

    Where rows have two times (entry and end, or the limits of an interval) it is a random sample of 100,000 rows, with
    the rows that have the smallest and the largest time and one of each cause.
    """

    def __init__(self, n_causes: int = 1, *, two_times: bool = False) -> None:
        self._two_times, self._causes = two_times, n_causes
        self._kinds = [QuantileSketch(_TIMES) for _ in range(1 + n_causes)]
        self._sample: RowSample[Outcome] = RowSample(_SAMPLED, lambda rows, part: rows[part], Outcome.join)
        self._extreme: dict[str, Outcome] = {}  # rows that a sample must not miss
        self.n_rows, self.total = 0, 0.0
        self.whole = True  # all weights are whole numbers

    def add(self, outcome: Outcome, hashes: Hashes) -> None:
        """Take in more rows, each with its hash."""
        self.n_rows, self.total = self.n_rows + len(outcome), self.total + outcome.total
        if outcome.weight is not None:
            self.whole = self.whole and bool((outcome.weight == np.rint(outcome.weight)).all())
        if self._two_times:
            self._sample.add(outcome, hashes)
            self._note_extremes(outcome)
            return
        kind = outcome.event.astype(np.int64) if outcome.cause is None else outcome.cause
        for k, sketch in enumerate(self._kinds):
            rows = kind == k
            sketch.add(outcome.time[rows], None if outcome.weight is None else outcome.weight[rows])

    def _note_extremes(self, outcome: Outcome) -> None:
        upper = outcome.time if outcome.upper is None else outcome.upper
        ends = np.where(np.isfinite(upper), upper, outcome.time)
        begins = outcome.time if outcome.entry is None else outcome.entry
        places = {"last": int(ends.argmax()), "first": int(begins.argmin())}
        last, first = self._extreme.get("last"), self._extreme.get("first")
        if last is None or ends[places["last"]] > last.last_time:
            self._extreme["last"] = outcome[[places["last"]]]
        if first is None or begins[places["first"]] < (first.time if first.entry is None else first.entry)[0]:
            self._extreme["first"] = outcome[[places["first"]]]
        for k in range(1, self._causes + 1) if outcome.cause is not None else ():
            rows = np.flatnonzero(outcome.cause == k)
            if len(rows):
                self._extreme.setdefault(f"cause {k}", outcome[rows[:1]])

    @property
    def exact(self) -> bool:
        """Whether no time was left out."""
        return not self._two_times and all(sketch.exact for sketch in self._kinds)

    @property
    def error(self) -> float:
        """The largest error of the rank of a time, as a share of the total weight."""
        return max(sketch.error for sketch in self._kinds)

    def outcome(self) -> Outcome:
        """Rows with weights that stand for all. Weights that are no whole numbers have a mean of one over all rows."""
        made = self._rows()
        return made if self.whole else replace(made, weight=made.weights * (self.n_rows / self.total))

    def _rows(self) -> Outcome:
        if self._two_times:
            sample = self._sample.rows()
            assert sample is not None
            scaled = replace(sample, weight=sample.weights * (self.total / sample.total))
            more = list(self._extreme.values()) if len(sample) < self.n_rows else []
            return Outcome.join([scaled, *(replace(row, weight=row.weights) for row in more)])
        parts = [sketch.points() for sketch in self._kinds]
        kind = np.repeat(np.arange(len(parts)), [len(points) for points, _ in parts])
        time, weight = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return Outcome(kind > 0, time, cause=kind if self._causes > 1 else None, weight=weight)


def row_sample(size: int) -> RowSample[tuple[pd.DataFrame, Outcome]]:
    """A sample of covariates and outcomes."""
    return RowSample(
        size,
        lambda rows, part: (rows[0].iloc[part], rows[1][part]),
        lambda parts: (pd.concat([part[0] for part in parts]), Outcome.join([part[1] for part in parts])),
    )
