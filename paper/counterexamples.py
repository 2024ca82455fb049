"""The paper's three counterexamples: data, the true distribution, and a false one that some scores prefer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions import SurvivalDistribution, Tabulated, Weibull
from sumosurv.outcome import Surv
from sumosurv.scores.crps import crps_integrals

__all__ = ["Counterexample", "FailsAt", "example_1", "example_1_curves", "example_2", "example_3"]

_RAMP = 1e-9  # width of the ramps that stand for jumps: they keep S continuous and the density zero elsewhere


@dataclass(frozen=True)
class Counterexample:
    """Outcomes drawn from ``truth`` under censoring, and a distribution that is ``false``, for the same subjects."""

    y: Any
    truth: SurvivalDistribution
    false: SurvivalDistribution


class FailsAt(SurvivalDistribution):
    r"""min(T, at): everyone still event-free fails at that time, S(t) = S₀(t) 1{t < at}.

    Parameters
    ----------
    base : SurvivalDistribution
    at : float
        At this very time ``log_density`` is the log of the probability mass there.
    """

    def __init__(self, base: SurvivalDistribution, at: float) -> None:
        self.base, self.at = base, float(at)

    def __len__(self) -> int:
        return len(self.base)

    @property
    def _like(self) -> Tensor:
        return self.base._like

    def _take(self, rows: Tensor) -> FailsAt:
        return FailsAt(self.base._take(rows), self.at)

    def _log_survival(self, t: Tensor) -> Tensor:
        return torch.where(t < self.at, self.base._log_survival(t), -math.inf)

    def _log_density(self, t: Tensor) -> Tensor:
        mass = self.base._log_survival(torch.full_like(t, self.at))
        after = torch.where(t == self.at, mass, -math.inf)
        return torch.where(t < self.at, self.base._log_density(t), after)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self.base._restricted_mean(horizon.clamp_max(self.at))


@crps_integrals.register
def _(distribution: FailsAt, z: Any) -> tuple[Any, Any]:
    end = np.full_like(z, distribution.at)
    below, above = crps_integrals(distribution.base, np.minimum(z, end))
    return below + np.maximum(z - end, 0.0), above - crps_integrals(distribution.base, end)[1]


def _outcome(event_time: Any, censoring_time: Any) -> Any:
    return Surv.from_arrays(event_time <= censoring_time, np.minimum(event_time, censoring_time))


def example_1_curves() -> tuple[Tabulated, Tabulated]:
    """(true, false) curves of Example 1, for X = 0 and X = 1.

    True: T = K + U for X = 0 and K + U + 1 for X = 1, K uniform on {0, 2, 4, 6, 8}, U on [0, 1], so that the two
    hazards are nonzero on disjoint unit intervals. False: whoever has the nonzero hazard has the lower curve. The paper
    does not print its curves; here they step down by turns, through the levels 0.9, 0.8, ..., 0.
    """
    knots = np.arange(11.0)
    x0 = 1.0 - np.ceil(knots / 2) / 5
    true = Tabulated(knots, [x0, np.concatenate([[1.0], x0[:-1]])], between="density")
    steps = np.arange(10.0)
    levels = 1.0 - (steps + 1.0) / 10.0  # after the step at time 0, 1, ..., 9
    turns = np.stack([steps % 2 == 0, steps % 2 == 1])
    after = np.array([[min([1.0, *levels[: k + 1][turn[: k + 1]]]) for k in range(10)] for turn in turns])
    times = np.column_stack([steps, steps + _RAMP]).ravel()
    before = np.column_stack([np.ones(2), after[:, :-1]])
    table = np.stack([before, after], axis=2).reshape(2, -1)
    end = [10.0, 10.0 + _RAMP]  # what is left for X = 0 goes at 10
    false = Tabulated([*times, *end], np.column_stack([table, table[:, -1], np.zeros(2)]), between="density")
    return true, false


def example_1(n: int = 1000, seed: int = 0) -> Counterexample:
    """Appendix 1.2, time-dependent concordance: censoring exponential with mean 20, X a fair coin."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, n)
    t = rng.choice([0.0, 2.0, 4.0, 6.0, 8.0], n) + rng.random(n) + x
    true, false = example_1_curves()
    return Counterexample(_outcome(t, rng.exponential(20.0, n)), true[x], false[x])


def example_2(n: int = 1_000_000, seed: int = 0, share: float = 0.1) -> Counterexample:
    """Appendix 1.3, Brier score: X ~ Bernoulli(0.1); C ~ Exp(1) if X = 0, never if X = 1; T exponential with mean 10.

    The false distribution has mean 4 where X = 0. ``share`` is P(X = 1).
    """
    rng = np.random.default_rng(seed)
    x = rng.random(n) < share
    t, c = rng.exponential(10.0, n), np.where(x, np.inf, rng.exponential(1.0, n))
    return Counterexample(_outcome(t, c), Weibull(np.full(n, 10.0), 1.0), Weibull(np.where(x, 10.0, 4.0), 1.0))


def example_3(n: int = 1_000_000, seed: int = 0) -> Counterexample:
    """Appendix 1.4.2, survival-CRPS: T exponential with mean 100, all failing at 200; C exponential with mean 10.

    The false distribution is exponential with mean 25.
    """
    rng = np.random.default_rng(seed)
    t, c = np.minimum(rng.exponential(100.0, n), 200.0), rng.exponential(10.0, n)
    truth = FailsAt(Weibull(np.full(n, 100.0), 1.0), 200.0)
    return Counterexample(_outcome(t, c), truth, Weibull(np.full(n, 25.0), 1.0))
