"""Curves that assume nothing about their shape: estimates from an outcome alone, and their confidence bands."""

from sumosurv.nonparametric.bands import confidence_band
from sumosurv.nonparametric.causes import CumulativeIncidence, aalen_johansen
from sumosurv.nonparametric.coarse import coarse_aalen_johansen, coarse_kaplan_meier
from sumosurv.nonparametric.counts import refuse_intervals, risk_table
from sumosurv.nonparametric.curves import breslow, kaplan_meier, nelson_aalen
from sumosurv.nonparametric.intervals import TurnbullIntervals, turnbull, turnbull_intervals
from sumosurv.nonparametric.marginal import marginal_curve

__all__ = [
    "CumulativeIncidence",
    "TurnbullIntervals",
    "aalen_johansen",
    "breslow",
    "coarse_aalen_johansen",
    "coarse_kaplan_meier",
    "confidence_band",
    "kaplan_meier",
    "marginal_curve",
    "nelson_aalen",
    "refuse_intervals",
    "risk_table",
    "turnbull",
    "turnbull_intervals",
]
