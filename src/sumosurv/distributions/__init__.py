"""Survival distributions: one abstract class with K causes, and its final subclasses."""

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.causes import CauseTime, cause_specific
from sumosurv.distributions.extrapolation import Continued
from sumosurv.distributions.joined import CovariatePath, Joined
from sumosurv.distributions.mixture import CauseMixture, Mixture
from sumosurv.distributions.monotone import Monotone
from sumosurv.distributions.ode import Ode
from sumosurv.distributions.parametric import (
    GeneralisedGamma,
    Gompertz,
    LogLogistic,
    LogNormal,
    Normal,
    ProportionalHazards,
    RoystonParmar,
    Weibull,
)
from sumosurv.distributions.tabulated import Tabulated
from sumosurv.distributions.time_scale import Conditional, Delayed, Remaining, Rescaled
from sumosurv.distributions.wrapper import Recalibrated

__all__ = [
    "CauseMixture",
    "CauseTime",
    "Conditional",
    "Continued",
    "CovariatePath",
    "Delayed",
    "GeneralisedGamma",
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
    "RoystonParmar",
    "SurvivalDistribution",
    "Tabulated",
    "Weibull",
    "cause_specific",
]
