"""Populations of networks, K members run as one: what training asks of them, any likelihood, and the tail."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar
from scipy.special import exprel
from torch import Tensor, nn

from sumosurv.distributions import Continued, Mixture, SurvivalDistribution
from sumosurv.distributions.extrapolation import tail_log_terms, tail_start
from sumosurv.networks.encoders import Batch, Encoder, Inputs, Observed, Table

Floats = npt.NDArray[np.float64]

HORIZON = 1.0  # the last training time, in scaled time
BLOCK = 20_000  # rows at a time
_GROWTH_START = 0.25  # growth is learned from what happened after this part of the follow-up
_PRIOR_SD = 0.5  # standard deviation of the growth over the whole follow-up, before the rows are looked at
_MAX_GROWTH = 20.0


class TrainingError(RuntimeError):
    """Training failed: no network has a finite likelihood, or the trained networks do not define a distribution."""


class PopulationNetwork(nn.Module, ABC):
    """K networks run as one: all that training, estimators and searches ask of a network.

    Every parameter has a leading axis of K; buffers have one of K (one entry per member) or of 1 (shared), or are
    numbers. A network defines ``terms`` and ``distribution``; the rest has a default.
    """

    # the terms are log-likelihoods: they have densities in them, and change with the unit of time
    terms_are_likelihoods: ClassVar[bool] = True
    # the term of a row depends on no other row: several processes can share the rows of a batch
    rows_are_separate: ClassVar[bool] = False
    # rows of a validation batch; None for all of them, where a term needs the whole risk set
    validation_rows: ClassVar[int | None] = 8192

    @abstractmethod
    def terms(self, batch: Batch) -> Tensor:
        """What is maximised, one term per row and member, (K, b): the log-likelihood, or what takes its place.

        Terms may depend on the other rows of the batch or of its table; those of padding are not looked at.
        """

    @abstractmethod
    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """The equal mixture of the members' distributions for rows without a member axis, in scaled time."""

    def start_training(self, table: Table, rows: Sequence[npt.NDArray[np.int64]]) -> Sequence[npt.NDArray[np.int64]]:
        """Take note of each member's training rows; returns those over which the objective is summed (all of them)."""
        return rows

    def fit_baseline(self, inputs: Inputs, outcome: Observed) -> None:
        """Learn from the training rows what is computed once the weights are final, such as a baseline hazard."""

    @property
    def capturable(self) -> bool:
        """Whether a training step makes no decision on a value, so that a CUDA graph can hold it."""
        return True

    @property
    def members(self) -> int:
        """K."""
        return int(next(self.parameters()).shape[0])


class Curves(ABC):
    """The survival functions of n rows under K networks.

    Times have shape (K or 1, n or 1, m), results (K, n, m). In training and validation m is 1; exported models are
    traced through `log_terms` on a grid.
    """

    @abstractmethod
    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t), without a decision on a value."""

    def observed(self, t: Tensor, event: Tensor) -> Tensor:
        """Return log f(t) for events and log S(t) for censored rows."""
        log_survival, log_density = self.log_terms(t)
        return torch.where(event, log_density, log_survival)

    def log_survival(self, t: Tensor) -> Tensor:
        """Return log S(t)."""
        return self.log_terms(t)[0]


class LikelihoodNetwork(PopulationNetwork):
    """A covariate network, and curves made of its output: trained on the exact log-likelihood of any outcome.

    A network defines ``curves`` and ``member_distributions``. If all rows are observed or right-censored from time
    zero on, training evaluates each row's curve at one time only.
    """

    rows_are_separate = True

    encoder: Encoder

    @abstractmethod
    def curves(self, embedding: Tensor, batch: Batch | None = None) -> Curves:
        """Return the curves of rows with these embeddings, (K, b, width).

        With ``batch``, `Curves.observed` is asked for the times of these rows of a table; features of these times are
        the same in every epoch, and can be looked up.
        """

    @abstractmethod
    def member_distributions(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Return each member's distribution of the same rows, in scaled time, given their embeddings (K, n, width)."""

    def terms(self, batch: Batch) -> Tensor:
        """Return the log-likelihood of each row."""
        curves = self.curves(self.encoder(batch.inputs), batch)
        return log_likelihood_terms(curves, batch.outcome[..., None])[..., 0]

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """Return the equal mixture of the members' distributions, in scaled time."""
        return Mixture.of(self.member_distributions(self.encoder(inputs.shared())))


