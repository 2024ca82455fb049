"""Inputs that scores share: checked outcomes, time grids, risk groups, and curves in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import CauseTime, SurvivalDistribution, Tabulated
from sumosurv.distributions.causes import log_event_free
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.outcome.checks import check_weight

Array = npt.NDArray[np.float64]

_KEPT = 1 << 25  # largest number of subjects × times that is remembered
_CELLS = 1 << 17  # subjects × times held at once: a block stays in the processor's cache


def check_subjects(
    distribution: Any, y: Any, sample_weight: Any = None, *, entry: bool = False, intervals: bool = False
) -> Outcome:
    """Return the outcome, after checking that the distribution has as many subjects.

    Left truncation and interval censoring raise ValueError unless the score supports them.
    """
    if not isinstance(distribution, SurvivalDistribution):
        raise TypeError(
            f"The first argument must be a SurvivalDistribution; got {type(distribution).__name__}. "
            "Pass model.predict_distribution(X), or Tabulated(times, survival) for a table of probabilities."
        )
    outcome = check_rows(y, sample_weight, entry=entry, intervals=intervals)
    if len(distribution) != len(outcome):
        raise ValueError(
            f"The distribution has {len(distribution)} subjects and y has {len(outcome)} rows; give one curve per row "
            "(curve.repeat(n) uses a single curve for n rows)."
        )
    return outcome


def check_rows(y: Any, sample_weight: Any = None, *, entry: bool = False, intervals: bool = False) -> Outcome:
    """Return the outcome; raise ValueError if the score does not support it."""
    outcome = check_outcome(y, sample_weight=sample_weight)
    if outcome.entry is not None and not entry:
        raise ValueError(
            "This score does not support left truncation, and some rows have delayed entry. Use evaluate, or score "
            "the time since entry: distribution.remaining(entry) and time - entry."
        )
    if outcome.upper is not None and not intervals:
        raise ValueError(
            "This score needs exact event times, and some events are interval-censored. Use a score that supports "
            "interval censoring, such as the log-likelihood."
        )
    return outcome


def check_risks(given: Any, n_rows: int, n_times: int | None = None) -> Array:
    """Return risk scores of shape (n,), or also (n, m); raise ValueError if the shape is wrong or some are missing."""
    risk = np.asarray(given, dtype=np.float64)
    if risk.shape not in ((n_rows,), (n_rows, n_times)):
        by_time = "" if n_times is None else f", or one for each of {n_times} times"
        raise ValueError(f"Pass one risk score per row of y ({n_rows}){by_time}; got shape {risk.shape}.")
    missing = np.isnan(risk).reshape(n_rows, -1).any(axis=1)
    if missing.any():
        raise ValueError(f"Risk scores are missing (NaN) in {int(missing.sum())} rows.")
    return risk


def times_weight(values: Array, sample_weight: Any) -> Array:
    """Multiply values of shape (n, ...) by weights scaled to a mean of one, so that their mean is the weighted mean."""
    if sample_weight is None:
        return values
    weight = check_weight(sample_weight, len(values))
    if weight is None:
        return values
    scaled = (weight / weight.mean()).reshape(-1, *[1] * (values.ndim - 1))
    with np.errstate(invalid="ignore"):  # an infinite score of a row with weight zero does not count
        return np.where(scaled > 0, values * scaled, 0.0)


def of_cause(
    distribution: SurvivalDistribution, outcome: Outcome, cause: int | None
) -> tuple[SurvivalDistribution, npt.NDArray[np.bool_]]:
    """Return the time to an event of one cause, infinite if another cause comes first, and which rows had another.

    Without a cause, return the distribution as it is: an event is an event of any cause.
    """
    if cause is None:
        return distribution, of_other_causes(outcome, None)
    if distribution.n_causes == 1 and outcome.n_causes > 1:
        raise ValueError(
            f"cause={cause} needs a distribution with {outcome.n_causes} causes, as in y, and it has one; "
            "fit the model to rows with causes."
        )
    curves = distribution.cause(cause)
    if outcome.cause is None and distribution.n_causes > 1:
        raise ValueError(
            f"The distribution has {distribution.n_causes} causes, but y does not distinguish them; give the number of "
            "the cause, 0 for censored rows: Surv.from_arrays(event, time)."
        )
    return curves, of_other_causes(outcome, cause)


def of_other_causes(outcome: Outcome, cause: int | None) -> npt.NDArray[np.bool_]:
    """Return which rows had an event of another cause; none if causes are not distinguished."""
    if cause is None or outcome.cause is None:
        return np.zeros(len(outcome), dtype=np.bool_)
    return np.asarray(outcome.event & (outcome.cause != cause))


def check_times(times: Any) -> Array:
    """Return times as a strictly increasing array of numbers, zero or more."""
    grid = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if grid.ndim != 1 or len(grid) == 0:
        raise ValueError(f"times must be a number or a one-dimensional array; got shape {grid.shape}.")
    if not np.isfinite(grid).all() or (grid < 0).any() or (np.diff(grid) <= 0).any():
        raise ValueError(
            "times must be finite, zero or more and strictly increasing; sort them and drop repeats (np.unique)."
        )
    return grid


def time_grid(times: Any, time: Array, n_times: int = 100) -> Array:
    """Return the grid of an integrated score: an array as it is, a range (low, high) or None filled evenly.

    None is `follow_up`.
    """
    if times is None:
        low, high = follow_up(time)
    elif isinstance(times, tuple) and len(times) == 2:
        low, high = (float(end) for end in times)
    else:
        grid = check_times(times)
        if len(grid) < 2:
            raise ValueError("An integral over time needs a grid of at least two times, or a range (low, high).")
        return grid
    if n_times < 2:
        raise ValueError(f"n_times must be 2 or more; got {n_times}.")
    if not high > low:
        raise ValueError(
            f"The time range is empty ({low:g} to {high:g}); pass times=(low, high) with low < high, or a grid."
        )
    return check_times(np.linspace(low, high, n_times))


def follow_up(time: Array) -> tuple[float, float]:
    """Return the default range of the integrated scores: from the smallest positive to just before the largest time.

    Zero is left out because every curve is one there, so that the logarithmic score of an event at time zero would be
    infinite. The largest time is left out because nobody is followed beyond it: only events would be scored there.
    """
    return float(time.min(initial=np.inf, where=time > 0)), float(np.nextafter(time.max(), 0.0))


def median_time(outcome: Outcome) -> float:
    """Return the median of the times; with whole-number weights, the median of the repeated rows."""
    if outcome.weight is None:
        return float(np.median(outcome.time))
    order = np.argsort(outcome.time, kind="stable")
    order = order[outcome.weight[order] > 0]
    passed = np.cumsum(outcome.weight[order]) / outcome.total
    middle = np.searchsorted(passed, [0.5 - 1e-12, 0.5 + 1e-12])  # two times if one ends at half of the weight
    return float(outcome.time[order[middle]].mean())


def check_time(outcome: Outcome, time: float | None) -> float:
    """Return one time, zero or more; the median of the times in the outcome by default."""
    at = median_time(outcome) if time is None else float(time)
    if not (np.isfinite(at) and at >= 0):
        raise ValueError(f"time must be a number, zero or more; got {time}.")
    return at


def risk_groups(prediction: Array, outcome: Outcome, groups: int) -> list[npt.NDArray[np.intp]]:
    """Return rows in groups of equal size by their predictions, each in the order of time, events first among ties.

    Groups are formed by middle ranks, so that equal predictions are never separated and the order of the rows does not
    matter. Rows of weight zero are in no group.
    """
    if groups < 1:
        raise ValueError(f"groups must be 1 or more; got {groups}.")
    place = np.unique(prediction, return_inverse=True)[1]
    total = np.bincount(place, weights=outcome.weights)
    middle = ((np.cumsum(total) - 0.5 * total) / outcome.total)[place]
    group = np.floor(middle * groups + 1e-9)
    order = outcome.time_order
    order = order[outcome.weights[order] > 0]
    return [order[group[order] == g] for g in np.unique(group[order])]


def step_table(distribution: SurvivalDistribution) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Return (knots, table) of step curves as NumPy arrays, without a copy on the CPU; None for other curves.

    Return None also for proportional hazards whose table is not stored, because it may be too large to hold.
    """
    if isinstance(distribution, Tabulated) and not distribution.is_stored:
        return None
    with torch.no_grad():
        known = distribution.step_table()
    return None if known is None else (known[0].detach().cpu().numpy(), known[1].detach().cpu().numpy())


