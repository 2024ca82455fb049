"""Numeric columns prepared on the device of the networks: what `NumericColumn.transform` does on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["prepare_numbers"]


class Column(Protocol):
    """What is read of a `NumericColumn`."""

    @property
    def centre(self) -> float:
        """The centre of its values, or of their scores."""

    @property
    def width(self) -> float:
        """Their width."""

    @property
    def indicator(self) -> bool:
        """Whether a column says where values are missing."""

    @property
    def knots(self) -> tuple[float, ...]:
        """Quantiles of the training rows, for normal scores; none where values are scaled as they are."""


def prepare_numbers(columns: Sequence[Column], values: Tensor) -> Tensor:
    """The numbers that networks read, in float32, of a table of numbers (rows, columns) in float64, on its device."""
    if not columns:
        return values.new_zeros(len(values), 0, dtype=torch.float32)
    missing = torch.isnan(values)
    scores = values.clone()
    scored = [j for j, column in enumerate(columns) if column.knots]
    if scored:
        own = values[:, scored].T.contiguous()  # a row for each column, as searchsorted wants them
        scores[:, scored] = _normal_scores([columns[j].knots for j in scored], own).T
    centre, width = (values.new_tensor(v) for v in zip(*((column.centre, column.width) for column in columns)))
    scaled = torch.where(missing, 0.0, (scores - centre) / width).float()
    with_indicator = [j for j, column in enumerate(columns) if column.indicator]
    if not with_indicator:
        return scaled
    order = [
        place
        for j, column in enumerate(columns)
        for place in ([j, len(columns) + with_indicator.index(j)] if column.indicator else [j])
    ]
    return torch.cat([scaled, missing[:, with_indicator].float()], dim=1)[:, order]


def _normal_scores(knots: Sequence[tuple[float, ...]], values: Tensor) -> Tensor:
    """Normal scores of values (columns, rows) by the quantiles of each column; shorter lists end in infinities."""
    most = max(len(own) for own in knots)
    table = values.new_tensor([[*own, *[math.inf] * (most + 1 - len(own))] for own in knots])
    last = values.new_tensor([[len(own) - 1.0] for own in knots])
    place = torch.searchsorted(table, values)  # of the first knot that is not smaller
    after = torch.searchsorted(table, values, right=True)
    left = (place - 1).clamp(0, most - 1)
    low, high = table.gather(1, left), table.gather(1, left + 1)
    rank = torch.where(high > low, left + (values - low) / (high - low), 0.0).clamp_min(0.0)
    rank = torch.where(after > place, 0.5 * (place + after - 1), torch.minimum(rank, last))
    scores: Tensor = torch.special.ndtri((rank + 0.5) / (last + 1.0))
    return scores
