"""Survival regression with exact distributions: monotone neural networks and proper scores.

Names are imported when they are first used, so that ``import sumosurv`` and the command line's help
do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sumosurv._version import __version__

if TYPE_CHECKING:
    from sumosurv import datasets, distributions, plots, scores
    from sumosurv.distributions import SurvivalDistribution
    from sumosurv.estimators import (
        CoxCC,
        CoxPH,
        CoxTime,
        DeepHit,
        DeepSurv,
        KaplanMeier,
        LogNormalNet,
        RandomSurvivalForest,
        Soden,
        SumoNet,
        SurvivalMixture,
        SurvNode,
        WeibullNet,
    )
    from sumosurv.io import ModelFileError, load
    from sumosurv.nonparametric import breslow, kaplan_meier, nelson_aalen
    from sumosurv.outcome import Surv, check_outcome
    from sumosurv.search import NetworkSearch, SumoNetSearch
    from sumosurv.training import TrainingError

__all__ = [
    "CoxCC",
    "CoxPH",
    "CoxTime",
    "DeepHit",
    "DeepSurv",
    "KaplanMeier",
    "LogNormalNet",
    "ModelFileError",
    "NetworkSearch",
    "RandomSurvivalForest",
    "Soden",
    "SumoNet",
    "SumoNetSearch",
    "Surv",
    "SurvNode",
    "SurvivalDistribution",
    "SurvivalMixture",
    "TrainingError",
    "WeibullNet",
    "__version__",
    "breslow",
    "check_outcome",
    "datasets",
    "distributions",
    "kaplan_meier",
    "load",
    "nelson_aalen",
    "plots",
    "scores",
]

_HOMES = {
    "CoxCC": "estimators",
    "CoxPH": "estimators",
    "CoxTime": "estimators",
    "DeepHit": "estimators",
    "DeepSurv": "estimators",
    "KaplanMeier": "estimators",
    "LogNormalNet": "estimators",
    "ModelFileError": "io",
    "NetworkSearch": "search",
    "RandomSurvivalForest": "estimators",
    "Soden": "estimators",
    "SumoNet": "estimators",
    "SumoNetSearch": "search",
    "Surv": "outcome",
    "SurvNode": "estimators",
    "SurvivalDistribution": "distributions",
    "SurvivalMixture": "estimators",
    "TrainingError": "training",
    "WeibullNet": "estimators",
    "breslow": "nonparametric",
    "check_outcome": "outcome",
    "kaplan_meier": "nonparametric",
    "load": "io",
    "nelson_aalen": "nonparametric",
}
_ROOMS = ("datasets", "distributions", "plots", "scores")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"sumosurv.{name}")
    if name in _HOMES:
        value = getattr(import_module(f"sumosurv.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'sumosurv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
