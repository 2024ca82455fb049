"""Levels of categories: other spellings (1, 1.0 and "1"), and warnings about levels not seen in training."""

from __future__ import annotations

import math
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
    "treated as an unknown level. Training levels are, for example, {levels}."
)
_REWRITTEN = (
    "Column {name!r}: {rows:,} of {of:,} values are spelled differently from the training levels "
    "({values} instead of {levels}) and were matched to these levels. Convert the column to its "
    "type in training."
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
    values: dict[str, None] = field(default_factory=dict)


class LevelNotes:
    """Counts values that are not levels of training, or spelled in another way, over any number of blocks of rows."""

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
    ) -> None:
        """Count the values of a column in some rows; readers of the same rows count on their own."""
        known = ", ".join(map(repr, levels[:3]))
        for text, rows in ((_UNSEEN, unseen), (_REWRITTEN, rewritten)):
            entry = self._noted.setdefault((text, reader, name, known), _Noted())
            entry.rows, entry.of = entry.rows + int(rows.sum()), entry.of + len(rows)
            if rows.any() and len(entry.values) <= _SHOWN:
                odd = values[rows].astype(object)
                entry.values |= dict.fromkeys("missing" if pd.isna(value) else repr(value) for value in odd.unique())

    def warn(self) -> None:
        """Issue one warning per column and kind; the parts of a mixture say the same."""
        for message in dict.fromkeys(
            text.format(name=name, rows=found.rows, of=found.of, values=listed(list(found.values)), levels=known)
            for (text, _, name, known), found in self._noted.items()
            if found.rows
        ):
            warn_user(message)


def listed(names: Sequence[str]) -> str:
    """The first names of a list."""
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
