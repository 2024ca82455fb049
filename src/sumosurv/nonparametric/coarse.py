"""A smooth marginal curve that holds no row: what model files keep of the training times."""

from __future__ import annotations

from typing import Any

import numpy as np

from sumosurv.distributions import Tabulated
from sumosurv.nonparametric.counts import Floats
from sumosurv.nonparametric.curves import aalen_johansen, kaplan_meier
from sumosurv.nonparametric.intervals import TurnbullIntervals, turnbull_intervals
from sumosurv.outcome import Outcome, check_outcome

_MOST_CELLS = 200


def coarse_kaplan_meier(y: Any) -> Tabulated:
    r"""Kaplan-Meier at the edges of 2 ∛events cells (200 at most), with a constant hazard in each cell.

    It has a density that is positive everywhere, so that other rows have a likelihood under it, and few enough cells
    for that not to be noise. The edges lie between event times, about as many events in each cell: no time of a row is
    kept. In the last cell, which is open, the hazard is events by time at risk.

    With entry times the hazard of every cell is events by time at risk, since Kaplan-Meier may fall to zero early,
    and before the first entries a hazard of half an event among all rows stands for what nobody saw. With
    interval-censored rows the curve at the edges is Turnbull's, its mass spread evenly within each of its intervals.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> time = np.arange(1.0, 28.0)
    >>> coarse = coarse_kaplan_meier(Surv.from_arrays(event=np.ones(27), time=time))
    >>> coarse.times.tolist()[:4], coarse.survival(9.5).round(3)
    ([0.0, 4.5, 9.5, 13.5], array([0.667]))
    """
    outcome = check_outcome(y)
    unit = outcome.last_time or 1.0
    outcome = outcome.on_clock(unit=unit)
    weight, had = outcome.weights, outcome.had_event
    if not weight[had].any():
        return Tabulated([1.0], [1.0], between="hazard")
    intervals = turnbull_intervals(outcome) if outcome.in_interval.any() else None
    n_events = float(weight[had].sum())
    edges = _edges(*_event_masses(outcome, intervals, n_events), n_events)
    time = outcome.at_midpoints().time
    entry = np.zeros(len(outcome)) if outcome.entry is None else outcome.entry
    start = float(edges[-1]) if len(edges) else 0.0
    # the mean time to the event in the last cell
    passed = weight * np.maximum(time - np.maximum(entry, start), 0.0)
    ahead = float(passed.sum()) / float(weight[had & (time > start)].sum() or n_events)
    if intervals is not None:
        survival = np.append(1.0, intervals.survival(edges))
    elif outcome.entry is not None:
        edges, survival = _by_exposure(outcome, edges)
    else:
        survival = kaplan_meier(outcome).survival(np.append(0.0, edges))[0] if len(edges) else np.ones(1)
    survival = np.append(survival[1:], survival[-1] * np.exp(-1.0))
    knots = np.minimum(np.append(edges, start + (ahead or 1.0)) * unit, np.finfo(np.float64).max)
    knots, first = np.unique(knots, return_index=True)  # the smallest of numbers are no longer apart
    return Tabulated(knots, survival[first], between="hazard")


def coarse_aalen_johansen(y: Any) -> Tabulated:
    """`coarse_kaplan_meier` of events of any cause, each cell's events shared out among the causes.

    The shares are those of the Aalen-Johansen estimate over the cell, with half an event in the proportions of all
    events added, so that no cause is impossible anywhere; events in intervals count at their middle.
    """
    outcome = check_outcome(y)
    whole, known = coarse_kaplan_meier(outcome.any_cause()), outcome.at_midpoints()
    knots, survival = whole.times.numpy(), whole.table[0].numpy()
    rise = np.diff(aalen_johansen(known, causes=outcome.n_causes).cumulative_incidence(knots)[0], axis=0)
    total = rise.sum(axis=0)
    total = total / total.sum() if total.any() else np.full(outcome.n_causes, 1.0 / outcome.n_causes)
    half = 0.5 / max(outcome.total, 1.0)
    shares = rise + half * total
    shares[-1] += total  # the last cell is open
    fall = -np.diff(survival)[:, None] * shares / shares.sum(axis=1, keepdims=True)
    incidence = np.vstack([np.zeros(outcome.n_causes), np.cumsum(fall, axis=0)])
    return Tabulated(knots, survival, incidence, between="hazard")


def _event_masses(outcome: Outcome, intervals: TurnbullIntervals | None, n_events: float) -> tuple[Floats, Floats]:
    """Distinct times of events and how many there are at each; for intervals as Turnbull's estimate places them."""
    if intervals is None:
        times, index = np.unique(outcome.time[outcome.event], return_inverse=True)
        return times, np.bincount(index, weights=outcome.weights[outcome.event]).astype(np.float64)
    seen = np.isfinite(intervals.upper)
    mass = intervals.mass[seen]
    return 0.5 * (intervals.lower + intervals.upper)[seen], mass * (n_events / float(mass.sum()))


def _edges(times: Floats, mass: Floats, n_events: float) -> Floats:
    """Edges between the times, about as many events between each two."""
    n_cells = max(1, min(_MOST_CELLS, int(2 * np.cbrt(n_events))))
    wanted = np.floor(np.arange(1, n_cells) * n_events / n_cells)
    places = np.searchsorted(np.cumsum(mass), wanted)
    places = np.unique(places[places < len(times) - 1])
    return np.unique(0.5 * (times[places] + times[places + 1]))


def _by_exposure(outcome: Outcome, edges: Floats) -> tuple[Floats, Floats]:
    """S at zero and at the edges, from events by time at risk in each cell; an edge is put before the first event."""
    assert outcome.entry is not None
    first = float(outcome.entry.min())
    seen_from = 0.5 * (first + float(outcome.time[outcome.event].min())) if first > 0 else 0.0
    inner = np.append(seen_from, edges[edges > seen_from]) if seen_from > 0 else edges
    fallen = []
    for low, high in zip(np.append(0.0, inner[:-1]), inner):
        inside = outcome.event & (outcome.time > low) & (outcome.time <= high)
        passed = np.minimum(outcome.time, high) - np.maximum(outcome.entry, low)
        exposure = float((outcome.weights * np.maximum(passed, 0.0)).sum())
        fallen.append(float(outcome.weights[inside].sum()) * (high - low) / exposure if inside.any() else 0.0)
    if seen_from > 0:
        fallen[0] = 0.5 / float(outcome.weights.sum())
    return inner, np.exp(-np.cumsum(np.append(0.0, fallen)))
