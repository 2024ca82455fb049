"""Censoring that depends on x: cross-fitted models of the censoring times, and a test of whether they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone

from sumosurv.distributions import Joined, SurvivalDistribution
from sumosurv.models import predict_distribution
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.scores._inputs import Array
from sumosurv.scores._resampling import covariance_of_means
from sumosurv.scores._weighting import Weighting
from sumosurv.scores.score import Request
from sumosurv.sources import take_rows

_FOLDS = 5
_FEWEST = 20  # censored rows that the test needs
_WIDEST = 200  # largest number of encoded columns for which "auto" fits a Cox model of the censoring
_CELLS = 20  # of the censoring times
MIN_FOLLOWED = 0.05  # rows with a smaller G(t|x) are left out at t if G is estimated given x
_BOUND = 10.0  # weights above it are called large


class CensoringTestError(ValueError):
    """The rows do not allow a test of whether censoring depends on x; the message says why."""


@dataclass(frozen=True)
class CensoringCheck:
    """Result of testing whether censoring depends on x, by the likelihood of held-out rows.

    Attributes
    ----------
    name : str
        The model of the censoring times.
    gain : float
        Gain in log-likelihood over Kaplan-Meier of the censoring times, in nats per row, both cross-fitted.
    std_error : float
        Standard error of the gain over subjects.
    distribution : SurvivalDistribution
        G given x of each row, from a model fitted without the row's fold.
    """

    name: str
    gain: float
    std_error: float
    distribution: SurvivalDistribution

    @property
    def depends(self) -> bool:
        """Whether the gain is more than two standard errors above zero."""
        return self.gain > 2.0 * self.std_error

    def of_rows(self, rows: npt.NDArray[np.intp]) -> CensoringCheck:
        """Return the same result with G of some of the rows."""
        return replace(self, distribution=self.distribution[rows])

    def __str__(self) -> str:
        if not np.isfinite(self.gain):
            return (
                "Whether censoring depends on x could not be tested: some censoring times of held-out rows have "
                f"probability zero under {self.name} or Kaplan-Meier fitted to the other rows."
            )
        found, more = "No evidence that censoring depends on x", "not more"
        if self.depends:
            found, more = "Censoring depends on the covariates", "more"
        return (
            f"{found}: on held-out rows the gain in likelihood of {self.name} of the censoring times over Kaplan-Meier "
            f"is {self.gain:+.3f} nats per row, {more} than two standard errors (standard error {self.std_error:.3f})."
        )


def censoring_given_x(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    n_folds: int = _FOLDS,
    random_state: Any = 0,
    sample_weight: Any = None,
    groups: Any = None,
) -> SurvivalDistribution:
    """Estimate G(t|x) of each row by an estimator fitted to the censoring times of the other folds.

    Parameters
    ----------
    estimator : estimator with ``fit(X, y)`` and ``predict_distribution(X)``
        Cloned for each fold; for example ``CoxPH()`` or ``SumoNet()``.
    X : table of covariates
    y : outcome
        Right-censored, observed from the start; an event of any cause ends the observation of the censoring time.
    n_folds : int, default 5
    random_state : seed or numpy.random.Generator, default 0
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.
    groups : array of shape (n,), optional
        The subject that each row belongs to: subjects are held out with all of their rows.

    Returns
    -------
    SurvivalDistribution
        To be passed as ``censoring`` to `brier` and other weighted scores.

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> len(censoring_given_x(CoxPH(), data.X, data.y))
    300
    """
    outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
    if outcome.entry is not None or outcome.upper is not None:
        raise ValueError(
            "A model of the censoring times supports neither left truncation nor interval censoring; use the time "
            "since entry, and leave out interval-censored rows."
        )
    folds = _folds(outcome, n_folds, random_state)
    return Joined([_predicted(estimator, X, outcome, held_out) for held_out in folds], folds)


def check_censoring(estimator: Any, X: Any, outcome: Outcome, *, random_state: Any = 0) -> CensoringCheck:
    """Cross-fit a model of the censoring times and compare its likelihood with Kaplan-Meier's.

    ``estimator`` "auto" is a Cox model with a slight ridge penalty. Times are compared in cells, so that step curves
    and densities are on the same scale: a censoring in (l, u] counts log(G(l) - G(u)), a row that ends otherwise log G.

    Raises
    ------
    CensoringTestError
        If too few rows are censored, or if X is not a table or is too wide for the Cox model.
    """
    name = "a Cox model" if isinstance(estimator, str) else type(estimator).__name__
    censored = int((~outcome.event).sum())
    if censored < _FEWEST:
        raise CensoringTestError(f"Too few rows are censored ({censored}) to test whether censoring depends on x.")
    if isinstance(estimator, str):
        width = _width(X)
        if width is None or width > _WIDEST:
            what = "X is not a table" if width is None else f"X has {width:,} columns after encoding its categories"
            raise CensoringTestError(
                f"{what}: whether censoring depends on x was not tested. Pass an estimator for such X as censoring."
            )
        from sumosurv.estimators import CoxPH

        estimator = CoxPH(alpha=1.0, missing="indicator")
    folds = _folds(outcome, _FOLDS, random_state)
    given = Joined([_predicted(estimator, X, outcome, rows) for rows in folds], folds)
    curves = [kaplan_meier(outcome[_others(len(outcome), rows)].any_cause(), censoring=True) for rows in folds]
    marginal = Joined([curve.repeat(len(rows)) for curve, rows in zip(curves, folds)], folds)
    edges = _edges(outcome)
    own, other = (_cell_likelihood(g, outcome, edges) for g in (given, marginal))
    with np.errstate(invalid="ignore"):
        gain = np.where(own == other, 0.0, own - other)  # also if both are -inf
    counted = outcome.weights > 0
    gain, outcome = gain[counted], outcome[counted]
    mean, error = float(np.average(gain, weights=outcome.weights)), float("nan")
    if np.isfinite(gain).all():
        error = float(np.sqrt(covariance_of_means((gain - mean)[:, None], outcome)[0, 0]))
    return CensoringCheck(name, mean, error, given)


def large_weights(censoring: SurvivalDistribution, outcome: Outcome, horizon: float) -> float | None:
    """Return the share of rows whose weight 1/G exceeds 10 by the horizon; None if a weight is infinite."""
    weighting, until = Weighting(censoring, on_zero="drop"), np.minimum(outcome.time, horizon)
    weight = weighting.of_events(np.ones(len(until), dtype=np.bool_), until)
    return None if (weight == 0).any() else float(outcome.weights @ (weight > _BOUND) / outcome.weights.sum())


def share_left_out(censoring: SurvivalDistribution, outcome: Outcome, time: float) -> float:
    """Return the share of rows that are left out at a time because their G(t|x) is small."""
    kept = Weighting(censoring, min_followed=MIN_FOLLOWED).kept(np.array([time]))[:, 0]
    return float(outcome.weights @ ~np.broadcast_to(kept, len(outcome)) / outcome.weights.sum())


# ------------------------------------------------------------------ weights of requested scores


def resolve_censoring(
    censoring: Any, X: Any, outcome: Outcome, random_state: Any, *, needed: bool = True
) -> tuple[CensoringCheck | None, list[str]]:
    """Return G given x, None if it is not to be used, and notes; ``censoring`` is the argument of `evaluate`.

    Whether censoring depends on x is tested only if the result is ``needed``.
    """
    by_name = isinstance(censoring, str)
    if by_name and censoring not in ("auto", "marginal"):
        raise ValueError(f'censoring must be "auto", "marginal", a distribution or an estimator; got {censoring!r}.')
    if not needed or censoring is None or censoring == "marginal" or isinstance(censoring, SurvivalDistribution):
        return None, []
    if not by_name and not isinstance(censoring, CensoringCheck) and not hasattr(censoring, "fit"):
        raise TypeError(
            f"censoring must be a distribution, an estimator with fit(X, y), 'auto' or 'marginal'; got {censoring!r}."
        )
    if outcome.upper is not None:
        return None, []  # the scores raise an error for interval censoring
    if X is None and not by_name:
        raise ValueError("censoring is an estimator, which needs X; pass X in addition to the distribution.")
    if X is None:
        return None, []
    check = censoring
    if not isinstance(check, CensoringCheck):
        try:
            check = check_censoring(censoring, X, outcome, random_state=random_state)
        except CensoringTestError as reason:
            return None, [str(reason)]
    return check if check.depends or not by_name else None, [str(check)]


def weigh_requests(
    requests: list[Request], censoring: Any, X: Any, outcome: Outcome, random_state: Any
) -> tuple[list[Request], list[str]]:
    """Return the requests with their censoring distributions, and notes about these; see `evaluate`."""
    open_ones = [r for r in requests if r.score.needs_censoring and r.options.get("censoring") is None]
    check, notes = resolve_censoring(censoring, X, outcome, random_state, needed=bool(open_ones))
    wanted = [r for r in open_ones if r.score.given_x]
    if check is None or not wanted:
        return requests, notes
    last = float(outcome.time.max())
    ends = sorted({r.horizon or last for r in wanted})
    missed = {end: share_left_out(check.distribution, outcome, end) for end in ends}
    notes.append(_in_words(check, large_weights(check.distribution, outcome, last), missed))
    made: list[Request] = []
    for request in requests:
        if not any(request is other for other in wanted):
            made.append(request)
            continue
        made.append(replace(request, censoring="marginal"))
        if request.score.times == "range" or missed[request.horizon or last] < 1:
            options = {**request.options, "censoring": check.distribution, "min_followed": MIN_FOLLOWED}
            made.append(replace(request, options=options, censoring="given x"))
    return made, notes


def _in_words(check: CensoringCheck, large: float | None, missed: Mapping[float, float]) -> str:
    some = [f"{share:.1%} at time {end:g}" for end, share in missed.items() if share > 0]
    weights = "" if large is None else f" {large:.1%} of rows have weights above 10."
    return (
        "Weighted scores are given with one G for all rows (marginal), which may then prefer the wrong model, and with "
        f"G given x, by {check.name}; there rows are left out at times at which fewer than {MIN_FOLLOWED:.0%} of "
        f"comparable subjects are still followed ({', '.join(some) if some else 'none'})." + weights
    )


# ------------------------------------------------------------------ folds, fits, cells


def _folds(outcome: Outcome, n_folds: int, random_state: Any) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each fold."""
    size = len(outcome.subject_event)
    if not 2 <= n_folds <= size:
        raise ValueError(f"n_folds must lie between 2 and the number of subjects, {size}; got {n_folds}.")
    return outcome.folds(n_folds, int(np.random.default_rng(random_state).integers(2**31)))


