"""Gompertz regression by networks: a hazard that grows exponentially, its level and rate from covariates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.method import Generators
from sumosurv.networks import Encoder
from sumosurv.networks.parametric import GompertzNetwork
from sumosurv.outcome import Outcome
from sumosurv.quantiles import mean_and_width

__all__ = ["GompertzNet"]

_RATES = (0.01, 50.0)  # within which training starts; the clock runs to 1


@dataclass(kw_only=True, eq=False, repr=False)
class GompertzNet(NetworkEstimator):
    r"""Gompertz regression: a hazard that grows exponentially, its level and rate from covariates by a network.

    .. math:: λ(t|x) = \text{level}(x) \, e^{\text{rate}(x) t}, \qquad
       S(t|x) = \exp\left(-\frac{\text{level}(x)}{\text{rate}(x)} \left(e^{\text{rate}(x) t} - 1\right)\right),

    level and rate positive, so that S falls to zero. The outputs of the network are the log-hazard at the mean
    time c of the training events, :math:`a(x) = \log \text{level}(x) + \text{rate}(x) c`, and b(x), with
    :math:`\text{rate}(x) = \log(1 + e^{b(x)})` in units of the largest training time.

    It is for adult mortality, whose hazard doubles every so many years, and for equipment that ages. The parameters
    depend on x alone, so that each subject's distribution is a Gompertz distribution; the likelihood is exact, also of
    events at time zero, where the density is the level. Where the rate is the same for all x, hazards are in constant
    ratio; with ``covariate_layers=(), frequencies=0, dropout=0`` a and b are linear in x. ``n_members`` networks
    predict as their equal mixture.

    Not for hazards that fall: the rate can go towards zero, a constant hazard, and no further. After surgery or on
    admission to hospital, where the first days are the worst, `WeibullNet`, `LogNormalNet` or `LogLogisticNet` fit
    better, and `SumoNet` fits any shape. A generalised gamma distribution would cover many shapes at once, but its
    likelihood needs the derivative of the incomplete gamma function with respect to its shape, which torch does not
    have; its best-known members, Weibull and log-normal, are here. Gompertz is not among its members.

    Parameters
    ----------
    n_members, covariate_layers, dropout, frequencies, numeric_scaling, encoder
        The networks, as in `SumoNet`.
    learning_rate, weight_decay, max_epochs, batch_size, patience, validation_fraction, refit
        Their training, as in `SumoNet`; ``batch_size="full"`` takes all rows at each step.
    device, random_state, verbose
        As in `SumoNet`.

    Examples
    --------
    >>> from sumosurv import GompertzNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = GompertzNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_mean(data.X[:2]).shape
    (2,)
    """

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        scaled = outcome.at_midpoints().on_clock(unit=unit)
        seen = scaled[scaled.event]
        centre = mean_and_width(seen.time, seen.weight)[0] if len(seen) else 0.5
        log_level, rate = _best_for_all(scaled)
        return {"values": (log_level + rate * centre, float(np.log(np.expm1(rate)))), "centre": centre}

    def _build_network(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> GompertzNetwork:
        return GompertzNetwork(generators, encoder, tuple(start["values"]), start["centre"])


def _best_for_all(outcome: Outcome) -> tuple[float, float]:
    """Log-level and rate of highest likelihood for all subjects alike, the rate within bounds.

    Given the rate r, the level is (number of events) / Σ (exp(r tᵢ) - exp(r entryᵢ)) / r; what is left is concave in r.
    """
    times, event, entry = outcome.time, outcome.event, outcome.entry
    weight = 1.0 if outcome.weight is None else outcome.weight
    count, total = max(float((weight * event).sum()), 0.5), float((weight * times)[event].sum())

    def log_level(rate: float) -> float:
        exposure = np.expm1(rate * times) - (0.0 if entry is None else np.expm1(rate * entry))
        return float(np.log(count) - np.log(max((weight * exposure).sum() / rate, 1e-12)))

    best = minimize_scalar(lambda rate: -count * log_level(rate) - rate * total, bounds=_RATES, method="bounded")
    return log_level(best.x), float(best.x)
