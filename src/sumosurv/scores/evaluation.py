"""Many scores of one model or several at once, with confidence intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sumosurv.distributions import CompetingRisksDistribution, SurvivalDistribution
from sumosurv.models import cells_of, check_names, final_estimator, predict_distribution
from sumosurv.outcome import Cells, Outcome, check_outcome
from sumosurv.scores._inputs import Array, remembering
from sumosurv.scores._requests import Asked, counted_rows, in_cells, make_requests, usual_scores
from sumosurv.scores._resampling import Bootstrap
from sumosurv.scores.censoring import MIN_FOLLOWED, CensoringCheck, check_censoring, large_weights, share_left_out
from sumosurv.scores.evaluation_table import Evaluation
from sumosurv.scores.score import Request
from sumosurv.scores.streamed import StreamedScores, is_sampled
from sumosurv.sources import Roles, RowSource, is_source, take_rows

__all__ = ["Evaluation", "evaluate"]


def evaluate(
    model_or_distribution: Any,
    X: Any,
    y: Any,
    *,
    scores: Asked | None = None,
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
    """Scores of one model or several on given rows, with bootstrap confidence intervals.

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

    Times, given or not, are the same in every resample. Several models are scored on the same resamples, so that the
    intervals of their differences are paired: what makes a sample easy for one model makes it easy for the other.

    Where rows enter late, the likelihood and D-calibration are those of the event given that it comes after entry. All
    other scores are of the time since entry: each subject's clock starts at its entry, and its curve is
    ``distribution.remaining(entry)``; times are meant on that clock. Where events lie between two times, only the
    likelihood and D-calibration are defined. Where a subject has several rows (spells), the likelihood adds up over
    them; the other scores take each spell for a subject of its own, censored at its end.

    Parameters
    ----------
    model_or_distribution : object with ``predict_distribution(X)``, SurvivalDistribution, or mapping of names to these
        Pipelines and searches of scikit-learn around such a model work too. Of several models each is compared with
        the first.
    X : table of covariates, or rows on disk
        Not used with a distribution; pass None. A Parquet file, a folder of them, a ``pyarrow.dataset.Dataset``, an
        iterator of record batches or a `RowSource` is read in pieces, twice (docs/large_data.md): means are exact, with
        intervals from 100 groups of subjects that are left out in turn; the AUC comes from sketches of the risks;
        concordances and calibration in groups are of 20,000 rows drawn at random.
    y : outcome
        Of rows on disk the names of columns, ``{"time": "months", "event": "died"}``.
    scores : str, sequence of str, or mapping of str to options
        Names in `SCORES`; a mapping gives the options of each, ``{"log_likelihood": {"resolution": 1.0}}``. By default
        the likelihood, concordance, integrated scores and D-calibration; with single ``times`` also Brier score, AUC,
        binomial log-likelihood and calibration at each of them.
    censoring : "auto", "marginal", SurvivalDistribution, estimator or CensoringCheck
        G of the weighted scores. "marginal": Kaplan-Meier of the censoring in y itself. "auto": the same, and if X is
        given, whether censoring depends on x is tested: a Cox model of the censoring times, cross-fitted on these rows,
        against Kaplan-Meier, by the likelihood of held-out rows. If it does, scores are given with either G, since
        those with one G for all may prefer the wrong model; ``notes`` says what was found. An estimator takes the
        place of the Cox model, and its G is used whatever the test says. A distribution is taken as it is:
        ``kaplan_meier(y_train, censoring=True)`` for that of the training rows. A `CensoringCheck` is what was found
        on these rows before. `uno_c` has weights for one G only.
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
        fitted with; of several models, those of any, for all.
    verbose : bool
        Show a progress bar.

    Returns
    -------
    DataFrame
        Columns score, times, value, low, high, std_error, greater_is_better, proper; one row per score and time.
        ``times`` says in words where the score was taken: "2.5", "0.5–12", or nothing. Where causes compete, there is
        also a column cause after the first: the number of the cause, one row for each, or nothing for a score of all
        causes together (the likelihood) or of the first event of any cause. Of several models there are the columns
        model and against: where against names a model, value and interval are of the difference from that model.
        Where a score is given with two censoring distributions, the column censoring says with which. Printed in short.

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
    if not isinstance(n_bootstrap, (int, np.integer)) or n_bootstrap < 0:
        raise ValueError(f"n_bootstrap is a whole number, 0 or more; got {n_bootstrap!r}.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is a probability between 0 and 1, such as 0.95; got {confidence!r}.")
    models = (
        check_names(model_or_distribution)
        if isinstance(model_or_distribution, Mapping)
        else {"": model_or_distribution}
    )
    if is_source(X):
        roles = Roles.of(y, sample_weight, groups)
        return _of_source(
            models, RowSource.of(X), roles, scores, censoring, times, n_bootstrap, confidence, random_state, resolution,
            verbose,
        )  # fmt: skip
    curves, outcome, counted = _curves(models, X, check_outcome(y, sample_weight=sample_weight, groups=groups))
    causes = _causes(curves)
    if scores is None:
        scores, times = usual_scores(outcome, times, causes)
    cells = _common_cells(models) if isinstance(resolution, str) else resolution
    cells = None if outcome.upper is not None else cells
    later = outcome.since_entry()
    fixed = censoring if isinstance(censoring, SurvivalDistribution) else None
    requests = make_requests(scores, later, fixed, times, causes, cells)
    requests = [request.of_rows(counted) for request in requests]
    rows = None if X is None else (X if counted.all() else take_rows(X, np.flatnonzero(counted)))
    if isinstance(censoring, CensoringCheck):
        censoring = censoring.of_rows(np.flatnonzero(counted))
    requests, notes = _with_censoring(requests, censoring, rows, later, random_state)
    notes += _past_follow_up(requests, later)
    bootstrap = Bootstrap(outcome, n_bootstrap, np.random.default_rng(random_state))
    clocks = (outcome, bootstrap), (later, bootstrap if later is outcome else bootstrap.on_clock(later))
    found: dict[tuple[int, str], _Found] = {}
    with remembering(), _bar(len(requests) * len(curves), verbose) as advance:
        for name, distribution in curves.items():
            remaining = None  # of rows that enter late, made where a score needs it
            for place, request in enumerate(requests):
                at_start = "entry" in request.score.takes
                if not at_start and later is not outcome and remaining is None:
                    remaining = distribution.remaining(outcome.entry)
                own = distribution if at_start or remaining is None else remaining
                observed, resamples = clocks[0 if at_start else 1]
                terms = request.terms(own, in_cells(request, observed, cells))
                draws = np.concatenate([np.empty(0), *(terms.resampled(part) for part in resamples)])
                found[place, name] = _Found(terms.value, draws, getattr(terms, "times", ""), getattr(terms, "note", ""))
                advance()
    notes += dict.fromkeys(result.note for result in found.values() if result.note)
    return Evaluation.of(list(_rows(requests, list(curves), found, confidence)), notes)


