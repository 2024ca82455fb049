"""Scores of survival distributions: functions of (distribution, y), and a table of which can be trusted."""

from sumosurv.scores._requests import DEFAULT_SCORES, HORIZON_SCORES, usual_scores
from sumosurv.scores._resampling import Bootstrap
from sumosurv.scores.antolini import concordance_td
from sumosurv.scores.auc import cumulative_dynamic_auc, integrated_auc
from sumosurv.scores.calibration import Calibration, DCalibration, calibration, d_calibration
from sumosurv.scores.censoring import CensoringCheck, censoring_given_x, mean_and_error
from sumosurv.scores.comparison import rank_correlation
from sumosurv.scores.concordance import harrell_c, uno_c
from sumosurv.scores.cross_evaluation import CrossEvaluation, cross_evaluate
from sumosurv.scores.crps import survival_crps
from sumosurv.scores.decision import DecisionCurve, decision_curve
from sumosurv.scores.evaluation import evaluate
from sumosurv.scores.evaluation_table import Evaluation
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
from sumosurv.scores.scorers import make_survival_scorer
from sumosurv.scores.table import SCORES, scores_table

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
    "IncidenceCalibration",
    "KMCalibration",
    "Score",
    "binomial_log_likelihood",
    "brier",
    "calibration",
    "censoring_given_x",
    "concordance_td",
    "cross_evaluate",
    "cumulative_dynamic_auc",
    "d_calibration",
    "decision_curve",
    "evaluate",
    "harrell_c",
    "incidence_calibration",
    "integrated_auc",
    "integrated_binomial_log_likelihood",
    "integrated_brier",
    "km_calibration",
    "log_likelihood",
    "make_survival_scorer",
    "mean_and_error",
    "rank_correlation",
    "scores_table",
    "survival_crps",
    "uno_c",
    "usual_scores",
]
