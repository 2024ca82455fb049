"""What scores ask of a model: its distribution, its cells of time, and rows of a table for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Cells

__all__ = ["cells_of", "check_names", "predict", "take_rows"]


def check_names(models: Mapping[Any, Any]) -> dict[str, Any]:
    """Several models by their names, none of which is empty or stands for two of them."""
    named = {str(name): model for name, model in models.items()}
    if len(named) < len(models) or "" in named:
        raise ValueError(f"Each model needs a name of its own; got {list(models)}.")
    return named


def predict(model: Any, X: Any) -> SurvivalDistribution:
    """The distribution that a model predicts, also inside a search or a pipeline of scikit-learn."""
    if isinstance(model, SurvivalDistribution):
        return model
    if isinstance(model, type):
        raise TypeError(f"{model.__name__} is a class; pass a fitted estimator, {model.__name__}().fit(X, y).")
    if X is None and (hasattr(model, "predict_distribution") or hasattr(model, "steps")):
        raise ValueError(
            f"There are no covariates to predict from: pass X beside {type(model).__name__}, or in its place the "
            "distribution that it predicts, model.predict_distribution(X)."
        )
    if hasattr(model, "predict_distribution"):
        distribution = model.predict_distribution(X)
    elif hasattr(model, "best_estimator_"):
        return predict(model.best_estimator_, X)
    elif hasattr(model, "steps"):  # a Pipeline passes on only the methods that scikit-learn knows
        return predict(model.steps[-1][1], model[:-1].transform(X) if len(model.steps) > 1 else X)
    else:
        raise TypeError(
            f"{type(model).__name__} has no predict_distribution(X) and is no SurvivalDistribution; "
            'for other libraries\' curves pass Tabulated(times, survival), for several models {"name": model, ...}.'
        )
    if not isinstance(distribution, SurvivalDistribution):
        raise TypeError(f"predict_distribution gave {type(distribution).__name__}, not a SurvivalDistribution.")
    return distribution


def cells_of(model: Any) -> Cells | None:
    """The cells of time that a model was fitted with, also inside a search or a pipeline."""
    if hasattr(model, "best_estimator_"):
        return cells_of(model.best_estimator_)
    if hasattr(model, "steps"):
        return cells_of(model.steps[-1][1])
    return getattr(model, "cells_", None)


def take_rows(X: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Some rows of a table: a frame of pandas or of another library, an array, or a list of rows."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "columns") else np.asarray(X)[rows]
