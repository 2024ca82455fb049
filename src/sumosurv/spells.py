"""Start-stop rows for time-varying covariates: `merge` builds, `split` divides and `landmark` selects them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome.checks import check_event_codes, names_in_words
from sumosurv.warn import warn_user

__all__ = ["landmark", "merge", "split"]

_Ints = npt.NDArray[np.intp]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]
_OUTCOME = ("start", "stop", "event")


def merge(
    baseline: pd.DataFrame,
    *,
    id: Hashable,
    stop: Hashable,
    event: Hashable,
    start: Hashable | None = None,
    covariates: pd.DataFrame | Sequence[pd.DataFrame] = (),
    counts: Mapping[str, pd.DataFrame] | None = None,
    indicators: Mapping[str, pd.DataFrame] | None = None,
    time: Hashable = "time",
    lag: float | Mapping[Any, float] = 0.0,
) -> pd.DataFrame:
    """Build (start, stop] rows from one row per subject and tables of dated measurements and events.

    A new row starts whenever a value is measured or an event is counted. A value dated t applies after t, in (t, ...],
    so that no row uses information from its future. The first row holds the values dated at or before the start of
    follow-up. Dates at the end of follow-up have no effect; later ones are ignored with a warning.

    Parameters
    ----------
    baseline : DataFrame
        One row per subject. Columns without a role are repeated in all rows of the subject.
    id, stop, event : column names
        The subject, the end of follow-up, and the event at that time: 0 or False for censoring, 1 or True for an event,
        or the number of the cause. The event is in the last row of the subject, and the other rows have 0.
    start : column name, optional
        The start of follow-up (delayed entry). By default 0 for all subjects.
    covariates : DataFrame or sequence of DataFrames
        Measurements: columns ``id``, ``time`` and one or more values. The last value is carried forward; missing
        values are skipped. Before the first measurement, the value is taken from the column with the same name in
        ``baseline``; without such a column, it is missing. Use several tables for values with different times.
    counts : mapping of names to DataFrames, optional
        Dated events, one per row, with columns ``id`` and ``time``. The new column is the number of events so far.
    indicators : mapping of names to DataFrames, optional
        As ``counts``, but the new column is 1 after the first event and 0 before.
    time : column name
        The times in all of these tables, in the unit and from the origin of ``stop``. Default ``"time"``.
    lag : float or mapping of column names to floats, default 0.0
        A value dated t applies only after t + lag. A mapping sets the lag of individual columns.

    Returns
    -------
    DataFrame
        Columns ``id``, ``start``, ``stop``, ``event``, the other columns of ``baseline``, and the new columns, with the
        subjects in the order of ``baseline``.

    Examples
    --------
    >>> patients = pd.DataFrame({"id": [1, 2], "end": [9.0, 5.0], "died": [1, 0], "age": [61, 54]})
    >>> visits = pd.DataFrame({"id": [1, 1, 2], "time": [0.0, 4.0, 0.0], "bilirubin": [1.1, 2.7, 0.8]})
    >>> infections = pd.DataFrame({"id": [1, 1], "time": [4.0, 6.0]})
    >>> rows = merge(patients, id="id", stop="end", event="died", covariates=visits, counts={"infections": infections})
    >>> rows
       id  start  stop  event  age  bilirubin  infections
    0   1    0.0   4.0      0   61        1.1           0
    1   1    4.0   6.0      0   61        2.7           1
    2   1    6.0   9.0      1   61        2.7           2
    3   2    0.0   5.0      0   54        0.8           0

    The rows are fitted with ``y = Surv.from_columns(rows, event="event", time="stop", entry="start")`` and
    ``model.fit(X, y, groups=rows["id"])``.
    """
    roles = {role: name for role, name in zip(_OUTCOME, (start, stop, event), strict=True) if name is not None}
    _require_columns(baseline, [id, *roles.values()], "baseline")
    if clash := [name for name in _OUTCOME if name in baseline.columns and name not in (id, *roles.values())]:
        raise ValueError(f"baseline has a column {clash[0]!r}, which merge writes; rename it, or pass {clash[0]}=.")
    subjects = baseline[id]
    _check_ids(subjects, "baseline")
    _refuse(subjects, subjects.duplicated(), "has more than one row", "baseline", "Keep one row per subject.")
    frame = pd.DataFrame({id: subjects.array})
    frame["start"] = 0.0 if start is None else _times(baseline, start, subjects, "baseline")
    frame["stop"] = _times(baseline, stop, subjects, "baseline")
    frame["event"] = _events(baseline, event, subjects, "baseline")
    _check_order(frame, id, "baseline")
    frame = frame.join(baseline.drop(columns=list({id, *roles.values()})).reset_index(drop=True))

    measured = [covariates] if isinstance(covariates, pd.DataFrame) else list(covariates)
    tables = [("covariates" if len(measured) == 1 else f"covariates[{i}]", table) for i, table in enumerate(measured)]
    dated = [("counts", name, table) for name, table in (counts or {}).items()]
    dated += [("indicators", name, table) for name, table in (indicators or {}).items()]
    tables += [(f"{option}[{name!r}]", table) for option, name, table in dated]
    ends = frame.set_index(id)["stop"]
    for label, table in tables:
        _check_table(table, label, id, time, ends)
    numbered = [_numbered(table, id, time, name, cumulative=option == "counts") for option, name, table in dated]
    zero_at_first = {name for _, name, _ in dated}
    if used := zero_at_first.intersection(frame.columns):
        raise ValueError(f"The name {used.pop()!r} is already in use; choose another one for the new column.")

    changes: dict[Hashable, tuple[_Ints, _Floats, Any]] = {}
    for table in (*measured, *numbered):
        for name in table.columns.drop([id, time]):
            if name in changes or name in (id, *_OUTCOME):
                raise ValueError(f"The name {name!r} is already in use; rename the column of values.")
            known = table[table[name].notna()]
            again = known.duplicated([id, time])
            _refuse(known[id], again, "has two values at one time", repr(name), "Keep one of them, or their mean.")
            known = known.sort_values(time, kind="stable")
            row = ends.index.get_indexer(known[id])
            order = np.argsort(row, kind="stable")
            at = known[time].to_numpy(dtype=np.float64) + _lag(lag, name)
            changes[name] = row[order], at[order], known[name].iloc[order]
    if isinstance(lag, Mapping) and (unknown := [name for name in lag if name not in changes]):
        raise ValueError(f"lag names {names_in_words(unknown)}, which is not a new column; check the name.")

    rows = np.concatenate([np.empty(0, dtype=np.intp), *(row for row, _, _ in changes.values())])
    made = _cut(frame, rows, np.concatenate([np.empty(0), *(at for _, at, _ in changes.values())]))
    for name, (row, at, values) in changes.items():
        place = _last_at_or_before(row, at, made.index.to_numpy(), made["start"].to_numpy())
        pool = values.reset_index(drop=True)
        if name in frame.columns:  # values of baseline have the labels -1, -2, ...
            initial = frame[name].dropna()
            initial.index = -1 - initial.index
            pool = pd.concat([part for part in (pool, initial) if len(part)] or [pool])
        place = np.where(place < 0, -1 - made.index, place)
        made[name] = pool.reindex(place, fill_value=0 if name in zero_at_first else np.nan).array
    return made.reset_index(drop=True)


def split(frame: pd.DataFrame, cuts: Any, *, id: Hashable, period: str | None = None) -> pd.DataFrame:
    """Divide (start, stop] rows at fixed times, as R's ``survSplit``: for effects that differ between periods.

    Parameters
    ----------
    frame : DataFrame
        Rows with the columns ``start``, ``stop`` and ``event``, as `merge` returns them.
    cuts : number or sequence of numbers
        The times. A row that contains a cut c becomes (start, c], without an event, and (c, stop].
    id : column name
        The subject.
    period : str, optional
        The name of a new column with the number of the period, 1 before the first cut. By default no column is added.

    Returns
    -------
    DataFrame
        The rows, in the order of ``frame``.

    Examples
    --------
    >>> rows = pd.DataFrame({"id": [1, 2], "start": [0.0, 0.0], "stop": [9.0, 5.0], "event": [1, 0]})
    >>> split(rows, [6.0], id="id", period="period")
       id  start  stop  event  period
    0   1    0.0   6.0      0       1
    1   1    6.0   9.0      1       2
    2   2    0.0   5.0      0       1
    """
    frame = _check_frame(frame, id)
    at = np.unique(np.asarray(cuts, dtype=np.float64))
    if not np.isfinite(at).all():
        raise ValueError(f"cuts must be finite numbers; got {cuts!r}.")
    if period is not None and period in frame.columns:
        raise ValueError(f"frame has a column {period!r} already; choose another name for period.")
    made = _cut(frame, np.repeat(np.arange(len(frame)), len(at)), np.tile(at, len(frame)))
    if period is not None:
        made[period] = 1 + np.searchsorted(at, made["start"].to_numpy(), side="right")
    return made.reset_index(drop=True)


def landmark(frame: pd.DataFrame, time: float, *, id: Hashable) -> pd.DataFrame:
    """Subjects at risk at a landmark, with the values known at that time, and their outcome from then on.

    Parameters
    ----------
    frame : DataFrame
        Rows with the columns ``start``, ``stop`` and ``event``, as `merge` returns them.
    time : float
        The landmark. Values measured at this time are known.
    id : column name
        The subject.

    Returns
    -------
    DataFrame
        One row per subject with start <= ``time`` < stop. ``start`` is the landmark, and ``stop`` and ``event`` are
        those of the first event after it, or of the end of uninterrupted follow-up.

    Examples
    --------
    >>> rows = pd.DataFrame({"id": [1, 1, 2], "start": [0.0, 4.0, 0.0], "stop": [4.0, 9.0, 3.0], "event": [0, 1, 0]})
    >>> landmark(rows.assign(bilirubin=[1.1, 2.7, 0.8]), 3.0, id="id")
       id  start  stop  event  bilirubin
    0   1    3.0   9.0      1        1.1
    """
    frame = _check_frame(frame, id)
    if not np.isfinite(time):
        raise ValueError(f"The landmark must be a finite number; got {time!r}.")
    ordered = frame.sort_values("start", kind="stable")
    after = ordered.groupby(id, observed=True)["start"].shift(-1)
    ends = ordered[(ordered["event"] != 0) | (after != ordered["stop"])]
    ends = ends[ends["stop"] > time].drop_duplicates(id).set_index(id)
    made = frame[(frame["start"] <= time) & (frame["stop"] > time)].reset_index(drop=True)
    made["start"] = float(time)
    for name in ("stop", "event"):
        made[name] = ends.loc[made[id], name].array
    return made


def _cut(frame: pd.DataFrame, rows: _Ints, times: _Floats) -> pd.DataFrame:
    """Divide each row at its times; the index of the result is the place of the original row."""
    start, stop = frame["start"].to_numpy(), frame["stop"].to_numpy()
    inside = (times > start[rows]) & (times < stop[rows])
    owner = np.concatenate([np.arange(len(frame)), rows[inside]])
    begin = np.concatenate([start, times[inside]])
    order = np.lexsort((begin, owner))
    owner, begin = owner[order], begin[order]
    new = np.ones(len(owner), dtype=bool)
    new[1:] = (owner[1:] != owner[:-1]) | (begin[1:] != begin[:-1])
    owner, begin = owner[new], begin[new]
    last = np.append(owner[1:] != owner[:-1], True)[: len(owner)]
    end = np.where(last, stop[owner], np.append(begin[1:], 0.0)[: len(owner)])
    made = frame.iloc[owner].set_axis(owner)
    return made.assign(start=begin, stop=end, event=frame["event"].to_numpy()[owner] * last)


def _last_at_or_before(row: _Ints, at: _Floats, owner: _Ints, begin: _Floats) -> _Ints:
    """The place of the last measurement of each owner at or before a time, or -1; measurements are sorted."""
    rank = np.unique(np.concatenate([at, begin]), return_inverse=True)[1]
    width = len(rank) + 1
    place = np.searchsorted(row * width + rank[: len(at)], owner * width + rank[len(at) :], side="right") - 1
    found = place >= 0
    found[found] = row[place[found]] == owner[found]
    return np.where(found, place, -1)


def _numbered(table: pd.DataFrame, id: Hashable, time: Hashable, name: str, *, cumulative: bool) -> pd.DataFrame:
    """Dated events as measurements: how many there were so far, or 1 from the first event on."""
    made = table.groupby([id, time], observed=True).size().rename(name).reset_index()
    if not cumulative:
        return made.drop_duplicates(id).assign(**{name: 1})
    return made.assign(**{name: made.groupby(id, observed=True)[name].cumsum()})


def _lag(lag: float | Mapping[Any, float], name: Hashable) -> float:
    value = lag.get(name, 0.0) if isinstance(lag, Mapping) else lag
    if not 0.0 <= value < np.inf:
        raise ValueError(f"lag must be a number >= 0; got {value!r} for {name!r}.")
    return value


def _refuse(subjects: Any, wrong: Any, what: str, where: str, remedy: str = "") -> None:
    """Raise an error that names the first subject that is wrong, if there is one."""
    bad = subjects[np.asarray(wrong, dtype=bool)]
    if len(bad):
        more = f" (and {len(bad) - 1:,} more rows)" if len(bad) > 1 else ""
        raise ValueError(f"Subject {bad.tolist()[0]!r} {what} in {where}{more}. {remedy}".rstrip())


def _require_columns(frame: pd.DataFrame, names: Sequence[Hashable], where: str) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"{where} must be a DataFrame; got {type(frame).__name__}.")
    if missing := [name for name in names if name not in frame.columns]:
        raise ValueError(f"{where} has no column {missing[0]!r}; its columns are {names_in_words(frame.columns)}.")
    if not frame.columns.is_unique:
        raise ValueError(f"{where} has two columns named {frame.columns[frame.columns.duplicated()][0]!r}; rename one.")


def _check_ids(subjects: Any, where: str) -> None:
    if len(rows := np.flatnonzero(subjects.isna())):
        raise ValueError(
            f"The id is missing in {len(rows):,} rows of {where}, first in row {rows[0]}; name the subject."
        )


def _times(frame: pd.DataFrame, name: Hashable, subjects: Any, where: str) -> _Floats:
    kind = frame[name].dtype
    if (len(frame) and not pd.api.types.is_numeric_dtype(kind)) or pd.api.types.is_bool_dtype(kind):
        raise ValueError(f"{name!r} in {where} must hold numbers, the time since the origin; its type is {kind}.")
    values: _Floats = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    _refuse(
        subjects, ~np.isfinite(values), f"has a missing or infinite {name!r}", where, "Enter the time, or drop the row."
    )
    return values


def _events(frame: pd.DataFrame, name: Hashable, subjects: Any, where: str) -> npt.NDArray[Any]:
    _refuse(subjects, frame[name].isna(), f"has a missing {name!r}", where, "Enter 0 if there was no event.")
    codes = check_event_codes(frame[name], str(name))
    if np.unique(codes).tolist() == [1, 2]:  # rows without an event, which are added, would make them two causes
        warn_user(
            f"{name!r} holds 1 and 2 and no 0 (censored), and is read as two competing causes. If 2 is the event, as "
            f"in R, pass {name} == 2."
        )
    return codes


def _check_order(frame: pd.DataFrame, id: Hashable, where: str) -> None:
    late = frame["stop"] <= frame["start"]
    _refuse(frame[id], late, "has no follow-up (stop <= start)", where, "Correct the times, or drop the row.")


def _check_table(table: pd.DataFrame, label: str, id: Hashable, time: Hashable, ends: Any) -> None:
    """Require known subjects and times, and warn of rows after the end of follow-up."""
    _require_columns(table, [id, time], label)
    _check_ids(table[id], label)
    unknown = ~table[id].isin(ends.index)
    _refuse(
        table[id],
        unknown,
        "is unknown: it is not in baseline but",
        label,
        "Add the subject to baseline, or drop these rows.",
    )
    late = _times(table, time, table[id], label) > ends.loc[table[id]].to_numpy()
    if late.any():
        warn_user(
            f"{late.sum():,} of {len(table):,} rows of {label} are ignored, because they are dated after the end of "
            f"follow-up (first: subject {table[id][late].tolist()[0]!r}). Drop these rows to avoid the warning."
        )


def _check_frame(frame: pd.DataFrame, id: Hashable) -> pd.DataFrame:
    """Start-stop rows, with float times and a new index, or an error if rows of a subject overlap."""
    _require_columns(frame, [id, *_OUTCOME], "frame")
    subjects = frame[id]
    _check_ids(subjects, "frame")
    times = {name: _times(frame, name, subjects, "frame") for name in ("start", "stop")}
    frame = frame.assign(**times, event=_events(frame, "event", subjects, "frame")).reset_index(drop=True)
    _check_order(frame, id, "frame")
    ordered = frame.sort_values("start", kind="stable")
    before = ordered.groupby(id, observed=True)["stop"].shift()
    _refuse(ordered[id], ordered["start"] < before, "has overlapping rows", "frame", "Correct start and stop.")
    return frame
