"""Competing risks one cause at a time, for the start values of networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome

__all__ = ["cause_shares", "rows_of_cause"]


def rows_of_cause(outcome: Outcome, k: int) -> Outcome:
    """The rows with an event of cause k, weighted by 1 / P(not censored before it).

    Their weighted distribution function is the Aalen-Johansen estimate of the incidence, up to its last value.
    """
    rows = np.flatnonzero(outcome.cause == k) if outcome.cause is not None else np.zeros(0, dtype=np.intp)
    weight = _inverse_probability(outcome)[rows]
    own = outcome[rows]
    weight = weight * (own.total / weight.sum()) if len(rows) else weight
    return replace(own, entry=None, cause=None, group=None, weight=weight)


def cause_shares(outcome: Outcome) -> npt.NDArray[np.float64]:
    """The share of each cause among events, had no row been censored; none is zero."""
    assert outcome.cause is not None
    sums = np.bincount(outcome.cause, weights=_inverse_probability(outcome), minlength=outcome.n_causes + 1)[1:]
    sums = np.maximum(sums, 0.5)
    return np.asarray(sums / sums.sum(), dtype=np.float64)


def _inverse_probability(outcome: Outcome) -> npt.NDArray[np.float64]:
    """Weights of events: 1 / G just before each, with G the Kaplan-Meier curve of censoring."""
    known = replace(outcome.at_midpoints(), cause=None, entry=None, group=None)
    left = kaplan_meier(known, censoring=True).survival(np.nextafter(known.time, 0.0))[0]
    return np.asarray(known.weights / np.maximum(left, 1.0 / known.total), dtype=np.float64)
