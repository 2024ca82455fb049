"""Fitted models as they come: an estimator, or one inside a scikit-learn pipeline or search."""

from __future__ import annotations

from typing import Any

from sumosurv.distributions import SurvivalDistribution

__all__ = ["final_estimator", "predict_distribution"]


def predict_distribution(model: Any, X: Any) -> SurvivalDistribution:
    """The distribution that a model predicts for each row of X.

    Parameters
    ----------
    model : object with ``predict_distribution(X)``
        Or a scikit-learn pipeline or search around one.
    X : table of covariates
        As the model reads them: those of a pipeline before its first step.
    """
    if hasattr(model, "predict_distribution"):
        distribution = model.predict_distribution(X)
        if not isinstance(distribution, SurvivalDistribution):
            raise TypeError(f"predict_distribution gave {type(distribution).__name__}, not a SurvivalDistribution.")
        return distribution
    if hasattr(model, "best_estimator_"):
        return predict_distribution(model.best_estimator_, X)
    if hasattr(model, "steps"):  # a Pipeline passes on only the methods that scikit-learn knows
        before = model[:-1].transform(X) if len(model.steps) > 1 else X
        return predict_distribution(model.steps[-1][1], before)
    raise TypeError(
        f"{type(model).__name__} has no predict_distribution(X); give a fitted estimator of this library, or a "
        "scikit-learn pipeline or search that ends in one."
    )


def final_estimator(model: Any) -> Any:
    """The estimator that predicts, inside a search or at the end of a pipeline."""
    if hasattr(model, "best_estimator_") and not hasattr(model, "predict_distribution"):
        return final_estimator(model.best_estimator_)
    return final_estimator(model.steps[-1][1]) if hasattr(model, "steps") else model
