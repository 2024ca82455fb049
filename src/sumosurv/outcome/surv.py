"""How any user input becomes an outcome: `Surv` builds outcomes, `check_outcome` reads every accepted form."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.outcome.checks import (
    as_numbers,
    check_entry,
    check_event,
    check_groups,
    check_interval_event,
    check_length,
    check_limits,
    check_time,
    check_weight,
    names_in_words,
    without_mask,
)
from sumosurv.outcome.record import OUTCOME_DTYPE, Outcome, SurvArray
from sumosurv.warn import warn_user

_EVENT_NAMES = {"event", "events", "death", "dead", "died", "status", "observed", "e", "d", "delta", "cause"}
_TIME_NAMES = {"time", "times", "duration", "durations", "futime", "t", "z", "stop", "tstop", "end", "exit"}
_ENTRY_NAMES = {"entry", "start", "tstart", "begin", "enter", "truncation"}
_LIMIT_NAMES = {"lower": {"lower", "left", "lower_bound"}, "upper": {"upper", "right", "upper_bound"}}

_THREE = (
    " Rows at risk from a start to a stop: Surv.from_arrays(event, time=stop, entry=start), or name the columns "
    "entry, time and event."
)


class Surv:
    """Build outcomes as structured arrays; with only events and times, in the format of scikit-survival.

    Every function with an argument ``y`` accepts these arrays, a two-column DataFrame or a ``(time, event)`` pair.

    Examples
    --------
    >>> Surv.from_arrays(event=[1, 0], time=[2.5, 4.0])
    array([( True, 2.5), (False, 4. )], dtype=[('event', '?'), ('time', '<f8')])

    Two competing causes with left truncation:

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
            True for an event, False for a right-censored row. With competing risks: the number of the cause, 0 for a
            right-censored row.
        time : array-like of float
            Time of the event or of censoring; zero is allowed.
        entry : array-like of float, optional
            Entry times (left truncation), on the same time scale: a row is at risk in (entry, time].
        causes : int, optional
            The number of causes K. By default the largest cause that occurs.
        event_name, time_name, entry_name : str
            Names of the columns in error messages.
        """
        times = check_time(time, time_name)
        events = check_event(event, event_name, causes)
        check_length(events, event_name, times, time_name)
        entries = None if entry is None else check_entry(entry, entry_name, times, time_name)
        cause = None if events.dtype == bool else events.astype(np.int64)
        return Outcome(events > 0, times, entries, cause=cause).array()

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
        """Outcome with interval-censored events, as ``type = "interval2"`` in R.

        Parameters
        ----------
        lower, upper : array-like of float
            The event lies in (lower, upper]. Equal limits: it was observed exactly at that time. ``upper`` infinite:
            right-censored at ``lower``. ``lower`` zero: left-censored at ``upper``.
        event : array-like of causes 0, 1, ..., K, optional
            With competing risks: the cause of the event, 0 if ``upper`` is infinite.
        entry : array-like of float, optional
            Entry times (left truncation), at or before ``lower``.
        lower_name, upper_name, event_name, entry_name : str
            Names of the columns in error messages.

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
            raise ValueError("Pass time and event, or lower and upper (with event only for competing risks).")
        if not between and (event is None or time is None):
            raise ValueError("Pass at least two columns: event and time, or lower and upper.")
        given = {"event": event, "time": time, "entry": entry, "lower": lower, "upper": upper}
        given = {role: name for role, name in given.items() if name is not None}
        for name in given.values():
            if name not in data.columns:
                raise ValueError(f"There is no column {name!r}; the columns are {names_in_words(data.columns)}.")
            if not isinstance(data[name], pd.Series):
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
        table = np.asarray(without_mask(pairs), dtype=object)
        if table.ndim != 2 or table.shape[1] != 2:
            raise ValueError(f"Expected one (time, event) pair per subject; got an array of shape {table.shape}.")
        return Surv.from_arrays(table[:, 1], table[:, 0])


