"""Networks of proportional hazards whose baseline has the shape of the hazard of all training rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from sumosurv.distributions import ProportionalHazards, SurvivalDistribution
from sumosurv.families import proportional_hazards
from sumosurv.networks.data import Batch
from sumosurv.networks.encoders import Encoder
from sumosurv.networks.layers import MemberLinear
from sumosurv.networks.likelihood import Curves, GridNetwork, LikelihoodNetwork
from sumosurv.networks.time import TimeFeatures

__all__ = ["LogMarginalHazard", "ProportionalHazardsNetwork"]

_TINY = -15.0  # below it log(softplus(u)) is u to the last digit of single precision


class LogMarginalHazard(nn.Module):
    r"""c(t) = log H(t) and log c'(t), with H the cumulative hazard of all training rows taken together.

    From the "marginal" feature of time, ½ logit F: H = -log(1 - F). Features that have none (there were too few
    events) give c(t) = log(t + 0.001), a constant hazard.
    """

    def __init__(self, features: TimeFeatures) -> None:
        super().__init__()
        self.features = features

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Of times (K or 1, n or 1, m)."""
        value, slope = self.features(t)
        if self.features.kind != "marginal":
            return value[..., 1], torch.log(slope[..., 1])
        odds, rate = 2.0 * value[..., 2], 2.0 * slope[..., 2]
        near = torch.log(functional.softplus(odds.clamp_min(_TINY)))
        log_hazard = torch.where(odds > _TINY, near, odds)
        return log_hazard, torch.log(rate) + functional.logsigmoid(odds) - log_hazard


class ProportionalHazardsCurves(Curves):
    """The curves of a batch under K networks with log risks (K, b)."""

    def __init__(self, network: ProportionalHazardsNetwork, log_risk: Tensor) -> None:
        self.network, self.log_risk = network, log_risk
        self._known: tuple[Tensor, Tensor, Tensor] | None = None

    def of_rows(self, batch: Batch) -> None:
        """Look up the baseline at the times of rows of a table, where all members share it."""
        baseline = self.network.baseline
        if len(baseline.features.table) == 1 and self.log_risk.device.type == "cpu":
            every = batch.table.remembered(baseline, self._baseline_of)
            log_hazard, log_slope = every[batch.index].unbind(2)
            self._known = log_hazard, log_slope, every[None, -1:, 0]

    def observed(self, t: Tensor, event: Tensor) -> Tensor:
        """Return log f(t) for events and log S(t) for censored rows."""
        log_survival, log_density = self.log_terms(t) if self._known is None else self._with_baseline(*self._known)
        return torch.where(event, log_density, log_survival)

    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t)."""
        baseline = self.network.baseline
        log_hazard, log_slope = (part[:, :, 0] for part in baseline(t[:, :, None]))
        return self._with_baseline(log_hazard, log_slope, baseline(t.new_zeros(1, 1, 1))[0][:, :, 0])

    def _with_baseline(self, log_hazard: Tensor, log_slope: Tensor, log_start: Tensor) -> tuple[Tensor, Tensor]:
        return proportional_hazards(self.log_risk, self.network.log_power, log_hazard, log_slope, log_start)[:2]

    def _baseline_of(self, times: Tensor) -> Tensor:
        """c and log c' of each of the times, and below them those of time zero."""
        both = self.network.baseline(torch.cat([times, times.new_zeros(1)])[None, :, None])
        return torch.cat([part[0] for part in both], dim=1)


class ProportionalHazardsNetwork(LikelihoodNetwork, GridNetwork):
    r"""Λ(t|x) = e^{r(x)} (H(t)^p - H(0)^p): a log risk by a covariate network, the shape from all rows.

    Parameters
    ----------
    generators : sequence of torch.Generator
        One per member, for its initial weights.
    encoder : TableEncoder or ModuleEncoder
    features : TimeFeatures
        Of which H is made. The power p of each member is learned.
    """

    def __init__(self, generators: Sequence[torch.Generator], encoder: Encoder, features: TimeFeatures) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = MemberLinear(generators, encoder.width, 1)
        with torch.no_grad():
            self.head.weight.mul_(0.1)
        self.baseline = LogMarginalHazard(features)
        self.log_power = nn.Parameter(torch.zeros(len(generators), 1))

    def curves(self, embedding: Tensor) -> ProportionalHazardsCurves:
        """The curves of rows whose covariates were read."""
        return ProportionalHazardsCurves(self, self.head(embedding)[:, :, 0])

    def log_terms_on_grid(self, embedding: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """log S and log f on a grid."""
        start = self.baseline(t.new_zeros(1, 1, 1))[0]
        log_hazard, log_slope = self.baseline(t[None, None])
        # at zero the two are the same to the last bit: a huge risk would make much of a small difference
        log_hazard = torch.where(t > 0, log_hazard, start)
        log_power = self.log_power[:, :, None]
        return proportional_hazards(self.head(embedding), log_power, log_hazard, log_slope, start)[:2]

    def member_distributions(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Each member's distribution of the same rows, in scaled time."""
        breaks = tuple(time for time in self.baseline.features.breaks() if time > 0)
        return [
            ProportionalHazards(self._log_baseline, log_risk, power[0], breaks)
            for log_risk, power in zip(self.head(embedding)[:, :, 0], self.log_power)
        ]

    def _log_baseline(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """c(t) and log c'(t) of times of two axes."""
        log_hazard, log_slope = self.baseline(t[None])
        return log_hazard[0], log_slope[0]
