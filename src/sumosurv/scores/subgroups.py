"""Scores of one model in the subgroups that the levels of a column define."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.distributions import SurvivalDistribution
from sumosurv.models import cells_of, final_estimator
from sumosurv.outcome import check_outcome
from sumosurv.scores._resampling import Estimate
from sumosurv.scores.blocks import MemoryRows
from sumosurv.scores.evaluation import estimate_rows, table_lines
from sumosurv.scores.evaluation_table import Evaluation
from sumosurv.scores.model_selection import censoring_of_rows, with_times
from sumosurv.scores.score import Request, RequestedScores
from sumosurv.sources import as_source, take_rows

__all__ = ["audit"]

_MOST_LEVELS = 20
_REST = "rest"  # all rows that are not in a level


def audit(
    model_or_distribution: Any,
    X: Any,
    y: Any,
    by: Any,
    *,
    scores: RequestedScores | None = None,
    times: Any = None,
    censoring: Any = "marginal",
    n_bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: int | None = 0,
    sample_weight: Any = None,
    groups: Any = None,
    verbose: bool = False,
) -> Evaluation:
    """Score a model in subgroups: every score by the levels of a column, with intervals and differences.

    Two levels are compared with each other. Each of several levels is compared with all other rows. Subjects are
    resampled within levels, so that the intervals of differences are those of independent samples.

    A difference is not a proof of unfairness: scores depend on how far apart the risks in a subgroup are (concordance)
    and on how frequent events are (Brier score, likelihood). The calibration intercept and slope do not.

    Parameters
    ----------
    model_or_distribution : object with ``predict_distribution(X)`` or SurvivalDistribution
    X : table of covariates
        In memory.
    y : outcome
    by : str or array of shape (n,)
        A column of X, which the model need not read, or the level of each row. Missing values are a level. A column of
        numbers with many values must be cut into intervals first (``pandas.cut``).
    scores, times, censoring
        As in `cross_evaluate`: times are the same in all levels, up to the shortest follow-up of a level. If
        ``censoring`` is "marginal", G is the Kaplan-Meier estimate of the level.
    n_bootstrap, confidence, sample_weight, groups, verbose
        As in `evaluate`.
    random_state : int
        Seed of the resamples.

    Returns
    -------
    DataFrame
        As `evaluate` returns it for several models, with the column ``level`` in place of ``model``. With more than
        two levels, ``against`` is "rest": all rows that are not in the level.

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = CoxPH().fit(data.X, data.y)
    >>> level = np.where(data.X["x"] > 0.5, "high", "low")
    >>> found = audit(model, data.X, data.y, level, scores="harrell_c", n_bootstrap=50)
    >>> found[["level", "against"]].to_numpy().tolist()
    [['high', ''], ['low', ''], ['low', 'high']]
    """
    outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
    counted = np.flatnonzero(outcome.weights)
    level, labels = _levels(X, by, len(outcome), counted)
    if len(counted) < len(outcome):  # rows that do not count are not looked at
        outcome, X = outcome[counted], None if X is None else take_rows(X, counted)
        if isinstance(model_or_distribution, SurvivalDistribution):
            model_or_distribution = model_or_distribution[counted]
    if isinstance(model_or_distribution, SurvivalDistribution):
        curves, cells = model_or_distribution, None
    else:
        held = MemoryRows({"": model_or_distribution}, as_source(X, outcome)).held
        curves, cells = held.curves[""], cells_of(final_estimator(model_or_distribution))
    parts = {label: np.flatnonzero(level == place) for place, label in enumerate(labels)}
    pairs = [(labels[1], labels[0])]
    if len(labels) > 2:
        pairs = [(label, f"not {label}") for label in labels]
        parts |= {f"not {label}": np.flatnonzero(level != place) for place, label in enumerate(labels)}
    wanted = with_times(scores, times, outcome, [parts[label] for label in labels])
    weighting, notes = censoring_of_rows(censoring, wanted, X, outcome, random_state)
    found: dict[tuple[int, str], Estimate] = {}
    requests: list[Request] = []
    seeds = np.random.SeedSequence(random_state).spawn(len(parts))
    from tqdm.auto import tqdm

    with tqdm(total=len(parts), desc="evaluating", unit="level", disable=not verbose) as bar:
        for (label, rows), seed in zip(parts.items(), seeds):
            own = MemoryRows({label: curves[rows]}, as_source(take_rows(X, rows), outcome[rows]))
            requests, estimates, more = estimate_rows(
                own,
                scores=wanted,
                censoring=weighting(rows),
                n_bootstrap=n_bootstrap,
                random_state=seed,
                resolution=cells,
            )
            found |= estimates
            notes += [note for note in (f"{label}: {note}" for note in more) if label in labels]
            bar.update()
    lines = table_lines(requests, labels, pairs, found, confidence)
    table = [line | {"level": line["model"], "model": ""} for line in lines]
    if len(labels) > 2:
        table = [line | {"against": line["against"] and _REST} for line in table]
    return Evaluation.of(table, notes)


def _levels(X: Any, by: Any, n: int, rows: npt.NDArray[np.intp]) -> tuple[Any, list[str]]:
    """Return the level of each of some rows, counted from zero, and the names of the levels."""
    if isinstance(by, str):
        if not isinstance(X, pd.DataFrame) or by not in X.columns:
            raise ValueError(f"X has no column {by!r}; pass the name of a column, or the level of each row.")
        by = X[by]
    values = pd.Series(by).reset_index(drop=True)
    if len(values) != n:
        raise ValueError(f"by has {len(values)} values, and y has {n} rows.")
    level, known = pd.factorize(values.iloc[rows], sort=True)
    labels = [*map(str, known), *(["missing"] if (level < 0).any() else [])]
    if not 2 <= len(labels) <= _MOST_LEVELS or len(set(labels)) < len(labels):
        raise ValueError(
            f"A column with 2 to {_MOST_LEVELS} distinct levels is needed; this one has {len(labels)}. Cut numbers "
            "into intervals with pandas.cut."
        )
    return np.where(level < 0, len(known), level), labels
