"""Validating methods and choosing between them: cross-validation, optimism, scorers, rank correlation of scores."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from sumosurv.confidence import check_level, check_resamples
from sumosurv.models import check_names
from sumosurv.nonparametric import draw_subjects
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.scores.blocks import MemoryRows
from sumosurv.scores.censoring import fitted_to
from sumosurv.scores.evaluation import FixedScores
from sumosurv.scores.evaluation_table import COLUMNS, Evaluation
from sumosurv.scores.score import SCORES, RequestedScores, find_score
from sumosurv.sources import as_source, take_rows
from sumosurv.sources.blocks import warn_of_order

Rows = npt.NDArray[np.intp]

_KEYS = ["score", "cause", "censoring", "times"]
_OF_SUMMARY = ("against", "low", "high", "std_error", "won")  # columns that single folds have not

Split = tuple[Rows, Rows]


@dataclass(frozen=True, repr=False)
class CrossEvaluation:
    """The result of `cross_evaluate`, which prints as a table.

    Attributes
    ----------
    table : Evaluation
        As `evaluate` returns it for several models: means over folds with confidence intervals, differences from the
        first estimator, and in the column won the share of folds in which an estimator is better than the first
        (a tie counts one half).
    folds : DataFrame
        The scores of each fold: the column fold, and the columns of the table without intervals.
    """

    table: Evaluation
    folds: pd.DataFrame

    def __repr__(self) -> str:
        return repr(self.table)


def cross_evaluate(
    estimators: Mapping[str, Any],
    X: Any,
    y: Any,
    cv: Any = 5,
    *,
    scores: RequestedScores | None = None,
    times: Any = None,
    censoring: Any = "marginal",
    n_repeats: int = 1,
    confidence: float = 0.95,
    random_state: int | None = 0,
    sample_weight: Any = None,
    groups: Any = None,
    verbose: bool = True,
) -> CrossEvaluation:
    r"""Compare several estimators by (repeated) cross-validation on the same folds.

    Training sets of different folds overlap, so that the scores of folds are not independent. With J folds in all and ρ
    the ratio of test to training rows, the variance of a mean is estimated by (1/J + ρ) times the variance over the
    folds (Nadeau and Bengio 2003), for scores and for differences, with quantiles of Student's t with J - 1 degrees of
    freedom.

    Parameters
    ----------
    estimators : mapping of str to estimator
        Each is cloned and fitted in every fold, and compared with the first.
    X : table of covariates
    y : outcome
    cv : int or splitter of scikit-learn, default 5
        The number of folds, which are stratified by event and keep all rows of a subject together; or an object with
        ``split``.
    scores, times, censoring
        As in `evaluate`. Times are the same in all folds: by default the median time of y, or the range from the
        smallest positive time to just before the largest that every fold reaches. If ``censoring`` is "auto" or an
        estimator, whether censoring depends on x is tested once, on all rows. A distribution has one curve, or one per
        row.
    n_repeats : int, default 1
        How often the cross-validation is repeated with new folds, if ``cv`` is a number.
    confidence : float, default 0.95
    random_state : int, default 0
        Seed of the splits.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents, in fits and scores.
    groups : array of shape (n,), optional
        The subject that each row belongs to.
    verbose : bool, default True
        Show a progress bar.

    Returns
    -------
    CrossEvaluation

    References
    ----------
    Nadeau, Bengio (2003), Machine Learning 52.

    Examples
    --------
    >>> from sumosurv import CoxPH, KaplanMeier, datasets
    >>> data = datasets.simulate("weibull", 200, random_state=0)
    >>> models = {"Kaplan-Meier": KaplanMeier(), "Cox": CoxPH()}
    >>> result = cross_evaluate(models, data.X, data.y, 5, scores="integrated_brier", verbose=False)
    >>> bool(result.table["won"].iloc[-1] > 0.5)
    True
    """
    if not isinstance(estimators, Mapping) or not estimators:
        raise ValueError('estimators must be a mapping of names to estimators: {"cox": CoxPH(), "sumo": SumoNet()}.')
    check_level(confidence, "confidence")
    if not isinstance(n_repeats, (int, np.integer)) or n_repeats < 1:
        raise ValueError(f"n_repeats must be a whole number, 1 or more; got {n_repeats!r}.")
    estimators = check_names(estimators)
    warn_of_order(X, y=y, sample_weight=sample_weight, groups=groups)
    outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
    splits = list(_splits(cv, X, outcome, n_repeats, random_state))
    fixed = FixedScores(X, outcome, [test for _, test in splits], scores, times, censoring, random_state)
    parts, notes = [], fixed.notes
    from tqdm.auto import tqdm

    with tqdm(total=len(splits) * len(estimators), desc="evaluating", unit="fit", disable=not verbose) as bar:
        for fold, (train, test) in enumerate(splits):
            fitted = {}
            for name, estimator in estimators.items():
                fitted[name] = fitted_to(estimator, X, outcome, train)
                bar.update()
            found = fixed.of(fitted, test)
            if fold == 0:
                notes += [f"In the first fold: {note}" for note in found.notes if note not in notes]
            parts.append(pd.DataFrame(found[found["against"] == ""]).assign(fold=fold))
    folds = pd.concat(parts, ignore_index=True)
    for column in ("cause", "censoring"):
        folds[column] = folds[column].fillna("") if column in folds else ""
    ratio = float(np.mean([len(test) / len(train) for train, test in splits]))
    rows, left_out = _summary(folds, list(estimators), len(splits), ratio, confidence)
    note = f"Means over {len(splits)} folds; intervals allow for training sets that overlap."
    if len(estimators) > 1:
        note += " Folds won: the share of folds in which the score is better than that of the first model."
    kept = [column for column in ("fold", *COLUMNS) if column in folds and column not in _OF_SUMMARY]
    return CrossEvaluation(Evaluation.of(rows, [note, *left_out, *notes]), folds[kept])


def _splits(cv: Any, X: Any, outcome: Outcome, n_repeats: int, random_state: int | None) -> Iterator[Split]:
    """Yield training and test rows of each fold."""
    if hasattr(cv, "split"):
        yield from cv.split(take_rows(X, np.arange(len(outcome))), outcome.had_event, outcome.group)
        return
    if not isinstance(cv, (int, np.integer)) or cv < 2:
        raise ValueError(f"cv must be a number of folds, 2 or more, or a splitter of scikit-learn; got {cv!r}.")
    if cv > (size := len(outcome.subject_event)):
        raise ValueError(f"cv must be at most the number of subjects, {size}; got {cv}.")
    for seed in np.random.default_rng(random_state).integers(2**31, size=n_repeats):
        for held_out in outcome.folds(int(cv), int(seed)):
            yield np.setdiff1d(np.arange(len(outcome)), held_out), held_out


def _summary(
    folds: pd.DataFrame, names: list[str], n_folds: int, ratio: float, confidence: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows of the table, means over folds and differences from the first, and notes."""
    half = float(stats.t.ppf(0.5 + 0.5 * confidence, n_folds - 1)) if n_folds > 1 else np.nan
    told = folds["score"].map(lambda name: find_score(name).times != "none")  # others describe how they were computed
    times = folds["times"].where(told, "")
    rows, notes = [], []
    keys = [folds["score"], folds["cause"], folds["censoring"], times]
    place = folds.groupby([folds["fold"], folds["model"], *keys]).cumcount()  # times may look alike in words
    for _, part in folds.groupby([*keys, place], sort=False):
        row = part.iloc[0]
        about = {name: row[name] for name in ("score", "cause", "censoring", "times", "greater_is_better", "proper")}
        what = " ".join(filter(None, (row["score"], f"with G {row['censoring']}" if row["censoring"] else "")))
        if part["fold"].nunique() < n_folds:
            notes.append(f"{what} is left out: it is missing in {n_folds - part['fold'].nunique()} of {n_folds} folds.")
            continue
        values = part.pivot(index="fold", columns="model", values="value")[names].to_numpy()
        missing = int(np.isnan(values).any(axis=1).sum())
        if missing:
            notes.append(f"The mean of {what} is undefined: the score is undefined in {missing} of {n_folds} folds.")
        score = find_score(row["score"])
        shown = [(name, "", values[:, i], np.nan) for i, name in enumerate(names)]
        for i, name in enumerate(names[1:], 1):
            own, first = score.gain(values[:, i]), score.gain(values[:, 0])
            known = ~np.isnan(own + first) | (own == first)
            won = np.where(own == first, 0.5, own > first)[known]
            with np.errstate(invalid="ignore"):
                difference = values[:, i] - values[:, 0] if score.target is None else first - own
            shown.append((name, names[0], difference, float(won.mean()) if len(won) else np.nan))
        for name, against, found, share in shown:
            with np.errstate(invalid="ignore"):  # infinite values of both signs have no mean
                mean = float(np.mean(found))
            spread = float(np.std(found, ddof=1)) if n_folds > 1 and np.isfinite(found).all() else np.nan
            error = spread * np.sqrt(1.0 / n_folds + ratio)
            interval = {"low": mean - half * error, "high": mean + half * error}
            values_of = {"value": mean, **interval, "std_error": error, "won": share}
            rows.append(about | values_of | {"model": name, "against": against})
    return rows, list(dict.fromkeys(notes))


