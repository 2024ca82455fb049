"""The mixture of several estimators, of one kind or of many."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import Mixture, SurvivalDistribution
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.fitting.members import Members

__all__ = ["SurvivalMixture"]


class SurvivalMixture(SurvivalEstimator):
    r"""S(t|x) = Σ wᵢ Sᵢ(t|x): several estimators as one, with an exact likelihood where theirs are exact.

    Parameters
    ----------
    estimators : sequence of estimators
        Of any kind; ``fit`` fits a clone of each on the same rows.
    weights : sequence of float, optional
        Positive; they are divided by their sum. Equal by default.

    Attributes
    ----------
    estimators_ : list of fitted estimators
        All on one device: where some have networks on a GPU and others compute on the CPU, the networks come there.

    Examples
    --------
    >>> from sumosurv import SurvivalMixture, WeibullNet, KaplanMeier, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> both = SurvivalMixture([WeibullNet(n_members=2, max_epochs=5, random_state=0), KaplanMeier()])
    >>> both.fit(data.X, data.y).predict_survival_function(data.X[:2], times=[0.0, 1.0]).shape
    (2, 2)
    """

    _learns_from = frozenset({"entry", "intervals", "causes", "weights"})  # where all of its parts do

    def __init__(self, estimators: Sequence[SurvivalEstimator] = (), weights: Sequence[float] | None = None) -> None:
        self.estimators = estimators
        self.weights = weights

    @classmethod
    def of(cls, fitted: Sequence[SurvivalEstimator], weights: Sequence[float] | None = None) -> SurvivalMixture:
        """The mixture of estimators that are fitted already, on the same columns."""
        made = cls(list(fitted), weights)
        made._check_settings()
        for estimator in fitted:
            check_is_fitted(estimator)
        columns = {estimator.n_features_in_ for estimator in fitted}
        if len(columns) > 1:
            raise ValueError(f"The estimators were fitted on different numbers of columns: {sorted(columns)}.")
        made._set_estimators(fitted)
        made._take_over()
        return made

    def _fit(self, X: Any, y: Any) -> None:
        X, outcome = self._start(X, y)
        self._set_estimators([clone(estimator).fit(X, outcome) for estimator in self.estimators])

    def _distribution(self, X: Any) -> SurvivalDistribution:
        parts = [estimator._distribution(X) for estimator in self.estimators_]
        return Mixture.of(parts, self._shares())

    def _members(self, X: Any) -> Members:
        return Members.join([estimator._members(X) for estimator in self.estimators_], self._shares())

    @property
    def _device(self) -> torch.device:
        """Where all of its parts are."""
        return self.estimators_[0]._device

    def _on_cpu(self) -> Self:
        """A copy with all parts on the CPU."""
        made = copy.copy(self)
        made.estimators_ = [estimator._on_cpu() for estimator in self.estimators_]
        return made

    def _shares(self) -> npt.NDArray[np.float64]:
        shares = np.ones(len(self.estimators_)) if self.weights is None else np.asarray(self.weights, dtype=np.float64)
        return np.asarray(shares / shares.sum())

    def _set_estimators(self, fitted: Sequence[SurvivalEstimator]) -> None:
        self.estimators_ = _on_one_device(fitted)
        found = {estimator.cells_ for estimator in fitted}
        self.cells_ = found.pop() if len(found) == 1 else None

    def _take_over(self) -> None:
        """What every estimator knows of its training rows, from the first part."""
        first = self.estimators_[0]
        self.n_features_in_, self.risk_times_ = first.n_features_in_, first.risk_times_
        self.n_causes_, self.training_curve_ = first.n_causes_, first.training_curve_
        self.last_time_ = min(estimator.last_time_ for estimator in self.estimators_)
        if hasattr(first, "feature_names_in_"):
            self.feature_names_in_ = first.feature_names_in_

    def _parts(self) -> list[SurvivalEstimator]:
        """The fitted estimators."""
        return self.estimators_

    @classmethod
    def _settings_with(cls, parts: Sequence[SurvivalEstimator], default: bool) -> dict[str, Any]:
        """The estimators."""
        return {"estimators": list(parts)}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`."""
        super()._restore(fitted, tensors)
        if {estimator.n_features_in_ for estimator in self.estimators} != {self.n_features_in_}:
            raise ValueError("its parts have different numbers of columns")
        self._set_estimators(self.estimators)

    def _check_settings(self) -> None:
        """Raise an error that names a setting which cannot be."""
        if isinstance(self.estimators, SurvivalEstimator):
            raise TypeError("estimators is a sequence of estimators; got a single one: put it into a list.")
        if not len(self.estimators):
            raise ValueError("A mixture needs at least one estimator.")
        for estimator in self.estimators:
            if not isinstance(estimator, SurvivalEstimator):
                raise TypeError(f"estimators are survival estimators of this library; got {estimator!r}.")
        if self.weights is not None:
            shares = np.asarray(self.weights, dtype=np.float64)
            if shares.shape != (len(self.estimators),) or not (np.isfinite(shares) & (shares > 0)).all():
                raise ValueError(f"Give {len(self.estimators)} positive weights; got {self.weights!r}.")


def _on_one_device(fitted: Sequence[SurvivalEstimator]) -> list[SurvivalEstimator]:
    """As they are where all compute in one place; all on the CPU otherwise, where methods without networks are."""
    if len({estimator._device for estimator in fitted}) == 1:
        return list(fitted)
    return [estimator._on_cpu() for estimator in fitted]
