"""Networks for competing risks: the probability of each cause and a curve per cause, from one embedding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sumosurv.distributions import CauseMixture, Mixture, SurvivalDistribution
from sumosurv.networks.encoders import Batch, Encoder, Inputs, Observed
from sumosurv.networks.layers import MemberLinear
from sumosurv.networks.population import (
    BLOCK,
    Curves,
    LikelihoodNetwork,
    PopulationNetwork,
    TailedNetwork,
    at_risk,
    hazard_level,
    observed_terms,
)


class CausesNetwork(PopulationNetwork):
    r"""K causes, each with a probability and a distribution of the time to its event; for all members at once.

    .. math:: f_k(t|x) = π_k(x) f(t|x, k), \qquad S(t|x) = \sum_k π_k(x) S(t|x, k),

    with shares π from a softmax. Incidences and S sum to one, and the likelihood of every outcome has a closed form if
    the distributions of the causes have one.

    Parameters
    ----------
    generators : sequence of torch.Generator
        One per member, for its initial weights.
    encoder : Encoder
        Evaluated once per batch; all causes use its output.
    causes : sequence of LikelihoodNetwork
        One network per cause, for the time of its event. They receive embeddings; their own encoders are not used.
    log_shares : sequence of float
        The initial logarithms of the shares.
    """

    rows_are_separate = True

    log_shares: Tensor

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        encoder: Encoder,
        causes: Sequence[LikelihoodNetwork],
        log_shares: Sequence[float],
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.share = MemberLinear(generators, encoder.width, len(causes), scale=0.1)
        self.causes = nn.ModuleList(causes)
        self.register_buffer("log_shares", torch.tensor(list(log_shares), dtype=torch.float64)[None, None])

    def shares(self, embedding: Tensor) -> Tensor:
        """log π of shape (members, n, K)."""
        raw = self.share(embedding)
        return torch.log_softmax(raw + self.log_shares.to(raw), dim=2)

    def terms(self, batch: Batch) -> Tensor:
        """The log-likelihood of each row."""
        embedding = self.encoder(batch.inputs)
        curves = [part.curves(embedding) for part in self._parts()]
        return cause_log_likelihood_terms(self.shares(embedding), curves, batch.outcome[..., None])[..., 0]

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """The equal mixture of the members' distributions, in scaled time."""
        embedding = self.encoder(inputs.shared())
        shares = self.shares(embedding)
        parts = [part.member_distributions(embedding) for part in self._parts()]
        return Mixture.of([CauseMixture(own, [part[m] for part in parts]) for m, own in enumerate(shares)])

    def fit_baseline(self, inputs: Inputs, outcome: Observed) -> None:
        """Estimate the growth rate of each cause's hazard beyond the last training time.

        A censored row is weighted, for each cause, by the probability that its event will be of that cause.
        """
        parts = self._parts()
        rows = at_risk(outcome)
        if not len(rows) or not all(isinstance(part, TailedNetwork) for part in parts):
            return
        seen = outcome[rows]
        assert seen.cause is not None
        levels, shares = zip(*(self._levels(inputs[own], outcome.time[own]) for own in torch.split(rows, BLOCK)))
        level, share = torch.cat(levels), torch.cat(shares)
        for k, part in enumerate(parts):
            assert isinstance(part, TailedNetwork)
            own = torch.where(seen.cause > 0, (seen.cause == k + 1).to(share), share[:, k])
            weight = own if seen.weight is None else own * seen.weight / seen.weight.mean()
            part.learn_growth(level[:, k], seen, weight)

    def _levels(self, inputs: Inputs, time: Tensor) -> tuple[Tensor, Tensor]:
        """Return the hazard level of each cause and its probability given no event so far, both (n, K)."""
        embedding = self.encoder(inputs.shared())
        each = [part.member_distributions(embedding) for part in self._parts()]
        log_shares = torch.logsumexp(self.shares(embedding), dim=0)
        ahead = torch.stack([Mixture.of(own).log_survival(own_times=time.to(log_shares)) for own in each], dim=1)
        return torch.stack([hazard_level(own) for own in each], dim=1), torch.softmax(log_shares + ahead, dim=1)

    @property
    def capturable(self) -> bool:
        """Whether a training step has no value-dependent control flow, so that a CUDA graph can capture it."""
        return all(part.capturable for part in self._parts())

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored shares are invalid."""
        if self.log_shares.shape != (1, 1, len(self.causes)) or not bool((self.log_shares <= 0).all()):
            raise ValueError("the stored shares of the causes are invalid")

    def _parts(self) -> list[LikelihoodNetwork]:
        return list(self.causes)  # type: ignore[arg-type]


def cause_log_likelihood_terms(log_shares: Tensor, curves: Sequence[Curves], outcome: Observed) -> Tensor:
    r"""Return the log-likelihood of each row under competing risks, (members, b, 1).

    .. math::
        \log π_k + \log f(t|k), \quad \log \sum_k π_k S(t|k) \quad \text{or} \quad
        \log π_k + \log(S(t|k) - S(u|k)), \qquad \text{minus } \log \sum_k π_k S(\text{entry}|k),

    for an event of cause k observed at t, a row that was event-free until t, and an event of cause k in (t, u].

    Parameters
    ----------
    log_shares : Tensor of shape (members, b, K)
    curves : sequence of Curves
        One per cause.
    outcome : Observed
        With causes, of shape (members, b, 1).
    """
    cause = outcome.cause
    assert cause is not None
    shares = log_shares[..., None].unbind(2)
    each = [observed_terms(part, outcome, cause == k + 1) + shares[k] for k, part in enumerate(curves)]
    parts = torch.stack(each)
    # the gradient of a row with an event involves only its own cause
    of_own = parts.gather(0, (cause - 1).clamp_min(0).expand(parts.shape[1:])[None])[0]
    terms = torch.where(cause > 0, of_own, torch.logsumexp(parts, dim=0))
    if outcome.entry is not None:
        reach = torch.stack([part.log_survival(outcome.entry) + own for part, own in zip(curves, shares)])
        terms = terms - torch.logsumexp(reach, dim=0)
    return terms
