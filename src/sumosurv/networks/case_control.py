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

_CONTROLS = 1 << 8  # stream number of the controls; dropout layers have smaller numbers
_TRIES = 32  # attempts to draw a row that is at risk, with delayed entry


def at_risk_from(entry: Tensor) -> Tensor:
    """Return the time after which each row is at risk; -1 instead of 0, so that a row is at risk at time zero."""
    return torch.where(entry > 0, entry, -1.0)


@dataclass(frozen=True)
class _Ordered:
    """Each member's rows sorted by time or entry, (K, n), with padding last; cumulative weights, (K, n + 1)."""

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
        """Draw positions in [first, end), weighted by the rows' weights; arguments broadcast to (K, b, c)."""
        if self.weights is None:
            size = (end - first).clamp_min(1)
            chosen = first + (uniform * size).long().clamp_max(size - 1)
            return chosen.clamp_max(self.rows.shape[1] - 1)
        low, high = self.mass(first), self.mass(end)
        wanted = (low + uniform * (high - low)).flatten(1)
        found = torch.searchsorted(self.weights[:, 1:].contiguous(), wanted, right=True).reshape(uniform.shape)
        return torch.minimum(torch.maximum(found, first), (end - 1).clamp_min(0)).clamp_max(self.rows.shape[1] - 1)

    def mass(self, place: Tensor) -> Tensor:
        """Return the total weight of the rows before each position."""
        if self.weights is None:
            return place.double()
        return self.weights.gather(1, place.flatten(1)).reshape(place.shape)


@dataclass(frozen=True)
class _Pool:
    """The rows from which controls are drawn, sorted by time and, with delayed entry, also by entry time."""

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
        """Draw n rows at risk at each time (K, b); returns row numbers (K, b, n)."""
        members, b = time.shape
        first = torch.searchsorted(self.by_time.times, time.contiguous())[:, :, None]
        count = self.count[:, None, None]
        if self.by_entry is None:
            chosen = self.by_time.places(_uniform(keys, (members, b, n)), first, count)
            return self._rows(self.by_time, chosen)
        return self._draw_entered(time, first, count, keys, n)

    def _draw_entered(self, time: Tensor, first: Tensor, count: Tensor, keys: Tensor, n: int) -> Tensor:
        """Draw from the rows still under observation or those already entered, whichever are fewer, until one is both.

        The result is -1 if `_TRIES` attempts found no row at risk.
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
    r"""Draws controls from the risk set: for a case at time t, from the training rows with entry < t <= z.

    Kvamme, Borgan and Scheel (2019) replace the sum over the risk set by one over the case i and n controls,

    .. math:: -\log\Big(1 + \sum_{j} e^{g_j - g_i}\Big).

    Rows are drawn with probabilities proportional to their weights. With delayed entry, they are drawn from the rows
    with z >= t or from the rows with entry < t, whichever are fewer, until one is at risk, in at most 32 attempts.

    Parameters
    ----------
    seeds : Tensor of shape (K,)
    n_controls : int
    """

    def __init__(self, seeds: Tensor, n_controls: int) -> None:
        super().__init__(seeds, _CONTROLS)
        self.n_controls = n_controls
        self._pool: _Pool | None = None  # not a buffer: training data must not be stored with the model

    def take(self, table: Table, rows: Sequence[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
        """Store each member's training rows, from which controls are drawn, and return the cases among them."""
        padded = Rows.of(rows).to(table.device)
        self._pool = _Pool.of(table.outcome, padded.index, padded.present)
        event = table.outcome.event.cpu().numpy()
        return [part[event[part]] if event[part].any() else part for part in rows]

    def release(self) -> None:
        """Forget the training rows."""
        self._pool = None

    def draw(self, batch: Batch) -> Tensor:
        """Return the controls of each row of the batch, as table rows (K, b, n_controls); -1 if none was found.

        In training, controls come from the pool and change at every step. In evaluation, they come from the batch and
        are the same at every call.
        """
        if self.training and self._pool is not None:
            return self._pool.draw(batch.outcome.time, self.keys(), self.n_controls)
        pool = _Pool.of(batch.table.outcome, batch.index, batch.present)
        return pool.draw(batch.outcome.time, self.seeds, self.n_controls)


def valid_controls(rows: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Return valid row numbers and a mask of the controls that were found; None instead of the mask if all were."""
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
        Mask of the controls that were found; the others contribute nothing.
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
