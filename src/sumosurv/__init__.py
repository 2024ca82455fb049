"""Survival regression with exact distributions.

Names are loaded when they are first used, so that ``import sumosurv`` and the command line's help
do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sumosurv._version import __version__ as __version__

if TYPE_CHECKING:
    from sumosurv import calibrate as calibrate
    from sumosurv import datasets as datasets
    from sumosurv import distributions as distributions
    from sumosurv import explain as explain
    from sumosurv import plots as plots
    from sumosurv import report as report
    from sumosurv import scores as scores
    from sumosurv import serve as serve
    from sumosurv import spells as spells
    from sumosurv import streaming as streaming
    from sumosurv.distributions import SurvivalDistribution as SurvivalDistribution
    from sumosurv.estimators import *
    from sumosurv.estimators import compare_nested as compare_nested
    from sumosurv.estimators import load as load
    from sumosurv.formulas import FormulaTransformer as FormulaTransformer
    from sumosurv.model_files import ModelFileError as ModelFileError
    from sumosurv.nonparametric import aalen_johansen as aalen_johansen
    from sumosurv.nonparametric import breslow as breslow
    from sumosurv.nonparametric import confidence_band as confidence_band
    from sumosurv.nonparametric import kaplan_meier as kaplan_meier
    from sumosurv.nonparametric import logrank_test as logrank_test
    from sumosurv.nonparametric import nelson_aalen as nelson_aalen
    from sumosurv.nonparametric import restricted_mean_test as restricted_mean_test
    from sumosurv.nonparametric import turnbull as turnbull
    from sumosurv.outcome import Surv as Surv
    from sumosurv.outcome import check_outcome as check_outcome
    from sumosurv.pipeline import SurvivalPipeline as SurvivalPipeline
    from sumosurv.pipeline import make_survival_pipeline as make_survival_pipeline
    from sumosurv.search import NetworkSearch as NetworkSearch
    from sumosurv.search import SumoNetSearch as SumoNetSearch
    from sumosurv.training import TrainingError as TrainingError

_HOMES = {
    "FormulaTransformer": "formulas",
    "ModelFileError": "model_files",
    "NetworkSearch": "search",
    "SumoNetSearch": "search",
    "Surv": "outcome",
    "SurvivalDistribution": "distributions",
    "SurvivalPipeline": "pipeline",
    "TrainingError": "training",
    "aalen_johansen": "nonparametric",
    "breslow": "nonparametric",
    "check_outcome": "outcome",
    "compare_nested": "estimators",
    "confidence_band": "nonparametric",
    "kaplan_meier": "nonparametric",
    "load": "estimators",
    "logrank_test": "nonparametric",
    "make_survival_pipeline": "pipeline",
    "nelson_aalen": "nonparametric",
    "restricted_mean_test": "nonparametric",
    "turnbull": "nonparametric",
}
_PACKAGES = (
    "calibrate", "datasets", "distributions", "explain", "plots", "report", "scores", "serve", "spells", "streaming",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"sumosurv.{name}")
    if name == "__all__":
        return ["__version__", *_PACKAGES, *_HOMES, *import_module("sumosurv.estimators").METHODS]
    if name.startswith("_"):
        raise AttributeError(f"module 'sumosurv' has no attribute {name!r}")
    if name in _HOMES:
        value = getattr(import_module(f"sumosurv.{_HOMES[name]}"), name)
    else:  # a method
        methods = import_module("sumosurv.estimators").METHODS
        if name not in methods:
            raise AttributeError(f"module 'sumosurv' has no attribute {name!r}")
        value = methods[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
