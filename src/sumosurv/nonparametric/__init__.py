"""Curves that assume nothing about their shape: estimates from an outcome alone, and their confidence bands."""

from sumosurv.nonparametric.bands import confidence_band, incidence_variance
from sumosurv.nonparametric.comparison import (
    LogrankTest,
    RestrictedMeanTest,
    logrank_test,
    restricted_mean_test,
)
from sumosurv.nonparametric.curves import (
    aalen_johansen,
    at_risk_at,
    breslow,
    coarse_aalen_johansen,
    coarse_kaplan_meier,
    kaplan_meier,
    marginal_curve,
    nelson_aalen,
    refuse_intervals,
    risk_table,
    turnbull,
)
from sumosurv.nonparametric.intervals import TurnbullIntervals, turnbull_intervals
from sumosurv.nonparametric.subjects import draw_subjects, is_robust, is_whole, resampler, sum_by_subject

__all__ = [
    "LogrankTest",
    "RestrictedMeanTest",
    "TurnbullIntervals",
    "aalen_johansen",
    "at_risk_at",
    "breslow",
    "coarse_aalen_johansen",
    "coarse_kaplan_meier",
    "confidence_band",
    "draw_subjects",
    "incidence_variance",
    "is_robust",
    "is_whole",
    "kaplan_meier",
    "logrank_test",
    "marginal_curve",
    "nelson_aalen",
    "refuse_intervals",
    "resampler",
    "restricted_mean_test",
    "risk_table",
    "sum_by_subject",
    "turnbull",
    "turnbull_intervals",
]
