"""The section on risk groups: subjects grouped by predicted risk, and by category."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sumosurv.nonparametric import aalen_johansen, confidence_band
from sumosurv.outcome import Outcome
from sumosurv.outcome.checks import how_many
from sumosurv.plots import plot_kaplan_meier, plot_risk_groups
from sumosurv.plots.curves import known_until
from sumosurv.plots.figure import at_times
from sumosurv.report.document import Picture, Section, draw, in_percent, shown
from sumosurv.report.inputs import ReportInputs

_MOST_LEVELS, _MOST_COLUMNS = 8, 6
_FEW_ROWS, _FEW_EVENTS = 50, 10


def groups_section(inputs: ReportInputs) -> Section:
    """Predicted and observed risks of groups of subjects."""
    section = Section("groups", "Risk groups")
    if not inputs.exact:
        section.note("Some events are interval-censored; groups are not drawn for such data.")
        return section
    n_groups = int(np.clip(len(inputs.since_entry) // 50, 2, 4))
    grid = np.linspace(0.0, float(inputs.since_entry.time.max()), 200)
    predicted = at_times(inputs.predicted_since_entry, grid)
    for cause in inputs.cause_numbers:
        section.attempt("Groups by risk", _by_risk, inputs, predicted, grid, n_groups, cause)
    section.items.append(_observed_curves(inputs, n_groups))
    at = inputs.time(inputs.main)
    heading = ["rows", "events", f"predicted risk at {at}", f"observed risk at {at} (95% limits)"]
    for cause in inputs.cause_numbers:
        risk, of = inputs.risk(cause), "" if cause is None else f": {inputs.event_name(cause)}"
        group = _group_numbers(risk, n_groups)
        rows = [_line(inputs, f"group {g + 1}", group == g, risk, cause) for g in range(n_groups)]
        part = {2: "half", 3: "third", 4: "quarter"}[n_groups]
        section.summary.append(
            f"Observed risk{of} at {at}: {rows[0][-1]} in the {part} with the lowest predicted risk, {rows[-1][-1]} in "
            f"the {part} with the highest."
        )
        section.table(f"Groups by predicted risk{of}", ["group", *heading], rows)
        if inputs.frame is not None:
            levels = _levels(inputs.frame, _MOST_COLUMNS)
            rows = [_line(inputs, f"{name} = {level}", chosen, risk, cause) for name, level, chosen in levels]
            if rows:
                section.table(f"Groups by category{of}", ["category", *heading], rows)
    return section


def small_groups(inputs: ReportInputs) -> list[str]:
    """Categories with too few rows or events to judge the model there."""
    found = []
    for name, level, rows in [] if inputs.frame is None else _levels(inputs.frame):
        events = int(inputs.outcome.had_event[rows].sum())
        if rows.sum() < _FEW_ROWS or events < _FEW_EVENTS:
            found.append(f"{name} = {level} ({how_many(int(rows.sum()), 'row')}, {how_many(events, 'event')})")
    return found


def _by_risk(inputs: ReportInputs, predicted: Any, grid: Any, n_groups: int, cause: int | None) -> Picture:
    label = None if cause is None else inputs.event_name(cause)
    what, observed = ("survival", "Kaplan-Meier") if label is None else (f"incidence of {label}", "Aalen-Johansen")
    return draw(
        f"Predicted {what} and {observed} curves of {n_groups} groups of predicted risk.",
        f"Groups of equal size by predicted {what}: mean prediction (dashed) and what was observed ({observed}, "
        "solid). The further apart the groups, the better the model discriminates; the closer dashed and solid lines, "
        "the better it is calibrated.",
        plot_risk_groups,
        predicted,
        inputs.since_entry,
        cause=cause,
        groups=n_groups,
        times=grid,
        label=label,
        unit=inputs.unit,
    )


def _observed_curves(inputs: ReportInputs, n_groups: int) -> Picture:
    ends = {0: " (lowest risk)", n_groups - 1: " (highest risk)"}
    group = _group_numbers(inputs.predicted_since_entry.cdf(inputs.main), n_groups)
    labels = pd.Series([f"group {g + 1}{ends.get(g, '')}" for g in group], name="group")
    return draw(
        f"Kaplan-Meier curves of {n_groups} groups of predicted risk, with the numbers at risk below.",
        f"Kaplan-Meier curves of groups by predicted risk at {inputs.time(inputs.main)}, with 95% confidence limits "
        "and numbers at risk.",
        plot_kaplan_meier,
        inputs.since_entry,
        by=labels,
        unit=inputs.unit,
        censoring=False,
        legend=False,  # the numbers at risk name the groups, in their colours
    )


def _group_numbers(risk: Any, n_groups: int) -> Any:
    """The group of each row, 0 for the lowest risks; all groups have about the same size."""
    group = np.empty(len(risk), dtype=int)
    for g, rows in enumerate(np.array_split(np.argsort(risk, kind="stable"), n_groups)):
        group[rows] = g
    return group


def _levels(frame: pd.DataFrame, most_columns: int | None = None) -> list[tuple[str, str, Any]]:
    """Column, level and rows of each level of the columns with few values."""
    columns = [frame.iloc[:, j] for j in range(frame.shape[1])]
    few = [column for column in columns if 2 <= column.nunique() <= _MOST_LEVELS]
    return [
        (shown(str(column.name)), shown(value), (column == value).to_numpy(dtype=bool))
        for column in few[:most_columns]
        for value in sorted(column.dropna().unique(), key=str)
    ]


def _line(inputs: ReportInputs, label: str, rows: Any, risk: Any, cause: int | None) -> list[str]:
    """Size, events, predicted and observed risk of a group."""
    outcome = inputs.since_entry[rows]
    events = outcome.had_event if cause is None else np.asarray(outcome.cause == cause)
    predicted = float(np.average(risk[rows], weights=outcome.weights)) if rows.any() else np.nan
    observed = _observed_risk(outcome, inputs.main, cause, len(inputs.causes)) if rows.any() else "–"
    return [label, f"{int(rows.sum()):,}", f"{int(events.sum()):,}", in_percent(predicted), observed]


def _observed_risk(outcome: Outcome, time: float, cause: int | None, n_causes: int) -> str:
    """The observed risk with 95% limits, as far as it is known."""
    if time > known_until(outcome):
        return "follow-up too short"
    if cause is None:
        band = confidence_band(outcome.any_cause())
        before = band[band["time"] <= time]
        if before.empty:
            return in_percent(0.0)
        estimate, low, high = 1.0 - before.iloc[-1][["estimate", "upper", "lower"]].to_numpy(dtype=float)
    else:
        if not (np.asarray(outcome.cause == cause) & (outcome.time <= time)).any():
            return in_percent(float(aalen_johansen(outcome, causes=n_causes).cumulative_incidence(time)[0, cause - 1]))
        band = confidence_band(outcome, "aalen_johansen")
        before = band[(band["cause"] == cause) & (band["time"] <= time)]
        estimate, low, high = before.iloc[-1][["estimate", "lower", "upper"]].to_numpy(dtype=float)
    limits = "" if np.isnan(low) else f" ({in_percent(low)} to {in_percent(high)})"
    return f"{in_percent(estimate)}{limits}"
