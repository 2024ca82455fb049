"""Scorers for scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sumosurv.models import predict_distribution
from sumosurv.outcome import check_outcome
from sumosurv.scores._requests import counted_rows, find_score

__all__ = ["SurvivalScorer", "make_survival_scorer"]


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
    record = find_score(score)
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
        distribution, outcome, counted = counted_rows(predict_distribution(estimator, X), outcome)
        score = find_score(self.score)
        if outcome.entry is not None and "entry" not in score.takes:
            distribution, outcome = distribution.remaining(outcome.entry), outcome.since_entry()
        (request,) = score.requests(outcome, self.options)
        value = request.of_rows(counted).terms(distribution, outcome).value
        return value if request.score.greater_is_better else -value

    def __repr__(self) -> str:
        parts = [repr(self.score)] + [f"{name}={value!r}" for name, value in self.options.items()]
        return f"make_survival_scorer({', '.join(parts)})"
