"""For networks that see features of time: which they are is learned from the training outcome."""

from __future__ import annotations

from typing import Any

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.networks.time import TimeFeatureKind
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import time_features

__all__ = ["TimeFeaturesMixin"]


class TimeFeaturesMixin(NetworkEstimator):
    """A setting ``time_features``, and the features as they were learned."""

    @property
    def time_features_(self) -> TimeFeatureKind:
        """The features in use."""
        start = self.learned_.start
        kind: TimeFeatureKind = start.get("causes", [start])[0]["time_features"]["kind"]
        return kind

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        return {"time_features": time_features(self.setting("time_features"), outcome, unit).state()}

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid setting."""
        self._check_choice("time_features", ("marginal", "log", "linear"))
        super()._check_settings()
