"""Survival distributions: one abstract class and its final kinds."""

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.cause_mixture import CauseMixture
from sumosurv.distributions.cause_specific import CauseSpecificRisks, cause_specific
from sumosurv.distributions.clocks import Delayed, Rescaled, Shifted
from sumosurv.distributions.competing import CauseTime, CompetingRisksDistribution
from sumosurv.distributions.continued import Continued
from sumosurv.distributions.joined import Joined
from sumosurv.distributions.monotone import Monotone
from sumosurv.distributions.ode import Ode
from sumosurv.distributions.parametric import Gompertz, LogLogistic, LogNormal, Normal, ProportionalHazards, Weibull
from sumosurv.distributions.path import Path, PathRisks, path
from sumosurv.distributions.recalibrated import Recalibrated, recalibrated
from sumosurv.distributions.risks import (
    ConditionalRisks,
    ContinuedRisks,
    DelayedRisks,
    MixtureRisks,
    RemainingRisks,
    RescaledRisks,
    continued,
    delayed,
    mixture,
    rescaled,
)
from sumosurv.distributions.tabulated import Tabulated
from sumosurv.distributions.tabulated_risks import TabulatedRisks
from sumosurv.distributions.wrappers import Conditional, Mixture, Remaining

__all__ = [
    "CauseMixture",
    "CauseSpecificRisks",
    "CauseTime",
    "CompetingRisksDistribution",
    "Conditional",
    "ConditionalRisks",
    "Continued",
    "ContinuedRisks",
    "Delayed",
    "DelayedRisks",
    "Gompertz",
    "Joined",
    "LogLogistic",
    "LogNormal",
    "Mixture",
    "MixtureRisks",
    "Monotone",
    "Normal",
    "Ode",
    "Path",
    "PathRisks",
    "ProportionalHazards",
    "Recalibrated",
    "Remaining",
    "RemainingRisks",
    "Rescaled",
    "RescaledRisks",
    "Shifted",
    "SurvivalDistribution",
    "Tabulated",
    "TabulatedRisks",
    "Weibull",
    "cause_specific",
    "continued",
    "delayed",
    "mixture",
    "path",
    "recalibrated",
    "rescaled",
]
