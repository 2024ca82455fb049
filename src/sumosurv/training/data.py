"""What training reads: one table for all members, the rows of each, and how to train."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sumosurv.networks.encoders import Inputs

__all__ = ["Rows", "TrainingData", "TrainingPlan"]


@dataclass(frozen=True)
class TrainingData:
    """One table that all members read, each its own rows of it; times are scaled."""

    inputs: Inputs
    time: Tensor
    event: Tensor

    def to(self, device: torch.device) -> TrainingData:
        """On another device."""
        return TrainingData(
            self.inputs.to(device, self.inputs.numeric.dtype), self.time.to(device), self.event.to(device)
        )


@dataclass(frozen=True)
class Rows:
    """Row numbers of each member, (K, n), padded where ``present`` is False."""

    index: Tensor
    present: Tensor

    @classmethod
    def of(cls, rows: list[npt.NDArray[np.int64]]) -> Rows:
        """From one array of row numbers per member."""
        longest = max(len(part) for part in rows)
        index = torch.zeros(len(rows), longest, dtype=torch.long)
        present = torch.zeros(len(rows), longest, dtype=torch.bool)
        for k, part in enumerate(rows):
            index[k, : len(part)] = torch.as_tensor(part)
            present[k, : len(part)] = True
        return cls(index, present)

    def to(self, device: torch.device) -> Rows:
        """On another device."""
        return Rows(self.index.to(device), self.present.to(device))


@dataclass(frozen=True)
class TrainingPlan:
    """How to train. Arrays have one entry per member.

    A member is done when its best validation likelihood is more than ``patience`` epochs back; ``stop_after``
    is the epoch whose weights it keeps where there are no validation rows (the last by default).
    """

    seeds: npt.NDArray[np.int64]
    learning_rate: npt.NDArray[np.float64]
    weight_decay: npt.NDArray[np.float64]
    max_epochs: int
    batch_size: int
    patience: int | None = None
    stop_after: npt.NDArray[np.int64] | None = None
    decay: bool = True
    max_norm: float = math.inf
    progress: bool | Callable[[], None] = False  # a bar of its own, or something to call after each epoch
