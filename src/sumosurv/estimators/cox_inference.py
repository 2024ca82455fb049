"""Inference after Cox regression: limits of predicted curves, tests of proportional hazards, concordance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri
from scipy.stats import chi2

from sumosurv.estimators.partial_likelihood import BaselineMoments
from sumosurv.estimators.regression import sandwich
from sumosurv.nonparametric import is_whole, kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.scores.concordance import harrell_c_terms

__all__ = [
    "CoxLimits",
    "TimeTransform",
    "concordance_numbers",
    "score_tests",
    "training_concordance",
    "transformed_times",
]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
TimeTransform = Literal["km", "rank", "identity", "log"]

_CELLS = 5_000_000  # subjects x event times that are computed at once


class CoxLimits:
    r"""Limits of S(t|x), its median and its restricted mean, like R's ``survfit`` for Cox regression.

    The cumulative hazard :math:`e^{β·x} Λ_0(t)` has the variance

    .. math:: e^{2β·x} \Big[ \mathrm{Var}\,Λ_0(t) + q(t)^\top V q(t) \Big], \qquad q(t) = \int_0^t (x - \bar x) \, dΛ_0,

    with the covariance V of the coefficients. Limits of S are symmetric in log(-log S).

    Parameters
    ----------
    baselines : sequence of BaselineMoments
        One per stratum.
    coef : array of shape (p,)
    covariance : array of shape (p, p)
        Nan for columns that are left out. If any entry is infinite, all variances are.
    x : array of shape (n, p)
        Covariates minus their baseline values.
    offset : array of shape (n,)
    stratum : int array of shape (n,), optional
    level : float
    """

    def __init__(
        self,
        baselines: Sequence[BaselineMoments],
        coef: Array,
        covariance: Array,
        x: Array,
        offset: Array,
        stratum: Whole | None,
        level: float,
    ) -> None:
        self._baselines, self._x = baselines, x
        self._stratum = np.zeros(len(x), dtype=np.int64) if stratum is None else stratum
        self._risk = np.exp(np.clip(x @ coef + offset, -600.0, 600.0))
        self._infinite = bool(np.isinf(covariance).any())
        self._covariance = np.where(np.isfinite(covariance), covariance, 0.0)
        self._z = float(ndtri(0.5 + 0.5 * level))

    def survival(self, times: Array) -> tuple[Array, Array]:
        """Limits at the times, each of shape (n, times); S and both limits are 1 before the first event."""

        def at_times(rows: Whole, baseline: BaselineMoments) -> Array:
            place = np.searchsorted(baseline.times, times, side="right")
            return self._survival(rows, baseline)[:, :, place]

        return self._by_stratum(at_times, len(times))

    def median(self) -> tuple[Array, Array]:
        """The times at which the limits of S fall to one half, each of shape (n,); infinite if they do not."""

        def crossing(rows: Whole, baseline: BaselineMoments) -> Array:
            below = self._survival(rows, baseline) <= 0.5
            first = np.where(below.any(axis=2), below.argmax(axis=2), len(baseline.times) + 1)
            return np.concatenate([[0.0], baseline.times, [np.inf]])[first][:, :, None]

        lower, upper = self._by_stratum(crossing, 1)
        return lower[:, 0], upper[:, 0]

    def restricted_mean(self, horizon: float) -> tuple[Array, Array]:
        """Limits of ∫₀^horizon S(t|x) dt, each of shape (n,), symmetric and within [0, horizon]."""

        def limits(rows: Whole, baseline: BaselineMoments) -> Array:
            known = int(np.searchsorted(baseline.times, horizon))
            risk, steps = self._risk[rows, None], np.diff(np.append(baseline.times[:known], horizon))
            survival = np.exp(-risk * baseline.hazard[:known])
            areas = survival * steps
            first = baseline.times[0] if known else horizon
            mean = first + areas.sum(axis=1)
            after = np.cumsum(areas[:, ::-1], axis=1)[:, ::-1]  # ∫ S from each event time to the horizon
            values = (baseline.hazard, baseline.variance, baseline.means)
            rise, spread, rise_means = (np.diff(value[:known], axis=0, prepend=0.0) for value in values)
            q = self._x[rows] * (after @ rise)[:, None] - after @ rise_means
            variance = risk[:, 0] ** 2 * (after**2 @ spread + ((q @ self._covariance) * q).sum(axis=1))
            half = np.full_like(mean, np.inf) if self._infinite else self._z * np.sqrt(np.maximum(variance, 0.0))
            return np.asarray(np.clip(np.stack([mean - half, mean + half]), 0.0, horizon)[:, :, None])

        lower, upper = self._by_stratum(limits, 1)
        return lower[:, 0], upper[:, 0]

    def _survival(self, rows: Whole, baseline: BaselineMoments) -> Array:
        """Lower and upper limits at time zero and at the event times: (2, rows, 1 + m)."""
        x, hazard, means = self._x[rows], baseline.hazard, baseline.means
        own, shared = x @ self._covariance, means @ self._covariance
        from_coef = (own * x).sum(axis=1)[:, None] * hazard**2 - 2.0 * hazard * (own @ means.T)
        variance = baseline.variance + from_coef + (shared * means).sum(axis=1)
        error = np.full_like(variance, np.inf) if self._infinite else np.sqrt(np.maximum(variance, 0.0))
        with np.errstate(over="ignore"):
            factor = np.exp(self._z * error / hazard)  # of the cumulative hazard; risk cancels
            cumulative = self._risk[rows, None] * hazard
            limits = np.exp(-np.stack([cumulative * factor, cumulative / factor]))
        return np.concatenate([np.ones((2, len(x), 1)), limits], axis=2)

    def _by_stratum(self, compute: Callable[[Whole, BaselineMoments], Array], width: int) -> tuple[Array, Array]:
        """Limits (n, width) of all rows, some rows of one stratum at a time."""
        made = np.empty((2, len(self._x), width))
        for k, baseline in enumerate(self._baselines):
            own = np.flatnonzero(self._stratum == k)
            for rows in np.array_split(own.astype(np.int64), max(1, len(own) * len(baseline.times) // _CELLS)):
                made[:, rows] = compute(rows, baseline)
        return made[0], made[1]


def score_tests(score: Array, information: Array, finite: Whole, tested: Mapping[Any, Whole]) -> pd.DataFrame:
    """Score tests that groups of additional coefficients are zero.

    Parameters
    ----------
    score : array of shape (p,)
        Of the additional coefficients.
    information : array of shape (2p, 2p)
        Of the p fitted and the p additional coefficients.
    finite : array of int
        The fitted coefficients that are finite.
    tested : mapping
        The additional coefficients of each test.
    """
    statistic, df, p = np.full(len(tested), np.nan), np.zeros(len(tested), dtype=np.int64), len(score)
    for i, columns in enumerate(tested.values()):
        both = np.concatenate([finite, p + columns])
        unit = np.sqrt(np.maximum(np.diag(information)[both], np.finfo(np.float64).tiny))
        u = np.concatenate([np.zeros(len(finite)), score[columns]]) / unit
        matrix = information[np.ix_(both, both)] / np.outer(unit, unit)
        df[i] = len(columns)
        if df[i]:
            statistic[i] = float(u @ np.linalg.pinv(matrix, rcond=1e-12, hermitian=True) @ u)
    return pd.DataFrame(
        {"statistic": statistic, "df": df, "p": chi2.sf(statistic, np.maximum(df, 1))},
        index=pd.Index(list(tested), name="term"),
    )


def training_concordance(risk: Array, outcome: Outcome, stratum: Whole | None) -> dict[str, float]:
    """Harrell's concordance of the training rows within strata, and its standard error."""
    rows = outcome
    if stratum is not None:  # ranks of times, such that a stratum enters after all rows of the one before have left
        entry = outcome.entries
        known, rank = np.unique(np.concatenate([entry, outcome.time]), return_inverse=True)
        codes = np.asarray(2.0 * (rank + np.tile(stratum, 2) * len(known)) + 1.0, dtype=np.float64)
        start = np.where(entry > 0, codes[: len(entry)], 2.0 * stratum * len(known))
        rows = replace(outcome, entry=start, time=codes[len(entry) :])
    return concordance_numbers(harrell_c_terms(risk, rows).values, outcome)


