"""Fitted models as they come: an estimator, or one inside a scikit-learn pipeline or search."""

from __future__ import annotations

from typing import Any

from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators.members import Members

__all__ = ["final_estimator", "predict_distribution", "predict_members"]


def predict_distribution(model: Any, X: Any) -> SurvivalDistribution:
    """The distribution that a model predicts for each row of X.

    Parameters
    ----------
    model : object with ``predict_distribution(X)``
        Or a scikit-learn pipeline or search around one.
    X : table of covariates
        As the model reads them: those of a pipeline before its first step.
    """
    estimator, rows = _innermost(model, X)
    distribution = estimator.predict_distribution(rows)
    if not isinstance(distribution, SurvivalDistribution):
        raise TypeError(f"predict_distribution gave {type(distribution).__name__}, not a SurvivalDistribution.")
    return distribution


def predict_members(model: Any, X: Any) -> Members:
    """What each member of a model predicts for each row of X; one that knows no members is its only one."""
    estimator, rows = _innermost(model, X)
    if hasattr(estimator, "predict_members"):
        members: Members = estimator.predict_members(rows)
        return members
    return Members.equal([predict_distribution(estimator, rows)])


def _innermost(model: Any, X: Any) -> tuple[Any, Any]:
    """The estimator that predicts, and the rows as it reads them."""
    if isinstance(model, type):
        raise TypeError(f"{model.__name__} is a class; pass a fitted estimator, {model.__name__}().fit(X, y).")
    if hasattr(model, "predict_distribution"):
        return model, X
    if hasattr(model, "best_estimator_"):
        return _innermost(model.best_estimator_, X)
    if hasattr(model, "steps"):  # a Pipeline passes on only the methods that scikit-learn knows
        return _innermost(model.steps[-1][1], model[:-1].transform(X) if len(model.steps) > 1 else X)
    raise TypeError(
        f"{type(model).__name__} has no predict_distribution(X); give a fitted estimator of this library, or a "
        "scikit-learn pipeline or search that ends in one."
    )


def final_estimator(model: Any) -> Any:
    """The estimator that predicts, inside a search or at the end of a pipeline."""
    if hasattr(model, "best_estimator_") and not hasattr(model, "predict_distribution"):
        return final_estimator(model.best_estimator_)
    return final_estimator(model.steps[-1][1]) if hasattr(model, "steps") else model
