"""DeepHit: a probability for each time interval, trained on likelihood and ranking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from sumosurv.distributions import Mixture, SurvivalDistribution, Tabulated
from sumosurv.networks.encoders import Batch, Encoder, Inputs, Observed
from sumosurv.networks.layers import MemberLinear
from sumosurv.networks.population import PopulationNetwork
from sumosurv.networks.risk import check_increasing

Interpolation = Literal["hazard", "density"]

_SMALLEST = 1e-30  # smallest survival probability, if hazards are constant within intervals


def discrete_log_likelihood(log_p: Tensor, cell: Callable[[Tensor], Tensor], outcome: Observed) -> Tensor:
    r"""Return log p_c for an event in interval c, log Σ_{l >= c} p_l for a row censored in it (alive at its start).

    An event between two times has the total probability of the intervals from the first time to the second. With
    delayed entry, a row is alive at the start of the interval of its entry, so the terms of the spells of one subject
    add up to the term of one row.

    Parameters
    ----------
    log_p : Tensor of shape (K, b, causes, m + 1)
        Log-probabilities of the intervals of each cause; the last interval lies beyond all cuts.
    cell : callable
        Returns the interval of each time.
    outcome : Observed
        Of shape (K, b).
    """
    n_causes = log_p.shape[2]
    of_any = log_p[:, :, 0] if n_causes == 1 else torch.logsumexp(log_p, dim=2)
    of_own = log_p[:, :, 0] if n_causes == 1 else _of_cause(log_p, outcome)
    tail = of_any.flip(2).logcumsumexp(2).flip(2)
    first = cell(outcome.time)
    terms = torch.where(outcome.event, _at(of_own, first), _at(tail, first))
    if outcome.upper is not None:
        inside = torch.isfinite(outcome.upper) & ~outcome.event
        last = cell(torch.where(inside, outcome.upper, outcome.time))
        places = torch.arange(of_own.shape[2], device=of_own.device)
        touched = (places >= first[..., None]) & (places <= last[..., None])
        terms = torch.where(inside, torch.logsumexp(torch.where(touched, of_own, -torch.inf), dim=2), terms)
    return terms if outcome.entry is None else terms - _at(tail, cell(outcome.entry))


def _at(values: Tensor, cell: Tensor) -> Tensor:
    """Select the value of each row's interval: (K, b, m + 1) and (K, b) to (K, b)."""
    return values.gather(2, cell[..., None])[..., 0]


def _of_cause(values: Tensor, outcome: Observed) -> Tensor:
    """Select the values of each row's cause, or of the first cause if it is censored: (K, b, m + 1)."""
    assert outcome.cause is not None
    members, b, _, m = values.shape
    own = (outcome.cause - 1).clamp_min(0)[..., None, None].expand(members, b, 1, m)
    return values.gather(2, own)[:, :, 0]


def ranking_loss(cdf: Tensor, cell: Tensor, outcome: Observed, present: Tensor, sigma: float) -> Tensor:
    r"""Row i's term of DeepHit's ranking loss, (1/b) Σⱼ 1{dᵢ = 1, zᵢ < zⱼ} exp(-(F(zᵢ|xᵢ) - F(zᵢ|xⱼ)) / σ).

    F is the incidence of i's cause at the end of i's interval, and b the number of rows present. A row j that has not
    entered by zᵢ forms no pair with i.

    Parameters
    ----------
    cdf : Tensor of shape (K, b, causes, m + 1)
    cell, present : Tensor of shape (K, b)
    outcome : Observed
    """
    members, b, n_causes, m = cdf.shape
    time, flat = outcome.time, cdf.reshape(members, b, n_causes * m)
    place = cell if outcome.cause is None else cell + m * (outcome.cause - 1).clamp_min(0)
    others = _of_all(flat, place)  # (K, i, j): F of j at i's time
    own = flat.gather(2, place[..., None])
    pairs = (outcome.event & present)[:, :, None] & present[:, None, :] & (time[:, :, None] < time[:, None, :])
    if outcome.entry is not None:
        pairs = pairs & (outcome.entry[:, None, :] < time[:, :, None])
    return (pairs * torch.exp((others - own) / sigma)).sum(2) / present.sum(1, keepdim=True).clamp_min(1)


