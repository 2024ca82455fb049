"""The outcome of rows that are seen once, by few rows with weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from sumosurv.outcome import Outcome
from sumosurv.sources.hashing import Hashes
from sumosurv.sources.sketches import QuantileSketch, RowSample

_TIMES = 65_536  # of each kind of event
_SAMPLED = 100_000


class OutcomeSketch:
    """The outcome of many rows by few, with weights: a `QuantileSketch` of the times of each kind of event.

    Where rows have two times (entry and end, or the limits of an interval) it is a random sample of 100,000 rows, with
    the rows that have the smallest and the largest time and one of each cause.

    Parameters
    ----------
    n_causes : int
    two_times : bool
    """

    def __init__(self, n_causes: int = 1, *, two_times: bool = False) -> None:
        self._two_times, self._causes = two_times, n_causes
        self._kinds = [QuantileSketch(_TIMES) for _ in range(1 + n_causes)]
        self._sample: RowSample[Outcome] = RowSample(_SAMPLED, lambda rows, part: rows[part], Outcome.join)
        self._extreme: dict[str, Outcome] = {}  # rows that a sample must not miss
        self.n_rows, self.total = 0, 0.0
        self.whole = True  # all weights are whole numbers

    def add(self, outcome: Outcome, hashes: Hashes) -> None:
        """Take in more rows, each with a hash of its own."""
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
        """By how much the ranks of times may be off, of the sketches."""
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
