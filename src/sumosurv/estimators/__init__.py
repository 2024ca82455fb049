"""scikit-learn estimators."""

from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.parametric import LogNormalNet, WeibullNet
from sumosurv.estimators.sumonet import SumoNet

__all__ = [
    "LogNormalNet",
    "SumoNet",
    "SurvivalEstimator",
    "WeibullNet",
]
