"""Networks whose outputs are the two parameters of a distribution; Weibull and log-normal ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from sumosurv.distributions import LogNormal, Shifted, SurvivalDistribution, Weibull
from sumosurv.networks.encoders import Encoder
from sumosurv.networks.layers import MemberLinear
from sumosurv.networks.likelihood import Curves, GridNetwork, LikelihoodNetwork

__all__ = ["LogNormalNetwork", "LogTimeNetwork", "ParametricNetwork", "WeibullNetwork"]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class ParametricNetwork(LikelihoodNetwork, GridNetwork):
    r"""A covariate network and two outputs, a(x) and b(x), that are the parameters of a family of distributions.

    A family defines ``curves``, ``log_terms_on_grid`` and ``_member``; one with a formula in log t derives from
    `LogTimeNetwork` instead.

    Parameters
    ----------
    generators : sequence of torch.Generator
        One per member, for its initial weights.
    encoder : TableEncoder or ModuleEncoder
    start : tuple of two floats
        What the outputs are at the beginning, and without covariates' say.
    """

    start: Tensor

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        encoder: Encoder,
        start: tuple[float, float],
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = MemberLinear(generators, encoder.width, 2)
        with torch.no_grad():
            self.head.weight.mul_(0.1)
        self.register_buffer("start", torch.tensor(start, dtype=torch.float32)[None, None])

    def outputs(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """The two parameters, (K, n) each."""
        both = self.head(embedding) + self.start
        return both[..., 0], both[..., 1]

    def member_distributions(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Each member's distribution of the same rows, in scaled time."""
        a, b = self.outputs(embedding)
        return [self._member(a[k], b[k]) for k in range(len(a))]

    @abstractmethod
    def _member(self, a: Tensor, b: Tensor) -> SurvivalDistribution:
        """The distribution of one member, in scaled time."""


class LogTimeCurves(Curves):
    """The curves of a batch under K networks with parameters a and b, (K, b) each."""

    def __init__(self, network: LogTimeNetwork, a: Tensor, b: Tensor) -> None:
        self.network, self.a, self.b = network, a, b

    def observed(self, t: Tensor, event: Tensor) -> Tensor:
        """d log f + (1 - d) log S."""
        log_survival, log_density, known = self._log_terms(t)
        return torch.where(event, log_density, torch.where(known, log_survival, 0.0)) - self._log_start(t)

    def log_survival(self, t: Tensor) -> Tensor:
        """log S."""
        log_survival, _, known = self._log_terms(t)
        return torch.where(known, log_survival, 0.0) - self._log_start(t)

    def _log_terms(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log S, log f and where the time is past zero: at zero itself nothing has happened yet, log S = 0."""
        later = t + self.network.offset.to(t)
        known = later > 0
        log_t = torch.log(torch.where(known, later, 1.0))
        return *self.network.log_terms(self.a, self.b, log_t), known

    def _log_start(self, t: Tensor) -> Tensor:
        """log S at the offset, where the clock of the user starts."""
        offset = self.network.offset.to(t)
        start = self.network.log_terms(self.a, self.b, torch.log(torch.where(offset > 0, offset, 1.0)))[0]
        return torch.where(offset > 0, start, 0.0)


class LogTimeNetwork(ParametricNetwork):
    r"""Location a(x) and log of a dispersion, or of its inverse, b(x), both of log T.

    The distribution is that of T + offset, given that it is larger than the offset. A family defines ``log_terms`` and
    ``_family``.

    Parameters
    ----------
    generators, encoder, start
        As in `ParametricNetwork`.
    offset : float
        In scaled time.
    """

    offset: Tensor

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        encoder: Encoder,
        start: tuple[float, float],
        offset: float,
    ) -> None:
        super().__init__(generators, encoder, start)
        self.register_buffer("offset", torch.tensor([[offset]], dtype=torch.float64))

    def curves(self, embedding: Tensor) -> LogTimeCurves:
        """The curves of rows whose covariates were read."""
        return LogTimeCurves(self, *self.outputs(embedding))

    def log_terms_on_grid(self, embedding: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """log S and log f on a grid."""
        a, b = (part[:, :, None] for part in self.outputs(embedding))
        offset = self.offset.to(t)[0]
        known = t + offset > 0
        log_survival, log_density = self.log_terms(a, b, torch.log(torch.where(known, t + offset, 1.0)))
        start = self.log_terms(a, b, torch.log(torch.where(offset > 0, offset, 1.0)))[0]
        start = torch.where(offset > 0, start, 0.0)
        log_survival = torch.where((t > 0) & known, log_survival - start, 0.0).clamp_max(0.0)
        possible = known & torch.isfinite(t)
        return log_survival, torch.where(possible, log_density - start, -math.inf)

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if an offset that was read from a file is none."""
        if self.offset.numel() != 1 or float(self.offset) < 0:
            raise ValueError("the offset is no number, or negative")

    def _member(self, a: Tensor, b: Tensor) -> SurvivalDistribution:
        made, offset = self._family(a, b), float(self.offset)
        return Shifted(made, offset) if offset > 0 else made

    @abstractmethod
    def log_terms(self, a: Tensor, b: Tensor, log_t: Tensor) -> tuple[Tensor, Tensor]:
        """log S and log f at a time given by its logarithm; (K, n) each, no decision on a value."""

    @abstractmethod
    def _family(self, a: Tensor, b: Tensor) -> SurvivalDistribution:
        """The distribution with these parameters."""


class WeibullNetwork(LogTimeNetwork):
    r"""S(t|x) = exp(-(t / e^{a(x)})^{k(x)}) with k(x) = e^{b(x)}."""

    def log_terms(self, a: Tensor, b: Tensor, log_t: Tensor) -> tuple[Tensor, Tensor]:
        """log S and log f."""
        log_hazard = torch.exp(b) * (log_t - a)  # log of the cumulative hazard
        log_survival = -torch.exp(log_hazard)
        return log_survival, b - log_t + log_hazard + log_survival

    def _family(self, a: Tensor, b: Tensor) -> Weibull:
        return Weibull(torch.exp(a), torch.exp(b))


class LogNormalNetwork(LogTimeNetwork):
    r"""log T is normal with mean a(x) and standard deviation e^{b(x)}."""

    def log_terms(self, a: Tensor, b: Tensor, log_t: Tensor) -> tuple[Tensor, Tensor]:
        """log S and log f."""
        z = (log_t - a) * torch.exp(-b)
        log_survival: Tensor = torch.special.log_ndtr(-z)
        return log_survival, -0.5 * z * z - _HALF_LOG_2PI - b - log_t

    def _family(self, a: Tensor, b: Tensor) -> LogNormal:
        return LogNormal(a, torch.exp(b))
