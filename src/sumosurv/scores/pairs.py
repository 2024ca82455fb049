"""Counting pairs of subjects in n log n, for the concordances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.nonparametric import is_whole
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array
from sumosurv.scores._resampling import MeanTerms, share_of_pairs

Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class TieRule:
    """How ties are counted."""

    equal: float  # credit of a pair whose predictions are equal
    censored: float  # weight of an event and a censoring at one time; the event counts as the earlier of the two
    events: bool  # whether two events at one time are compared: 1 if predictions are equal, else 1/2, from both sides


HARRELL = TieRule(equal=0.5, censored=1.0, events=False)


class SortedOutcome:
    """Subjects in the order of time, events before censorings among ties, and where each tie begins and ends.

    A row with delayed entry is compared with the events at which it is at risk. It is therefore counted with all events
    before its time. A copy with a negative weight, censored just after its entry, subtracts the events before entry.
    ``rows`` are thus all rows and those that are counted again; other attributes are in the order of time.
    """

    def __init__(
        self, event: npt.NDArray[np.bool_], time: Array, weight: Array | None = None, entry: Array | None = None
    ) -> None:
        late: Index = np.flatnonzero(entry > 0) if entry is not None else np.zeros(0, dtype=np.intp)
        self.n_rows, self.rows = len(time), np.append(np.arange(len(time)), late)
        if entry is not None and len(late):
            weight = np.ones(len(time)) if weight is None else weight
            weight = np.append(weight, -weight[late])
            event, time = (
                np.append(event, np.zeros(len(late), dtype=np.bool_)),
                np.append(time, np.nextafter(entry[late], np.inf)),
            )
        self.order: Index = np.lexsort((~event, time))
        # the part of a row's weight that is not compared with the row itself: one of its copies, if weights are counts
        self.itself: Any = 1.0 if weight is None or is_whole(weight) else weight[self.order]
        self.weight = None if weight is None else weight[self.order]
        self.event, self.time = event[self.order], time[self.order]
        self.start: Index = np.searchsorted(self.time, self.time, side="left")  # first subject with that time
        self.stop: Index = np.searchsorted(self.time, self.time, side="right")  # first subject with a later time
        self.n_events_before: Index = np.concatenate([[0], np.cumsum(self.event)])
        self.censored_start: Index = self.start + self.n_events_before[self.stop] - self.n_events_before[self.start]
        self.has_ties = bool((self.stop - self.start > 1).any())

    def mass(self, left: Index, right: Index) -> Any:
        """Return the weight of the subjects in stretches [left, right) of the order."""
        if self.weight is None:
            return right - left
        total = np.concatenate([[0.0], np.cumsum(self.weight)])
        return total[right] - total[left]


class Pairs:
    """Concordant and comparable weight of each subject's pairs; half of a pair belongs to either subject.

    Both are in the order of time. The concordance is the ratio of their sums. Weights of the partners are included
    here; the sums are weighted with the subject's own weight.
    """

    def __init__(self, y: SortedOutcome) -> None:
        self.y = y
        self.concordant, self.comparable = np.zeros((2, len(y.time)))

    def ratio(self) -> float:
        """Return the concordance; nan if no pair can be compared."""
        weight = 1.0 if self.y.weight is None else self.y.weight
        total = float((weight * self.comparable).sum())
        return float((weight * self.concordant).sum()) / total if total > 0 else float("nan")


def count_below(
    values: Index, left: Index, right: Index, threshold: Index, weights: Array | None = None
) -> tuple[Any, Any]:
    """Return, for each query, the weight of positions p in [left, right) with values[p] < threshold, and = threshold.

    A wavelet matrix: one stable partition of ``values`` for each of their bits, from the highest down, so that the cost
    is (number of values + number of queries) × bits.

    Examples
    --------
    >>> values = np.array([3, 1, 2, 1])
    >>> below, equal = count_below(values, np.array([0, 1]), np.array([4, 3]), np.array([2, 1]))
    >>> below, equal
    (array([2., 0.]), array([1., 1.]))
    """
    below = np.zeros(len(left))
    largest = max(int(values.max(initial=0)), int(threshold.max(initial=0)))
    for bit in reversed(range(max(1, largest.bit_length()))):
        one = (values >> bit) & 1
        ones = np.concatenate([[0], np.cumsum(one)])
        n_zeros = len(values) - int(ones[-1])
        left_ones, right_ones = ones[left], ones[right]
        up = ((threshold >> bit) & 1).astype(bool)
        if weights is None:
            below += np.where(up, (right - right_ones) - (left - left_ones), 0)
        else:
            mass = np.concatenate([[0.0], np.cumsum(weights * (1 - one))])
            below += np.where(up, mass[right] - mass[left], 0.0)
            weights = np.concatenate([weights[one == 0], weights[one == 1]])
        left = np.where(up, n_zeros + left_ones, left - left_ones)
        right = np.where(up, n_zeros + right_ones, right - right_ones)
        values = np.concatenate([values[one == 0], values[one == 1]])
    if weights is None:
        return below, (right - left).astype(np.float64)
    mass = np.concatenate([[0.0], np.cumsum(weights)])
    return below, mass[right] - mass[left]


def count_cell(
    pairs: Pairs, prediction: Array, start: Index, stop: Index, rule: TieRule, weights: Array | None = None
) -> None:
    """Add the pairs (i, j) whose later subject j lies in the same cell as the event i.

    ``prediction`` is in the order of time and such that larger means later; a cell is a stretch
    [start, stop) of that order. ``weights`` are those of the event's side.
    """
    y = pairs.y
    rank: Index = np.unique(prediction, return_inverse=True)[1].astype(np.intp)
    events = np.flatnonzero(y.event)
    weight = np.ones(len(events)) if weights is None else weights[events]
    concordant, comparable = np.zeros(len(rank)), np.zeros(len(rank))
    concordant[events], comparable[events] = weight * count_later(y, rank, stop, rule)
    if y.weight is not None:
        weight, weights = weight * y.weight[events], y.weight

    # from the other side: the events before it in its cell, or at the time of its censoring
    before = y.n_events_before
    sides = [(np.arange(len(rank)), start, y.start, 1.0)]
    if y.has_ties:
        sides.append((np.flatnonzero(~y.event), y.start, y.stop, rule.censored))
    mass = np.concatenate([[0.0], np.cumsum(weight)])
    for who, first, last, worth in sides:
        left, right = before[first[who]], before[last[who]]
        below, equal = count_below(rank[events], left, right, rank[who], None if weights is None else weight)
        concordant[who] += worth * (below + rule.equal * equal)
        comparable[who] += worth * (mass[right] - mass[left])

    if rule.events and (y.has_ties or y.weight is not None):  # copies of a row are tied
        left, right = y.start[events], y.censored_start[events]
        itself = np.broadcast_to(y.itself, len(rank))[events]
        equal = count_below(rank, left, right, rank[events], y.weight)[1] - itself
        others = y.mass(left, right) - itself
        concordant[events] += 2 * (equal + 0.5 * (others - equal))
        comparable[events] += 2 * others
    pairs.concordant += 0.5 * concordant
    pairs.comparable += 0.5 * comparable


def count_later(y: SortedOutcome, rank: Index, cell_stop: Index, rule: TieRule) -> Array:
    """Each event's pairs with all that lie later in its cell and with the censored at its own time.

    Of shape (2, number of events): the concordant and the comparable ones. ``rank`` is that of the predictions.
    """
    events = np.flatnonzero(y.event)
    counted = np.zeros((2, len(events)))
    stretches = [(y.stop[events], cell_stop[events], 1.0)]
    if y.has_ties:
        stretches.append((y.censored_start[events], y.stop[events], rule.censored))
    for left, right, worth in stretches:
        below, equal = count_below(rank, left, right, rank[events], y.weight)
        counted[0] += worth * (y.mass(left, right) - below - equal + rule.equal * equal)
        counted[1] += worth * y.mass(left, right)
    return counted


def count_cells(y: SortedOutcome, cells: Iterable[tuple[int, int, npt.NDArray[Any]]], rule: TieRule) -> Pairs:
    """Count all pairs, given the cells of time in which curves are compared at one time each.

    A cell is a stretch [first, last) of the order, with the predictions of all subjects from ``first`` on at the time
    of the cell; larger means later. Subjects of later cells are looked up in the sorted predictions of the cell's
    events; pairs within a cell are left to `count_cell`.
    """
    n, pairs = len(y.time), Pairs(y)
    own, start, stop = np.empty(n), np.empty(n, dtype=np.intp), np.empty(n, dtype=np.intp)
    for first, last, prediction in cells:
        own[first:last], start[first:last], stop[first:last] = prediction[: last - first], first, last
        events = first + np.flatnonzero(y.event[first:last])
        if len(events) == 0 or last == n:
            continue
        later = prediction[last - first :].astype(np.float64)
        values, position, copies = np.unique(own[events], return_inverse=True, return_counts=True)
        if y.weight is not None:
            copies = np.bincount(position, weights=y.weight[events])
        slot = np.searchsorted(values, later)  # events with a smaller prediction are those in the slots before
        tied = values[np.minimum(slot, len(values) - 1)] == later
        events_before = np.concatenate([[0], np.cumsum(copies)])
        credit = events_before[slot] + rule.equal * np.where(tied, np.append(copies, 0)[slot], 0)
        pairs.concordant[last:] += 0.5 * credit
        pairs.comparable[last:] += 0.5 * copies.sum()
        # from the event's side: later subjects in the slots above its own, and those tied with it
        weight = None if y.weight is None else y.weight[last:]
        in_slot = np.bincount(slot, weight, minlength=len(values) + 1)
        at_value = np.bincount(slot[tied], None if weight is None else weight[tied], minlength=len(values))
        total = len(later) if weight is None else weight.sum()
        above = total - np.cumsum(in_slot)[:-1]
        pairs.concordant[events] += 0.5 * (above + rule.equal * at_value)[position]
        pairs.comparable[events] += 0.5 * total
    count_cell(pairs, own, start, stop, rule)
    return pairs


def pair_terms(pairs: Pairs, outcome: Outcome) -> MeanTerms:
    """Return each subject's share of the pairs, in the order of the rows."""
    y = pairs.y
    counted = np.empty((len(y.order), 2))
    counted[y.order] = np.column_stack([pairs.concordant, pairs.comparable])
    values = counted[: y.n_rows]
    values[y.rows[y.n_rows :]] -= counted[y.n_rows :]
    whole = np.average(values, axis=0, weights=outcome.weight)

    def combine(means: Array) -> Array:
        # Σᵢⱼ cᵢ cⱼ h(i, j) to first order about each subject's weight: its pairs change with it and with its partners
        both = 2.0 * means - whole
        return share_of_pairs(both[:, 0], both[:, 1])

    return MeanTerms(outcome, values, combine)
