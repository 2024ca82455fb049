"""The choice of a search: a pure function of the log-likelihoods of validation rows."""

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


def log_mixture(values: Floats, reach: Floats | None = None) -> Floats:
    """The log-likelihood of each row under the equal mixture of some trials.

    Parameters
    ----------
    values : array of shape (trials, rows)
        The log-likelihood of each row under each of them.
    reach : array of shape (trials, rows), optional
        log S(entry) of rows that enter late. Their likelihood is that given entry: the trials under which a row is
        likely to reach its entry count more.
    """
    if reach is None:
        return np.asarray(np.logaddexp.reduce(values, axis=0) - math.log(len(values)))
    return np.asarray(np.logaddexp.reduce(values + reach, axis=0) - np.logaddexp.reduce(reach, axis=0))


def _first(size: int, values: Floats, reach: Floats | None) -> Floats:
    return log_mixture(values[:size], None if reach is None else reach[:size])


def _sizes(count: int) -> list[int]:
    return sorted({min(2**i, count) for i in range(count.bit_length() + 1)})


def mean_of_rows(values: npt.NDArray[np.float64], weight: npt.NDArray[np.float64] | None) -> float:
    """Mean over the rows, which may have weights."""
    return float(values.mean() if weight is None else np.average(values, weights=weight))


def mixture_scores(values: Floats, weight: Floats | None = None, reach: Floats | None = None) -> dict[int, float]:
    """Mean log-likelihood of the mixture of the best 1, 2, 4, ... trials.

    Parameters
    ----------
    values : array of shape (trials, rows)
        Log-likelihood of each validation row under each trial, the best trial first.
    weight : array of shape (rows,), optional
    reach : array of shape (trials, rows), optional
        As in `log_mixture`.
    """
    with np.errstate(invalid="ignore"):
        return {size: mean_of_rows(_first(size, values, reach), weight) for size in _sizes(len(values))}


def choose_size(values: Floats, weight: Floats | None = None, reach: Floats | None = None) -> int:
    """The largest mixture that is no more than one standard error (of the paired difference) below the best one.

    The few best trials owe some of their place to chance, which the same rows cannot reveal; a larger mixture that
    is as good within the noise is the safer choice.
    """
    rows = {size: _first(size, values, reach) for size in _sizes(len(values))}
    best = max(rows, key=lambda size: mean_of_rows(rows[size], weight))
    chosen = best
    for size, row in rows.items():
        if size > chosen and len(row) > 1:
            gap = rows[best] - row
            if mean_of_rows(gap, weight) <= _standard_error(gap, weight) + _ROUNDING:
                chosen = size
    return chosen


def _standard_error(values: npt.NDArray[np.float64], weight: npt.NDArray[np.float64] | None) -> float:
    """Of the mean of the rows."""
    if weight is None:
        return float(values.std(ddof=1) / math.sqrt(len(values)))
    share = weight / weight.sum()
    return float(np.sqrt(np.sum((share * (values - share @ values)) ** 2) * len(values) / (len(values) - 1)))


def rank_trials(scores: Mapping[int, float]) -> list[int]:
    """Trials with a finite score, the best first."""
    order = sorted((n for n, score in scores.items() if math.isfinite(score)), key=lambda n: (-scores[n], n))
    if not order:
        raise ValueError("No trial had a finite likelihood on the validation rows.")
    return order


@dataclass(frozen=True)
class Choice:
    """What a search chose.

    Attributes
    ----------
    order : list of int
        Numbers of the trials with a finite score, the best first.
    mixture : list of int
        Those that are mixed.
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
    reach: Floats | None = None,
) -> Choice:
    """Choose how many of the best trials are mixed.

    Parameters
    ----------
    order : list of int
        Trials, the best first.
    values : array of shape (trials, rows)
        Log-likelihood of each validation row under the first trials of that order: as many as may be mixed.
    mixture : int or "auto"
        How many; "auto" for `choose_size`.
    weight : array of shape (rows,), optional
        Of the rows.
    reach : array of shape (trials, rows), optional
        As in `log_mixture`.
    """
    size = choose_size(values, weight, reach) if mixture == "auto" else len(values)
    return Choice(order, order[:size], mixture_scores(values, weight, reach))