def _of_source(
    models: Mapping[str, Any],
    source: RowSource,
    roles: Roles,
    scores: Asked | None,
    censoring: Any,
    times: Any,
    n_bootstrap: int,
    confidence: float,
    random_state: Any,
    resolution: Any,
    verbose: bool,
) -> Evaluation:
    """The table of rows that are read in pieces."""
    fixed = censoring if isinstance(censoring, SurvivalDistribution) else None
    if (fixed is None and censoring not in ("auto", "marginal")) or (fixed is not None and len(fixed) > 1):
        raise TypeError("Of rows on disk G is one curve for all: censoring is 'marginal' or a distribution of one row.")
    causes = {getattr(final_estimator(model), "n_causes_", 1) for model in models.values()}
    if len(causes) > 1:
        raise ValueError(f"Models that are compared tell the same causes apart; these have {sorted(causes)}.")
    own_causes = causes.pop()
    cells = _common_cells(models) if isinstance(resolution, str) else resolution
    streamed = StreamedScores(
        models,
        source,
        roles.read(source, own_causes),
        scores=scores,
        times=times,
        censoring=fixed,
        causes=own_causes,
        cells=cells,
    )
    with _bar(source.n_rows, verbose, "row") as advance:
        found, (X, sample) = streamed.score(advance)
    curves = {name: predict_distribution(model, X[streamed.columns[name]]) for name, model in models.items()}
    rows: list[dict[str, Any]] = []
    more: list[str] = []
    for place, request in enumerate(streamed.requests):
        if is_sampled(request):
            given = {"n_bootstrap": n_bootstrap, "confidence": confidence, "random_state": random_state}
            part = evaluate(
                curves if len(curves) > 1 else next(iter(curves.values())),
                None,
                sample,
                scores={request.score.name: request.options},
                **given,
            )
            said = {"cause": "" if request.cause is None else request.cause, "censoring": ""}
            rows += [row | said | {"times": request.times or row["times"]} for row in part.to_dict("records")]
            more += [note for note in part.notes if note not in more]
            continue
        rows += _rows([request], list(models), {(0, name): found[place, name] for name in models}, confidence)
    notes = streamed.notes(len(sample)) + more
    if censoring == "auto" and any(request.score.needs_censoring for request in streamed.requests):
        notes.append("One G for all rows: whether censoring depends on the covariates was not tested.")
    if len(models) == 1:
        rows = [row | {"model": "", "against": ""} for row in rows]
    return Evaluation.of(rows, notes)


