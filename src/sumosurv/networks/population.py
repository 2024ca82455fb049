"""The contract of every trainable network: K networks with their own weights, run as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from sumosurv.distributions import SurvivalDistribution
from sumosurv.networks.data import Batch, Inputs, Observed, Table

__all__ = ["PopulationNetwork", "TrainingError"]


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
