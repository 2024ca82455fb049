"""Pictures. matplotlib is an optional extra (``pip install "sumosurv[plots]"``), imported when a picture is drawn."""

from sumosurv.plots.calibration import (
    plot_calibration,
    plot_d_calibration,
    plot_incidence_calibration,
    plot_km_calibration,
    plot_smooth_calibration,
)
from sumosurv.plots.contrasts import plot_contrast
from sumosurv.plots.curves import plot_risk_groups, plot_survival, plot_training
from sumosurv.plots.decision import plot_decision_curve, plot_hazard_ratios
from sumosurv.plots.effects import plot_effect, plot_two_way_effect
from sumosurv.plots.importance import plot_importance
from sumosurv.plots.incidences import plot_incidence_groups, plot_incidences
from sumosurv.plots.kaplan_meier import plot_kaplan_meier
from sumosurv.plots.scores import plot_auc, plot_brier
from sumosurv.plots.shapley import plot_survshap, plot_survshap_summary

__all__ = [
    "plot_auc",
    "plot_brier",
    "plot_calibration",
    "plot_contrast",
    "plot_d_calibration",
    "plot_decision_curve",
    "plot_effect",
    "plot_hazard_ratios",
    "plot_importance",
    "plot_incidence_calibration",
    "plot_incidence_groups",
    "plot_incidences",
    "plot_kaplan_meier",
    "plot_km_calibration",
    "plot_risk_groups",
    "plot_smooth_calibration",
    "plot_survival",
    "plot_survshap",
    "plot_survshap_summary",
    "plot_training",
    "plot_two_way_effect",
]
