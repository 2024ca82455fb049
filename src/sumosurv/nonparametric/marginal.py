"""The curve of all rows together, whatever was observed of them."""

from __future__ import annotations

from typing import Any

from sumosurv.distributions import Tabulated
from sumosurv.nonparametric.curves import kaplan_meier, nelson_aalen
from sumosurv.nonparametric.intervals import turnbull
from sumosurv.outcome import check_outcome

__all__ = ["marginal_curve"]


def marginal_curve(y: Any) -> Tabulated:
    """Kaplan-Meier; Turnbull's estimate where events lie between two times.

    Where rows enter late, Nelson-Aalen: few are at risk early on, and Kaplan-Meier falls to zero for good at a time
    when all of them have the event. Causes are not told apart.
    """
    outcome = check_outcome(y).any_cause()
    if outcome.in_interval.any():
        return turnbull(outcome)
    return kaplan_meier(outcome) if outcome.entry is None else nelson_aalen(outcome)
