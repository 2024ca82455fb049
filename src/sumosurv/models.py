"""Fitted models as they come: an estimator, one inside a scikit-learn pipeline or search, or curves themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Cells

__all__ = ["cells_of", "final_estimator", "innermost", "predict_distribution", "take_rows"]


def predict_distribution(model: Any, X: Any) -> SurvivalDistribution:
    """The distribution that a model predicts for each row of X.

    Parameters
    ----------
    model : object with ``predict_distribution(X)``
        Or a scikit-learn pipeline or search around one; a distribution is returned as it is.
    X : table of covariates
        As the model reads them: those of a pipeline before its first step.
    """
    if isinstance(model, SurvivalDistribution):
        return model
    estimator, rows = innermost(model, X)
    distribution = estimator.predict_distribution(rows)
    if not isinstance(distribution, SurvivalDistribution):
        raise TypeError(f"predict_distribution gave {type(distribution).__name__}, not a SurvivalDistribution.")
    return distribution


def innermost(model: Any, X: Any) -> tuple[Any, Any]:
    """The estimator that predicts, inside a search or at the end of a pipeline, and the rows as it reads them."""
    if hasattr(model, "predict_distribution"):
        return model, X
    if hasattr(model, "best_estimator_"):
        return innermost(model.best_estimator_, X)
    if hasattr(model, "steps"):  # a Pipeline passes on only the methods that scikit-learn knows
        return innermost(model.steps[-1][1], model[:-1].transform(X) if len(model.steps) > 1 else X)
    raise TypeError(
        f"{type(model).__name__} has no predict_distribution(X); give a fitted estimator of this library, a "
        "scikit-learn pipeline or search that ends in one, or a SurvivalDistribution: of other libraries' curves, "
        "Tabulated(times, survival)."
    )


def final_estimator(model: Any) -> Any:
    """The estimator that predicts, inside a search or at the end of a pipeline."""
    if hasattr(model, "best_estimator_") and not hasattr(model, "predict_distribution"):
        return final_estimator(model.best_estimator_)
    return final_estimator(model.steps[-1][1]) if hasattr(model, "steps") else model


def cells_of(model: Any) -> Cells | None:
    """The cells of time that a model was fitted with, where it was with any."""
    if hasattr(model, "best_estimator_"):
        return cells_of(model.best_estimator_)
    cells: Cells | None = getattr(final_estimator(model), "cells_", None)
    return cells


def take_rows(X: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Some rows of a table: a frame of pandas or of another library, an array, or a list of rows."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "columns") else np.asarray(X)[rows]
