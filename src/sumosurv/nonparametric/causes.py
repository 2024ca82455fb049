"""Aalen-Johansen: the cumulative incidence of each cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sumosurv.nonparametric.counts import Floats, count, jumps, shares
from sumosurv.outcome import Outcome, check_outcome

__all__ = ["CumulativeIncidence", "aalen_johansen", "cause_events"]


@dataclass(frozen=True, eq=False)
class CumulativeIncidence:
    """Step curves of K causes: from each time on, until the next, and zero (survival one) before the first.

    Parameters
    ----------
    times : array of shape (m,)
        Where a curve jumps, increasing.
    incidence : array of shape (m, K)
        F_k, the probability of an event of cause k up to each time.
    survival : array of shape (m,)
        S, the probability of no event up to each time: one minus the sum of the incidences.
    """

    times: Floats
    incidence: Floats
    survival: Floats

    @property
    def n_causes(self) -> int:
        """K."""
        return int(self.incidence.shape[1])

    def incidence_at(self, times: Any) -> Floats:
        """F_k at any times: shape (len(times), K)."""
        found: Floats = np.vstack([np.zeros((1, self.n_causes)), self.incidence])[self._places(times)]
        return found

    def survival_at(self, times: Any) -> Floats:
        """S at any times: shape (len(times),)."""
        found: Floats = np.append(1.0, self.survival)[self._places(times)]
        return found

    def _places(self, times: Any) -> Any:
        return np.searchsorted(self.times, np.atleast_1d(np.asarray(times, dtype=np.float64)), side="right")


def aalen_johansen(y: Any, *, sample_weight: Any = None, causes: int | None = None) -> CumulativeIncidence:
    r"""The Aalen-Johansen estimate of the cumulative incidence of each cause.

    .. math:: F_k(t) = \sum_{t_i \le t} S(t_{i-1}) \, d_{ki} / n_i,
        \qquad S(t) = \prod_{t_i \le t} \Big(1 - \sum_k d_{ki} / n_i\Big)

    with the weights d of the events of cause k at tᵢ and n of the rows at risk there, those with
    entry < tᵢ <= time. Events of different causes at one time are tied, not ordered.

    Parameters
    ----------
    y : outcome
        With causes 1, ..., K, of exact and right-censored times.
    sample_weight : array of shape (n,), optional
        How many rows each row counts for.
    causes : int, optional
        K, where the rows may lack the last causes.

    Returns
    -------
    CumulativeIncidence

    Examples
    --------
    >>> from sumosurv import Surv
    >>> found = aalen_johansen(Surv.from_arrays(event=[1, 2, 0, 1], time=[1.0, 2.0, 3.0, 4.0]))
    >>> found.incidence.tolist(), found.survival.tolist()
    ([[0.25, 0.0], [0.25, 0.25], [0.75, 0.25]], [0.75, 0.5, 0.0])
    """
    outcome = check_outcome(y, sample_weight=sample_weight)
    counts = count(outcome)
    events = cause_events(outcome, counts.times, causes)
    at = jumps(counts.events)
    hazards = np.stack([shares(column, counts.at_risk)[at] for column in events.T], axis=1)
    total = hazards.sum(axis=1)
    hazards /= np.maximum(total, 1.0)[:, None]
    kept = np.cumprod(np.where(total < 1.0 - 1e-12, 1.0 - total, 0.0), dtype=np.float64)
    incidence = np.cumsum(np.append(1.0, kept[:-1])[:, None] * hazards, axis=0)
    return CumulativeIncidence(counts.times[at], incidence, kept)


def cause_events(outcome: Outcome, times: Floats, causes: int | None = None) -> Floats:
    """Weights of the events of each cause at each of the distinct times: shape (m, K)."""
    cause = outcome.event.astype(np.int64) if outcome.cause is None else outcome.cause
    n_causes = outcome.n_causes if causes is None else causes
    if n_causes < outcome.n_causes:
        raise ValueError(f"causes is {causes}, and the rows have cause {outcome.n_causes}; give the number of causes.")
    made = np.zeros((len(times), n_causes))
    seen = cause > 0
    np.add.at(made, (np.searchsorted(times, outcome.time[seen]), cause[seen] - 1), outcome.weights[seen])
    return made