def step_columns(knots: npt.NDArray[Any], times: Array) -> npt.NDArray[np.intp]:
    """Return the column of a step table for each time; times are compared in the precision of the knots."""
    return np.searchsorted(knots, times.astype(knots.dtype), side="right") - 1


def curve_blocks(
    distribution: SurvivalDistribution, times: Array, *, log: bool = False, memory: CurveMemory | None = None
) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
    """Yield (rows, S or log S on the grid) for blocks of subjects, so that no (n, m) array is needed."""
    n, rows = len(distribution), max(1, _CELLS // len(times))
    known, kept = step_table(distribution), None
    if known is None and memory is not None and n * len(times) <= _KEPT:
        kept = memory.log_survival(distribution, times)
    for start in range(0, n, rows):
        part = slice(start, min(start + rows, n))
        if known is not None:
            block = known[1][part].take(step_columns(known[0], times), axis=1)
            with np.errstate(divide="ignore"):
                made = np.log(block).astype(np.float64) if log else block
            yield part, made
        elif kept is not None:
            yield part, kept[part].copy() if log else np.exp(kept[part])
        else:
            with torch.no_grad():
                some = distribution if part == slice(0, n) else distribution[part]
                yield part, some.log_survival(times) if log else some.survival(times)


def curve_table(
    distribution: SurvivalDistribution, times: Array, *, log: bool = False, dtype: npt.DTypeLike = np.float64
) -> npt.NDArray[Any]:
    """Return S or log S at each time, shape (n, m)."""
    table = np.empty((len(distribution), len(times)), dtype=dtype)
    for rows, block in curve_blocks(distribution, times, log=log):
        table[rows] = block
    return table


def risk_at(distribution: SurvivalDistribution, time: float) -> Array:
    """Return F(t|x) of each subject at one time."""
    return np.asarray(-np.expm1(curve_table(distribution, np.array([time]), log=True)[:, 0]))


class CurveMemory:
    """Evaluated curves on their grids, up to 2²⁵ subjects × times, which later scores often need again."""

    def __init__(self) -> None:
        self._tables: dict[tuple[SurvivalDistribution, bytes], list[Array]] = {}

    def log_survival(self, distribution: SurvivalDistribution, times: Array) -> Array:
        """Return log S at the times, (n, m); the curves of all causes are evaluated together."""
        base, place = distribution, 0
        if isinstance(distribution, CauseTime):
            base, place = distribution.base, distribution.number - 1
        key = base, times.tobytes()
        if key not in self._tables:
            kept = sum(table.size for tables in self._tables.values() for table in tables)
            if kept + len(base) * len(times) > _KEPT:
                self._tables.clear()
            if base is distribution:
                self._tables[key] = [curve_table(base, times, log=True)]
            else:
                self._tables[key] = _cause_tables(base, times)
        return self._tables[key][place]


def _cause_tables(distribution: SurvivalDistribution, times: Array) -> list[Array]:
    """Return log(1 - F_k) of each cause at each time, shape (n, m)."""
    n, rows = len(distribution), max(1, _CELLS // len(times))
    tables = np.empty((distribution.n_causes, n, len(times)))
    for start in range(0, n, rows):
        part = slice(start, min(start + rows, n))
        with torch.no_grad():
            some = distribution if part == slice(0, n) else distribution[part]
            tables[:, part] = np.moveaxis(log_event_free(some, times), -1, 0)
    return list(tables)
