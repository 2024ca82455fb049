"""The area under the ROC curve at a time: do subjects with an event by then have higher predicted risks?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import aalen_johansen, kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import (
    Array,
    CurveMemory,
    check_risks,
    check_rows,
    check_subjects,
    check_times,
    of_cause,
    of_other_causes,
    time_grid,
)
from sumosurv.scores._resampling import Estimate, Resamples, Terms, mean_of_known, ratio, share_of_pairs
from sumosurv.scores._weighting import GridWeights, Weighting
from sumosurv.sources import QuantileSketch

_MARKERS = 65_536  # risks of cases and of controls from which the AUC of rows in blocks is computed


def cumulative_dynamic_auc(
    distribution: Any,
    y: Any,
    times: Any,
    *,
    censoring: SurvivalDistribution,
    cause: int | None = None,
    sample_weight: Any = None,
    **weighting: Any,
) -> Any:
    r"""Cumulative/dynamic AUC at given times; higher is better; not proper.

    .. math::
        AUC(t) = \frac{\sum_{ij} w_i v_j (1\{r_i > r_j\} + ½ 1\{r_i = r_j\})}{\sum_i w_i \sum_j v_j}

    over cases i, which have the event by t, and controls j, which do not. The risks r are F(t|x). Cases are weighted by
    w = 1 / G(z-), controls that are followed up to t by v = 1 / G(t). With a cause, cases are the subjects with an
    event of cause k by t, ordered by F_k(t|x). Controls are all others, including subjects with an event of another
    cause by t, which are weighted by 1 / G(z-) (definition 2 of Blanche et al.).

    Parameters
    ----------
    distribution : SurvivalDistribution, or array of shape (n,) or (n, m)
        An array holds risk scores: a higher score predicts an earlier event. There is one score per subject for all
        times, or one per subject and time.
    y : outcome
    times : float or array of shape (m,)
    censoring : SurvivalDistribution
        G, for example ``kaplan_meier(y_train, censoring=True)``; see `brier`.
    cause : int, optional
        The cause, counted from one; any event counts by default.
    sample_weight : array of shape (n,), optional
        Number of subjects that each row represents.
    **weighting
        As in `brier`. With ``left_limit=False``, ``on_zero="drop"`` and no cause, the AUC is scikit-survival's.

    Returns
    -------
    float for a number, ndarray of shape (m,) for an array of times
        nan if there are no cases or no controls.

    References
    ----------
    Uno et al. (2007), Journal of the American Statistical Association 102; Blanche, Dartigues, Jacqmin-Gadda (2013),
    Statistics in Medicine 32.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> y = Surv.from_arrays(event=[True, False, True, True], time=[1.0, 2.0, 3.0, 4.0])
    >>> round(cumulative_dynamic_auc([4.0, 3.0, 1.0, 2.0], y, 3.5, censoring=kaplan_meier(y, censoring=True)), 6)
    0.4
    """
    outcome = check_rows(y, sample_weight)
    weights = GridWeights(Weighting(censoring, **weighting), outcome, check_times(times))
    values = np.array([side.value for side in _all_sides(distribution, outcome, weights, cause)])
    return float(values[0]) if np.ndim(times) == 0 else values


def integrated_auc(
    distribution: Any,
    y: Any,
    *,
    censoring: SurvivalDistribution,
    times: Any = None,
    n_times: int = 50,
    cause: int | None = None,
    sample_weight: Any = None,
    **weighting: Any,
) -> float:
    r"""The cumulative/dynamic AUC averaged over times; higher is better; not proper.

    .. math:: \frac{\sum_k AUC(t_k) (\hat F(t_k) - \hat F(t_{k-1}))}{\sum_k (\hat F(t_k) - \hat F(t_{k-1}))}

    The weight of a time is the increase of F since the previous time. F is one minus the Kaplan-Meier estimate of y, or
    with a cause the Aalen-Johansen estimate, and F(t₀) = 0. Times without cases or without controls are left out.

    Parameters
    ----------
    distribution, y, censoring, cause, sample_weight, **weighting
        As in `cumulative_dynamic_auc`.
    times : array of shape (m,), tuple (low, high) or None
        As in `integrated_brier`.
    n_times : int, default 50

    Returns
    -------
    float
        With ``left_limit=False``, ``on_zero="drop"`` and no cause, this is scikit-survival's ``mean_auc``.

    References
    ----------
    Lambert, Chevret (2016), Statistical Methods in Medical Research 25.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> y = Surv.from_arrays(event=[True, False, True, True], time=[1.0, 2.0, 3.0, 4.0])
    >>> g = kaplan_meier(y, censoring=True)
    >>> round(integrated_auc([4.0, 3.0, 1.0, 2.0], y, times=[1.5, 3.5], censoring=g), 4)
    0.64
    """
    outcome = check_rows(y, sample_weight)
    grid = time_grid(times, outcome.time, n_times)
    values = cumulative_dynamic_auc(distribution, outcome, grid, censoring=censoring, cause=cause, **weighting)
    return float(mean_of_known(values, _event_shares(outcome, grid, cause)))


def auc_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    times: Any = None,
    n_times: int = 50,
    cause: int | None = None,
    censoring: SurvivalDistribution | None = None,
    memory: CurveMemory | None = None,
    each: bool = False,
    **weighting: Any,
) -> Terms:
    """Return each subject's share of the pairs of an AUC: integrated, at one time, given as a number, or at each time.

    The weights of the times stay in resamples. Without ``censoring``, G is the Kaplan-Meier estimate of the rows
    themselves.
    """
    outcome = check_rows(y)
    at_times = each or isinstance(times, float)
    grid = check_times(times) if at_times else time_grid(times, outcome.time, n_times)
    share = np.ones(1) if at_times or len(grid) == 1 else _event_shares(outcome, grid, cause)
    weights = GridWeights(Weighting.of(outcome, censoring, **weighting), outcome, grid)
    sides = _all_sides(distribution, outcome, weights, cause, memory)
    case, control, over, under = (
        np.column_stack([getattr(side, name) for side in sides]) for name in ("case", "control", "over", "under")
    )
    n = len(outcome)
    cases, controls, pairs = np.array([side.sums for side in sides]).T / [[n], [n], [n**2]]

    def combine(won: Array, case: Array, control: Array) -> Array:
        # sums over pairs, each to first order: a subject's pairs change with it and with its partners
        found = share_of_pairs(won - pairs, case * controls + cases * control - cases * controls)
        return found if each else mean_of_known(found, share)

    quantities = np.stack([np.where(case > 0, over, under) / n, case > 0, control > 0], axis=1)
    block = slice(0, n), quantities, outcome.time[:, None] > grid
    return weights.terms([block], 3, combine, own=censoring is None)


def _event_shares(outcome: Outcome, grid: Array, cause: int | None) -> Array:
    """Return the increase of F at each time of a grid."""
    if cause is None or outcome.cause is None:
        reached = 1.0 - kaplan_meier(outcome.any_cause()).survival(grid)[0]
    else:
        reached = aalen_johansen(outcome).cumulative_incidence(grid)[0, :, cause - 1]
    return np.diff(reached, prepend=0.0)


def _markers(
    distribution: Any, outcome: Outcome, grid: Array, cause: int | None, memory: CurveMemory | None = None
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return the risks at each time, (n, m), and which rows had an event of another cause."""
    n, m = len(outcome), len(grid)
    if isinstance(distribution, SurvivalDistribution):
        check_subjects(distribution, outcome)
        curves, other = of_cause(distribution, outcome, cause)
        return -(memory or CurveMemory()).log_survival(curves, grid), other
    risk = check_risks(distribution, n, m)
    return np.broadcast_to(risk.reshape(n, -1), (n, m)), of_other_causes(outcome, cause)


