"""The sections on limits, and on the model itself: settings, versions, digest."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import numpy as np
import pandas as pd

from sumosurv._version import __version__
from sumosurv.io import model_digest
from sumosurv.preprocessing import CategoricalColumn
from sumosurv.report.data import frame_of
from sumosurv.report.document import Note, Section, Table, count, number, shown
from sumosurv.report.given import Given
from sumosurv.report.separation import small_groups

__all__ = ["card_section", "limits_section"]

_PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "torch", "safetensors", "matplotlib", "jinja2")
_SHOWN = 12


def limits_section(given: Given) -> Section:
    """What the figures do not show."""
    section = Section("limits", "Limitations")
    say = section.items.append
    end, outcome = float(given.estimator.last_time_), given.outcome
    beyond = int((outcome.time > end).sum())
    text = f"Follow-up of the training rows ends at {given.time(end)}; later predictions are extrapolated."
    say(Note(f"{text} {beyond:,} of {len(outcome):,} rows here are followed longer." if beyond else text, beyond > 0))
    section.summary.append(text)
    odd = _unlike_training(given)
    if odd:
        say(
            Note(
                "Values outside those of training, where the model extrapolates: " + "; ".join(odd) + ".", warning=True
            )
        )
    few = small_groups(given)
    if few:
        listed = "; ".join(few[:_SHOWN]) + (f"; and {len(few) - _SHOWN} more" if len(few) > _SHOWN else "")
        say(Note(f"Too few rows or events to judge the model: {listed}.", warning=True))
    events = int(outcome.had_event.sum())
    if events < 100:
        say(
            Note(
                f"There are only {events:,} events: intervals are wide, and their coverage is approximate.",
                warning=True,
            )
        )
    say(
        Note(
            "If any of these rows were used to fit or choose the model, all figures here are too optimistic. A report "
            "cannot detect that."
        )
    )
    say(Note("AUC, Brier score, calibration curves and observed risks assume that censoring is independent of the "
             "event time, within groups where there are groups; the likelihood assumes this only given the "
             "covariates."))  # fmt: skip
    say(Note("Not tested: other places, periods and measurement methods than those of these rows; fairness between "
             "groups that no column identifies; whether decisions based on the model do any good; effects of changing "
             "a covariate."))  # fmt: skip
    return section


def _unlike_training(given: Given) -> list[str]:
    """Columns with values outside the training range, or levels that training did not have."""
    frame, part = frame_of(given.X), given.estimator
    while not hasattr(part, "preprocessor_") and part._parts():
        part = part._parts()[0]
    known = getattr(part, "preprocessor_", None)
    if frame is None or known is None or len(known.columns) != frame.shape[1] or given.model is not given.estimator:
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
            found.append(f"{shown(column.name)}, {count(rows, 'row')} ({what})")
    return found


def card_section(given: Given) -> Section:
    """The model: what it is, how it was set, with what it was made."""
    section = Section("model", "The model")
    estimator = given.estimator
    facts = [
        ["method", type(estimator).__name__],
        ["digest of the model (SHA-256)", _digest(estimator)],
        ["covariates", number(estimator.n_features_in_)],
        ["causes", ", ".join(given.causes) or "one"],
        ["end of follow-up of the training rows", given.time(float(estimator.last_time_))],
    ]
    if getattr(estimator, "cells_", None) is not None:
        facts.append(["times are rounded to", given.time(estimator.cells_.width)])
    if hasattr(estimator, "parts_"):
        kinds = zip(estimator.parts_.items(), estimator.weights_)
        listed = [f"{part.n_members_} {kind} (weight {weight:.2f})" for (kind, part), weight in kinds]
        facts.append(["networks", ", ".join(listed)])
    elif hasattr(estimator, "n_members_"):
        facts.append(["networks", number(estimator.n_members_)])
    section.items.append(Table("About the model", ["", ""], facts, text_columns=2))
    settings = [[name, shown(str(_plain(value)))] for name, value in sorted(estimator.get_params(deep=False).items())]
    section.items.append(Table("Settings (None: chosen by the method)", ["setting", "value"], settings, text_columns=2))
    versions = [["sumosurv", __version__], ["Python", platform.python_version()]]
    versions += [[name, version] for name in _PACKAGES if (version := _installed(name))]
    section.items.append(
        Table("Versions with which this report was made", ["package", "version"], versions, text_columns=2)
    )
    return section


def _digest(estimator: Any) -> str:
    try:
        return model_digest(estimator)
    except TypeError:  # settings that no file can hold
        return "none: a model with these settings cannot be saved"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
