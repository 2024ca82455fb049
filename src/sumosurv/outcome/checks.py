"""Checks of single columns of an outcome: what is wrong, in which rows, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome.record import Floats, Whole

_MOST_CAUSES = 100
_NO_FOLLOW_UP = "drop these rows: a subject without a follow-up time carries no information"


def check_time(time: Any, name: str, *, finite: bool = True, if_missing: str = _NO_FOLLOW_UP) -> Floats:
    """A column of times as float64: numbers, zero or more, and finite unless told otherwise."""
    values = without_mask(time)
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
    times = as_numbers(values)
    if times is None:
        text = np.flatnonzero([not _is_number(value) for value in values])
        raise ValueError(
            f"{name!r} must hold numbers; rows {rows_in_words(text)} do not ({values_in_words(values, text)}). "
            "Convert or drop them first."
        )
    for wrong, what, remedy in (
        (
            np.isnan(times),
            "missing (NaN)",
            if_missing,
        ),
        (
            np.isinf(times) & finite,
            "infinite (inf)",
            "use the last time at which the subject was known to be event-free, with event = 0",
        ),
        (times < 0, "negative", "measure time from each subject's own start, so that it is zero or more"),
    ):
        if wrong.any():
            bad = np.flatnonzero(wrong)
            raise ValueError(
                f"{name!r} is {what} in {len(bad)} rows, first at {rows_in_words(bad)} "
                f"({values_in_words(values, bad)}); {remedy}."
            )
    return times


def check_event(event: Any, name: str, causes: int | None = None) -> npt.NDArray[np.bool_] | Whole:
    """Whether each row had the event, as bool; or its cause as an integer, 0 for censored rows."""
    codes = check_event_codes(event, name, causes)
    if codes.dtype == bool or causes is not None:
        return codes
    if check_causes(codes, name) == 1:
        return np.asarray(codes == 1)
    return codes


def check_event_codes(
    event: Any, name: str, causes: int | None = None, option: str | None = None
) -> npt.NDArray[np.bool_] | Whole:
    """The values of an event column, each valid on its own: bool, or integers from 0 to ``causes`` (100 by default).

    ``option`` is the name of the option that lists the values that mean an event, if there is one; error messages
    recommend it.
    """
    values = without_mask(event)
    if causes is not None and not (isinstance(causes, (int, np.integer)) and 1 <= causes <= _MOST_CAUSES):
        raise ValueError(f"causes must be the number of causes, from 1 to {_MOST_CAUSES}; got {causes!r}.")
    if values.ndim != 1:
        raise ValueError(f"{name!r} must be one-dimensional, one indicator per subject; got shape {values.shape}.")
    if values.dtype == bool and causes is None:
        return values.copy()
    numbers = as_numbers(values)
    if numbers is None:
        numbers = np.array([float(value) if _is_number(value) else np.nan for value in values])
    wrong = ~(
        (numbers >= 0) & (numbers <= (_MOST_CAUSES if causes is None else causes)) & (numbers == np.rint(numbers))
    )
    if wrong.any():
        bad = np.flatnonzero(wrong)
        largest = "K" if causes is None else causes
        remedy = "Recode the column, for example (status == 'dead')"
        remedy = remedy if option is None else f"Recode it, or list with {option} the values that mean an event"
        raise ValueError(
            f"{name!r} must be bool or 0/1 (1 = event, 0 = censored), or a cause from 1 to {largest}; "
            f"{len(bad)} rows are not, first at {rows_in_words(bad)} ({values_in_words(values, bad)}). "
            f"{remedy}."
        )
    return numbers.astype(np.int64)


def check_causes(codes: Any, name: str, option: str | None = None) -> int:
    """The number of causes, from all valid codes of an event column: an error if they are ambiguous or have gaps."""
    distinct = np.unique(np.asarray(codes, dtype=np.int64))
    largest = int(distinct.max(initial=1))
    if distinct.tolist() == [1, 2]:
        event = f"pass {name} == 2" if option is None else f"give {option} 2"
        both = "pass causes=2" if option is None else f"give {option} 1 2"
        raise ValueError(
            f"{name!r} holds 1 and 2 and no 0 (censored). If 2 is the event, as in R: {event}. If they are two causes "
            f"and no row is censored: {both}."
        )
    absent = np.setdiff1d(np.arange(1, largest), distinct)
    if len(absent):
        known = f"pass causes={largest}" if option is None else f"list the values of all causes with {option}"
        raise ValueError(
            f"{name!r} holds causes up to {largest}, and no row has {rows_in_words(absent)}. Number the causes 1, 2, "
            f"... without gaps, or {known}."
        )
    return largest


def check_entry(entry: Any, name: str, time: Floats, time_name: str) -> Floats:
    """Entry times, each before its row's time (both may be zero)."""
    entries = check_time(entry, name, if_missing="write 0 for rows that were observed from the beginning")
    check_length(entries, name, time, time_name)
    bad = np.flatnonzero((entries >= time) & (entries > 0))
    if len(bad):
        raise ValueError(
            f"{name!r} is not before {time_name!r} in {len(bad)} rows, first at {rows_in_words(bad)} "
            f"({values_in_words(entries, bad)}); a row is at risk in (entry, time], so drop rows with no time at risk "
            "or correct them."
        )
    return entries


