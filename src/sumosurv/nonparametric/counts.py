"""Events and rows at risk at each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.outcome import Outcome, check_outcome

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """At each distinct time of some rows, (m,): weights of the events, of the rows at risk and of those that leave."""

    times: Floats
    events: Floats
    at_risk: Floats
    leaving: Floats

    def at_jumps(self) -> Counts:
        """Return the counts at times with events, at which curves jump; at the first time if there are no events."""
        found = np.flatnonzero(self.events > 0)
        at = found if len(found) else np.zeros(1, dtype=np.intp)
        return self[at]

    def __getitem__(self, at: Any) -> Counts:
        return Counts(self.times[at], self.events[at], self.at_risk[at], self.leaving[at])

    @property
    def hazard(self) -> Floats:
        """Events as a share of those at risk."""
        return shares(self.events, self.at_risk)


def risk_table(y: Any, weights: Any = None, *, sample_weight: Any = None) -> tuple[Floats, ...]:
    """Distinct times, events at each, and subjects at risk just before each.

    A row is at risk in (entry, time].

    Parameters
    ----------
    y : outcome
    weights : array of shape (n,), optional
        Relative risks, which count among those at risk and not among the events.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents, in both; without it, the weights of the outcome, if it has any.
    """
    found = count(check_outcome(y, sample_weight=sample_weight), weights)
    return found.times, found.events, found.at_risk


def count(outcome: Outcome, risk: Any = None) -> Counts:
    """Events and rows at risk of a checked outcome, each row at risk with its relative risk."""
    refuse_intervals(outcome, "risk sets")
    times, index = np.unique(outcome.time, return_inverse=True)
    share = np.ones(len(outcome)) if risk is None else np.asarray(risk, dtype=np.float64)
    events = outcome.event.astype(np.float64)
    if outcome.weight is not None:
        share, events = share * outcome.weight, events * outcome.weight
    leaving = np.bincount(index, weights=share).astype(np.float64)
    at_risk = np.cumsum(leaving[::-1])[::-1]
    if outcome.entry is not None:
        own = np.bincount(index, weights=share * outcome.event)
        # a case is at risk at its own time, however large the risks that rounding takes off again
        at_risk = np.maximum(at_risk - _not_yet(outcome.entry, share, times), own)
    return Counts(times, np.bincount(index, weights=events).astype(np.float64), at_risk, leaving)


def at_risk_at(outcome: Outcome, times: Floats) -> Floats:
    """The weights of the rows at risk just before each of some times, which need not be theirs."""
    order = np.argsort(outcome.time, kind="stable")
    later = np.append(np.cumsum(outcome.weights[order][::-1])[::-1], 0.0)
    at_risk = later[np.searchsorted(outcome.time[order], times)]
    return np.asarray(at_risk if outcome.entry is None else at_risk - _not_yet(outcome.entry, outcome.weights, times))


def sums_at_risk(outcome: Outcome, times: Floats, steps: Floats) -> Floats:
    """Sum values at increasing times, (m, ...), over the times at which each row is at risk: (n, ...)."""
    total = np.concatenate([np.zeros((1, *steps.shape[1:])), np.cumsum(steps, axis=0)])
    end = np.searchsorted(times, outcome.time, side="right")
    start = np.searchsorted(times, at_risk_from(outcome), side="right")
    return np.asarray(total[end] - total[np.minimum(start, end)])


def _not_yet(entry: Floats, share: Floats, times: Floats) -> Floats:
    """The weight of the rows that enter at or after each time; an entry at zero is from the beginning."""
    order = np.argsort(entry, kind="stable")
    later = np.append(np.cumsum(share[order][::-1])[::-1], 0.0)
    return np.asarray(later[np.searchsorted(entry[order], np.where(times > 0, times, 5e-324))])


def at_risk_from(outcome: Outcome) -> Floats:
    """The time after which each row is at risk: -1 for rows at risk from the beginning, so that time zero counts."""
    entry = np.zeros(len(outcome)) if outcome.entry is None else outcome.entry
    return np.where(entry > 0, entry, -1.0)


def refuse_intervals(outcome: Outcome, what: str, instead: str = "turnbull estimates the curve of such rows") -> None:
    """Raise a ValueError if some events are only known to lie between two times."""
    rows = np.flatnonzero(outcome.in_interval)
    if len(rows):
        some = ", ".join(str(int(i)) for i in rows[:5]) + (", ..." if len(rows) > 5 else "")
        raise ValueError(
            f"{len(rows)} rows are interval-censored ({some}), and {what} need each time exactly or right-censored; "
            f"{instead}."
        )


def is_whole(weight: Floats) -> bool:
    """Whether all weights are whole numbers, so that they count rows."""
    return bool((weight == np.rint(weight)).all())


def is_robust(outcome: Outcome) -> bool:
    """Whether variances must be robust: subjects have several rows, or weights are not counts."""
    if not is_whole(outcome.weights):
        return True
    return outcome.group is not None and len(np.unique(outcome.group)) < outcome.weights.sum()


def resampler(outcome: Outcome) -> Callable[[np.random.Generator], Floats]:
    """Return a function that draws subjects with replacement and returns how often each row counts, (n,).

    Whole-number weights are counts of rows, which are drawn one by one. Other weights, and those of subjects with
    several rows, multiply the number of times that the subject was drawn.
    """
    if outcome.group is None and outcome.weight is not None and is_whole(outcome.weight):
        total, share = int(outcome.total), outcome.weight / outcome.total
        return lambda rng: rng.multinomial(total, share).astype(np.float64)
    subject = np.arange(len(outcome)) if outcome.group is None else np.unique(outcome.group, return_inverse=True)[1]
    size = int(subject.max()) + 1
    return lambda rng: np.bincount(rng.integers(size, size=size), minlength=size)[subject] * outcome.weights


def sum_by_subject(values: Floats, outcome: Outcome) -> Floats:
    """Values of rows, (n, ...), summed over the rows of each subject; as they are if rows are subjects."""
    if outcome.group is None:
        return values
    subjects, subject = np.unique(outcome.group, return_inverse=True)
    made = np.zeros((len(subjects), *values.shape[1:]))
    np.add.at(made, subject, values)
    return made


def shares(events: Floats, at_risk: Floats) -> Floats:
    """Events as a share of those at risk; zero without events, when nobody may be at risk any more."""
    return np.divide(events, at_risk, out=np.zeros_like(events), where=events > 0)
