"""Inverse probability of censoring weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array
from sumosurv.scores._resampling import MeanTerms, Resamples, Terms, WeightedSums

OnZero = Literal["raise", "drop"]
Blocks = Iterable[tuple[slice, Array, npt.NDArray[np.bool_]]]


@dataclass(frozen=True)
class Weighting:
    """How rows are weighted; the options are explained in `sumosurv.scores.brier`."""

    censoring: SurvivalDistribution
    left_limit: bool = True
    on_zero: OnZero = "raise"
    max_weight: float = np.inf
    normalize: bool = False
    min_followed: float = 0.0

    @classmethod
    def of(cls, outcome: Outcome, censoring: SurvivalDistribution | None = None, **options: Any) -> Self:
        """Weigh by a given G, or by the Kaplan-Meier estimate of the censoring of the rows themselves."""
        if censoring is None and options.get("min_followed", 0.0) > 0:
            raise ValueError("min_followed requires a censoring distribution with G(t|x) for each row.")
        own = kaplan_meier(outcome.any_cause(), censoring=True) if censoring is None else censoring
        return cls(own, **options)

    def check(self, n: int) -> None:
        """Raise an error unless the options are valid for n subjects."""
        if not isinstance(self.censoring, SurvivalDistribution):
            raise TypeError(
                "censoring must be a SurvivalDistribution, for example kaplan_meier(y_train, censoring=True); "
                f"got {type(self.censoring).__name__}."
            )
        if len(self.censoring) not in (1, n):
            raise ValueError(
                f"censoring has {len(self.censoring)} curves; give one for all or one for each of the {n} subjects."
            )
        if self.on_zero not in ("raise", "drop"):
            raise ValueError(f"on_zero must be 'raise' or 'drop'; got {self.on_zero!r}.")
        if not 0.0 <= self.min_followed < 1.0:
            raise ValueError(f"min_followed must be a probability below one; got {self.min_followed!r}.")
        if not self.max_weight > 0:
            raise ValueError(f"max_weight must be positive; got {self.max_weight}.")

    def kept(self, grid: Array, rows: slice = slice(None)) -> npt.NDArray[np.bool_]:
        """Return whether G(t|x) is at least ``min_followed``, (k, m); one row if there is one G for all rows."""
        with torch.no_grad():
            g = self.censoring if len(self.censoring) == 1 else self.censoring[rows]
            return np.asarray(g.survival(grid)) >= self.min_followed

    def of_events(self, event: npt.NDArray[np.bool_], time: Array) -> Array:
        """Return d / G(z-) of each subject, 0 if censored."""
        self.check(len(time))
        at = np.where(time > 0, np.nextafter(time, 0.0), 0.0) if self.left_limit else time
        with torch.no_grad():
            one = len(self.censoring) == 1
            g = self.censoring.survival(at)[0] if one else self.censoring.survival(own_times=at)
        if self.left_limit:
            g = np.where(time > 0, g, 1.0)  # P(C >= 0)
        return self.inverse(g, event, time)

    def of_resampled_events(self, resamples: Resamples, rows: npt.NDArray[np.intp]) -> Array:
        """Return 1 / G(z-) of some events, shape (r, k), with G estimated in each resample."""
        g = resamples.censoring(resamples.outcome.time[rows], before=self.left_limit)
        return self.inverse(g, resamples.counts[:, rows] > 0)

    def inverse(self, g: Array, needed: npt.NDArray[np.bool_], time: Array | None = None) -> Array:
        """Return min(1 / G, max_weight) where it is needed, 0 elsewhere.

        A weight of 1/0 raises an error that names the first time; without times, in a resample, it is nan instead.
        """
        with np.errstate(divide="ignore", over="ignore"):
            weight = 1.0 / g
        zero = needed & np.isinf(weight)
        at_zero = self.max_weight
        if np.isinf(self.max_weight) and zero.any():
            dropped = self.on_zero == "drop" or self.min_followed > 0  # such rows are left out
            at_zero = 0.0 if dropped else np.nan
            if not dropped and time is not None:
                first = float(np.broadcast_to(time, zero.shape)[zero].min())
                raise ValueError(
                    f"The censoring distribution is zero for {int(zero.sum())} weights, first at time {first:g}: "
                    "no row used to estimate it is followed that long. Use earlier times, estimate it on other "
                    "rows, or pass on_zero='drop' or max_weight=."
                )
        return np.where(zero, at_zero, np.where(needed, np.minimum(weight, self.max_weight), 0.0))


class GridWeights:
    """The weight of each subject at each time of a grid, computed block by block."""

    def __init__(self, weighting: Weighting, outcome: Outcome, grid: Array) -> None:
        self.weighting, self.outcome, self.time, self.grid = weighting, outcome, outcome.time, grid
        self.ended = outcome.event & (outcome.time <= grid[-1])  # later events never need their own weight

    @cached_property
    def of_event(self) -> Array:
        """The weight of each subject from its event on."""
        return self.weighting.of_events(self.ended, self.time)

    @cached_property
    def of_alive(self) -> Array | None:
        """The weight before the event or the censoring at each time, (1, m); None if it differs by subject."""
        one = len(self.weighting.censoring) == 1
        return self._alive(self.weighting.censoring, (self.time.max() > self.grid)[None, :]) if one else None

    def _alive(self, censoring: SurvivalDistribution, needed: npt.NDArray[np.bool_]) -> Array:
        with torch.no_grad():
            return self.weighting.inverse(censoring.survival(self.grid), needed, self.grid)

    def block(self, rows: slice, alive: npt.NDArray[np.bool_]) -> Array:
        """Return weights of shape (k, m) for some rows; ``alive`` says which are followed past each time."""
        of_event, of_alive = self.of_event[rows, None], self.of_alive
        if of_alive is None:
            of_alive = self._alive(self.weighting.censoring[rows], alive)
        weight = np.where(alive, of_alive, of_event)
        if self.weighting.min_followed > 0:
            weight = np.where(self.weighting.kept(self.grid, rows), weight, 0.0)
        return weight

    def scale(self, share: Array | None = None) -> Any:
        """Return the factor that turns weighted sums into means: 1 unless weights are normalized or rows left out.

        With ``normalize``, one over the mean weight at each time (0 if nobody has a weight). If rows are left out at
        some times, one over the share of the rows that are not: at each time, or over all times, time k counting
        ``share[k]``; nan if nobody is left.
        """
        own = self.outcome.weights
        if not self.weighting.normalize:
            return 1.0 if self.weighting.min_followed == 0 else self._one_over_kept(own, share)
        blocks = (own[part] @ self.block(part, self.time[part, None] > self.grid) for part in self._parts())
        total = np.sum(list(blocks), axis=0)
        return np.divide(own.sum(), total, out=np.zeros_like(total), where=total > 0)

    def _parts(self) -> Iterator[slice]:
        step = max(1, (1 << 17) // len(self.grid))
        return (slice(i, i + step) for i in range(0, len(self.time), step))

    def _one_over_kept(self, own: Array, share: Array | None) -> Any:
        kept = [(own[part, None] * self.weighting.kept(self.grid, part)).sum(axis=0) for part in self._parts()]
        mass = np.sum(kept, axis=0)
        if share is None:
            return np.divide(own.sum(), mass, out=np.full(len(mass), np.nan), where=mass > 0)
        total = float(share @ mass)
        return own.sum() * share.sum() / total if total > 0 else np.nan

    def weighted(self, blocks: Blocks, n_quantities: int, share: Array | None = None) -> Array:
        """Return weighted quantities of each subject at each time, (n, q, m); the arguments are those of `terms`."""
        values = np.empty((len(self.time), n_quantities, len(self.grid) if share is None else 1))
        for rows, given, alive in blocks:
            weight = self.block(rows, alive)[:, None]
            values[rows] = _over_time(np.where(weight > 0, given, 0.0) * weight, share)  # 0 · inf is no contribution
        return values

    def terms(
        self,
        blocks: Blocks,
        n_quantities: int,
        combine: Callable[..., Array],
        *,
        own: bool,
        share: Array | None = None,
    ) -> Terms:
        """Return terms from quantities of each subject at each time, which are weighted here.

        Parameters
        ----------
        blocks : iterable of (rows, quantities, alive)
            Quantities of some rows before weighting, (k, q, m), and which rows are followed past each time, (k, m).
        n_quantities : int
            q.
        combine : callable
            From the means of the q weighted quantities, (r, m) each, to scores (r,).
        own : bool
            Whether G was estimated from the scored rows; it is then re-estimated in each resample.
        share : array of shape (m,), optional
            Sum up the quantities over time with these weights; means then have the shape (r, 1).
        """
        n, by_quantity = len(self.time), partial(_split, combine, n_quantities)
        if not own:
            return MeanTerms(self.outcome, self.weighted(blocks, n_quantities, share).reshape(n, -1), by_quantity)
        of_alive = np.empty((n, n_quantities, len(self.grid)))
        of_ended = np.empty((n, n_quantities, len(self.grid) if share is None else 1))
        for rows, given, followed in blocks:
            alive = followed[:, None]
            of_alive[rows] = np.where(alive, given, 0.0)
            of_ended[rows] = _over_time(np.where(alive, 0.0, given), share)
        ended = np.flatnonzero(self.ended)
        sums = WeightedSums(of_ended.reshape(n, -1)[ended]), self.grid, WeightedSums(of_alive.reshape(n, -1))
        return OwnWeightTerms(self.outcome, self.weighting, ended, *sums, by_quantity, partial(_over_time, share=share))


def _over_time(values: Array, share: Array | None) -> Array:
    """Sum up values of shape (..., m) over time, (..., 1); without weights of the times they stay as they are."""
    return values if share is None else (values @ share)[..., None]


def _split(combine: Callable[..., Array], n_quantities: int, means: Array) -> Array:
    return combine(*np.split(means, n_quantities, axis=1))


@dataclass(frozen=True)
class OwnWeightTerms(Terms):
    """A function of weighted means whose G is estimated in each resample: quantities stay, weights change."""

    weighting: Weighting
    ended: npt.NDArray[np.intp]  # events that are weighted by 1 / G(z-), (e,)
    of_ended: WeightedSums  # of their q quantities, (e, q m)
    grid: Array  # (m,)
    of_alive: WeightedSums  # of the quantities of all subjects that are weighted by 1 / G(t), (n, q m)
    combine: Callable[[Array], Array]
    over_time: Callable[[Array], Array] = np.asarray  # from weighted sums (r, q, m) to those of ``of_ended``
    power: int = 1  # of the weights of events

    def resampled(self, resamples: Resamples) -> Array:
        """Return the score of each resample, shape (r,)."""
        of_event = self.weighting.of_resampled_events(resamples, self.ended) ** self.power
        ended = self.of_ended(resamples.counts[:, self.ended] * of_event)
        g = resamples.censoring(self.grid)
        alive = self.of_alive(resamples.counts).reshape(len(g), -1, len(self.grid))
        alive = self.over_time(alive * self.weighting.inverse(g, g > 0)[:, None])  # G = 0: nobody is left
        return self.combine((ended + alive.reshape(ended.shape)) / len(self.outcome))
