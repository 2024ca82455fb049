"""Competing risks from any estimator: one model per cause, the others as censoring."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from sumosurv.distributions import SurvivalDistribution, cause_specific
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.coxph import CoxPH
from sumosurv.estimators.linear import LinearEstimator
from sumosurv.estimators.summary import ModelSummary
from sumosurv.fitting.settings import NONE, Constraints, instance_of
from sumosurv.formulas import ModelFrame

__all__ = ["CauseSpecific"]


def _has_summary(model: CauseSpecific) -> bool:
    return model.estimator is None or hasattr(model.estimator, "summary")


class CauseSpecific(SurvivalEstimator):
    r"""Competing risks by one model per cause, in which events of other causes count as censored.

    .. math::
        S(t|x) = \prod_k S_k(t|x), \qquad F_k(t|x) = \int_0^t λ_k(u|x) \, S(u|x) \, du

    This does not assume that the causes are independent: cause-specific hazards are rates among subjects who are still
    event-free. `sumosurv.distributions.cause_specific` documents how the incidences are computed. With one cause, the
    model equals the estimator.

    Parameters
    ----------
    estimator : SurvivalEstimator, optional
        Estimator of which a clone is fitted for each cause; ``CoxPH()`` by default. It must support the other features
        of the outcome (delayed entry, intervals, weights). An interval-censored event of another cause is censored at
        the lower limit.

    Attributes
    ----------
    estimators_ : list of fitted estimators
        One for each cause.
    n_causes_ : int
        K.

    Examples
    --------
    >>> from sumosurv import CauseSpecific, CoxPH, Surv
    >>> y = Surv.from_arrays(event=[1, 2, 0, 1, 2, 1], time=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    >>> X = [[0.0], [1.0], [1.5], [0.5], [0.2], [0.9]]
    >>> model = CauseSpecific(CoxPH(alpha=0.1)).fit(X, y)
    >>> model.predict_cumulative_incidence(X, [1.0, 3.0]).shape
    (6, 2, 2)
    """

    # as far as the estimator supports them
    _supported_outcomes: ClassVar[frozenset[str]] = frozenset({"entry", "intervals", "causes", "weights"})
    _parameter_constraints: ClassVar[Constraints] = {
        "estimator": NONE | instance_of(SurvivalEstimator, "a survival estimator of this library, such as CoxPH()")
    }

    def __init__(self, estimator: SurvivalEstimator | None = None) -> None:
        self.estimator = estimator

    @classmethod
    def _formula_settings(cls, frame: ModelFrame, settings: dict[str, Any]) -> dict[str, Any]:
        estimator = clone(settings.get("estimator") or CoxPH())
        return settings | {"estimator": estimator.set_params(**estimator._formula_settings(frame, {}))}

    def _check_covariates(self, X: Any, *, reset: bool) -> Any:
        part = self.estimator if reset else self.estimators_[0]
        if isinstance(part, LinearEstimator):  # a formula need not read all columns
            if sparse.issparse(X):  # the part decides whether it accepts sparse columns
                X = (clone(part) if reset else part)._check_covariates(X, reset=reset)
                return validate_data(self, X, reset=reset, accept_sparse=True)
            X = clone(part)._check_covariates(X, reset=True) if reset else part._select(X)
        return super()._check_covariates(X, reset=reset)

    def _fit(self, X: Any, y: Any) -> None:
        X, outcome = self._start(X, y)
        estimator = CoxPH() if self.estimator is None else self.estimator
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "All .* rows are censored", UserWarning)  # said by _start
            self.estimators_ = [estimator._fitted_part(X, outcome.of_cause(k)) for k in range(1, outcome.n_causes + 1)]

    @available_if(_has_summary)  # type: ignore[untyped-decorator]
    def summary(self, level: float = 0.95) -> ModelSummary:
        """The summaries of the models of all causes, if the estimator has a ``summary``."""
        check_is_fitted(self)
        parts = [estimator.summary(level) for estimator in self.estimators_]
        titles = [part.title for part in parts]
        if len(set(titles)) == 1:
            return ModelSummary.by_cause(f"Cause-specific {titles[0]}", parts)
        own = "; ".join(f"cause {k}: {title}" for k, title in enumerate(titles, start=1))  # with different penalties
        return ModelSummary.by_cause(f"Cause-specific models; {own}", parts)

    def _distribution(self, X: Any) -> SurvivalDistribution:
        parts = [estimator._distribution(X) for estimator in self.estimators_]
        return parts[0] if len(parts) == 1 else cause_specific(parts)

    def _parts(self) -> list[SurvivalEstimator]:
        return self.estimators_

    @classmethod
    def _settings_with(cls, parts: Sequence[SurvivalEstimator], default: bool) -> dict[str, Any]:
        return {} if default else {"estimator": clone(parts[0])}

    def _restore_parts(self, parts: Sequence[SurvivalEstimator]) -> None:
        self.estimators_ = list(parts)

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        if len(self.estimators_) != self.n_causes_:
            raise ValueError(f"{len(self.estimators_)} parts for {self.n_causes_} causes")
