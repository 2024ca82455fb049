"""Scores of survival distributions: functions of (distribution, y), and a table of which can be trusted."""

from sumosurv.scores._resampling import Bootstrap
from sumosurv.scores.auc import cumulative_dynamic_auc, integrated_auc
from sumosurv.scores.calibration import Calibration, DCalibration, calibration, d_calibration
from sumosurv.scores.censoring import CensoringCheck, censoring_given_x
from sumosurv.scores.concordance import concordance_td, harrell_c, uno_c
from sumosurv.scores.crps import survival_crps
from sumosurv.scores.decision import DecisionCurve, decision_curve
from sumosurv.scores.evaluation import audit, evaluate
from sumosurv.scores.evaluation_table import Evaluation
from sumosurv.scores.group_calibration import GroupCalibration, group_calibration
from sumosurv.scores.ipcw import (
    binomial_log_likelihood,
    brier,
    integrated_binomial_log_likelihood,
    integrated_brier,
    integrated_scaled_brier,
    scaled_brier,
)
from sumosurv.scores.likelihood import log_likelihood
from sumosurv.scores.model_selection import (
    CrossEvaluation,
    Validation,
    cross_evaluate,
    make_survival_scorer,
    rank_correlation,
    validate,
)
from sumosurv.scores.pseudo import calibration_intercept, calibration_slope, mean_absolute_error
from sumosurv.scores.score import DEFAULT_SCORES, HORIZON_SCORES, SCORES, Score, scores_table

__all__ = [
    "DEFAULT_SCORES",
    "HORIZON_SCORES",
    "SCORES",
    "Bootstrap",
    "Calibration",
    "CensoringCheck",
    "CrossEvaluation",
    "DCalibration",
    "DecisionCurve",
    "Evaluation",
    "GroupCalibration",
    "Score",
    "Validation",
    "audit",
    "binomial_log_likelihood",
    "brier",
    "calibration",
    "calibration_intercept",
    "calibration_slope",
    "censoring_given_x",
    "concordance_td",
    "cross_evaluate",
    "cumulative_dynamic_auc",
    "d_calibration",
    "decision_curve",
    "evaluate",
    "group_calibration",
    "harrell_c",
    "integrated_auc",
    "integrated_binomial_log_likelihood",
    "integrated_brier",
    "integrated_scaled_brier",
    "log_likelihood",
    "make_survival_scorer",
    "mean_absolute_error",
    "rank_correlation",
    "scaled_brier",
    "scores_table",
    "survival_crps",
    "uno_c",
    "validate",
]
