"""Estimates without covariates as estimators: the baseline for models with covariates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.estimators.base import SurvivalEstimator, curve_tensors, stored_curve
from sumosurv.fitting.settings import Constraints, integer
from sumosurv.nonparametric import aalen_johansen, kaplan_meier, turnbull

__all__ = ["AalenJohansen", "KaplanMeier"]


@dataclass(kw_only=True, eq=False, repr=False)
class _Marginal(SurvivalEstimator):
    """One curve for all subjects, ``curve_``."""

    half_width: int = 2

    curve_: Tabulated = field(init=False)

    _parameter_constraints: ClassVar[Constraints] = {"half_width": integer(1)}

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self.curve_.repeat(len(X))

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        return fitted, tensors | curve_tensors(self.curve_)

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        self.curve_ = stored_curve(tensors, self.n_causes_, half_width=self.half_width)


@dataclass(kw_only=True, eq=False, repr=False)
class KaplanMeier(_Marginal):
    r"""The Kaplan-Meier estimate, S(t) = Π_{tᵢ <= t} (1 - dᵢ / nᵢ), which ignores the covariates.

    Rows with delayed entry are at risk from their entry on. For interval-censored events it is Turnbull's estimate.

    Parameters
    ----------
    half_width : int, default 2
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

    _supported_outcomes: ClassVar[frozenset[str]] = frozenset({"entry", "intervals", "weights"})

    def _fit(self, X: Any, y: Any) -> None:
        _, outcome = self._start(X, y)
        estimate = turnbull if outcome.in_interval.any() else kaplan_meier
        self.curve_ = estimate(outcome, half_width=self.half_width)


@dataclass(kw_only=True, eq=False, repr=False)
class AalenJohansen(_Marginal):
    r"""The Aalen-Johansen estimate of the cumulative incidence of each cause, which ignores the covariates.

    .. math:: F_k(t) = \sum_{t_i \le t} S(t_{i-1}) \, d_{ki} / n_i

    With one cause this is Kaplan-Meier.

    Parameters
    ----------
    half_width : int, default 2
        k of the interpolated densities; see `Tabulated`.

    Attributes
    ----------
    curve_ : Tabulated
        The estimate.
    n_causes_ : int
        Number of causes.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sumosurv import AalenJohansen, Surv
    >>> y = Surv.from_arrays(event=[1, 2, 0, 1], time=[1.0, 2.0, 3.0, 4.0])
    >>> model = AalenJohansen().fit([[0.0], [1.0], [2.0], [3.0]], y)
    >>> model.predict_cumulative_incidence([[5.0]], [1.5, 4.0])
    array([[[0.25, 0.  ],
            [0.75, 0.25]]])
    """

    _supported_outcomes: ClassVar[frozenset[str]] = frozenset({"entry", "causes", "weights"})

    def _fit(self, X: Any, y: Any) -> None:
        _, outcome = self._start(X, y)
        self.curve_ = aalen_johansen(outcome, half_width=self.half_width)