@dataclass(frozen=True)
class _Found:
    """A score of a model: its value, those of the resamples, and how it was computed if not exactly."""

    value: float
    draws: Array
    times: str = ""
    note: str = ""

    def interval(self, confidence: float) -> tuple[float, float, float]:
        """Ends and standard error."""
        return _interval(self.draws, confidence)

    def less(self, other: _Found) -> _Found:
        """The difference from another model's, resample by resample."""
        with np.errstate(invalid="ignore"):
            return _Found(self.value - other.value, self.draws - other.draws)


def _rows(
    requests: list[Request], names: list[str], found: Mapping[tuple[int, str], Any], confidence: float
) -> Iterator[dict[str, Any]]:
    """Rows of the table: of each score all models, then their differences from the first."""
    for place, request in enumerate(requests):
        about = {
            "score": request.score.name,
            "cause": "" if request.cause is None else request.cause,
            "censoring": request.censoring,
            "times": request.times or next(filter(None, (getattr(found[place, n], "times", "") for n in names)), ""),
            "greater_is_better": request.score.greater_is_better,
            "proper": request.score.proper,
        }
        first = found[place, names[0]]
        shown = [(name, "", found[place, name]) for name in names]
        shown += [(name, names[0], found[place, name].less(first)) for name in names[1:]]
        for name, against, result in shown:
            low, high, error = result.interval(confidence)
            values = {"value": result.value, "low": low, "high": high, "std_error": error}
            yield about | values | {"model": name, "against": against}


# ------------------------------------------------------------------ inputs


def _curves(
    models: Mapping[str, Any], X: Any, outcome: Outcome
) -> tuple[dict[str, SurvivalDistribution], Outcome, Any]:
    """Curves of each model and outcomes, for the rows whose weight is not zero, and which these are."""
    if not models:
        raise ValueError("There is no model to evaluate: the mapping is empty.")
    curves, counted, kept = {}, None, outcome
    for name, model in models.items():
        curves[str(name)], kept, counted = counted_rows(predict_distribution(model, X), outcome)
    return curves, kept, counted


def _causes(curves: Mapping[str, SurvivalDistribution]) -> int:
    numbers = {name: d.n_causes if isinstance(d, CompetingRisksDistribution) else 1 for name, d in curves.items()}
    if len(set(numbers.values())) > 1:
        listed = ", ".join(f"{name} {number}" for name, number in numbers.items())
        raise ValueError(f"Models that are compared tell the same causes apart; these have ({listed}).")
    return next(iter(numbers.values()))


def _common_cells(models: Mapping[str, Any]) -> Cells | None:
    """The cells of time of the models that have any."""
    known = [cells for model in models.values() if (cells := cells_of(model)) is not None]
    if any(cells != known[0] for cells in known[1:]):
        raise ValueError(
            "The models were fitted with different cells of time, and their likelihoods are on different scales; say "
            "with resolution= which cells to take for all, or None for densities."
        )
    return known[0] if known else None


