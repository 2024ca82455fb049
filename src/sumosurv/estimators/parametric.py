"""Parametric regression by networks: the parameters of a distribution family as functions of the covariates."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from sumosurv.distributions import LogLogistic, LogNormal, Weibull
from sumosurv.distributions.parametric import Parametric
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.prepared import time_features
from sumosurv.fitting.settings import Constraints, Generators, Start, number, one_of
from sumosurv.networks import Encoder
from sumosurv.networks.layers import TimeFeatures
from sumosurv.networks.parametric import GompertzNetwork, LogTimeNetwork, ProportionalHazardsNetwork
from sumosurv.outcome import Outcome
from sumosurv.preprocessing.columns import mean_and_width

__all__ = ["GompertzNet", "LogLogisticNet", "LogNormalNet", "WeibullNet"]

_RATES = (0.01, 50.0)  # bounds of the initial Gompertz rate, in scaled time


@dataclass(kw_only=True, eq=False, repr=False)
class ParametricNet(NetworkEstimator):
    """A distribution family for log T with two parameters, both computed from x by a network."""

    offset: float | Literal["auto"] = "auto"

    _parameter_constraints: ClassVar[Constraints] = {"offset": one_of("auto") | number(low=0)}
    _family: ClassVar[type[Parametric]]

    def _check_rows(self, outcome: Outcome) -> None:
        super()._check_rows(outcome)
        if self.offset == 0 and ((outcome.time == 0) & outcome.event).any():
            raise ValueError(
                f"{type(self).__name__} assigns probability zero to events at time zero, which y contains. "
                "Use offset='auto', or make these times positive."
            )

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        offset = (_half_resolution(outcome.time) if self.offset == "auto" else float(self.offset)) / unit
        scaled = outcome.at_midpoints().on_time_scale(unit=unit)
        later = replace(scaled, time=scaled.time + offset)
        return {"values": self._start_values(later), "offset": offset}

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> LogTimeNetwork:
        return LogTimeNetwork(self._family, generators, encoder, tuple(start["values"]), start["offset"])

    @abstractmethod
    def _start_values(self, outcome: Outcome) -> tuple[float, float]:
        """Return initial parameters, common to all subjects; times are scaled and exact, and include the offset."""


@dataclass(kw_only=True, eq=False, repr=False)
class WeibullNet(ParametricNet):
    r"""Weibull regression: a network computes scale and shape from the covariates.

    .. math:: S(t|x) = \exp(-(t / λ(x))^{k(x)}), \qquad \log λ(x), \log k(x) \text{ outputs of a network of } x.

    The parameters depend only on x, so each network predicts a Weibull distribution for each subject, and the
    likelihood is exact. With ``covariate_layers=(), frequencies=0, dropout=0``, both are linear in the scaled columns;
    because of weight decay and early stopping, this is not a regression by maximum likelihood, and its estimates
    differ from those of R's ``survreg``. The prediction is the equally weighted mixture of ``n_members`` networks.

    Parameters
    ----------
    offset : float or "auto"
        The time scale starts ``offset`` before time zero, in the time unit of the data: T + offset is Weibull, given
        T + offset > offset. "auto" is half the smallest distance between recorded times (including zero):
        almost zero for continuous times, half a day for times in whole days, so that an event recorded at time 0 has a
        finite, positive density. With 0, T itself is Weibull.
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`.

    Examples
    --------
    >>> from sumosurv import WeibullNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = WeibullNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_median(data.X[:2]).shape
    (2,)
    """

    _family: ClassVar[type[Parametric]] = Weibull

    def _start_values(self, outcome: Outcome) -> tuple[float, float]:
        return float(np.log(_time_per_event(outcome))), 0.0


@dataclass(kw_only=True, eq=False, repr=False)
class LogNormalNet(ParametricNet):
    r"""Log-normal regression: a network computes mean and standard deviation of log T from the covariates.

    .. math:: S(t|x) = Φ((μ(x) - \log t) / σ(x)), \qquad μ(x), \log σ(x) \text{ outputs of a network of } x.

    Otherwise as `WeibullNet`.

    Parameters
    ----------
    offset : float or "auto"
        As in `WeibullNet`.
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`.

    Examples
    --------
    >>> from sumosurv import LogNormalNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = LogNormalNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    """

    _family: ClassVar[type[Parametric]] = LogNormal

    def _start_values(self, outcome: Outcome) -> tuple[float, float]:
        seen = outcome[outcome.event & (outcome.time > 0)]
        return (float(mean_and_width(np.log(seen.time), seen.weight)[0]), 0.0) if len(seen) else (0.0, 0.0)


@dataclass(kw_only=True, eq=False, repr=False)
class LogLogisticNet(ParametricNet):
    r"""Log-logistic regression: a network computes median and shape from the covariates.

    .. math:: S(t|x) = \frac{1}{1 + (t / λ(x))^{k(x)}}, \qquad \log λ(x), \log k(x) \text{ outputs of a network of } x.

    The median is λ(x). The hazard increases and then decreases if k(x) > 1, and decreases from the start if k(x) ≤ 1.
    The tail is heavy, and the mean is infinite if k(x) ≤ 1: use medians or restricted means. If k is the same for all
    x, odds are proportional: the odds of having had the event by t, (1 - S(t|x)) / S(t|x) = (t / λ(x))^k, differ
    between subjects by a constant factor, so that effects on the hazard fade with time. Otherwise as `WeibullNet`.

    Parameters
    ----------
    offset : float or "auto"
        As in `WeibullNet`.
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`.

    Examples
    --------
    >>> from sumosurv import LogLogisticNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = LogLogisticNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_median(data.X[:2]).shape
    (2,)
    """

    _family: ClassVar[type[Parametric]] = LogLogistic

    def _start_values(self, outcome: Outcome) -> tuple[float, float]:
        return float(np.log(_time_per_event(outcome) * np.log(2.0))), 0.0  # the median under a constant hazard


def _time_per_event(outcome: Outcome) -> float:
    """Return the time at risk per event, the mean under a constant hazard."""
    at_risk = float((outcome.weights * (outcome.time - outcome.entries)).sum())
    return max(at_risk, 1e-12) / max(float((outcome.weights * outcome.event).sum()), 0.5)


def _half_resolution(times: npt.NDArray[np.float64]) -> float:
    """Return half the smallest distance between recorded times, including zero."""
    distinct = np.unique(np.append(times, 0.0))
    return float(0.5 * np.diff(distinct).min()) if len(distinct) > 1 else 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class GompertzNet(NetworkEstimator):
    r"""Gompertz regression: an exponentially growing hazard; a network computes its level and rate from the covariates.

    .. math:: λ(t|x) = \text{level}(x) \, e^{\text{rate}(x) t}, \qquad
       S(t|x) = \exp\left(-\frac{\text{level}(x)}{\text{rate}(x)} \left(e^{\text{rate}(x) t} - 1\right)\right),

    with positive level and rate, so that S goes to zero. The outputs of the network are the log-hazard at the mean
    time c of the training events, :math:`a(x) = \log \text{level}(x) + \text{rate}(x) c`, and b(x), with
    :math:`\text{rate}(x) = \log(1 + e^{b(x)})` in units of the largest training time.

    It is suited to adult mortality, whose hazard doubles at regular intervals, and to ageing equipment. The likelihood
    is exact, even for events at time zero. If the rate is the same for all x, hazards are proportional; with
    ``covariate_layers=(), frequencies=0, dropout=0``, a and b are linear in the scaled columns, but not fitted by
    maximum likelihood; see `WeibullNet`. The prediction is the equally weighted mixture of ``n_members`` networks. For
    decreasing hazards, such as those after surgery, use `WeibullNet`, `LogNormalNet`, `LogLogisticNet` or `SumoNet`.

    Parameters
    ----------
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`.

    Examples
    --------
    >>> from sumosurv import GompertzNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = GompertzNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_mean(data.X[:2]).shape
    (2,)
    """

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        scaled = outcome.at_midpoints().on_time_scale(unit=unit)
        seen = scaled[scaled.event]
        centre = float(mean_and_width(seen.time, seen.weight)[0]) if len(seen) else 0.5
        log_level, rate = _gompertz_for_all(scaled)
        return {"values": (log_level + rate * centre, float(np.log(np.expm1(rate)))), "centre": centre}

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> GompertzNetwork:
        return GompertzNetwork(generators, encoder, tuple(start["values"]), start["centre"])


def _gompertz_for_all(outcome: Outcome) -> tuple[float, float]:
    """Return the maximum-likelihood log-level and rate, common to all subjects, with the rate within bounds.

    Given the rate r, the level is (number of events) / Σ (exp(r tᵢ) - exp(r entryᵢ)) / r; the profile log-likelihood is
    concave in r.
    """
    times, event, entry, weight = outcome.time, outcome.event, outcome.entries, outcome.weights
    count, total = max(float((weight * event).sum()), 0.5), float((weight * times)[event].sum())

    def log_level(rate: float) -> float:
        exposure = np.expm1(rate * times) - np.expm1(rate * entry)
        return float(np.log(count) - np.log(max((weight * exposure).sum() / rate, 1e-12)))

    best = minimize_scalar(lambda rate: -count * log_level(rate) - rate * total, bounds=_RATES, method="bounded")
    return log_level(best.x), float(best.x)


@dataclass(kw_only=True, eq=False, repr=False)
class ProportionalHazardsNet(NetworkEstimator):
    r"""Proportional hazards: a network for the log risk, and a smooth baseline estimated from all training rows.

    .. math:: Λ(t|x) = e^{r(x)} (H(t)^p - H(0)^p),

    with H the smoothed cumulative hazard of all training rows and p learned. Unlike `DeepSurv`, it is trained on the
    full likelihood, has a density, and supports interval censoring. It is a component of `SumoNet`.
    """

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        return {"time_features": time_features("marginal", outcome, unit).state()}

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> ProportionalHazardsNetwork:
        return ProportionalHazardsNetwork(generators, encoder, TimeFeatures.from_state(start["time_features"]))
