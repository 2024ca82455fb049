"""The section with examples: three rows, of low, middle and high predicted risk."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from sumosurv.models import innermost
from sumosurv.plots import plot_incidences, plot_survival
from sumosurv.report.data import frame_of
from sumosurv.report.document import Note, Section, Table, in_percent, number, shown
from sumosurv.report.drawing import draw
from sumosurv.report.given import Given

__all__ = ["subjects_section"]

_LEVELS = {"low risk": 0.1, "middle risk": 0.5, "high risk": 0.9}
_MOST_COLUMNS = 25


def subjects_section(given: Given) -> Section:
    """What the model says of three rows, whole curves and figures."""
    section = Section("subjects", "Example subjects")
    order = np.argsort(given.own_later.cdf(given.main), kind="stable")
    rows = [int(order[round(q * (len(order) - 1))]) for q in _LEVELS.values()]
    X = given.X.iloc[rows] if hasattr(given.X, "iloc") else given.X[rows]
    own, end = given.own[rows], float(given.estimator.last_time_)
    own.last_time = end
    section.items.append(Note("Three rows of the data, at the 10%, 50% and 90% quantiles of predicted risk."))
    if given.causes:
        for i, label in enumerate(_LEVELS):
            stack = partial(plot_incidences, own, subject=i, labels=given.causes, unit=given.unit, horizon=end)
            section.items.append(
                draw(
                    _on(stack),
                    f"Stacked incidences of the causes for the subject of {label}.",
                    f"Subject of {label}: probability of each cause by each time, stacked.",
                    formulas=False,
                )
            )
    else:
        estimator, read = innermost(given.model, X)
        members = estimator.predict_members(read)
        band = members if len(members) > 1 else None
        spread = " Bands: the middle 95% of the networks of the model." if band else ""
        section.items.append(
            draw(
                lambda ax: plot_survival(own, labels=list(_LEVELS), unit=given.unit, horizon=end, band=band, ax=ax),
                "Predicted survival curves of three subjects, of low, middle and high risk.",
                f"Predicted survival, up to the end of follow-up of the training rows.{spread}",
            )
        )
    section.items.append(_table(given, X, rows))
    return section


def _on(plot: Any) -> Any:
    return lambda ax: plot(ax=ax)


def _table(given: Given, X: object, rows: list[int]) -> Table:
    own, end = given.own[rows], float(given.estimator.last_time_)
    medians = [f"{number(m)}{' (extrapolated)' if m > end else ''}" for m in own.median()]
    lines = [["median", *medians], [f"expected time up to {given.time(end)}", *map(number, own.restricted_mean(end))]]
    if given.causes:
        incidence = own.cumulative_incidence(given.main)
        lines += [
            [f"{name} by {given.time(given.main)}", *map(in_percent, incidence[:, k])]
            for k, name in enumerate(given.causes)
        ]
    else:
        lines.append([f"survival to {given.time(given.main)}", *map(in_percent, own.survival(given.main))])
    frame = frame_of(X)
    if frame is not None:
        for j, name in enumerate(frame.columns[:_MOST_COLUMNS]):
            lines.append([shown(str(name)), *(shown(value) for value in frame.iloc[:, j])])
    return Table("Predictions and covariates", ["", *_LEVELS], lines)
