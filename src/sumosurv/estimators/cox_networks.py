"""Cox models with a network for the risk: DeepSurv, CoxCC and Cox-Time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.prepared import time_features
from sumosurv.fitting.settings import Constraints, Generators, Start, integer, number, one_of, widths
from sumosurv.networks import Encoder, PopulationNetwork, TimeFeatures
from sumosurv.networks.case_control import CaseControl
from sumosurv.networks.layers import TimeFeatureKind
from sumosurv.networks.risk import CoxTimeNetwork, RiskNetwork
from sumosurv.outcome import Outcome

__all__ = ["CoxCC", "CoxTime", "DeepSurv"]


@dataclass(kw_only=True, eq=False, repr=False)
class _CoxNet(NetworkEstimator):
    _supported_outcomes: ClassVar[frozenset[str]] = frozenset({"entry", "weights"})
    _supports_blocks: ClassVar[bool] = False

    half_width: int = 2

    _parameter_constraints: ClassVar[Constraints] = {"half_width": integer(1)}


@dataclass(kw_only=True, eq=False, repr=False)
class DeepSurv(_CoxNet):
    r"""DeepSurv (Katzman et al. 2018): λ(t|x) = λ₀(t) e^{g(x)}, with a network g trained on the partial likelihood.

    .. math:: \sum_{i: d_i = 1} w_i \Big[ g(x_i) - \log \sum_{j: v_j < z_i \le z_j} w_j e^{g(x_j)} \Big], \qquad
        S(t|x) = \exp(-Λ_0(t) e^{g(x)}),

    with weights w and entry times v.

    Risk sets are formed within each batch (``batch_size="full"`` uses all rows). At the end of ``fit``, Breslow's
    baseline is computed from all training rows, separately for each member. Predicted curves are step functions with a
    density interpolated with half-width k. The prediction is the equally weighted mixture of ``n_members`` members.

    Parameters
    ----------
    half_width : int, default 2
        k of the interpolated density; see `Tabulated`.
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`; early stopping uses the partial likelihood of the
        validation rows.

    Examples
    --------
    >>> from sumosurv import DeepSurv, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = DeepSurv(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    """

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> PopulationNetwork:
        return RiskNetwork(generators, encoder, half_width=self.half_width)


@dataclass(kw_only=True, eq=False, repr=False)
class _CaseControlNet(_CoxNet):
    n_controls: int = 1
    shrink: float = 0.001

    _parameter_constraints: ClassVar[Constraints] = {"n_controls": integer(1), "shrink": number(low=0)}

    def _controls(self, generators: Generators) -> CaseControl:
        return CaseControl(torch.tensor([generator.initial_seed() for generator in generators]), self.n_controls)


@dataclass(kw_only=True, eq=False, repr=False)
class CoxCC(_CaseControlNet):
    r"""Cox-CC (Kvamme et al. 2019): proportional hazards with a network, trained on sampled controls.

    .. math:: \sum_{i: d_i = 1} -\log\Big(1 + \sum_{j \in C_i} e^{g(x_j) - g(x_i)}\Big), \qquad
        S(t|x) = \exp(-Λ_0(t) e^{g(x)}),

    with new controls C_i drawn at each step from the training rows at risk at z_i (entry < z_i <= z), uniformly or in
    proportion to their weights. A batch consists of cases, and its cost does not depend on the size of the risk sets.

    Parameters
    ----------
    n_controls : int, default 1
        Controls per case.
    shrink : float, default 0.001
        Penalty on the mean of \|g\| over case and controls. The penalty identifies the level of g; the loss alone
        identifies only differences.
    half_width : int, default 2
        k of the interpolated density; see `Tabulated`.
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`; early stopping uses the partial likelihood of the
        validation rows.

    Examples
    --------
    >>> from sumosurv import CoxCC, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = CoxCC(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict(data.X[:2]).shape
    (2,)
    """

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> PopulationNetwork:
        controls = self._controls(generators)
        return RiskNetwork(generators, encoder, half_width=self.half_width, controls=controls, shrink=self.shrink)


@dataclass(kw_only=True, eq=False, repr=False)
class CoxTime(_CaseControlNet):
    r"""Cox-Time (Kvamme et al. 2019): λ(t|x) = λ₀(t) e^{g(t, x)}, a relative risk that changes with time.

    .. math:: \sum_{i: d_i = 1} -\log\Big(1 + \sum_{j \in C_i} e^{g(z_i, x_j) - g(z_i, x_i)}\Big), \qquad
        S(t|x) = \exp\Big(-\sum_{t_i \le t} ΔΛ_0(t_i) e^{g(t_i, x)}\Big),

    with new controls C_i drawn at each step from the rows at risk at z_i. The jumps of the baseline, ΔΛ₀(tᵢ) = dᵢ /
    Σ_{j at risk} e^{g(tᵢ, x_j)}, are computed from all training rows at the end of ``fit``. The cumulative hazard at
    all event times is computed once per prediction and reused by all methods of the distribution.

    Parameters
    ----------
    time_layers : sequence of int, default (32,)
        Hidden widths of the layers that combine the covariate embedding with time. Prediction requires one pass through
        these layers for each pair of subject and event time; the covariate network runs once per subject.
    time_features : {"marginal", "log", "linear"}
        Representation of time in these layers; see `sumosurv.networks.TimeFeatures`.
    n_controls : int, default 1
        Controls per case.
    shrink : float, default 0.001
        Penalty on the mean of \|g\| over case and controls.
    half_width : int, default 2
        k of the interpolated density; see `Tabulated`.
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`; early stopping uses the same loss, with controls drawn once
        from the validation rows.

    Examples
    --------
    >>> from sumosurv import CoxTime, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = CoxTime(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    """

    time_layers: Sequence[int] = (32,)
    time_features: TimeFeatureKind = "marginal"

    _parameter_constraints: ClassVar[Constraints] = {
        "time_layers": widths(least=1),
        "time_features": one_of("marginal", "log", "linear"),
    }

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        return {"time_features": time_features(self.time_features, outcome, unit).state()}

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> PopulationNetwork:
        return CoxTimeNetwork(
            generators,
            encoder,
            TimeFeatures.from_state(start["time_features"]),
            widths=self.time_layers,
            activation=self._activation,
            half_width=self.half_width,
            controls=self._controls(generators),
            shrink=self.shrink,
        )
