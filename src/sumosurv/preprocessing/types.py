"""Which columns are categories, which are numbers, and columns that can be neither."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome.checks import rows_in_words

__all__ = ["check_text", "is_categorical", "listed", "read_numbers"]

_SHOWN = 5
_LARGEST = 1e300  # larger numbers overflow when differences or sums are taken
_MANY_NUMBERS = 10  # different ones: category names are rarely that many numbers
_IDENTIFIERS = 20  # rows: a text column in which at least so many all differ does not describe them
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "empty")  # of pandas.api.types.infer_dtype
_DATE = re.compile(
    r"""\s*(
    \d{4}([-/.])\d{1,2}\2\d{1,2} | \d{1,2}([-/.])\d{1,2}\3\d{4} | \d{1,2}/\d{1,2}/\d{2}
    | \d{1,2}[ -.]+[A-Za-z]{3,9}[ -.,]+\d{4} | [A-Za-z]{3,9}[ .]+\d{1,2},?\ +\d{4}
    )([T ]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?\s*""",
    re.VERBOSE,
)
_TIME_OF_DAY = re.compile(r"\s*\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*")
_PERCENTAGE = re.compile(r"\s*[-+]?\d+([.,]\d+)?\s*%\s*")


def is_categorical(values: pd.Series) -> bool:
    """Whether a column is read as categories: those of dtype category, object, string or bool, unless all numbers.

    Raises a ValueError for dates, durations and complex numbers, and a TypeError for other objects.
    """
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(dtype):
        return True
    if pd.api.types.is_complex_dtype(dtype):
        raise ValueError(f"Complex data not supported: column {values.name!r}.")
    if pd.api.types.is_numeric_dtype(dtype):
        return False
    if pd.api.types.is_datetime64_any_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        raise _date_error(values.name)
    if not pd.api.types.is_object_dtype(dtype):
        return True
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind == "string" or kind in _NUMBERS:
        return bool(kind == "string")
    present = values.dropna()
    if any(isinstance(value, (date, time, timedelta)) for value in present):
        raise _date_error(values.name)
    for value in present:
        if not isinstance(value, (str, bool, int, float, Decimal, np.generic)):
            raise TypeError(
                f"Column {values.name!r}: argument must be a string or a real number, not {type(value).__name__!r}."
            )
    numbers = (int, float, Decimal, np.number)  # Decimal: as databases give them
    return not all(isinstance(v, numbers) and not isinstance(v, (bool, np.bool_)) for v in present)


def read_numbers(values: pd.Series, name: str, rows: Any = None) -> npt.NDArray[np.float64]:
    """A column that is numeric in training as float64, NaN where missing.

    Raises a ValueError for values of another type, and for infinite or huge ones, with their row numbers: positions
    in ``values``, or ``rows`` if given.
    """
    if is_categorical(values) and not values.isna().all():
        example = values.dropna().iloc[0]
        raise ValueError(
            f"Column {name!r} was numeric in training and now holds {example!r} ({values.dtype}); give it as numbers, "
            "as in training."
        )
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.abs(numbers) > _LARGEST
    if wrong.any():
        bad = np.flatnonzero(wrong)
        what = "contains infinity" if np.isinf(numbers[bad]).all() else f"holds values beyond ±{_LARGEST:g}"
        where = rows_in_words(bad if rows is None else np.asarray(rows)[bad])
        raise ValueError(f"Column {name!r} {what} in rows {where}; replace these values or mark them as missing (NaN).")
    return np.array(numbers)


def check_text(name: str, levels: Sequence[Any], n_rows: int) -> None:
    """Check a column of text: refuse dates and percentages, warn of numbers written as text and of identifiers.

    Parameters
    ----------
    name : str
    levels : sequence
        Its distinct values.
    n_rows : int
        How many of its values are not missing.
    """
    if len(levels) and all(isinstance(level, str) for level in levels):
        keep = "or turn the column into a category to keep it as it is"
        if _most(levels, _DATE) or _most(levels, _TIME_OF_DAY):
            raise ValueError(
                f"Column {name!r} holds dates or times as text, such as {min(levels)!r}; turn it into numbers first, "
                f"for example days, {keep}."
            )
        if _most(levels, _PERCENTAGE):
            raise ValueError(
                f"Column {name!r} holds percentages as text, such as {min(levels)!r}; turn it into numbers first by "
                f"removing the %, {keep}."
            )
    if _warn_of_numbers(name, levels) or not len(levels) == n_rows >= _IDENTIFIERS:
        return
    warnings.warn(
        f"Column {name!r} has a different category in each of its {n_rows} rows, as identifiers have: nothing can be "
        "learned from it; leave it out, or turn it into numbers.",
        UserWarning,
        stacklevel=2,
    )


def _most(levels: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """Whether all levels match a pattern, or nine in ten of many."""
    found = sum(pattern.fullmatch(level) is not None for level in levels)
    return found == len(levels) or found >= max(_MANY_NUMBERS, 0.9 * len(levels))


def _date_error(name: Any) -> ValueError:
    return ValueError(f"Column {name!r} holds dates or durations; turn it into numbers first, for example days.")


def _warn_of_numbers(name: str, levels: Sequence[Any]) -> bool:
    """Warn of a column of text whose levels are numbers but for a few, or numbers with commas."""
    if len(levels) < _MANY_NUMBERS or not all(isinstance(level, str) for level in levels):
        return False
    text = pd.Series(list(levels), dtype=object)
    numbers = pd.to_numeric(text, errors="coerce").notna()
    read = [pd.to_numeric(text.str.replace(",", to, n=n), errors="coerce") for to, n in ((".", 1), ("", -1))]
    with_comma = read[0].notna() | read[1].notna()  # a decimal comma; commas between thousands
    most = max(_MANY_NUMBERS, 0.9 * len(text))
    if numbers.all() or with_comma.sum() < most:
        return False
    if numbers.sum() >= most:
        odd = [repr(level) for level in text[~numbers]]
        what = f"all but {len(odd)} of them are numbers: {listed(odd)}. Correct these or mark them as missing"
    else:
        shown = repr(text[~numbers].iloc[0])
        what = f"they are numbers with commas, such as {shown}. Write them with a decimal point and no other separator"
    warnings.warn(
        f"Column {name!r} holds text and becomes {len(text)} categories, but {what}, or turn the column into a "
        "category to keep it so.",
        UserWarning,
        stacklevel=2,
    )
    return True


def listed(names: Sequence[str]) -> str:
    """The first names of a list."""
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