def _others(n: int, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return np.setdiff1d(np.arange(n), rows, assume_unique=True)


def _predicted(estimator: Any, X: Any, outcome: Outcome, held_out: npt.NDArray[np.intp]) -> SurvivalDistribution:
    """Return G of the held-out rows, by a clone fitted to the censoring times of the others."""
    flipped = replace(outcome, event=~outcome.event, cause=None)
    fitted = fitted_to(estimator, X, flipped, _others(len(outcome), held_out))
    return predict_distribution(fitted, take_rows(X, held_out), quiet=True)  # a level may be in one fold alone


def fitted_to(estimator: Any, X: Any, outcome: Outcome, rows: npt.NDArray[np.intp]) -> Any:
    """Return a clone of an estimator, fitted to some rows."""
    own = outcome[rows]
    # a plain array if it says all, for estimators that take no more
    y = own.array() if own.weight is None and own.group is None else own
    return clone(estimator).fit(take_rows(X, rows), y)


def _edges(outcome: Outcome) -> Array:
    """Return ends of cells with about equally many censorings, from 0 to before the largest 5 % of the times."""
    last = float(np.quantile(outcome.time, 0.95))
    if last >= outcome.time.max():  # many rows end with the study, which is no evidence about x
        last = float(outcome.time[outcome.time < outcome.time.max()].max(initial=0.0))
    times = outcome.time[~outcome.event & (outcome.time <= last)]
    cells = int(np.clip(len(times) // _FEWEST, 1, _CELLS))
    inner = np.quantile(times, np.linspace(0, 1, cells + 1)[1:], method="inverted_cdf") if len(times) else [last]
    return np.unique(np.concatenate([[0.0], inner]))


def _cell_likelihood(g: SurvivalDistribution, outcome: Outcome, edges: Array) -> Array:
    """Return the log-likelihood of each row's censoring time, known up to its cell, or after the end of observation."""
    time, last = outcome.time, edges[-1]
    inside = ~outcome.event & (time <= last) & (time > 0)
    place = np.clip(np.searchsorted(edges, time, side="left"), 1, len(edges) - 1)
    until = np.minimum(np.where(time > 0, np.nextafter(time, 0.0), 0.0), last)
    asked = np.column_stack([np.where(inside, edges[place - 1], until), np.where(inside, edges[place], until)])
    with torch.no_grad():
        before, after = np.asarray(g.log_survival(own_times=asked)).T
    with np.errstate(divide="ignore", invalid="ignore"):
        fall = before + np.log(-np.expm1(after - before))
    return np.where(inside, np.where(np.isneginf(before), -np.inf, fall), before)


def _width(X: Any) -> int | None:
    """Return the number of columns after encoding categories by their levels; None if X is not a table."""
    if hasattr(X, "select_dtypes"):
        numeric = X.select_dtypes("number").shape[1]
        levels = [int(X[name].nunique()) for name in X.columns.difference(X.select_dtypes("number").columns)]
        return int(numeric + sum(levels))
    shape = np.shape(X)
    return int(shape[1]) if len(shape) == 2 else None