def concordance_numbers(counted: Array, outcome: Outcome) -> dict[str, float]:
    """The concordance of each row's concordant and comparable pairs (n, 2), and its standard error by the jackknife."""
    concordant, comparable = outcome.weights @ counted
    if not comparable > 0:
        return {}
    value = concordant / comparable
    moved = 2.0 * (counted[:, :1] - value * counted[:, 1:]) / comparable
    return {"concordance": value, "concordance_standard_error": float(np.sqrt(sandwich(moved, outcome)[0, 0]))}


def transformed_times(outcome: Outcome, transform: TimeTransform) -> Array:
    """g(t) at the time of each row."""
    if transform == "identity":
        return outcome.time
    if transform == "log":
        if not (outcome.time[outcome.event] > 0).all():
            raise ValueError("transform='log' requires event times above zero; choose another, such as 'km'.")
        return np.log(np.where(outcome.time > 0, outcome.time, 1.0))
    if not is_whole(outcome.weights):
        outcome = replace(outcome, weight=None)
    if transform == "km":
        before = kaplan_meier(outcome).survival(np.nextafter(outcome.time, 0.0))[0]
        return np.where(outcome.time > 0, 1.0 - before, 0.0)
    _, place = np.unique(outcome.time, return_inverse=True)
    counts = np.bincount(place, weights=outcome.weights)
    return np.asarray((np.cumsum(counts) - 0.5 * counts)[place], dtype=np.float64)