def _with_censoring(
    requests: list[Request], censoring: Any, X: Any, outcome: Outcome, random_state: Any
) -> tuple[list[Request], list[str]]:
    """Requests with the censoring distributions that they are to be weighted by, and what is to be said of them."""
    open_ones = [r for r in requests if r.score.needs_censoring and r.options.get("censoring") is None]
    by_name = isinstance(censoring, str)
    if by_name and censoring not in ("auto", "marginal"):
        raise ValueError(f'censoring is "auto", "marginal", a distribution or an estimator; got {censoring!r}.')
    if not open_ones or censoring is None or censoring == "marginal" or isinstance(censoring, SurvivalDistribution):
        return requests, []
    if not by_name and not isinstance(censoring, CensoringCheck) and not hasattr(censoring, "fit"):
        raise TypeError(
            f"censoring is a distribution, an estimator with fit(X, y), 'auto' or 'marginal'; got {censoring!r}."
        )
    if outcome.upper is not None:
        return requests, []  # the scores say that they need to know when events happened
    if X is None:
        if not by_name:
            raise ValueError(
                "censoring is an estimator, and there is no X to fit it on; pass X beside the distribution."
            )
        return requests, []
    known = isinstance(censoring, CensoringCheck)
    check = censoring if known else check_censoring(censoring, X, outcome, random_state=random_state)
    if isinstance(check, str):
        return requests, [check]
    notes = [str(check)]
    wanted = [r for r in open_ones if r.score.given_x]
    if not wanted or (by_name and not check.depends):
        return requests, notes
    last = float(outcome.time.max())
    ends = sorted({r.horizon or last for r in wanted})
    missed = {end: share_left_out(check.distribution, outcome, end) for end in ends}
    notes.append(_in_words(check, large_weights(check.distribution, outcome, last), missed))
    made: list[Request] = []
    for request in requests:
        if not any(request is other for other in wanted):
            made.append(request)
            continue
        made.append(replace(request, censoring="marginal"))
        if request.score.times == "range" or missed[request.horizon or last] < 1:
            options = {**request.options, "censoring": check.distribution, "min_followed": MIN_FOLLOWED}
            made.append(replace(request, options=options, censoring="given x"))
    return made, notes


def _past_follow_up(requests: list[Request], outcome: Outcome) -> list[str]:
    """What is to be said of scores at times past which nobody is followed."""
    last = float(outcome.time.max())
    late = [r for r in requests if r.score.times == "single" and (r.horizon or 0.0) >= last]
    if not late:
        return []
    names = list(dict.fromkeys(r.score.name for r in late))
    return [
        f"No row is followed past time {last:g}, so that nobody is known to be event-free later: {', '.join(names)} at "
        f"time {min(r.horizon or 0.0 for r in late):g} and later say nothing of who lives on. Take earlier times."
    ]


def _in_words(check: CensoringCheck, large: float | None, missed: Mapping[float, float]) -> str:
    some = [f"{share:.1%} at time {end:g}" for end, share in missed.items() if share > 0]
    weights = "" if large is None else f" {large:.1%} of rows have weights above 10."
    return (
        "Weighted scores are given with one G for all rows (marginal), which may then prefer the wrong model, and with "
        f"G given x, by {check.name}; there rows are left out at times at which fewer than {MIN_FOLLOWED:.0%} of their "
        f"like are still followed ({', '.join(some) if some else 'none'})." + weights
    )


@contextmanager
def _bar(total: int, verbose: bool, unit: str = "score") -> Iterator[Any]:
    if not verbose:
        yield lambda done=1: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc="evaluating", unit=unit) as bar:
        yield bar.update


def _interval(draws: Array, confidence: float) -> tuple[float, float, float]:
    if len(draws) == 0 or np.isnan(draws).all():
        return np.nan, np.nan, np.nan
    known = draws[~np.isnan(draws)]
    tail = 0.5 * (1.0 - confidence)
    # an interval may reach to -inf: take order statistics, no interpolation between infinite values
    low, high = np.quantile(known, [tail, 1.0 - tail], method="inverted_cdf")
    error = float(known.std(ddof=1)) if len(known) > 1 and np.isfinite(known).all() else np.nan
    return float(low), float(high), error
