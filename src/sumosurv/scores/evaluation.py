"""Many scores of one model at once, with confidence intervals; and scorers for scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.distributions import CompetingRisksDistribution, SurvivalDistribution
from sumosurv.outcome import Cells, Outcome, check_outcome
from sumosurv.scores._inputs import Array, check_rows, check_subjects
from sumosurv.scores._resampling import Bootstrap
from sumosurv.scores.score import Request, Score
from sumosurv.scores.table import SCORES

__all__ = ["DEFAULT_SCORES", "Evaluation", "SurvivalScorer", "evaluate", "make_survival_scorer"]

DEFAULT_SCORES = (
    "log_likelihood",
    "concordance_td",
    "integrated_brier",
    "integrated_binomial_log_likelihood",
    "d_calibration",
)
_COLUMNS = ("score", "cause", "times", "value", "low", "high", "std_error", "greater_is_better", "proper")

_OF_CELLS = ("log_likelihood", "d_calibration")  # scores that are of cells of time where times are recorded so
_WITHOUT_CAUSES = tuple(name for name in _COLUMNS if name != "cause")


class Evaluation(pd.DataFrame):  # type: ignore[misc]
    """What `evaluate` returns: a DataFrame that prints its values, intervals and times within 80 columns.

    Numbers are rounded in print only. Whatever is selected or computed from it is an ordinary DataFrame.
    """

    def __repr__(self) -> str:
        if tuple(self.columns) not in (_COLUMNS, _WITHOUT_CAUSES) or self.empty:
            return str(super().__repr__())
        for digits, gap in ((4, 2), (4, 1), (3, 1), (2, 1)):
            lines = self._lines(digits, " " * gap)
            if max(map(len, lines)) <= 80:
                break
        return "\n".join(lines)

    def _lines(self, digits: int, gap: str) -> list[str]:
        names = ["value"] if self["low"].isna().all() else ["value", "low", "high"]
        columns = [["score", *self["score"]]]
        if "cause" in self.columns:
            columns += [["cause", *map(str, self["cause"])]]
        first = len(columns)
        columns += [[name, *(_number(value, digits) for value in self[name])] for name in names]
        if self["times"].ne("").any():
            columns += [["times", *self["times"]]]
        padded = []
        for i, column in enumerate(columns):
            width = max(map(len, column))
            numeric = first <= i < first + len(names)
            padded.append([text.rjust(width) if numeric else text.ljust(width) for text in column])
        return [gap.join(parts).rstrip() for parts in zip(*padded)]


def _number(value: float, digits: int) -> str:
    text = f"{value:.0f}" if 10**digits <= abs(value) < 10**9 else f"{value:#.{digits}g}"
    return text.removesuffix(".")


def evaluate(
    model_or_distribution: Any,
    X: Any,
    y: Any,
    *,
    scores: str | Sequence[str] | Mapping[str, Mapping[str, Any]] = DEFAULT_SCORES,
    censoring: SurvivalDistribution | None = None,
    times: Any = None,
    n_bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: Any = 0,
    sample_weight: Any = None,
    groups: Any = None,
    resolution: Any = "auto",
) -> Evaluation:
    """Scores of a model on given rows, with bootstrap confidence intervals.

    Subjects are resampled with replacement, the same resamples for every score; the model is not fitted again, so
    that the intervals speak of the rows it was tested on. What a score needs of each subject is computed once, and the
    score of a resample follows from that:

    - means are taken anew, exactly;
    - a censoring distribution that is estimated from the scored rows is estimated anew in each resample; one that is
      given stays as it is;
    - concordances are means over pairs: each subject's share of the pairs is resampled, to first order in the
      resampling weights;
    - calibration scores are sums of squares, to which the noise of sampling adds. The interval is for the score on
      other samples of the same size, noise included; the noise of resampling does not come on top.

    Times, given or not, are the same in every resample.

    Where rows enter late, the likelihood and D-calibration are those of the event given that it comes after entry. All
    other scores are of the time since entry: each subject's clock starts at its entry, and its curve is
    ``distribution.remaining(entry)``; times are meant on that clock. Where events lie between two times, only the
    likelihood and D-calibration are defined. Where a subject has several rows (spells), the likelihood adds up over
    them; the other scores take each spell for a subject of its own, censored at its end.

    Parameters
    ----------
    model_or_distribution : object with ``predict_distribution(X)``, or SurvivalDistribution
        Pipelines and searches of scikit-learn around such a model work too.
    X : table of covariates
        Not used with a distribution; pass None.
    y : outcome
    scores : str, sequence of str, or mapping of str to options
        Names in `SCORES`; a mapping gives the options of each, ``{"log_likelihood": {"resolution": 1.0}}``.
        The exact `concordance_td` of a continuous model grows as n²: past some tens of thousands of rows give it a
        grid, ``{"concordance_td": {"times": grid}}``.
    censoring : SurvivalDistribution, optional
        G of the weighted scores: Kaplan-Meier of the censoring in y itself by default. Pass
        ``kaplan_meier(y_train, censoring=True)`` for that of the training rows.
    times : float, array, or tuple (low, high), optional
        For every score that is taken at times, unless its own options say otherwise. A number or a list of times for
        scores at single times (`brier`, `cumulative_dynamic_auc`, `km_calibration` and the like), which get one row
        per time; a tuple (low, high) or a grid for the integrated scores. By default scores at single times are taken
        at the median time of y, and integrated ones from the smallest positive to the largest time of y.
    n_bootstrap : int
        0 for no intervals.
    confidence : float
        Share of the resamples inside the interval (between quantiles).
    random_state : seed or numpy.random.Generator
    sample_weight : array of shape (n,), optional
        How many rows each row counts for.
    groups : array of shape (n,), optional
        The subject that each row belongs to: subjects are resampled with all of their rows.
    resolution : "auto", Cells or None
        Whether an event at a recorded time is known to lie in a cell (`sumosurv.outcome.Cells`); the likelihood and
        D-calibration are then those of the cells, and ``times`` says so. "auto" takes the cells that the model was
        fitted with.

    Returns
    -------
    DataFrame
        Columns score, times, value, low, high, std_error, greater_is_better, proper; one row per score and time.
        ``times`` says in words where the score was taken: "2.5", "0.5–12", or nothing. Where causes compete, there is
        also a column cause after the first: the number of the cause, one row for each, or nothing for a score of all
        causes together (the likelihood) or of the first event of any cause. Printed in short.

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
    """
    outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
    distribution, outcome, counted = _counted(_predict(model_or_distribution, X), outcome)
    if outcome.upper is not None and scores is DEFAULT_SCORES:
        scores = tuple(name for name in scores if "intervals" in SCORES[name].takes)
    later = _since_entry(outcome)
    causes = distribution.n_causes if isinstance(distribution, CompetingRisksDistribution) else 1
    cells = _cells_of(model_or_distribution) if isinstance(resolution, str) else resolution
    cells = None if outcome.upper is not None else cells
    requests = _requests(scores, later, censoring, times, causes, cells)
    requests = [request.of_rows(counted) for request in requests]
    if n_bootstrap < 0 or not 0 < confidence < 1:
        raise ValueError(f"n_bootstrap is 0 or more and confidence lies in (0, 1); got {n_bootstrap} and {confidence}.")
    bootstrap = Bootstrap(outcome, n_bootstrap, np.random.default_rng(random_state))
    since_start = since_entry = (distribution, outcome, bootstrap)
    if later is not outcome and any("entry" not in request.score.takes for request in requests):
        since_entry = (distribution.remaining(outcome.entry), later, bootstrap.on_clock(later))
    rows = []
    for request in requests:
        score = request.score
        curves, observed, resamples = since_start if "entry" in score.takes else since_entry
        if score.name == "d_calibration" and cells is not None:
            observed = cells.of(observed)
        terms = request.terms(curves, observed)
        draws = np.concatenate([np.empty(0), *(terms.resampled(part) for part in resamples)])
        interval = _interval(draws, confidence)
        about = (score.name, "" if request.cause is None else request.cause, request.times)
        rows.append((*about, terms.value, *interval, score.greater_is_better, score.proper))
    made = Evaluation(rows, columns=list(_COLUMNS))
    return made if any(request.cause is not None for request in requests) else Evaluation(made.drop(columns="cause"))


def make_survival_scorer(score: str, **options: Any) -> SurvivalScorer:
    """A scorer for ``cross_val_score``, ``GridSearchCV`` and the like.

    Scores of which less is better come with a minus sign, as scikit-learn wants it. The weighted scores take
    Kaplan-Meier of the censoring in the scored rows unless ``censoring=`` is given; scores at a time are taken at the
    median time of the scored rows unless one is given.

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
    record = _score(score)
    record.check(options)
    at = options.get(record.times_option)
    if record.times == "single" and at is not None and np.size(at) != 1:
        raise ValueError(f"A scorer gives one number, and {score} one for each time; got {np.size(at)} times.")
    return SurvivalScorer(score, dict(options))


