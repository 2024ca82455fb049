"""What estimators share whose networks are right-hand sides of ordinary differential equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.distributions.ode import clock
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.parameters import Constraints, integer, one_of, widths
from sumosurv.networks.solvers import Gradient, Solver
from sumosurv.outcome import Outcome

__all__ = ["OdeEstimator"]

_OFFSET = 0.01  # c of the logarithmic clock, scaled time


@dataclass(kw_only=True, eq=False, repr=False)
class OdeEstimator(NetworkEstimator):
    """A population of networks whose likelihood takes a differential equation to solve."""

    hazard_layers: Sequence[int] = (32,)
    clock: Literal["log", "linear"] = "log"
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
        "clock": one_of("log", "linear"),
        "solver": one_of("rk4", "dopri5"),
        "steps": integer(1),
        "gradient": one_of("direct", "adjoint"),
    }

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        scaled = outcome.at_midpoints().on_clock(unit=unit)
        at_risk = self._on_own_clock(scaled.time)
        if scaled.entry is not None:
            at_risk = at_risk - self._on_own_clock(scaled.entry)
        weight = 1.0 if scaled.weight is None else torch.from_numpy(scaled.weight)
        events = float((weight * torch.from_numpy(scaled.event)).sum())
        rate = max(events, 0.5) / max(float((weight * at_risk).sum()), 1e-3)
        return {"rate": min(max(rate, 1e-6), 1e6)}

    def _on_own_clock(self, times: npt.NDArray[np.float64]) -> torch.Tensor:
        return clock(torch.from_numpy(times), self._clock_offset())

    def _clock_offset(self) -> float | None:
        return _OFFSET if self.clock == "log" else None

    def _options(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """What the network must know beside its sizes."""
        return {
            "rate": start["rate"],
            "offset": self._clock_offset(),
            "solver": self.solver,
            "steps": int(self.steps),
            "gradient": self.gradient,
        }

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid setting."""
        super()._check_settings()
        if self.solver == "rk4" and self.gradient == "adjoint":
            raise ValueError(
                "gradient='adjoint' is for solver='dopri5'; the steps of 'rk4' are differentiated directly."
            )