# ------------------------------------------------------------------ optimism


@dataclass(frozen=True, repr=False)
class Validation:
    """The result of `validate`, which prints as a table.

    Attributes
    ----------
    table : DataFrame
        One row per score and time: ``apparent``, the score of the model on the rows that it was fitted to; the mean
        scores of the models fitted to resamples, on their own resample (``training``) and on all rows (``test``);
        ``optimism``, training minus test; ``corrected``, apparent minus optimism; and ``std_error``, the error of the
        optimism that is due to the number of resamples.
    resamples : DataFrame
        The scores in each resample: columns resample, training and test, and the columns that identify the score.
    notes : tuple of str
    """

    table: pd.DataFrame
    resamples: pd.DataFrame
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        lines = self.table.to_string(index=False, float_format=lambda value: f"{value:.4g}")
        return "\n".join([lines, *(["", *self.notes] if self.notes else [])])


def validate(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    scores: RequestedScores | None = None,
    times: Any = None,
    censoring: Any = "marginal",
    n_bootstrap: int = 200,
    random_state: int | None = 0,
    sample_weight: Any = None,
    groups: Any = None,
    verbose: bool = True,
) -> Validation:
    """Score a method on the rows that it is fitted to, corrected for optimism by Harrell's bootstrap.

    The method is fitted to each of many resamples of the rows. The optimism is the mean difference between the score of
    such a model on its resample and its score on the original rows. It is subtracted from the apparent score, that of
    the model fitted to all rows; no rows need to be held out. All steps that learn from the data, such as the choice of
    columns, belong in the estimator (a pipeline), so that they are repeated in each resample.

    The correction is too small for methods that fit their training rows nearly perfectly, such as forests and large
    networks; use `cross_evaluate` for these.

    Parameters
    ----------
    estimator : estimator
        Cloned and fitted to all rows and to each resample.
    X : table of covariates
    y : outcome
    scores, times, censoring
        As in `cross_evaluate`; times are the same in all resamples.
    n_bootstrap : int, default 200
        Number of resamples.
    random_state : int, default 0
        Seed of the resamples.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents. Rows are drawn with their weights.
    groups : array of shape (n,), optional
        The subject that each row belongs to: subjects are drawn with all of their rows.
    verbose : bool, default True
        Show a progress bar.

    Returns
    -------
    Validation

    References
    ----------
    Harrell, Lee, Mark (1996), Statistics in Medicine 15. R: ``rms::validate``.

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> data = datasets.simulate("weibull", 100, random_state=0)
    >>> found = validate(CoxPH(), data.X, data.y, scores="harrell_c", n_bootstrap=20, verbose=False).table
    >>> list(found.columns)
    ['score', 'times', 'apparent', 'training', 'test', 'optimism', 'corrected', 'std_error']
    """
    check_resamples(n_bootstrap)
    if n_bootstrap < 1:
        raise ValueError("n_bootstrap must be 1 or more: the optimism is a mean over resamples.")
    warn_of_order(X, y=y, sample_weight=sample_weight, groups=groups)
    outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
    rng = np.random.default_rng(random_state)
    draws = [draw_subjects(outcome, rng)[0] for _ in range(n_bootstrap)]
    return validate_on(draws, estimator, X, outcome, scores, times, censoring, random_state, verbose)


