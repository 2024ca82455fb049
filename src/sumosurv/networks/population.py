"""Populations of networks, K members run as one, and the log-likelihood of any outcome from their curves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sumosurv.distributions import Mixture, SurvivalDistribution
from sumosurv.networks.data import Batch, Inputs, Observed, Table
from sumosurv.networks.encoders import Encoder

__all__ = [
    "Curves",
    "GridNetwork",
    "LikelihoodNetwork",
    "PopulationNetwork",
    "TrainingError",
    "log_difference",
    "log_likelihood_terms",
]


class TrainingError(RuntimeError):
    """Training cannot continue: no member has a finite likelihood, or what it learned gives no distribution."""


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
    """The survival functions of the rows of a batch under K networks, evaluated at one time per row and member.

    Times and results have shape (K, b).
    """

    @abstractmethod
    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t)."""

    def of_rows(self, batch: Batch) -> None:  # noqa: B027 (most curves have nothing to look up)
        """Note that `observed` is asked for the times of these rows of a table.

        Features of these times are the same in every epoch, and can be looked up.
        """

    def observed(self, t: Tensor, event: Tensor) -> Tensor:
        """Return log f(t) for events and log S(t) for censored rows."""
        log_survival, log_density = self.log_terms(t)
        return torch.where(event, log_density, log_survival)

    def log_survival(self, t: Tensor) -> Tensor:
        """Return log S(t)."""
        return self.log_terms(t)[0]


class LikelihoodNetwork(PopulationNetwork):
    """A covariate network, and curves made of its output: trained on the exact log-likelihood of any outcome.

    A network defines ``curves`` and ``member_distributions``. Where all rows are seen or right-censored from time
    zero on, training asks for each row's curve at one time and no other.
    """

    rows_are_separate = True

    encoder: Encoder

    @abstractmethod
    def curves(self, embedding: Tensor) -> Curves:
        """The curves of rows whose covariates were read, (K, b, width)."""

    @abstractmethod
    def member_distributions(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Each member's distribution of the same rows, in scaled time, given their embeddings (K, n, width)."""

    def terms(self, batch: Batch) -> Tensor:
        """The log-likelihood of each row."""
        curves = self.curves(self.encoder(batch.inputs))
        curves.of_rows(batch)
        return log_likelihood_terms(curves, batch.outcome)

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """The equal mixture of the members' distributions, in scaled time."""
        return Mixture.of(self.member_distributions(self.encoder(inputs.shared())))


class GridNetwork(ABC):
    """A network whose curves on a grid are one fixed sequence of operations, so that they can be exported."""

    @abstractmethod
    def log_terms_on_grid(self, embedding: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """log S and log f, (K, n, m) each, for embeddings (K, n, width) and times (m,), no decision on a value.

        Times are scaled, zero or more, and may lie past the last training time.
        """


def log_likelihood_terms(curves: Curves, outcome: Observed) -> Tensor:
    r"""The log-likelihood of each row, (K, b).

    .. math::
        \log f(t), \quad \log S(t) \quad \text{or} \quad \log(S(t) - S(u)), \qquad \text{less } \log S(\text{entry}),

    for an event seen at t, a row that was event-free until t, and an event in (t, u].
    """
    terms = curves.observed(outcome.time, outcome.event)
    if outcome.upper is not None:
        inside = torch.isfinite(outcome.upper) & ~outcome.event
        # of other rows the curve is asked at a time that is harmless, and the answer is not used
        end = curves.log_survival(torch.where(inside, outcome.upper, outcome.time))
        terms = torch.where(inside, log_difference(terms, end, inside), terms)
    if outcome.entry is not None:
        terms = terms - curves.log_survival(outcome.entry)
    return terms


def log_difference(first: Tensor, last: Tensor, where: Tensor) -> Tensor:
    """log(e^first - e^last) for first > last, with a gradient that is finite in the rows that are not asked for."""
    gap = torch.where(where, last - first, -1.0)
    near = torch.where(gap > -math.log(2.0), gap, -math.log(2.0))
    far = torch.where(gap > -math.log(2.0), -1.0, gap)
    share = torch.where(gap > -math.log(2.0), torch.log(-torch.expm1(near)), torch.log1p(-torch.exp(far)))
    return first + share
