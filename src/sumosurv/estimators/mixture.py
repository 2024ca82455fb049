"""The mixture of several estimators, of the same or different types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import Mixture, SurvivalDistribution
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.fitting.settings import Allowed, Constraints
from sumosurv.fitting.spread import Members

__all__ = ["SurvivalMixture"]


class SurvivalMixture(SurvivalEstimator):
    r"""Mixture of several estimators, S(t|x) = Σ wᵢ Sᵢ(t|x); its likelihood is exact if theirs are.

    Parameters
    ----------
    estimators : sequence of estimators
        Estimators of any type; ``fit`` fits a clone of each to the same rows.
    weights : sequence of float, optional
        Positive; they are divided by their sum. Equal by default.

    Attributes
    ----------
    estimators_ : list of fitted estimators
        All on one device: if some compute on the CPU, networks on a GPU are moved to the CPU.
    components_ : DataFrame
        As in `SumoNet`: the components of all estimators with their weights in the whole mixture. The column
        ``estimator`` is the index of the estimator in ``estimators_``.

    Examples
    --------
    >>> from sumosurv import SurvivalMixture, WeibullNet, KaplanMeier, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> both = SurvivalMixture([WeibullNet(n_members=2, max_epochs=5, random_state=0), KaplanMeier()])
    >>> both.fit(data.X, data.y).predict_survival_function(data.X[:2], times=[0.0, 1.0]).shape
    (2, 2)
    """

    _supported_outcomes = frozenset({"entry", "intervals", "causes", "weights"})  # if all estimators do

    _parameter_constraints: ClassVar[Constraints] = {
        "estimators": Allowed(
            "a sequence of one or more survival estimators of this library",
            lambda value: (
                isinstance(value, Sequence)
                and len(value) > 0
                and all(isinstance(estimator, SurvivalEstimator) for estimator in value)
            ),
        )
    }

    def __init__(self, estimators: Sequence[SurvivalEstimator] = (), weights: Sequence[float] | None = None) -> None:
        self.estimators = estimators
        self.weights = weights

    @classmethod
    def of(cls, fitted: Sequence[SurvivalEstimator], weights: Sequence[float] | None = None) -> SurvivalMixture:
        """Return the mixture of fitted estimators, which must have been fitted to the same columns."""
        made = cls(list(fitted), weights)
        made._check_settings()
        for estimator in fitted:
            check_is_fitted(estimator)
        columns = {estimator.n_features_in_ for estimator in fitted}
        if len(columns) > 1:
            raise ValueError(f"The estimators were fitted on different numbers of columns: {sorted(columns)}.")
        made._restore_parts(fitted)
        made.__dict__.update(fitted[0]._known())
        made.last_time_ = min(estimator.last_time_ for estimator in fitted)
        return made

    def _fit(self, X: Any, y: Any) -> None:
        X, outcome = self._start(X, y)
        self._restore_parts([estimator._fitted_part(X, outcome) for estimator in self.estimators])

    def _distribution(self, X: Any) -> SurvivalDistribution:
        parts = [estimator._distribution(X) for estimator in self.estimators_]
        return Mixture.of(parts, self._shares())

    def _members(self, X: Any) -> Members:
        return Members.join([estimator._members(X) for estimator in self.estimators_], self._shares())

    def _shares(self) -> npt.NDArray[np.float64]:
        shares = np.ones(len(self.estimators_)) if self.weights is None else np.asarray(self.weights, dtype=np.float64)
        return np.asarray(shares / shares.sum())

    def _mixed(self) -> list[tuple[SurvivalEstimator, float]]:
        pairs = zip(self.estimators_, self._shares())
        return [(inner, share * weight) for part, share in pairs for inner, weight in part._mixed()]

    def _component_table(self) -> pd.DataFrame:
        return self.components_

    def _parts(self) -> list[SurvivalEstimator]:
        return self.estimators_

    @classmethod
    def _settings_with(cls, parts: Sequence[SurvivalEstimator], default: bool) -> dict[str, Any]:
        return {"estimators": list(parts)}

    def _restore_parts(self, parts: Sequence[SurvivalEstimator]) -> None:
        one_device = len({part._device for part in parts}) == 1
        self.estimators_ = list(parts) if one_device else [part._on_cpu() for part in parts]
        found = {part.cells_ for part in parts}
        self.cells_ = found.pop() if len(found) == 1 else None
        shares = self._shares()
        tables = [
            part._component_table().assign(weight=lambda own, share=share: share * own["weight"], estimator=place)
            for place, (part, share) in enumerate(zip(self.estimators_, shares))
        ]
        self.components_ = pd.concat(tables, ignore_index=True)

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.weights is not None:
            shares = np.asarray(self.weights, dtype=np.float64)
            if shares.shape != (len(self.estimators),) or not (np.isfinite(shares) & (shares > 0)).all():
                raise ValueError(f"Give {len(self.estimators)} positive weights; got {self.weights!r}.")
