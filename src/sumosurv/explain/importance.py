"""Permutation importance: the loss in a score when a column is shuffled, also at single times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import torch

from sumosurv.confidence import check_level, check_resamples, resampled_limits
from sumosurv.distributions import SurvivalDistribution
from sumosurv.explain._quantity import Array, explanation
from sumosurv.explain._rows import Places, Rows
from sumosurv.models import cells_of, predict_distribution
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.scores import Bootstrap
from sumosurv.scores.evaluation import score_tables
from sumosurv.scores.score import Request, find_score

_TOGETHER = 1 << 13  # rows of shuffled tables predicted at once


@dataclass(frozen=True, eq=False, repr=False)
class Importance:
    """The result of `permutation_importance`: how much each score gets worse when columns are shuffled.

    Attributes
    ----------
    table : DataFrame
        Columns column, score, cause, time, value, low, high, std_error; most important first. ``value`` is positive if
        the score gets worse, whether it rises or falls. ``time`` is NaN for scores of the whole curve.
    full : DataFrame
        The scores of the model on the rows as they are: columns score, cause, time, value.
    repeats : int
    level : float
    """

    table: pd.DataFrame
    full: pd.DataFrame
    repeats: int
    level: float

    def to_frame(self) -> pd.DataFrame:
        """Return ``table`` without the columns cause and time if they are empty."""
        silent = [name for name in ("cause", "time") if self.table[name].isna().all()]
        return self.table.drop(columns=silent)

    def __repr__(self) -> str:
        wanted = self.to_frame().drop(columns="std_error")
        head = f"Loss by shuffling a column: mean of {self.repeats} repeats, {self.level:.0%} limits"
        lines = wanted.head(40).to_string(index=False, float_format=lambda value: f"{value:.4g}")
        more = "" if len(wanted) <= 40 else f"\n... {len(wanted) - 40} more lines"
        return f"{head}\n{lines}{more}"


@explanation
@torch.no_grad()
def permutation_importance(
    model: Any,
    X: Any,
    y: Any,
    *,
    scores: str | Sequence[str] = "log_likelihood",
    times: Any = None,
    cause: int | None = None,
    columns: Any = None,
    n_repeats: int = 10,
    n_bootstrap: int = 200,
    level: float = 0.95,
    censoring: SurvivalDistribution | None = None,
    sample_weight: Any = None,
    groups: Any = None,
    random_state: Any = 0,
) -> Importance:
    """Loss in the scores of a model when a column is shuffled among the rows.

    Use held-out rows: on training rows, overfitting inflates importance. If two columns are redundant, neither may seem
    important when shuffled alone; shuffle them together, ``columns={"light chains": ["kappa", "lambda"]}``. Importance
    for predictions is not importance for the outcome.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    X : DataFrame or array
    y : outcome
    scores : str or sequence of str
        Names in `sumosurv.scores.SCORES`.
    times : array of shape (m,), optional
        Times of the scores at single times (`brier`, `cumulative_dynamic_auc` and others), one line for each; for the
        log-likelihood, the times ``until`` which it is computed. With delayed entry, times of other scores are counted
        from entry, as in `evaluate`.
    cause : int, optional
        Competing cause, for scores that support it; all causes by default.
    columns : sequence of columns, or mapping of names to columns, optional
        Columns to shuffle; columns under one name are shuffled together. All columns by default.
    n_repeats : int, default 10
        Number of shuffles per column.
    n_bootstrap : int, default 200
        Resamples of the subjects for the intervals; 0 for none.
    level : float, default 0.95
        Share of the resamples between ``low`` and ``high``. Each resample draws subjects and shuffles with replacement:
        the intervals account for the sampling of rows and shuffles, not for the variability of the fit.
    censoring : SurvivalDistribution, optional
        G of the weighted scores; by default the Kaplan-Meier curve of the censoring in y.
    sample_weight : array of shape (rows,), optional
        Number of rows that each row represents.
    groups : array of shape (rows,), optional
        The subject that each row belongs to: subjects are resampled with all of their rows.
    random_state : seed or numpy.random.Generator, default 0

    Returns
    -------
    Importance

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> from sumosurv.explain import permutation_importance
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> found = permutation_importance(CoxPH().fit(data.X, data.y), data.X, data.y, scores="brier", times=[0.5, 1.0])
    >>> found.table[["column", "score", "time"]]
      column  score  time
    0      x  brier   0.5
    1      x  brier   1.0
    """
    level, rows = check_level(level), Rows(X)
    check_resamples(n_bootstrap)
    if n_repeats < 1:
        raise ValueError(f"n_repeats must be 1 or more; got {n_repeats}.")
    outcome = check_outcome(y, n_rows=len(rows), sample_weight=sample_weight, groups=groups)
    if outcome.weight is not None and not outcome.weight.all():
        kept = np.flatnonzero(outcome.weight)
        rows, outcome = rows.take(kept), outcome[kept]
        if censoring is not None and len(censoring) > 1:
            censoring = censoring[kept]
    players = rows.players(columns)
    rng = np.random.default_rng(random_state)
    whole = predict_distribution(model, rows.table)
    measures = list(_measures(model, whole, outcome, scores, times, cause, censoring))
    bootstrap = Bootstrap(outcome, n_bootstrap, rng)

    requests = [request for request, _ in measures]
    (full,) = score_tables(whole, outcome, requests, bootstrap)
    as_they_are = [estimate.value for estimate in full]
    _check_finite(measures, as_they_are)
    chosen = []  # for each column, the shuffles that each resample draws

    def shuffles() -> Iterator[Places]:
        for places in players.values():
            yield from (_shuffled(rows, places, rng) for _ in range(n_repeats))
            chosen.append(rng.integers(n_repeats, size=(n_bootstrap, n_repeats)))

    pending, lost = shuffles(), list[Any]()
    while cells := list(islice(pending, max(1, _TOGETHER // len(rows)))):
        distribution = predict_distribution(model, rows.mixed(np.concatenate(cells)))
        lost += score_tables(distribution, outcome, requests, bootstrap)
    gains = [request.score.gain for request in requests]
    found = []
    for k, drawn in enumerate(chosen):
        repeats = lost[k * n_repeats : (k + 1) * n_repeats]
        values = [[gain(a.value) - gain(b.value) for gain, a, b in zip(gains, full, own)] for own in repeats]
        draws = [[gain(a.draws) - gain(b.draws) for gain, a, b in zip(gains, full, own)] for own in repeats]
        by_draw = np.array(draws)  # (repeats, scores, resamples)
        again = [by_draw[own, :, b].mean(axis=0) for b, own in enumerate(drawn)]
        found.append((np.mean(values, axis=0), np.stack(again) if again else None))
    lines = [(request.score.name, request.cause, at, value) for (request, at), value in zip(measures, as_they_are)]
    before = pd.DataFrame(lines, columns=["score", "cause", "time", "value"])
    return Importance(_table(list(players), measures, found, level), before, n_repeats, level)


Measure = tuple[Request, float]  # a score, and the single time at which it is taken or nan


def _measures(
    model: Any,
    whole: SurvivalDistribution,
    outcome: Outcome,
    names: str | Sequence[str],
    times: Any,
    cause: int | None,
    censoring: SurvivalDistribution | None,
) -> Iterator[Measure]:
    """Yield the requested scores, at each of their times."""
    horizons = None if times is None else np.atleast_1d(np.asarray(times, dtype=np.float64))
    cells = cells_of(model) if outcome.upper is None else None
    for name in [names] if isinstance(names, str) else names:
        score, options = find_score(name), dict[str, Any]()
        if cause is not None:
            if not score.of_causes:
                raise ValueError(f"{name} has no version for a single cause; omit it, or omit cause={cause}.")
            options["cause"] = cause
        if censoring is not None and score.needs_censoring:
            options["censoring"] = censoring
        if cells is not None and score.in_cells:
            options["resolution"] = cells
        if horizons is not None and score.times == "none":
            if "until" not in score.options:
                raise ValueError(f"{name} has no version at single times; omit it, or omit times=.")
            for t in horizons:
                yield Request(score, {**options, "until": float(t)}, ""), float(t)
            continue
        if horizons is not None:
            options[score.times_option] = tuple(horizons) if score.times == "range" else horizons
        later = outcome.since_entry() if "entry" not in score.takes else outcome
        for request in score.requests(later, options, whole.n_causes):
            yield request, float(request.options[score.times_option]) if score.times == "single" else np.nan


def _check_finite(measures: Sequence[Measure], full: Sequence[float]) -> None:
    for (request, _), value in zip(measures, full):
        if not np.isfinite(value):
            raise ValueError(
                f"{request.score.name} of the unshuffled rows is {value}, so its loss is undefined. A step "
                "function (Cox, Kaplan-Meier) assigns likelihood zero to rows outside its steps; use another "
                "score, such as scores='integrated_brier'."
            )


def _shuffled(rows: Rows, places: Sequence[int], rng: np.random.Generator) -> Places:
    """Return the row that each cell comes from when some columns are shuffled, all in the same order."""
    n = len(rows)
    cells = np.repeat(np.arange(n)[:, None], rows.n_columns, axis=1)
    cells[:, list(places)] = rng.permutation(n)[:, None]
    return cells


def _table(
    names: Sequence[str], measures: Sequence[Measure], found: Sequence[tuple[Array, Array | None]], level: float
) -> pd.DataFrame:
    lines = []
    for name, (values, draws) in zip(names, found):
        for k, ((request, at), value) in enumerate(zip(measures, values)):
            spread: tuple[Any, ...] = np.nan, np.nan, np.nan
            if draws is not None:
                with np.errstate(invalid="ignore"):  # infinite losses have no spread
                    error = draws[:, k].std(ddof=1) if len(draws) > 1 else np.nan
                    spread = *resampled_limits(draws[:, k], value, level), error
            lines.append((name, request.score.name, request.cause, at, value, *spread))
    columns = ["column", "score", "cause", "time", "value", "low", "high", "std_error"]
    made = pd.DataFrame(lines, columns=columns)
    first = made[made["score"] == measures[0][0].score.name]  # scores have scales of their own: the first one decides
    mean = first.groupby("column")["value"].mean()
    rank = made["column"].map(mean.rank(ascending=False, method="first"))
    order = np.lexsort((made["time"].to_numpy(), rank.to_numpy(), pd.factorize(made["score"])[0]))
    return made.iloc[order].reset_index(drop=True)
