"""Survival distributions: one abstract class and its final kinds."""

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.delayed import Delayed
from sumosurv.distributions.monotone import Monotone
from sumosurv.distributions.ode import Ode
from sumosurv.distributions.parametric import LogNormal, Normal, Weibull
from sumosurv.distributions.tabulated import Tabulated
from sumosurv.distributions.wrappers import Conditional, Mixture, Rescaled

__all__ = [
    "Conditional",
    "Delayed",
    "LogNormal",
    "Mixture",
    "Monotone",
    "Normal",
    "Ode",
    "Rescaled",
    "SurvivalDistribution",
    "Tabulated",
    "Weibull",
]
