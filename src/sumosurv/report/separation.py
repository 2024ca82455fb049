"""The section on whom the model separates: groups by predicted risk, and groups by category."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sumosurv.nonparametric import aalen_johansen, confidence_band
from sumosurv.outcome import Outcome
from sumosurv.plots import plot_kaplan_meier, plot_risk_groups
from sumosurv.report.data import frame_of
from sumosurv.report.document import Note, Section, Table, attempt, count, in_percent, shown
from sumosurv.report.drawing import draw
from sumosurv.report.given import Given

__all__ = ["separation_section", "small_groups"]

_MOST_LEVELS, _MOST_COLUMNS = 8, 6
_FEW_ROWS, _FEW_EVENTS = 50, 10


def separation_section(given: Given) -> Section:
    """Groups of subjects: what is predicted for them, and what happened."""
    section = Section("groups", "Risk groups")
    if not given.exact:
        section.items.append(Note("Some events are interval-censored; groups are not drawn for such data."))
        return section
    n_groups = int(np.clip(len(given.later) // 50, 2, 4))
    risk = given.own_later.cdf(given.main)
    labels = _group_labels(risk, n_groups)
    for cause in given.cause_numbers:
        section.items += attempt("Groups by risk", _by_risk, given, n_groups, cause)

    def plot(ax: Any) -> None:
        plot_kaplan_meier(given.later, by=labels, unit=given.unit, censoring=False, ax=ax)
        ax.get_legend().remove()  # the numbers at risk name the groups, in their colours

    section.items.append(
        draw(
            plot,
            f"Kaplan-Meier curves of {n_groups} groups of predicted risk, with the numbers at risk below.",
            f"Kaplan-Meier curves of groups by predicted risk at {given.time(given.main)}, with 95% "
            "confidence limits and numbers at risk.",
        ),
    )
    for cause in given.cause_numbers:
        risk = risk_of(given, cause)
        rows = [_line(given, f"group {g + 1}", _group_of(risk, n_groups) == g, risk, cause) for g in range(n_groups)]
        part = {2: "half", 3: "third", 4: "quarter"}[n_groups]
        section.summary.append(
            f"Observed risk{_of(given, cause)} at {given.time(given.main)}: {rows[0][-1]} in the {part} with the "
            f"lowest predicted risk, {rows[-1][-1]} in the {part} with the highest."
        )
        section.items.append(_table(given, f"Groups by predicted risk{_of(given, cause)}", "group", rows))
    frame = frame_of(given.X)
    if frame is not None:
        for cause in given.cause_numbers:
            rows = _by_category(given, frame, cause)
            if rows:
                section.items.append(_table(given, f"Groups by category{_of(given, cause)}", "category", rows))
    return section


def risk_of(given: Given, cause: int | None) -> Any:
    """The predicted risk of each row at the main horizon."""
    if cause is None:
        return given.own_later.cdf(given.main)
    return given.own_later.cumulative_incidence(given.main)[:, cause - 1]


def small_groups(given: Given) -> list[str]:
    """Categories of which too little was seen to say how the model does there."""
    frame = frame_of(given.X)
    if frame is None:
        return []
    found = []
    for name, level, rows in _levels(frame, every=True):
        events = int(given.outcome.had_event[rows].sum())
        if rows.sum() < _FEW_ROWS or events < _FEW_EVENTS:
            found.append(f"{name} = {level} ({count(int(rows.sum()), 'row')}, {count(events, 'event')})")
    return found


def _by_risk(given: Given, count: int, cause: int | None) -> Any:
    if cause is None:
        return draw(
            lambda ax: plot_risk_groups(given.own_later, given.later, groups=count, unit=given.unit, ax=ax),
            f"Predicted survival and Kaplan-Meier curves of {count} groups of predicted risk.",
            "Groups of equal size by predicted survival: mean prediction (dashed) and what was observed "
            "(Kaplan-Meier, solid). The further apart the groups, the better the model discriminates; the closer "
            "dashed and solid lines, the better it is calibrated.",
        )
    label = given.of_cause(cause)
    return draw(
        lambda ax: plot_risk_groups(
            given.own_later,
            given.later,
            cause=cause,
            groups=count,
            label=label,
            unit=given.unit,
            ax=ax,
        ),
        f"Predicted incidence of {label} and Aalen-Johansen estimates of {count} groups of predicted risk.",
        f"Groups of equal size by predicted incidence of {label}: mean prediction (dashed) and what "
        "was observed (Aalen-Johansen, solid).",
        formulas=False,
    )


def _group_of(risk: Any, count: int) -> Any:
    place = np.empty(len(risk), dtype=int)
    for g, rows in enumerate(np.array_split(np.argsort(risk, kind="stable"), count)):
        place[rows] = g
    return place


def _group_labels(risk: Any, count: int) -> pd.Series:
    ends = {0: " (lowest risk)", count - 1: " (highest risk)"}
    return pd.Series([f"group {g + 1}{ends.get(g, '')}" for g in _group_of(risk, count)], name="group")


def _levels(frame: pd.DataFrame, *, every: bool = False) -> list[tuple[str, str, Any]]:
    found, used = [], 0
    for j, name in enumerate(frame.columns):
        column = frame.iloc[:, j]
        values = column.dropna().unique()
        few = len(values) <= _MOST_LEVELS
        if not few or len(values) < 2 or (not every and used >= _MOST_COLUMNS):
            continue
        used += 1
        found += [
            (shown(str(name)), shown(value), (column == value).to_numpy(dtype=bool))
            for value in sorted(values, key=str)
        ]
    return found


def _by_category(given: Given, frame: pd.DataFrame, cause: int | None) -> list[list[str]]:
    risk = risk_of(given, cause)
    return [_line(given, f"{name} = {level}", rows, risk, cause) for name, level, rows in _levels(frame)]


def _line(given: Given, label: str, rows: Any, risk: Any, cause: int | None) -> list[str]:
    outcome = given.later[rows]
    events = outcome.had_event if cause is None else np.asarray(outcome.cause == cause)
    predicted = float(np.average(risk[rows], weights=outcome.weights)) if rows.any() else np.nan
    observed = _observed(outcome, given.main, cause, len(given.causes)) if rows.any() else "–"
    return [label, f"{int(rows.sum()):,}", f"{int(events.sum()):,}", in_percent(predicted), observed]


def _observed(outcome: Outcome, time: float, cause: int | None, n_causes: int) -> str:
    """The observed risk with 95% limits; nothing past the last time of the group."""
    if time > outcome.time.max():
        return "follow-up too short"
    if cause is None:
        band = confidence_band(outcome.any_cause())
        before = band[band["time"] <= time]
        if before.empty:
            return in_percent(0.0)
        estimate, low, high = 1.0 - before.iloc[-1][["estimate", "upper", "lower"]].to_numpy(dtype=float)
    else:
        if not (np.asarray(outcome.cause == cause) & (outcome.time <= time)).any():
            return in_percent(float(aalen_johansen(outcome, causes=n_causes).incidence_at(time)[0, cause - 1]))
        band = confidence_band(outcome, "aalen_johansen")
        before = band[(band["cause"] == cause) & (band["time"] <= time)]
        estimate, low, high = before.iloc[-1][["estimate", "lower", "upper"]].to_numpy(dtype=float)
    limits = "" if np.isnan(low) else f" ({in_percent(low)} to {in_percent(high)})"
    return f"{in_percent(estimate)}{limits}"


def _table(given: Given, caption: str, head: str, rows: list[list[str]]) -> Table:
    at = given.time(given.main)
    heading = [head, "rows", "events", f"predicted risk at {at}", f"observed risk at {at} (95% limits)"]
    return Table(caption, heading, rows)


def _of(given: Given, cause: int | None) -> str:
    return "" if cause is None else f": {given.of_cause(cause)}"
