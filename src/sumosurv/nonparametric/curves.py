"""Step curves from an outcome: Kaplan-Meier, Nelson-Aalen, Breslow, Aalen-Johansen, Turnbull; events and risk sets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sumosurv.distributions import Tabulated
from sumosurv.nonparametric.intervals import Floats, TurnbullIntervals, turnbull_intervals
from sumosurv.outcome import Outcome, check_outcome

_MOST_CELLS = 200  # of a coarse curve


# ------------------------------------------------------------------ events and rows at risk


@dataclass(frozen=True)
class Counts:
    """The weights of events, of rows at risk and of rows that leave at each distinct time, shape (m,)."""

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
    """Return the distinct times, the events at each, and the subjects at risk just before each.

    A row is at risk in (entry, time].

    Parameters
    ----------
    y : outcome
    weights : array of shape (n,), optional
        Relative risks, which multiply the numbers at risk but not the events.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents, in both; by default the weights of the outcome, if it has any.
    """
    found = count(check_outcome(y, sample_weight=sample_weight), weights)
    return found.times, found.events, found.at_risk


def count(outcome: Outcome, risk: Any = None) -> Counts:
    """Count the events and the rows at risk of a checked outcome; relative risks multiply the latter."""
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
    """Return the weight of the rows at risk just before each of some times, which may be any times."""
    order = np.argsort(outcome.time, kind="stable")
    later = np.append(np.cumsum(outcome.weights[order][::-1])[::-1], 0.0)
    at_risk = later[np.searchsorted(outcome.time[order], times)]
    return np.asarray(at_risk if outcome.entry is None else at_risk - _not_yet(outcome.entry, outcome.weights, times))


def _not_yet(entry: Floats, share: Floats, times: Floats) -> Floats:
    """Return the weight of the rows that enter at or after each time; an entry at zero is not delayed."""
    order = np.argsort(entry, kind="stable")
    later = np.append(np.cumsum(share[order][::-1])[::-1], 0.0)
    return np.asarray(later[np.searchsorted(entry[order], np.where(times > 0, times, 5e-324))])


def refuse_intervals(outcome: Outcome, what: str, instead: str = "turnbull estimates the curve of such rows") -> None:
    """Raise a ValueError if some events are only known to lie between two times."""
    rows = np.flatnonzero(outcome.in_interval)
    if len(rows):
        some = ", ".join(str(int(i)) for i in rows[:5]) + (", ..." if len(rows) > 5 else "")
        raise ValueError(
            f"{len(rows)} rows are interval-censored ({some}), and {what} need each time exactly or right-censored; "
            f"{instead}."
        )


def shares(events: Floats, at_risk: Floats) -> Floats:
    """Events as a share of those at risk; zero without events, when nobody may be at risk any more."""
    return np.divide(events, at_risk, out=np.zeros_like(events), where=events > 0)


# ------------------------------------------------------------------ curves of all rows


def kaplan_meier(y: Any, *, censoring: bool = False, half_width: int = 2, sample_weight: Any = None) -> Tabulated:
    r"""Kaplan-Meier estimate, S(t) = Π_{tᵢ <= t} (1 - dᵢ / nᵢ), as the distribution of one subject.

    dᵢ and nᵢ are the weights of the events at tᵢ and of the rows at risk there, those with entry < tᵢ <= time. With
    delayed entry, early risk sets are small, and the curve stays at zero after an event that leaves nobody at risk.
    Causes are not distinguished.

    Parameters
    ----------
    y : outcome
        Exact and right-censored times; `turnbull` supports intervals.
    censoring : bool, default False
        Estimate the distribution of the *censoring* time instead: events and censorings are exchanged, and subjects
        with an event at t are not at risk of censoring at t (events come first among ties).
    half_width : int, default 2
        k of the interpolated density; see `Tabulated`.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> km = kaplan_meier(Surv.from_arrays(event=[1, 0, 1], time=[1.0, 2.0, 3.0]))
    >>> km.survival([0.5, 1.0, 2.5, 3.0]).round(3)
    array([[1.   , 0.667, 0.667, 0.   ]])

    With delayed entry, the second row is not at risk at the time of the first event:

    >>> late = Surv.from_arrays(event=[1, 0, 1], time=[1.0, 2.0, 3.0], entry=[0.0, 1.5, 0.0])
    >>> kaplan_meier(late).survival([1.0, 3.0])
    array([[0.5, 0. ]])
    """
    found = count(check_outcome(y, sample_weight=sample_weight))
    if censoring:
        censored = found.leaving - found.events
        censored = np.where(censored > 1e-12 * found.leaving, censored, 0.0)  # zero up to the rounding of weights
        found = replace(found, events=censored, at_risk=found.at_risk - found.events)
    found = found.at_jumps()
    return Tabulated(found.times, product_limit(found), half_width=half_width)


def product_limit(counts: Counts) -> Floats:
    """Return Π (1 - dᵢ / nᵢ) up to each time."""
    share = counts.hazard
    kept = np.where(share < 1.0 - 1e-12, 1.0 - share, 0.0)  # zero up to the rounding of weights
    return np.cumprod(kept, dtype=np.float64)


def nelson_aalen(y: Any, *, half_width: int = 2, sample_weight: Any = None) -> Tabulated:
    r"""Nelson-Aalen estimate of the cumulative hazard, Λ(t) = Σ_{tᵢ <= t} dᵢ / nᵢ, as the distribution of one subject.

    S(t) = exp(-Λ(t)), with dᵢ and nᵢ as in `kaplan_meier`.

    Parameters
    ----------
    y : outcome
        Exact and right-censored times.
    half_width : int, default 2
        k of the interpolated density; see `Tabulated`.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> nelson_aalen(Surv.from_arrays(event=[1, 1], time=[1.0, 3.0])).cumulative_hazard([1.0, 3.0])
    array([[0.5, 1.5]])
    """
    found = count(check_outcome(y, sample_weight=sample_weight)).at_jumps()
    return Tabulated(found.times, np.exp(-np.cumsum(found.hazard)), half_width=half_width)


def turnbull(y: Any, *, half_width: int = 2, sample_weight: Any = None) -> Tabulated:
    r"""The nonparametric maximum likelihood estimate of S(t) from intervals, as the distribution of one subject.

    It maximises

    .. math:: \sum_i w_i \log \frac{P(T \in A_i)}{P(T > v_i)},

    where A is (lower, upper], {time} for exact and (time, ∞) for right-censored rows, v the entry and w the weight.
    Without interval-censored rows it is `kaplan_meier`. The estimate determines the mass of some disjoint intervals
    (see `turnbull_intervals`), but not where the mass lies within an interval. This curve puts it at the upper end, so
    that S is flat within the interval and jumps at its end. It is the largest of all curves with this likelihood, and
    S(lower) - S(upper) is the probability of every interval of the data. Mass beyond the last time is not in the table.

    Parameters
    ----------
    y : outcome
        Exact, interval-, left- and right-censored times in any combination; see `Surv.interval`.
    half_width : int, default 2
        k of the interpolated density; see `Tabulated`.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.

    Notes
    -----
    Steps of EM and of the iterative convex minorant alternate (Wellner and Zhan 1997), each linear in the number of
    rows, until the Karush-Kuhn-Tucker conditions hold. With delayed entry the likelihood need not be concave and, as
    for `kaplan_meier`, a small early risk set can receive nearly all mass.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> y = Surv.interval(lower=[0.0, 1.0, 2.0, 3.0], upper=[1.0, 3.0, 4.0, np.inf])
    >>> curve = turnbull(y)
    >>> curve.times.tolist(), curve.survival([1.0, 2.5, 3.0, 9.0]).round(3)
    ([0.0, 1.0, 3.0, 4.0], array([[0.75 , 0.75 , 0.375, 0.   ]]))
    """
    outcome = check_outcome(y, sample_weight=sample_weight)
    if not outcome.in_interval.any():
        return kaplan_meier(outcome, half_width=half_width)
    found = turnbull_intervals(outcome)
    seen = np.isfinite(found.upper)
    if not seen.any():
        return Tabulated([outcome.last_time], [1.0], half_width=half_width)
    # from the tail, so that the last value is zero where it should be
    after = np.append(np.cumsum(found.mass[::-1])[::-1][1:], 0.0)
    return Tabulated(found.upper[seen], np.clip(after[seen], 0.0, 1.0), half_width=half_width)


def marginal_curve(y: Any) -> Tabulated:
    """The curve of all rows together: Kaplan-Meier, or Turnbull's estimate if rows are interval-censored.

    With delayed entry it is Nelson-Aalen: few rows are at risk early on, and Kaplan-Meier stays at zero from a time at
    which all of them have the event. Causes are not distinguished.
    """
    outcome = check_outcome(y).any_cause()
    if outcome.in_interval.any():
        return turnbull(outcome)
    return kaplan_meier(outcome) if outcome.entry is None else nelson_aalen(outcome)


def breslow(y: Any, log_risk: Any, log_risk_new: Any, *, half_width: int = 2, sample_weight: Any = None) -> Tabulated:
    r"""Curves of a proportional-hazards model, S(t|x) = exp(-Λ₀(t) e^{g(x)}), with Breslow's baseline.

    .. math:: Λ₀(t) = \sum_{t_i \le t} d_i / \sum_{j: v_j < t_i \le z_j} w_j e^{g(x_j)}

    with entry times v, weights w and the weight dᵢ of the events at tᵢ.

    Parameters
    ----------
    y : outcome
        The training rows.
    log_risk : array of shape (n,)
        g(x) of the training rows.
    log_risk_new : array of shape (m,)
        g(x) of the subjects to predict.
    half_width : int, default 2
        k of the interpolated density; see `Tabulated`.
    sample_weight : array of shape (n,), optional
        Number of rows that each training row represents.
    """
    outcome = check_outcome(y, sample_weight=sample_weight)
    risk, new = np.asarray(log_risk, dtype=np.float64), np.asarray(log_risk_new, dtype=np.float64)
    for name, values, wanted in (
        ("log_risk", risk, f"training row ({len(outcome)})"),
        ("log_risk_new", new, "subject to predict"),
    ):
        if values.ndim != 1 or not np.isfinite(values).all() or (values is risk and len(risk) != len(outcome)):
            raise ValueError(f"{name} has shape {values.shape}; give one finite number per {wanted}.")
    shift = float(risk.max())
    found = count(outcome, np.exp(risk - shift)).at_jumps()
    log_survival = -np.exp(new - shift)[:, None] * np.cumsum(found.hazard)
    return Tabulated(found.times, torch.exp(torch.from_numpy(log_survival)), half_width=half_width)


def aalen_johansen(y: Any, *, half_width: int = 2, sample_weight: Any = None, causes: int | None = None) -> Tabulated:
    r"""The Aalen-Johansen estimate of the cumulative incidence of each cause.

    .. math:: F_k(t) = \sum_{t_i \le t} S(t_{i-1}) \, d_{ki} / n_i,
        \qquad S(t) = \prod_{t_i \le t} \Big(1 - \sum_k d_{ki} / n_i\Big)

    with the weights d of the events of cause k at tᵢ and n of the rows at risk there, those with
    entry < tᵢ <= time. Events of different causes at one time are tied, not ordered.

    Parameters
    ----------
    y : outcome
        Exact and right-censored times, with causes 1, ..., K.
    half_width : int, default 2
        k of the interpolated density; see `Tabulated`.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.
    causes : int, optional
        K; by default the largest cause in y.

    Returns
    -------
    Tabulated
        The incidences of K causes, for one subject.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> found = aalen_johansen(Surv.from_arrays(event=[1, 2, 0, 1], time=[1.0, 2.0, 3.0, 4.0]))
    >>> found.cumulative_incidence([1.0, 4.0]), found.survival(2.5)
    (array([[[0.25, 0.  ],
            [0.75, 0.25]]]), array([0.5]))
    """
    times, incidence, survival = incidence_steps(check_outcome(y, sample_weight=sample_weight), causes)
    by_cause = np.minimum(incidence, 1.0) if incidence.shape[1] > 1 else None  # rounding may exceed one
    return Tabulated(times, survival, by_cause, half_width=half_width)


def incidence_steps(outcome: Outcome, causes: int | None = None) -> tuple[Floats, Floats, Floats]:
    """Return the times of events, and by Aalen-Johansen F_k, (m, K), and S, (m,), from each time on."""
    counts = count(outcome).at_jumps()
    hazards = shares(cause_events(outcome, counts.times, causes), counts.at_risk[:, None])
    total = hazards.sum(axis=1)
    hazards /= np.maximum(total, 1.0)[:, None]
    kept = np.cumprod(np.where(total < 1.0 - 1e-12, 1.0 - total, 0.0), dtype=np.float64)
    incidence = np.cumsum(np.append(1.0, kept[:-1])[:, None] * hazards, axis=0)
    return counts.times, incidence, kept


def cause_events(outcome: Outcome, times: Floats, causes: int | None = None) -> Floats:
    """Return the weights of the events of each cause at the times of all events, shape (m, K)."""
    cause = outcome.event.astype(np.int64) if outcome.cause is None else outcome.cause
    n_causes = outcome.n_causes if causes is None else causes
    if n_causes < outcome.n_causes:
        raise ValueError(f"causes is {causes}, and the rows have cause {outcome.n_causes}; give the number of causes.")
    made = np.zeros((len(times), n_causes))
    seen = (cause > 0) & (outcome.weights > 0)  # the times of rows of weight zero are not among the times
    np.add.at(made, (np.searchsorted(times, outcome.time[seen]), cause[seen] - 1), outcome.weights[seen])
    return made


# ------------------------------------------------------------------ smooth curves that hold no row, for model files


def coarse_kaplan_meier(y: Any) -> Tabulated:
    r"""Kaplan-Meier at the edges of 2 ∛events cells (200 at most), with a constant hazard in each cell.

    Its density is positive everywhere, so that every other row has a positive likelihood, and its cells are few enough
    for the density not to be noise. The edges lie between event times, with about equally many events in each cell, so
    that no time of a row is kept. In the last cell, which is open, the hazard is the number of events divided by the
    time at risk.

    With delayed entry, the hazard of every cell is the number of events divided by the time at risk, since Kaplan-Meier
    may fall to zero early; before the first entry, the hazard is that of half an event among all rows. With
    interval-censored rows, the curve at the edges is Turnbull's, with its mass spread evenly within each interval.

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
    outcome = outcome.on_time_scale(unit=unit)
    weight, had = outcome.weights, outcome.had_event
    if not weight[had].any():
        return Tabulated([1.0], [1.0], between="hazard")
    intervals = turnbull_intervals(outcome) if outcome.in_interval.any() else None
    n_events = float(weight[had].sum())
    edges = _edges(*_event_masses(outcome, intervals, n_events), n_events)
    time = outcome.at_midpoints().time
    start = float(edges[-1]) if len(edges) else 0.0
    # the mean time to the event in the last cell
    passed = weight * np.maximum(time - np.maximum(outcome.entries, start), 0.0)
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
    """Return `coarse_kaplan_meier` of events of any cause, with the events of each cell divided among the causes.

    The shares are those of the Aalen-Johansen estimate over the cell. Half an event, divided in the proportions of all
    events, is added, so that no cause has probability zero; interval-censored events count at their midpoint.
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
    """Return the distinct times of events and the number of events at each, for intervals by Turnbull's estimate."""
    if intervals is None:
        times, index = np.unique(outcome.time[outcome.event], return_inverse=True)
        return times, np.bincount(index, weights=outcome.weights[outcome.event]).astype(np.float64)
    seen = np.isfinite(intervals.upper)
    mass = intervals.mass[seen]
    return 0.5 * (intervals.lower + intervals.upper)[seen], mass * (n_events / float(mass.sum()))


def _edges(times: Floats, mass: Floats, n_events: float) -> Floats:
    """Return edges between the times, with about equally many events between each two."""
    n_cells = max(1, min(_MOST_CELLS, int(2 * np.cbrt(n_events))))
    wanted = np.floor(np.arange(1, n_cells) * n_events / n_cells)
    places = np.searchsorted(np.cumsum(mass), wanted)
    places = np.unique(places[places < len(times) - 1])
    return np.unique(0.5 * (times[places] + times[places + 1]))


def _by_exposure(outcome: Outcome, edges: Floats) -> tuple[Floats, Floats]:
    """Return edges, one of them before the first event, and S at zero and at the edges, from events by time at risk."""
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
