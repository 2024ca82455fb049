"""What was observed of each subject: the record that every part of the library reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import KFold, StratifiedKFold

OUTCOME_DTYPE = np.dtype([("event", np.bool_), ("time", np.float64)])

SurvArray = npt.NDArray[np.void]  # structured; of dtype OUTCOME_DTYPE (scikit-survival's form) without entry and causes

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

_EVENTS_PER_TIME = 5.0  # from so many on, on average, ties tell more than the times themselves
_ROUNDED = 0.01  # of a cell: how far a recorded time may be off its grid


@dataclass(frozen=True, eq=False)
class Outcome:
    """The observed outcomes of n rows: one array per field, checked by `check_outcome`.

    All other modules read outcomes from this record. `__getitem__`, `on_time_scale` and `join` handle every field, so a
    new field needs no changes in functions that take an outcome. A field is None if it is not needed: all rows enter at
    zero, there are no intervals, or there is one cause.

    Parameters
    ----------
    event : bool array of shape (n,)
        Whether the event was observed exactly at ``time``.
    time : float64 array of shape (n,)
        Time of the event, or the last time at which the row was known to be event-free.
    entry : float64 array of shape (n,), optional
        The row is at risk in (entry, time], given that it was event-free at entry. None: zero.
    upper : float64 array of shape (n,), optional
        The event lies in (time, upper]. ``upper`` is inf for right-censored rows and equals ``time`` for exact events.
        None: there are no interval-censored rows.
    cause : int64 array of shape (n,), optional
        1 to K, the cause of the event; 0 for right-censored rows. None: there is one cause.
    weight : float64 array of shape (n,), optional
        Number of rows that each row represents. None: one.
    group : int64 array of shape (n,), optional
        The subject of each row. None: each row is a separate subject.
    """

    event: npt.NDArray[np.bool_]
    time: Floats
    entry: Floats | None = None
    upper: Floats | None = None
    cause: Whole | None = None
    weight: Floats | None = None
    group: Whole | None = None

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, rows: Any) -> Self:
        """Some of the rows: a slice, row numbers or a mask."""
        return type(self)(**each_field(lambda values: values[rows], self))

    def on_time_scale(self, origin: float = 0.0, unit: float = 1.0) -> Self:
        """The same rows with times counted from another origin, in another unit: (time - origin) / unit."""
        entry = None if self.entry is None else np.maximum((self.entry - origin) / unit, 0.0)
        upper = None if self.upper is None else (self.upper - origin) / unit
        return replace(self, time=(self.time - origin) / unit, entry=entry, upper=upper)

    # ------------------------------------------------------------------ what follows from the fields

    @property
    def weights(self) -> Floats:
        """One weight per row; ones if no weights were given."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @property
    def entries(self) -> Floats:
        """One entry time per row; zeros if no entries were given."""
        return np.zeros(len(self)) if self.entry is None else self.entry

    @property
    def total(self) -> float:
        """The number of rows, or the sum of their weights."""
        return float(len(self)) if self.weight is None else float(self.weight.sum())

    @property
    def subject(self) -> npt.NDArray[np.intp]:
        """The number of the subject that each row belongs to, counted from zero in the order of ``group``."""
        return np.arange(len(self)) if self.group is None else np.unique(self.group, return_inverse=True)[1]

    @property
    def subject_event(self) -> Whole:
        """The cause of the event of each subject, 0 if it had none; any event is 1 if causes are not distinguished."""
        event = self.had_event.astype(np.int64) if self.cause is None else self.cause
        if self.group is None:
            return event
        subject = self.subject
        largest = np.zeros(int(subject.max()) + 1, dtype=np.int64)
        np.maximum.at(largest, subject, event)
        return largest

    def folds(self, n_folds: int, seed: int) -> list[npt.NDArray[np.intp]]:
        """Draw the held-out rows of each fold of a cross-validation.

        Subjects are held out with all of their rows. Folds have the same proportion of each cause, or of events if a
        cause is rarer than the folds.
        """
        subject, kind = self.subject, self.subject_event
        fits = [labels for labels in (kind, kind > 0) if np.unique(labels, return_counts=True)[1].min() >= n_folds]
        splitter = StratifiedKFold if fits else KFold
        folds = splitter(n_folds, shuffle=True, random_state=seed).split(kind, fits[0] if fits else None)
        return [np.flatnonzero(np.isin(subject, held_out)) for _, held_out in folds]

    @property
    def time_order(self) -> npt.NDArray[np.intp]:
        """The rows in the order of time, events before censorings among ties."""
        return np.lexsort((~self.event, self.time))

    @property
    def in_interval(self) -> npt.NDArray[np.bool_]:
        """Which rows have an interval-censored event."""
        if self.upper is None:
            return np.zeros(len(self), dtype=np.bool_)
        return np.asarray(np.isfinite(self.upper) & ~self.event)

    @property
    def had_event(self) -> npt.NDArray[np.bool_]:
        """Which rows are known to have had the event, whether its time is known exactly or not."""
        return self.event if self.upper is None else self.event | self.in_interval

    @property
    def last_time(self) -> float:
        """The largest finite time of all."""
        largest = float(self.time.max())
        if self.upper is None:
            return largest
        return max(largest, float(self.upper.max(initial=0.0, where=np.isfinite(self.upper))))

    @property
    def n_causes(self) -> int:
        """The largest cause among the rows; 1 if causes are not distinguished."""
        return 1 if self.cause is None else max(1, int(self.cause.max()))

    def at_midpoints(self) -> Self:
        """The same rows with interval-censored events at the midpoints: for starting values, not for likelihoods."""
        if self.upper is None:
            return self
        inside = self.in_interval
        time = np.where(inside, 0.5 * (self.time + np.where(inside, self.upper, self.time)), self.time)
        return replace(self, event=self.event | inside, time=time, upper=None)

    def of_cause(self, k: int) -> Self:
        """The same rows with cause k as the event and all others as censoring."""
        if self.cause is None:
            return self
        own = self.cause == k
        upper = self.upper
        if upper is not None:
            upper = np.where(own, upper, np.inf)
        return replace(self, event=self.event & own, upper=upper, cause=None)

    def since_entry(self) -> Self:
        """The same rows with time since entry; unchanged if all rows enter at zero."""
        if self.entry is None:
            return self
        upper = None if self.upper is None else self.upper - self.entry
        return replace(self, time=self.time - self.entry, upper=upper, entry=None)

    def any_cause(self) -> Self:
        """The same rows without distinguishing causes."""
        return replace(self, cause=None)

    def array(self) -> SurvArray:
        """The structured array that `Surv` builds, without weights and groups."""
        first: dict[str, Any] = {"event": self.event if self.cause is None else self.cause, "time": self.time}
        if self.upper is not None:
            first = {"lower": self.time, "upper": self.upper}
            first |= {} if self.cause is None else {"event": self.cause}
        if self.entry is not None:
            first["entry"] = self.entry
        made = np.empty(len(self), dtype=[(name, values.dtype) for name, values in first.items()])
        for name, values in first.items():
            made[name] = values
        return made

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The rows of several outcomes, concatenated; a field that is None in only some outcomes is filled in."""
        names = [field.name for field in fields(cls) if any(getattr(part, field.name) is not None for part in parts)]
        return cls(**{name: np.concatenate([part._filled(name) for part in parts]) for name in names})

    def filled(self, names: Sequence[str]) -> Self:
        """The same rows with these fields filled in if they are None."""
        return replace(self, **{name: self._filled(name) for name in names})

    def _filled(self, name: str) -> Any:
        """A field, or the values that None stands for."""
        values = getattr(self, name)
        if values is not None:
            return values
        return {
            "entry": self.entries,
            "upper": np.where(self.event, self.time, np.inf),
            "cause": self.had_event.astype(np.int64),
            "weight": self.weights,
            "group": -1 - np.arange(len(self), dtype=np.int64),
        }[name]


def each_field(function: Callable[..., Any], *records: Any) -> dict[str, Any]:
    """Apply a function to each field of some records of one class, by name; None if the field is None in all."""
    made = {}
    for field in fields(records[0]):
        values = [getattr(record, field.name) for record in records]
        absent = [value is None for value in values]
        if any(absent) and not all(absent):
            raise ValueError(f"{field.name!r} is given for some of the rows; give it for all of them or for none.")
        made[field.name] = None if all(absent) else function(*values)
    return made


@dataclass(frozen=True)
class Cells:
    """Rounded times: a recorded time t stands for the cell (t - width + ahead, t + ahead].

    With ``ahead=0`` a time is the end of its cell, like a number of completed periods. The probability that the
    recorded time exceeds t is then S(t), as Kaplan-Meier and all scores assume. If a time of zero was recorded, or if
    all times lie midway between multiples of the width, a time is the middle of its cell.
    """

    width: float
    ahead: float

    @classmethod
    def of_width(cls, outcome: Outcome, width: float) -> Cells:
        """Cells of a given width."""
        remainder = outcome.time / width - np.floor(outcome.time / width)
        midway = bool((np.abs(remainder - 0.5) < _ROUNDED).all())
        return cls(float(width), 0.5 * float(width) if midway or bool((outcome.time == 0).any()) else 0.0)

    @classmethod
    def found(cls, outcome: Outcome) -> Cells | None:
        """The cells of times on an even grid with at least five events per recorded time on average; otherwise None."""
        if outcome.upper is not None or not outcome.event.any():
            return None
        weight = None if outcome.weight is None else outcome.weight[outcome.event]
        events = int(outcome.event.sum()) if weight is None else float(weight.sum())
        if events < _EVENTS_PER_TIME * len(np.unique(outcome.time[outcome.event])):
            return None
        width = _grid_step(np.unique(outcome.time))
        return None if width is None else cls.of_width(outcome, width)

    def of(self, outcome: Outcome) -> Outcome:
        """The same rows with each event in its cell, no earlier than its entry."""
        lower = np.maximum(outcome.time - self.width + self.ahead, 0.0)
        if outcome.entry is not None:
            lower = np.maximum(lower, outcome.entry)
        upper = outcome.time + self.ahead
        event = outcome.event & (upper > lower)
        ends = np.where(outcome.event, outcome.time, np.inf) if outcome.upper is None else outcome.upper
        return replace(
            outcome,
            event=outcome.event & ~event,
            time=np.where(event, lower, outcome.time),
            upper=np.where(event, upper, ends),
        )

    def widths(self, outcome: Outcome) -> Floats:
        """The width of the cell of each event, by which its probability is divided; 1 for rows without an event."""
        inside = self.of(outcome)
        cell = inside.in_interval & outcome.event
        assert inside.upper is not None
        return np.where(cell, np.where(cell, inside.upper, 1.0) - np.where(cell, inside.time, 0.0), 1.0)


def _grid_step(times: Floats) -> float | None:
    """The step of an even grid, from 0 or from half a step, on which sorted times lie, or None."""
    positive = times[times > 0]
    if len(positive) < 2:  # one time tells no step
        return None
    step = float(np.diff(positive).min())
    # the smallest difference is rounded more coarsely than the whole range
    step = float((positive[-1] - positive[0]) / round((positive[-1] - positive[0]) / step))
    places = positive / step
    on_grid = np.abs(places - np.round(places)).max() < _ROUNDED
    midway = np.abs(places - np.floor(places) - 0.5).max() < _ROUNDED and len(positive) == len(times)
    return step if on_grid or midway else None
