"""The members of a population, the training and validation rows of each, and batches of rows."""

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
from sklearn.model_selection import train_test_split
from torch import Tensor

from sumosurv.networks import Inputs, Observed, Rows, Table
from sumosurv.networks.layers import random_bits, stream_key
from sumosurv.outcome import Outcome, each_field

RowNumbers = npt.NDArray[np.int64]

_SHUFFLE = 0x5EED  # stream number of the shuffles; dropout layers have other numbers
_PLACE_BITS = 31  # of a row's place in an order
_SMALLEST_SPLIT = 10  # with fewer subjects, no rows are held out
_AHEAD = 8  # items that are read ahead


@dataclass(frozen=True)
class Member:
    """One network of a population: its row numbers in the table and its settings."""

    seed: int
    train_rows: RowNumbers
    valid_rows: RowNumbers | None  # None if no rows are held out
    learning_rate: float
    weight_decay: float
    # without validation rows, the epoch whose weights the member keeps: None for the last, negative for no epoch
    stop_after: int | None = None
    # whether all members keep the weights of the same epoch, the best on their pooled validation rows
    stops_together: bool = False


class Batches(ABC):
    """A source of batches for all members of a population."""

    # The table that row numbers of a batch refer to. Its tensors stay in place; their values may change when the next
    # batch is requested.
    table: Table
    size: int  # largest number of rows per batch and member
    per_epoch: int  # batches per epoch
    totals: Tensor  # sum of the weights of the rows of an epoch, per member
    signature: str = ""  # identifies rows on disk, so that checkpoints of other rows are rejected

    @abstractmethod
    def epoch(self, number: int) -> Iterator[Rows]:
        """Yield the ``per_epoch`` batches of an epoch; they depend only on its number."""


class TableBatches(Batches):
    """Batches of equal size from a table in memory; each member has its own order of rows in each epoch."""

    def __init__(self, table: Table, rows: Rows, members: Sequence[Member], batch_size: int) -> None:
        longest = rows.index.shape[1]
        self.table, self.rows = table, rows
        self.per_epoch = max(1, math.ceil(longest / batch_size))
        self.size = math.ceil(longest / self.per_epoch)  # equal sizes, without a small last batch
        self.totals = total_weight(table, rows)
        self._seeds = _member_seeds(members, table.device)

    def epoch(self, number: int) -> Iterator[Rows]:
        """Yield the batches of an epoch."""
        order = shuffled(self.rows, self._seeds, number)
        for i in range(self.per_epoch):
            yield order.columns(slice(i * self.size, (i + 1) * self.size))


class StreamBatches(Batches):
    """Batches from a buffer of rows, in a separate order for each member; the buffer is refilled after each pass.

    Parameters
    ----------
    read : callable
        Takes the number of an epoch and yields its rows as tables on the CPU: ``n_rows`` rows in total, with weights of
        mean one.
    like : Table
        A table with the same columns.
    buffer_rows : int
        Largest number of rows that are shuffled together; at least one batch is.
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
        # whole batches, so that an epoch has as many batches as with a table in memory
        self._rows = min(self.size * max(1, buffer_rows // self.size), n_rows)
        self._buffers = math.ceil(n_rows / self._rows)
        self.table = _empty(like, self._rows).to(device)
        self.totals = torch.full((len(members),), float(n_rows), dtype=torch.float64, device=device)
        self._seeds = _member_seeds(members, device)

    def epoch(self, number: int) -> Iterator[Rows]:
        """Yield the batches of an epoch."""
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
    """Return the seeds of all members as 32-bit integers."""
    return torch.tensor([member.seed for member in members], dtype=torch.int64, device=device).to(torch.int32)


def shuffled(rows: Rows, seeds: Tensor, epoch: int) -> Rows:
    """Shuffle each member's rows by its seed and the epoch; padding comes last."""
    bits = random_bits(stream_key(seeds, _SHUFFLE, epoch), rows.index.shape[1]).to(torch.int64)
    bits.masked_fill_(~rows.present, 1 << 31)
    if bits.is_cuda:
        order = torch.argsort(bits, dim=1, stable=True)
    else:  # NumPy sorts numbers several times as fast as it or torch finds their order
        bits.bitwise_left_shift_(_PLACE_BITS).bitwise_or_(torch.arange(bits.shape[1])).numpy().sort(axis=1)
        order = bits.bitwise_and_((1 << _PLACE_BITS) - 1)
    return Rows(rows.index.gather(1, order), rows.present.gather(1, order))


def total_weight(table: Table, rows: Rows) -> Tensor:
    """Return the total weight of each member's rows, (K,)."""
    if table.outcome.weight is None:
        return rows.present.sum(1)
    return torch.where(rows.present, table.outcome.weight[rows.index].double(), 0.0).sum(1)


def batch_rows(batch_size: int | Literal["auto", "full"], n: int) -> int:
    """Return the rows per batch: ``batch_size``, n for "full", or the power of two nearest to 4 √n for "auto"."""
    if batch_size == "full":
        return n
    if batch_size == "auto":
        return int(2 ** round(math.log2(max(8.0, 4.0 * math.sqrt(n)))))
    return int(batch_size)


def split_rows(outcome: Outcome, seed: int, fraction: float) -> tuple[RowNumbers, RowNumbers | None]:
    """Draw training and validation rows with the same proportion of events.

    The rows of one subject stay together. With fewer than ten subjects, there are no validation rows.
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
    """Draw training and validation rows by `Outcome.folds`; no validation rows with fewer than ten subjects."""
    everyone = np.arange(len(outcome))
    if len(outcome.subject_event) < _SMALLEST_SPLIT:
        return [(everyone, None)] * n_folds
    return [(np.setdiff1d(everyone, held_out), held_out) for held_out in outcome.folds(n_folds, seed)]


def _can_stratify(labels: npt.NDArray[Any], fraction: float) -> bool:
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts) > 1 and counts.min() >= 2 and math.ceil(fraction * len(labels)) >= len(counts)


# ------------------------------------------------------------------ rows that are read while networks train


def _empty(like: Table, n: int) -> Table:
    """Return a table of n rows of zeros with the columns of another table."""

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
    """Yield the items of a generator, which another thread reads ahead; its errors are raised here."""
    end = object()
    with closing(make()) as items, ThreadPoolExecutor(1, "sumosurv-reader") as pool:
        ready = deque(pool.submit(next, items, end) for _ in range(_AHEAD))
        try:
            while (item := ready.popleft().result()) is not end:
                ready.append(pool.submit(next, items, end))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)
