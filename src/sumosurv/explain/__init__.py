"""How predictions depend on the columns: effects, importance, Shapley values, contrasts."""

from sumosurv.explain._quantity import Quantity
from sumosurv.explain.contrasts import Contrast, contrast, standardised_contrast
from sumosurv.explain.effects import Effect, accumulated_local_effects, partial_dependence
from sumosurv.explain.importance import Importance, permutation_importance
from sumosurv.explain.regressor import QuantityRegressor
from sumosurv.explain.shapley import SurvShap, survshap

__all__ = [
    "Contrast",
    "Effect",
    "Importance",
    "Quantity",
    "QuantityRegressor",
    "SurvShap",
    "accumulated_local_effects",
    "contrast",
    "partial_dependence",
    "permutation_importance",
    "standardised_contrast",
    "survshap",
]
