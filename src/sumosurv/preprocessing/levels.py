"""Levels of categories: other spellings (1, 1.0 and "1"), levels not seen in training, and text that is no category."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.warn import warn_user

_SHOWN = 5
_UNSEEN = (
    "Column {name!r}: {rows:,} of {of:,} values were not seen in training ({values}) and are "
    "{read_as}. Training levels are, for example, {levels}."
)
_REWRITTEN = (
    "Column {name!r}: {rows:,} of {of:,} values are spelled differently from the training levels "
    "({values} instead of {levels}) and were matched to these levels. Convert the column to its "
    "type in training."
)
_NEVER_MISSING = (
    "{rows:,} of {of:,} rows have missing values in columns that were never missing in training ({values}). They are "
    "replaced by the training average of the column."
)
_MANY_NUMBERS = 10  # different ones: category names are rarely that many numbers
_IDENTIFIERS = 20  # rows: a text column in which at least so many all differ does not describe them
_CLOCK = r"\d{1,2}[:h]\d{2}(:\d{2}([.,]\d+)?)?(\s*[ap]\.?m\.?)?"
_DAY, _MONTH, _YEAR = r"(0?[1-9]|[12]\d|3[01])", r"(0?[1-9]|1[0-2])", r"(19|20)\d{2}"
_NAMED = (
    r"(jan(uary?)?|feb(ruary?)?|mar(ch)?|märz?|mrz|apr(il)?|ma[iy]|june?|july?|aug(ust)?"
    r"|sept?(ember)?|o[ck]t(ober)?|nov(ember)?|de[cz](ember)?)\.?"
)
_GAP = r"[-\ /.,']"
_DATE = re.compile(
    rf"""[\s'"]*([^\W\d_]{{2,10}},?\s+)?(
    \d{{4}}(?P<a>[-/.])\d{{1,2}}(?P=a)\d{{1,2}} | {_YEAR}{_MONTH}\d{{2}}(?=T) | {_YEAR}-?W\d{{1,2}}(-?\d)?
    | \d{{1,2}}(?P<b>[-/.])\d{{1,2}}(?P=b)\d{{4}} | {_DAY}(?P<c>[-/.]){_DAY}(?P=c)\d{{2}}
    | {_YEAR}[-/](0[1-9]|1[0-2]) | {_MONTH}[-/]{_YEAR}
    | \d{{1,2}}{_GAP}+[^\W\d_]{{3,9}}{_GAP}+\d{{4}} | [^\W\d_]{{3,9}}[ .]+\d{{1,2}},?\ +\d{{4}}
    | \d{{1,2}}{_GAP}*{_NAMED}{_GAP}*(\d{{2}}|\d{{4}}) | {_NAMED}{_GAP}+(\d{{2}}|\d{{4}})
    | {_YEAR}{_GAP}*{_NAMED}{_GAP}*\d{{1,2}} | {_NAMED}\ +\d{{1,2}}\ +{_CLOCK}\ +{_YEAR}
    | \d{{4}}年\d{{1,2}}月(\d{{1,2}}日)?
    )(T\d{{4}}(\d{{2}})?Z? | [T\ :]+({_CLOCK}|\d{{2}})\s*(Z|UTC|GMT|[+-]\d{{2}}:?\d{{2}})?)?[\s'"]*""",
    re.VERBOSE | re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(rf"\s*{_CLOCK}\s*", re.IGNORECASE)
_PERCENTAGE = re.compile(r"(?=.*%)\s*%?\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)(e[-+]?\d+)?\s*%?\s*", re.IGNORECASE)
_QUANTITY = re.compile(r"\s*[<>≤≥~≈=]*\s*[$€£¥]?\s*[-+−]?\d[\d.,'’\s_]*(?P<unit>\D.*)?")  # "37 days", "<5", "$ 1'200"


def find_rewritten(levels: Sequence[Any], values: npt.NDArray[np.object_]) -> npt.NDArray[np.int64]:
    """The place of the level that each value spells in another way; -1 if there is no such level, or more than one.

    Numbers are told by their value and truth values by their word, whether they come as such or as text. Other text
    has one way to be written.

    Examples
    --------
    >>> find_rewritten((0, 1), np.array(["0", "1.0", "2", "one"], dtype=object))
    array([ 0,  1, -1, -1])
    """
    places: dict[Any, int] = {}
    for place, level in enumerate(levels):
        meaning = _meaning(level)
        places[meaning] = -1 if meaning in places else place
    return np.array([-1 if (m := _meaning(value)) is None else places.get(m, -1) for value in values], dtype=np.int64)


def ways_to_write(level: Any) -> list[str]:
    """The text of a level, and other text for the same number or truth value.

    Examples
    --------
    >>> ways_to_write(2), ways_to_write("2.0"), ways_to_write(True), ways_to_write("II")
    (['2', '2.0'], ['2.0', '2'], ['True', 'true', 'TRUE'], ['II'])
    """
    meaning, own = _meaning(level), str(level)
    if meaning is None:
        return [own]
    if isinstance(meaning, str):
        others = [meaning.capitalize(), meaning, meaning.upper()]
    else:
        others = [str(int(meaning)), f"{int(meaning)}.0"] if meaning.is_integer() else [repr(meaning)]
    return list(dict.fromkeys([own, *others]))


def _meaning(value: Any) -> float | str | None:
    """A number, "true" or "false"; None of other text."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower()
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


@dataclass
class _Noted:
    rows: int = 0
    of: int = 0
    values: dict[str, None] = field(default_factory=dict)


class LevelNotes:
    """Counts values that training rows did not have or spelled in another way, over any number of blocks of rows."""

    def __init__(self) -> None:
        self._noted: dict[tuple[str, int, str, str], _Noted] = {}

    def add(
        self,
        reader: int,
        name: str,
        levels: Sequence[Any],
        values: pd.Series,
        unseen: npt.NDArray[np.bool_],
        rewritten: npt.NDArray[np.bool_],
        read_as: str,
    ) -> None:
        """Count the values of a column in some rows; readers of the same rows count on their own."""
        known = ", ".join(map(repr, levels[:3]))
        for text, rows in ((_UNSEEN.replace("{read_as}", read_as), unseen), (_REWRITTEN, rewritten)):
            entry = self._noted.setdefault((text, reader, name, known), _Noted())
            entry.rows, entry.of = entry.rows + int(rows.sum()), entry.of + len(rows)
            if rows.any() and len(entry.values) <= _SHOWN:
                odd = values[rows].astype(object)
                entry.values |= dict.fromkeys("missing" if pd.isna(value) else repr(value) for value in odd.unique())

    def add_missing(self, reader: int, names: Sequence[str], missing: npt.NDArray[np.bool_]) -> None:
        """Count missing numbers, (rows, columns), in columns of which training rows had all values."""
        entry = self._noted.setdefault((_NEVER_MISSING, reader, "", ""), _Noted())
        entry.rows, entry.of = entry.rows + int(missing.any(axis=1).sum()), entry.of + len(missing)
        if missing.any():
            entry.values |= dict.fromkeys(repr(name) for name, own in zip(names, missing.T) if own.any())

    def warn(self) -> None:
        """Issue one warning per column and kind, and one for missing numbers; the parts of a mixture say the same."""
        for message in dict.fromkeys(
            text.format(name=name, rows=found.rows, of=found.of, values=listed(list(found.values)), levels=known)
            for (text, _, name, known), found in self._noted.items()
            if found.rows
        ):
            warn_user(message)


def listed(names: Sequence[str]) -> str:
    """The first names of a list."""
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


# ------------------------------------------------------------------ columns of text


def check_text(name: str, levels: Sequence[Any], n_rows: int) -> None:
    """Check a column of text: refuse dates and percentages, warn of numbers, identifiers and levels that look alike.

    It has these distinct values, and ``n_rows`` that are not missing.
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
        _warn_of_look_alikes(name, levels)
    if _warn_of_numbers(name, levels) or not len(levels) == n_rows >= _IDENTIFIERS:
        return
    warn_user(
        f"Column {name!r} has a different category in each of its {n_rows} rows, as identifiers have: nothing can be "
        "learned from it; leave it out, or turn it into numbers."
    )


def _most(levels: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """Whether all levels match a pattern, or nine in ten of many."""
    found = sum(pattern.fullmatch(level) is not None for level in levels)
    return found == len(levels) or found >= max(_MANY_NUMBERS, 0.9 * len(levels))


def _warn_of_look_alikes(name: str, levels: Sequence[str]) -> None:
    """Warn of levels that differ only in case or blanks."""
    first: dict[str, str] = {}
    for level in levels:
        other = first.setdefault(" ".join(level.casefold().split()), level)
        if other != level:
            warn_user(
                f"Column {name!r} has the levels {other!r} and {level!r}, which differ only in case or blanks and are "
                "different categories. Write them alike, or turn the column into a category to keep them so."
            )
            return


def _warn_of_numbers(name: str, levels: Sequence[Any]) -> bool:
    """Warn of a column of text whose levels are numbers but for a few, or numbers with commas or a unit."""
    if not len(levels) or not all(isinstance(level, str) for level in levels):
        return False
    few = len(levels) < _MANY_NUMBERS
    text = pd.Series(list(levels), dtype=object)
    values = pd.to_numeric(text, errors="coerce")
    numbers = values.notna()
    read = [pd.to_numeric(text.str.replace(",", to, n=n), errors="coerce") for to, n in ((".", 1), ("", -1))]
    with_comma = read[0].notna() | read[1].notna()  # a decimal comma; commas between thousands
    parts = [_QUANTITY.fullmatch(level) for level in text]
    units = Counter(part["unit"] for part in parts if part is not None)
    most = len(text) if few else max(_MANY_NUMBERS, 0.9 * len(text))
    if numbers.all():
        if few or (values % 1 == 0).all():  # codes, such as those of postal districts
            return False
        what = f"they are numbers, such as {text[0]!r}. Turn them into numbers"
    elif numbers.sum() >= most:
        odd = [repr(level) for level in text[~numbers]]
        what = f"all but {len(odd)} of them are numbers: {listed(odd)}. Correct these or mark them as missing"
    elif with_comma.sum() >= most:
        shown = repr(text[~numbers].iloc[0])
        what = f"they are numbers with commas, such as {shown}. Write them with a decimal point and no other separator"
    elif not few and max(units.values(), default=0) >= most:
        shown = repr(text[~numbers].iloc[0])
        what = f"they are numbers with other characters, such as {shown}. Write them as numbers"
    else:
        return False
    warn_user(
        f"Column {name!r} holds text and becomes {len(text)} categories, but {what}, or turn the column into a "
        "category to keep it so."
    )
    return True
