"""Batches of rows that are read from disk: a buffer that is filled, shuffled and gone through, again and again."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from sumosurv.networks import Inputs, Observed, Rows, Table
from sumosurv.outcome import each_field
from sumosurv.training import Batches, Member, member_seeds, shuffled

__all__ = ["BUFFER", "StreamBatches", "prefetched"]

BUFFER = 262_144  # rows that are shuffled together
_AHEAD = 8  # parts of a table that are read ahead
_WAIT = 0.1  # seconds after which a reader looks whether it is still wanted


class StreamBatches(Batches):
    """Each member goes through the rows of a buffer in an order of its own, then the buffer is filled anew.

    Parameters
    ----------
    read : callable
        From the number of an epoch to its rows, as tables on the CPU; all of them together have ``n_rows``.
    n_rows : int
    total : float
        For how many rows they count.
    like : Table
        Any rows of the same kind.
    members : sequence of Member
    batch_size : int
    device : torch.device
    buffer_rows : int
        Rows that are shuffled together at most, but a batch at least.
    signature : str
        See `Batches`.
    """

    def __init__(
        self,
        read: Callable[[int], Iterator[Table]],
        n_rows: int,
        total: float,
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
        self.totals = torch.full((len(members),), float(total), dtype=torch.float64, device=device)
        self._seeds = member_seeds(members, device)

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


def prefetched(make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """What an iterator gives, read a little ahead by a thread of its own; what it raises is raised here."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=_AHEAD)
    unwanted = threading.Event()

    def put(item: tuple[str, Any]) -> bool:
        while not unwanted.is_set():
            try:
                ready.put(item, timeout=_WAIT)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in make():
                if not put(("item", item)):
                    return
        except BaseException as error:  # whatever it is, it is for the thread that waits
            put(("error", error))
        else:
            put(("end", None))

    reader = threading.Thread(target=work, name="sumosurv-reader", daemon=True)
    reader.start()
    try:
        while True:
            kind, item = ready.get()
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item
    finally:
        unwanted.set()
        reader.join()
