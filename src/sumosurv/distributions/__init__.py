"""Survival distributions: one abstract class with K causes, and its final subclasses."""

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.causes import CauseTime, cause_specific
from sumosurv.distributions.continued import Continued
from sumosurv.distributions.covariate_path import CovariatePath
from sumosurv.distributions.joined import Joined
from sumosurv.distributions.mixture import CauseMixture, Mixture
from sumosurv.distributions.monotone import Monotone
from sumosurv.distributions.ode import Ode
from sumosurv.distributions.parametric import Gompertz, LogLogistic, LogNormal, Normal, ProportionalHazards, Weibull
from sumosurv.distributions.recalibrated import Recalibrated
from sumosurv.distributions.tabulated import Tabulated
from sumosurv.distributions.time_scale import Conditional, Delayed, Remaining, Rescaled

__all__ = [
    "CauseMixture",
    "CauseTime",
    "Conditional",
    "Continued",
    "CovariatePath",
    "Delayed",
    "Gompertz",
    "Joined",
    "LogLogistic",
    "LogNormal",
    "Mixture",
    "Monotone",
    "Normal",
    "Ode",
    "ProportionalHazards",
    "Recalibrated",
    "Remaining",
    "Rescaled",
    "SurvivalDistribution",
    "Tabulated",
    "Weibull",
    "cause_specific",
]
