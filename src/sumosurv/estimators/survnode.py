"""SurvNODE: survival as the transition probability of a Markov process driven by a neural ODE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sumosurv.estimators.ode import OdeEstimator
from sumosurv.fitting.method import Generators
from sumosurv.fitting.parameters import Constraints, integer, number
from sumosurv.networks import Encoder
from sumosurv.networks.ode import HazardOde, LatentHazardOde

__all__ = ["SurvNode"]


@dataclass(kw_only=True, eq=False, repr=False)
class SurvNode(OdeEstimator):
    r"""SurvNODE: a Markov process with the states alive and event, whose rate follows a latent neural ODE.

    .. math::
        m(0) = network(x), \qquad \Big(\frac{dm}{dt}, r\Big) = network(Λ, m, m(0), t), \qquad
        λ(t|x) = softplus(r) > 0.

    Kolmogorov's forward equation for the probability P of being alive is dP/dt = -λ P, so that with
    dΛ/dt = λ, S(t|x) = P = exp(-Λ(t|x)), and the density λ exp(-Λ) is exact. Trained on the right-censored
    log-likelihood less a regulariser,

    .. math::
        d \log λ(z|x) - Λ(z|x) - ρ \Big\|\Big(\frac{dΛ}{dτ}, \frac{dm}{dτ}\Big)\Big\|_{τ = 1},

    the length of the vector of all rates at the last training time, to which the path of every row is followed past
    its own time: the process is pulled towards a state of rest. τ is the solver's clock, below. Validation
    rows are judged by their likelihood alone. ``n_members`` networks predict as their equal mixture.

    Parameters
    ----------
    latent_size : int
        Entries of m.
    regularisation : float
        ρ; zero leaves the regulariser out, and a third of the cost of a step with it.
    hazard_layers : sequence of int
        Hidden widths (tanh) of the network that gives dm/dt and the hazard.
    clock : {"log", "linear"}
        The time τ in which the equation is solved, as in `Soden`.
    solver, steps, gradient
        As in `Soden`.
    n_members, covariate_layers, dropout, frequencies, numeric_scaling, encoder
        The networks, as in `SumoNet`.
    learning_rate, weight_decay, max_epochs, batch_size, patience, validation_fraction, refit
        Their training, as in `SumoNet`.
    device, random_state, verbose
        As in `SumoNet`.

    Notes
    -----
    Past the last training time the curve goes on as in `Soden`.

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

    def _build_network(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> HazardOde:
        return LatentHazardOde(
            generators,
            encoder,
            self.hazard_layers,
            latent=int(self.latent_size),
            regularisation=float(self.regularisation),
            **self._options(start),
        )
