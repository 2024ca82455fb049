"""Networks whose outputs are the parameters of a distribution family."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import softplus

from sumosurv.distributions import Gompertz, LogLogistic, LogNormal, Remaining, SurvivalDistribution, Weibull
from sumosurv.families import LogTerms, gompertz, log_logistic, log_normal, weibull
from sumosurv.networks.encoders import Encoder
from sumosurv.networks.layers import MemberLinear
from sumosurv.networks.likelihood import Curves, GridNetwork, LikelihoodNetwork

__all__ = [
    "GompertzNetwork",
    "LogLogisticNetwork",
    "LogNormalNetwork",
    "LogTimeNetwork",
    "ParametricNetwork",
    "WeibullNetwork",
]


class ParametricNetwork(LikelihoodNetwork, GridNetwork):
    r"""A covariate network and two outputs, a(x) and b(x), that are the parameters of a family of distributions.

    A family defines ``log_terms`` and ``_member``.

    Parameters
    ----------
    generators : sequence of torch.Generator
        One per member, for its initial weights.
    encoder : TableEncoder or ModuleEncoder
    start : tuple of two floats
        The outputs before training, and for a row whose covariates have no effect.
    """

    start: Tensor

    def __init__(self, generators: Sequence[torch.Generator], encoder: Encoder, start: tuple[float, float]) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = MemberLinear(generators, encoder.width, 2)
        with torch.no_grad():
            self.head.weight.mul_(0.1)
        self.register_buffer("start", torch.tensor(start, dtype=torch.float32)[None, None])

    def outputs(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two parameters, (K, n) each."""
        both = self.head(embedding) + self.start
        return both[..., 0], both[..., 1]

    def curves(self, embedding: Tensor) -> ParametricCurves:
        """Return the curves of rows with these embeddings."""
        return ParametricCurves(self, *self.outputs(embedding))

    def log_terms_on_grid(self, embedding: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S and log f on a grid."""
        a, b = (part[:, :, None] for part in self.outputs(embedding))
        return self.log_terms(a, b, t)[:2]

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
    """The curves of a batch under K networks with outputs a and b, (K, b) each."""

    def __init__(self, network: ParametricNetwork, a: Tensor, b: Tensor) -> None:
        self.network, self.a, self.b = network, a, b

    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t)."""
        return self.network.log_terms(self.a, self.b, t)[:2]


class LogTimeNetwork(ParametricNetwork):
    r"""Location a(x) and log of a dispersion, or of its inverse, b(x), both of log T.

    The distribution is that of T + offset, given that it is larger than the offset.

    Parameters
    ----------
    generators, encoder, start
        As in `ParametricNetwork`.
    offset : float
        In scaled time.
    """

    formula: staticmethod[[Tensor, Tensor, Tensor], LogTerms]  # of `sumosurv.families`
    offset: Tensor

    def __init__(
        self, generators: Sequence[torch.Generator], encoder: Encoder, start: tuple[float, float], offset: float
    ) -> None:
        super().__init__(generators, encoder, start)
        self.register_buffer("offset", torch.tensor([[offset]], dtype=torch.float64))

    def log_terms(self, a: Tensor, b: Tensor, t: Tensor) -> LogTerms:
        """Evaluate the formula of the family at t + offset, given survival up to the offset."""
        offset = self.offset.to(t)
        # an event at time zero, or at a time that single precision rounds to zero, keeps a finite likelihood
        later = self.formula(a, b, (t + offset).clamp_min(torch.finfo(t.dtype).tiny))
        log_start = self.formula(a, b, offset).survival
        # S(0) = 1 to the last bit
        log_survival = torch.where(t > 0, later.survival - log_start, 0.0)
        return LogTerms(log_survival, later.density - log_start, later.hazard)

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored offset is invalid."""
        if self.offset.numel() != 1 or float(self.offset) < 0:
            raise ValueError("the offset must be one number, zero or more")

    def _member(self, a: Tensor, b: Tensor) -> SurvivalDistribution:
        made, offset = self._unshifted(a, b), float(self.offset)
        return Remaining(made, offset) if offset > 0 else made

    @abstractmethod
    def _unshifted(self, a: Tensor, b: Tensor) -> SurvivalDistribution:
        """Return the distribution of T + offset."""


class WeibullNetwork(LogTimeNetwork):
    r"""S(t|x) = exp(-(t / e^{a(x)})^{k(x)}) with k(x) = e^{b(x)}."""

    formula = staticmethod(weibull)

    def _unshifted(self, a: Tensor, b: Tensor) -> Weibull:
        return Weibull(torch.exp(a), torch.exp(b))


class LogNormalNetwork(LogTimeNetwork):
    r"""log T is normal with mean a(x) and standard deviation e^{b(x)}."""

    formula = staticmethod(log_normal)

    def _unshifted(self, a: Tensor, b: Tensor) -> LogNormal:
        return LogNormal(a, torch.exp(b))


class LogLogisticNetwork(LogTimeNetwork):
    r"""S(t|x) = 1 / (1 + (t / e^{a(x)})^{k(x)}) with k(x) = e^{b(x)}."""

    formula = staticmethod(log_logistic)

    def _unshifted(self, a: Tensor, b: Tensor) -> LogLogistic:
        return LogLogistic(torch.exp(a), torch.exp(b))


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
        return gompertz(a, softplus(b), t, self.centre.to(t))

    def _member(self, a: Tensor, b: Tensor) -> Gompertz:
        rate = softplus(b).clamp_min(torch.finfo(b.dtype).tiny)  # positive also if e^b underflows
        return Gompertz(torch.exp(a - rate * self.centre[0].to(a)), rate)
