"""A test of proportional hazards from Schoenfeld residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import gammaincc

from sumosurv.estimators.partial_likelihood import PartialLikelihood
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome

__all__ = ["TimeTransform", "check_transform", "proportionality_table"]

TimeTransform = Literal["km", "rank", "identity", "log"]

Array = npt.NDArray[np.float64]


def check_transform(transform: Any) -> None:
    """Raise a ValueError unless it is one of those there are."""
    if transform not in get_args(TimeTransform):
        known = ", ".join(map(repr, get_args(TimeTransform)))
        raise ValueError(f"transform is one of {known}; got {transform!r}.")


def proportionality_table(
    likelihood: PartialLikelihood,
    beta: Array,
    outcome: Outcome,
    transform: TimeTransform,
    terms: Sequence[str],
    kept: npt.NDArray[np.bool_],
) -> pd.DataFrame:
    """Statistics of each term and of all; see `CoxPH.test_proportionality`.

    Parameters
    ----------
    likelihood : PartialLikelihood
        Of the columns that are kept.
    beta : array of shape (p,)
        Their coefficients.
    outcome : Outcome
    transform : {"km", "rank", "identity", "log"}
    terms : sequence of str
        Of all columns.
    kept : bool array
        Which of them are kept.
    """
    rows = np.flatnonzero(outcome.event)
    weight = outcome.weights[rows]
    time = _transformed(outcome, transform)[rows]
    if not len(rows) or time.min() == time.max():
        raise ValueError("All events have the same time; whether hazard ratios change with time cannot be told.")
    centred = time - np.average(time, weights=weight)
    spread = float(weight @ centred**2)
    residuals = likelihood.schoenfeld_residuals(beta)[rows]
    # in units of the columns' spread, so that the inverse is accurate
    information = likelihood(beta)[2]
    unit = np.sqrt(np.maximum(np.diag(information), np.finfo(np.float64).tiny))
    inverse = np.linalg.pinv(information / np.outer(unit, unit), rcond=1e-12, hermitian=True)
    score = (weight * centred) @ residuals / unit
    moved = inverse @ score
    own = np.full(len(terms), np.nan)
    own[kept] = weight.sum() * moved**2 / (np.diag(inverse) * spread)
    statistic = np.append(own, weight.sum() * float(score @ moved) / spread)
    df = np.append(np.ones(len(terms)), max(int(kept.sum()), 1))
    return pd.DataFrame(
        {"statistic": statistic, "df": df.astype(int), "p": gammaincc(0.5 * df, 0.5 * statistic)},
        index=pd.Index([*terms, "global"], name="term"),
    )


def _transformed(outcome: Outcome, transform: TimeTransform) -> Array:
    if transform == "km":
        return np.asarray(kaplan_meier(outcome).cdf(outcome.time)[0])
    if transform == "log":
        if not (outcome.time[outcome.event] > 0).all():
            raise ValueError("transform='log' needs event times above zero; take another, such as 'km'.")
        return np.log(np.where(outcome.time > 0, outcome.time, 1.0))
    if transform == "identity":
        return outcome.time
    made = np.zeros(len(outcome))
    events = outcome.event
    made[events] = _ranks(outcome.time[events], outcome.weights[events])
    return made


def _ranks(time: Array, weight: Array) -> Array:
    """Mean rank of each time from zero, every row counted as often as it weighs."""
    _, place = np.unique(time, return_inverse=True)
    counts = np.bincount(place, weights=weight)
    return np.asarray((np.cumsum(counts) - 0.5 * counts)[place], dtype=np.float64)
