"""Case-control sampling: a few rows of each risk set instead of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from sumosurv.networks.encoders import Batch, Observed, Rows, Table
from sumosurv.networks.layers import MemberStream, random_bits, stream_key

_CONTROLS = 1 << 8  # the place of the control streams, apart from those of the dropout layers
_TRIES = 32  # to find a control that has entered and is still there


def at_risk_from(entry: Tensor) -> Tensor:
    """The time after which each row is at risk: -1 for rows at risk from the beginning, so that time zero counts."""
    return torch.where(entry > 0, entry, -1.0)


@dataclass(frozen=True)
class _Ordered:
    """Each member's rows by one of their times, (K, n), padding last; weights summed up to each place, (K, n + 1)."""

    times: Tensor
    rows: Tensor
    weights: Tensor | None

    @classmethod
    def of(cls, times: Tensor, index: Tensor, present: Tensor, weight: Tensor | None) -> _Ordered:
        ordered, order = torch.sort(torch.where(present, times, torch.inf), dim=1, stable=True)
        sums = None
        if weight is not None:
            own = torch.where(present, weight.double(), 0.0).gather(1, order)
            sums = functional.pad(own.cumsum(1), (1, 0))
        return cls(ordered.contiguous(), index.gather(1, order), sums)

    def places(self, uniform: Tensor, first: Tensor, end: Tensor) -> Tensor:
        """Places in [first, end) at random, each as often as its weight is large; all (K, b, c) or broadcast to it."""
        if self.weights is None:
            size = (end - first).clamp_min(1)
            chosen = first + (uniform * size).long().clamp_max(size - 1)
            return chosen.clamp_max(self.rows.shape[1] - 1)
        low, high = self.mass(first), self.mass(end)
        wanted = (low + uniform * (high - low)).flatten(1)
        found = torch.searchsorted(self.weights[:, 1:].contiguous(), wanted, right=True).reshape(uniform.shape)
        return torch.minimum(torch.maximum(found, first), (end - 1).clamp_min(0)).clamp_max(self.rows.shape[1] - 1)

    def mass(self, place: Tensor) -> Tensor:
        """The weight of the rows before some places."""
        if self.weights is None:
            return place.double()
        return self.weights.gather(1, place.flatten(1)).reshape(place.shape)


@dataclass(frozen=True)
class _Pool:
    """The rows of which controls are drawn: by time, and by entry where rows enter late."""

    by_time: _Ordered
    count: Tensor  # (K,)
    by_entry: _Ordered | None
    table: Observed

    @classmethod
    def of(cls, outcome: Observed, index: Tensor, present: Tensor) -> _Pool:
        """Return the pool of rows (K, n) of a table."""
        own = outcome[index]
        by_entry = None
        if own.entry is not None:
            by_entry = _Ordered.of(at_risk_from(own.entry), index, present, own.weight)
        return cls(_Ordered.of(own.time, index, present, own.weight), present.sum(1), by_entry, outcome)

    def draw(self, time: Tensor, keys: Tensor, n: int) -> Tensor:
        """Rows at risk at each time (K, b), n of them: (K, b, n)."""
        members, b = time.shape
        first = torch.searchsorted(self.by_time.times, time.contiguous())[:, :, None]
        count = self.count[:, None, None]
        if self.by_entry is None:
            chosen = self.by_time.places(_uniform(keys, (members, b, n)), first, count)
            return self._rows(self.by_time, chosen)
        return self._draw_entered(time, first, count, keys, n)

    def _draw_entered(self, time: Tensor, first: Tensor, count: Tensor, keys: Tensor, n: int) -> Tensor:
        """Rows still there at each time, or those that have entered before it, whichever are fewer, until one is both.

        -1 where some tries have found none.
        """
        assert self.by_entry is not None
        assert self.table.entry is not None
        shape = (*time.shape, n)
        entered = torch.searchsorted(self.by_entry.times, time.contiguous())[:, :, None]
        there = self.by_time.mass(count.expand_as(first)) - self.by_time.mass(first)
        fewer_there = there <= self.by_entry.mass(entered)
        found = torch.full(shape, -1, dtype=torch.long, device=time.device)
        for attempt in range(_TRIES):
            uniform = _uniform(stream_key(keys, attempt), shape)
            still = self._rows(self.by_time, self.by_time.places(uniform, first, count))
            come = self._rows(self.by_entry, self.by_entry.places(uniform, torch.zeros_like(entered), entered))
            row = torch.where(fewer_there, still, come)
            good = (at_risk_from(self.table.entry[row]) < time[..., None]) & (self.table.time[row] >= time[..., None])
            found = torch.where((found < 0) & good, row, found)
        return found

    @staticmethod
    def _rows(ordered: _Ordered, places: Tensor) -> Tensor:
        return ordered.rows.gather(1, places.flatten(1)).reshape(places.shape)


