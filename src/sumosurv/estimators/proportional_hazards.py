"""Proportional hazards by networks, with the likelihood of the times themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.method import Generators
from sumosurv.networks import Encoder
from sumosurv.networks.parametric import ProportionalHazardsNetwork
from sumosurv.networks.time import TimeFeatures
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import time_features

__all__ = ["ProportionalHazardsNet"]


@dataclass(kw_only=True, eq=False, repr=False)
class ProportionalHazardsNet(NetworkEstimator):
    r"""Proportional hazards: the log risk from covariates by a network, a smooth baseline from all training rows.

    .. math:: Λ(t|x) = e^{r(x)} (H(t)^p - H(0)^p),

    with H the smoothed cumulative hazard of all training rows and p learned. Unlike `DeepSurv` it is trained on the
    likelihood of the times themselves, has a density, and learns from intervals. It is a component of `SumoNet`.
    """

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        return {"time_features": time_features("marginal", outcome, unit).state()}

    def _build_network(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> ProportionalHazardsNetwork:
        return ProportionalHazardsNetwork(generators, encoder, TimeFeatures.from_state(start["time_features"]))
