"""Concordance of one number per subject: does who is predicted to go first, go first? Harrell's and Uno's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.scores._inputs import (
    Array,
    check_rows,
    check_subjects,
)
from sumosurv.scores._pairs import HARRELL, Pairs, SortedOutcome, count_cell, count_later
from sumosurv.scores._resampling import MeanTerms, Resamples, Terms, share_of_pairs
from sumosurv.scores._weighting import OnZero, Weighting

__all__ = [
    "harrell_c",
    "harrell_c_terms",
    "pair_terms",
    "risk_score",
    "uno_c",
    "uno_c_terms",
]


def risk_score(distribution: Any, y: Any, horizon: float | None = None) -> Array:
    r"""One number per subject, higher = earlier event: minus the restricted mean, -∫₀^horizon S(t|x) dt.

    Parameters
    ----------
    distribution : SurvivalDistribution or array of shape (n,)
        An array is taken as risk scores that are made already.
    y : outcome
    horizon : float, optional
        The largest time of y by default.
    """
    if isinstance(distribution, SurvivalDistribution):
        time = check_subjects(distribution, y, entry=True).time
        with torch.no_grad():
            return np.asarray(-distribution.restricted_mean(float(time.max()) if horizon is None else horizon))
    risk = np.asarray(distribution, dtype=np.float64)
    outcome = check_outcome(y)
    if risk.shape != outcome.time.shape:
        raise ValueError(f"Give one risk score per row of y ({len(outcome)}); got shape {risk.shape}.")
    if np.isnan(risk).any():
        raise ValueError(f"Risk scores are missing (NaN) in {int(np.isnan(risk).sum())} rows.")
    return risk


def harrell_c(distribution: Any, y: Any, *, horizon: float | None = None, sample_weight: Any = None) -> float:
    r"""Harrell's C, P(risk_i > risk_j | z_i < z_j, d_i = 1) plus half of the ties; higher is better; not proper.

    An event and a censoring at one time are comparable, the event as the earlier; two events at one time are not. With
    delayed entry and with time-varying covariates (one row per spell), an event is compared with the rows that are at
    risk at its time, as in R's ``survival::concordance``. Without entry, the same pairs as scikit-survival's
    ``concordance_index_censored`` and lifelines' ``concordance_index``; scikit-survival also calls risks tied that
    differ by up to 1e-8, here they must be equal.

    Parameters
    ----------
    distribution : SurvivalDistribution or array of shape (n,)
        An array is taken as risk scores, higher = earlier event. A distribution is summed up by minus its
        restricted mean, -∫₀^horizon S(t|x) dt.
    y : outcome
    horizon : float, optional
        End of the restricted mean: the largest time of y by default.
    sample_weight : array of shape (n,), optional
        As in `concordance_td`.

    Returns
    -------
    float
        nan where no two subjects can be compared.

    References
    ----------
    Harrell, Lee, Mark (1996), Statistics in Medicine 15.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> harrell_c([3.0, 1.0, 2.0], Surv.from_arrays(event=[True, True, False], time=[1.0, 2.0, 3.0]))
    0.6666666666666666
    """
    outcome = check_rows(y, sample_weight, entry=True)
    return _risk_pairs(risk_score(distribution, outcome, horizon), outcome)[0].ratio()


def uno_c(
    distribution: Any,
    y: Any,
    *,
    censoring: SurvivalDistribution,
    tau: float | None = None,
    horizon: float | None = None,
    left_limit: bool = True,
    on_zero: OnZero = "raise",
    sample_weight: Any = None,
) -> float:
    r"""Uno's C: Harrell's C with each event weighted by 1 / G(z)²; higher is better; not proper.

    .. math::
        C = \frac{\sum_{ij} d_i G(z_i-)^{-2} 1\{z_i < z_j, z_i < τ\} (1\{r_i > r_j\} + ½ 1\{r_i = r_j\})}
                 {\sum_{ij} d_i G(z_i-)^{-2} 1\{z_i < z_j, z_i < τ\}}

    The same pairs as scikit-survival's ``concordance_index_ipcw``, which takes G(z) where this takes G(z-) by
    default: they differ where an event and a censoring share a time (``left_limit=False`` for theirs).

    Parameters
    ----------
    distribution : SurvivalDistribution or array of shape (n,)
        As in `harrell_c`.
    y : outcome
    censoring : SurvivalDistribution
        G, for example ``kaplan_meier(y_train, censoring=True)``; see `brier`.
    tau : float, optional
        Only events before it count.
    horizon : float, optional
        As in `harrell_c`.
    left_limit, on_zero
        As in `brier`.
    sample_weight : array of shape (n,), optional
        As in `concordance_td`.

    References
    ----------
    Uno et al. (2011), Statistics in Medicine 30.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> y = Surv.from_arrays(event=[True, False, True, True], time=[1.0, 2.0, 3.0, 4.0])
    >>> round(uno_c([4.0, 3.0, 1.0, 2.0], y, censoring=kaplan_meier(y, censoring=True)), 4)
    0.5714
    """
    outcome = check_rows(y, sample_weight)
    risk = risk_score(distribution, outcome, horizon)
    weight = Weighting(censoring, left_limit, on_zero).of_events(_counted(outcome, tau), outcome.time)
    return _risk_pairs(risk, outcome, np.square(weight))[0].ratio()


def _counted(outcome: Outcome, tau: float | None) -> npt.NDArray[np.bool_]:
    return outcome.event if tau is None else outcome.event & (outcome.time < tau)


def _risk_pairs(risk: Array, y: Any, weight: Array | None = None) -> tuple[Pairs, SortedOutcome]:
    """The pair counts under `harrell_c` and `uno_c`, by subject."""
    outcome = check_rows(y, entry=True)
    ordered = SortedOutcome(outcome.event, outcome.time, outcome.weight, outcome.entry)
    n = len(ordered.rows)
    pairs = Pairs(n, ordered.weight)
    cells = np.zeros(n, dtype=np.intp)
    weights = None if weight is None else weight[ordered.order]
    count_cell(pairs, ordered, -risk[ordered.rows][ordered.order], cells, cells + n, HARRELL, weights)
    return pairs, ordered


# ------------------------------------------------------------------ by subject


def harrell_c_terms(distribution: SurvivalDistribution, y: Any, *, horizon: float | None = None) -> MeanTerms:
    """Each subject's share of the pairs of `harrell_c`, shape (n, 2): the concordant, the comparable."""
    return pair_terms(*_risk_pairs(risk_score(distribution, y, horizon), y))