def validate_on(
    draws: Sequence[Rows],
    estimator: Any,
    X: Any,
    outcome: Outcome,
    scores: RequestedScores | None = None,
    times: Any = None,
    censoring: Any = "marginal",
    random_state: int | None = 0,
    verbose: bool = False,
) -> Validation:
    """Return `validate` for given resamples, each an array of row numbers."""
    everyone = np.arange(len(outcome))
    fixed = FixedScores(X, outcome, [everyone, *draws], scores, times, censoring, random_state)
    notes = fixed.notes

    def score(model: Any, rows: Rows) -> pd.Series[float]:
        found = fixed.of(model, rows)
        return pd.DataFrame(found).set_index([name for name in _KEYS if name in found])["value"]

    fit_outcome = outcome
    if outcome.group is None and "groups" in inspect.signature(estimator.fit).parameters:
        # copies of a row belong to one subject, so that an estimator that holds out rows holds out all copies
        fit_outcome = replace(outcome, group=everyone)
    apparent = score(fitted_to(estimator, X, outcome, everyone), everyone)
    parts, warned = [], []
    from tqdm.auto import tqdm

    with tqdm(total=len(draws), desc="validating", unit="resample", disable=not verbose) as bar:
        for number, rows in enumerate(draws):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = fitted_to(estimator, X, fit_outcome, rows)
            warned += [str(caught[0].message)] if caught else []
            part = {"training": score(model, rows).to_numpy(), "test": score(model, everyone).to_numpy()}
            parts.append(pd.DataFrame(part, index=apparent.index).assign(resample=number))
            bar.update()
    resamples = pd.concat(parts)
    places = np.tile(np.arange(len(apparent)), len(draws))
    means = resamples[["training", "test"]].groupby(places).mean()
    gap = (resamples["training"] - resamples["test"]).groupby(places)
    table = pd.DataFrame({"apparent": apparent.to_numpy()}).join(means)
    table["optimism"] = gap.mean()
    table["corrected"] = table["apparent"] - table["optimism"]
    table["std_error"] = gap.std() / np.sqrt(gap.count())
    table.index = apparent.index
    undefined = int(resamples[["training", "test"]].isna().any(axis=1).sum())
    notes += [f"{undefined} scores of resamples are undefined and left out of the means."] if undefined else []
    if warned:
        notes.append(f"{len(warned)} of {len(draws)} fits to resamples issued warnings; the first: {warned[0]}")
    return Validation(table.reset_index(), resamples.reset_index(), tuple(notes))


