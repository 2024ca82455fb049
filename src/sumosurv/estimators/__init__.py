"""scikit-learn estimators."""

from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.cox_networks import CoxCC, CoxTime, DeepSurv
from sumosurv.estimators.coxph import CoxPH
from sumosurv.estimators.deephit import DeepHit
from sumosurv.estimators.forest import RandomSurvivalForest
from sumosurv.estimators.kaplan_meier import KaplanMeier
from sumosurv.estimators.mixture import SurvivalMixture
from sumosurv.estimators.parametric import LogNormalNet, WeibullNet
from sumosurv.estimators.soden import Soden
from sumosurv.estimators.sumonet import SumoNet
from sumosurv.estimators.survnode import SurvNode

__all__ = [
    "CoxCC",
    "CoxPH",
    "CoxTime",
    "DeepHit",
    "DeepSurv",
    "KaplanMeier",
    "LogNormalNet",
    "RandomSurvivalForest",
    "Soden",
    "SumoNet",
    "SurvNode",
    "SurvivalEstimator",
    "SurvivalMixture",
    "WeibullNet",
]