def log_likelihood_terms(curves: Curves, outcome: Observed) -> Tensor:
    r"""Return the log-likelihood of each row, of the shape of the outcome.

    .. math::
        \log f(t), \quad \log S(t) \quad \text{or} \quad \log(S(t) - S(u)), \qquad \text{less } \log S(\text{entry}),

    for an event seen at t, a row that was event-free until t, and an event in (t, u].
    """
    terms = observed_terms(curves, outcome)
    return terms if outcome.entry is None else terms - curves.log_survival(outcome.entry)


def observed_terms(curves: Curves, outcome: Observed, counted: Tensor | bool = True) -> Tensor:
    """Return log f(t) or log(S(t) - S(u)) for rows with an event that is ``counted``, log S(t) for all others."""
    terms = curves.observed(outcome.time, outcome.event & counted)
    if outcome.upper is None:
        return terms
    inside = torch.isfinite(outcome.upper) & ~outcome.event & counted
    # the curves of other rows are evaluated at a harmless time, and the result is not used
    end = curves.log_survival(torch.where(inside, outcome.upper, outcome.time))
    return torch.where(inside, _log_difference(terms, end, inside), terms)


def _log_difference(first: Tensor, last: Tensor, where: Tensor) -> Tensor:
    """log(e^first - e^last) for first > last, with a gradient that is finite in the rows that are not asked for."""
    gap = torch.where(where, last - first, -1.0)
    near = torch.where(gap > -math.log(2.0), gap, -math.log(2.0))
    far = torch.where(gap > -math.log(2.0), -1.0, gap)
    share = torch.where(gap > -math.log(2.0), torch.log(-torch.expm1(near)), torch.log1p(-torch.exp(far)))
    return first + share