def check_limits(lower: Any, upper: Any, lower_name: str, upper_name: str) -> tuple[Floats, Floats]:
    """Both ends of intervals: lower finite, upper perhaps infinite and never below lower."""
    low = check_time(lower, lower_name, if_missing="write 0 where the event came before upper (left-censored)")
    high = check_time(upper, upper_name, finite=False, if_missing="use inf for right-censored rows")
    check_length(high, upper_name, low, lower_name)
    bad = np.flatnonzero(low > high)
    if len(bad):
        raise ValueError(
            f"{lower_name!r} is above {upper_name!r} in {len(bad)} rows, first at {rows_in_words(bad)} "
            f"({values_in_words(low, bad)}); the event lies in (lower, upper]: swap or correct them."
        )
    return low, high


def check_interval_event(cause: Any, name: str, upper: Floats) -> Whole | None:
    """The cause of each interval-censored event; None if there is only one cause."""
    causes = check_event(cause, name, _MOST_CAUSES).astype(np.int64)
    check_length(causes, name, upper, "upper")
    bad = np.flatnonzero((causes > 0) != np.isfinite(upper))
    if len(bad):
        raise ValueError(
            f"{name!r} contradicts the upper limits in {len(bad)} rows, first at {rows_in_words(bad)}; it "
            "must be 0 if upper is inf (right-censored), and the cause of the event otherwise."
        )
    return causes if causes.max() > 1 else None


def check_weight(weight: Any, n_rows: int) -> Floats | None:
    """Weights, zero or more; None if all are one.

    Whole numbers stay as they are and count repeated rows; others are scaled to a mean of one.
    """
    values = without_mask(weight)
    numbers = as_numbers(values) if values.ndim == 1 else None
    if numbers is None or len(numbers) != n_rows:
        raise ValueError(
            f"sample_weight must have one number for each of the {n_rows} rows; got shape {values.shape}, "
            f"{values.dtype}."
        )
    bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(bad):
        raise ValueError(
            f"sample_weight is negative, missing or infinite in {len(bad)} rows, first at "
            f"{rows_in_words(bad)} ({values_in_words(values, bad)}); weights must be zero or more, and "
            "finite."
        )
    if not numbers.any():
        raise ValueError("sample_weight is zero in all rows; at least one row must count.")
    if (numbers == 1).all():
        return None
    if (numbers == np.rint(numbers)).all() and numbers.max() < 1e9:
        return numbers
    largest = float(numbers.max())  # first, so that no sum overflows
    return numbers / largest / float((numbers / largest).mean())


def check_groups(groups: Any, n_rows: int) -> Whole:
    """The subject of each row, as a whole number from 0."""
    values = without_mask(groups)
    if values.shape != (n_rows,):
        raise ValueError(f"groups must have one subject for each of the {n_rows} rows; got shape {values.shape}.")
    codes = np.asarray(pd.factorize(values)[0], dtype=np.int64)
    if (codes < 0).any():
        bad = np.flatnonzero(codes < 0)
        raise ValueError(f"groups is missing in {len(bad)} rows, first at {rows_in_words(bad)}; name every subject.")
    return codes


def check_length(values: Any, name: str, others: Any, other_name: str) -> None:
    """Raise a ValueError unless two columns are equally long."""
    if len(values) != len(others):
        raise ValueError(
            f"{other_name!r} has {len(others)} rows and {name!r} has {len(values)}; "
            "give one time and one event indicator per subject."
        )


def without_mask(values: Any) -> npt.NDArray[Any]:
    """Convert to an array; masked values, which NumPy would uncover, become missing (NaN, or None among text)."""
    if not isinstance(values, np.ma.MaskedArray) or not np.ma.is_masked(values):
        return np.asarray(values)
    numeric = values.dtype.kind in "biuf"
    plain = values.data.astype(np.float64 if numeric else object)
    plain[np.ma.getmaskarray(values)] = np.nan if numeric else None
    return plain


def names_in_words(names: Any, most: int = 12) -> str:
    """Names as error messages list them: the first few of a long list, and how many there are."""
    shown = list(names)
    text = ", ".join(map(repr, shown[:most]))
    return text if len(shown) <= most else f"{text}, ... ({len(shown):,} in all)"


def how_many(number: int, what: str) -> str:
    """A number and its noun, in the plural if needed."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def as_numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Convert to float64; return None if a value is not a real number but text, a date or a duration."""
    if values.dtype.kind in "USOcmMV" and not all(_is_number(value) for value in values.ravel()):
        return None
    return values.astype(np.float64)


def _is_number(value: Any) -> bool:
    if isinstance(value, (str, bytes, np.complexfloating, np.datetime64, np.timedelta64)):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def rows_in_words(bad: Any) -> str:
    """The first numbers of rows in a message."""
    return ", ".join(str(int(i)) for i in bad[:5]) + (", ..." if len(bad) > 5 else "")


def values_in_words(values: Any, bad: Any) -> str:
    """The values of the first of some rows in a message."""
    shown = (values[i] for i in bad[:5])
    return "values " + ", ".join(repr(str(value)) if isinstance(value, str) else str(value) for value in shown)
