"""Survival methods as scikit-learn estimators. A method is entered here once; everything else reads `METHODS`."""

from inspect import isabstract

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

METHODS: dict[str, type[SurvivalEstimator]] = {
    name: found
    for name, found in sorted(globals().items())
    if isinstance(found, type) and issubclass(found, SurvivalEstimator) and not isabstract(found)
}
