"""The members of a population, the rows on which each of them trains, and the batches in which the rows come."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from torch import Tensor

from sumosurv.networks import Inputs, Observed, Rows, Table
from sumosurv.networks.layers import random_bits, stream_key
from sumosurv.outcome import Outcome, each_field

RowNumbers = npt.NDArray[np.int64]

_SHUFFLE = 0x5EED  # the stream of the shuffles, apart from those of the dropout layers
_SMALLEST_SPLIT = 10  # rows below which none are held out
_AHEAD = 8  # parts of a table that are read ahead


@dataclass(frozen=True)
class Member:
    """One network of a population: its rows of the table and its own settings."""

    seed: int
    train_rows: RowNumbers
    valid_rows: RowNumbers | None  # None if no rows are held out
    learning_rate: float
    weight_decay: float
    # without validation rows, the epoch whose weights the member keeps: the last by default, none if negative
    stop_after: int | None = None
    # all members of the population keep the weights of one epoch, the best on all of their validation rows
    stops_together: bool = False


class Batches(ABC):
    """A source of batches for all members of a population."""

    # What the row numbers of a batch refer to. Its tensors stay in place; their values may change from one batch to the
    # next, but not before the next one is asked for.
    table: Table
    size: int  # the largest number of rows of a batch, per member
    per_epoch: int  # batches of an epoch
    totals: Tensor  # sum of the weights of the rows of an epoch, per member
    signature: str = ""  # identifies rows that are not all in memory: checkpoints of others are refused

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
        self._seeds = _member_seeds(members, table.device)

    def epoch(self, number: int) -> Iterator[Rows]:
        """The batches of an epoch."""
        order = shuffled(self.rows, self._seeds, number)
        for i in range(self.per_epoch):
            yield order.columns(slice(i * self.size, (i + 1) * self.size))


class StreamBatches(Batches):
    """Each member goes through the rows of a buffer in an order of its own, then the buffer is filled anew.

    Parameters
    ----------
    read : callable
        From the number of an epoch to its rows, as tables on the CPU; all of them together have ``n_rows``, and weights
        of mean one.
    like : Table
        Any rows of the same kind.
    buffer_rows : int
        Rows that are shuffled together at most, but a batch at least.
    """

    def __init__(
        self,
        read: Callable[[int], Generator[Table, None, None]],
        n_rows: int,
        like: Table,
        members: Sequence[Member],
        batch_size: int,
        device: torch.device,
        buffer_rows: int,
        signature: str = "",
    ) -> None:
        self.signature = signature
        self._read, self._members = read, len(members)
        self.per_epoch = max(1, math.ceil(n_rows / batch_size))
        self.size = math.ceil(n_rows / self.per_epoch)
        # whole batches, so that those of an epoch are as many as those of a table in memory
        self._rows = min(self.size * max(1, buffer_rows // self.size), n_rows)
        self._buffers = math.ceil(n_rows / self._rows)
        self.table = _empty(like, self._rows).to(device)
        self.totals = torch.full((len(members),), float(n_rows), dtype=torch.float64, device=device)
        self._seeds = _member_seeds(members, device)

    def epoch(self, number: int) -> Iterator[Rows]:
        """The batches of an epoch."""
        filled, buffer = 0, 0
        for part in prefetched(lambda: self._read(number)):
            done = 0
            while done < len(part):
                some = min(len(part) - done, self._rows - filled)
                _copy(part, slice(done, done + some), self.table, slice(filled, filled + some))
                filled, done = filled + some, done + some
                if filled == self._rows:
                    yield from self._batches(filled, number * self._buffers + buffer)
                    filled, buffer = 0, buffer + 1
        if filled:
            yield from self._batches(filled, number * self._buffers + buffer)

    def _batches(self, n: int, number: int) -> Iterator[Rows]:
        index = torch.arange(n, device=self.table.device).expand(self._members, n)
        order = shuffled(Rows(index, torch.ones_like(index, dtype=torch.bool)), self._seeds, number)
        for start in range(0, n, self.size):
            yield order.columns(slice(start, start + self.size))


def _member_seeds(members: Sequence[Member], device: torch.device) -> Tensor:
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


def batch_rows(batch_size: int | Literal["auto", "full"], n: int) -> int:
    """Rows of a batch out of n: the number itself, all, or ("auto") the power of two nearest to 4 √n."""
    if batch_size == "full":
        return n
    if batch_size == "auto":
        return int(2 ** round(math.log2(max(8.0, 4.0 * math.sqrt(n)))))
    return int(batch_size)


def split_rows(outcome: Outcome, seed: int, fraction: float) -> tuple[RowNumbers, RowNumbers | None]:
    """Training and validation rows drawn by a seed, with the same share of events; no validation rows of very few.

    The rows of one subject stay together.
    """
    subject, kind = outcome.subject, outcome.subject_event
    n = len(kind)
    if fraction == 0 or n < _SMALLEST_SPLIT:
        return np.arange(len(outcome)), None
    stratify = next((labels for labels in (kind, kind > 0) if _can_stratify(labels, fraction)), None)
    train, valid = train_test_split(np.arange(n), test_size=fraction, random_state=seed, stratify=stratify)
    if outcome.group is None:
        return np.sort(train), np.sort(valid)
    held_out = np.isin(subject, valid)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def fold_rows(outcome: Outcome, seed: int, n_folds: int) -> list[tuple[RowNumbers, RowNumbers | None]]:
    """Training and validation rows of each fold of a cross-validation, drawn by a seed, with the same share of events.

    Of very few subjects none are held out. The rows of one subject stay together.
    """
    subject, kind = outcome.subject, outcome.subject_event
    n = len(kind)
    if n < _SMALLEST_SPLIT:
        return [(np.arange(len(outcome)), None)] * n_folds
    labels = next((part for part in (kind, kind > 0) if np.unique(part, return_counts=True)[1].min() >= n_folds), None)
    folds = (
        KFold(n_folds, shuffle=True, random_state=seed).split(kind)
        if labels is None
        else StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(kind, labels)
    )
    held_out = [np.isin(subject, valid) for _, valid in folds]
    return [(np.flatnonzero(~rows), np.flatnonzero(rows)) for rows in held_out]


def _can_stratify(labels: npt.NDArray[Any], fraction: float) -> bool:
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts) > 1 and counts.min() >= 2 and math.ceil(fraction * len(labels)) >= len(counts)


# ------------------------------------------------------------------ rows that are read while networks train


def _empty(like: Table, n: int) -> Table:
    """A table of n rows with the columns of another."""

    def rows(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(n, *values.shape[1:], dtype=values.dtype)

    inputs = Inputs(rows(like.inputs.numeric), rows(like.inputs.codes))
    return Table(inputs, Observed(**each_field(rows, like.outcome)))


def _copy(source: Table, part: slice, target: Table, place: slice) -> None:
    target.inputs.numeric[place] = source.inputs.numeric[part].to(target.device)
    target.inputs.codes[place] = source.inputs.codes[part].to(target.device)

    def field(to: torch.Tensor, values: torch.Tensor) -> None:
        to[place] = values[part].to(target.device)

    each_field(field, target.outcome, source.outcome)


def prefetched(make: Callable[[], Generator[Any, None, None]]) -> Iterator[Any]:
    """The items of a generator, read a little ahead by another thread; its errors are raised here."""
    end = object()
    with closing(make()) as items, ThreadPoolExecutor(1, "sumosurv-reader") as pool:
        ready = deque(pool.submit(next, items, end) for _ in range(_AHEAD))
        try:
            while (item := ready.popleft().result()) is not end:
                ready.append(pool.submit(next, items, end))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)