@dataclass(frozen=True)
class SurvivalScorer:
    """What `make_survival_scorer` returns: (estimator, X, y) to a number of which more is better."""

    score: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score a fitted estimator that has ``predict_distribution``."""
        outcome = check_outcome(y, sample_weight=sample_weight)
        distribution, outcome, counted = _counted(_predict(estimator, X), outcome)
        score = _score(self.score)
        if outcome.entry is not None and "entry" not in score.takes:
            distribution, outcome = distribution.remaining(outcome.entry), _since_entry(outcome)
        (request,) = score.requests(outcome, self.options)
        value = request.of_rows(counted).terms(distribution, outcome).value
        return value if request.score.greater_is_better else -value

    def __repr__(self) -> str:
        parts = [repr(self.score)] + [f"{name}={value!r}" for name, value in self.options.items()]
        return f"make_survival_scorer({', '.join(parts)})"


# ------------------------------------------------------------------ inputs


def _counted(
    distribution: SurvivalDistribution, outcome: Outcome
) -> tuple[SurvivalDistribution, Outcome, npt.NDArray[np.bool_]]:
    """Curves and outcomes of the rows whose weight is not zero, and which these are."""
    outcome = check_subjects(distribution, outcome, entry=True, intervals=True)
    counted = outcome.weights > 0
    if counted.all():
        return distribution, outcome, counted
    rows = np.flatnonzero(counted)
    return distribution[rows], check_rows(outcome[rows], entry=True, intervals=True), counted


def _since_entry(outcome: Outcome) -> Outcome:
    """The rows with times on clocks that start at each row's entry; as they are where all enter at zero."""
    if outcome.entry is None:
        return outcome
    upper = None if outcome.upper is None else outcome.upper - outcome.entry
    return replace(outcome, time=outcome.time - outcome.entry, upper=upper, entry=None)


