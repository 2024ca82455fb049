"""SODEN and SurvNODE: networks as the right-hand sides of ordinary differential equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch

from sumosurv.distributions.ode import solver_time
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.settings import Constraints, Generators, Start, integer, number, one_of, widths
from sumosurv.networks import Encoder
from sumosurv.networks.ode import CoxHazardOde, GeneralHazardOde, Gradient, HazardOde, LatentHazardOde, Solver
from sumosurv.outcome import Outcome

__all__ = ["Soden", "SurvNode"]

_OFFSET = 0.01  # c of the logarithmic time scale, in scaled time


@dataclass(kw_only=True, eq=False, repr=False)
class OdeEstimator(NetworkEstimator):
    """Base class of the methods whose likelihood requires solving a differential equation."""

    hazard_layers: Sequence[int] = (32,)
    time_scale: Literal["log", "linear"] = "log"
    solver: Solver = "rk4"
    steps: int = 8
    gradient: Gradient = "direct"
    n_members: int = 4
    dropout: float = 0.3
    learning_rate: float = 0.01
    max_epochs: int = 40
    patience: int | None = 10

    _parameter_constraints: ClassVar[Constraints] = {
        "hazard_layers": widths(least=1),
        "time_scale": one_of("log", "linear"),
        "solver": one_of("rk4", "dopri5"),
        "steps": integer(1),
        "gradient": one_of("direct", "adjoint"),
    }

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        scaled = outcome.at_midpoints().on_time_scale(unit=unit)
        start, end = (solver_time(torch.from_numpy(times), self._offset) for times in (scaled.entries, scaled.time))
        at_risk, weight = end - start, torch.from_numpy(scaled.weights)
        events = float((weight * torch.from_numpy(scaled.event)).sum())
        rate = max(events, 0.5) / max(float((weight * at_risk).sum()), 1e-3)
        return {"rate": min(max(rate, 1e-6), 1e6)}

    @property
    def _offset(self) -> float | None:
        return _OFFSET if self.time_scale == "log" else None

    def _options(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the network other than its sizes."""
        return {
            "rate": start["rate"],
            "offset": self._offset,
            "solver": self.solver,
            "steps": int(self.steps),
            "gradient": self.gradient,
        }

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.solver == "rk4" and self.gradient == "adjoint":
            raise ValueError(
                "gradient='adjoint' is for solver='dopri5'; the steps of 'rk4' are differentiated directly."
            )


