"""Kaplan-Meier, Nelson-Aalen, Breslow and Aalen-Johansen: step curves from an outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sumosurv.distributions import Tabulated
from sumosurv.nonparametric.counts import Counts, Floats, count, shares
from sumosurv.outcome import Outcome, check_outcome


def kaplan_meier(y: Any, *, censoring: bool = False, half_width: int = 2, sample_weight: Any = None) -> Tabulated:
    r"""The product-limit estimate, S(t) = Π_{tᵢ <= t} (1 - dᵢ / nᵢ), as the distribution of one subject.

    dᵢ and nᵢ are the weights of the events at tᵢ and of the rows at risk there, those with entry < tᵢ <= time. With
    delayed entry, early risk sets are small, and the curve stays at zero after an event that leaves nobody at risk.
    Causes are not distinguished.

    Parameters
    ----------
    y : outcome
        Of exact and right-censored times; see `turnbull` for intervals.
    censoring : bool
        Estimate the distribution of the *censoring* time instead: events and censorings are exchanged, and subjects
        with an event at t are not at risk of censoring at t (events come first among ties).
    half_width : int
        k of the interpolated density; see `Tabulated`.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> km = kaplan_meier(Surv.from_arrays(event=[1, 0, 1], time=[1.0, 2.0, 3.0]))
    >>> km.survival([0.5, 1.0, 2.5, 3.0]).round(3)
    array([[1.   , 0.667, 0.667, 0.   ]])

    With delayed entry, the second row is not at risk at the time of the first event:

    >>> late = Surv.from_arrays(event=[1, 0, 1], time=[1.0, 2.0, 3.0], entry=[0.0, 1.5, 0.0])
    >>> kaplan_meier(late).survival([1.0, 3.0])
    array([[0.5, 0. ]])
    """
    found = count(check_outcome(y, sample_weight=sample_weight))
    if censoring:
        censored = found.leaving - found.events
        censored = np.where(censored > 1e-12 * found.leaving, censored, 0.0)  # zero up to the rounding of weights
        found = replace(found, events=censored, at_risk=found.at_risk - found.events)
    found = found.at_jumps()
    return Tabulated(found.times, product_limit(found), half_width=half_width)


def product_limit(counts: Counts) -> Floats:
    """Π (1 - dᵢ / nᵢ) up to each time."""
    share = counts.hazard
    kept = np.where(share < 1.0 - 1e-12, 1.0 - share, 0.0)  # zero up to the rounding of weights
    return np.cumprod(kept, dtype=np.float64)


def nelson_aalen(y: Any, *, half_width: int = 2, sample_weight: Any = None) -> Tabulated:
    r"""S(t) = exp(-Λ(t)) with the Nelson-Aalen estimate Λ(t) = Σ_{tᵢ <= t} dᵢ / nᵢ, for one subject.

    dᵢ and nᵢ as in `kaplan_meier`.

    Parameters
    ----------
    y : outcome
        Of exact and right-censored times.
    half_width : int
        k of the interpolated density; see `Tabulated`.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> nelson_aalen(Surv.from_arrays(event=[1, 1], time=[1.0, 3.0])).cumulative_hazard([1.0, 3.0])
    array([[0.5, 1.5]])
    """
    found = count(check_outcome(y, sample_weight=sample_weight)).at_jumps()
    return Tabulated(found.times, np.exp(-np.cumsum(found.hazard)), half_width=half_width)


def breslow(y: Any, log_risk: Any, log_risk_new: Any, *, half_width: int = 2, sample_weight: Any = None) -> Tabulated:
    r"""Curves of a proportional-hazards model, S(t|x) = exp(-Λ₀(t) e^{g(x)}), with Breslow's baseline.

    .. math:: Λ₀(t) = \sum_{t_i \le t} d_i / \sum_{j: v_j < t_i \le z_j} w_j e^{g(x_j)}

    with entry times v, weights w and the weight dᵢ of the events at tᵢ.

    Parameters
    ----------
    y : outcome
        The training rows.
    log_risk : array of shape (n,)
        g(x) of the training rows.
    log_risk_new : array of shape (m,)
        g(x) of the subjects to predict.
    half_width : int
        k of the interpolated density; see `Tabulated`.
    sample_weight : array of shape (n,), optional
        How many rows each training row counts for.
    """
    outcome = check_outcome(y, sample_weight=sample_weight)
    risk, new = np.asarray(log_risk, dtype=np.float64), np.asarray(log_risk_new, dtype=np.float64)
    for name, values, wanted in (
        ("log_risk", risk, f"training row ({len(outcome)})"),
        ("log_risk_new", new, "subject to predict"),
    ):
        if values.ndim != 1 or not np.isfinite(values).all() or (values is risk and len(risk) != len(outcome)):
            raise ValueError(f"{name} has shape {values.shape}; give one finite number per {wanted}.")
    shift = float(risk.max())
    found = count(outcome, np.exp(risk - shift)).at_jumps()
    log_survival = -np.exp(new - shift)[:, None] * np.cumsum(found.hazard)
    return Tabulated(found.times, torch.exp(torch.from_numpy(log_survival)), half_width=half_width)


def aalen_johansen(y: Any, *, half_width: int = 2, sample_weight: Any = None, causes: int | None = None) -> Tabulated:
    r"""The Aalen-Johansen estimate of the cumulative incidence of each cause.

    .. math:: F_k(t) = \sum_{t_i \le t} S(t_{i-1}) \, d_{ki} / n_i,
        \qquad S(t) = \prod_{t_i \le t} \Big(1 - \sum_k d_{ki} / n_i\Big)

    with the weights d of the events of cause k at tᵢ and n of the rows at risk there, those with
    entry < tᵢ <= time. Events of different causes at one time are tied, not ordered.

    Parameters
    ----------
    y : outcome
        With causes 1, ..., K, of exact and right-censored times.
    half_width : int
        k of the interpolated density; see `Tabulated`.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.
    causes : int, optional
        K; by default the largest cause in y.

    Returns
    -------
    Tabulated
        The incidences of K causes, for one subject.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> found = aalen_johansen(Surv.from_arrays(event=[1, 2, 0, 1], time=[1.0, 2.0, 3.0, 4.0]))
    >>> found.cumulative_incidence([1.0, 4.0]), found.survival(2.5)
    (array([[[0.25, 0.  ],
            [0.75, 0.25]]]), array([0.5]))
    """
    times, incidence, survival = incidence_steps(check_outcome(y, sample_weight=sample_weight), causes)
    by_cause = np.minimum(incidence, 1.0) if incidence.shape[1] > 1 else None  # rounding may exceed one
    return Tabulated(times, survival, by_cause, half_width=half_width)


def incidence_steps(outcome: Outcome, causes: int | None = None) -> tuple[Floats, Floats, Floats]:
    """Return the times of events, and by Aalen-Johansen F_k, (m, K), and S, (m,), from each time on."""
    counts = count(outcome).at_jumps()
    hazards = shares(cause_events(outcome, counts.times, causes), counts.at_risk[:, None])
    total = hazards.sum(axis=1)
    hazards /= np.maximum(total, 1.0)[:, None]
    kept = np.cumprod(np.where(total < 1.0 - 1e-12, 1.0 - total, 0.0), dtype=np.float64)
    incidence = np.cumsum(np.append(1.0, kept[:-1])[:, None] * hazards, axis=0)
    return counts.times, incidence, kept


def cause_events(outcome: Outcome, times: Floats, causes: int | None = None) -> Floats:
    """Weights of the events of each cause at the times of all events: shape (m, K)."""
    cause = outcome.event.astype(np.int64) if outcome.cause is None else outcome.cause
    n_causes = outcome.n_causes if causes is None else causes
    if n_causes < outcome.n_causes:
        raise ValueError(f"causes is {causes}, and the rows have cause {outcome.n_causes}; give the number of causes.")
    made = np.zeros((len(times), n_causes))
    seen = (cause > 0) & (outcome.weights > 0)  # the times of rows of weight zero are not among the times
    np.add.at(made, (np.searchsorted(times, outcome.time[seen]), cause[seen] - 1), outcome.weights[seen])
    return made
