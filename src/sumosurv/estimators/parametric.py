"""Weibull and log-normal regression by networks: parameters from covariates, exact densities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.method import Generators
from sumosurv.fitting.parameters import Constraints, number, one_of
from sumosurv.networks import Encoder
from sumosurv.networks.parametric import LogNormalNetwork, LogTimeNetwork, WeibullNetwork
from sumosurv.outcome import Outcome
from sumosurv.quantiles import mean_and_width

__all__ = ["LogNormalNet", "WeibullNet"]


@dataclass(kw_only=True, eq=False, repr=False)
class ParametricNet(NetworkEstimator):
    """A family of distributions of log T with two parameters, both from a network of x.

    A method defines ``_network``, the family's `LogTimeNetwork`, and ``_start_values``.
    """

    offset: float | Literal["auto"] = "auto"

    _parameter_constraints: ClassVar[Constraints] = {"offset": one_of("auto") | number(low=0)}

    def _check_rows(self, outcome: Outcome) -> None:
        super()._check_rows(outcome)
        if self.offset == 0 and ((outcome.time == 0) & outcome.event).any():
            raise ValueError(
                f"{type(self).__name__} gives no likelihood to an event at time zero; y has some. "
                "Use offset='auto', or give their times as positive numbers."
            )

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        offset = (_half_resolution(outcome.time) if self.offset == "auto" else float(self.offset)) / unit
        scaled = outcome.at_midpoints().on_clock(unit=unit)
        later = replace(scaled, time=scaled.time + offset)
        return {"values": self._start_values(later), "offset": offset}

    def _build_network(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> LogTimeNetwork:
        return self._network()(generators, encoder, tuple(start["values"]), start["offset"])

    @abstractmethod
    def _network(self) -> type[LogTimeNetwork]:
        """The family."""

    @abstractmethod
    def _start_values(self, outcome: Outcome) -> tuple[float, float]:
        """Parameters for all subjects alike, near their best; times are scaled, the offset added, no intervals."""


@dataclass(kw_only=True, eq=False, repr=False)
class WeibullNet(ParametricNet):
    r"""Weibull regression: scale and shape from covariates by a network.

    .. math:: S(t|x) = \exp(-(t / λ(x))^{k(x)}), \qquad \log λ(x), \log k(x) \text{ outputs of a network of } x.

    The parameters depend on x alone, so that each subject's distribution is a Weibull distribution; the
    likelihood is exact. With ``covariate_layers=(), frequencies=0, dropout=0`` it is the accelerated failure
    time model with a linear predictor for scale and shape. ``n_members`` networks predict as their equal
    mixture.

    Parameters
    ----------
    offset : float or "auto"
        The clock starts ``offset`` before time zero, in the unit of the times: T + offset is Weibull, given
        T + offset > offset. "auto" is half the smallest distance between recorded times (zero among them):
        next to nothing for continuous times, half a day for times in whole days, whose record "0" then is a
        possible event and not one of density zero or infinity. 0 for the plain family.
    n_members, covariate_layers, dropout, frequencies, numeric_scaling, encoder
        The networks, as in `SumoNet`.
    learning_rate, weight_decay, max_epochs, batch_size, patience, validation_fraction, refit
        Their training, as in `SumoNet`; ``batch_size="full"`` takes all rows at each step.
    device, random_state, verbose
        As in `SumoNet`.

    Examples
    --------
    >>> from sumosurv import WeibullNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = WeibullNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_median(data.X[:2]).shape
    (2,)
    """

    def _network(self) -> type[LogTimeNetwork]:
        return WeibullNetwork

    def _start_values(self, outcome: Outcome) -> tuple[float, float]:
        return float(np.log(time_per_event(outcome))), 0.0


@dataclass(kw_only=True, eq=False, repr=False)
class LogNormalNet(ParametricNet):
    r"""Log-normal regression: mean and standard deviation of log T from covariates by a network.

    .. math:: S(t|x) = Φ((μ(x) - \log t) / σ(x)), \qquad μ(x), \log σ(x) \text{ outputs of a network of } x.

    The parameters depend on x alone, so that each subject's distribution is a log-normal distribution; the
    likelihood is exact. With ``covariate_layers=(), frequencies=0, dropout=0`` it is the accelerated failure
    time model with a linear predictor for both. ``n_members`` networks predict as their equal mixture.

    Parameters
    ----------
    offset : float or "auto"
        As in `WeibullNet`.
    n_members, covariate_layers, dropout, frequencies, numeric_scaling, encoder
        The networks, as in `SumoNet`.
    learning_rate, weight_decay, max_epochs, batch_size, patience, validation_fraction, refit
        Their training, as in `SumoNet`; ``batch_size="full"`` takes all rows at each step.
    device, random_state, verbose
        As in `SumoNet`.

    Examples
    --------
    >>> from sumosurv import LogNormalNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = LogNormalNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    """

    def _network(self) -> type[LogTimeNetwork]:
        return LogNormalNetwork

    def _start_values(self, outcome: Outcome) -> tuple[float, float]:
        seen = outcome[outcome.event & (outcome.time > 0)]
        return (mean_and_width(np.log(seen.time), seen.weight)[0], 0.0) if len(seen) else (0.0, 0.0)


def time_per_event(outcome: Outcome) -> float:
    """Time at risk for each event: the mean under a constant hazard."""
    at_risk = outcome.time if outcome.entry is None else outcome.time - outcome.entry
    weight = 1.0 if outcome.weight is None else outcome.weight
    return max(float((weight * at_risk).sum()), 1e-12) / max(float((weight * outcome.event).sum()), 0.5)


def _half_resolution(times: npt.NDArray[np.float64]) -> float:
    """Half the smallest distance between recorded times, zero among them."""
    distinct = np.unique(np.append(times, 0.0))
    return float(0.5 * np.diff(distinct).min()) if len(distinct) > 1 else 0.5
