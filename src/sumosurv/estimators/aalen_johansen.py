"""Aalen-Johansen as an estimator: the floor that every model of competing risks must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.nonparametric import aalen_johansen
from sumosurv.stored import tensor_of

__all__ = ["AalenJohansen"]


@dataclass(kw_only=True, eq=False, repr=False)
class AalenJohansen(SurvivalEstimator):
    r"""The cumulative incidences of all causes, the same for all subjects, whatever x.

    .. math:: F_k(t) = \sum_{t_i \le t} S(t_{i-1}) \, d_{ki} / n_i

    With one cause this is Kaplan-Meier.

    Parameters
    ----------
    half_width : int
        k of the interpolated densities; see `Tabulated`.

    Attributes
    ----------
    curves_ : Tabulated
        The estimate.
    n_causes_ : int
        K.
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

    _learns_from: ClassVar[frozenset[str]] = frozenset({"entry", "causes", "weights"})

    half_width: int = 2

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid setting."""
        if not isinstance(self.half_width, (int, np.integer)) or self.half_width < 1:
            raise ValueError(f"half_width is a whole number of at least 1; got {self.half_width!r}.")

    def _fit(self, X: Any, y: Any) -> None:
        _, outcome = self._start(X, y)
        found = aalen_johansen(outcome)
        incidence = np.minimum(found.incidence, 1.0)  # a sum of many jumps may be past it by its rounding
        self.curves_ = Tabulated(found.times, found.survival, incidence, half_width=self.half_width)

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self.curves_.repeat(len(X))

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps of the fit."""
        fitted, tensors = super()._state()
        curves = self.curves_
        own = {"times": curves.times, "survival": curves.table[0]}
        return fitted, tensors | own | {f"incidence_{k}": curves.incidence[0, :, k] for k in range(curves.n_causes)}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`."""
        super()._restore(fitted, tensors)
        times = tensor_of(tensors, "times", low=0.0, increasing=True)
        survival = tensor_of(tensors, "survival", len(times), low=0.0, high=1.0)
        incidence = [tensor_of(tensors, f"incidence_{k}", len(times), low=0.0, high=1.0) for k in range(self.n_causes_)]
        self.curves_ = Tabulated(times, survival, torch.stack(incidence, dim=1), half_width=self.half_width)
