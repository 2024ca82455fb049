"""What was observed: the record that every part of the library reads, and the arrays that users make."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["OUTCOME_DTYPE", "Outcome", "Surv", "SurvArray", "as_pandas", "check_outcome", "each_field"]

OUTCOME_DTYPE = np.dtype([("event", np.bool_), ("time", np.float64)])

SurvArray = npt.NDArray[np.void]  # of dtype OUTCOME_DTYPE: scikit-survival's form

_EVENT_NAMES = {"event", "events", "death", "dead", "died", "status", "observed", "e", "d", "delta"}
_TIME_NAMES = {"time", "times", "duration", "durations", "futime", "t", "z", "y"}

_ENTRY = (
    " Intervals (start, stop] with an event are not supported yet; give one row per subject, with its time since its "
    "own start."
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was observed of n subjects: one array per field, checked by `check_outcome`.

    Everything inside the library reads outcomes from this record. A field that is added here travels with the rows
    through `__getitem__`, `on_clock` and `join`, also where it is None; functions that take an outcome keep their
    signatures.

    Parameters
    ----------
    event : bool array of shape (n,)
        Whether the event was seen; otherwise the row is right-censored.
    time : float64 array of shape (n,)
        Time of the event or of censoring.
    """

    event: npt.NDArray[np.bool_]
    time: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, rows: Any) -> Self:
        """Some of the rows: a slice, row numbers or a mask."""
        return type(self)(**each_field(lambda values: values[rows], self))

    def on_clock(self, origin: float = 0.0, unit: float = 1.0) -> Self:
        """The same rows with times counted from another origin, in another unit: (time - origin) / unit."""
        return replace(self, time=(self.time - origin) / unit)

    def array(self) -> SurvArray:
        """As the structured array that `Surv` makes."""
        made = np.empty(len(self), dtype=OUTCOME_DTYPE)
        made["event"], made["time"] = self.event, self.time
        return made

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The rows of several outcomes, one below the other; a field is given in all of them or in none."""
        return cls(**each_field(lambda *values: np.concatenate(values), *parts))


def each_field(function: Callable[..., Any], *records: Any) -> dict[str, Any]:
    """By name, a function of what each field holds in some records of one kind; None where it is None in all."""
    made = {}
    for field in fields(records[0]):
        values = [getattr(record, field.name) for record in records]
        absent = [value is None for value in values]
        if any(absent) and not all(absent):
            raise ValueError(f"{field.name!r} is given for some of the rows; give it for all of them or for none.")
        made[field.name] = None if all(absent) else function(*values)
    return made


class Surv:
    """Makes outcomes: structured arrays of ``(event, time)`` as scikit-survival uses them.

    Every function of the library that takes ``y`` accepts what these return, and also a
    two-column DataFrame or a ``(time, event)`` pair.

    Examples
    --------
    >>> Surv.from_arrays(event=[1, 0], time=[2.5, 4.0])
    array([( True, 2.5), (False, 4. )], dtype=[('event', '?'), ('time', '<f8')])
    """

    @staticmethod
    def from_arrays(event: Any, time: Any, *, event_name: str = "event", time_name: str = "time") -> SurvArray:
        """Outcome from an array of event indicators and one of times.

        Parameters
        ----------
        event : array-like of bool or 0/1
            True where the event was seen, False where the row is right-censored.
        time : array-like of float
            Time of the event or of censoring; zero is allowed.
        event_name, time_name : str
            How error messages call the two columns.
        """
        times = _check_time(time, time_name)
        events = _check_event(event, event_name)
        if len(times) != len(events):
            raise ValueError(
                f"{time_name!r} has {len(times)} rows and {event_name!r} has {len(events)}; "
                "give one time and one event indicator per subject."
            )
        return Outcome(events, times).array()

    @staticmethod
    def from_columns(data: pd.DataFrame, event: Hashable, time: Hashable) -> SurvArray:
        """Outcome from two named columns of a DataFrame.

        Examples
        --------
        >>> frame = pd.DataFrame({"months": [2.5, 4.0], "relapse": [1, 0]})
        >>> Surv.from_columns(frame, event="relapse", time="months")["time"]
        array([2.5, 4. ])
        """
        for name in (event, time):
            if name not in data.columns:
                raise ValueError(f"There is no column {name!r}; the columns are {', '.join(map(repr, data.columns))}.")
            if data.columns.tolist().count(name) > 1:
                raise ValueError(f"There is more than one column named {name!r}; rename or remove all but one.")
        return Surv.from_arrays(data[event], data[time], event_name=str(event), time_name=str(time))

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


def check_outcome(y: Any, n_rows: int | None = None) -> Outcome:
    """Turn any accepted form of ``y`` into an `Outcome`, or say what is wrong with it.

    Parameters
    ----------
    y : Outcome, structured array, DataFrame of two columns, ``(time, event)`` pair, array (n, 2) or sequence of pairs
        Of the two columns or fields, the boolean one is the event; else names tell, or that it holds zeros and ones.
        A plain one-dimensional array of times is taken as "every event was seen", with a warning.
    n_rows : int, optional
        The number of rows of the covariates, which must agree.

    Returns
    -------
    Outcome
    """
    if isinstance(y, Outcome):
        outcome = y
    else:
        made = _array_from_any(y)
        outcome = Outcome(made["event"].copy(), made["time"].copy())
    if n_rows is not None and len(outcome) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows and y has "
            f"{len(outcome)}; give one outcome per row of X."
        )
    return outcome


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
    table = np.asarray(y)
    if table.ndim == 2 and table.shape[1] == 2:
        return Surv.from_pairs(table)
    if table.ndim == 1 or (table.ndim == 2 and table.shape[1] == 1):
        if table.ndim == 2:
            from sklearn.exceptions import DataConversionWarning

            warnings.warn(
                "A column-vector y was passed when a 1d array was expected; it is flattened.",
                DataConversionWarning,
                stacklevel=4,
            )
        times = _check_time(table.ravel(), "y")
        warnings.warn(
            "y holds times only: every event is taken as seen (no censoring). "
            "Pass Surv.from_arrays(event, time) to say which were censored.",
            UserWarning,
            stacklevel=4,
        )
        return Surv.from_arrays(np.ones(len(times), dtype=bool), times)
    raise ValueError(
        f"Cannot read an outcome from {type(y).__name__} of shape {table.shape}; pass Surv.from_arrays(event, time), "
        f"a two-column DataFrame or a (time, event) pair.{_ENTRY if table.ndim == 2 and table.shape[1] == 3 else ''}"
    )


def as_pandas(table: Any) -> Any:
    """A table of another library (polars, pyarrow) as a DataFrame; anything else as it is."""
    if isinstance(table, (pd.DataFrame, pd.Series, np.ndarray)):
        return table
    names = getattr(table, "columns", None)
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return pd.DataFrame({name: np.asarray(table[name]) for name in names})
    if hasattr(table, "to_pandas") and hasattr(table, "__dataframe__"):
        return table.to_pandas()
    return table


def _is_column(part: Any) -> bool:
    return isinstance(part, (np.ndarray, pd.Series)) and part.ndim == 1


def _array_from_frame(frame: pd.DataFrame) -> SurvArray:
    if frame.shape[1] != 2:
        raise ValueError(
            f"An outcome DataFrame has two columns, time and event; got {frame.shape[1]} "
            f"({', '.join(map(repr, frame.columns))}).{_ENTRY if frame.shape[1] == 3 else ''}"
        )
    event = _which_is_event(list(frame.columns), [frame.iloc[:, 0], frame.iloc[:, 1]], otherwise=1)
    return Surv.from_columns(frame, event=frame.columns[event], time=frame.columns[1 - event])


def _array_from_structured(y: SurvArray) -> SurvArray:
    names = y.dtype.names
    if y.ndim != 1 or names is None or len(names) != 2:
        raise ValueError(
            "A structured outcome is one-dimensional with two fields, event and time; "
            f"got fields {names}, shape {y.shape}."
        )
    event = _which_is_event(names, [y[name] for name in names], otherwise=0)
    return Surv.from_arrays(y[names[event]], y[names[1 - event]], event_name=names[event], time_name=names[1 - event])


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
            f"Both {names[0]!r} and {names[1]!r} hold zeros and ones only, so that neither values nor names tell which "
            "is the event; say it: Surv.from_arrays(event, time) or Surv.from_columns(frame, event=..., time=...)."
        )
    return otherwise


def _is_among(column: Any, wanted: tuple[int, int]) -> bool:
    """Whether all values that are not missing are one of two numbers."""
    numbers = _as_numbers(np.asarray(column))
    return numbers is not None and bool(np.isin(numbers[~np.isnan(numbers)], wanted).all())


def _check_time(time: Any, name: str) -> npt.NDArray[np.float64]:
    values = np.asarray(time)
    if values.ndim != 1:
        raise ValueError(f"{name!r} must be one-dimensional, one time per subject; got shape {values.shape}.")
    if np.iscomplexobj(values):
        raise ValueError(f"Complex data not supported: {name!r} must hold real times.")
    if len(values) == 0:
        raise ValueError(f"{name!r} has no rows; at least one subject is needed.")
    if values.dtype == bool:
        raise ValueError(f"{name!r} holds True and False; it looks as if time and event were swapped.")
    if np.issubdtype(values.dtype, np.datetime64):
        raise ValueError(
            f"{name!r} holds dates; turn them into numbers first, for example days: (end - start).dt.days."
        )
    if np.issubdtype(values.dtype, np.timedelta64):
        raise ValueError(
            f"{name!r} holds durations ({values.dtype}); turn them into numbers first, for example days: "
            f"{name} / np.timedelta64(1, 'D')."
        )
    times = _as_numbers(values)
    if times is None:
        text = np.flatnonzero([not _is_number(value) for value in values])
        raise ValueError(
            f"{name!r} must hold numbers; rows {_rows(text)} do not ({_values(values, text)}). "
            "Convert or drop them first."
        )
    for wrong, what, remedy in (
        (
            np.isnan(times),
            "missing (NaN)",
            "drop these rows: a subject without a follow-up time carries no information",
        ),
        (
            np.isinf(times),
            "infinite (inf)",
            "use the last time at which the subject was known to be event-free, with event = 0",
        ),
        (times < 0, "negative", "measure time from each subject's own start, so that it is zero or more"),
    ):
        if wrong.any():
            bad = np.flatnonzero(wrong)
            raise ValueError(
                f"{name!r} is {what} in {len(bad)} rows, first at {_rows(bad)} ({_values(values, bad)}); {remedy}."
            )
    return times


def _check_event(event: Any, name: str) -> npt.NDArray[np.bool_]:
    values = np.asarray(event)
    if values.ndim != 1:
        raise ValueError(f"{name!r} must be one-dimensional, one indicator per subject; got shape {values.shape}.")
    if values.dtype == bool:
        return values.copy()
    numbers = _as_numbers(values)
    if numbers is None:
        numbers = np.array([float(value) if _is_number(value) else np.nan for value in values])
    wrong = ~((numbers == 0) | (numbers == 1))
    if wrong.any():
        bad = np.flatnonzero(wrong)
        if np.isin(numbers, (1, 2)).all():
            raise ValueError(
                f"{name!r} must be bool or 0/1 (1 = event seen, 0 = censored) and holds 1 and 2, as in R, where 2 is "
                f"the event; pass {name} == 2."
            )
        raise ValueError(
            f"{name!r} must be bool or 0/1 (1 = event seen, 0 = censored); {len(bad)} rows are not, "
            f"first at {_rows(bad)} ({_values(values, bad)}). Recode the column, for example (status == 'dead')."
        )
    return np.asarray(numbers == 1)


def _as_numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """As float64, or None where some value is no number; text is none, whatever it spells."""
    if values.dtype.kind in "USO" and not all(_is_number(value) for value in values):
        return None
    return values.astype(np.float64)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str)


def _rows(bad: Any) -> str:
    return ", ".join(str(int(i)) for i in bad[:5]) + (", ..." if len(bad) > 5 else "")


def _values(values: Any, bad: Any) -> str:
    shown = (values[i] for i in bad[:5])
    return "values " + ", ".join(repr(str(value)) if isinstance(value, str) else str(value) for value in shown)
