"""The sections on what drives the predictions, and on example subjects."""

from __future__ import annotations

from typing import Any

import numpy as np

from sumosurv.explain import Effect, Importance, partial_dependence, permutation_importance
from sumosurv.models import innermost
from sumosurv.plots import plot_effect, plot_importance, plot_incidences, plot_survival
from sumosurv.plots.figure import at_times
from sumosurv.report.document import Item, Section, draw, estimate, in_percent, number, shown
from sumosurv.report.inputs import ReportInputs
from sumosurv.scores import SCORES

_REPEATS = 3
_MOST_COLUMNS = 40  # for importance: the shuffles of wide tables would take hours
_EFFECTS = 4
_EFFECT_ROWS = 100
_SUBJECTS = {"low risk": 0.1, "medium risk": 0.5, "high risk": 0.9}  # quantiles of predicted risk
_MOST_COVARIATES = 25  # of a subject


def drivers_section(inputs: ReportInputs) -> Section:
    """Importance of the columns, and effects of the most important ones."""
    section = Section("drivers", "What drives the predictions")
    frame = inputs.frame
    if frame is None or frame.shape[1] > _MOST_COLUMNS:
        why = "The input is not a table" if frame is None else f"The table has more than {_MOST_COLUMNS} columns"
        section.note(f"{why}: importance and effects are not shown. See sumosurv.explain.")
        return section
    rows = inputs.some_rows()
    X = inputs.take(rows)
    try:
        found = _importance(inputs, X, rows, "log_likelihood")
    except ValueError:
        if not inputs.exact:
            raise
        found = _importance(inputs, X, rows, "integrated_brier")  # step curves give some rows probability zero
    table, score = found.table, found.full["score"].iloc[0]
    lines = [[shown(str(row.column)), *estimate(row.value, row.low, row.high)] for row in table.itertuples(index=False)]
    some = "" if len(rows) == len(inputs.outcome) else f", on {len(rows):,} rows drawn at random"
    first = ", ".join(str(name) for name in table["column"].head(3))
    section.summary.append(f"The predictions depend most on {first}.")
    picture = draw(
        f"Bar chart of the importance of columns; the most important are {first}.",
        f"Importance: by how much the {SCORES[score].title} gets worse when the values of a column are shuffled. "
        "Columns that carry the same information share their importance.",
        plot_importance,
        found,
    )
    section.items.append(picture)
    section.table(f"Loss of {SCORES[score].title} when shuffled{some}", ["column", "loss", "95% limits"], lines)
    if np.isinf(table["value"]).any():
        section.note(
            "∞: with shuffled values of the column, the model assigns probability zero to some observed outcome."
        )
    columns = list(table["column"].head(_EFFECTS if not inputs.causes else _EFFECTS // 2))
    effects: dict[Any, list[Effect]] = {}
    for cause in inputs.cause_numbers:
        for column in columns:
            section.attempt(f"Effect of {column}", _effect, inputs, X, column, cause, effects)
    section.note(
        "Importance and effects describe the predictions. They do not say what would happen to a subject if a "
        "covariate were changed: that is a causal question, which these data alone cannot answer."
    )
    return section


def _importance(inputs: ReportInputs, X: Any, rows: Any, score: str) -> Importance:
    return permutation_importance(
        inputs.model,
        X,
        inputs.outcome[rows],
        scores=score,
        n_repeats=_REPEATS,
        n_bootstrap=inputs.n_bootstrap,
        random_state=inputs.seed,
    )


def _effect(inputs: ReportInputs, X: Any, column: Any, cause: int | None, known: dict[Any, list[Effect]]) -> Item:
    """Draw the effect of a column on the risk of a cause; ``known`` keeps the effects on all causes."""
    if column not in known:
        name, causes = column if hasattr(X, "columns") else int(column), [k for k in inputs.cause_numbers if k]
        found = partial_dependence(
            inputs.model,
            X,
            name,
            times=[inputs.main],
            cause=causes or None,
            max_rows=_EFFECT_ROWS,
            random_state=inputs.seed,
        )
        known[column] = found if causes else [found]
    effect = known[column][(cause or 1) - 1]
    of = "survival probability" if cause is None else f"incidence of {inputs.event_name(cause)}"
    ends = ", ".join(
        f"{number(effect.mean[i, 0], 3)} at {shown(effect.grid[0][i])}" for i in (0, len(effect.grid[0]) - 1)
    )
    band = "" if effect.low is None else f" Band: the central {effect.level:.0%} of the networks."
    marks = "" if effect.kinds[0] == "category" else " Ticks along the axis: deciles of the column."
    return draw(
        f"Partial dependence of the {of} at {inputs.time(inputs.main)} on {column}: {ends}.",
        f"Mean predicted {of} at {inputs.time(inputs.main)} when {column} is set to a value in all rows: {ends}."
        f"{band}{marks}",
        plot_effect,
        effect,
        unit=inputs.unit,
        individual=False,
        half=True,
        legend=False,  # the caption has it
    )


def subjects_section(inputs: ReportInputs) -> Section:
    """Predictions for three rows, of low, medium and high predicted risk."""
    section = Section("subjects", "Example subjects")
    order = np.argsort(inputs.predicted_since_entry.cdf(inputs.main), kind="stable")
    rows = [int(order[round(q * (len(order) - 1))]) for q in _SUBJECTS.values()]
    predicted, end = inputs.predicted[rows], float(inputs.estimator.last_time_)
    section.note("Three rows of the data, at the 10%, 50% and 90% quantiles of predicted risk.")
    if inputs.causes:
        curves = at_times(predicted, np.linspace(0.0, end, 400))
        for i, label in enumerate(_SUBJECTS):
            picture = draw(
                f"Stacked incidences of the causes for the subject at {label}.",
                f"Subject at {label}: probability of each cause by each time, stacked.",
                plot_incidences,
                curves,
                subject=i,
                labels=inputs.causes,
                unit=inputs.unit,
                horizon=end,
            )
            section.items.append(picture)
    else:
        estimator, read = innermost(inputs.model, inputs.take(rows))
        members = estimator.predict_members(read)
        band = members if len(members) > 1 else None
        spread = " Bands: the central 95% of the networks." if band else ""
        picture = draw(
            "Predicted survival curves of three subjects, with low, medium and high risk.",
            f"Predicted survival, up to the end of follow-up of the training rows.{spread}",
            plot_survival,
            predicted,
            labels=list(_SUBJECTS),
            unit=inputs.unit,
            horizon=end,
            band=band,
        )
        section.items.append(picture)
    section.table("Predictions and covariates", ["", *_SUBJECTS], _subject_lines(inputs, rows, predicted, end))
    return section


def _subject_lines(inputs: ReportInputs, rows: list[int], predicted: Any, end: float) -> list[list[str]]:
    medians = [f"{number(m)}{' (extrapolated)' if m > end else ''}" for m in predicted.median()]
    means = map(number, predicted.restricted_mean(end))
    lines = [["median", *medians], [f"expected time up to {inputs.time(end)}", *means]]
    if inputs.causes:
        incidence = predicted.cumulative_incidence(inputs.main)
        lines += [
            [f"{name} by {inputs.time(inputs.main)}", *map(in_percent, incidence[:, k])]
            for k, name in enumerate(inputs.causes)
        ]
    else:
        lines.append([f"survival to {inputs.time(inputs.main)}", *map(in_percent, predicted.survival(inputs.main))])
    frame = inputs.frame
    if frame is not None:
        for j, name in enumerate(frame.columns[:_MOST_COVARIATES]):
            lines.append([shown(str(name)), *(shown(value) for value in frame.iloc[rows, j])])
    return lines
