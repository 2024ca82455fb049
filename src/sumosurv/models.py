"""Fitted models as they come: an estimator, one inside a scikit-learn pipeline or search, or curves themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Cells


def predict_distribution(model: Any, X: Any, *, quiet: bool = False) -> SurvivalDistribution:
    """The distribution that a model predicts for each row of X; a distribution is returned as it is.

    The model has ``predict_distribution(X)``, or is a scikit-learn pipeline or search around one that has; X are rows
    before the first step. ``quiet`` does not warn of levels that were not seen in training.
    """
    if isinstance(model, SurvivalDistribution):
        return model
    estimator, rows = innermost(model, X)
    predict = estimator._predict if quiet and hasattr(estimator, "_predict") else estimator.predict_distribution
    distribution = predict(rows)
    if not isinstance(distribution, SurvivalDistribution):
        raise TypeError(f"predict_distribution gave {type(distribution).__name__}, not a SurvivalDistribution.")
    return distribution


def check_names(models: Mapping[Any, Any]) -> dict[str, Any]:
    """Return models by their names; raise a ValueError if a name is empty or occurs twice."""
    named = {str(name): model for name, model in models.items()}
    if len(named) < len(models) or "" in named:
        raise ValueError(f"Model names must be distinct; got {list(models)}.")
    return named


def innermost(model: Any, X: Any) -> tuple[Any, Any]:
    """The estimator that predicts, inside a search or at the end of a pipeline, and the rows as it reads them."""
    if isinstance(model, type):
        raise TypeError(f"{model.__name__} is a class; pass a fitted estimator, {model.__name__}().fit(X, y).")
    if X is None and hasattr(model, "get_params"):  # an estimator, which reads covariates
        raise ValueError(
            f"{type(model).__name__} requires X to predict; pass X, or pass model.predict_distribution(X) "
            "instead of the model."
        )
    if hasattr(model, "predict_distribution"):
        return model, X
    if hasattr(model, "best_estimator_"):
        return innermost(model.best_estimator_, X)
    if hasattr(model, "steps"):  # a Pipeline passes on only the methods that scikit-learn knows
        return innermost(model.steps[-1][1], model[:-1].transform(X) if len(model.steps) > 1 else X)
    raise TypeError(
        f"{type(model).__name__} has no predict_distribution(X). Pass a fitted estimator of this "
        "library, a scikit-learn pipeline or search that ends in one, or a SurvivalDistribution (for "
        "curves of other libraries, Tabulated(times, survival)). To pass several models, use a "
        'dictionary: {"name": model, ...}.'
    )


def final_estimator(model: Any) -> Any:
    """The estimator that predicts, inside a search or at the end of a pipeline."""
    if hasattr(model, "best_estimator_") and not hasattr(model, "predict_distribution"):
        return final_estimator(model.best_estimator_)
    return final_estimator(model.steps[-1][1]) if hasattr(model, "steps") else model


def cells_of(model: Any) -> Cells | None:
    """The cells of recorded times that a model was fitted with; None if it takes times as exact."""
    if hasattr(model, "best_estimator_"):
        return cells_of(model.best_estimator_)
    cells: Cells | None = getattr(final_estimator(model), "cells_", None)
    return cells


def preprocessor_of(model: Any) -> Any:
    """The preprocessor of a fitted estimator; for a mixture, that of its first component. None if it has none."""
    while not hasattr(model, "preprocessor_") and model._parts():
        model = model._parts()[0]  # all parts read the same columns
    return getattr(model, "preprocessor_", None)


def cause_names(n_causes: int, given: Sequence[str] | None, argument: str = "causes") -> list[str]:
    """The names of the causes: those given, or "cause 1", "cause 2", ..."""
    names = [f"cause {k + 1}" for k in range(n_causes)] if given is None else [str(name) for name in given]
    if len(names) != n_causes:
        raise ValueError(f"{argument} must name each of the {n_causes} competing causes; got {len(names)}.")
    return names
