"""The log-likelihood, the one proper score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Cells, Outcome
from sumosurv.scores._inputs import Array, check_subjects, times_weight

_ROWS = 1 << 15  # subjects taken at once: taking rows copies their curves


@torch.no_grad()
def log_likelihood(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    floor: float | None = None,
    resolution: float | Cells | None = None,
    until: float | None = None,
    sample_weight: Any = None,
) -> Array:
    r"""Log-likelihood S_L of each row, shape (n,); higher is better; proper.

    .. math:: S_L = d \log f(z|x) + (1 - d) \log S(z|x).

    An event in (l, u] scores log(S(l) - S(u)) in place of log f. With competing risks, f and S(l) - S(u) refer to the
    cause that occurred. With left truncation, log S(entry) is subtracted, so that the rows of one subject add up to
    the score of all its time.

    The score is exact: an event at which the density is zero scores -inf. It depends on the time unit, because a
    density is per unit of time: if times are multiplied by c, the mean falls by log c times the share of rows that are
    scored by a density.

    Parameters
    ----------
    distribution : SurvivalDistribution
        For the n subjects of y.
    y : outcome
    floor : float, optional
        Replaces smaller densities and survival probabilities. A floored score is no longer proper. None, the default,
        keeps the exact score.
    resolution : float or Cells, optional
        Width r of the cells to which times were rounded. Events then score

        log[S(z - r/2) - S(z + r/2)] - log r,

        the log-probability of the cell (from 0 if z < r/2, divided by the remaining width), which no spike of the
        density at the rounded times can raise without limit. Censored rows score as before. `Cells` also say where the
        cells lie; ``model.cells_`` are the cells that a model was fitted with.
    until : float, optional
        Score only what was known at this time, which is on the time scale of y: rows that were still event-free are
        censored there.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents. Scores are multiplied by the weights, scaled to a mean of one, so that
        their mean is the weighted mean.

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
    observed = check_subjects(distribution, y, entry=True, intervals=True)
    observed = observed if until is None else known_by(observed, until)
    event, time = observed.event, observed.time
    if floor is not None and not 0.0 < floor < 1.0:
        raise ValueError(f"floor must lie between 0 and 1 (for example 1e-6); got {floor}.")
    if isinstance(resolution, Cells):
        in_cells = log_likelihood(distribution, resolution.of(observed), floor=floor)
        return times_weight(in_cells - np.log(resolution.widths(observed)), sample_weight)
    if resolution is not None and not resolution > 0.0:
        raise ValueError(f"resolution must be the positive width of a cell of time; got {resolution}.")
    causes = _causes(distribution, observed)
    score = np.empty(len(time))
    inside = observed.in_interval
    for rows in _blocks(~event & ~inside):
        score[rows] = distribution[rows].log_survival(own_times=time[rows])
    for k in range(1, 2 if causes is None else 1 + int(causes.max())):
        own = np.ones(len(time), dtype=bool) if causes is None else causes == k
        for rows in _blocks(event & own):
            part = distribution[rows] if causes is None else distribution[rows].cause(k)
            at = time[rows]
            score[rows] = part.log_density(own_times=at) if resolution is None else _log_cell(part, at, resolution)
        for rows in _blocks(inside & own):
            assert observed.upper is not None
            between = distribution[rows].log_incidence_between(time[rows], observed.upper[rows])
            score[rows] = between[:, k - 1]
    if floor is not None:
        score = np.maximum(score, np.log(floor))
    if observed.entry is not None:
        for rows in _blocks(observed.entry > 0):
            reached = distribution[rows].log_survival(own_times=observed.entry[rows])
            # a row that enters after S has reached zero has probability zero, not nan
            none = np.isneginf(reached)
            score[rows] = np.where(none, -np.inf, score[rows] - np.where(none, 0.0, reached))
    return times_weight(score, sample_weight)


def known_by(outcome: Outcome, horizon: float) -> Outcome:
    """Return what was known of the rows at a horizon: rows that were event-free then are censored there.

    An interval-censored event is unknown before the end of its interval. The entry of a row that enters later is put at
    its (censored) time, so that it contributes nothing.
    """
    first = 0.0 if outcome.entry is None else float(outcome.entry.min())
    if not horizon > first:
        raise ValueError(
            f"By time {horizon:g} nothing is known of any row: the first is under observation from {first:g} on. Use "
            "later times, on the time scale of y."
        )
    found = outcome.time if outcome.upper is None else np.where(outcome.event, outcome.time, outcome.upper)
    late = found > horizon
    time = np.minimum(outcome.time, horizon)
    return replace(
        outcome,
        event=outcome.event & ~late,
        time=time,
        upper=None if outcome.upper is None else np.where(late, np.inf, outcome.upper),
        cause=None if outcome.cause is None else np.where(late, 0, outcome.cause),
        entry=None if outcome.entry is None else np.minimum(outcome.entry, time),
    )


def _blocks(chosen: npt.NDArray[np.bool_]) -> Iterator[npt.NDArray[np.intp]]:
    """Yield the chosen rows, some at a time."""
    rows = np.flatnonzero(chosen)
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]


def _causes(distribution: SurvivalDistribution, outcome: Outcome) -> npt.NDArray[np.int64] | None:
    """Return the cause of each event; None for a single cause. Raise ValueError if y and distribution do not match."""
    known = distribution.n_causes
    if known == 1 and outcome.n_causes == 1:
        return None
    if known == 1:
        raise ValueError(
            f"y has {outcome.n_causes} causes and the distribution has one. Pass the event that it describes, such as "
            "event == 1, or event > 0 for any. If the model was fitted to a fold without the other causes, stratify "
            "the folds by event."
        )
    if outcome.cause is None:
        raise ValueError(
            f"The distribution has {known} causes, but y does not distinguish them; give the number of the cause, "
            "0 for censored rows: Surv.from_arrays(event, time, causes=...)."
        )
    if outcome.n_causes > known:
        row = int(np.flatnonzero(outcome.cause > known)[0])
        raise ValueError(
            f"Row {row} has cause {int(outcome.cause[row])}, and the distribution has {known} causes: the training "
            "rows had no such event. Stratify folds by event."
        )
    return outcome.cause


def _log_cell(distribution: SurvivalDistribution, time: Array, resolution: float) -> Array:
    """Return the log of the average density over each event's cell of time."""
    start, stop = np.maximum(time - 0.5 * resolution, 0.0), time + 0.5 * resolution
    # S just before the cell's left end, so that an atom sitting on a boundary belongs to one cell (closed on the left)
    log_start = np.where(start > 0, distribution.log_survival(own_times=np.nextafter(start, 0.0)), 0.0)
    log_stop = distribution.log_survival(own_times=np.nextafter(stop, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.log(-np.expm1(np.minimum(log_stop - log_start, 0.0)))  # 1 - S(stop) / S(start)
        inside = np.where(np.isneginf(log_start), -np.inf, log_start + share)
    return np.asarray(inside - np.log(stop - start), dtype=np.float64)
