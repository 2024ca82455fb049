"""Scores of survival distributions: functions of (distribution, y), and a table of which can be trusted."""

from sumosurv.scores.auc import cumulative_dynamic_auc
from sumosurv.scores.calibration import Calibration, DCalibration, calibration, d_calibration
from sumosurv.scores.comparison import rank_correlation
from sumosurv.scores.concordance import concordance_td, harrell_c, uno_c
from sumosurv.scores.crps import survival_crps
from sumosurv.scores.decision import DecisionCurve, decision_curve
from sumosurv.scores.evaluation import evaluate, make_survival_scorer
from sumosurv.scores.group_calibration import KMCalibration, km_calibration
from sumosurv.scores.incidence_calibration import IncidenceCalibration, incidence_calibration
from sumosurv.scores.ipcw import (
    binomial_log_likelihood,
    brier,
    integrated_binomial_log_likelihood,
    integrated_brier,
)
from sumosurv.scores.likelihood import log_likelihood
from sumosurv.scores.score import Score
from sumosurv.scores.table import SCORES, scores_table

__all__ = [
    "SCORES",
    "Calibration",
    "DCalibration",
    "DecisionCurve",
    "IncidenceCalibration",
    "KMCalibration",
    "Score",
    "binomial_log_likelihood",
    "brier",
    "calibration",
    "concordance_td",
    "cumulative_dynamic_auc",
    "d_calibration",
    "decision_curve",
    "evaluate",
    "harrell_c",
    "incidence_calibration",
    "integrated_binomial_log_likelihood",
    "integrated_brier",
    "km_calibration",
    "log_likelihood",
    "make_survival_scorer",
    "rank_correlation",
    "scores_table",
    "survival_crps",
    "uno_c",
]
