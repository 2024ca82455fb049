"""Levels of categories: other spellings (1, 1.0 and "1"), and warnings about levels not seen in training."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.preprocessing.types import listed

__all__ = ["find_rewritten", "note_rewritten", "note_unseen", "telling_unseen", "ways_to_write"]

_SHOWN = 5
_UNSEEN = (
    "Column {name!r}: {rows:,} of {of:,} values were not seen in training ({values}), where it had levels such as "
    "{levels}; predictions for them are those of no level in particular."
)
_REWRITTEN = (
    "Column {name!r}: {rows:,} of {of:,} values are written in another way than in training ({values}, where levels "
    "are {levels}); they were taken for these levels. Give the column the type that it had in training."
)


def find_rewritten(levels: Sequence[Any], values: npt.NDArray[np.object_]) -> npt.NDArray[np.int64]:
    """The place of the level that each value is another way to write; -1 where there is none, or more than one.

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
        said.format(name=name, rows=found.rows, of=found.of, values=listed(list(found.values)), levels=known)
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
