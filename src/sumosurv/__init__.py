"""Survival regression with exact distributions: monotone neural networks and proper scores."""

from sumosurv import datasets, scores
from sumosurv._version import __version__
from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators import SumoNet
from sumosurv.io import ModelFileError, load
from sumosurv.nonparametric import breslow, kaplan_meier, nelson_aalen
from sumosurv.outcome import Surv, check_outcome
from sumosurv.training import TrainingError

__all__ = [
    "ModelFileError",
    "SumoNet",
    "Surv",
    "SurvivalDistribution",
    "TrainingError",
    "__version__",
    "breslow",
    "check_outcome",
    "datasets",
    "kaplan_meier",
    "load",
    "nelson_aalen",
    "scores",
]