class _ContinuedCurves(Curves):
    """Curves up to scaled time 1, and their tail beyond it, as `Continued` has it."""

    def __init__(self, base: Curves, growth: Tensor) -> None:
        self.base, self.growth = base, growth
        self._start: tuple[Tensor, Tensor] | None = None

    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t)."""
        near, far = self.base.log_terms(t.clamp_max(HORIZON)), self._tail(t)
        return torch.where(t > HORIZON, far[0], near[0]), torch.where(t > HORIZON, far[1], near[1])

    def observed(self, t: Tensor, event: Tensor) -> Tensor:
        """Return log f(t) for events and log S(t) for censored rows."""
        result = self.base.observed(t.clamp_max(HORIZON), event)
        if self._all_near(t):
            return result
        log_survival, log_density = self._tail(t)
        return torch.where(t > HORIZON, torch.where(event, log_density, log_survival), result)

    def log_survival(self, t: Tensor) -> Tensor:
        """Return log S(t)."""
        result = self.base.log_survival(t.clamp_max(HORIZON))
        return result if self._all_near(t) else torch.where(t > HORIZON, self._tail(t)[0], result)

    @staticmethod
    def _all_near(t: Tensor) -> bool:
        """Whether no time is beyond the horizon; not asked of a GPU, which would have to be waited for."""
        return t.device.type == "cpu" and not bool((t > HORIZON).any())

    def _tail(self, t: Tensor) -> tuple[Tensor, Tensor]:
        if self._start is None:
            self._start = tail_start(*self.base.log_terms(t.new_full((1, 1, 1), HORIZON)))
        return tail_log_terms(*self._start, self.growth.to(t), t, HORIZON)


class TailedNetwork(LikelihoodNetwork):
    r"""A likelihood network that continues each member's hazard beyond scaled time 1 as :math:`λ(1|x) e^{g (t - 1)}`.

    The level is each member's and subject's own; g is shared by all, zero until ``fit_baseline`` has learned it, and
    never below zero. See `estimate_growth`. A network defines ``curves_to_horizon`` and ``members_to_horizon``.
    """

    growth: Tensor
    tail = True  # False for a network that is used at all times as it is

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("growth", torch.zeros(1, 1, dtype=torch.float64))

    @abstractmethod
    def curves_to_horizon(self, embedding: Tensor, batch: Batch | None) -> Curves:
        """Return `curves` for times up to 1."""

    @abstractmethod
    def members_to_horizon(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Return `member_distributions` for times up to 1."""

    def curves(self, embedding: Tensor, batch: Batch | None = None) -> Curves:
        """Return the curves of rows; validation rows may lie beyond the last training time, training rows never do."""
        curves = self.curves_to_horizon(embedding, batch)
        return _ContinuedCurves(curves, self.growth) if self.tail and not self.training else curves

    def member_distributions(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Return each member's distribution of the same rows, in scaled time."""
        members = self.members_to_horizon(embedding)
        return [Continued(part, HORIZON, float(self.growth)) for part in members] if self.tail else members

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored growth rate is invalid."""
        if self.growth.shape != (1, 1) or not 0.0 <= float(self.growth) <= _MAX_GROWTH:
            raise ValueError(f"the growth of the hazard past the last training time is {self.growth.tolist()}"[:200])

    def fit_baseline(self, inputs: Inputs, outcome: Observed) -> None:
        """Learn the growth from rows in scaled time."""
        rows = at_risk(outcome)
        if self.tail and len(rows):
            embeddings = (self.encoder(inputs[part].shared()) for part in torch.split(rows, BLOCK))
            levels = [expected_events(self.members_to_horizon(embedding)) for embedding in embeddings]
            self.learn_growth(torch.cat(levels), outcome[rows])

    def learn_growth(self, level: Tensor, outcome: Observed, weight: Tensor | None = None) -> None:
        """Learn it from levels that are known up to a common factor, and from what was observed.

        ``weight`` is how much each row counts, where that is not the weight of the outcome.
        """
        if weight is None:
            weight = torch.ones_like(level) if outcome.weight is None else outcome.weight / outcome.weight.mean()
        rows = outcome.numpy().at_midpoints()
        levels, weights = level.detach().cpu().numpy(), weight.detach().cpu().numpy()
        self.growth.fill_(estimate_growth(levels, rows.entries, rows.time, weights, rows.event))


def expected_events(members: Sequence[SurvivalDistribution]) -> Tensor:
    """Λ(1) - Λ(1/4) of each row under the equal mixture: the level of its hazard, whatever its shape in between."""
    ends = torch.tensor([_GROWTH_START, HORIZON], dtype=torch.float64)
    log_survival = torch.stack([member.log_survival(ends) for member in members]) + np.log(1.0 / len(members))
    start, end = torch.logsumexp(log_survival, dim=0).unbind(1)
    return start - end


def at_risk(outcome: Observed) -> Tensor:
    """The rows that were observed past the first quarter of the follow-up."""
    last = outcome.time if outcome.upper is None else torch.maximum(outcome.time, outcome.upper.nan_to_num(posinf=0.0))
    return (last > _GROWTH_START).nonzero()[:, 0]


def estimate_growth(
    level: Floats,
    entry: Floats,
    time: Floats,
    weight: Floats,
    event: npt.NDArray[np.bool_],
    *,
    prior: float = _PRIOR_SD,
) -> float:
    r"""The growth g of hazards :math:`c \, r_i e^{g t}` within (1/4, 1], shared by all rows; zero if they fall.

    With the factor c at its best for each g, the mode of

    .. math:: \sum_{i: d_i = 1} w_i g t_i - D \log \sum_i w_i r_i \int_{a_i}^{b_i} e^{g t} dt - \frac{g^2}{2 σ^2},
       \qquad D = \sum_i w_i d_i,

    over g ≥ 0, where (aᵢ, bᵢ] is the time that row i was at risk in (1/4, 1]. The prior, of standard deviation σ, keeps
    g small where events are few.

    Parameters
    ----------
    level : array of shape (n,)
        rᵢ, up to a common factor.
    entry, time : array of shape (n,)
        When rows come under observation and when that ends; the last training time is 1.
    weight : array of shape (n,)
    event : bool array of shape (n,)
    prior : float
        σ; inf for none.
    """
    first, last = np.maximum(entry, _GROWTH_START), np.minimum(time, 1.0)
    used = (last > first) & (weight > 0)
    level, first, last, weight = level[used], first[used], last[used], weight[used]
    seen = event[used] & (time[used] <= 1.0)
    total, rate = float(weight[seen].sum()), weight * level
    if total == 0 or not (np.isfinite(rate).all() and rate.sum() > 0):
        return 0.0
    sum_of_times = float((weight * (last - 1.0))[seen].sum())

    def exposure(g: float) -> float:
        return float(rate @ (np.exp(g * (first - 1.0)) * exprel(g * (last - first)) * (last - first)))

    middle = float(rate @ ((last - first) * (0.5 * (first + last) - 1.0))) / exposure(0.0)
    if sum_of_times <= total * middle:  # the objective falls from g = 0 on
        return 0.0
    found = minimize_scalar(
        lambda g: total * np.log(exposure(g)) - g * sum_of_times + 0.5 * (g / prior) ** 2,
        bounds=(0.0, _MAX_GROWTH),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return float(found.x)
