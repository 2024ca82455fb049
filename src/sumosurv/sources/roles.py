"""Which columns of a table hold the outcome, and the outcome of some of its rows."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome import Outcome, Surv, check_outcome
from sumosurv.outcome.checks import check_causes, check_event_codes, check_groups, names_in_words
from sumosurv.sources.source import RowSource

_COLUMNS = ("time", "event", "entry", "lower", "upper", "weight", "group")
_NO_EVENT = {"alive", "censored", "no", "none", "false", "n", "f", "0", "event-free"}
_MOST_VALUES = 100  # distinct values of an event column


@dataclass(frozen=True)
class Roles:
    """The names of the columns that are not covariates."""

    time: str | None = None  # of the event or of censoring
    event: str | None = None  # whether the event was seen
    entry: str | None = None  # the time from which a row was observed
    lower: str | None = None  # this and the next: limits of interval-censored times, instead of ``time``
    upper: str | None = None
    weight: str | None = None  # how many rows a row counts for
    group: str | None = None  # the subject that a row belongs to
    # the values of ``event`` that mean an event, one per cause; without it the column holds 0 and 1, or 0, 1, 2, ...
    event_value: tuple[str, ...] | None = None
    n_causes: int = 1  # found by `read`
    prefix: str = ""  # what error messages put before the names of options: "--" on the command line

    @classmethod
    def of(cls, y: Any, sample_weight: Any = None, groups: Any = None, *, prefix: str = "") -> Roles:
        """From a mapping of roles to names, as `fit` and `evaluate` take it."""
        if isinstance(y, Roles):
            return y
        if not isinstance(y, Mapping):
            raise TypeError(
                "For rows on disk, y must be a mapping of column names, such as "
                f"{{'time': 'months', 'event': 'died'}}; got {type(y).__name__}."
            )
        named = {role: value for role, value in y.items() if value is not None}
        named |= {role: name for role, name in (("weight", sample_weight), ("group", groups)) if name is not None}
        known = (*_COLUMNS, "event_value")
        for role, value in named.items():
            if role not in known:
                raise ValueError(f"y names the columns {', '.join(known)}; got {role!r}.")
            if role != "event_value" and not isinstance(value, str):
                raise TypeError(f"The {role} must be the name of a column for rows on disk; got {value!r}.")
        if "event_value" in named:
            values = named["event_value"]
            named["event_value"] = tuple(map(str, [values] if isinstance(values, (str, int)) else values))
        made = cls(**named, prefix=prefix)
        made._check_named()
        return made

    def _option(self, role: str) -> str:
        return f"{self.prefix}{role.replace('_', '-')}" if self.prefix else role

    def _check_named(self) -> None:
        """Raise a ValueError unless the outcome is named, once."""
        time, event, lower, upper = map(self._option, ("time", "event", "lower", "upper"))
        between = self.lower is not None or self.upper is not None
        if between and (self.time is not None or None in (self.lower, self.upper)):
            raise ValueError(
                f"Name {time} and {event}, or {lower} and {upper} (then {event} only to tell causes apart)."
            )
        if not between and None in (self.time, self.event):
            raise ValueError(f"Name the outcome: {time} and {event}, or {lower} and {upper} for interval censoring.")
        values = self.event_value or ()
        if values and self.event is None:
            raise ValueError(f"{self._option('event_value')} lists values of a column; name it with {event}.")
        twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
        if twice is not None:
            raise ValueError(f"{self._option('event_value')} lists {twice!r} twice; list each cause once, in order.")
        roles: dict[str, str] = {}
        for role in _COLUMNS:
            name = getattr(self, role)
            if name is not None and (other := roles.setdefault(name, role)) != role:
                both = f"{self._option(other)} and {self._option(role)}"
                raise ValueError(f"{both} both name the column {name!r}; use a different column for each.")

    @property
    def names(self) -> list[str]:
        """The columns, each once."""
        return [name for role in _COLUMNS if (name := getattr(self, role)) is not None]

    @property
    def two_times(self) -> bool:
        """Whether rows have an entry beside their end, or two limits."""
        return self.entry is not None or self.lower is not None

    def covariates(self, table: RowSource | pd.DataFrame) -> list[str]:
        """The columns of a table that are not part of the outcome, in their order."""
        own = set(self.names)
        left = [name for name in table.columns if name not in own]
        if not left:
            raise ValueError("No covariates are left beside the outcome.")
        return left

    # ------------------------------------------------------------------ one pass over the column of events

    def read(self, source: RowSource, n_causes: int | None = None) -> Roles:
        """Check the columns of a source and find the number of causes; see `checked`."""
        self.check_columns(source.names)
        frames = iter(()) if self.event is None else source.frames([self.event], rows=1 << 20)
        return self.checked((frame.iloc[:, 0] for frame in frames), n_causes)

    def check_columns(self, columns: Sequence[Any]) -> None:
        """Raise a ValueError that names a column which is not there."""
        present = set(columns)
        for role in _COLUMNS:
            name = getattr(self, role)
            if name is not None and name not in present:
                raise ValueError(
                    f"There is no column {name!r} ({self._option(role)}); the columns are {names_in_words(columns)}."
                )

    def checked(self, events: Iterable[pd.Series], n_causes: int | None = None) -> Roles:
        """Check the event column, block by block, and find the number of causes.

        ``n_causes`` is that of the model that reads the rows, which need not have all of them.
        """
        if self.event_value is not None:
            self._check_event_values(events, n_causes)
            found = len(self.event_value)
        else:
            codes = {int(code) for column in events for code in np.unique(self._codes(column))}
            if self.lower is None and (n_causes or 1) == 1:
                check_causes(list(codes), str(self.event), self._option("event_value"))
            found = max(1, *codes, 1)
        if n_causes is not None and ((n_causes > 1) != (found > 1) or found > n_causes):
            raise ValueError(
                f"The model was fitted to {n_causes} cause{'s' * (n_causes > 1)} and the table has {found}; "
                f"list with {self._option('event_value')} the values of the causes, in the same order."
            )
        return replace(self, n_causes=max(found, n_causes or 1))

    def _codes(self, column: pd.Series) -> npt.NDArray[Any]:
        """The codes of a numeric or boolean event column."""
        option = self._option("event_value")
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.astype(column.cat.categories.dtype)
        if pd.api.types.infer_dtype(column, skipna=True) == "decimal":
            column = column.astype(np.float64)
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column) or not len(column.dropna()):
            with _rows_from(column):
                return check_event_codes(column.to_numpy(), str(self.event), None, option)
        words = list(dict.fromkeys(map(_word, column.dropna().unique())))
        likely = [word for word in words if word.lower() not in _NO_EVENT]
        example = f", for example {option} {shlex.quote(likely[0])}" if len(likely) == 1 else ""
        raise ValueError(
            f"The column {self.event!r} holds {names_in_words(words, 5)}; say with {option} which of them means an "
            f"event (several for competing causes){example}."
        )

    def _check_event_values(self, events: Iterable[pd.Series], n_causes: int | None) -> None:
        """Raise a ValueError unless the values that mean an event occur, and no value is missing."""
        known: dict[str, None] = {}
        missing = 0
        for column in events:
            known |= dict.fromkeys(map(_word, column.dropna().unique()))
            missing += int(column.isna().sum())
            if len(known) > _MOST_VALUES:
                raise ValueError(
                    f"The column {self.event!r} has more than {_MOST_VALUES} different values, too many for events; "
                    f"name another column with {self._option('event')}."
                )
        wanted = self.event_value or ()
        unknown = [value for value in wanted if value not in known]
        if n_causes is not None and len(unknown) < len(wanted) == n_causes:
            unknown = []
        if unknown or missing:
            what = f"has no value {unknown[0]!r}" if unknown else f"is missing in {missing} rows"
            raise ValueError(f"The column {self.event!r} {what}; its values are {names_in_words(known, 10)}.")
        spelled = {value.strip().casefold(): value for value in wanted}
        option = self._option("event_value")
        for word in known:
            meant = spelled.get(word.strip().casefold())
            if meant is not None and word not in wanted:
                raise ValueError(
                    f"The column {self.event!r} holds {word!r}, and {option} lists {meant!r}; write them alike, or "
                    "list both if they are different causes."
                )

    # ------------------------------------------------------------------ outcomes

    def table_outcome(self, frame: pd.DataFrame, n_causes: int | None = None) -> Outcome:
        """The outcome of a whole table in memory."""
        self.check_columns(list(frame.columns))
        events = [] if self.event is None else [frame[self.event].reset_index(drop=True)]
        roles = self.checked(events, n_causes)
        weight, group = (None if name is None else frame[name] for name in (self.weight, self.group))
        made = check_outcome(roles._surv(frame), sample_weight=weight, groups=group)
        return made.filled(["cause"]) if roles.n_causes > 1 else made

    def outcome(self, frame: pd.DataFrame) -> Outcome:
        """The outcome of some rows; every block has the same fields, without ``group`` (see `subject_names`)."""
        with _rows_from(frame):
            weight = None if self.weight is None else frame[self.weight]
            made = check_outcome(self._surv(frame), sample_weight=weight)
        if weight is not None:  # as they are: their mean over all rows is not known here
            made = replace(made, weight=weight.to_numpy(dtype=np.float64))
        return self.with_fields(made)

    def _surv(self, frame: pd.DataFrame) -> npt.NDArray[np.void]:
        if self.event is not None and self.event_value is not None:
            frame = frame.assign(**{self.event: self._coded(frame[self.event])})
        columns = {role: getattr(self, role) for role in ("event", "time", "entry", "lower", "upper")}
        several = self.n_causes > 1 and self.lower is None
        return Surv.from_columns(frame, **columns, causes=self.n_causes if several else None)

    def with_fields(self, outcome: Outcome) -> Outcome:
        """An outcome with all fields that rows of this table have, including those that are empty in these rows."""
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

    def _coded(self, column: pd.Series) -> npt.NDArray[Any]:
        """Whether each row had the event, or its cause, by the values that mean an event."""
        places, distinct = pd.factorize(column)
        causes = {value: place + 1 for place, value in enumerate(self.event_value or ())}
        codes = np.array([causes.get(_word(value), 0) for value in distinct], dtype=np.int64)[places]
        return codes if len(causes) > 1 else np.asarray(codes > 0)

    def counted(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """The rows whose weight is not zero."""
        n_kept = 0
        for frame in frames:
            kept = frame if self.weight is None else frame[frame[self.weight] != 0]
            n_kept += len(kept)
            if len(kept):
                yield kept
        if n_kept == 0:
            check_outcome(Outcome(np.zeros(1, dtype=bool), np.zeros(1)), sample_weight=np.zeros(1))

    def subject_names(self, frame: pd.DataFrame) -> npt.NDArray[Any]:
        """The subject of each row; the row number if each row is a subject of its own."""
        if self.group is None:
            return np.asarray(frame.index)
        column = frame[self.group]
        if column.isna().any():
            with _rows_from(frame):
                check_groups(column, len(column))
        return np.asarray(column)


def _word(value: Any) -> str:
    """A value as users write it on a command line."""
    return f"{value:g}" if isinstance(value, float) else str(value)


@contextmanager
def _rows_from(rows: pd.DataFrame | pd.Series) -> Iterator[None]:
    """Error messages inside say from which row they count, if not from the first row of the table."""
    try:
        yield
    except ValueError as error:
        first = rows.index[0] if len(rows) else 0
        raise ValueError(f"{error} (Rows are counted from row {first:,} of the table.)" if first else error) from None
