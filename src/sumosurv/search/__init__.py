"""Hyperparameter search: trials train as populations and are chosen on validation rows alone."""

from sumosurv.search.estimator import NetworkSearch, SumoNetSearch, fit_folds
from sumosurv.search.space import paper_space, recipe_space

__all__ = ["NetworkSearch", "SumoNetSearch", "fit_folds", "paper_space", "recipe_space"]