# ------------------------------------------------------------------ scorers


def make_survival_scorer(score: str, **options: Any) -> SurvivalScorer:
    """Make a scorer for ``cross_val_score``, ``GridSearchCV`` and other tools of scikit-learn.

    Scores for which lower is better are negated. A score with a target, such as the calibration slope, becomes minus
    its distance from the target. Weighted scores use the Kaplan-Meier estimate of the censoring in the scored rows
    unless ``censoring`` is given. Scores at a time use the median time of the scored rows unless a time is
    given.

    Parameters
    ----------
    score : str
        A name in `SCORES`.
    **options
        Passed on to the score.

    Examples
    --------
    >>> make_survival_scorer("integrated_brier", times=(0.0, 5.0))
    make_survival_scorer('integrated_brier', times=(0.0, 5.0))
    """
    record = find_score(score)
    record.check(options)
    at = options.get(record.times_option)
    if record.times == "single" and at is not None and np.size(at) != 1:
        raise ValueError(f"A scorer returns one number, and {score} has one for each time; got {np.size(at)} times.")
    return SurvivalScorer(score, dict(options))


@dataclass(frozen=True)
class SurvivalScorer:
    """The result of `make_survival_scorer`: a function of (estimator, X, y); higher is better."""

    score: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score a fitted estimator that has ``predict_distribution``."""
        score, rows = find_score(self.score), MemoryRows({"": estimator}, as_source(X, y, sample_weight))
        (request,), _ = rows.weighted(score.requests(rows.outcome, self.options), "marginal", None)
        value = request.terms(*rows.held.seen_by("", score)).value
        return float(score.gain(value))

    def __repr__(self) -> str:
        parts = [repr(self.score)] + [f"{name}={value!r}" for name, value in self.options.items()]
        return f"make_survival_scorer({', '.join(parts)})"


# ------------------------------------------------------------------ agreement of scores


def rank_correlation(
    results: pd.DataFrame,
    scores: Sequence[str] | None = None,
    *,
    by: Hashable | Sequence[Hashable] | None = None,
    greater_is_better: Mapping[str, bool] | None = None,
) -> pd.DataFrame:
    """Compute the rank correlation of scores over fitted models (the paper's Table 5).

    Within each group (dataset), models are ranked from worst to best by each score. Spearman's correlations of the
    ranks are averaged over the groups.

    Parameters
    ----------
    results : DataFrame
        One row per fitted model, one column per score.
    scores : sequence of str, optional
        Columns to compare; by default all columns that are named in `SCORES`.
    by : column name or names, optional
        The columns that define a group, for example "dataset".
    greater_is_better : mapping, optional
        The direction of columns that are not in `SCORES`.

    Returns
    -------
    DataFrame of shape (scores, scores)
        1 if two scores rank models alike. Groups in which a score is the same for every model are left out of the
        averages of that score; nan if this holds for all groups.

    Examples
    --------
    >>> results = pd.DataFrame({"log_likelihood": [-1.0, -1.2, -1.1], "integrated_brier": [0.15, 0.20, 0.18]})
    >>> rank_correlation(results).round(1)
                      log_likelihood  integrated_brier
    log_likelihood               1.0               1.0
    integrated_brier             1.0               1.0
    """
    names = [name for name in SCORES if name in results.columns] if scores is None else list(scores)
    gain: dict[str, Callable[[Any], Any]] = {name: score.gain for name, score in SCORES.items()}
    gain |= {name: (lambda x: x) if higher else (lambda x: -x) for name, higher in (greater_is_better or {}).items()}
    unknown = [name for name in names if name not in gain]
    if unknown:
        raise ValueError(f"The direction of {unknown} is unknown; pass greater_is_better={{{unknown[0]!r}: True}}.")
    if not names:
        raise ValueError(f"No column has the name of a score: {list(results.columns)}. Pass scores=[...].")
    grouping = [by] if isinstance(by, str) or not isinstance(by, Sequence) else list(by)
    groups = [results] if by is None else [group for _, group in results.groupby(grouping, sort=False)]
    matrices = pd.concat(
        [group[names].apply(lambda values: gain[values.name](values)).corr(method="spearman") for group in groups]
    )
    return matrices.groupby(level=0, sort=False).mean()