@dataclass(frozen=True)
class _Sides:
    """Cases and controls at one time: risks, weights (zero for subjects that are neither), sums over concordant pairs.

    ``over`` is Σⱼ vⱼ h(i, j) of each subject as a case, ``under`` Σᵢ wᵢ h(i, j) of each as a control. Partners count as
    often as their sample weight says.
    """

    marker: Array
    case: Array
    control: Array
    over: Array
    under: Array
    weight: Array

    @property
    def sums(self) -> tuple[float, float, float]:
        """The weights of cases, of controls, and of concordant pairs."""
        case = self.weight * self.case
        return float(case.sum()), float((self.weight * self.control).sum()), float(case @ self.over)

    @property
    def value(self) -> float:
        """The AUC; nan without cases or without controls."""
        cases, controls, won = self.sums
        return float(ratio(np.array(won), np.array(cases * controls)))


def _all_sides(
    distribution: Any, outcome: Outcome, weights: GridWeights, cause: int | None, memory: CurveMemory | None = None
) -> list[_Sides]:
    """Return the cases and controls at each time of a grid."""
    markers, other = _markers(distribution, outcome, weights.grid, cause, memory)
    alive = outcome.time[:, None] > weights.grid
    weight = weights.block(slice(0, len(outcome)), alive)
    no_case = alive | other[:, None]
    own = Resamples.whole(outcome).counts[0]
    found = []
    for marker, case, control in zip(markers.T, np.where(no_case, 0.0, weight).T, np.where(no_case, weight, 0.0).T):
        place = np.unique(marker, return_inverse=True)[1]
        cases, controls = (np.bincount(place, weights=own * side).astype(np.float64) for side in (case, control))
        over = (np.cumsum(controls) - 0.5 * controls)[place]
        under = (cases.sum() - np.cumsum(cases) + 0.5 * cases)[place]
        found.append(_Sides(marker, case, control, over, under, own))
    return found


