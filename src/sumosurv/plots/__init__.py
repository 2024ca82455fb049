"""Pictures. matplotlib is an optional extra (``pip install "sumosurv[plots]"``), imported when a picture is drawn."""

from sumosurv.plots.calibration import (
    plot_calibration,
    plot_d_calibration,
    plot_incidence_calibration,
    plot_km_calibration,
    plot_smooth_calibration,
)
from sumosurv.plots.curves import plot_risk_groups, plot_survival, plot_training
from sumosurv.plots.decision import plot_decision_curve, plot_hazard_ratios
from sumosurv.plots.incidences import plot_incidence_groups, plot_incidences
from sumosurv.plots.kaplan_meier import plot_kaplan_meier

__all__ = [
    "plot_calibration",
    "plot_d_calibration",
    "plot_decision_curve",
    "plot_hazard_ratios",
    "plot_incidence_calibration",
    "plot_incidence_groups",
    "plot_incidences",
    "plot_kaplan_meier",
    "plot_km_calibration",
    "plot_risk_groups",
    "plot_smooth_calibration",
    "plot_survival",
    "plot_training",
]
