"""Losses at a time that are weighted for censoring, and what they make of resampled subjects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array, check_subjects, curve_blocks, of_cause
from sumosurv.scores._resampling import MeanTerms, Resamples, Terms, WeightedSums, ratio
from sumosurv.scores._weighting import GridWeights, OnZero, Weighting

__all__ = ["Loss", "free_of", "logarithmic", "squared", "weighted", "weighted_terms"]

# (S or log S of shape (k, m), who is still event-free there) -> what each would score without weights
Loss = Callable[[Array, npt.NDArray[np.bool_]], Array]


def squared(survival: Array, alive: npt.NDArray[np.bool_]) -> Array:
    """(S - 1{z > t})²."""
    residual = survival - alive
    return np.multiply(residual, residual, out=residual)


def logarithmic(floor: float | None) -> Loss:
    """Log S where z > t and log(1 - S) elsewhere, of probabilities moved into [floor, 1 - floor]."""
    if floor is not None and not 0.0 < floor < 0.5:
        raise ValueError(f"floor lies between 0 and 1/2 (pycox: 1e-7); got {floor}.")

    def loss(log_survival: Array, alive: npt.NDArray[np.bool_]) -> Array:
        with np.errstate(divide="ignore"):
            score = np.where(alive, log_survival, np.log(-np.expm1(log_survival)))
        return score if floor is None else np.clip(score, np.log(floor), np.log1p(-floor))

    return loss


def weighted(loss: Loss, curve: Array, weight: Array, alive: npt.NDArray[np.bool_]) -> Array:
    """The loss times the weight, 0 where the weight is 0."""
    score = loss(curve, alive)
    if np.isinf(score).any():  # 0 · inf is no contribution
        score = np.where(weight > 0, score, 0.0)
    return np.multiply(score, weight, out=score)


def free_of(alive: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_] | None, rows: slice) -> npt.NDArray[np.bool_]:
    """Who has not had the event by each time: the event-free, and those with an event of another cause."""
    return alive if other is None else alive | other[rows, None]


def weighted_terms(
    distribution: SurvivalDistribution,
    y: Any,
    grid: Array,
    share: Array,
    loss: Loss,
    log: bool,
    *,
    censoring: SurvivalDistribution | None = None,
    normalize: bool = False,
    left_limit: bool = True,
    on_zero: OnZero = "raise",
    max_weight: float = np.inf,
    min_followed: float = 0.0,
    cause: int | None = None,
) -> Terms:
    """What each subject contributes to Σₖ shareₖ · (mean weighted loss at tₖ).

    Without ``censoring`` G is the Kaplan-Meier estimate of the rows themselves, and is estimated anew in each
    resample; a given one is not.
    """
    outcome = observed = check_subjects(distribution, y)
    event, time = observed.event, observed.time
    curves, other = of_cause(distribution, observed, cause)
    g = kaplan_meier(outcome, censoring=True) if censoring is None else censoring
    if censoring is None and min_followed > 0:
        raise ValueError("min_followed is for a censoring distribution that is given, with G(t|x) of each row.")
    weighting = Weighting(g, left_limit, on_zero, max_weight, normalize, min_followed)
    weights = GridWeights(weighting, event, time, grid)
    n, m = len(time), len(grid)
    if censoring is not None:
        values = np.empty((n, 2 * m if normalize else 1))
        share = share if normalize else share * weights.scale(outcome.weight, share)
        for rows, curve in curve_blocks(curves, grid, log=log):
            weight, alive = weights.block(rows)
            scored = weighted(loss, curve, weight, free_of(alive, other, rows))
            values[rows] = np.concatenate([scored, weight], axis=1) if normalize else (scored @ share)[:, None]
        if normalize:
            return MeanTerms(values, lambda means: _mean_loss(means[:, :m], means[:, m:], share), outcome.weight)
        return MeanTerms(values, weight=outcome.weight)
    ended = np.flatnonzero(event & (time <= grid[-1]))
    ended = ended[np.argsort(time[ended], kind="stable")]
    of_ended, of_alive = np.zeros((n, m if normalize else 1)), np.empty((n, m))
    for rows, curve in curve_blocks(curves, grid, log=log):
        alive = time[rows, None] > grid
        scored = loss(curve, free_of(alive, other, rows))
        of_alive[rows] = np.where(alive, scored, 0.0)
        scored = np.where(alive, 0.0, scored)
        of_ended[rows] = scored if normalize else (scored @ share)[:, None]
    losses = WeightedSums(of_ended[ended]), WeightedSums(of_alive)
    return _OwnWeightLosses(outcome, weighting, grid, share, ended, *losses)


def _mean_loss(loss: Array, weight: Array, share: Array) -> Array:
    """Σₖ shareₖ lossₖ / weightₖ, where a time at which nobody has a weight adds nothing."""
    return np.asarray(np.where(weight == 0, 0.0, ratio(loss, weight)) @ share)


@dataclass(frozen=True)
class _OwnWeightLosses:
    """A weighted loss whose G is estimated in each resample: losses stay, weights change.

    Parameters
    ----------
    outcome : Outcome
    weighting : Weighting
    grid, share : array of shape (m,)
    ended : array of shape (e,)
        Events up to the end of the grid, in the order of time.
    of_ended : WeightedSums
        Of their losses from then on, shape (e, m); summed up with ``share`` unless the weights are normalized.
    of_alive : WeightedSums
        Of all subjects' losses before their times, shape (n, m).
    """

    outcome: Outcome
    weighting: Weighting
    grid: Array
    share: Array
    ended: npt.NDArray[np.intp]
    of_ended: WeightedSums
    of_alive: WeightedSums

    @property
    def value(self) -> float:
        """The score of the sample itself."""
        return float(self.resampled(Resamples.whole(self.outcome))[0])

    def resampled(self, resamples: Resamples) -> Array:
        """The score of each resample, shape (r,)."""
        n, g = len(self.outcome), resamples.censoring(self.grid)
        weight = resamples.counts[:, self.ended] * self.weighting.of_resampled_events(resamples, self.ended)
        alive_weight = self.weighting.inverse(g, g > 0)  # G = 0: nobody is left
        ended, alive = self.of_ended(weight), self.of_alive(resamples.counts) * alive_weight
        if not self.weighting.normalize:
            return np.asarray((ended[:, 0] + alive @ self.share) / n)
        until = np.searchsorted(self.outcome.time[self.ended], self.grid, side="right")
        total = np.pad(np.cumsum(weight, axis=1), ((0, 0), (1, 0)))[:, until]
        total += (n - resamples.gone(self.grid)) * alive_weight
        return _mean_loss(ended + alive, total, self.share)
