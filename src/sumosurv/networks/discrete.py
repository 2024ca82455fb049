"""DeepHit: a probability for each interval of time, trained on likelihood and ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from sumosurv.distributions import Mixture, SurvivalDistribution, Tabulated
from sumosurv.networks.data import Batch, Inputs
from sumosurv.networks.encoders import Encoder
from sumosurv.networks.layers import MemberLinear
from sumosurv.networks.population import PopulationNetwork
from sumosurv.networks.risk import check_increasing

__all__ = ["DiscreteNetwork", "Interpolation", "discrete_log_likelihood", "ranking_loss"]

Interpolation = Literal["hazard", "density"]

_SMALLEST = 1e-30  # of a survival probability, for constant hazards


def discrete_log_likelihood(log_p: Tensor, cell: Tensor, event: Tensor) -> Tensor:
    r"""log p_c of an event in interval c; log Σ_{l >= c} p_l of a row censored in it (known to be alive at its start).

    Parameters
    ----------
    log_p : Tensor of shape (K, b, m + 1)
        Log-probabilities of the intervals, the last one past all cuts.
    cell, event : Tensor of shape (K, b)
    """
    tail = log_p.flip(2).logcumsumexp(2).flip(2)
    return torch.where(event, log_p.gather(2, cell[..., None])[..., 0], tail.gather(2, cell[..., None])[..., 0])


def ranking_loss(cdf: Tensor, time: Tensor, cell: Tensor, event: Tensor, present: Tensor, sigma: float) -> Tensor:
    r"""Row i's share of DeepHit's ranking loss, (1/b) Σⱼ 1{dᵢ = 1, zᵢ < zⱼ} exp(-(F(zᵢ|xᵢ) - F(zᵢ|xⱼ)) / σ).

    F at the end of i's interval; b is the number of rows present.

    Parameters
    ----------
    cdf : Tensor of shape (K, b, m + 1)
    time, cell, event, present : Tensor of shape (K, b)
    """
    members, b = cell.shape
    at = cell[:, None, :].expand(members, b, b)
    others = cdf.gather(2, at).transpose(1, 2)  # (K, i, j): F of j at the time of i
    own = cdf.gather(2, cell[..., None])
    pairs = (event & present)[:, :, None] & present[:, None, :] & (time[:, :, None] < time[:, None, :])
    return (pairs * torch.exp((others - own) / sigma)).sum(2) / present.sum(1, keepdim=True).clamp_min(1)


class DiscreteNetwork(PopulationNetwork):
    r"""Softmax over intervals of time from covariates, for K members at once.

    Parameters
    ----------
    generators : sequence of torch.Generator
    encoder : TableEncoder or ModuleEncoder
    cuts : Tensor of shape (m,)
        Ends of the intervals, in scaled time, increasing; the first begins at 0, the last is open.
    alpha : float
        Weight of the likelihood; 1 - alpha that of the ranking.
    sigma : float
        Scale of the ranking loss.
    between : {"hazard", "density"}
        The curve inside an interval: constant hazard or constant density.
    start : Tensor of shape (m + 1,)
        Log-probabilities of the intervals without covariates.
    """

    terms_are_likelihoods = False
    validation_rows = 256
    cuts: Tensor
    start: Tensor

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        encoder: Encoder,
        cuts: Tensor,
        start: Tensor,
        *,
        alpha: float,
        sigma: float,
        between: Interpolation,
    ) -> None:
        super().__init__()
        self.encoder, self.alpha, self.sigma = encoder, alpha, sigma
        self.between: Interpolation = between
        self.head = MemberLinear(generators, encoder.width, len(cuts) + 1)
        with torch.no_grad():
            self.head.weight.mul_(0.1)
        self.register_buffer("cuts", cuts.double()[None])
        self.register_buffer("start", start.double()[None, None])

    def forward(self, inputs: Inputs) -> Tensor:
        """Log-probabilities of the intervals, (K, n, m + 1)."""
        raw = self.head(self.encoder(inputs))
        return torch.log_softmax(raw + self.start.to(raw), dim=2)

    def cell(self, t: Tensor) -> Tensor:
        """The interval of each time: c with cut_{c-1} < t <= cut_c."""
        if len(self.cuts) == 1:
            return torch.searchsorted(self.cuts[0].to(t), t.contiguous())
        return torch.searchsorted(self.cuts.to(t).contiguous(), t.contiguous())

    def terms(self, batch: Batch) -> Tensor:
        """α · log-likelihood - (1 - α) · ranking loss, per row."""
        log_p = self(batch.inputs)
        time, event = batch.outcome.time, batch.outcome.event
        cell = self.cell(time)
        terms = self.alpha * discrete_log_likelihood(log_p, cell, event)
        if self.alpha == 1.0:
            return terms
        cdf = torch.exp(log_p).cumsum(2)
        rank = ranking_loss(cdf, time, cell, event, batch.present, self.sigma)
        return terms - (1.0 - self.alpha) * rank

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if cuts that were read from a file are none."""
        check_increasing(self.cuts, "the cuts")
        if self.cuts.shape[1] == 0 or self.start.shape[2] != self.cuts.shape[1] + 1:
            raise ValueError(f"{self.cuts.shape[1]} cuts and {self.start.shape[2]} intervals")

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """The equal mixture of the members' curves, in scaled time."""
        log_p = self(inputs.shared())
        tail = log_p.flip(2).logcumsumexp(2).flip(2)[:, :, 1:]  # log S at the cuts
        survival = torch.exp(tail).clamp(_SMALLEST if self.between == "hazard" else 0.0, 1.0)
        survival = torch.cummin(survival, dim=2).values  # rounding
        parts = [Tabulated(self.cuts[0], part, between=self.between) for part in survival]
        return parts[0] if len(parts) == 1 else Mixture(parts)
