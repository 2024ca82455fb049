"""Pointwise confidence bands of the nonparametric curves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import ndtri

from sumosurv.nonparametric.causes import aalen_johansen, cause_events
from sumosurv.nonparametric.counts import Floats, count, jumps, shares
from sumosurv.nonparametric.curves import product_limit
from sumosurv.nonparametric.intervals import turnbull
from sumosurv.outcome import Outcome, check_outcome

__all__ = ["confidence_band"]

Curve = Literal["kaplan_meier", "nelson_aalen", "aalen_johansen", "turnbull"]
Kind = Literal["log-log", "plain"]


def confidence_band(
    y: Any,
    of: Curve = "kaplan_meier",
    *,
    level: float = 0.95,
    kind: Kind = "log-log",
    sample_weight: Any = None,
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
    - Turnbull: none has a simple form; the limits are quantiles of the curve over samples of the rows (of the
      subjects, where there are groups) drawn with replacement.

    Parameters
    ----------
    y : outcome
    of : {"kaplan_meier", "nelson_aalen", "aalen_johansen", "turnbull"}
        The curve: S(t), Λ(t), F_k(t) of each cause, or S(t).
    level : float
        The probability with which the limits hold the true value at a given time.
    kind : {"log-log", "plain"}
        "plain": estimate ± z · standard error, cut at 0 and 1. "log-log": the same on the scale of log(-log S),
        log Λ or log(-log F), which keeps the limits in range and is more accurate in small samples. Turnbull's
        limits are quantiles and do not depend on it.
    sample_weight : array of shape (n,), optional
        How many rows each row counts for. The formulas take the weights for counts of subjects; limits for
        sampling weights that are not counts (scaled to a mean of one) are approximate.
    n_bootstrap : int
        Samples for Turnbull's curve.
    random_state : int, Generator or None
        Of these samples.

    Returns
    -------
    DataFrame
        With the columns time, estimate, lower, upper; for Aalen-Johansen also cause, all times of cause 1 first.
        Limits are nan where a variance cannot be estimated: once Kaplan-Meier is at zero, and on the log-log scale
        once an incidence is at one.

    Notes
    -----
    Where no time is known exactly, Turnbull's curve converges at the rate ∛n and the bootstrap is not consistent for
    it (Sen and Banerjee 2010): such limits show the order of the uncertainty, not its level.

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
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is a probability between 0 and 1, such as 0.95; got {level!r}.")
    if kind not in ("log-log", "plain"):
        raise ValueError(f"kind is 'log-log' or 'plain'; got {kind!r}.")
    outcome = check_outcome(y, sample_weight=sample_weight)
    z = float(ndtri(0.5 + 0.5 * level))
    if of == "kaplan_meier":
        return _kaplan_meier(outcome, z, kind)
    if of == "nelson_aalen":
        return _nelson_aalen(outcome, z, kind)
    if of == "aalen_johansen":
        return _aalen_johansen(outcome, z, kind)
    if of == "turnbull":
        return _turnbull(outcome, level, n_bootstrap, random_state)
    raise ValueError(f"of is 'kaplan_meier', 'nelson_aalen', 'aalen_johansen' or 'turnbull'; got {of!r}.")


def _kaplan_meier(outcome: Outcome, z: float, kind: Kind) -> pd.DataFrame:
    counts = count(outcome)
    at = jumps(counts.events)
    events, at_risk = counts.events[at], counts.at_risk[at]
    survival = product_limit(events, at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(np.cumsum(events / (at_risk * (at_risk - events))))
    error = np.where(survival > 0, error, np.nan)
    return _limits(counts.times[at], survival, survival * error, z, kind)


def _nelson_aalen(outcome: Outcome, z: float, kind: Kind) -> pd.DataFrame:
    counts = count(outcome)
    at = jumps(counts.events)
    hazard = shares(counts.events, counts.at_risk)[at]
    estimate, error = np.cumsum(hazard), np.sqrt(np.cumsum(hazard / counts.at_risk[at]))
    if kind == "plain":
        lower, upper = np.maximum(estimate - z * error, 0.0), estimate + z * error
    else:
        factor = np.exp(z * np.divide(error, estimate, out=np.zeros_like(error), where=estimate > 0))
        lower, upper = estimate / factor, estimate * factor
    return _frame(counts.times[at], estimate, lower, upper)


def _aalen_johansen(outcome: Outcome, z: float, kind: Kind) -> pd.DataFrame:
    counts, curves = count(outcome), aalen_johansen(outcome)
    at = jumps(counts.events)
    by_cause, events, n = cause_events(outcome, counts.times)[at], counts.events[at], counts.at_risk[at]
    before = np.append(1.0, curves.survival[:-1])
    left = n - events
    # where nobody is left no incidence grows any more, and (F(t) - F(tᵢ))² is zero
    greenwood = np.divide(events, n * left, out=np.zeros_like(n), where=left > 1e-12 * n)
    parts = []
    for k in range(curves.n_causes):
        f, d = curves.incidence[:, k], by_cause[:, k]
        mixed = before * d / n**2
        # Σ aᵢ (F(t) - Fᵢ)² and Σ bᵢ (F(t) - Fᵢ), F(t) outside the sums
        first = f**2 * np.cumsum(greenwood) - 2 * f * np.cumsum(greenwood * f) + np.cumsum(greenwood * f**2)
        third = f * np.cumsum(mixed) - np.cumsum(mixed * f)
        variance = first + np.cumsum(before**2 * d * (n - d) / n**3) - 2 * third
        parts.append(_limits(curves.times, f, np.sqrt(np.maximum(variance, 0.0)), z, kind).assign(cause=k + 1))
    return pd.concat(parts, ignore_index=True)


def _turnbull(outcome: Outcome, level: float, n_bootstrap: int, random_state: Any) -> pd.DataFrame:
    if not isinstance(n_bootstrap, (int, np.integer)) or n_bootstrap < 1:
        raise ValueError(f"n_bootstrap is a whole number of at least 1; got {n_bootstrap!r}.")
    curve = turnbull(outcome)
    times = curve.times.numpy()
    rng = np.random.default_rng(random_state)
    subject = np.arange(len(outcome)) if outcome.group is None else np.unique(outcome.group, return_inverse=True)[1]
    n = int(subject.max()) + 1
    found = np.empty((n_bootstrap, len(times)))
    for b in range(n_bootstrap):
        drawn = np.bincount(rng.integers(n, size=n), minlength=n)[subject] * outcome.weights
        rows = drawn > 0
        found[b] = turnbull(replace(outcome[rows], weight=drawn[rows])).survival(times)[0]
    lower, upper = np.quantile(found, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    keep = slice(1, None) if len(times) > 1 and times[0] == 0 and curve.table[0, 0] == 1 else slice(None)
    return _frame(times[keep], curve.table[0].numpy()[keep], lower[keep], upper[keep])


def _limits(times: Floats, estimate: Floats, error: Floats, z: float, kind: Kind) -> pd.DataFrame:
    """Limits of a probability with a standard error."""
    if kind == "plain":
        return _frame(times, estimate, np.maximum(estimate - z * error, 0.0), np.minimum(estimate + z * error, 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        width = z * error / (estimate * np.abs(np.log(estimate)))
        lower, upper = estimate ** np.exp(width), estimate ** np.exp(-width)
    flat = (error == 0) & np.isin(estimate, (0.0, 1.0))  # before the first event
    return _frame(times, estimate, np.where(flat, estimate, lower), np.where(flat, estimate, upper))


def _frame(times: Floats, estimate: Floats, lower: Floats, upper: Floats) -> pd.DataFrame:
    return pd.DataFrame({"time": times, "estimate": estimate, "lower": lower, "upper": upper})