def uno_c_terms(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    censoring: SurvivalDistribution | None = None,
    tau: float | None = None,
    horizon: float | None = None,
    left_limit: bool = True,
    on_zero: OnZero = "raise",
) -> Terms:
    """Each subject's share of the pairs of `uno_c`; without ``censoring`` G is that of the rows themselves."""
    outcome = check_rows(y)
    risk = risk_score(distribution, outcome, horizon)
    g = kaplan_meier(outcome, censoring=True) if censoring is None else censoring
    weighting = Weighting(g, left_limit, on_zero)
    counted = _counted(outcome, tau)
    weight = np.square(weighting.of_events(counted, outcome.time))
    pairs, ordered = _risk_pairs(risk, outcome, weight)
    terms = pair_terms(pairs, ordered)
    if censoring is not None:
        return terms
    rank = np.unique(-risk[ordered.order], return_inverse=True)[1].astype(np.intp)
    later = count_later(ordered, rank, np.full(len(outcome), len(outcome)), HARRELL).T
    rows = ordered.order[ordered.event]
    earlier = 2.0 * terms.values
    earlier[rows] -= weight[rows, None] * later
    return _OwnWeightPairs(outcome, weighting, rows[counted[rows]], later[counted[rows]], earlier)


def pair_terms(pairs: Pairs, y: SortedOutcome) -> MeanTerms:
    """Each subject's share of the pairs, in the order of the rows."""
    counted = np.empty((len(y.order), 2))
    counted[y.order] = np.column_stack([pairs.concordant, pairs.comparable])
    values = counted[: y.n_rows]
    values[y.rows[y.n_rows :]] -= counted[y.n_rows :]
    weight = None
    if y.weight is not None:
        ordered = np.empty(len(y.order))
        ordered[y.order] = y.weight
        weight = ordered[: y.n_rows]
    whole = values.mean(axis=0) if weight is None else weight @ values / len(values)

    def combine(means: Array) -> Array:
        # Σᵢⱼ cᵢ cⱼ h(i, j) to first order about each subject's weight: its pairs change with it and with its partners
        both = 2.0 * means - whole
        return share_of_pairs(both[:, 0], both[:, 1])

    return MeanTerms(values, combine, weight)


@dataclass(frozen=True)
class _OwnWeightPairs:
    """The pairs of `uno_c` with G estimated in each resample: Σᵢⱼ cᵢ cⱼ wᵢ h(i, j) to first order in c - 1.

    Parameters
    ----------
    outcome : Outcome
    weighting : Weighting
    rows : array of shape (e,)
        The events that count.
    later : array of shape (e, 2)
        Σⱼ h(i, j) of each of them, without its weight.
    earlier : array of shape (n, 2)
        Σᵢ wᵢ h(i, j) of each subject.
    """

    outcome: Outcome
    weighting: Weighting
    rows: npt.NDArray[np.intp]
    later: Array
    earlier: Array

    @property
    def value(self) -> float:
        """The score of the sample itself."""
        return float(self.resampled(Resamples.whole(self.outcome))[0])

    def resampled(self, resamples: Resamples) -> Array:
        """The score of each resample, shape (r,)."""
        weight = np.square(self.weighting.of_resampled_events(resamples, self.rows))
        both = (resamples.counts[:, self.rows] * weight) @ self.later
        both += resamples.counts @ self.earlier - self.outcome.weights @ self.earlier
        return share_of_pairs(both[:, 0], both[:, 1])
