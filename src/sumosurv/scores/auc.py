"""The area under the ROC curve at a time: do those who have had the event by then have the higher risk?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array, check_rows, check_subjects, check_times, curve_blocks, of_cause
from sumosurv.scores._resampling import MeanTerms, Resamples, Terms, ratio
from sumosurv.scores._weighting import OnZero, Weighting

__all__ = ["cumulative_dynamic_auc", "cumulative_dynamic_auc_terms"]


def cumulative_dynamic_auc(
    distribution: Any,
    y: Any,
    times: Any,
    *,
    censoring: SurvivalDistribution,
    cause: int | None = None,
    left_limit: bool = True,
    on_zero: OnZero = "raise",
    sample_weight: Any = None,
) -> Any:
    r"""Cumulative/dynamic AUC at given times; higher is better; not proper.

    .. math::
        AUC(t) = \frac{\sum_{ij} w_i v_j (1\{r_i > r_j\} + ½ 1\{r_i = r_j\})}{\sum_i w_i \sum_j v_j}

    over cases i, with the event by t, weighted by w = 1 / G(z-), and controls j, without it at t. Risks r are those at
    t, F(t|x). Controls that are followed up to t have the weight v = 1 / G(t). With a cause, cases are those with an
    event of cause k by t, ordered by F_k(t|x), and controls are all others: also subjects with an event of another
    cause by t, weighted by 1 / G(z-) of their own (definition 2 of Blanche et al.).

    Parameters
    ----------
    distribution : SurvivalDistribution, or array of shape (n,) or (n, m)
        An array is taken as risk scores, higher = earlier event: one for all times, or one for each.
    y : outcome
    times : float or array of shape (m,)
    censoring : SurvivalDistribution
        G, for example ``kaplan_meier(y_train, censoring=True)``; see `brier`.
    cause : int, optional
        Counted from one; an event is one of any cause by default.
    left_limit, on_zero
        As in `brier`. With ``left_limit=False`` and ``on_zero="drop"``, without a cause, this is scikit-survival's.
    sample_weight : array of shape (n,), optional
        How many subjects each row counts for.

    Returns
    -------
    float for a number, ndarray of shape (m,) for an array of times
        nan where there are no cases or no controls.

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
    grid = check_times(times)
    weighting = Weighting(censoring, left_limit, on_zero)
    markers, other = _markers(distribution, outcome, grid, cause)
    values = np.array([_sides(outcome, other, markers[:, i], t, weighting).value for i, t in enumerate(grid)])
    return float(values[0]) if np.ndim(times) == 0 else values


def cumulative_dynamic_auc_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    times: float,
    censoring: SurvivalDistribution | None = None,
    cause: int | None = None,
    left_limit: bool = True,
    on_zero: OnZero = "raise",
) -> Terms:
    """Each subject's share of the pairs of `cumulative_dynamic_auc` at one time.

    Without ``censoring`` G is that of the rows themselves.
    """
    outcome = check_rows(y)
    g = kaplan_meier(outcome.any_cause(), censoring=True) if censoring is None else censoring
    weighting = Weighting(g, left_limit, on_zero)
    markers, other = _markers(distribution, outcome, check_times(times), cause)
    sides = _sides(outcome, other, markers[:, 0], float(times), weighting)
    return sides.terms() if censoring is not None else _OwnWeightAuc(outcome, weighting, float(times), sides)


def _markers(
    distribution: Any, outcome: Outcome, grid: Array, cause: int | None
) -> tuple[Array, npt.NDArray[np.bool_] | None]:
    """Risks at each time, (n, m), and which rows had an event of another cause."""
    n, m = len(outcome), len(grid)
    if isinstance(distribution, SurvivalDistribution):
        check_subjects(distribution, outcome)
        curves, other = of_cause(distribution, outcome, cause)
        made = np.empty((n, m))
        for rows, curve in curve_blocks(curves, grid, log=True):
            made[rows] = -curve
        return made, other
    risk = np.asarray(distribution, dtype=np.float64)
    if risk.shape not in ((n,), (n, m)):
        raise ValueError(f"Give one risk score per row of y ({n}), or one for each of {m} times; got {risk.shape}.")
    if np.isnan(risk).any():
        raise ValueError(
            f"Risk scores are missing (NaN) in {int(np.isnan(risk).reshape(n, -1).any(axis=1).sum())} rows."
        )
    other = None
    if cause is not None:
        own = outcome.event if outcome.cause is None else outcome.cause == cause
        other = outcome.event & ~own
    return np.broadcast_to(risk.reshape(n, -1), (n, m)), other


