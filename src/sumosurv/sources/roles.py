"""Which columns of a table hold the outcome, and the outcome of some of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome import Outcome, Surv, check_outcome
from sumosurv.sources.hashing import hashed
from sumosurv.sources.source import RowSource

__all__ = ["Roles"]

_MOST_EVENTS = 100  # distinct values of a column of events


@dataclass(frozen=True)
class Roles:
    """The names of the columns that are no covariates.

    ``time`` and ``event``, or ``lower`` and ``upper``; where rows have them ``entry``, ``weight`` and ``group`` (the
    subject). ``event_value`` has the values of ``event`` that mean an event, of several causes in their order; without
    it the column holds 0 and 1, or 0, 1, 2, ... where causes compete. `read` finds out how many causes there are.
    """

    time: str | None = None
    event: str | None = None
    entry: str | None = None
    lower: str | None = None
    upper: str | None = None
    weight: str | None = None
    group: str | None = None
    event_value: tuple[str, ...] | None = None
    n_causes: int = 1
    option: ClassVar[str] = "event_value"  # what errors call it

    @classmethod
    def of(cls, y: Any, sample_weight: Any = None, groups: Any = None) -> Roles:
        """From a mapping of roles to names, as `fit` and `evaluate` take it."""
        if isinstance(y, Roles):
            return y
        known = [field.name for field in fields(cls) if field.name != "n_causes"]
        if not isinstance(y, Mapping):
            raise TypeError(
                "Rows that are read in pieces have their outcome in columns: give y as a mapping of names, such as "
                f"{{'time': 'months', 'event': 'died'}}; got {type(y).__name__}."
            )
        for role in y:
            if role not in known:
                raise ValueError(f"y names the columns {', '.join(known)}; got {role!r}.")
        named = dict(y) | {
            role: value for role, value in (("weight", sample_weight), ("group", groups)) if value is not None
        }
        for role, value in named.items():
            if role != "event_value" and not isinstance(value, str):
                raise TypeError(f"The {role} of rows that are read in pieces is the name of a column; got {value!r}.")
        if "event_value" in named:
            values = named["event_value"]
            named["event_value"] = tuple(map(str, [values] if isinstance(values, (str, int)) else values))
        return cls(**named)

    @property
    def names(self) -> list[str]:
        """The columns, each once."""
        found = [getattr(self, f.name) for f in fields(self) if f.name not in ("event_value", "n_causes")]
        return list(dict.fromkeys(name for name in found if name is not None))

    @property
    def two_times(self) -> bool:
        """Whether rows have an entry beside their end, or two limits."""
        return self.entry is not None or self.lower is not None

    def counted(self, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """The rows whose weight is not zero."""
        for frame in frames:
            kept = frame if self.weight is None else frame[frame[self.weight] != 0]
            if len(kept):
                yield kept

    def covariates(self, source: RowSource) -> list[str]:
        """The columns of a source that are left, in their order."""
        own = set(self.names)
        left = [name for name in source.columns if name not in own]
        if not left:
            raise ValueError("No covariates are left beside the outcome.")
        return left

    def read(self, source: RowSource, causes: int | None = None) -> Roles:
        """Check that the columns are there, and find out how many causes there are, unless a model says it."""
        for name in self.names:
            if name not in source.names:
                known = ", ".join(map(repr, source.names))
                raise ValueError(f"There is no column {name!r} in {source.name}; they are {known}.")
        if self.time is None and self.lower is None:
            raise ValueError("y names the columns of time and event, or of lower and upper limits.")
        if self.event is None or self.event_value is not None:
            found = len(self.event_value or (1,))
        else:
            found = self._causes(source)
        if causes is not None and (causes > 1) < (found > 1):
            raise ValueError(f"The model was fitted to one cause, and the column {self.event!r} has {found}.")
        return replace(self, n_causes=max(found, causes or 1))

    def _causes(self, source: RowSource) -> int:
        values: set[Any] = set()
        for frame in source.frames([str(self.event)], rows=1 << 20):
            column = frame.iloc[:, 0]
            if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
                raise ValueError(
                    f"The column {self.event!r} holds {column.iloc[0]!r}; say with {self.option} which of its values "
                    "means an event."
                )
            values.update(column.dropna().unique().tolist())
            if len(values) > _MOST_EVENTS:
                raise ValueError(f"The column {self.event!r} has more than {_MOST_EVENTS} values; it is no event.")
        if values == {1, 2}:
            raise ValueError(
                f"The column {self.event!r} holds 1 and 2, as in R, where 2 is the event; say so with {self.option} 2."
            )
        return max(1, int(max(values, default=1)))

    def outcome(self, frame: pd.DataFrame) -> Outcome:
        """What was observed in some rows; the same fields for all of them, ``group`` apart (see `subjects`)."""
        causes = self.n_causes if self.n_causes > 1 else None
        if self.event is not None and self.event_value is not None:
            frame = frame.assign(**{self.event: self._coded(frame[self.event])})
        columns = {role: getattr(self, role) for role in ("event", "time", "entry", "lower", "upper")}
        between = self.lower is not None
        try:
            made = check_outcome(
                Surv.from_columns(frame, **columns, causes=None if between else causes),
                sample_weight=None if self.weight is None else frame[self.weight],
            )
        except ValueError as error:
            raise ValueError(f"{error} (Rows are counted from row {frame.index[0]:,} of the table.)") from None
        if self.weight is not None:
            made = replace(made, weight=frame[self.weight].to_numpy(dtype=np.float64))
        return self.with_fields(made)

    def with_fields(self, outcome: Outcome) -> Outcome:
        """An outcome with the fields that all rows of this table have, also those that say nothing in these rows."""
        wanted = {
            "entry": self.entry is not None,
            "upper": self.lower is not None,
            "cause": self.n_causes > 1,
            "weight": self.weight is not None,
        }
        for name, there in wanted.items():
            if getattr(outcome, name) is not None and not there:
                raise ValueError(f"Some rows have {name!r}, which those of the table do not have.")
        return outcome.filled([name for name, there in wanted.items() if there])

    def _coded(self, column: pd.Series) -> pd.Series:
        if column.isna().any():
            raise ValueError(f"The column {self.event!r} is missing in {int(column.isna().sum())} rows.")
        words = column.map(lambda value: f"{value:g}" if isinstance(value, float) else str(value))
        wanted = self.event_value or ()
        if len(wanted) == 1:
            return words == wanted[0]
        return words.map({value: place + 1 for place, value in enumerate(wanted)}).fillna(0).astype(np.int64)

    def subjects(self, frame: pd.DataFrame, seed: int) -> npt.NDArray[np.uint64]:
        """A hash of the subject of each row, or of its row number where each row is a subject of its own."""
        if self.group is None:
            return hashed(frame.index.to_numpy(), seed)
        column = frame[self.group]
        if column.isna().any():
            raise ValueError(f"The subject ({self.group!r}) is missing in {int(column.isna().sum())} rows.")
        return hashed(column.to_numpy(), seed)
