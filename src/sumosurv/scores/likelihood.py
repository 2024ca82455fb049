"""The right-censored log-likelihood: the proper score."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.scores._inputs import Array, check_subjects

__all__ = ["log_likelihood"]

_ROWS = 1 << 15  # subjects taken at once: taking rows copies their curves


def log_likelihood(
    distribution: SurvivalDistribution, y: Any, *, floor: float | None = None, resolution: float | None = None
) -> Array:
    r"""Right-censored log-likelihood S_L of each subject, shape (n,); higher is better; proper.

    .. math:: S_L = d \log f(z|x) + (1 - d) \log S(z|x).

    It is exact: an event where the density is zero scores -inf. It depends on the time unit (a density
    is per unit of time): with times multiplied by c the mean falls by (event share) · log c.

    Parameters
    ----------
    distribution : SurvivalDistribution
        For the n subjects of y.
    y : outcome
    floor : float, optional
        Replace densities and survival probabilities below it by it. An explicit departure from the
        exact score: a floored score is no longer proper.
    resolution : float, optional
        Width r of the cells to which times were rounded. Events then score

        log[S(z - r/2) - S(z + r/2)] - log r,

        the log-probability of the cell (from 0 where z < r/2, divided by the width that is left), which no
        spike of the density on the rounded times can raise without limit. Censored rows score as before.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False], time=[1.0, 3.0])
    >>> log_likelihood(Weibull([2.0, 2.0], [1.0, 1.0]), y).round(4)
    array([-1.1931, -1.5   ])
    """
    observed = check_subjects(distribution, y)
    event, time = observed.event, observed.time
    if floor is not None and not 0.0 < floor < 1.0:
        raise ValueError(f"floor lies between 0 and 1 (for example 1e-6); got {floor}.")
    if resolution is not None and not resolution > 0.0:
        raise ValueError(f"resolution is the positive width of a time cell; got {resolution}.")
    score = np.empty(len(time))
    for seen in (False, True):
        rows = np.flatnonzero(event == seen)
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            with torch.no_grad():
                part, at = distribution[some], time[some]
                if not seen:
                    score[some] = part.log_survival(own_times=at)
                else:
                    score[some] = (
                        part.log_density(own_times=at) if resolution is None else _log_cell(part, at, resolution)
                    )
    return score if floor is None else np.maximum(score, np.log(floor))


def _log_cell(distribution: SurvivalDistribution, time: Array, resolution: float) -> Array:
    """log of the average density over each event's time cell."""
    start, stop = np.maximum(time - 0.5 * resolution, 0.0), time + 0.5 * resolution
    # S just before the cell's left end, so that an atom sitting on a boundary belongs to one cell (closed on the left)
    log_start = np.where(start > 0, distribution.log_survival(own_times=np.nextafter(start, 0.0)), 0.0)
    log_stop = distribution.log_survival(own_times=np.nextafter(stop, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.log(-np.expm1(np.minimum(log_stop - log_start, 0.0)))  # 1 - S(stop) / S(start)
        inside = np.where(np.isneginf(log_start), -np.inf, log_start + share)
    return np.asarray(inside - np.log(stop - start), dtype=np.float64)