@dataclass(frozen=True)
class _Sides:
    """Cases and controls at one time: weights (zero for those who are neither), and the weight they win over.

    ``over`` is Σⱼ vⱼ h(i, j) of each subject as a case, ``under`` Σᵢ wᵢ h(i, j) of each as a control; where subjects
    count more than once, so do the partners in these sums.
    """

    case: Array
    control: Array
    over: Array
    under: Array
    weight: Array | None

    @property
    def sums(self) -> tuple[float, float, float]:
        """Of cases, of controls, and of the pairs that are won."""
        weight = np.ones(len(self.case)) if self.weight is None else self.weight
        won = float((weight * self.case) @ self.over)
        return float((weight * self.case).sum()), float((weight * self.control).sum()), won

    @property
    def value(self) -> float:
        """The AUC; nan without cases or without controls."""
        cases, controls, won = self.sums
        return float(ratio(np.array(won), np.array(cases * controls)))

    def terms(self) -> MeanTerms:
        """What each subject contributes, the weights staying as they are."""
        n = len(self.case)
        values = np.column_stack([(self.case * self.over + self.control * self.under) / n, self.case, self.control])
        cases, controls, won = self.sums
        whole, cases, controls = won / n**2, cases / n, controls / n

        def combine(means: Array) -> Array:
            # sums over pairs, each to first order: a subject's pairs change with it and with its partners
            pairs = means[:, 1] * controls + cases * means[:, 2] - cases * controls
            return ratio(means[:, 0] - whole, pairs)

        return MeanTerms(values, combine, self.weight)


def _sides(
    outcome: Outcome, other: npt.NDArray[np.bool_] | None, marker: Array, at: float, weighting: Weighting
) -> _Sides:
    ended = outcome.event & (outcome.time <= at)
    of_event = weighting.of_events(ended, outcome.time)
    case = of_event if other is None else np.where(other, 0.0, of_event)
    control = of_event - case
    alive = outcome.time > at
    if alive.any():
        g = np.asarray(weighting.censoring.survival(at), dtype=np.float64)
        control = control + weighting.inverse(np.broadcast_to(g, alive.shape), alive, np.full(len(alive), at))
    _, place = np.unique(marker, return_inverse=True)
    own = outcome.weights
    cases, controls = (np.bincount(place, weights=own * weight).astype(np.float64) for weight in (case, control))
    over = (np.cumsum(controls) - 0.5 * controls)[place]
    under = (cases.sum() - np.cumsum(cases) + 0.5 * cases)[place]
    return _Sides(case, control, over, under, outcome.weight)


@dataclass(frozen=True)
class _OwnWeightAuc:
    """The AUC with G estimated in each resample, to first order in the resampling weights."""

    outcome: Outcome
    weighting: Weighting
    at: float
    sides: _Sides

    @property
    def value(self) -> float:
        """The score of the sample itself."""
        return self.sides.value

    def resampled(self, resamples: Resamples) -> Array:
        """The score of each resample, shape (r,)."""
        sides, outcome = self.sides, self.outcome
        rows = np.flatnonzero(outcome.event & (outcome.time <= self.at))
        case = sides.case[rows] > 0
        weight = resamples.counts[:, rows] * self.weighting.of_resampled_events(resamples, rows)
        alive = np.flatnonzero(outcome.time > self.at)
        g = resamples.censoring(np.array([self.at]))
        of_alive = resamples.counts[:, alive] * self.weighting.inverse(g, g > 0)
        top = weight[:, case] @ sides.over[rows[case]] + weight[:, ~case] @ sides.under[rows[~case]]
        cases, controls, won = sides.sums
        top += of_alive @ sides.under[alive] - won
        pairs = controls * weight[:, case].sum(axis=1) - cases * controls
        pairs += cases * (weight[:, ~case].sum(axis=1) + of_alive.sum(axis=1))
        return ratio(top, pairs)
