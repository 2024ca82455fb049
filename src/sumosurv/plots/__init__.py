"""Plots. matplotlib is imported when a plot is drawn."""

from sumosurv.plots.curves import (
    plot_incidences,
    plot_kaplan_meier,
    plot_risk_groups,
    plot_survival,
    plot_training,
)
from sumosurv.plots.explanations import plot_contrast, plot_effect, plot_importance, plot_survshap
from sumosurv.plots.performance import (
    plot_calibration,
    plot_decision_curve,
    plot_hazard_ratios,
    plot_penalty_path,
    plot_score,
)

__all__ = [
    "plot_calibration",
    "plot_contrast",
    "plot_decision_curve",
    "plot_effect",
    "plot_hazard_ratios",
    "plot_importance",
    "plot_incidences",
    "plot_kaplan_meier",
    "plot_penalty_path",
    "plot_risk_groups",
    "plot_score",
    "plot_survival",
    "plot_survshap",
    "plot_training",
]
