"""Networks whose outputs are the parameters of a distribution family, and proportional hazards networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import softplus

from sumosurv.distributions import Gompertz, ProportionalHazards, Remaining, SurvivalDistribution
from sumosurv.distributions.parametric import Parametric
from sumosurv.families import LogTerms, gompertz, proportional_hazards
from sumosurv.networks.encoders import Batch, Encoder, take_rows
from sumosurv.networks.layers import MemberLinear, TimeFeatures
from sumosurv.networks.population import Curves, LikelihoodNetwork


class ParametricNetwork(LikelihoodNetwork):
    r"""A covariate network with two outputs, a(x) and b(x), the parameters of a distribution family.

    Subclasses define ``log_terms`` and ``_member``.

    Parameters
    ----------
    generators : sequence of torch.Generator
        One per member, for its initial weights.
    encoder : TableEncoder or ModuleEncoder
    start : tuple of two floats
        Constants added to the two outputs: the parameters if covariates have no effect.
    """

    start: Tensor

    def __init__(self, generators: Sequence[torch.Generator], encoder: Encoder, start: tuple[float, float]) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = MemberLinear(generators, encoder.width, 2, scale=0.1)
        self.register_buffer("start", torch.tensor(start, dtype=torch.float32)[None, None])

    def outputs(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two parameters, (K, n) each."""
        both = self.head(embedding) + self.start
        return both[..., 0], both[..., 1]

    def curves(self, embedding: Tensor, batch: Batch | None = None) -> ParametricCurves:
        """Return the curves of rows with these embeddings."""
        a, b = (part[:, :, None] for part in self.outputs(embedding))
        return ParametricCurves(self, a, b)

    def member_distributions(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Return each member's distribution of the same rows, in scaled time."""
        a, b = self.outputs(embedding)
        return [self._member(a[k], b[k]) for k in range(len(a))]

    @abstractmethod
    def log_terms(self, a: Tensor, b: Tensor, t: Tensor) -> LogTerms:
        """Evaluate the formula at scaled times; outputs and times broadcast."""

    @abstractmethod
    def _member(self, a: Tensor, b: Tensor) -> SurvivalDistribution:
        """Return the distribution of one member with outputs (n,), in scaled time."""


class ParametricCurves(Curves):
    """The curves of rows under K networks with outputs a and b, (K, n, 1) each."""

    def __init__(self, network: ParametricNetwork, a: Tensor, b: Tensor) -> None:
        self.network, self.a, self.b = network, a, b

    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t)."""
        return self.network.log_terms(self.a, self.b, t)[:2]


class LogTimeNetwork(ParametricNetwork):
    r"""log T has location a(x), and b(x) is the logarithm of its scale or of the inverse of its scale.

    The family is that of T + offset, given that T + offset exceeds the offset.

    Parameters
    ----------
    family : type
        A distribution with two parameters, such as `Weibull`; a(x) and b(x) are the arguments of its formula.
    generators, encoder, start
        As in `ParametricNetwork`.
    offset : float
        In scaled time.
    """

    offset: Tensor

    def __init__(
        self,
        family: type[Parametric],
        generators: Sequence[torch.Generator],
        encoder: Encoder,
        start: tuple[float, float],
        offset: float,
    ) -> None:
        super().__init__(generators, encoder, start)
        self.family = family
        self.register_buffer("offset", torch.tensor([[offset]], dtype=torch.float64))

    def log_terms(self, a: Tensor, b: Tensor, t: Tensor) -> LogTerms:
        """Evaluate the formula of the family at t + offset, given survival up to the offset."""
        offset = self.offset.to(t)[:, :, None]
        # a finite likelihood also for an event at time zero, or at a time that single precision rounds to zero
        later = self.family.formula(a, b, (t + offset).clamp_min(torch.finfo(t.dtype).tiny))
        log_start = self.family.formula(a, b, offset).survival
        # S(0) = 1 exactly
        log_survival = torch.where(t > 0, later.survival - log_start, 0.0)
        return LogTerms(log_survival, later.density - log_start, later.hazard)

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored offset is invalid."""
        if self.offset.numel() != 1 or float(self.offset) < 0:
            raise ValueError("the offset must be one number, zero or more")

    def _member(self, a: Tensor, b: Tensor) -> SurvivalDistribution:
        made, offset = self.family.from_formula(a, b), float(self.offset)
        return Remaining(made, offset) if offset > 0 else made


class GompertzNetwork(ParametricNetwork):
    r"""λ(t|x) = exp(a(x) + r(x) (t - c)) with r(x) = log(1 + e^{b(x)}): a is the log-hazard at time c.

    The log-hazard at time zero, a - r·c, depends strongly on the rate if rows are far from time zero; the log-hazard
    at a time c amid the events hardly does, so that the two outputs can be learned independently.

    Parameters
    ----------
    generators, encoder, start
        As in `ParametricNetwork`.
    centre : float
        c, in scaled time.
    """

    centre: Tensor

    def __init__(
        self, generators: Sequence[torch.Generator], encoder: Encoder, start: tuple[float, float], centre: float
    ) -> None:
        super().__init__(generators, encoder, start)
        self.register_buffer("centre", torch.tensor([[centre]], dtype=torch.float64))

    def log_terms(self, a: Tensor, b: Tensor, t: Tensor) -> LogTerms:
        """Evaluate the Gompertz formula."""
        return gompertz(a, softplus(b), t, self.centre.to(t)[:, :, None])

    def _member(self, a: Tensor, b: Tensor) -> Gompertz:
        rate = softplus(b).clamp_min(torch.finfo(b.dtype).tiny)  # positive also if e^b underflows
        return Gompertz(torch.exp(a - rate * self.centre[0].to(a)), rate)


