"""The section on what drives the predictions: importance of columns, and effects of the first of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sumosurv.explain import partial_dependence, permutation_importance
from sumosurv.plots import plot_effect, plot_importance
from sumosurv.report.data import frame_of
from sumosurv.report.document import Item, Note, Section, Table, attempt, estimate, number, shown
from sumosurv.report.drawing import draw
from sumosurv.report.given import Given
from sumosurv.scores import log_likelihood

__all__ = ["drivers_section"]

_SCORES = {"log_likelihood": "log-likelihood (nats)", "integrated_brier": "integrated Brier score"}
_REPEATS = 5
_MOST_COLUMNS = 40  # whose importance is measured: the shuffles of wide tables would take hours
_EFFECTS = 4
_EFFECT_ROWS = 200


def drivers_section(given: Given) -> Section:
    """Which columns the predictions rest on."""
    section = Section("drivers", "What drives the predictions")
    frame = frame_of(given.X)
    if frame is None or frame.shape[1] > _MOST_COLUMNS:
        why = "The input is not a table" if frame is None else f"The table has more than {_MOST_COLUMNS} columns"
        section.items.append(Note(f"{why}: importance and effects are not shown. See sumosurv.explain."))
        return section
    rows = given.some_rows()
    X = given.X.iloc[rows] if hasattr(given.X, "iloc") else given.X[rows]
    score = _score(given)
    found = permutation_importance(
        given.model,
        X,
        given.outcome[rows],
        scores=score,
        n_repeats=_REPEATS,
        n_bootstrap=given.n_bootstrap,
        random_state=given.seed,
    )
    table = found.table
    lines = [[shown(str(row.column)), *estimate(row.value, row.low, row.high)] for row in table.itertuples(index=False)]
    some = "" if len(rows) == len(given.outcome) else f", on {len(rows):,} rows drawn at random"
    first = ", ".join(str(name) for name in table["column"].head(3))
    section.summary.append(f"The predictions depend most on {first}.")
    section.items += [
        draw(
            lambda ax: plot_importance(found, ax=ax),
            f"Bar chart of the importance of columns; the most important are {first}.",
            f"Importance: by how much the {_SCORES[score]} gets worse when the values of a column are shuffled. "
            "Columns that carry the same information share their importance.",
            formulas=False,
        ),
        Table(f"Loss of {_SCORES[score]} when shuffled{some}", ["column", "loss", "95% limits"], lines),
    ]
    columns = list(table["column"].head(_EFFECTS if not given.causes else _EFFECTS // 2))
    for cause in given.cause_numbers:
        for column in columns:
            section.items += attempt(f"Effect of {column}", _effect, given, X, column, cause)
    section.items.append(
        Note(
            "Importance and effects describe the predictions. They do not say what would happen to a subject if a "
            "covariate were changed: that is a causal question, which these data alone cannot answer."
        )
    )
    return section


def _score(given: Given) -> str:
    """The likelihood, or the Brier score where a step curve calls some row impossible: -inf has nothing to lose."""
    terms = log_likelihood(given.own, given.outcome, resolution=given.estimator.cells_ if given.exact else None)
    return "log_likelihood" if np.isfinite(terms).all() or not given.exact else "integrated_brier"


def _effect(given: Given, X: Any, column: Any, cause: int | None) -> Item:
    name = column if hasattr(X, "columns") else int(column)
    effect = partial_dependence(
        given.model, X, name, times=[given.main], cause=cause, max_rows=_EFFECT_ROWS, random_state=given.seed
    )
    of = "survival probability" if cause is None else f"incidence of {given.of_cause(cause)}"
    ends = ", ".join(
        f"{number(effect.mean[i, 0], 3)} at {shown(effect.grid[0][i])}" for i in (0, len(effect.grid[0]) - 1)
    )
    band = "" if effect.low is None else f" Band: the middle {effect.level:.0%} of the networks."
    marks = "" if effect.kinds[0] == "category" else " Ticks along the axis: deciles of the column."

    def plot(ax: Any) -> None:
        plot_effect(effect, unit=given.unit, individual=False, ax=ax).get_legend().remove()  # the caption has it

    return draw(
        plot,
        f"Partial dependence of the {of} at {given.time(given.main)} on {column}: {ends}.",
        f"Mean predicted {of} at {given.time(given.main)} when {column} is set to a value in all rows: {ends}."
        f"{band}{marks}",
        half=True,
        formulas=False,
    )
