"""What a fitted model makes of its columns: effects, importance, Shapley values, contrasts."""

from sumosurv.explain.ale import accumulated_local_effects
from sumosurv.explain.effects import Effect, partial_dependence
from sumosurv.explain.shapley import SurvShap, survshap

__all__ = ["Effect", "SurvShap", "accumulated_local_effects", "partial_dependence", "survshap"]
