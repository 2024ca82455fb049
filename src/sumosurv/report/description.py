"""The sections on the data, on limitations, and on the model."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import numpy as np
import pandas as pd

from sumosurv._version import __version__
from sumosurv.model_files import model_digest
from sumosurv.models import preprocessor_of
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome.checks import how_many
from sumosurv.plots import plot_kaplan_meier
from sumosurv.preprocessing import CategoricalColumn
from sumosurv.report.document import Picture, Section, draw, in_percent, number, shown
from sumosurv.report.groups import small_groups
from sumosurv.report.inputs import ReportInputs

_PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "torch", "safetensors", "matplotlib", "jinja2")
_MOST_COLUMNS = 60
_MOST_GROUPS = 12  # small groups that are listed


def data_section(inputs: ReportInputs) -> Section:
    """Rows, events, follow-up and columns."""
    section = Section("data", "Data")
    outcome = inputs.outcome
    section.summary.append(
        f"{how_many(len(outcome), 'row')} with {how_many(int(outcome.had_event.sum()), 'event')}. Horizons: "
        f"{', '.join(inputs.time(float(t)) for t in inputs.times)}."
    )
    section.table("Rows used for the evaluation", ["", ""], _facts(inputs))
    frame = inputs.frame
    if frame is None:
        section.note(f"Each row is an array of shape {inputs.X.shape[1:]}; there are no columns to describe.")
    else:
        section.table("Columns", ["column", "values", "missing"], _columns(frame), text_columns=2)
        if frame.shape[1] > _MOST_COLUMNS:
            section.note(f"Only the first {_MOST_COLUMNS} of {frame.shape[1]} columns are listed.")
    if inputs.exact:
        section.attempt("Kaplan-Meier curve", _kaplan_meier, inputs)
    return section


def _kaplan_meier(inputs: ReportInputs) -> Picture:
    what = "Proportion without any event" if inputs.causes else "Proportion without the event"
    curve = kaplan_meier(inputs.since_entry.any_cause())
    parts = [f"{in_percent(float(curve.survival(float(t))[0]))} at {inputs.time(float(t))}" for t in inputs.times]
    since = " after entry" if inputs.outcome.entry is not None else ""
    words = f"Without an event{since}: {', '.join(parts)}"
    return draw(
        f"Kaplan-Meier curve of all rows: {words}.",
        f"{what} over time (Kaplan-Meier), with 95% confidence limits and numbers at risk. {words}.",
        plot_kaplan_meier,
        inputs.since_entry,
        unit=inputs.unit,
        censoring=False,
    )


def _facts(inputs: ReportInputs) -> list[list[str]]:
    outcome = inputs.outcome
    rows = [["rows", f"{len(outcome):,}"]]
    if outcome.weight is not None:
        rows.append(["sum of weights", number(outcome.total)])
    if outcome.group is not None:
        rows.append(["subjects", f"{len(np.unique(outcome.group)):,}"])
    if outcome.cause is None:
        rows.append(["events", f"{outcome.had_event.sum():,} ({in_percent(outcome.had_event.mean())})"])
    for k, name in enumerate(inputs.causes, 1):
        own = np.asarray(outcome.cause == k)
        rows.append([f"events: {name}", f"{own.sum():,} ({in_percent(np.mean(own))})"])
    if outcome.upper is not None:
        inside = outcome.in_interval
        rows.append(["interval-censored events", f"{inside.sum():,} ({in_percent(inside.mean())})"])
    if outcome.entry is not None:
        late = outcome.entry > 0
        rows.append(["rows with delayed entry", f"{late.sum():,} ({in_percent(late.mean())})"])
    rows.append(["median follow-up (reverse Kaplan-Meier)", _median_follow_up(inputs)])
    rows.append(["longest follow-up", inputs.time(outcome.last_time)])
    rows.append(["end of follow-up of the training rows", inputs.time(float(inputs.estimator.last_time_))])
    return rows


def _median_follow_up(inputs: ReportInputs) -> str:
    if not inputs.exact:
        return "not defined for interval-censored rows"
    median = float(kaplan_meier(inputs.since_entry.any_cause(), censoring=True).median()[0])
    return inputs.time(median) if np.isfinite(median) else "not reached"


def _columns(frame: pd.DataFrame) -> list[list[str]]:
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
    return rows


def limits_section(inputs: ReportInputs) -> Section:
    """Limitations of the data and of the report."""
    section = Section("limits", "Limitations")
    say = section.note
    end, outcome = float(inputs.estimator.last_time_), inputs.outcome
    beyond = int((outcome.time > end).sum())
    text = f"Follow-up of the training rows ends at {inputs.time(end)}; later predictions are extrapolated."
    longer = f" {beyond:,} of {len(outcome):,} rows here are followed longer." if beyond else ""
    say(text + longer, warning=beyond > 0)
    section.summary.append(text)
    odd = _unlike_training(inputs)
    if odd:
        say(f"Values outside the training range, for which the model extrapolates: {'; '.join(odd)}.", warning=True)
    few = small_groups(inputs)
    if few:
        more = f"; and {len(few) - _MOST_GROUPS} more" if len(few) > _MOST_GROUPS else ""
        say(f"Too few rows or events to judge the model: {'; '.join(few[:_MOST_GROUPS])}{more}.", warning=True)
    events = int(outcome.had_event.sum())
    if events < 100:
        say(f"There are only {events:,} events: intervals are wide, and their coverage is approximate.", warning=True)
    say(
        "If any of these rows were used to fit or choose the model, all results are too optimistic. A report cannot "
        "detect this."
    )
    say(
        "AUC, Brier score, calibration curves and observed risks assume that censoring is independent of the event "
        "time, within each group if groups are compared; the likelihood assumes this only given the covariates."
    )
    say(
        "Not tested: other places, periods and measurement methods; fairness between groups that no column identifies; "
        "whether decisions based on the model are beneficial; effects of changing a covariate."
    )
    return section


def _unlike_training(inputs: ReportInputs) -> list[str]:
    """Columns with values outside the training range, or with levels that were not seen in training."""
    frame, known = inputs.frame, preprocessor_of(inputs.estimator)
    if frame is None or known is None or len(known.columns) != frame.shape[1] or inputs.model is not inputs.estimator:
        return []
    found = []
    for j, column in enumerate(known.columns):
        values = frame.iloc[:, j]
        if isinstance(column, CategoricalColumn):
            rows = int((~values.isin(column.levels) & values.notna()).sum())
            what = "levels not seen in training"
        elif column.seen is not None:
            numbers = pd.to_numeric(values, errors="coerce")
            rows = int(((numbers < column.seen.low) | (numbers > column.seen.high)).sum())
            what = f"outside {number(column.seen.low)} to {number(column.seen.high)}"
        else:
            continue
        if rows:
            found.append(f"{shown(column.name)}, {how_many(rows, 'row')} ({what})")
    return found


def model_section(inputs: ReportInputs) -> Section:
    """Method, digest, settings and versions of the model."""
    section = Section("model", "The model")
    estimator = inputs.estimator
    facts = [
        ["method", type(estimator).__name__],
        ["digest of the model (SHA-256)", _digest(estimator)],
        ["covariates", number(estimator.n_features_in_)],
        ["causes", ", ".join(inputs.causes) or "one"],
        ["end of follow-up of the training rows", inputs.time(float(estimator.last_time_))],
    ]
    if getattr(estimator, "cells_", None) is not None:
        facts.append(["times are rounded to", inputs.time(estimator.cells_.width)])
    table = estimator._component_table()
    if table["members"].sum() > 1:
        kept = table[table["weight"] > 0]
        listed = [f"{row.members} {row.component} (weight {row.weight:.2f})" for row in kept.itertuples()]
        facts.append(["components", ", ".join(listed)])
    section.table("About the model", ["", ""], facts, text_columns=2)
    settings = [[name, shown(str(_plain(value)))] for name, value in sorted(estimator.get_params(deep=False).items())]
    section.table("Settings (None: chosen by the method)", ["setting", "value"], settings, text_columns=2)
    versions = [["sumosurv", __version__], ["Python", platform.python_version()]]
    versions += [[name, importlib.metadata.version(name)] for name in _PACKAGES]
    section.table("Versions with which this report was made", ["package", "version"], versions, text_columns=2)
    return section


def _digest(estimator: Any) -> str:
    try:
        return model_digest(estimator)
    except TypeError:  # settings that cannot be stored
        return "none: a model with these settings cannot be saved"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
