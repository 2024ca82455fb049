"""What a fitted model makes of its columns: effects, importance, Shapley values, contrasts."""

from sumosurv.explain.shapley import SurvShap, survshap

__all__ = ["SurvShap", "survshap"]
