"""Kaplan-Meier as an estimator: the floor that every model with covariates must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.nonparametric import kaplan_meier, turnbull
from sumosurv.stored import tensor_of

__all__ = ["KaplanMeier"]


@dataclass(kw_only=True, eq=False, repr=False)
class KaplanMeier(SurvivalEstimator):
    r"""The product-limit estimate, the same for all subjects: S(t|x) = Π_{tᵢ <= t} (1 - dᵢ / nᵢ), whatever x.

    Rows that enter late are at risk from their entry on. Where events lie between two times it is Turnbull's estimate.

    Parameters
    ----------
    half_width : int
        k of the interpolated density; see `Tabulated`.

    Attributes
    ----------
    curve_ : Tabulated
        The estimate.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sumosurv import KaplanMeier, Surv
    >>> y = Surv.from_arrays(event=[1, 0, 1], time=[1.0, 2.0, 3.0])
    >>> KaplanMeier().fit([[0.0], [1.0], [2.0]], y).predict_survival_function([[5.0]], [0.5, 1.0, 2.5]).round(3)
    array([[1.   , 0.667, 0.667]])
    """

    _learns_from: ClassVar[frozenset[str]] = frozenset({"entry", "intervals", "weights"})

    half_width: int = 2

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid setting."""
        if not isinstance(self.half_width, (int, np.integer)) or self.half_width < 1:
            raise ValueError(f"half_width is a whole number of at least 1; got {self.half_width!r}.")

    def _fit(self, X: Any, y: Any) -> None:
        _, outcome = self._start(X, y)
        estimate = turnbull if outcome.in_interval.any() else kaplan_meier
        self.curve_ = estimate(outcome, half_width=self.half_width)

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self.curve_.repeat(len(X))

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps of the fit."""
        fitted, tensors = super()._state()
        return fitted, tensors | {"times": self.curve_.times, "survival": self.curve_.table[0]}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`."""
        super()._restore(fitted, tensors)
        times = tensor_of(tensors, "times", low=0.0, increasing=True)
        survival = tensor_of(tensors, "survival", len(times), low=0.0, high=1.0)
        self.curve_ = Tabulated(times, survival, half_width=self.half_width)
