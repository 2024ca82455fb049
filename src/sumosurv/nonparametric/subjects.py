"""Weights that count rows, subjects with several rows, and sums over the time that each row is at risk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sumosurv.nonparametric.intervals import Floats
from sumosurv.outcome import Outcome

Rows = npt.NDArray[np.intp]


def sums_at_risk(outcome: Outcome, times: Floats, steps: Floats) -> Floats:
    """Sum values at increasing times, (m, ...), over the times at which each row is at risk: (n, ...)."""
    total = np.concatenate([np.zeros((1, *steps.shape[1:])), np.cumsum(steps, axis=0)])
    end = np.searchsorted(times, outcome.time, side="right")
    start = np.searchsorted(times, at_risk_from(outcome), side="right")
    return np.asarray(total[end] - total[np.minimum(start, end)])


def at_risk_from(outcome: Outcome) -> Floats:
    """Return the time after which each row is at risk: -1 without delayed entry, so that time zero counts."""
    return np.where(outcome.entries > 0, outcome.entries, -1.0)


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
    subject = outcome.subject
    size = int(subject.max()) + 1
    return lambda rng: np.bincount(rng.integers(size, size=size), minlength=size)[subject] * outcome.weights


def draw_subjects(outcome: Outcome, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Draw subjects with replacement; return their rows, and the number of the draw that each row belongs to."""
    subject = outcome.subject
    own = np.split(np.argsort(subject, kind="stable"), np.cumsum(np.bincount(subject))[:-1])
    drawn = [own[i] for i in rng.integers(len(own), size=len(own))]
    return np.concatenate(drawn), np.repeat(np.arange(len(drawn)), [len(rows) for rows in drawn])


def sum_by_subject(values: Floats, outcome: Outcome) -> Floats:
    """Sum values of rows, (n, ...), over the rows of each subject."""
    if outcome.group is None:
        return values
    subject = outcome.subject
    made = np.zeros((int(subject.max()) + 1, *values.shape[1:]))
    np.add.at(made, subject, values)
    return made