def _of_all(values: Tensor, place: Tensor) -> Tensor:
    """Select the values of every row j at the position of every row i: (K, b, m) to (K, i, j)."""
    if values.device.type == "cpu":
        members, b, _ = values.shape
        return values.gather(2, place[:, None, :].expand(members, b, b)).transpose(1, 2)
    # a product, because a GPU sums the gradient of a look-up in no fixed order
    return functional.one_hot(place, values.shape[2]).to(values) @ values.transpose(1, 2)


class DiscreteNetwork(PopulationNetwork):
    r"""A softmax over time intervals, computed from the covariates, for K members at once.

    Parameters
    ----------
    generators : sequence of torch.Generator
    encoder : TableEncoder or ModuleEncoder
    cuts : Tensor of shape (m,)
        Ends of the intervals, in scaled time, increasing; the first begins at 0, the last is open.
    alpha : float
        Weight of the likelihood; the ranking loss has weight 1 - alpha.
    sigma : float
        Scale of the ranking loss.
    between : {"hazard", "density"}
        Whether the hazard or the density is constant within an interval.
    start : Tensor of shape (causes · (m + 1),)
        Marginal log-probabilities of the intervals, cause by cause, from which training starts.
    n_causes : int
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
        n_causes: int = 1,
    ) -> None:
        super().__init__()
        self.encoder, self.alpha, self.sigma, self.n_causes = encoder, alpha, sigma, n_causes
        self.between: Interpolation = between
        self.head = MemberLinear(generators, encoder.width, n_causes * (len(cuts) + 1), scale=0.1)
        self.register_buffer("cuts", cuts.double()[None])
        self.register_buffer("start", start.double()[None, None])

    def forward(self, inputs: Inputs) -> Tensor:
        """Log-probabilities of the intervals, (K, n, causes, m + 1)."""
        raw = self.head(self.encoder(inputs))
        log_p = torch.log_softmax(raw + self.start.to(raw), dim=2)
        return log_p.reshape(*log_p.shape[:2], self.n_causes, -1)

    def cell(self, t: Tensor) -> Tensor:
        """The interval of each time: c with cut_{c-1} < t <= cut_c."""
        if len(self.cuts) == 1:
            return torch.searchsorted(self.cuts[0].to(t), t.contiguous())
        return torch.searchsorted(self.cuts.to(t).contiguous(), t.contiguous())

    def terms(self, batch: Batch) -> Tensor:
        """α · log-likelihood - (1 - α) · ranking loss, per row."""
        log_p = self(batch.inputs)
        terms = self.alpha * discrete_log_likelihood(log_p, self.cell, batch.outcome)
        if self.alpha == 1.0:
            return terms
        cdf = torch.exp(log_p).cumsum(3)
        rank = ranking_loss(cdf, self.cell(batch.outcome.time), batch.outcome, batch.present, self.sigma)
        return terms - (1.0 - self.alpha) * rank

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored cuts are invalid."""
        check_increasing(self.cuts, "the cuts")
        if self.cuts.shape[1] == 0 or self.start.shape[2] != self.n_causes * (self.cuts.shape[1] + 1):
            raise ValueError(f"{self.cuts.shape[1]} cuts do not match {self.start.shape[2]} intervals")

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """The equal mixture of the members' curves, in scaled time."""
        log_p = self(inputs.shared())
        of_any = log_p[:, :, 0] if self.n_causes == 1 else torch.logsumexp(log_p, dim=2)
        tail = of_any.flip(2).logcumsumexp(2).flip(2)[:, :, 1:]  # log S at the cuts
        survival = torch.exp(tail).clamp(_SMALLEST if self.between == "hazard" else 0.0, 1.0)
        survival = torch.cummin(survival, dim=2).values  # removes rounding errors
        if self.n_causes > 1:
            incidence = torch.exp(log_p[..., :-1]).cumsum(3).transpose(2, 3)  # (K, n, m, causes)
            return Mixture.of(
                [Tabulated(self.cuts[0], curve, part, between=self.between) for part, curve in zip(incidence, survival)]
            )
        return Mixture.of([Tabulated(self.cuts[0], part, between=self.between) for part in survival])
