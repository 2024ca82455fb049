"""Many scores of one model or several at once, with confidence intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sumosurv.distributions import SurvivalDistribution
from sumosurv.models import cells_of, check_names
from sumosurv.outcome import Cells, Outcome
from sumosurv.scores._inputs import progress_bar, remembering
from sumosurv.scores._resampling import Bootstrap, Estimate
from sumosurv.scores.blocks import BlockRows, HeldRows, MemoryRows, common_causes, rows_of
from sumosurv.scores.evaluation_table import Evaluation
from sumosurv.scores.score import Request, RequestedScores, default_scores, make_requests
from sumosurv.sources import as_source

__all__ = ["evaluate", "evaluate_rows"]


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

    With delayed entry, the likelihood and D-calibration are conditional on the event after entry, and `concordance_td`
    and `harrell_c` compare an event with the rows at risk at its time. The other scores are of the time since entry:
    time starts at each row's entry, and its curve is ``distribution.remaining(entry)``; ``times`` are meant on that
    scale. With interval-censored events, only the likelihood and D-calibration are defined. If a subject has several
    rows (spells), the likelihood adds up over them; the scores of the time since entry take each spell for a subject
    that is censored at its end.

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


def evaluate_rows(
    rows: MemoryRows | BlockRows,
    *,
    scores: RequestedScores | None = None,
    censoring: Any = "auto",
    times: Any = None,
    n_bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: Any = 0,
    resolution: Any = "auto",
    verbose: bool = False,
) -> Evaluation:
    """Score rows that are in memory, on disk or on a cluster; the other parameters are those of `evaluate`."""
    if not isinstance(n_bootstrap, (int, np.integer)) or n_bootstrap < 0:
        raise ValueError(f"n_bootstrap must be a whole number, 0 or more; got {n_bootstrap!r}.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be a probability between 0 and 1, such as 0.95; got {confidence!r}.")
    if scores is None:
        scores, times = default_scores(rows.outcome, times, rows.n_causes)
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
        found |= _resampled(held, missing, bootstrap, verbose)
    notes += [*more, *dict.fromkeys(estimate.note for estimate in found.values() if estimate.note)]
    return Evaluation.of(list(_lines(requests, list(map(str, rows.models)), found, confidence)), notes)


def _resampled(
    held: HeldRows, requests: Mapping[int, Request], bootstrap: Bootstrap, verbose: bool
) -> dict[tuple[int, str], Estimate]:
    """Score rows in memory and resamples of them, by the position of the request and the name of the model."""
    found = {}
    since_entry = bootstrap.on_clock(held.since_entry)
    with remembering(), progress_bar(len(requests) * len(held.curves), "score", verbose) as advance:
        for name in held.curves:
            for place, request in requests.items():
                distribution, outcome = held.seen_by(name, request.score)
                terms = request.terms(distribution, outcome)
                resamples = bootstrap if outcome is held.outcome else since_entry
                draws = np.concatenate([np.empty(0), *(terms.resampled(part) for part in resamples)])
                times, note = getattr(terms, "times", ""), getattr(terms, "note", "")  # of scores that are not exact
                found[place, name] = Estimate(terms.value, draws, times=times, note=note)
                advance(1)
    return found


def _lines(
    requests: Sequence[Request], names: Sequence[str], found: Mapping[tuple[int, str], Estimate], confidence: float
) -> Iterator[dict[str, Any]]:
    """Lines of the table: for each score all models, then their differences from the first."""
    for place, request in enumerate(requests):
        about = {
            "score": request.score.name,
            "cause": "" if request.cause is None else request.cause,
            "censoring": request.censoring,
            "times": request.times or next(filter(None, (found[place, name].times for name in names)), ""),
            "greater_is_better": request.score.greater_is_better,
            "proper": request.score.proper,
        }
        first = found[place, names[0]]
        shown = [(name, "", found[place, name]) for name in names]
        shown += [(name, names[0], found[place, name] - first) for name in names[1:]]
        for name, against, estimate in shown:
            low, high, error = estimate.interval(confidence)
            values = {"value": estimate.value, "low": low, "high": high, "std_error": error}
            yield about | values | {"model": name, "against": against}


def _common_cells(models: Mapping[str, Any]) -> Cells | None:
    """The cells of time of the models that have any."""
    known = [cells for model in models.values() if (cells := cells_of(model)) is not None]
    if any(cells != known[0] for cells in known[1:]):
        raise ValueError(
            "The models were fitted with different cells of time, and their likelihoods are on different scales; say "
            "with resolution= which cells to take for all, or None for densities."
        )
    return known[0] if known else None


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
