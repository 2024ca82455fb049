"""scikit-learn estimators."""

from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.sumonet import SumoNet

__all__ = ["SumoNet", "SurvivalEstimator"]
