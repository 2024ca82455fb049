"""Survival distributions: one abstract class and its final kinds."""

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.clocks import Delayed, Rescaled, Shifted
from sumosurv.distributions.monotone import Monotone
from sumosurv.distributions.ode import Ode
from sumosurv.distributions.parametric import Gompertz, LogLogistic, LogNormal, Normal, Weibull
from sumosurv.distributions.tabulated import Tabulated
from sumosurv.distributions.wrappers import Conditional, Mixture

__all__ = [
    "Conditional",
    "Delayed",
    "Gompertz",
    "LogLogistic",
    "LogNormal",
    "Mixture",
    "Monotone",
    "Normal",
    "Ode",
    "Rescaled",
    "Shifted",
    "SurvivalDistribution",
    "Tabulated",
    "Weibull",
]
