"""Decision curves: the net benefit of acting on predictions, compared with treating everyone or no one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.confidence import check_level, check_resamples, resampled_limits
from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import Array, check_subjects, check_time, of_cause, risk_at
from sumosurv.scores._resampling import Bootstrap, incidence_limit


@dataclass(frozen=True)
class DecisionCurve:
    """The result of `decision_curve`: net benefit of treating subjects whose predicted risk reaches a threshold.

    Attributes
    ----------
    time : float
    cause : int or None
    level : float
        Confidence level of the intervals.
    table : DataFrame
        By threshold: ``net_benefit`` of the model; ``treat_all``, the net benefit of treating everyone (it is zero
        for treating no one); ``advantage``, the net benefit of the model minus the larger of these two;
        ``treated``, the share of subjects at or above the threshold. The first three have limits,
        ``net_benefit_lower``, ``net_benefit_upper`` and so on. Values are nan if subjects at or above the threshold
        are not followed up to the time. Limits are nan if this happens in a resample, or without resamples.
    """

    time: float
    cause: int | None
    level: float
    table: pd.DataFrame


def decision_curve(
    distribution: SurvivalDistribution,
    y: Any,
    time: float | None = None,
    *,
    thresholds: Any = None,
    cause: int | None = None,
    level: float = 0.95,
    n_bootstrap: int = 200,
    random_state: Any = None,
    sample_weight: Any = None,
) -> DecisionCurve:
    r"""Net benefit of acting on the predicted risk at one time, over thresholds of risk.

    Treating subjects with a risk of p or more implies that treating one subject with the event is worth treating
    (1 - p) / p subjects without it. In units of treated subjects with the event, per subject, the net benefit of
    treating subjects with F(t|x) >= p is

    .. math:: NB(p) = π_p \Big( I_p(t) - (1 - I_p(t)) \frac{p}{1 - p} \Big),

    where π is the share of subjects with F(t|x) >= p and I the probability of an event up to t among them: one minus
    the Kaplan-Meier estimate, or the Aalen-Johansen estimate of one of several causes. Without censoring, the two terms
    are the shares of true and false positives.

    Parameters
    ----------
    distribution : SurvivalDistribution
        Predictions for subjects that the model was not fitted to.
    y : outcome
        The outcome of these subjects.
    time : float, optional
        The horizon t; the median of the times in y by default.
    thresholds : array, optional
        Risks above 0 and below 1; 0.01, 0.02, ..., 0.99 by default. Interpret only thresholds at which somebody would
        act.
    cause : int, optional
        The cause, counted from one; any cause by default.
    level : float, default 0.95
        Confidence level of the intervals, which are quantiles over resamples of the subjects.
    n_bootstrap : int, default 200
        Number of resamples; 0 for no intervals.
    random_state : int, Generator or None
        Seed of the resamples.
    sample_weight : array of shape (n,), optional
        Number of subjects that each row represents.

    Returns
    -------
    DecisionCurve

    Notes
    -----
    Censoring must be independent of the event among subjects at or above a threshold. Net benefit compares models,
    treating everyone and treating no one at a given threshold. It judges decisions, not distributions, and differences
    at thresholds that nobody would use are irrelevant.

    References
    ----------
    Vickers, Elkin (2006), Medical Decision Making 26; Vickers et al. (2008), BMC Medical Informatics and Decision
    Making 8.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[1, 1, 1, 1], time=[0.4, 1.2, 1.5, 4.0])
    >>> found = decision_curve(Weibull([1.0, 1.0, 3.0, 3.0], 1.0), y, 1.3, thresholds=[0.2, 0.5], n_bootstrap=0)
    >>> found.table[["net_benefit", "treat_all"]]
               net_benefit  treat_all
    threshold
    0.2              0.375      0.375
    0.5              0.500      0.000
    """
    outcome = check_subjects(distribution, y, sample_weight)
    at = check_time(outcome, time)
    p = np.arange(1, 100) / 100 if thresholds is None else np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if p.ndim != 1 or not len(p) or not ((p > 0) & (p < 1)).all():
        raise ValueError(f"thresholds must be risks above 0 and below 1; got {thresholds!r}.")
    check_level(level)
    check_resamples(n_bootstrap)
    curves, other = of_cause(distribution, outcome, cause)
    risk = risk_at(curves, at)
    own = outcome.event & ~other
    found = _net_benefit(outcome.weights[None], outcome, own, risk, at, p)
    resamples = Bootstrap(outcome, n_bootstrap, np.random.default_rng(random_state))
    drawn = [_net_benefit(part.counts, outcome, own, risk, at, p) for part in resamples]
    columns: dict[str, Any] = {}
    for name, (value,) in found.items():
        lower = upper = np.full(len(p), np.nan)
        if drawn:
            lower, upper = resampled_limits(np.concatenate([part[name] for part in drawn]), value, level)
        columns |= {name: value, f"{name}_lower": lower, f"{name}_upper": upper}
    columns["treated"] = outcome.weights @ (risk[:, None] >= p) / outcome.total
    return DecisionCurve(at, cause, level, pd.DataFrame(columns, index=pd.Index(p, name="threshold")))


def _net_benefit(
    counts: Array, outcome: Outcome, own: npt.NDArray[np.bool_], risk: Array, time: float, thresholds: Array
) -> dict[str, Array]:
    """Return the net benefit in each resample at each threshold, (r, thresholds), of the model and of treating all."""
    order = outcome.time_order
    outcome, own, risk, drawn = outcome[order], own[order], risk[order], counts[:, order]
    total, odds = drawn.sum(axis=1), thresholds / (1.0 - thresholds)
    everyone = incidence_limit(drawn, outcome, own, time)
    treat_all = everyone[:, None] - (1.0 - everyone[:, None]) * odds
    model = np.empty_like(treat_all)
    for j, threshold in enumerate(thresholds):
        rows = np.flatnonzero(risk >= threshold)
        some = drawn[:, rows]
        share = some.sum(axis=1) / total
        incidence = incidence_limit(some, outcome[rows], own[rows], time)
        model[:, j] = np.where(share > 0, share * (incidence - (1.0 - incidence) * odds[j]), 0.0)
    return {"net_benefit": model, "treat_all": treat_all, "advantage": model - np.maximum(treat_all, 0.0)}
