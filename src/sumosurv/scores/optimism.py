"""Internal validation: scores on the rows that a model was fitted to, corrected for their optimism by the bootstrap."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from sumosurv.outcome import Outcome, check_outcome
from sumosurv.quantiles import check_resamples
from sumosurv.scores.evaluation import evaluate
from sumosurv.scores.model_selection import censoring_of_rows, outcome_for_fit, with_times
from sumosurv.scores.score import RequestedScores
from sumosurv.sources import take_rows

__all__ = ["Validation", "validate", "validate_on"]

Rows = npt.NDArray[np.intp]
_KEYS = ["score", "cause", "censoring", "times"]


@dataclass(frozen=True, repr=False)
class Validation:
    """The result of `validate`, which prints as a table.

    Attributes
    ----------
    table : DataFrame
        One row per score and time: ``apparent``, the score of the model on the rows that it was fitted to; the mean
        scores of the models fitted to resamples, on their own resample (``training``) and on all rows (``test``);
        ``optimism``, training less test; ``corrected``, apparent less optimism; and ``std_error``, the error of the
        optimism that is due to the number of resamples.
    resamples : DataFrame
        The scores in each resample: columns resample, training and test, and those that name the score.
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
    such a model on its resample and its score on the original rows. It is subtracted from the apparent score, the one
    of the model fitted to all rows, which needs no rows that are held out. All steps that learn from the data, such as
    the choice of columns, belong into the estimator (a pipeline), so that they are repeated in each resample.

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
    n_bootstrap : int
        Number of resamples.
    random_state : int
        Seed of the resamples.
    sample_weight : array of shape (n,), optional
        How many rows each row counts for. Rows are drawn with their weights.
    groups : array of shape (n,), optional
        The subject that each row belongs to: subjects are drawn with all of their rows.
    verbose : bool
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
    outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
    rng = np.random.default_rng(random_state)
    subject = np.arange(len(outcome)) if outcome.group is None else np.unique(outcome.group, return_inverse=True)[1]
    own = np.split(np.argsort(subject, kind="stable"), np.cumsum(np.bincount(subject))[:-1])
    draws = [np.concatenate([own[i] for i in rng.integers(len(own), size=len(own))]) for _ in range(n_bootstrap)]
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
    scores = with_times(scores, times, outcome, [everyone, *draws])
    weighting, notes = censoring_of_rows(censoring, scores, X, outcome, random_state)

    def score(model: Any, rows: Rows) -> pd.Series[float]:
        g = weighting(rows)
        found = evaluate(model, take_rows(X, rows), outcome[rows], scores=scores, censoring=g, n_bootstrap=0)
        return pd.DataFrame(found).set_index([name for name in _KEYS if name in found])["value"]

    fit_outcome = outcome
    if outcome.group is None and "groups" in inspect.signature(estimator.fit).parameters:
        # copies of a row belong to one subject, so that an estimator that holds out rows holds out all copies
        fit_outcome = replace(outcome, group=everyone)
    apparent = score(clone(estimator).fit(take_rows(X, everyone), outcome_for_fit(outcome)), everyone)
    parts, warned = [], []
    from tqdm.auto import tqdm

    with tqdm(total=len(draws), desc="validating", unit="resample", disable=not verbose) as bar:
        for number, rows in enumerate(draws):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = clone(estimator).fit(take_rows(X, rows), outcome_for_fit(fit_outcome[rows]))
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
