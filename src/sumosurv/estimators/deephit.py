"""DeepHit as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.settings import (
    Constraints,
    Generators,
    Start,
    cause_shares,
    integer,
    number,
    one_of,
    rows_of_cause,
)
from sumosurv.model_files import as_whole
from sumosurv.networks import Encoder
from sumosurv.networks.discrete import DiscreteNetwork, Interpolation
from sumosurv.nonparametric import marginal_curve
from sumosurv.outcome import Outcome

__all__ = ["DeepHit"]


@dataclass(kw_only=True, eq=False, repr=False)
class DeepHit(NetworkEstimator):
    r"""DeepHit (Lee et al. 2018): a probability p_c(x) for each time interval.

    .. math::
        α \sum_i \Big[ d_i \log p_{c_i}(x_i) + (1 - d_i) \log \sum_{l \ge c_i} p_l(x_i) \Big]
        - (1 - α) \frac{1}{n} \sum_{i, j: d_i = 1, z_i < z_j} \exp\Big(-\frac{F(z_i|x_i) - F(z_i|x_j)}{σ}\Big)

    is maximised: the likelihood of the intervals, and a penalty on misranked pairs. c_i is the interval of z_i, and F
    is taken at its end. The last interval lies beyond the last cut, the largest training time. The ranking
    loss favours concordance over calibration: a small ``alpha`` costs likelihood, IBS and IBLL.

    Parameters
    ----------
    n_cuts : int, default 30
        Number of intervals up to the largest training time (fewer if quantiles coincide).
    cuts : {"quantile", "equidistant"}
        Cuts between which the Kaplan-Meier curve decreases by equal amounts, or evenly spaced cuts.
    alpha : float, default 0.2
        Weight of the likelihood, in (0, 1]; the ranking loss has weight 1 - alpha.
    sigma : float, default 0.25
        Scale of the ranking loss.
    interpolation : {"hazard", "density"}
        Constant hazard or constant density within an interval. Beyond the largest training time, "hazard" continues the
        last hazard; with "density", the curve is flat, and later events have density zero.
    n_members, ..., verbose
        The networks and their training, as in `SumoNet`; early stopping uses the same objective on validation rows.

    Attributes
    ----------
    cuts_ : ndarray
        Ends of the intervals, in the time unit of the data.
    n_intervals_ : int
        Number of intervals.

    Examples
    --------
    >>> from sumosurv import DeepHit, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = DeepHit(n_cuts=10, n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> len(model.cuts_), model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (10, (2, 3))
    """

    _supports_blocks: ClassVar[bool] = False  # its ranking loss compares all rows of a batch

    n_cuts: int = 30
    cuts: Literal["quantile", "equidistant"] = "quantile"
    alpha: float = 0.2
    sigma: float = 0.25
    interpolation: Interpolation = "hazard"

    _parameter_constraints: ClassVar[Constraints] = {
        "n_cuts": integer(1),
        "cuts": one_of("quantile", "equidistant"),
        "alpha": number(above=0, high=1),
        "sigma": number(above=0),
        "interpolation": one_of("hazard", "density"),
    }

    @property
    def cuts_(self) -> npt.NDArray[np.float64]:
        """Ends of the intervals, in the time unit of the data."""
        return np.array(self.stack_.learned.start["cuts"]) * self.time_unit_

    @property
    def n_intervals_(self) -> int:
        """Number of intervals."""
        return len(self.stack_.learned.start["cuts"])

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        scaled = outcome.on_time_scale(unit=unit)
        cuts = self._choose_cuts(scaled)
        share = _shares(scaled, cuts, outcome.total)
        return {"cuts": cuts.tolist(), "log_shares": np.log(share / share.sum()).tolist()}

    def _learn_causes(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        scaled = outcome.on_time_scale(unit=unit)
        cuts = self._choose_cuts(scaled.any_cause())
        parts = [_shares(rows_of_cause(scaled, k + 1), cuts, outcome.total) for k in range(outcome.n_causes)]
        share = np.concatenate([part * own for part, own in zip(parts, cause_shares(outcome))])
        return {
            "cuts": cuts.tolist(),
            "log_shares": np.log(share / share.sum()).tolist(),
            "causes": outcome.n_causes,
        }

    def _build_causes(self, start: Start, encoder: Encoder, generators: Generators) -> DiscreteNetwork:
        return self._build_network(start, encoder, generators)

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> DiscreteNetwork:
        return DiscreteNetwork(
            generators,
            encoder,
            torch.tensor(start["cuts"], dtype=torch.float64),
            torch.tensor(start["log_shares"], dtype=torch.float64),
            alpha=self.alpha,
            sigma=self.sigma,
            between=self.interpolation,
            n_causes=as_whole(start.get("causes", 1), "the number of causes", low=1),
        )

    def _choose_cuts(self, y: Outcome) -> npt.NDArray[np.float64]:
        last = y.last_time or 1.0
        even = np.linspace(0.0, last, self.n_cuts + 1)[1:]
        if self.cuts == "equidistant" or not y.had_event.any():
            return even
        curve = marginal_curve(y)
        fall = 1.0 - float(curve.survival(last)[0])
        places = curve.quantile(np.linspace(0.0, fall, self.n_cuts + 1)[1:-1])[0]
        return np.unique(np.append(places[(places > 0) & (places < last)], last))


def _shares(outcome: Outcome, cuts: npt.NDArray[np.float64], n: float) -> npt.NDArray[np.float64]:
    """Return the marginal probability of each interval and of later times; none is zero."""
    if not len(outcome):
        return np.full(len(cuts) + 1, 0.5 / n)
    survival = np.append(np.insert(marginal_curve(outcome).survival(cuts)[0], 0, 1.0), 0.0)
    return np.asarray(np.maximum(-np.diff(survival), 0.5 / n), dtype=np.float64)
