"""Pointwise confidence bands of the nonparametric curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import ndtri

from sumosurv.confidence import check_level, check_resamples, resampled_limits
from sumosurv.nonparametric.curves import Counts, cause_events, count, incidence_steps, product_limit, turnbull
from sumosurv.nonparametric.intervals import Floats
from sumosurv.nonparametric.subjects import at_risk_from, is_robust, resampler, sum_by_subject
from sumosurv.outcome import Outcome, check_outcome

Curve = Literal["kaplan_meier", "nelson_aalen", "aalen_johansen", "turnbull"]
Kind = Literal["log-log", "log", "plain"]

_BLOCK = 2_000_000  # entries of a table of rows and times


def confidence_band(
    y: Any,
    of: Curve = "kaplan_meier",
    *,
    level: float = 0.95,
    kind: Kind = "log-log",
    sample_weight: Any = None,
    groups: Any = None,
    n_bootstrap: int = 200,
    random_state: Any = None,
) -> pd.DataFrame:
    r"""A curve with pointwise confidence limits at its jumps.

    The variance of each estimate, with dᵢ events and nᵢ rows at risk at tᵢ:

    - Kaplan-Meier: Greenwood's, :math:`S(t)^2 σ^2(t)` with :math:`σ^2(t) = \sum d_i / (n_i (n_i - d_i))`.
    - Nelson-Aalen: Aalen's, :math:`\sum d_i / n_i^2`.
    - Aalen-Johansen: the delta method,
      :math:`\sum (F_k(t) - F_k(t_i))^2 d_i / (n_i (n_i - d_i)) + \sum S(t_{i-1})^2 d_{ki} (n_i - d_{ki}) / n_i^3
      - 2 \sum (F_k(t) - F_k(t_i)) S(t_{i-1}) d_{ki} / n_i^2`.
    - These three with weights that are not whole numbers, or with several rows per subject: the infinitesimal
      jackknife, the sum over subjects of the squared derivative of the curve with respect to their weight, as in R's
      ``survfit(robust = TRUE)``.
    - Turnbull: the limits are quantiles of the curve over bootstrap samples of the subjects, and contain the curve.

    Parameters
    ----------
    y : outcome
    of : {"kaplan_meier", "nelson_aalen", "aalen_johansen", "turnbull"}
        The curve: S(t), Λ(t), F_k(t) of each cause, or S(t).
    level : float, default 0.95
        The probability with which the limits contain the true value at a given time.
    kind : {"log-log", "log", "plain"}
        The scale on which limits are symmetric, estimate ± z · standard error. "plain": the scale of the estimate, with
        limits cut at 0 and 1. "log": its logarithm, the upper limit cut at 1 (the default of R's ``survfit``).
        "log-log": log(-log S), log(-log F) or log Λ, which keeps limits in range and is more accurate in small samples.
        Ignored for Turnbull's curve.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents. Integers are frequencies: limits equal those of repeated rows. Other
        weights are sampling weights, treated as known.
    groups : array of shape (n,), optional
        The subject of each row, if subjects have several rows.
    n_bootstrap : int, default 200
        Number of bootstrap samples for Turnbull's curve.
    random_state : int, Generator or None
        Seed of these samples.

    Returns
    -------
    DataFrame
        With the columns time, estimate, lower, upper; for Aalen-Johansen also cause, all times of cause 1 first.
        Limits are nan if a variance cannot be estimated: once Kaplan-Meier is at zero, and on the log-log scale once
        an incidence is at one.

    Notes
    -----
    If no event time is known exactly, Turnbull's curve converges at the rate ∛n and the bootstrap is not consistent
    (Sen and Banerjee 2010): the limits then show the order of magnitude of the uncertainty, not its level.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> y = Surv.from_arrays(event=[1, 0, 1, 1], time=[1.0, 2.0, 3.0, 4.0])
    >>> confidence_band(y).round(3)
       time  estimate  lower  upper
    0   1.0     0.750  0.128  0.961
    1   3.0     0.375  0.011  0.808
    2   4.0     0.000    NaN    NaN
    """
    check_level(level)
    if kind not in ("log-log", "log", "plain"):
        raise ValueError(f"kind must be 'log-log', 'log' or 'plain'; got {kind!r}.")
    outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
    z = float(ndtri(0.5 + 0.5 * level))
    if of == "kaplan_meier":
        return _limits(*_survival_variance(outcome), z, kind)
    if of == "nelson_aalen":
        return _limits(*_hazard_variance(outcome), z, "plain" if kind == "plain" else "log", most=np.inf)
    if of == "aalen_johansen":
        causes = range(1, outcome.n_causes + 1)
        parts = [_limits(*incidence_variance(outcome, k), z, kind).assign(cause=k) for k in causes]
        return pd.concat(parts, ignore_index=True)
    if of == "turnbull":
        return _turnbull(outcome, level, n_bootstrap, random_state)
    raise ValueError(f"of must be 'kaplan_meier', 'nelson_aalen', 'aalen_johansen' or 'turnbull'; got {of!r}.")


def _survival_variance(outcome: Outcome) -> tuple[Floats, Floats, Floats]:
    """Return the times of the Kaplan-Meier estimate, S at each and its variance."""
    counts = count(outcome).at_jumps()
    survival = product_limit(counts)
    if is_robust(outcome):
        variance = _jackknife(outcome, counts.times, lambda rows: _of_survival(rows, counts, survival))
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = survival**2 * np.cumsum(counts.events / (counts.at_risk * (counts.at_risk - counts.events)))
    return counts.times, survival, np.where(survival > 0, variance, np.nan)


def _hazard_variance(outcome: Outcome) -> tuple[Floats, Floats, Floats]:
    """Return the times of the Nelson-Aalen estimate, Λ at each and its variance."""
    counts = count(outcome).at_jumps()
    times, at_risk, hazard = counts.times, counts.at_risk, counts.hazard
    if not is_robust(outcome):
        return times, np.cumsum(hazard), np.cumsum(hazard / at_risk)
    variance = _jackknife(outcome, times, lambda rows: np.cumsum(_martingale(rows, times, hazard) / at_risk, axis=1))
    return times, np.cumsum(hazard), variance


def incidence_variance(outcome: Outcome, cause: int) -> tuple[Floats, Floats, Floats]:
    """Return the times of the Aalen-Johansen estimate, F_k at each and its variance as in `confidence_band`."""
    counts, (times, incidence, survival) = count(outcome).at_jumps(), incidence_steps(outcome)
    events, n = counts.events, counts.at_risk
    f, d = incidence[:, cause - 1], cause_events(outcome, times)[:, cause - 1]
    before = np.append(1.0, survival[:-1])
    if is_robust(outcome):

        def influence(rows: Outcome) -> Floats:
            of_survival = _of_survival(rows, counts, survival)
            of_before = np.hstack([np.zeros((len(rows), 1)), of_survival[:, :-1]])
            own = before * _martingale(rows.of_cause(cause), times, d / n) / n
            return np.cumsum(own + of_before * d / n, axis=1)

        return times, f, _jackknife(outcome, times, influence)
    left = n - events
    # where nobody is left no incidence grows any more, and (F(t) - F(tᵢ))² is zero
    greenwood = np.divide(events, n * left, out=np.zeros_like(n), where=left > 1e-12 * n)
    mixed = before * d / n**2
    # Σ aᵢ (F(t) - Fᵢ)² and Σ bᵢ (F(t) - Fᵢ), F(t) outside the sums
    first = f**2 * np.cumsum(greenwood) - 2 * f * np.cumsum(greenwood * f) + np.cumsum(greenwood * f**2)
    third = f * np.cumsum(mixed) - np.cumsum(mixed * f)
    second = np.cumsum(before**2 * d * (n - d) / n**3)
    variance = first + second - 2 * third
    return times, f, np.where(variance > 1e-12 * (f**2 * np.cumsum(greenwood) + second), variance, 0.0)  # else rounding


def _jackknife(outcome: Outcome, times: Floats, influence: Callable[[Outcome], Floats]) -> Floats:
    """Σ over subjects of the squared contribution to a curve, (m,); ``influence`` is per row and unit of weight."""
    subject = outcome.subject
    order = np.argsort(subject, kind="stable")
    first = np.append(np.flatnonzero(np.diff(subject[order], prepend=-1)), len(order))
    size = max(1, _BLOCK // len(times))
    total = np.zeros(len(times))
    for start in range(0, len(first) - 1, size):
        rows = outcome[order[first[start] : first[min(start + size, len(first) - 1)]]]
        total += np.square(sum_by_subject(rows.weights[:, None] * influence(rows), rows)).sum(axis=0)
    return total


def _martingale(rows: Outcome, times: Floats, hazard: Floats) -> Floats:
    """dN - Y dΛ of each row at each of the times, (n, m)."""
    at_risk = (at_risk_from(rows)[:, None] < times) & (times <= rows.time[:, None])
    return np.asarray((rows.event[:, None] & (times == rows.time[:, None])) - at_risk * hazard)


def _of_survival(rows: Outcome, counts: Counts, survival: Floats) -> Floats:
    """Derivative of the Kaplan-Meier estimate with respect to the weight of each row, (n, m)."""
    left = counts.at_risk - counts.events
    per_event = np.divide(1.0, left, out=np.zeros_like(left), where=left > 1e-12 * counts.at_risk)
    return np.asarray(-survival * np.cumsum(_martingale(rows, counts.times, counts.hazard) * per_event, axis=1))


def _turnbull(outcome: Outcome, level: float, n_bootstrap: int, random_state: Any) -> pd.DataFrame:
    check_resamples(n_bootstrap, 1)
    curve = turnbull(outcome)
    times = curve.times.numpy()
    rng, draw = np.random.default_rng(random_state), resampler(outcome)
    found = np.empty((n_bootstrap, len(times)))
    for b in range(n_bootstrap):
        drawn = draw(rng)
        rows = drawn > 0
        found[b] = turnbull(replace(outcome[rows], weight=drawn[rows])).survival(times)[0]
    estimate = curve.table[0].numpy()
    lower, upper = resampled_limits(found, estimate, level)
    made = pd.DataFrame({"time": times, "estimate": estimate, "lower": lower, "upper": upper})
    at_start = len(times) > 1 and times[0] == 0 and estimate[0] == 1
    return made.iloc[1:].reset_index(drop=True) if at_start else made


def _limits(times: Floats, estimate: Floats, variance: Floats, z: float, kind: Kind, most: float = 1.0) -> pd.DataFrame:
    """Return the confidence limits of estimates that lie between 0 and ``most``."""
    error = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == "plain":
            lower, upper = np.maximum(estimate - z * error, 0.0), np.minimum(estimate + z * error, most)
        elif kind == "log":
            factor = np.exp(z * error / estimate)
            lower, upper = estimate / factor, np.minimum(estimate * factor, most)
        else:
            width = z * error / (estimate * np.abs(np.log(estimate)))
            lower, upper = estimate ** np.exp(width), estimate ** np.exp(-width)
    certain = (error == 0) & np.isin(estimate, (0.0, most))  # before the first event
    lower, upper = np.where(certain, estimate, lower), np.where(certain, estimate, upper)
    return pd.DataFrame({"time": times, "estimate": estimate, "lower": lower, "upper": upper})
