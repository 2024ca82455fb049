"""Survival regression with exact distributions."""

from sumosurv._version import __version__
from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import kaplan_meier, nelson_aalen
from sumosurv.outcome import Surv, check_outcome

__all__ = ["Surv", "SurvivalDistribution", "__version__", "check_outcome", "kaplan_meier", "nelson_aalen"]
