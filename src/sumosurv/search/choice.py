"""How many of the best trials to mix, by validation rows alone."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["choose_size", "mixture_scores"]

_ROUNDING = 1e-12


def _log_mixture(values: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    """log of the mean likelihood of each row over the first ``size`` trials."""
    return np.asarray(np.logaddexp.reduce(values[:size], axis=0) - math.log(size))


def _sizes(count: int) -> list[int]:
    return sorted({min(2**i, count) for i in range(count.bit_length() + 1)})


def mixture_scores(values: npt.NDArray[np.float64]) -> dict[int, float]:
    """Mean log-likelihood of the mixture of the best 1, 2, 4, ... trials.

    Parameters
    ----------
    values : array of shape (trials, rows)
        Log-likelihood of each validation row under each trial, the best trial first.
    """
    with np.errstate(invalid="ignore"):
        return {size: float(_log_mixture(values, size).mean()) for size in _sizes(len(values))}


def choose_size(values: npt.NDArray[np.float64]) -> int:
    """The largest mixture that is no more than one standard error (of the paired difference) below the best one.

    The few best trials owe some of their place to chance, which the same rows cannot reveal; a larger mixture that
    is as good within the noise is the safer choice.
    """
    rows = {size: _log_mixture(values, size) for size in _sizes(len(values))}
    best = max(rows, key=lambda size: float(rows[size].mean()))
    chosen = best
    for size, row in rows.items():
        if size > chosen and len(row) > 1:
            gap = rows[best] - row
            if gap.mean() <= gap.std(ddof=1) / math.sqrt(len(gap)) + _ROUNDING:
                chosen = size
    return chosen
