"""`evaluate` and `audit`: scores of one or several models with confidence intervals, on all rows or by subgroup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.confidence import check_level, check_resamples
from sumosurv.distributions import SurvivalDistribution
from sumosurv.models import cells_of, check_names
from sumosurv.outcome import Cells, Outcome
from sumosurv.scores._inputs import CurveMemory, follow_up, median_time
from sumosurv.scores._resampling import Bootstrap, Estimate, MeanTerms, Resamples
from sumosurv.scores.blocks import BlockRows, HeldRows, MemoryRows, common_causes, rows_of
from sumosurv.scores.censoring import CensoringCheck, resolve_censoring
from sumosurv.scores.evaluation_table import Evaluation
from sumosurv.scores.score import Request, RequestedScores, default_scores, find_score, grouped_by_times, make_requests
from sumosurv.sources import as_source, take_rows

Index = npt.NDArray[np.intp]

_MOST_LEVELS = 20  # of a column whose subgroups are scored
_REST = "rest"  # all rows that are not in a level


def evaluate(
    model_or_distribution: Any,
    X: Any,
    y: Any,
    *,
    scores: RequestedScores | None = None,
    censoring: Any = "auto",
    times: Any = None,
    n_bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: Any = 0,
    sample_weight: Any = None,
    groups: Any = None,
    resolution: Any = "auto",
    verbose: bool = False,
) -> Evaluation:
    """Score one model or several on given rows, with bootstrap confidence intervals.

    Subjects are resampled with replacement, with the same resamples for every score. The model is not refitted, so that
    the intervals describe the uncertainty due to the test rows. Predictions are computed once:

    - means are resampled exactly;
    - a censoring distribution that is estimated from the scored rows is re-estimated in each resample; a given one is
      not;
    - concordances are means over pairs: each subject's share of the pairs is resampled, to first order in the
      resampling weights;
    - calibration scores are sums of squares, which sampling noise increases. The interval is for the score on other
      samples of the same size, including that noise once.

    Times are the same in every resample. Several models are scored on the same resamples, so that the intervals of
    their differences are paired.

    With delayed entry, the likelihood and D-calibration condition on the event coming after entry, and `concordance_td`
    and `harrell_c` compare an event with the rows at risk at its time. Other scores use the time since entry, with the
    curve ``distribution.remaining(entry)``, and ``times`` are counted from entry. With interval censoring, only the
    likelihood and D-calibration are defined. If a subject has several rows (time-varying covariates), the likelihood
    adds up over them; scores of the time since entry treat each row as a subject that is censored at its end.

    Parameters
    ----------
    model_or_distribution : object with ``predict_distribution(X)``, SurvivalDistribution, or mapping of names to these
        Pipelines and searches of scikit-learn around such a model are supported. Each of several models is compared
        with the first.
    X : table of covariates, or rows on disk
        Not used with a distribution; pass None. A Parquet file, a folder of Parquet files, an iterator of record
        batches, a ``pyarrow.dataset.Dataset`` or a `RowSource` is read in blocks, twice (docs/large_data.md). Then

        - means are exact, with intervals from 100 groups of subjects that are left out in turn;
        - the AUC is computed from sketches of the risks;
        - concordances and calibration in groups are computed on 20,000 rows drawn at random.
    y : outcome
        For rows on disk the names of columns, ``{"time": "months", "event": "died"}``.
    scores : str, sequence of str, or mapping of str to options
        Names in `SCORES`; a mapping gives the options of each, ``{"log_likelihood": {"resolution": 1.0}}``. The default
        is the likelihood, concordance, integrated scores and D-calibration; with single ``times`` also the Brier score,
        AUC, binomial log-likelihood and calibration at each time.
    censoring : "auto", "marginal", SurvivalDistribution, estimator or CensoringCheck
        The censoring distribution G of the weighted scores.

        - "marginal": the Kaplan-Meier estimate of the censoring in y.
        - "auto", the default: the same, and if X is given, a test of whether censoring depends on x: on the columns
          that the models read, or on all columns for distributions. A Cox model of the censoring times is cross-fitted
          on these rows and compared with Kaplan-Meier by the likelihood of held-out rows. If censoring depends on x,
          weighted scores are given with both G, because one G for all rows may prefer the wrong model; ``notes``
          reports the finding.
        - an estimator: replaces the Cox model; its G is used regardless of the test.
        - a distribution: used as it is, for example ``kaplan_meier(y_train, censoring=True)``.
        - a `CensoringCheck`: the result of an earlier test on these rows.

        Concordance by `uno_c` always uses one G for all rows.
    times : float, array, or tuple (low, high), optional
        Times for all scores that depend on time, unless their own options give times. A number or a list of times
        for scores at single times (`brier`, `cumulative_dynamic_auc`, `group_calibration` and others), which get one
        row per time; a tuple (low, high) or a grid for the integrated scores. The default is the median time of y for
        scores at single times, and the range from the smallest positive to just before the largest time of y, beyond
        which nobody is followed, for integrated scores.
    n_bootstrap : int, default 200
        Number of resamples; 0 for no intervals.
    confidence : float, default 0.95
        Confidence level of the intervals, which are quantiles of the resampled scores.
    random_state : seed or numpy.random.Generator, default 0
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents. Whole numbers are counts: intervals are those of repeated rows.
    groups : array of shape (n,), optional
        The subject that each row belongs to: subjects are resampled with all of their rows.
    resolution : "auto", Cells or None
        Cells of time to which times were rounded (`sumosurv.outcome.Cells`). The likelihood and D-calibration are then
        computed for the cells, and the column ``times`` says so. "auto" uses the cells that the models were fitted
        with; None uses densities.
    verbose : bool, default False
        Show a progress bar.

    Returns
    -------
    DataFrame
        Columns score, times, value, low, high, std_error, greater_is_better, proper; one row per score and time.
        ``times`` is the time or range of times as text: "2.5", "0.5–12", or nothing. With competing risks there is a
        column ``cause``: the number of the cause, or nothing for a score of all causes together. With several models
        there are the columns ``model`` and ``against``. If ``against`` names a model, value and interval refer to the
        difference from that model or, for scores with a target such as the calibration slope, to the difference of the
        distances from the target. If a score is given with two censoring distributions, the column ``censoring``
        names them.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True, True], time=[1.0, 2.0, 3.0, 4.0])
    >>> d = Weibull([1.0, 2.0, 3.0, 4.0], 1.0)
    >>> evaluate(d, None, y, scores=["log_likelihood", "concordance_td"], n_bootstrap=0)
    score            value
    log_likelihood  -1.621
    concordance_td   1.000
    >>> evaluate(d, None, y, scores="brier", times=[1.0, 2.5], n_bootstrap=0)
    score   value  times
    brier  0.1049  1
    brier  0.2026  2.5
    >>> evaluate({"a": d, "b": Weibull(2.0 * d.scale[:, 0], 1.0)}, None, y, scores="brier", times=1.0, n_bootstrap=0)
                value
    brier at 1
      a        0.1049
      b        0.1135
      b - a  0.008687
    """
    models = (
        check_names(model_or_distribution)
        if isinstance(model_or_distribution, Mapping)
        else {"": model_or_distribution}
    )
    if not models:
        raise ValueError("There is no model to evaluate: the mapping is empty.")
    source = as_source(X, y, sample_weight, groups, n_causes=common_causes(models))
    return evaluate_rows(
        rows_of(models, source),
        scores=scores,
        censoring=censoring,
        times=times,
        n_bootstrap=n_bootstrap,
        confidence=confidence,
        random_state=random_state,
        resolution=resolution,
        verbose=verbose,
    )


def evaluate_rows(rows: MemoryRows | BlockRows, *, confidence: float = 0.95, **options: Any) -> Evaluation:
    """Score rows that are in memory, on disk or on a cluster; the options are those of `evaluate`."""
    requests, found, notes = estimate_rows(rows, **options)
    names = list(map(str, rows.models))
    pairs = [(name, names[0]) for name in names[1:]]
    return Evaluation.of(list(table_lines(requests, names, pairs, found, confidence)), notes)


def estimate_rows(
    rows: MemoryRows | BlockRows,
    *,
    scores: RequestedScores | None = None,
    censoring: Any = "auto",
    times: Any = None,
    n_bootstrap: int = 200,
    random_state: Any = 0,
    resolution: Any = "auto",
    verbose: bool = False,
) -> tuple[list[Request], dict[tuple[int, str], Estimate], list[str]]:
    """Return the requests, their estimates by (position of the request, name of the model), and notes."""
    check_resamples(n_bootstrap)
    if scores is None:
        scores, times = default_scores(rows.outcome, times)
    cells = _common_cells(rows.models) if isinstance(resolution, str) else resolution
    cells = None if rows.outcome.upper is not None else cells
    fixed = censoring if isinstance(censoring, SurvivalDistribution) else None
    requests = make_requests(scores, rows.outcome, fixed, times, rows.n_causes, cells)
    requests, notes = rows.weighted(requests, censoring, random_state)
    notes += _past_follow_up(requests, rows.outcome)
    found, held, more = rows.score(requests, verbose)
    if held is not None:
        done = {place for place, _ in found}
        missing = {place: request for place, request in enumerate(requests) if place not in done}
        bootstrap = Bootstrap(held.outcome, n_bootstrap, np.random.default_rng(random_state))
        found |= score_held(held, missing, bootstrap, verbose)
    notes += [*more, *dict.fromkeys(estimate.note for estimate in found.values() if estimate.note)]
    return requests, found, notes


def score_held(
    held: HeldRows, requests: Mapping[int, Request], bootstrap: Bootstrap, verbose: bool = False
) -> dict[tuple[int, str], Estimate]:
    """Score rows in memory and resamples of them, by the position of the request and the name of the model."""
    found = {}
    since_entry = bootstrap.on_time_scale(held.since_entry)
    memory = CurveMemory()
    from tqdm.auto import tqdm

    with tqdm(total=len(requests) * len(held.curves), desc="evaluating", unit="score", disable=not verbose) as bar:
        for name in held.curves:
            for places, request in grouped_by_times(requests):
                distribution, outcome = held.seen_by(name, request.score)
                terms = request.terms(distribution, outcome, memory)
                resamples = bootstrap if outcome is held.outcome else since_entry
                draws = [terms.resampled(part).reshape(-1, len(places)) for part in resamples]
                by_place = np.concatenate([np.empty((0, len(places))), *draws]).T
                values = [terms.value] if len(places) == 1 else terms.resampled(Resamples.whole(outcome))[0]
                for place, value, own in zip(places, values, by_place, strict=True):
                    found[place, name] = Estimate(float(value), own, times=terms.times, note=terms.note)
                bar.update(len(places))
    return found


def score_tables(
    distribution: SurvivalDistribution, outcome: Outcome, requests: Sequence[Request], bootstrap: Bootstrap
) -> list[list[Estimate]]:
    """Score predictions for several tables of the same rows, which lie one below the other: one list for each table.

    Scores that are means over subjects are taken from all tables at once.
    """
    n, tables = len(outcome), len(distribution) // len(outcome)
    every = HeldRows({"": distribution}, outcome[np.tile(np.arange(n), tables)])
    others = {k: request for k, request in enumerate(requests) if request.score.by_subject is not None}
    parts = [distribution[slice(i * n, i * n + n)] if others else distribution for i in range(tables)]
    found = [score_held(HeldRows({"": part}, outcome), others, bootstrap) for part in parts]
    for k, request in enumerate(requests):
        if k not in others:
            distribution, outcomes = every.seen_by("", request.score)
            scores = request.score.function(distribution, outcomes, **request.options).reshape(tables, n, 1)
            for own, values in zip(found, scores):
                terms = MeanTerms(outcome, values)
                own[k, ""] = Estimate(terms.value, np.concatenate([np.empty(0), *map(terms.resampled, bootstrap)]))
    return [[own[k, ""] for k in range(len(requests))] for own in found]


def table_lines(
    requests: Sequence[Request],
    names: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    found: Mapping[tuple[int, str], Estimate],
    confidence: float,
) -> Iterator[dict[str, Any]]:
    """Yield the lines of the table: for each score all models, then the differences of pairs (model, against)."""
    check_level(confidence, "confidence")
    for place, request in enumerate(requests):
        about = {
            "score": request.score.name,
            "cause": "" if request.cause is None else request.cause,
            "censoring": request.censoring,
            "times": request.times or next(filter(None, (found[place, name].times for name in names)), ""),
            "greater_is_better": request.score.greater_is_better,
            "proper": request.score.proper,
        }
        target = request.score.target
        shown = [(name, "", found[place, name]) for name in names]
        for pair in pairs:
            both = (found[place, name] for name in pair)
            first, second = both if target is None else (estimate.distance(target) for estimate in both)
            shown.append((*pair, first - second))
        for name, against, estimate in shown:
            low, high, error = estimate.interval(confidence)
            values = {"value": estimate.value, "low": low, "high": high, "std_error": error}
            yield about | values | {"model": name, "against": against}


def _common_cells(models: Mapping[str, Any]) -> Cells | None:
    """Return the cells of time of the models that have any, which must be the same."""
    known = [cells for model in models.values() if (cells := cells_of(model)) is not None]
    if any(cells != known[0] for cells in known[1:]):
        raise ValueError(
            "The models were fitted with different cells of time, so that their likelihoods are not comparable; set "
            "resolution= to the cells to use for all models, or to None for densities."
        )
    return known[0] if known else None


def _past_follow_up(requests: list[Request], outcome: Outcome) -> list[str]:
    """Return a note on scores at times beyond the end of follow-up."""
    last = float(outcome.time.max())
    late = [r for r in requests if (r.horizon or 0.0) >= last]
    if not late:
        return []
    names = list(dict.fromkeys(r.score.name for r in late))
    return [
        f"No row is followed beyond time {last:g}: {', '.join(names)} at time {min(r.horizon or 0.0 for r in late):g} "
        "and later are based on events alone. Use earlier times."
    ]


# ------------------------------------------------------------------ the same scores of different rows


class FixedScores:
    """Scores of different rows with the same times and the same censoring distribution.

    Parameters
    ----------
    X, outcome
        All rows.
    parts : sequence of int arrays
        The rows that are scored together. Scores over a range of times end at the shortest follow-up of a part.
    scores, times, censoring, random_state
        As in `cross_evaluate`; whether censoring depends on x is tested once, on all rows.
    """

    def __init__(
        self,
        X: Any,
        outcome: Outcome,
        parts: Sequence[Index],
        scores: RequestedScores | None,
        times: Any,
        censoring: Any,
        random_state: Any,
    ) -> None:
        self.X, self.outcome, self._censoring = X, outcome, censoring
        later, self.notes = outcome.since_entry(), list[str]()
        if scores is None:
            scores, times = default_scores(outcome, times)
        names = [scores] if isinstance(scores, str) else list(scores)
        self.scores = {name: dict(scores[name]) if isinstance(scores, Mapping) else {} for name in names}
        low, high = follow_up(later.time)[0], min(follow_up(later.time[part])[1] for part in parts)
        needs_test = False
        for name, options in self.scores.items():
            score = find_score(name)
            needs_test |= score.needs_censoring and score.given_x and options.get("censoring") is None
            if score.times != "none" and options.get(score.times_option) is None:
                default = median_time(later) if score.times == "single" else (low, high)
                options[score.times_option] = default if times is None else times
        if not isinstance(censoring, SurvivalDistribution):
            check, self.notes = resolve_censoring(censoring, X, later, random_state, needed=needs_test)
            self._censoring = "marginal" if check is None else check

    def censoring(self, rows: Index) -> Any:
        """Return the censoring distribution of some rows, as an argument of `evaluate`."""
        g = self._censoring
        if isinstance(g, CensoringCheck):
            return g.of_rows(rows)
        return g[rows] if not isinstance(g, str) and len(g) == len(self.outcome) else g

    def of(self, models: Any, rows: Index) -> Evaluation:
        """Return the scores of models on some rows."""
        X, y = take_rows(self.X, rows), self.outcome[rows]
        return evaluate(models, X, y, scores=self.scores, censoring=self.censoring(rows), n_bootstrap=0)


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
    random_state : int, default 0
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
    rows_in_memory = MemoryRows({"": model_or_distribution}, as_source(X, y, sample_weight, groups))
    curves, outcome = rows_in_memory.held.curves[""], rows_in_memory.held.outcome
    level, labels = _levels(X, by, rows_in_memory.counted)
    X = take_rows(X, np.flatnonzero(rows_in_memory.counted))
    cells = cells_of(model_or_distribution)
    parts = {label: np.flatnonzero(level == place) for place, label in enumerate(labels)}
    pairs = [(labels[1], labels[0])]
    if len(labels) > 2:
        pairs = [(label, f"not {label}") for label in labels]
        parts |= {f"not {label}": np.flatnonzero(level != place) for place, label in enumerate(labels)}
    fixed = FixedScores(X, outcome, [parts[label] for label in labels], scores, times, censoring, random_state)
    notes = fixed.notes
    found: dict[tuple[int, str], Estimate] = {}
    requests: list[Request] = []
    seeds = np.random.SeedSequence(random_state).spawn(len(parts))
    from tqdm.auto import tqdm

    with tqdm(total=len(parts), desc="evaluating", unit="level", disable=not verbose) as bar:
        for (label, rows), seed in zip(parts.items(), seeds):
            own = MemoryRows({label: curves[rows]}, as_source(take_rows(X, rows), outcome[rows]))
            requests, estimates, more = estimate_rows(
                own,
                scores=fixed.scores,
                censoring=fixed.censoring(rows),
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


def _levels(X: Any, by: Any, counted: npt.NDArray[np.bool_]) -> tuple[Any, list[str]]:
    """Return the level of each row that counts, numbered from zero, and the names of the levels."""
    if isinstance(by, str):
        if not isinstance(X, pd.DataFrame) or by not in X.columns:
            raise ValueError(f"X has no column {by!r}; pass the name of a column, or the level of each row.")
        by = X[by]
    values = pd.Series(by).reset_index(drop=True)
    if len(values) != len(counted):
        raise ValueError(f"by has {len(values)} values, and y has {len(counted)} rows.")
    level, known = pd.factorize(values[counted], sort=True)
    labels = [*map(str, known), *(["missing"] if (level < 0).any() else [])]
    if not 2 <= len(labels) <= _MOST_LEVELS or len(set(labels)) < len(labels):
        raise ValueError(
            f"A column with 2 to {_MOST_LEVELS} distinct levels is needed; this one has {len(labels)}. Cut numbers "
            "into intervals with pandas.cut."
        )
    return np.where(level < 0, len(known), level), labels