# ------------------------------------------------------------------ rows in blocks


class PartialAuc:
    """The AUC at one time from sketches of the risks of cases and of controls."""

    def __init__(self, sides: tuple[QuantileSketch, QuantileSketch], squares: Array) -> None:
        self._sides, self._squares = sides, squares

    @classmethod
    def of(
        cls,
        distribution: SurvivalDistribution,
        outcome: Outcome,
        *,
        times: float,
        cause: int | None = None,
        **weighting: Any,
    ) -> Self:
        """Sketch the risks of one block; the options are those of `cumulative_dynamic_auc`."""
        weights = GridWeights(Weighting(**weighting), outcome, check_times(times))
        (sides,) = _all_sides(distribution, outcome, weights, cause)
        sketches, squares = (QuantileSketch(_MARKERS), QuantileSketch(_MARKERS)), np.zeros(2)
        for k, weight in enumerate((sides.case * outcome.weights, sides.control * outcome.weights)):
            rows = weight > 0
            sketches[k].add(sides.marker[rows], weight[rows])
            squares[k] = np.square(weight).sum()
        return cls(sketches, squares)

    def merge(self, other: Self) -> None:
        """Take in the rows of another block."""
        for sketch, more in zip(self._sides, other._sides):
            sketch.merge(more)
        self._squares = self._squares + other._squares

    def estimate(self) -> Estimate:
        """Return the AUC with DeLong's standard error."""
        (cases, w), (controls, v) = (side.points() for side in self._sides)
        if not (len(cases) and len(controls)):
            return Estimate(np.nan)
        over, under = _share_below(cases, controls, v), 1.0 - _share_below(controls, cases, w)
        value = float(np.average(over, weights=w))
        spread = [float(np.average(np.square(part - value), weights=own)) for part, own in ((over, w), (under, v))]
        sizes = np.array([w.sum(), v.sum()]) ** 2 / self._squares
        return Estimate(value, std_error=float(np.sqrt((np.array(spread) / sizes).sum())))


def _share_below(values: Array, others: Array, weight: Array) -> Array:
    """Return the share of the others' weight below each value, counting half of the weight at it."""
    ends = np.concatenate([[0.0], np.cumsum(weight)])
    low, high = np.searchsorted(others, values, "left"), np.searchsorted(others, values, "right")
    return np.asarray(0.5 * (ends[low] + ends[high]) / ends[-1])
