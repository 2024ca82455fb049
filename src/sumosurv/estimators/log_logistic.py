"""Log-logistic regression by networks: median and shape from covariates, exact densities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sumosurv.estimators.parametric import ParametricNet, time_per_event
from sumosurv.networks.parametric import LogLogisticNetwork, LogTimeNetwork
from sumosurv.outcome import Outcome

__all__ = ["LogLogisticNet"]


@dataclass(kw_only=True, eq=False, repr=False)
class LogLogisticNet(ParametricNet):
    r"""Log-logistic regression: median and shape from covariates by a network.

    .. math:: S(t|x) = \frac{1}{1 + (t / λ(x))^{k(x)}}, \qquad \log λ(x), \log k(x) \text{ outputs of a network of } x.

    The parameters depend on x alone, so that each subject's distribution is a log-logistic distribution with median
    λ(x); the likelihood is exact. The hazard rises and then falls where k(x) > 1, and falls from the start where
    k(x) ≤ 1; the tail is heavy, and the mean is infinite where k(x) ≤ 1. Ask for medians or restricted means.

    With ``covariate_layers=(), frequencies=0, dropout=0`` it is the accelerated failure time model with a linear
    predictor for median and shape. Where k is the same for all x, odds are proportional: those of having had the
    event by t, (1 - S(t|x)) / S(t|x) = (t / λ(x))^k, differ between subjects by a factor that no t changes, so that
    effects on the hazard fade with time. ``n_members`` networks predict as their equal mixture.

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
    >>> from sumosurv import LogLogisticNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = LogLogisticNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_median(data.X[:2]).shape
    (2,)
    """

    def _network(self) -> type[LogTimeNetwork]:
        return LogLogisticNetwork

    def _start_values(self, outcome: Outcome) -> tuple[float, float]:
        return float(np.log(time_per_event(outcome) * np.log(2.0))), 0.0  # the median under a constant hazard
