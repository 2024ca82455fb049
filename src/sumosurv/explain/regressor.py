"""A survival model as a regressor of one number, for scikit-learn's inspection tools."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sumosurv.explain._quantity import QuantityName, explanation, quantity_predictor
from sumosurv.explain._rows import Rows
from sumosurv.models import final_estimator


class QuantityRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """One number of a model's predictions as a regressor: a restricted mean, a median, the survival at a time.

    scikit-learn's ``partial_dependence``, ``PartialDependenceDisplay`` and ``DecisionBoundaryDisplay`` accept only
    regressors and classifiers, and survival estimators are neither. For whole curves use
    `sumosurv.explain.partial_dependence`.

    Parameters
    ----------
    model : estimator, or pipeline or search around one
        A fitted one is used as it is; ``fit`` fits a clone.
    quantity : str, optional
        As in `partial_dependence`.
    times : float, optional
        Time of a curve (required), or horizon of a restricted mean (the last training time by default).
    cause : int, optional
        Competing cause, counted from one.

    Examples
    --------
    >>> from sklearn.inspection import partial_dependence
    >>> from sumosurv import CoxPH, datasets
    >>> from sumosurv.explain import QuantityRegressor
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> number = QuantityRegressor(CoxPH().fit(data.X, data.y), "restricted_mean", times=1.0)
    >>> partial_dependence(number, data.X, [0], grid_resolution=4)["average"].shape
    (1, 4)
    """

    def __init__(
        self,
        model: Any = None,
        quantity: QuantityName | None = None,
        times: float | None = None,
        cause: int | None = None,
    ) -> None:
        self.model = model
        self.quantity = quantity
        self.times = times
        self.cause = cause

    def fit(self, X: Any, y: Any) -> Self:
        """Fit a clone of the model."""
        self.model_ = clone(self.model).fit(X, y)
        return self

    @explanation
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the quantity of each row."""
        predictor = quantity_predictor(self._fitted(), Rows(X), self.quantity, self.times, self.cause)
        count = len(predictor.quantity.columns)
        if count != 1:
            raise ValueError(
                f"A regressor predicts one number, but the quantity has {count} times; give one, for example times=5.0."
            )
        return predictor.values(Rows(X).table)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the score of the model, the mean log-likelihood."""
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(self._fitted().score(X, y, **given))

    def _fitted(self) -> Any:
        found = getattr(self, "model_", self.model)
        check_is_fitted(final_estimator(found))
        return found

    def __sklearn_is_fitted__(self) -> bool:
        try:
            self._fitted()
        except NotFittedError:
            return False
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags
