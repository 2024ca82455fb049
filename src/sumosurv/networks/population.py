"""Populations of K networks run as one: their base classes, the likelihood of every outcome, and the tail."""

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
BLOCK = 20_000  # rows evaluated at once
_GROWTH_START = 0.25  # growth is estimated from the follow-up after this scaled time
_PRIOR_SD = 0.5  # prior standard deviation of the growth over the whole follow-up
_MAX_GROWTH = 20.0


class TrainingError(RuntimeError):
    """Training failed: no network has a finite likelihood, or the trained networks do not define a distribution."""


class PopulationNetwork(nn.Module, ABC):
    """K networks run as one: the interface that training, estimators and searches use.

    Every parameter has a leading axis of K; buffers have one of K (one entry per member) or of 1 (shared), or are
    scalars. Subclasses define ``terms`` and ``distribution``; all other methods have defaults.
    """

    # whether terms are log-likelihoods, which contain densities and so depend on the time unit
    terms_are_likelihoods: ClassVar[bool] = True
    # whether the term of a row depends on no other row, so that processes can share the rows of a batch
    rows_are_separate: ClassVar[bool] = False
    # rows per validation batch; None for all rows, if a term needs the whole risk set
    validation_rows: ClassVar[int | None] = 8192

    @abstractmethod
    def terms(self, batch: Batch) -> Tensor:
        """Return the objective to maximise, one term per row and member, (K, b), such as the log-likelihood.

        Terms may depend on other rows of the batch or of its table; the terms of padding are ignored.
        """

    @abstractmethod
    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """Return the equal mixture of the members' distributions for rows without a member axis, in scaled time."""

    def start_training(self, table: Table, rows: Sequence[npt.NDArray[np.int64]]) -> Sequence[npt.NDArray[np.int64]]:
        """Receive each member's training rows; returns the rows over which the objective is summed (by default all)."""
        return rows

    def fit_baseline(self, inputs: Inputs, outcome: Observed) -> None:
        """Estimate quantities that depend on the final weights, such as a baseline hazard, from the training rows."""

    @property
    def capturable(self) -> bool:
        """Whether a training step has no value-dependent control flow, so that a CUDA graph can capture it."""
        return True

    @property
    def members(self) -> int:
        """The number of members."""
        return int(next(self.parameters()).shape[0])


class Curves(ABC):
    """The survival functions of n rows under K networks.

    Times have shape (K or 1, n or 1, m), results (K, n, m). In training and validation m is 1; exported models are
    traced through `log_terms` on a grid.
    """

    @abstractmethod
    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t), without value-dependent control flow."""

    def observed(self, t: Tensor, event: Tensor) -> Tensor:
        """Return log f(t) for events and log S(t) for censored rows."""
        log_survival, log_density = self.log_terms(t)
        return torch.where(event, log_density, log_survival)

    def log_survival(self, t: Tensor) -> Tensor:
        """Return log S(t)."""
        return self.log_terms(t)[0]


class LikelihoodNetwork(PopulationNetwork):
    """A covariate network and curves computed from its output, trained on the exact log-likelihood of any outcome.

    Subclasses define ``curves`` and ``member_distributions``. Without delayed entry and interval censoring, training
    evaluates each row's curve at one time only.
    """

    rows_are_separate = True

    encoder: Encoder

    @abstractmethod
    def curves(self, embedding: Tensor, batch: Batch | None = None) -> Curves:
        """Return the curves of rows with these embeddings, (K, b, width).

        If ``batch`` is given, `Curves.observed` is called with the times of its rows, whose features are the same in
        every epoch and can be cached.
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
    r"""Return the log-likelihood of each row, in the shape of the outcome.

    .. math::
        \log f(t), \quad \log S(t) \quad \text{or} \quad \log(S(t) - S(u)), \qquad \text{minus } \log S(\text{entry}),

    for an event observed at t, a row that was event-free until t, and an event in (t, u].
    """
    terms = observed_terms(curves, outcome)
    return terms if outcome.entry is None else terms - curves.log_survival(outcome.entry)


def observed_terms(curves: Curves, outcome: Observed, counted: Tensor | bool = True) -> Tensor:
    """Return log f(t) or log(S(t) - S(u)) for rows with an event that is ``counted``, log S(t) for all others."""
    terms = curves.observed(outcome.time, outcome.event & counted)
    if outcome.upper is None:
        return terms
    inside = torch.isfinite(outcome.upper) & ~outcome.event & counted
    # the curves of other rows are evaluated at their own time, and the result is not used
    end = curves.log_survival(torch.where(inside, outcome.upper, outcome.time))
    return torch.where(inside, _log_difference(terms, end, inside), terms)


def _log_difference(first: Tensor, last: Tensor, where: Tensor) -> Tensor:
    """log(e^first - e^last) for first > last; gradients are finite also for rows outside ``where``."""
    gap = torch.where(where, last - first, -1.0)
    near = torch.where(gap > -math.log(2.0), gap, -math.log(2.0))
    far = torch.where(gap > -math.log(2.0), -1.0, gap)
    share = torch.where(gap > -math.log(2.0), torch.log(-torch.expm1(near)), torch.log1p(-torch.exp(far)))
    return first + share


class _ContinuedCurves(Curves):
    """Curves up to scaled time 1, extrapolated beyond it as by `Continued`."""

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
        if self._none_beyond_horizon(t):
            return result
        log_survival, log_density = self._tail(t)
        return torch.where(t > HORIZON, torch.where(event, log_density, log_survival), result)

    def log_survival(self, t: Tensor) -> Tensor:
        """Return log S(t)."""
        result = self.base.log_survival(t.clamp_max(HORIZON))
        return result if self._none_beyond_horizon(t) else torch.where(t > HORIZON, self._tail(t)[0], result)

    @staticmethod
    def _none_beyond_horizon(t: Tensor) -> bool:
        """Whether no time is beyond the horizon; always False on a GPU, where checking would synchronise."""
        return t.device.type == "cpu" and not bool((t > HORIZON).any())

    def _tail(self, t: Tensor) -> tuple[Tensor, Tensor]:
        if self._start is None:
            self._start = tail_start(*self.base.log_terms(t.new_full((1, 1, 1), HORIZON)))
        return tail_log_terms(*self._start, self.growth.to(t), t, HORIZON)


class TailedNetwork(LikelihoodNetwork):
    r"""A likelihood network that continues each member's hazard beyond scaled time 1 as :math:`λ(1|x) e^{g (t - 1)}`.

    The level λ(1|x) differs by member and subject. The growth rate g ≥ 0 is shared by all and zero until
    ``fit_baseline`` estimates it (see `estimate_growth`). Subclasses define ``curves_to_horizon`` and
    ``members_to_horizon``.
    """

    growth: Tensor
    tail = True  # False for a network that is not extrapolated

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
        """Return the curves of rows, extrapolated except in training, where no time exceeds 1."""
        curves = self.curves_to_horizon(embedding, batch)
        return _ContinuedCurves(curves, self.growth) if self.tail and not self.training else curves

    def member_distributions(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Return each member's distribution of the same rows, in scaled time."""
        members = self.members_to_horizon(embedding)
        return [Continued(part, HORIZON, float(self.growth)) for part in members] if self.tail else members

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored growth rate is invalid."""
        if self.growth.shape != (1, 1) or not 0.0 <= float(self.growth) <= _MAX_GROWTH:
            raise ValueError(f"the growth of the hazard beyond the last training time is {self.growth.tolist()}"[:200])

    def fit_baseline(self, inputs: Inputs, outcome: Observed) -> None:
        """Estimate the growth rate from the training rows, in scaled time."""
        rows = at_risk(outcome)
        if self.tail and len(rows):
            embeddings = (self.encoder(inputs[part].shared()) for part in torch.split(rows, BLOCK))
            levels = [hazard_level(self.members_to_horizon(embedding)) for embedding in embeddings]
            self.learn_growth(torch.cat(levels), outcome[rows])

    def learn_growth(self, level: Tensor, outcome: Observed, weight: Tensor | None = None) -> None:
        """Estimate the growth rate from the outcome and hazard levels that are known up to a common factor.

        ``weight``, if given, replaces the weights of the outcome.
        """
        if weight is None:
            weight = torch.ones_like(level) if outcome.weight is None else outcome.weight / outcome.weight.mean()
        rows = outcome.numpy().at_midpoints()
        levels, weights = level.detach().cpu().numpy(), weight.detach().cpu().numpy()
        self.growth.fill_(estimate_growth(levels, rows.entries, rows.time, weights, rows.event))


def hazard_level(members: Sequence[SurvivalDistribution]) -> Tensor:
    """Return the hazard level of each row, Λ(1) - Λ(1/4) under the equal mixture of the members."""
    ends = torch.tensor([_GROWTH_START, HORIZON], dtype=torch.float64)
    log_survival = torch.stack([member.log_survival(ends) for member in members]) + np.log(1.0 / len(members))
    start, end = torch.logsumexp(log_survival, dim=0).unbind(1)
    return start - end


def at_risk(outcome: Observed) -> Tensor:
    """Return the rows observed beyond the first quarter of the follow-up."""
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
    r"""Estimate the growth rate g of hazards :math:`c \, r_i e^{g t}` within (1/4, 1]; zero if hazards decrease.

    All rows share g. With the factor c profiled out, the estimate is the mode of

    .. math:: \sum_{i: d_i = 1} w_i g t_i - D \log \sum_i w_i r_i \int_{a_i}^{b_i} e^{g t} dt - \frac{g^2}{2 σ^2},
       \qquad D = \sum_i w_i d_i,

    over g ≥ 0, where (aᵢ, bᵢ] is the time that row i was at risk in (1/4, 1]. The prior, of standard deviation σ, keeps
    g small if events are few.

    Parameters
    ----------
    level : array of shape (n,)
        rᵢ, up to a common factor.
    entry, time : array of shape (n,)
        Start and end of observation, in scaled time.
    weight : array of shape (n,)
    event : bool array of shape (n,)
    prior : float
        σ; inf for no prior.
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
    if sum_of_times <= total * middle:  # the objective decreases from g = 0 on
        return 0.0
    found = minimize_scalar(
        lambda g: total * np.log(exposure(g)) - g * sum_of_times + 0.5 * (g / prior) ** 2,
        bounds=(0.0, _MAX_GROWTH),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return float(found.x)