@dataclass(kw_only=True, eq=False, repr=False)
class Soden(OdeEstimator):
    r"""SODEN: the hazard is the right-hand side of an ordinary differential equation for the cumulative hazard.

    .. math:: \frac{dΛ(t|x)}{dt} = q(Λ(t|x), t, x) > 0, \qquad Λ(0|x) = 0, \qquad S(t|x) = e^{-Λ(t|x)},

    trained on the right-censored log-likelihood :math:`d \log q(Λ(z|x), z, x) - Λ(z|x)`. The equations of all rows of a
    batch are solved in one call, with time rescaled so that each row has its own interval [0, z]. Densities are exact,
    :math:`f = q e^{-Λ}`, and the prediction is the equally weighted mixture of ``n_members`` networks.

    Parameters
    ----------
    form : {"general", "cox", "cox-network"}
        The form of q, with u(x) the embedding of the covariates.

        ============= ======================================================================================
        "general"     softplus(network(Λ, t, u(x)))
        "cox"         softplus(network(t)) · exp(linear(x)), without covariate layers and periodic features
        "cox-network" softplus(network(t)) · exp(network(x))
        ============= ======================================================================================
    hazard_layers : sequence of int, default (32,)
        Hidden widths (tanh) of the network for q or its baseline.
    time_scale : {"log", "linear"}
        The time scale τ on which the equation is solved: log(1 + t/c) / log(1 + 1/c) with t scaled to [0, 1] and
        c = 0.01, so that steps are short at early times; or t itself. Both t and τ are inputs of the network.
    solver : {"rk4", "dopri5"}
        In training: ``steps`` steps of equal length by the classical Runge-Kutta method, or torchdiffeq's adaptive
        steps (``pip install 'sumosurv[ode]'``; training on a GPU then cannot use CUDA graphs). Predictions always use a
        method of order five, with the number of steps doubled until Λ is accurate to at least 1e-6.
    steps : int, default 8
        Number of steps of "rk4".
    gradient : {"direct", "adjoint"}
        How "dopri5" is differentiated: through its steps, or by the adjoint equation.
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`.

    Notes
    -----
    Beyond the last training time T, the hazard of each member continues from its value at T, λ(t|x) = λ(T|x) e^{g (t -
    T)}, with a growth rate g common to all subjects, as in `SumoNet`, so means and quantiles are finite. In the general
    form, log(1 + Λ) is an input of the network, and its tanh layers bound q, so the equation always has a solution.

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

    def _resolved(self, n_rows: int) -> Self:
        if self.form != "cox" or self.encoder is not None:
            return self
        return self._with(covariate_layers=(), frequencies=0, dropout=0.0)  # "cox" is linear in x

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> HazardOde:
        kind = GeneralHazardOde if self.form == "general" else CoxHazardOde
        return kind(generators, encoder, self.hazard_layers, **self._options(start))


@dataclass(kw_only=True, eq=False, repr=False)
class SurvNode(OdeEstimator):
    r"""SurvNODE: a Markov process with the states alive and event, whose rate follows a latent neural ODE.

    .. math::
        m(0) = network(x), \qquad \Big(\frac{dm}{dt}, r\Big) = network(Λ, m, m(0), t), \qquad
        λ(t|x) = softplus(r) > 0.

    Kolmogorov's forward equation for the probability P of being alive is dP/dt = -λ P. With dΛ/dt = λ, it follows that
    S(t|x) = P = exp(-Λ(t|x)), and the density λ exp(-Λ) is exact. The networks are trained on the right-censored
    log-likelihood minus a regulariser,

    .. math::
        d \log λ(z|x) - Λ(z|x) - ρ \Big\|\Big(\frac{dΛ}{dτ}, \frac{dm}{dτ}\Big)\Big\|_{τ = 1},

    the norm of all rates of change at the last training time, up to which the path of every row is solved. The
    regulariser pulls the process towards an equilibrium. τ is the solver's time scale (``time_scale``). Validation rows
    are scored by the likelihood only. The prediction is the equally weighted mixture of ``n_members`` networks.

    Parameters
    ----------
    latent_size : int, default 8
        Length of the latent state m.
    regularisation : float, default 0.0001
        ρ. With 0, there is no regulariser, and a training step is a third cheaper.
    hazard_layers : sequence of int, default (32,)
        Hidden widths (tanh) of the network that gives dm/dt and the hazard.
    time_scale : {"log", "linear"}
        The time scale τ on which the equation is solved, as in `Soden`.
    solver, steps, gradient
        As in `Soden`.
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`.

    Notes
    -----
    Beyond the last training time, the curve continues as in `Soden`.

    References
    ----------
    S. Groha, S. M. Schmon, A. Gusev. A general framework for survival analysis and multi-state modelling.
    arXiv 2006.04893 (2020).

    Examples
    --------
    >>> from sumosurv import SurvNode, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = SurvNode(n_members=2, max_epochs=5, steps=4, random_state=0).fit(data.X, data.y)
    >>> model.predict_median(data.X[:2]).shape
    (2,)
    """

    latent_size: int = 8
    regularisation: float = 1e-4

    _parameter_constraints: ClassVar[Constraints] = {"latent_size": integer(1), "regularisation": number(low=0)}

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> HazardOde:
        return LatentHazardOde(
            generators,
            encoder,
            self.hazard_layers,
            latent=int(self.latent_size),
            regularisation=float(self.regularisation),
            **self._options(start),
        )
