"""Losses at a time that are weighted for censoring, and what they give for resampled subjects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.integrate import simpson

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array, check_subjects, check_times, curve_blocks, of_cause, time_grid
from sumosurv.scores._resampling import MeanTerms, Resamples, Terms, WeightedSums, ratio
from sumosurv.scores._weighting import GridWeights, Weighting

__all__ = ["SQUARED", "Losses", "Rule", "logarithmic", "quadrature"]

Rule = Literal["trapezoid", "simpson"]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Loss:
    """What a row would score at a time without weights.

    Parameters
    ----------
    function : callable
        From S, or log S, of shape (k, m) and whether rows are still event-free to losses of that shape.
    log : bool
        Whether the function takes log S.
    """

    function: Callable[[Array, Bools], Array]
    log: bool


def _squared(survival: Array, event_free: Bools) -> Array:
    residual = survival - event_free
    return np.multiply(residual, residual, out=residual)


SQUARED = _Loss(_squared, log=False)


def logarithmic(floor: float | None) -> _Loss:
    """Log S if event-free and log(1 - S) otherwise, of probabilities moved into [floor, 1 - floor]."""
    if floor is not None and not 0.0 < floor < 0.5:
        raise ValueError(f"floor must lie between 0 and 1/2 (pycox: 1e-7); got {floor}.")

    def loss(log_survival: Array, event_free: Bools) -> Array:
        with np.errstate(divide="ignore"):
            score = np.where(event_free, log_survival, np.log(-np.expm1(log_survival)))
        return score if floor is None else np.clip(score, np.log(floor), np.log1p(-floor))

    return _Loss(loss, log=True)


@dataclass(frozen=True)
class Losses:
    """A loss for the curves of one cause, or of any; ``other`` says which rows had an event of another cause."""

    curves: SurvivalDistribution
    outcome: Outcome
    loss: _Loss
    other: Bools | None

    @classmethod
    def of(cls, distribution: SurvivalDistribution, y: Any, loss: _Loss, cause: int | None) -> Self:
        """Check the rows and select the curves of a cause."""
        outcome = check_subjects(distribution, y)
        curves, other = of_cause(distribution, outcome, cause)
        return cls(curves, outcome, loss, other)

    def unweighted(self, grid: Array) -> Iterator[tuple[slice, Array, Bools]]:
        """Yield blocks of rows, their losses at the times of a grid, and whether they are followed past each time."""
        for rows, curve in curve_blocks(self.curves, grid, log=self.loss.log):
            alive = self.outcome.time[rows, None] > grid
            # who has an event of another cause is free of this one
            free = alive if self.other is None else alive | self.other[rows, None]
            yield rows, self.loss.function(curve, free), alive

    def weighted(self, weights: GridWeights) -> Iterator[tuple[slice, Array, Array]]:
        """Yield blocks of rows, their weighted losses and their weights."""
        for rows, loss, alive in self.unweighted(weights.grid):
            weight = weights.block(rows, alive)
            if np.isinf(loss).any():  # 0 · inf is no contribution
                loss = np.where(weight > 0, loss, 0.0)
            yield rows, np.multiply(loss, weight, out=loss), weight

    def at_times(self, times: Any, weighting: Weighting) -> Array:
        """Return the weighted losses, of shape (n,) for a number or (n, m) for an array of times."""
        grid = check_times(times)
        weights = GridWeights(weighting, self.outcome, grid)
        score = np.empty((len(self.outcome), len(grid)))
        for rows, loss, _ in self.weighted(weights):
            score[rows] = loss
        score *= weights.scale()
        return score[:, 0] if np.ndim(times) == 0 else score

    def integrated(self, times: Any, n_times: int, rule: Rule, weighting: Weighting) -> Array:
        """Return the weighted losses integrated over a range of times and divided by its length, of shape (n,)."""
        grid, share = quadrature(times, self.outcome.time, n_times, rule)
        weights = GridWeights(weighting, self.outcome, grid)
        share = share * weights.scale(share)
        score = np.empty(len(self.outcome))
        for rows, loss, _ in self.weighted(weights):
            score[rows] = loss @ share
        return score

    def terms(self, grid: Array, share: Array, **options: Any) -> Terms:
        """Return what each subject contributes to Σₖ shareₖ · (mean weighted loss at tₖ).

        The options are those of `Weighting`. Without ``censoring``, G is the Kaplan-Meier estimate of the rows
        themselves, and is estimated anew in each resample.
        """
        weighting = Weighting.of(self.outcome, **options)
        if options.get("censoring") is None:
            return self._own_weight_terms(grid, share, weighting)
        outcome, m = self.outcome, len(grid)
        weights = GridWeights(weighting, outcome, grid)
        if weighting.normalize:
            values = np.empty((len(outcome), 2 * m))
            for rows, loss, weight in self.weighted(weights):
                values[rows] = np.concatenate([loss, weight], axis=1)
            return MeanTerms(values, lambda means: _mean_loss(means[:, :m], means[:, m:], share), outcome.weight)
        values, share = np.empty((len(outcome), 1)), share * weights.scale(share)
        for rows, loss, _ in self.weighted(weights):
            values[rows] = (loss @ share)[:, None]
        return MeanTerms(values, weight=outcome.weight)

    def _own_weight_terms(self, grid: Array, share: Array, weighting: Weighting) -> Terms:
        event, time = self.outcome.event, self.outcome.time
        ended = np.flatnonzero(event & (time <= grid[-1]))
        ended = ended[np.argsort(time[ended], kind="stable")]
        of_ended = np.zeros((len(time), len(grid) if weighting.normalize else 1))
        of_alive = np.empty((len(time), len(grid)))
        for rows, loss, alive in self.unweighted(grid):
            of_alive[rows] = np.where(alive, loss, 0.0)
            loss = np.where(alive, 0.0, loss)
            of_ended[rows] = loss if weighting.normalize else (loss @ share)[:, None]
        losses = WeightedSums(of_ended[ended]), WeightedSums(of_alive)
        return _OwnWeightLosses(self.outcome, weighting, grid, share, ended, *losses)


def quadrature(times: Any, time: Array, n_times: int, rule: Rule) -> tuple[Array, Array]:
    """A grid, and weights q with Σ qₖ g(tₖ) ≈ the average of g over it: both rules are linear in g."""
    grid = time_grid(times, time, n_times)
    length = grid[-1] - grid[0]
    if rule == "trapezoid":
        half = 0.5 * np.diff(grid)
        return grid, (np.append(half, 0.0) + np.insert(half, 0, 0.0)) / length
    if rule == "simpson":
        return grid, np.asarray(simpson(np.eye(len(grid)), x=grid, axis=1), dtype=np.float64) / length
    raise ValueError(f"rule must be 'trapezoid' or 'simpson'; got {rule!r}.")


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
