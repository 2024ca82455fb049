"""Choosing the trials that are mixed: pure functions of the log-likelihoods of validation rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["Choice", "choose", "choose_size", "log_mixture", "mean_of_rows", "mixture_scores", "rank_trials"]

_ROUNDING = 1e-12

Floats = npt.NDArray[np.float64]


def log_mixture(values: Floats, at_entry: Floats | None = None) -> Floats:
    """Log-likelihood of each row under the equally weighted mixture of some trials.

    Parameters
    ----------
    values : array of shape (trials, rows)
        Log-likelihood of each row under each trial.
    at_entry : array of shape (trials, rows), optional
        log S(entry), for rows with delayed entry. Their likelihood is conditional on survival until entry, so trials
        under which a row is likely to reach its entry have a larger weight.
    """
    if at_entry is None:
        return np.asarray(np.logaddexp.reduce(values, axis=0) - math.log(len(values)))
    return np.asarray(np.logaddexp.reduce(values + at_entry, axis=0) - np.logaddexp.reduce(at_entry, axis=0))


def mean_of_rows(values: Floats, weight: Floats | None) -> float:
    """Mean over rows, weighted if there are weights."""
    return float(values.mean() if weight is None else np.average(values, weights=weight))


def rank_trials(scores: Mapping[int, float]) -> list[int]:
    """Numbers of the trials with a finite score, best first."""
    order = sorted((n for n, score in scores.items() if math.isfinite(score)), key=lambda n: (-scores[n], n))
    if not order:
        raise ValueError("No trial had a finite likelihood on the validation rows.")
    return order


def _mixtures(values: Floats, at_entry: Floats | None) -> dict[int, Floats]:
    """Log-likelihoods of rows under the mixtures of the best 1, 2, 4, ... and of all trials."""
    sizes = sorted({min(2**i, len(values)) for i in range(len(values).bit_length() + 1)})
    return {n: log_mixture(values[:n], None if at_entry is None else at_entry[:n]) for n in sizes}


def mixture_scores(values: Floats, weight: Floats | None = None, at_entry: Floats | None = None) -> dict[int, float]:
    """Mean log-likelihood of the mixtures of the best 1, 2, 4, ... trials.

    Parameters
    ----------
    values : array of shape (trials, rows)
        Log-likelihood of each validation row under each trial, best trial first.
    weight : array of shape (rows,), optional
    at_entry : array of shape (trials, rows), optional
        As in `log_mixture`.
    """
    with np.errstate(invalid="ignore"):
        return {size: mean_of_rows(row, weight) for size, row in _mixtures(values, at_entry).items()}


def choose_size(values: Floats, weight: Floats | None = None, at_entry: Floats | None = None) -> int:
    """The largest mixture within one standard error (of the paired difference) of the best one.

    The best few trials owe part of their rank to chance, which the same rows cannot reveal; a larger mixture that is
    as good within the noise is the safer choice.
    """
    rows = _mixtures(values, at_entry)
    best = max(rows, key=lambda size: mean_of_rows(rows[size], weight))
    chosen = best
    for size, row in rows.items():
        if size > chosen and len(row) > 1:
            gap = rows[best] - row
            if mean_of_rows(gap, weight) <= _standard_error(gap, weight) + _ROUNDING:
                chosen = size
    return chosen


def _standard_error(values: Floats, weight: Floats | None) -> float:
    """Standard error of the mean over rows."""
    if weight is None:
        return float(values.std(ddof=1) / math.sqrt(len(values)))
    share = weight / weight.sum()
    return float(np.sqrt(np.sum((share * (values - share @ values)) ** 2) * len(values) / (len(values) - 1)))


@dataclass(frozen=True)
class Choice:
    """The trials that a search mixes.

    Attributes
    ----------
    order : list of int
        Numbers of the trials with a finite score, best first.
    mixture : list of int
        Numbers of the trials in the mixture.
    mixture_scores : dict
        Mean log-likelihood of the mixture of the best 1, 2, 4, ... trials.
    """

    order: list[int]
    mixture: list[int]
    mixture_scores: dict[int, float]


def choose(
    order: list[int],
    values: Floats,
    mixture: int | Literal["auto"],
    weight: Floats | None = None,
    at_entry: Floats | None = None,
) -> Choice:
    """Choose how many of the best trials are mixed.

    Parameters
    ----------
    order : list of int
        Trials, best first.
    values : array of shape (trials, rows)
        Log-likelihood of each validation row under the first trials of ``order``, as many as may be mixed.
    mixture : int or "auto"
        Number of trials; "auto" for `choose_size`.
    weight : array of shape (rows,), optional
    at_entry : array of shape (trials, rows), optional
        As in `log_mixture`.
    """
    size = choose_size(values, weight, at_entry) if mixture == "auto" else len(values)
    return Choice(order, order[:size], mixture_scores(values, weight, at_entry))
