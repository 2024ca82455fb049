"""Survival methods as scikit-learn estimators. A method is entered here once; everything else reads `METHODS`."""

from inspect import isabstract
from pathlib import Path
from typing import Any

from sumosurv.estimators.base import SurvivalEstimator as SurvivalEstimator
from sumosurv.estimators.cause_specific import *
from sumosurv.estimators.conformal import *
from sumosurv.estimators.cox_networks import *
from sumosurv.estimators.coxph import *
from sumosurv.estimators.coxph_cv import *
from sumosurv.estimators.deephit import *
from sumosurv.estimators.fine_gray import *
from sumosurv.estimators.forest import *
from sumosurv.estimators.marginal import *
from sumosurv.estimators.mixture import *
from sumosurv.estimators.ode import *
from sumosurv.estimators.parametric import *
from sumosurv.estimators.parametric_regression import *
from sumosurv.estimators.summary import ModelSummary as ModelSummary
from sumosurv.estimators.summary import compare_nested as compare_nested
from sumosurv.estimators.sumonet import *
from sumosurv.model_files import read_model
from sumosurv.pipeline import SurvivalPipeline

METHODS: dict[str, type[SurvivalEstimator]] = {
    name: found
    for name, found in sorted(globals().items())
    if isinstance(found, type) and issubclass(found, SurvivalEstimator) and not isabstract(found)
}


def load(path: str | Path, *, encoder: Any = None) -> Any:
    """Read a model file written by ``save``; its predictions equal those of the saved model.

    No code in a file is executed, and every value is checked before it is used. Loading needs a few times as much
    memory as the size of the file. The digest in a file is a checksum, not a signature: it does not show who made a
    model, or whether its predictions are sound.

    Parameters
    ----------
    path : path
    encoder : torch.nn.Module or callable, optional
        The module (or function that makes it) of a model that was fitted with an ``encoder``.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    ModelFileError
        The file is truncated, corrupted, not a model file, or written by a newer version.
    """
    return read_model(Path(path), {**METHODS, SurvivalPipeline.__name__: SurvivalPipeline}, encoder=encoder)
