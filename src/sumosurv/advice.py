"""What is said of columns that were probably meant in another way: warnings, once per column."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["advise_on_text", "note_rewritten", "note_unseen", "telling_unseen"]

_SHOWN = 5
_MANY_NUMBERS = 10  # different ones: so many are no names of categories
_IDENTIFIERS = 20  # rows: a text column in which so many or more all differ does not describe them


_UNSEEN = (
    "Column {name!r}: {rows:,} of {of:,} values were not seen in training ({values}), where it had levels such as "
    "{levels}; predictions for them are those of no level in particular."
)
_REWRITTEN = (
    "Column {name!r}: {rows:,} of {of:,} values are written in another way than in training ({values}, where levels "
    "are {levels}); they were taken for these levels. Give the column the type that it had in training."
)


@dataclass
class _Noted:
    rows: int = 0
    of: int = 0
    values: dict[Any, None] = field(default_factory=dict)


# what is said, by whom, of which column with which levels
_noted: ContextVar[dict[tuple[str, int, str, str], _Noted] | None] = ContextVar("notes on levels", default=None)


@contextmanager
def telling_unseen() -> Iterator[None]:
    """Gather what is noted of levels inside the block and warn at its end; inside another such block, at its end."""
    if _noted.get() is not None:
        yield
        return
    noted: dict[tuple[str, int, str, str], _Noted] = {}
    token = _noted.set(noted)
    try:
        yield
    finally:
        _noted.reset(token)
    for text in dict.fromkeys(  # the parts of a mixture say the same
        said.format(name=name, rows=found.rows, of=found.of, values=_listed(list(found.values)), levels=known)
        for (said, _, name, known), found in noted.items()
        if found.rows
    ):
        warnings.warn(text, UserWarning, stacklevel=4)


def note_unseen(
    reader: int, name: str, levels: Sequence[Any], values: pd.Series, unseen: npt.NDArray[np.bool_]
) -> None:
    """Note how many values of a column, and which, are none of its levels.

    Parameters
    ----------
    reader : int
        Who read the column: each counts on its own.
    name : str
    levels : sequence
        Those of training.
    values : Series
    unseen : bool array of shape (rows,)
    """
    _note(_UNSEEN, reader, name, levels, values, unseen)


def note_rewritten(
    reader: int, name: str, levels: Sequence[Any], values: pd.Series, rewritten: npt.NDArray[np.bool_]
) -> None:
    """Note how many values of a column, and which, are levels written in another way; as `note_unseen`."""
    _note(_REWRITTEN, reader, name, levels, values, rewritten)


def _note(
    said: str, reader: int, name: str, levels: Sequence[Any], values: pd.Series, rows: npt.NDArray[np.bool_]
) -> None:
    noted = _noted.get()
    if noted is None:
        with telling_unseen():
            _note(said, reader, name, levels, values, rows)
        return
    entry = noted.setdefault((said, reader, name, ", ".join(map(repr, levels[:3]))), _Noted())
    entry.rows, entry.of = entry.rows + int(rows.sum()), entry.of + len(rows)
    if rows.any() and len(entry.values) <= _SHOWN:
        odd = values[rows].astype(object)
        entry.values |= dict.fromkeys("missing" if pd.isna(value) else repr(value) for value in odd.unique())


def advise_on_text(name: str, levels: Sequence[Any], n_rows: int) -> None:
    """Warn of a column of text that was hardly meant as one, or whose levels all differ, as identifiers do."""
    if _advise_on_numbers(name, levels) or not len(levels) == n_rows >= _IDENTIFIERS:
        return
    warnings.warn(
        f"Column {name!r} has a different category in each of its {n_rows} rows, as identifiers have: nothing can be "
        "learned from it; leave it out, or turn it into numbers.",
        UserWarning,
        stacklevel=2,
    )


def _advise_on_numbers(name: str, levels: Sequence[Any]) -> bool:
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
        what = f"all but {len(odd)} of them are numbers: {_listed(odd)}. Correct these or mark them as missing"
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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
