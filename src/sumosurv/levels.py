"""Levels of a category that are written in another way: 1, 1.0 and "1", True and "true"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["find_rewritten", "ways_to_write"]


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