_TINY = -15.0  # below it, log(softplus(u)) equals u in single precision


class LogMarginalHazard(nn.Module):
    r"""c(t) = log H(t) and log c'(t), with H the marginal cumulative hazard of the training rows.

    H = -log(1 - F), with F from the "marginal" time feature, ½ logit F. Without this feature (if there were too few
    events), c(t) = log(t + 0.001), a constant hazard.
    """

    def __init__(self, features: TimeFeatures) -> None:
        super().__init__()
        self.features = features

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return c and log c' at times (K or 1, n or 1, m)."""
        value, slope = self.features(t)
        if self.features.kind != "marginal":
            return value[..., 1], torch.log(slope[..., 1])
        odds, rate = 2.0 * value[..., 2], 2.0 * slope[..., 2]
        near = torch.log(functional.softplus(odds.clamp_min(_TINY)))
        log_hazard = torch.where(odds > _TINY, near, odds)
        return log_hazard, torch.log(rate) + functional.logsigmoid(odds) - log_hazard


class ProportionalHazardsCurves(Curves):
    """The curves of rows under K networks with log risks (K, n, 1)."""

    def __init__(self, network: ProportionalHazardsNetwork, log_risk: Tensor, batch: Batch | None) -> None:
        self.network, self.log_risk, self.log_power = network, log_risk, network.log_power[:, :, None]
        self._known: tuple[Tensor, Tensor, Tensor] | None = None
        baseline = network.baseline
        if batch is not None and len(baseline.features.table) == 1 and log_risk.device.type == "cpu":
            every = batch.table.remembered(baseline, network.baseline_of)
            log_hazard, log_slope = torch.split(take_rows(every, batch.index), 1, dim=2)
            self._known = log_hazard, log_slope, every[None, -1:, :1]

    def observed(self, t: Tensor, event: Tensor) -> Tensor:
        """Return log f(t) for events and log S(t) for censored rows."""
        log_survival, log_density = self.log_terms(t) if self._known is None else self._with_baseline(*self._known)
        return torch.where(event, log_density, log_survival)

    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t)."""
        start = self.network.baseline(t.new_zeros(1, 1, 1))[0]
        log_hazard, log_slope = self.network.baseline(t)
        # the two must be equal at time zero: a huge risk would amplify a rounding error
        return self._with_baseline(torch.where(t > 0, log_hazard, start), log_slope, start)

    def _with_baseline(self, log_hazard: Tensor, log_slope: Tensor, log_start: Tensor) -> tuple[Tensor, Tensor]:
        return proportional_hazards(self.log_risk, self.log_power, log_hazard, log_slope, log_start)[:2]


class ProportionalHazardsNetwork(LikelihoodNetwork):
    r"""Λ(t|x) = e^{r(x)} (H(t)^p - H(0)^p): log risk r from the covariate network, shape H from all rows.

    Parameters
    ----------
    generators : sequence of torch.Generator
        One per member, for its initial weights.
    encoder : TableEncoder or ModuleEncoder
    features : TimeFeatures
        Time features, from which H is computed. The power p of each member is learned.
    """

    def __init__(self, generators: Sequence[torch.Generator], encoder: Encoder, features: TimeFeatures) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = MemberLinear(generators, encoder.width, 1, scale=0.1)
        self.baseline = LogMarginalHazard(features)
        self.log_power = nn.Parameter(torch.zeros(len(generators), 1))

    def curves(self, embedding: Tensor, batch: Batch | None = None) -> ProportionalHazardsCurves:
        """Return the curves of rows with these embeddings."""
        return ProportionalHazardsCurves(self, self.head(embedding), batch)

    def member_distributions(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Each member's distribution of the same rows, in scaled time."""
        breaks = tuple(time for time in self.baseline.features.breaks() if time > 0)
        return [
            ProportionalHazards(self._log_baseline, log_risk, power[0], breaks)
            for log_risk, power in zip(self.head(embedding)[:, :, 0], self.log_power)
        ]

    def baseline_of(self, times: Tensor) -> Tensor:
        """Return c and log c' at each time and, in the last row, at time zero."""
        both = self.baseline(torch.cat([times, times.new_zeros(1)])[None, :, None])
        return torch.cat([part[0] for part in both], dim=1)

    def _log_baseline(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return c(t) and log c'(t) for times (n or 1, m)."""
        log_hazard, log_slope = self.baseline(t[None])
        return log_hazard[0], log_slope[0]
