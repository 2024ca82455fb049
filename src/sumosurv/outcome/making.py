"""What users make outcomes with."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.outcome.checks import (
    check_entry,
    check_event,
    check_interval_event,
    check_length,
    check_limits,
    check_time,
)
from sumosurv.outcome.record import Outcome, SurvArray

__all__ = ["Surv", "make_outcome"]


class Surv:
    """Makes outcomes: structured arrays, in scikit-survival's form where there are only events and times.

    Every function of the library that takes ``y`` accepts what these return, and also a
    two-column DataFrame or a ``(time, event)`` pair.

    Examples
    --------
    >>> Surv.from_arrays(event=[1, 0], time=[2.5, 4.0])
    array([( True, 2.5), (False, 4. )], dtype=[('event', '?'), ('time', '<f8')])

    Two causes that compete, and rows that were not observed from the beginning:

    >>> y = Surv.from_arrays(event=[2, 0, 1], time=[2.5, 4.0, 3.0], entry=[0.0, 1.5, 1.0])
    >>> y.dtype.names, y["event"]
    (('event', 'time', 'entry'), array([2, 0, 1]))
    """

    @staticmethod
    def from_arrays(
        event: Any,
        time: Any,
        entry: Any = None,
        *,
        causes: int | None = None,
        event_name: str = "event",
        time_name: str = "time",
        entry_name: str = "entry",
    ) -> SurvArray:
        """Outcome from an array of events and one of times.

        Parameters
        ----------
        event : array-like of bool, 0/1 or causes 0, 1, ..., K
            True where the event was seen, False where the row is right-censored. Where causes compete: the number
            of the cause, 0 for a right-censored row.
        time : array-like of float
            Time of the event or of censoring; zero is allowed.
        entry : array-like of float, optional
            When each row came under observation, in the same clock (left truncation): it is at risk in
            (entry, time].
        causes : int, optional
            The number of causes K. Without it, it is the largest that occurs, and more than one only if some row has
            a cause above 1.
        event_name, time_name, entry_name : str
            How error messages call the columns.
        """
        times = check_time(time, time_name)
        events = check_event(event, event_name, causes)
        check_length(events, event_name, times, time_name)
        entries = None if entry is None else check_entry(entry, entry_name, times, time_name)
        return make_outcome(events, times, entries).array()

    @staticmethod
    def interval(
        lower: Any,
        upper: Any,
        event: Any = None,
        entry: Any = None,
        *,
        lower_name: str = "lower",
        upper_name: str = "upper",
        event_name: str = "event",
        entry_name: str = "entry",
    ) -> SurvArray:
        """Outcome whose events lie between two times, as ``type = "interval2"`` in R.

        Parameters
        ----------
        lower, upper : array-like of float
            The event lies in (lower, upper]. Equal: it was seen at that time. ``upper`` infinite: right-censored at
            ``lower``. ``lower`` zero: left-censored at ``upper``.
        event : array-like of causes 0, 1, ..., K, optional
            Where causes compete: the cause of the event, 0 where ``upper`` is infinite.
        entry : array-like of float, optional
            When each row came under observation, at or before ``lower``.
        lower_name, upper_name, event_name, entry_name : str
            How error messages call the columns.

        Examples
        --------
        >>> y = Surv.interval(lower=[1.0, 2.0, 0.0], upper=[3.0, np.inf, 4.0])
        >>> y["upper"]
        array([ 3., inf,  4.])
        """
        low, high = check_limits(lower, upper, lower_name, upper_name)
        causes = None if event is None else check_interval_event(event, event_name, high)
        entries = None
        if entry is not None:
            # an interval may begin at its entry
            entries = check_entry(entry, entry_name, np.where(low < high, np.nextafter(low, np.inf), low), lower_name)
        made = Outcome(low == high, low, upper=high, cause=causes)
        return replace(made, entry=entries).array()

    @staticmethod
    def from_columns(
        data: pd.DataFrame,
        event: Hashable | None = None,
        time: Hashable | None = None,
        *,
        entry: Hashable | None = None,
        lower: Hashable | None = None,
        upper: Hashable | None = None,
        causes: int | None = None,
    ) -> SurvArray:
        """Outcome from named columns of a DataFrame: event and time, or lower and upper, with or without entry.

        Examples
        --------
        >>> frame = pd.DataFrame({"months": [2.5, 4.0], "relapse": [1, 0]})
        >>> Surv.from_columns(frame, event="relapse", time="months")["time"]
        array([2.5, 4. ])
        """
        between = lower is not None or upper is not None
        if between and (time is not None or lower is None or upper is None):
            raise ValueError("Name time and event, or lower and upper (then event only to tell causes apart).")
        if not between and (event is None or time is None):
            raise ValueError("Name two columns at least: event and time, or lower and upper.")
        given = {"event": event, "time": time, "entry": entry, "lower": lower, "upper": upper}
        given = {role: name for role, name in given.items() if name is not None}
        for name in given.values():
            if name not in data.columns:
                raise ValueError(f"There is no column {name!r}; the columns are {', '.join(map(repr, data.columns))}.")
            if data.columns.tolist().count(name) > 1:
                raise ValueError(f"There is more than one column named {name!r}; rename or remove all but one.")
        columns: dict[str, Any] = {role: data[name] for role, name in given.items()}
        names: dict[str, Any] = {f"{role}_name": str(name) for role, name in given.items()}
        return Surv.interval(**columns, **names) if between else Surv.from_arrays(**columns, **names, causes=causes)

    @staticmethod
    def from_pairs(pairs: Any) -> SurvArray:
        """Outcome from one ``(time, event)`` pair per subject.

        Examples
        --------
        >>> Surv.from_pairs([(2.5, True), (4.0, False)])["event"]
        array([ True, False])
        """
        table = np.asarray(pairs, dtype=object)
        if table.ndim != 2 or table.shape[1] != 2:
            raise ValueError(f"Expected one (time, event) pair per subject; got an array of shape {table.shape}.")
        return Surv.from_arrays(table[:, 1], table[:, 0])


def make_outcome(event: Any, time: Any, entry: Any = None) -> Outcome:
    """The record of checked columns; an integer event holds causes."""
    if event.dtype == bool:
        return Outcome(event, time, entry)
    return Outcome(event > 0, time, entry, cause=event)