def _uniform(keys: Tensor, shape: tuple[int, ...]) -> Tensor:
    bits = random_bits(keys, shape[1] * shape[2]).reshape(shape)
    return (bits.double() + 2.0**31) / 2.0**32


class CaseControl(MemberStream):
    r"""Controls drawn from the risk set: for a case at time t, from the training rows with entry < t <= z.

    Kvamme, Borgan and Scheel (2019) replace the sum over the risk set by one over the case i and n controls,

    .. math:: -\log\Big(1 + \sum_{j} e^{g_j - g_i}\Big).

    Rows are drawn evenly, or as often as their weights are large. Where rows enter late they are drawn from those
    with z >= t or from those with entry < t, whichever are fewer, until one is both, for 32 tries at most.

    Parameters
    ----------
    seeds : Tensor of shape (K,)
    n_controls : int
    """

    def __init__(self, seeds: Tensor, n_controls: int) -> None:
        super().__init__(seeds, _CONTROLS)
        self.n_controls = n_controls
        self._pool: _Pool | None = None  # no buffer: it is training data, and not the model's

    def take(self, table: Table, rows: Sequence[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
        """Take each member's training rows, from which controls are drawn; returns the cases among them."""
        padded = Rows.of(rows).to(table.device)
        self._pool = _Pool.of(table.outcome, padded.index, padded.present)
        event = table.outcome.event.cpu().numpy()
        return [part[event[part]] if event[part].any() else part for part in rows]

    def release(self) -> None:
        """Forget the training rows."""
        self._pool = None

    def draw(self, batch: Batch) -> Tensor:
        """Rows of the table (K, b, n_controls): controls of each row of the batch, -1 where none was found.

        In training they come from the pool and change from step to step; in evaluation from the batch itself, and
        are the same at each call.
        """
        if self.training and self._pool is not None:
            return self._pool.draw(batch.outcome.time, self.keys(), self.n_controls)
        pool = _Pool.of(batch.table.outcome, batch.index, batch.present)
        return pool.draw(batch.outcome.time, self.seeds, self.n_controls)


def found_controls(rows: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Return row numbers that are all valid, and which of them are controls; None if all are."""
    return (rows, None) if batch.outcome.entry is None else (rows.clamp_min(0), rows >= 0)


def case_control_terms(
    case: Tensor, controls: Tensor, event: Tensor, shrink: float, found: Tensor | None = None
) -> Tensor:
    r"""-log(1 + Σⱼ e^{gⱼ - gᵢ}) for rows with an event, zero for others, minus shrink · mean |g|.

    Parameters
    ----------
    case : Tensor of shape (K, b)
    controls : Tensor of shape (K, b, n)
    event : Tensor of shape (K, b)
    shrink : float
    found : Tensor of shape (K, b, n), optional
        Which of the controls there are; the others add nothing.
    """
    gap = controls - case[..., None]
    if found is not None:
        gap = torch.where(found, gap, -torch.inf)
    terms = -torch.logsumexp(functional.pad(gap, (1, 0)), dim=2)
    if shrink and found is None:
        terms = terms - shrink * (case.abs() + controls.abs().mean(dim=2))
    elif shrink and found is not None:
        mean = torch.where(found, controls.abs(), 0.0).sum(dim=2) / found.sum(dim=2).clamp_min(1)
        terms = terms - shrink * (case.abs() + mean)
    return torch.where(event, terms, 0.0)