def _predict(model: Any, X: Any) -> SurvivalDistribution:
    if isinstance(model, SurvivalDistribution):
        return model
    if hasattr(model, "predict_distribution"):
        distribution = model.predict_distribution(X)
    elif hasattr(model, "best_estimator_"):
        return _predict(model.best_estimator_, X)
    elif hasattr(model, "steps"):  # a Pipeline passes on only the methods that scikit-learn knows
        return _predict(model.steps[-1][1], model[:-1].transform(X) if len(model.steps) > 1 else X)
    else:
        raise TypeError(
            f"{type(model).__name__} has no predict_distribution(X) and is no SurvivalDistribution; "
            "for other libraries' curves pass Tabulated(times, survival)."
        )
    if not isinstance(distribution, SurvivalDistribution):
        raise TypeError(f"predict_distribution gave {type(distribution).__name__}, not a SurvivalDistribution.")
    return distribution


def _score(name: str) -> Score:
    if name not in SCORES:
        raise ValueError(f"There is no score {name!r}; the scores are {', '.join(SCORES)}.")
    return SCORES[name]


def _requests(
    scores: str | Sequence[str] | Mapping[str, Mapping[str, Any]],
    outcome: Outcome,
    censoring: SurvivalDistribution | None,
    times: Any,
    causes: int,
    cells: Cells | None,
) -> list[Request]:
    """Each score with its options: its own, and those that are for all scores which take them."""
    own: Mapping[str, Mapping[str, Any]] = scores if isinstance(scores, Mapping) else {}
    names = [scores] if isinstance(scores, str) else list(scores)
    wanted = [(_score(name), dict(own.get(name, {}))) for name in names]
    if times is not None:
        _share("times", times, wanted)
    if censoring is not None:
        _share("censoring", censoring, wanted)
    made = []
    for score, options in wanted:
        in_cells = cells is not None and score.name in _OF_CELLS and options.get("resolution") is None
        if in_cells and "resolution" in score.options:
            options["resolution"] = cells
        requests = score.requests(outcome, options, causes)
        made += [replace(r, times=f"cells of {cells.width:g}") for r in requests] if cells and in_cells else requests
    return made


def _cells_of(model: Any) -> Cells | None:
    """The cells of time that a model was fitted with, also inside a search or a pipeline."""
    if hasattr(model, "best_estimator_"):
        return _cells_of(model.best_estimator_)
    if hasattr(model, "steps"):
        return _cells_of(model.steps[-1][1])
    return getattr(model, "cells_", None)


def _share(argument: str, value: Any, wanted: Sequence[tuple[Score, dict[str, Any]]]) -> None:
    """Give an argument of `evaluate` to each score that takes it and has not its own; refuse it if there is none."""
    shared = False
    for score, options in wanted:
        option = score.option_for(argument)
        if option is not None and options.get(option) is None:
            options[option], shared = value, True
    if not shared:
        possible = ", ".join(score.name for score in SCORES.values() if score.option_for(argument) is not None)
        names = ", ".join(score.name for score, _ in wanted)
        raise ValueError(f"{argument}= is for {possible}; none of those asked for ({names}) is left without its own.")


def _interval(draws: Array, confidence: float) -> tuple[float, float, float]:
    if len(draws) == 0 or np.isnan(draws).all():
        return np.nan, np.nan, np.nan
    known = draws[~np.isnan(draws)]
    tail = 0.5 * (1.0 - confidence)
    # an interval may reach to -inf: take order statistics, no interpolation between infinite values
    low, high = np.quantile(known, [tail, 1.0 - tail], method="inverted_cdf")
    error = float(known.std(ddof=1)) if len(known) > 1 and np.isfinite(known).all() else np.nan
    return float(low), float(high), error
