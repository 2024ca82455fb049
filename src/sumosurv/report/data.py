"""The section on the data: rows, events, follow-up, columns, missing values, values unlike those of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.plots import plot_kaplan_meier
from sumosurv.report.document import Note, Section, Table, attempt, count, in_percent, number, shown
from sumosurv.report.drawing import draw
from sumosurv.report.given import Given

__all__ = ["data_section", "frame_of"]

_MOST_COLUMNS = 60


def data_section(given: Given) -> Section:
    """What the rows are."""
    section = Section("data", "Data")
    outcome = given.outcome
    section.summary.append(
        f"{count(len(outcome), 'row')} with {count(int(outcome.had_event.sum()), 'event')}. Horizons: "
        f"{', '.join(given.time(float(t)) for t in given.times)}."
    )
    section.items.append(Table("Rows used for the evaluation", ["", ""], _facts(given, outcome)))
    frame = frame_of(given.X)
    if frame is None:
        section.items.append(
            Note(f"Each row is an array of shape {given.X.shape[1:]}; there are no columns to describe.")
        )
    else:
        section.items.append(_columns(frame))
        if frame.shape[1] > _MOST_COLUMNS:
            section.items.append(Note(f"Only the first {_MOST_COLUMNS} of {frame.shape[1]} columns are listed."))
    if given.exact:
        what = "Proportion without any event" if given.causes else "Proportion without the event"
        section.items += attempt(
            "Kaplan-Meier curve",
            lambda: draw(
                lambda ax: plot_kaplan_meier(given.later, unit=given.unit, censoring=False, ax=ax),
                f"Kaplan-Meier curve of all rows: {_curve_in_words(given)}.",
                f"{what} over time (Kaplan-Meier), with 95% confidence limits and numbers at risk. "
                f"{_curve_in_words(given)}.",
            ),
        )
    return section


def frame_of(X: Any) -> pd.DataFrame | None:
    """The rows as a table; None where they are images or sequences."""
    if isinstance(X, pd.DataFrame):
        return X
    return pd.DataFrame(np.asarray(X)).rename(columns=str) if np.ndim(X) == 2 else None


def _facts(given: Given, outcome: Outcome) -> list[list[str]]:
    rows = [["rows", f"{len(outcome):,}"]]
    if outcome.weight is not None:
        rows.append(["sum of weights", number(outcome.total)])
    if outcome.group is not None:
        rows.append(["subjects", f"{len(np.unique(outcome.group)):,}"])
    if outcome.cause is None:
        rows.append(["events", f"{outcome.had_event.sum():,} ({in_percent(outcome.had_event.mean())})"])
    for k, name in enumerate(given.causes, 1):
        own = np.asarray(outcome.cause == k)
        rows.append([f"events: {name}", f"{own.sum():,} ({in_percent(np.mean(own))})"])
    if outcome.upper is not None:
        inside = outcome.in_interval
        rows.append(["interval-censored events", f"{inside.sum():,} ({in_percent(inside.mean())})"])
    if outcome.entry is not None:
        late = outcome.entry > 0
        rows.append(["rows with late entry", f"{late.sum():,} ({in_percent(late.mean())})"])
    followed = _median_follow_up(given)
    rows.append(["median follow-up (reverse Kaplan-Meier)", followed])
    rows.append(["longest follow-up", given.time(outcome.last_time)])
    rows.append(["end of follow-up of the training rows", given.time(float(given.estimator.last_time_))])
    return rows


def _median_follow_up(given: Given) -> str:
    if not given.exact:
        return "not defined for interval-censored rows"
    median = float(kaplan_meier(given.later.any_cause(), censoring=True).median()[0])
    return given.time(median) if np.isfinite(median) else "not reached"


def _curve_in_words(given: Given) -> str:
    curve = kaplan_meier(given.later.any_cause())
    parts = [f"{in_percent(float(curve.survival(float(t))[0]))} at {given.time(float(t))}" for t in given.times]
    since = " after entry" if given.outcome.entry is not None else ""
    return f"Without an event{since}: {', '.join(parts)}"


def _columns(frame: pd.DataFrame) -> Table:
    rows = []
    for j, name in enumerate(frame.columns[:_MOST_COLUMNS]):
        column = frame.iloc[:, j]
        present = column.dropna()
        missing = f"{column.isna().sum():,} ({in_percent(column.isna().mean())})"
        two_values = 0 < present.nunique() <= 2  # an indicator, whatever its type
        if pd.api.types.is_numeric_dtype(column) and not (pd.api.types.is_bool_dtype(column) or two_values):
            low, middle, high = (number(present.quantile(q)) for q in (0.0, 0.5, 1.0)) if len(present) else ("–",) * 3
            values = f"{low} to {high}, median {middle}"
        else:
            counts = present.map(shown).value_counts()
            listed = [f"{shown(level)} {in_percent(count / len(present))}" for level, count in counts.head(5).items()]
            values = ", ".join(listed) + (f", and {len(counts) - 5} more" if len(counts) > 5 else "")
        rows.append([shown(str(name)), values, missing])
    return Table("Columns", ["column", "values", "missing"], rows, text_columns=2)