def check_outcome(y: Any, n_rows: int | None = None, *, sample_weight: Any = None, groups: Any = None) -> Outcome:
    """Convert any accepted form of ``y`` to an `Outcome`; raise an error if it is invalid.

    Parameters
    ----------
    y : Outcome, structured array, DataFrame, ``(time, event)`` pair, array (n, 2) or sequence of pairs
        With two columns or fields, the event is the boolean one; otherwise it is recognised by its name, or because it
        contains only zeros and ones. ``(entry, time, event)`` and ``(lower, upper)`` are recognised by their names. In
        a one-dimensional array of times, every time is taken as an event, with a warning.
    n_rows : int, optional
        The number of rows of the covariates; the outcome must have the same number.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.
    groups : array of shape (n,), optional
        The subject that each row belongs to.

    Returns
    -------
    Outcome
    """
    outcome = y if isinstance(y, Outcome) else _record(_array_from_any(y))
    if n_rows is not None and len(outcome) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows and y has "
            f"{len(outcome)}; give one outcome per row of X."
        )
    if sample_weight is not None:
        outcome = replace(outcome, weight=check_weight(sample_weight, len(outcome)))
    if groups is not None:
        outcome = replace(outcome, group=check_groups(groups, len(outcome)))
    return outcome


def _record(made: SurvArray) -> Outcome:
    """The record of a checked structured array; fields that say nothing are left out."""
    names = made.dtype.names or ()
    entry = made["entry"].copy() if "entry" in names and made["entry"].any() else None
    cause = made["event"].copy() if "event" in names and made["event"].dtype != bool else None
    if "lower" not in names:
        event = made["event"].copy() if cause is None else cause > 0
        return Outcome(event, made["time"].copy(), entry, cause=cause)
    time, upper = made["lower"].copy(), made["upper"].copy()
    outcome = Outcome(time == upper, time, entry, upper, cause)
    return outcome if outcome.in_interval.any() else replace(outcome, upper=None)


def _array_from_any(y: Any) -> SurvArray:
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None; make one with Surv.from_arrays(event, time)."
        )
    y = as_pandas(y)
    if isinstance(y, pd.DataFrame):
        return _array_from_frame(y)
    if isinstance(y, np.ndarray) and y.dtype.names is not None:
        return _array_from_structured(y)
    if isinstance(y, tuple) and len(y) == 2 and all(np.ndim(part) == 1 for part in y):
        return Surv.from_arrays(event=y[1], time=y[0])
    if isinstance(y, list) and len(y) == 2 and all(_is_column(part) for part in y):
        return Surv.from_arrays(event=y[1], time=y[0])
    table = without_mask(y)
    if table.ndim == 2 and table.shape[1] == 2:
        return Surv.from_pairs(table)
    if table.ndim == 1 or (table.ndim == 2 and table.shape[1] == 1):
        if table.ndim == 2:
            from sklearn.exceptions import DataConversionWarning

            warn_user(
                "A column-vector y was passed when a 1d array was expected; it is flattened.", DataConversionWarning
            )
        times = check_time(table.ravel(), "y")
        warn_user(
            "y contains only times, so all rows are treated as events. Pass Surv.from_arrays(event, time) to mark "
            "censored rows."
        )
        return Surv.from_arrays(np.ones(len(times), dtype=bool), times)
    raise ValueError(
        f"Cannot read an outcome from {type(y).__name__} of shape {table.shape}; pass Surv.from_arrays(event, time), "
        f"a two-column DataFrame or a (time, event) pair.{_THREE if table.ndim == 2 and table.shape[1] == 3 else ''}"
    )


def as_pandas(table: Any) -> Any:
    """A table of another library (polars, pyarrow) as a DataFrame; masked values as missing; anything else as it is.

    In columns of nullable floats, NaN becomes missing too: pandas does not count it as such (0/0 of ``Float64``).
    """
    if isinstance(table, np.ma.MaskedArray) and table.dtype.names is None:
        return without_mask(table)
    if isinstance(table, pd.DataFrame):
        nullable = [j for j, kind in enumerate(table.dtypes) if not isinstance(kind, np.dtype) and kind.kind == "f"]
        hidden = [j for j in nullable if (table.iloc[:, j] != table.iloc[:, j]).fillna(False).any()]
        if not hidden:
            return table
        made = table.copy(deep=False)
        for j in hidden:
            made.isetitem(j, table.iloc[:, j].to_numpy(dtype=np.float64, na_value=np.nan))
        return made
    if isinstance(table, (pd.Series, np.ndarray)):
        return table
    if hasattr(table, "collect") and hasattr(table, "collect_schema"):
        raise TypeError(f"A {type(table).__name__} is not evaluated yet; pass the result of its collect().")
    names = getattr(table, "columns", None)
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return pd.DataFrame({name: np.asarray(table[name]) for name in names})
    if hasattr(table, "to_pandas") and hasattr(table, "__dataframe__"):
        return table.to_pandas()
    return table


def _is_column(part: Any) -> bool:
    return isinstance(part, (np.ndarray, pd.Series)) and part.ndim == 1


