"""Preprocessing of a fitted table as a torch module, for other devices and for export."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sumosurv.networks.encoders import Inputs
from sumosurv.preprocessing.columns import CategoricalColumn, NumericColumn, knot_ranks, padded_knots


class ColumnReader(nn.Module):
    """A fitted `Preprocessor` as a torch module, for all columns at once.

    Parameters
    ----------
    columns : sequence of NumericColumn and CategoricalColumn
    one_hot : bool, default False
        Give categories as 0/1 columns among the numbers.
    projection : Tensor, optional
        Turns the numbers into principal components.

    ``forward`` takes the numeric columns, (n, p) in float64 with NaN for missing values, and the codes of the
    categorical ones, (n, c), each in the order of the table; the codes are those of `CategoricalColumn`.
    """

    centre: Tensor
    width: Tensor
    order: Tensor
    ranked: Tensor
    knots: Tensor
    last: Tensor
    chosen: Tensor
    projection: Tensor | None

    def __init__(
        self,
        columns: Sequence[NumericColumn | CategoricalColumn],
        *,
        one_hot: bool = False,
        projection: Tensor | None = None,
    ) -> None:
        super().__init__()
        numeric = [column for column in columns if isinstance(column, NumericColumn)]
        coded = [column for column in columns if isinstance(column, CategoricalColumn)]
        self.one_hot = [column.n_codes for column in coded] if one_hot else []
        self.register_buffer("centre", torch.tensor([column.centre for column in numeric], dtype=torch.float64))
        self.register_buffer("width", torch.tensor([column.width for column in numeric], dtype=torch.float64))
        self._note_ranks(numeric)
        self.register_buffer("order", torch.tensor(_places(columns, one_hot), dtype=torch.long))
        self.register_buffer("projection", projection)

    def _note_ranks(self, numeric: list[NumericColumn]) -> None:
        """Register which columns become normal scores, and their knots, padded at the end."""
        ranked = [j for j, column in enumerate(numeric) if column.knots]
        knots, last = padded_knots([numeric[j].knots for j in ranked])
        self.register_buffer("ranked", torch.tensor(ranked, dtype=torch.long))
        self.register_buffer("knots", knots)
        self.register_buffer("last", last)
        # a column is one of the scores, or itself
        places = {j: len(numeric) + place for place, j in enumerate(ranked)}
        self.register_buffer("chosen", torch.tensor([places.get(j, j) for j in range(len(numeric))], dtype=torch.long))

    def forward(self, numbers: Tensor, codes: Tensor) -> Inputs:
        """Numbers in single precision, as networks were trained on, and codes."""
        missing = torch.isnan(numbers)
        values = numbers
        if len(self.ranked):
            values = torch.cat([numbers, self._scores(numbers[:, self.ranked])], dim=1)[:, self.chosen]
        scaled = torch.where(missing, 0.0, (values - self.centre) / self.width)
        parts = [scaled, missing.to(torch.float64)]
        for j, count in enumerate(self.one_hot):
            parts.append((codes[:, j : j + 1] == torch.arange(count)).to(torch.float64))
        made = torch.cat(parts, dim=1)[:, self.order]
        if self.projection is not None:
            made = made @ self.projection
        return Inputs(made.to(torch.float32), codes[:, :0] if self.one_hot else codes)

    def _scores(self, values: Tensor) -> Tensor:
        """Normal scores by quantiles."""
        across = values.T.contiguous()
        share = (knot_ranks(self.knots, self.last, across) + 0.5) / (self.last + 1).to(values.dtype)
        scores: Tensor = torch.special.ndtri(torch.where(torch.isnan(across), 0.5, share))
        return scores.T


def _places(columns: Sequence[NumericColumn | CategoricalColumn], one_hot: bool) -> list[int]:
    """The places of the inputs of a row among all values, all indicators of missing values, and all 0/1 columns."""
    n = sum(isinstance(column, NumericColumn) for column in columns)
    places, number, dummy = [], 0, 2 * n
    for column in columns:
        if isinstance(column, NumericColumn):
            places += [number, n + number] if column.indicator else [number]
            number += 1
        elif one_hot:
            places += range(dummy, dummy + column.n_codes)
            dummy += column.n_codes
    return places
