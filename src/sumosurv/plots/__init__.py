"""Pictures. matplotlib is an optional extra (``pip install "sumosurv[plots]"``), imported when a picture is drawn."""

from sumosurv.plots.calibration import (
    plot_calibration,
    plot_d_calibration,
    plot_incidence_calibration,
    plot_km_calibration,
)
from sumosurv.plots.curves import plot_risk_groups, plot_survival, plot_training
from sumosurv.plots.incidences import plot_incidence_groups, plot_incidences

__all__ = [
    "plot_calibration",
    "plot_d_calibration",
    "plot_incidence_calibration",
    "plot_incidence_groups",
    "plot_incidences",
    "plot_km_calibration",
    "plot_risk_groups",
    "plot_survival",
    "plot_training",
]
