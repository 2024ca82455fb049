"""The table that `evaluate` returns, and how it is printed within 80 columns."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import pandas as pd

COLUMNS = (
    "score",
    "cause",
    "model",
    "level",
    "against",
    "censoring",
    "times",
    "value",
    "low",
    "high",
    "std_error",
    "won",
    "greater_is_better",
    "proper",
)
# left out if all rows have this value; "level" is in place of "model" in an audit of subgroups
_OPTIONAL = {"cause": "", "model": "", "level": "", "against": "", "censoring": "", "won": None}
_WIDTH = 80
_SHORTEST = 8  # to which names of models are cut if lines are too long


class Evaluation(pd.DataFrame):  # type: ignore[misc]
    """The result of `evaluate`: a DataFrame that prints its values, intervals and times within 80 columns.

    Numbers are rounded in print only. Selections and results of computations are ordinary DataFrames. Remarks on the
    table as a whole are in ``notes`` and are printed below it.
    """

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]], notes: Iterable[str] = ()) -> Evaluation:
        """Make a table of rows with the columns of this module; optional columns that no row uses are left out."""
        frame = pd.DataFrame([_OPTIONAL | row for row in rows], columns=list(COLUMNS))
        unused = [
            name
            for name, empty in _OPTIONAL.items()
            if (frame[name].isna().all() if empty is None else frame[name].isin([empty]).all())
        ]
        if not {"model", "level"} <= set(unused):
            unused = [name for name in unused if name != "against"]
        made = cls(frame.drop(columns=unused))
        made.attrs["notes"] = list(notes)
        return made

    @property
    def notes(self) -> list[str]:
        """Remarks on the table."""
        return list(self.attrs.get("notes", []))

    def __repr__(self) -> str:
        known = [name for name in COLUMNS if name in self.columns]
        if self.empty or list(self.columns) != known or not set(COLUMNS) - set(_OPTIONAL) <= set(known):
            return str(super().__repr__())
        longest = max(map(len, self[self._rows])) if self._rows in self.columns else 0
        tries = [(*sizes, longest) for sizes in ((4, 2), (4, 1), (3, 1))]
        tries += [(3, 1, length) for length in range(longest - 1, _SHORTEST - 1, -1)] + [(2, 1, _SHORTEST)]
        for sizes in tries:
            lines = self._lines(*sizes)
            if max(map(len, lines)) <= _WIDTH:
                break
        notes = [line for note in self.notes for line in textwrap.wrap(note, _WIDTH)]
        return "\n".join([*lines, *([""] if notes else []), *notes])

    @property
    def _rows(self) -> str:
        return "level" if "level" in self.columns else "model"

    def _lines(self, digits: int, gap: int, length: int) -> list[str]:
        """Return the table as text; several models are listed below each score, with names cut to some length."""
        by_model, records = self._rows in self.columns, self.to_dict("records")
        if by_model:
            names = _shortened(list(dict.fromkeys(self[self._rows])), length)
            columns = [["", *(f"  {_label(row, self._rows, names)}" for row in records)]]
        else:
            columns = [["score", *self["score"]]]
            columns += [["cause", *map(str, self["cause"])]] if "cause" in self.columns else []
        columns += [["G", *self["censoring"]]] if "censoring" in self.columns else []
        first = len(columns)
        for name in ["value"] if self["low"].isna().all() else ["value", "low", "high"]:
            columns.append([name, *(_number(value, digits) for value in self[name])])
        numeric = range(first, len(columns))
        if "won" in self.columns:
            columns.append(["folds won", *("" if pd.isna(won) else f"{won:.0%}" for won in self["won"])])
        if by_model:
            columns.append(["", *map(_verdict, records)])
        elif self["times"].ne("").any():
            columns.append(["times", *self["times"]])
        lines = _joined(columns, numeric, " " * gap)
        if not by_model:
            return lines
        grouped = itertools.groupby(zip(map(_heading, records), lines[1:]), key=itemgetter(0))
        return lines[:1] + [text for heading, group in grouped for text in (heading, *(line for _, line in group))]


def _shortened(names: list[str], length: int) -> dict[str, str]:
    """Return names cut to some length; numbered if they are no longer distinct."""
    cut = {name: name if len(name) <= length else name[: length - 1] + "…" for name in names}
    if len(set(cut.values())) < len(names):
        cut = {name: name if len(name) <= length else f"{name[: length - 3]}…{i}" for i, name in enumerate(names, 1)}
    return cut


def _label(row: dict[str, Any], kind: str, names: dict[str, str]) -> str:
    """Return the name of a model or level, or of a difference of two."""
    name, against = names[row[kind]], row["against"]
    return f"{name} - {names.get(against, against)}" if against else name


def _heading(row: dict[str, Any]) -> str:
    cause = f", cause {row['cause']}" if row.get("cause", "") != "" else ""
    times = row["times"]
    between = ", " if times.startswith("cells ") or "–" in times else " at "
    return f"{row['score']}{cause}{between + times if times else ''}"


def _verdict(row: dict[str, Any]) -> str:
    """Say whether a difference is clear, by its interval."""
    if not row["against"] or pd.isna(row["low"]) or row["low"] <= 0 <= row["high"]:
        return ""
    return "better" if (row["low"] > 0) == row["greater_is_better"] else "worse"


def _joined(columns: list[list[str]], numeric: range, gap: str) -> list[str]:
    padded = []
    for i, column in enumerate(columns):
        width = max(map(len, column))
        padded.append([text.rjust(width) if i in numeric else text.ljust(width) for text in column])
    return [gap.join(parts).rstrip() for parts in zip(*padded)]


def _number(value: float, digits: int) -> str:
    text = f"{value:.0f}" if 10**digits <= abs(value) < 10**9 else f"{value:#.{digits}g}"
    return text.removesuffix(".")
