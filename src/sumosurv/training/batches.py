"""Where the batches of training come from: the one thing that differs between rows in memory and rows on disk."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from sumosurv.networks import Rows, Table
from sumosurv.networks.layers import random_bits, stream_key
from sumosurv.training.data import Member

__all__ = ["Batches", "TableBatches", "member_seeds", "shuffled", "total_weight"]

_SHUFFLE = 0x5EED  # the stream of the shuffles, apart from those of the dropout layers


class Batches(ABC):
    """A source of batches for all members of a population.

    Attributes
    ----------
    table : Table
        What the row numbers of a batch refer to. Its tensors stay in place; what they hold may change between two
        batches, but not before the next one is asked for.
    size : int
        Rows of a batch at most, of each member.
    per_epoch : int
        Batches of an epoch.
    totals : Tensor of shape (K,)
        For how many rows those of an epoch count, of each member.
    signature : str
        What tells the rows from others, where they are not all in memory: checkpoints of others are refused.
    """

    table: Table
    size: int
    per_epoch: int
    totals: Tensor
    signature: str = ""

    @abstractmethod
    def epoch(self, number: int) -> Iterator[Rows]:
        """The batches of an epoch, ``per_epoch`` of them; the same for the same number."""


class TableBatches(Batches):
    """Each member's rows of a table in memory, in an order of its own for each epoch, in batches of equal size."""

    def __init__(self, table: Table, rows: Rows, members: Sequence[Member], batch_size: int) -> None:
        longest = rows.index.shape[1]
        self.table, self.rows = table, rows
        self.per_epoch = max(1, math.ceil(longest / batch_size))
        self.size = math.ceil(longest / self.per_epoch)  # batches of equal size, no small one at the end
        self.totals = total_weight(table, rows)
        self._seeds = member_seeds(members, table.device)

    def epoch(self, number: int) -> Iterator[Rows]:
        """The batches of an epoch."""
        order = shuffled(self.rows, self._seeds, number)
        for i in range(self.per_epoch):
            yield order.columns(slice(i * self.size, (i + 1) * self.size))


def member_seeds(members: Sequence[Member], device: torch.device) -> Tensor:
    """The seeds of all members, as shuffles and dropout take them."""
    return torch.tensor([member.seed for member in members], dtype=torch.int64, device=device).to(torch.int32)


def shuffled(rows: Rows, seeds: Tensor, epoch: int) -> Rows:
    """Each member's rows in the order of its epoch; padding goes last."""
    bits = random_bits(stream_key(seeds, _SHUFFLE, epoch), rows.index.shape[1]).to(torch.int64)
    bits = torch.where(rows.present, bits, torch.iinfo(torch.int64).max)
    order = torch.argsort(bits, dim=1, stable=True)
    return Rows(rows.index.gather(1, order), rows.present.gather(1, order))


def total_weight(table: Table, rows: Rows) -> Tensor:
    """For how many rows those of each member count, (K,)."""
    if table.outcome.weight is None:
        return rows.present.sum(1)
    return torch.where(rows.present, table.outcome.weight[rows.index].double(), 0.0).sum(1)