def _array_from_frame(frame: pd.DataFrame) -> SurvArray:
    roles = _roles(frame.columns)
    if roles is not None:
        return Surv.from_columns(frame, **{role: frame.columns[i] for role, i in roles.items()})
    if frame.shape[1] != 2:
        raise ValueError(
            f"An outcome DataFrame must have two columns, time and event; got {frame.shape[1]} "
            f"({', '.join(map(repr, frame.columns))}).{_THREE if frame.shape[1] == 3 else ''}"
        )
    event = _which_is_event(list(frame.columns), [frame.iloc[:, 0], frame.iloc[:, 1]], otherwise=1)
    return Surv.from_columns(frame, event=frame.columns[event], time=frame.columns[1 - event])


def _array_from_structured(y: SurvArray) -> SurvArray:
    names = y.dtype.names or ()
    roles = _roles(names) if y.ndim == 1 else None
    if roles is None and (y.ndim != 1 or len(names) != 2):
        raise ValueError(
            "A structured outcome must be one-dimensional with fields event and time, or be made by "
            f"Surv; got fields {names}, shape {y.shape}."
        )
    if roles is None:
        event = _which_is_event(names, [y[name] for name in names], otherwise=0)
        roles = {"event": event, "time": 1 - event}
    columns: dict[str, Any] = {role: y[names[i]] for role, i in roles.items()}
    told: dict[str, Any] = {f"{role}_name": names[i] for role, i in roles.items()}
    if "lower" in columns:
        return Surv.interval(**columns, **told)
    # of whole numbers, as Surv makes them where causes compete: a part of the rows need not have them all
    whole = columns["event"].dtype == np.int64 and columns["event"].min(initial=0) >= 0
    told_by_surv = names[:2] == OUTCOME_DTYPE.names and not isinstance(y, np.recarray)
    as_in_r = not told_by_surv and _is_among(columns["event"], (1, 2))  # all events, or 1 for the censored rows
    causes = int(columns["event"].max(initial=1)) if whole and not as_in_r else None
    return Surv.from_arrays(**columns, **told, causes=causes)


def _roles(names: Sequence[Hashable]) -> dict[str, int] | None:
    """Which column is what, where names tell that there are limits or an entry; None otherwise."""
    words = [str(name).lower() for name in names]
    known = {"event": _EVENT_NAMES, "time": _TIME_NAMES, "entry": _ENTRY_NAMES, **_LIMIT_NAMES}
    places = [[role for role, meant in known.items() if word in meant] for word in words]
    roles = {found[0]: i for i, found in enumerate(places) if found}
    if len(roles) < len(words) or not ({"lower", "upper"} <= set(roles) or "entry" in roles):
        return None
    if {"lower", "upper"} <= set(roles) and "time" in roles:
        raise ValueError(
            "An outcome must have either a time, or a lower and an upper limit; got the columns "
            f"{', '.join(map(repr, names))}. Drop either the time or the limits (an exact time has equal "
            "limits)."
        )
    return roles if {"lower", "upper"} <= set(roles) or {"event", "time"} <= set(roles) else None


def _which_is_event(names: Sequence[Hashable], columns: Sequence[Any], otherwise: int) -> int:
    """Which of two columns is the event: the boolean one, else by names and values, else as that form has it."""
    words = [str(name).lower() for name in names]
    event_names, time_names = [word in _EVENT_NAMES for word in words], [word in _TIME_NAMES for word in words]
    of_zeros_and_ones = [_is_among(column, (0, 1)) for column in columns]
    for told in (
        [pd.api.types.is_bool_dtype(column.dtype) for column in columns],
        [event_names[i] and time_names[1 - i] for i in (0, 1)],
        [of_zeros_and_ones[i] and not of_zeros_and_ones[1 - i] and not time_names[i] for i in (0, 1)],
        event_names,
        time_names[::-1],
        [_is_among(column, (1, 2)) for column in columns],
    ):
        if told[0] != told[1]:
            return told.index(True)
    if all(of_zeros_and_ones):
        raise ValueError(
            f"Both {names[0]!r} and {names[1]!r} hold zeros and ones only, so the event column cannot be "
            "identified; use Surv.from_arrays(event, time) or Surv.from_columns(frame, event=..., "
            "time=...)."
        )
    return otherwise


def _is_among(column: Any, wanted: tuple[int, int]) -> bool:
    """Whether all values that are not missing are one of two numbers."""
    numbers = as_numbers(np.asarray(column))
    return numbers is not None and bool(np.isin(numbers[~np.isnan(numbers)], wanted).all())
