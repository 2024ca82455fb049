"""SODEN: survival regression by an ordinary differential equation for the cumulative hazard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from sumosurv.estimators.ode import OdeEstimator
from sumosurv.fitting.method import Generators
from sumosurv.fitting.parameters import Constraints, one_of
from sumosurv.networks import Encoder
from sumosurv.networks.ode import CoxHazardOde, GeneralHazardOde, HazardOde

__all__ = ["Soden"]


@dataclass(kw_only=True, eq=False, repr=False)
class Soden(OdeEstimator):
    r"""SODEN: the hazard is the right-hand side of an ordinary differential equation for the cumulative hazard.

    .. math:: \frac{dΛ(t|x)}{dt} = q(Λ(t|x), t, x) > 0, \qquad Λ(0|x) = 0, \qquad S(t|x) = e^{-Λ(t|x)},

    trained on the right-censored log-likelihood :math:`d \log q(Λ(z|x), z, x) - Λ(z|x)`. All rows of a batch are
    solved in one call, each over its own [0, z] by time rescaled. Densities are exact,
    :math:`f = q e^{-Λ}`, and ``n_members`` networks predict as their equal mixture.

    Parameters
    ----------
    form : {"general", "cox", "cox-network"}
        q = softplus(network(Λ, t, code(x))); or a baseline softplus(network(t)) times exp(linear(x)); or
        times exp(network(x)). "cox" has no covariate layers and no periodic features.
    hazard_layers : sequence of int
        Hidden widths (tanh) of the network for q or its baseline.
    clock : {"log", "linear"}
        The time τ in which the equation is solved: log(1 + t/c) / log(1 + 1/c) with t scaled to [0, 1] and
        c = 0.01, so that steps are short where events are many; or t itself. The network reads both t and τ.
    solver : {"rk4", "dopri5"}
        In training: ``steps`` steps of equal length by the classical method of Runge and Kutta, or torchdiffeq's
        adaptive steps (``pip install 'sumosurv[ode]'``; on a GPU no graph can hold a step of training then).
        Predictions use neither, but steps of order five, doubled in number until Λ is accurate to 1e-6 and
        better.
    steps : int
        Of "rk4".
    gradient : {"direct", "adjoint"}
        Of "dopri5": through its steps, or by the adjoint equation.
    n_members, covariate_layers, dropout, frequencies, numeric_scaling, encoder
        The networks, as in `SumoNet`.
    learning_rate, weight_decay, max_epochs, batch_size, patience, validation_fraction, refit
        Their training, as in `SumoNet`.
    device, random_state, verbose
        As in `SumoNet`.

    Notes
    -----
    Past the last training time T each member goes on from its hazard at T, λ(t|x) = λ(T|x) e^{g (t - T)}, with a
    growth g that all subjects share, as in `SumoNet`: S(∞) = 0, mean and quantiles are finite. In the general
    form the network reads log(1 + Λ), and its tanh layers bound q, so that the equation always has a solution.

    References
    ----------
    W. Tang, J. Ma, Q. Mei, J. Zhu. SODEN: a scalable continuous-time survival model through ordinary
    differential equation networks. JMLR 23 (2022).

    Examples
    --------
    >>> from sumosurv import Soden, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = Soden(n_members=2, max_epochs=5, steps=4, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    """

    form: Literal["general", "cox", "cox-network"] = "general"

    _parameter_constraints: ClassVar[Constraints] = {"form": one_of("general", "cox", "cox-network")}

    def _alone(self, n_rows: int) -> Self:
        if self.form != "cox" or self.encoder is not None:
            return self
        return self._with(covariate_layers=(), frequencies=0, dropout=0.0)  # "cox" is linear in x

    def _build_network(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> HazardOde:
        kind = GeneralHazardOde if self.form == "general" else CoxHazardOde
        return kind(generators, encoder, self.hazard_layers, **self._options(start))
