"""Kaplan-Meier, Nelson-Aalen and Breslow: step curves from an outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions import Tabulated
from sumosurv.outcome import check_outcome

__all__ = ["breslow", "coarse_kaplan_meier", "kaplan_meier", "marginal_curve", "nelson_aalen", "risk_table"]

_MOST_CELLS = 200


def risk_table(y: Any, weights: Any = None) -> tuple[npt.NDArray[np.float64], ...]:
    """Distinct times, events at each, and (weighted) subjects at risk just before each."""
    outcome = check_outcome(y)
    times, index = np.unique(outcome.time, return_inverse=True)
    share = np.ones(len(outcome)) if weights is None else np.asarray(weights, dtype=np.float64)
    events = np.bincount(index, weights=outcome.event.astype(np.float64)).astype(np.float64)
    leaving = np.bincount(index, weights=share).astype(np.float64)
    at_risk = np.cumsum(leaving[::-1])[::-1]
    return times, events, at_risk


def kaplan_meier(y: Any, *, censoring: bool = False, half_width: int = 2) -> Tabulated:
    r"""The product-limit estimate, S(t) = Π_{tᵢ <= t} (1 - dᵢ / nᵢ), as the distribution of one subject.

    Parameters
    ----------
    y : outcome
    censoring : bool
        Estimate the distribution of the *censoring* time instead: events flipped, and subjects with an
        event at t no longer at risk of censoring at t (events come first among ties).
    half_width : int
        k of the interpolated density; see `Tabulated`.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> km = kaplan_meier(Surv.from_arrays(event=[1, 0, 1], time=[1.0, 2.0, 3.0]))
    >>> km.survival([0.5, 1.0, 2.5, 3.0]).round(3)
    array([[1.   , 0.667, 0.667, 0.   ]])
    """
    times, events, at_risk = risk_table(y)
    if censoring:
        total = np.append(-np.diff(at_risk), at_risk[-1])
        events, at_risk = total - events, at_risk - events
    jumps = _jumps(events)
    return Tabulated(times[jumps], np.cumprod(1.0 - _shares(events, at_risk)[jumps]), half_width=half_width)


def marginal_curve(y: Any) -> Tabulated:
    """The curve of all rows together."""
    return kaplan_meier(y)


def coarse_kaplan_meier(y: Any) -> Tabulated:
    r"""Kaplan-Meier at the edges of 2 ∛events cells (200 at most), with a constant hazard in each cell.

    It has a density that is positive everywhere, so that other rows have a likelihood under it, and few enough cells
    for that not to be noise. The edges lie between event times, about as many events in each cell: no time of a row is
    kept. In the last cell, which is open, the hazard is events by time at risk.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> time = np.arange(1.0, 28.0)
    >>> coarse = coarse_kaplan_meier(Surv.from_arrays(event=np.ones(27), time=time))
    >>> coarse.times.tolist()[:4], coarse.survival(9.5).round(3)
    ([0.0, 4.5, 9.5, 13.5], array([0.667]))
    """
    outcome = check_outcome(y)
    unit = float(outcome.time.max()) or 1.0
    outcome = outcome.on_clock(unit=unit)
    events = np.sort(outcome.time[outcome.event])
    if len(events) == 0:
        return Tabulated([1.0], [1.0], between="hazard")
    n_cells = min(_MOST_CELLS, int(2 * np.cbrt(len(events))))
    distinct = np.unique(events)
    places = np.searchsorted(distinct, events[np.arange(1, n_cells) * len(events) // n_cells - 1])
    places = np.unique(places[places < len(distinct) - 1])
    edges = np.unique(0.5 * (distinct[places] + distinct[places + 1]))
    start = float(edges[-1]) if len(edges) else 0.0
    # the mean time to the event in the last cell
    ahead = float(np.maximum(outcome.time - start, 0.0).sum()) / float((events > start).sum() or len(events))
    survival = kaplan_meier(outcome).survival(np.append(0.0, edges))[0] if len(edges) else np.ones(1)
    survival = np.append(survival[1:], survival[-1] * np.exp(-1.0))
    knots = np.minimum(np.append(edges, start + (ahead or 1.0)) * unit, np.finfo(np.float64).max)
    knots, first = np.unique(knots, return_index=True)  # the smallest of numbers are no longer apart
    return Tabulated(knots, survival[first], between="hazard")


def nelson_aalen(y: Any, *, half_width: int = 2) -> Tabulated:
    r"""S(t) = exp(-Λ(t)) with the Nelson-Aalen estimate Λ(t) = Σ_{tᵢ <= t} dᵢ / nᵢ, for one subject.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> nelson_aalen(Surv.from_arrays(event=[1, 1], time=[1.0, 3.0])).cumulative_hazard([1.0, 3.0])
    array([[0.5, 1.5]])
    """
    times, events, at_risk = risk_table(y)
    jumps = _jumps(events)
    return Tabulated(times[jumps], np.exp(-np.cumsum(_shares(events, at_risk)[jumps])), half_width=half_width)


def breslow(y: Any, log_risk: Any, log_risk_new: Any, *, half_width: int = 2) -> Tabulated:
    r"""Curves of a proportional-hazards model, S(t|x) = exp(-Λ₀(t) e^{g(x)}), with Breslow's baseline.

    .. math:: Λ₀(t) = \sum_{t_i \le t} d_i / \sum_{j: z_j \ge t_i} e^{g(x_j)}.

    Parameters
    ----------
    y : outcome
        The training rows.
    log_risk : array of shape (n,)
        g(x) of the training rows.
    log_risk_new : array of shape (m,)
        g(x) of the subjects to predict.
    """
    outcome = check_outcome(y)
    risk, new = np.asarray(log_risk, dtype=np.float64), np.asarray(log_risk_new, dtype=np.float64)
    for name, values, wanted in (
        ("log_risk", risk, f"training row ({len(outcome)})"),
        ("log_risk_new", new, "subject to predict"),
    ):
        if values.ndim != 1 or not np.isfinite(values).all() or (values is risk and len(risk) != len(outcome)):
            raise ValueError(f"{name} has shape {values.shape}; give one finite number per {wanted}.")
    shift = float(risk.max())
    times, events, at_risk = risk_table(outcome, weights=np.exp(risk - shift))
    jumps = _jumps(events)
    baseline = np.cumsum(_shares(events, at_risk)[jumps])
    relative = np.exp(new - shift)
    return Tabulated(times[jumps], torch.exp(torch.from_numpy(-relative[:, None] * baseline)), half_width=half_width)


def _jumps(events: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Where the curve jumps (the first time, if it never does): the knots of its interpolated density."""
    found = np.flatnonzero(events > 0)
    return found if len(found) else np.zeros(1, dtype=np.intp)


def _shares(events: npt.NDArray[np.float64], at_risk: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Events among those at risk; none where nobody is at risk any more (censoring, all with an event first)."""
    return np.divide(events, at_risk, out=np.zeros_like(at_risk), where=events > 0)
