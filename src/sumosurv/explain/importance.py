"""Permutation importance: what a score loses when a column is shuffled, at each of some times if wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.explain._quantity import Array, explanation
from sumosurv.explain._rows import Rows
from sumosurv.fitting.members import check_level
from sumosurv.models import cells_of, predict_distribution
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.scores import SCORES, Bootstrap

__all__ = ["Importance", "permutation_importance"]

_AT_HORIZONS = "log_likelihood"  # of what was known by each


@dataclass(frozen=True, eq=False, repr=False)
class Importance:
    """What scores lose when columns are shuffled: what `permutation_importance` returns.

    Attributes
    ----------
    table : DataFrame
        Columns column, score, cause, time, value, low, high, std_error; most important first. ``value`` is positive
        where the score gets worse, whichever way the score points. ``time`` is NaN for scores of the whole curve.
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
        """``table``, without the columns cause and time where they say nothing."""
        silent = [name for name in ("cause", "time") if self.table[name].isna().all()]
        return self.table.drop(columns=silent)

    def __repr__(self) -> str:
        wanted = self.to_frame().drop(columns="std_error")
        head = f"Loss by shuffling a column: mean of {self.repeats} repeats, {self.level:.0%} limits"
        lines = wanted.head(40).to_string(index=False, float_format=lambda value: f"{value:.4g}")
        more = "" if len(wanted) <= 40 else f"\n... {len(wanted) - 40} more lines"
        return f"{head}\n{lines}{more}"


