"""Lower predictive bounds for event times under right-censoring, by weighted conformal prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Outcome
from sumosurv.stored import as_number, tensor_of

__all__ = ["BoundScores", "Censoring", "choose_cutoff", "just_before", "score_rows"]

Array = npt.NDArray[np.float64]

_KEPT = 256  # scores that are kept, so that a model holds no rows
_LEVEL = 0.9  # the level for which the cut-off is chosen
_SUBSET = 500  # rows on which it is chosen
_LEAST = 0.1  # of P(C >= c₀ | x) at a cut-off that is chosen, for all but a twentieth of the rows

Censoring = Callable[[Any, Array], Array]  # P(C >= t | x), of rows and a time for each


@dataclass(frozen=True)
class BoundScores:
    """How surprising the calibration rows are to a model, with their weights.

    Attributes
    ----------
    cutoff : float
        c₀: the bound is one for min(T, c₀), and so for T.
    scores : ndarray of shape (k,)
        S(min(T, c₀)|x), increasing: large where an event came early.
    mass : ndarray of shape (k,)
        The weights 1 / P(C >= min(T, c₀)) of all rows with a score up to this one.
    """

    cutoff: float
    scores: Array
    mass: Array

    @classmethod
    def of(cls, cutoff: float, scores: Array, weights: Array) -> BoundScores:
        """Of the rows of which min(T, c₀) is known. Of many, some scores stand for those below them."""
        order = np.argsort(scores, kind="stable")
        scores, mass = scores[order], np.cumsum(weights[order])
        if len(scores) > _KEPT:  # the mass of a score that is left out is counted at the next larger one: never too low
            kept = np.unique(np.searchsorted(mass, np.linspace(0, mass[-1], _KEPT + 1)[1:] * (1 - 1e-12)))
            scores, mass = scores[kept], mass[kept]
        return cls(cutoff, scores, mass)

    def thresholds(self, level: float, own_weight: Array) -> Array:
        """The survival probability at which the bound of a new row lies, given its largest weight; inf for none.

        The smallest q such that scores up to q have the share ``level`` of all mass, the new row's counted as beyond.
        """
        total = float(self.mass[-1]) if len(self.mass) else 0.0
        place = np.searchsorted(self.mass, level * (total + own_weight) * (1 - 1e-12))
        return np.append(self.scores, np.inf)[place]

    def bound(self, distribution: SurvivalDistribution, level: float, own_weight: Array) -> Array:
        """L(x) of each subject: the time at which S(t|x) falls to its threshold, c₀ at most."""
        found = self.thresholds(level, own_weight)
        with torch.no_grad():
            times = distribution.quantile(own_levels=np.clip(1.0 - found, 0.0, 1.0))
        return np.where(np.isinf(found), 0.0, np.minimum(times, self.cutoff))

    def state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps."""
        first = {f"bound_{name}": np.append(0.0, getattr(self, name)) for name in ("scores", "mass")}  # never empty
        return {"cutoff": self.cutoff}, {name: torch.from_numpy(values) for name, values in first.items()}

    @classmethod
    def restored(cls, stored: dict[str, Any], tensors: dict[str, torch.Tensor]) -> BoundScores:
        """The inverse of `state`."""
        scores = tensor_of(tensors, "bound_scores", low=0.0, high=1.0, never_falling=True).numpy()
        mass = tensor_of(tensors, "bound_mass", len(scores), low=0.0, never_falling=True).numpy()
        return cls(as_number(stored["cutoff"], "the cut-off", low=0.0), scores[1:].copy(), mass[1:].copy())


def score_rows(
    distribution: SurvivalDistribution, outcome: Outcome, rows: Any, censoring: Censoring, cutoff: float
) -> BoundScores:
    r"""Scores of the rows whose min(T, c₀) was seen: events before c₀, and all that were followed up to it.

    Given that it was seen, (x, min(T, c₀)) has the density of the population times P(C >= min(T, c₀) | x); its inverse
    is the weight that undoes this.
    """
    until = np.minimum(outcome.time, cutoff)
    seen = outcome.event | (outcome.time >= cutoff)
    with torch.no_grad():
        scores = distribution.survival(own_times=until)[seen]
    probability = censoring(rows, until)[seen]
    if (probability <= 0).any() or (censoring(rows, np.full(len(until), cutoff)) <= 0).all():
        raise ValueError(
            f"By the censoring distribution that was learned nobody is followed up to the cut-off {cutoff:g}; give an "
            "earlier cutoff."
        )
    return BoundScores.of(cutoff, scores, outcome.weights[seen] / probability)


def choose_cutoff(distribution: SurvivalDistribution, outcome: Outcome, rows: Any, censoring: Censoring) -> float:
    """The cut-off with the largest mean bound at level 0.9 on some rows, which should not be those of the calibration.

    A late one cuts off little, an early one needs weights less far from one.
    """
    candidates = np.unique(np.quantile(outcome.time, np.linspace(0.1, 0.9, 9)))
    best, chosen = -1.0, float(candidates[0])
    some = np.arange(len(outcome))[:: max(1, len(outcome) // _SUBSET)]
    for cutoff in candidates:
        probability = censoring(rows, np.full(len(outcome), cutoff))
        if np.quantile(probability, 0.05) < _LEAST:
            break
        scores = score_rows(distribution, outcome, rows, censoring, float(cutoff))
        mean = float(scores.bound(distribution[some], _LEVEL, 1.0 / probability[some]).mean())
        if mean > best:
            best, chosen = mean, float(cutoff)
    return chosen


def just_before(curves: SurvivalDistribution, times: Array) -> Array:
    """P(C >= t) of each subject at its own time, or of one curve for all: the left limit, one at zero."""
    before = np.nextafter(times, -1.0).clip(0.0)
    with torch.no_grad():
        found = curves.survival(before)[0] if len(curves) == 1 else curves.survival(own_times=before)
    return np.where(times > 0, found, 1.0)