@explanation
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
    """How much worse the scores of a model get when a column is shuffled among the rows.

    Give rows that the model was not fitted to: on its training rows a model seems to need what it merely remembers.
    A shuffled column no longer goes along with the others, so that of two columns that say the same neither may seem
    to matter; shuffle them together, ``columns={"light chains": ["kappa", "lambda"]}``. Importance for predictions is
    not importance for the outcome.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    X : DataFrame or array
    y : outcome
    scores : str or sequence of str
        Names in `sumosurv.scores.SCORES`.
    times : array of shape (m,), optional
        Where scores at single times are taken (`brier`, `cumulative_dynamic_auc` and the like), one line for each; and
        horizons of the log-likelihood: that of what was known by each of them, rows still event-free then being
        censored there. With late entry, times of other scores are those since entry, as in `evaluate`.
    cause : int, optional
        Of scores that can be of one cause; where causes compete and none is given, all of them.
    columns : sequence of columns, or mapping of names to columns, optional
        Which to shuffle; those under one name are shuffled together. All columns by default.
    n_repeats : int
        Shuffles of each column.
    n_bootstrap : int
        Resamples of the subjects for the intervals; 0 for none.
    level : float
        Share of the resamples between ``low`` and ``high``. Each resample draws subjects, and shuffles, anew with
        replacement: the intervals are for other rows and other shuffles, with the model as it is.
    censoring : SurvivalDistribution, optional
        G of the weighted scores; by default the Kaplan-Meier curve of the censoring in y.
    sample_weight : array of shape (rows,), optional
        How many rows each row counts for.
    groups : array of shape (rows,), optional
        The subject that each row belongs to: subjects are resampled with all of their rows.
    random_state : seed or numpy.random.Generator

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
    if n_repeats < 1 or n_bootstrap < 0:
        raise ValueError(f"n_repeats is at least 1 and n_bootstrap 0 or more; got {n_repeats} and {n_bootstrap}.")
    outcome = check_outcome(y, n_rows=len(rows), sample_weight=sample_weight, groups=groups)
    if outcome.weight is not None and not outcome.weight.all():
        kept = np.flatnonzero(outcome.weight)
        rows, outcome = rows.take(kept), outcome[kept]
        if censoring is not None and len(censoring) > 1:
            censoring = censoring[kept]
    players = rows.players(columns)
    rng = np.random.default_rng(random_state)
    with torch.no_grad():
        whole = predict_distribution(model, rows.table)
        measures = list(_measures(model, whole, outcome, scores, times, cause, censoring))
        judge = _Judge(outcome, measures, Bootstrap(outcome, n_bootstrap, rng))
        full, full_draws = judge.scores(whole)
        _check_finite(measures, full)
        found = []
        for places in players.values():
            lost = [judge.scores(predict_distribution(model, _shuffled(rows, places, rng))) for _ in range(n_repeats)]
            values = np.stack([full - one for one, _ in lost])  # (repeats, measures)
            draws = np.stack([full_draws - one for _, one in lost])  # (repeats, measures, resamples)
            chosen = rng.integers(n_repeats, size=(n_bootstrap, n_repeats))
            again = [draws[own, :, b].mean(axis=0) for b, own in enumerate(chosen)]
            found.append((values.mean(axis=0), np.stack(again) if again else None))
    return Importance(_table(list(players), measures, found, level), _full(measures, full), n_repeats, level)


class _Terms(Protocol):
    """What subjects contribute to a score: `sumosurv.scores.score.Score.terms`."""

    @property
    def value(self) -> float: ...

    def resampled(self, resamples: Any) -> Array: ...


@dataclass(frozen=True)
class _Measure:
    """One score, at one time if it is taken at times, signed so that more is better."""

    score: str
    cause: int | None
    time: float
    sign: float
    terms: Callable[[SurvivalDistribution, Outcome], _Terms]
    since_entry: bool


class _Judge:
    """Scores of predictions for the same rows, and in the same resamples of them."""

    def __init__(self, outcome: Outcome, measures: Sequence[_Measure], bootstrap: Bootstrap) -> None:
        self.outcome, self.measures, self.bootstrap = outcome, measures, bootstrap
        self.later, self.bootstrap_later = outcome, bootstrap
        if outcome.entry is not None:
            self.later = outcome.since_entry()
            self.bootstrap_later = bootstrap.on_time_scale(self.later)

    def scores(self, distribution: SurvivalDistribution) -> tuple[Array, Array]:
        """One value for each measure, and those of the resamples: (measures,), (measures, resamples)."""
        late = self.outcome.entry is not None and any(measure.since_entry for measure in self.measures)
        curves = distribution.remaining(self.outcome.entry) if late else distribution
        values, draws = [], []
        for measure in self.measures:
            own = measure.since_entry and late
            terms = measure.terms(curves if own else distribution, self.later if own else self.outcome)
            resamples = self.bootstrap_later if own else self.bootstrap
            values.append(measure.sign * terms.value)
            draws.append(measure.sign * np.concatenate([np.empty(0), *(terms.resampled(part) for part in resamples)]))
        return np.array(values), np.stack(draws)


def _measures(
    model: Any,
    whole: SurvivalDistribution,
    outcome: Outcome,
    names: str | Sequence[str],
    times: Any,
    cause: int | None,
    censoring: SurvivalDistribution | None,
) -> Iterator[_Measure]:
    """The scores that were predictor for, one after the other, at each of their times."""
    wanted = [names] if isinstance(names, str) else list(names)
    horizons = None if times is None else np.atleast_1d(np.asarray(times, dtype=np.float64))
    n_causes = whole.n_causes
    for name in wanted:
        if name not in SCORES:
            raise ValueError(f"There is no score {name!r}; the scores are {', '.join(SCORES)}.")
        score, options = SCORES[name], dict[str, Any]()
        if cause is not None:
            if not score.of_causes:
                raise ValueError(f"{name} is of all causes together; leave it out, or cause={cause}.")
            options["cause"] = cause
        if censoring is not None and score.needs_censoring:
            options["censoring"] = censoring
        sign = 1.0 if score.greater_is_better else -1.0
        if name == _AT_HORIZONS:
            cells = cells_of(model)
            if cells is not None and outcome.upper is None:
                options["resolution"] = cells
            first = 0.0 if outcome.entry is None else float(outcome.entry.min())
            for t in [np.nan] if horizons is None else horizons:
                if t <= first:
                    raise ValueError(
                        f"By time {t:g} nothing is known of any row: the first comes under observation at {first:g}. "
                        "Horizons of the log-likelihood are on the clock of y, not times since entry."
                    )
                yield _Measure(name, None, t, sign, _likelihood(options, t), False)
            continue
        if horizons is not None:
            if score.times == "none":
                raise ValueError(f"{name} is taken at no particular time; leave it out, or times=.")
            options[score.times_option] = tuple(horizons) if score.times == "range" else horizons
        later = outcome.since_entry() if "entry" not in score.takes else outcome
        for request in score.requests(later, options, n_causes):
            at = float(request.options[score.times_option]) if score.times == "single" else np.nan
            yield _Measure(name, request.cause, at, sign, request.terms, "entry" not in score.takes)


def _likelihood(options: dict[str, Any], horizon: float) -> Callable[[SurvivalDistribution, Outcome], _Terms]:
    def terms(distribution: SurvivalDistribution, outcome: Outcome) -> _Terms:
        seen = outcome if np.isnan(horizon) else known_by(outcome, horizon)
        return SCORES[_AT_HORIZONS].terms(distribution, seen, **options)

    return terms


def known_by(outcome: Outcome, horizon: float) -> Outcome:
    """What was known of the rows at a horizon: those event-free then are censored there.

    An event that was found between two times is not known of before the second. Rows that enter later say nothing:
    their entry is put at their (censored) time.
    """
    if not horizon > 0:
        raise ValueError(f"times are positive; got {horizon:g}.")
    found = outcome.time if outcome.upper is None else np.where(outcome.event, outcome.time, outcome.upper)
    late = found > horizon
    time = np.minimum(outcome.time, horizon)
    return replace(
        outcome,
        event=outcome.event & ~late,
        time=time,
        upper=None if outcome.upper is None else np.where(late, np.inf, outcome.upper),
        cause=None if outcome.cause is None else np.where(late, 0, outcome.cause),
        entry=None if outcome.entry is None else np.minimum(outcome.entry, time),
    )


def _check_finite(measures: Sequence[_Measure], full: Array) -> None:
    for measure, value in zip(measures, full):
        if not np.isfinite(value):
            raise ValueError(
                f"{measure.score} of the rows as they are is {measure.sign * value}: no loss can be told from it. A "
                "step curve (Cox, Kaplan-Meier) gives a row outside its steps the likelihood zero; take another score, "
                "such as scores='integrated_brier'."
            )


def _shuffled(rows: Rows, places: Sequence[int], rng: np.random.Generator) -> Any:
    """The table with some columns shuffled, all in the same way."""
    n = len(rows)
    cells = np.repeat(np.arange(n)[:, None], rows.n_columns, axis=1)
    cells[:, list(places)] = rng.permutation(n)[:, None]
    return rows.mixed(cells)


def _table(
    names: Sequence[str], measures: Sequence[_Measure], found: Sequence[tuple[Array, Array | None]], level: float
) -> pd.DataFrame:
    tail = 0.5 * (1.0 - level)
    lines = []
    for name, (values, draws) in zip(names, found):
        for k, (measure, value) in enumerate(zip(measures, values)):
            low = high = error = np.nan
            if draws is not None:
                low, high = np.quantile(draws[:, k], [tail, 1.0 - tail])
                error = draws[:, k].std(ddof=1) if len(draws) > 1 else np.nan
            lines.append((name, measure.score, measure.cause, measure.time, value, low, high, error))
    columns = ["column", "score", "cause", "time", "value", "low", "high", "std_error"]
    made = pd.DataFrame(lines, columns=columns)
    first = made[made["score"] == measures[0].score]  # scores have scales of their own: the first one decides
    mean = first.groupby("column")["value"].mean()
    rank = made["column"].map(mean.rank(ascending=False, method="first"))
    order = np.lexsort((made["time"].to_numpy(), rank.to_numpy(), pd.factorize(made["score"])[0]))
    return made.iloc[order].reset_index(drop=True)


def _full(measures: Sequence[_Measure], values: Array) -> pd.DataFrame:
    lines = [(m.score, m.cause, m.time, m.sign * value) for m, value in zip(measures, values)]
    return pd.DataFrame(lines, columns=["score", "cause", "time", "value"])
