"""The rows of a table of survival curves: in memory, or computed from proportional hazards when needed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ProportionalRows", "Rows"]


@dataclass(frozen=True)
class Rows:
    """A table in memory, (n, m)."""

    values: Tensor

    def __len__(self) -> int:
        return len(self.values)

    @property
    def like(self) -> Tensor:
        """Any tensor of the rows."""
        return self.values

    @property
    def is_repeated(self) -> bool:
        """Whether all rows are one row in memory."""
        return self.values.stride(0) == 0

    def take(self, rows: Tensor) -> Rows:
        """Some of the rows; one row that serves all stays one in memory."""
        return Rows(self.values[:1].expand(len(rows), -1) if self.is_repeated and len(self) else self.values[rows])

    def table(self) -> Tensor:
        """All of S, (n, m)."""
        return self.values

    def ranking(self) -> Tensor | None:
        """Zeros if one row serves all subjects, None otherwise."""
        return torch.zeros_like(self.values[:, 0]) if self.is_repeated else None

    def at(self, index: Tensor) -> Tensor:
        """S at columns of shape (n or 1, m)."""
        return self.values[:, index[0]] if index.shape[0] == 1 else self.values.gather(1, index)


@dataclass(frozen=True)
class ProportionalRows:
    """The table exp(-risk · Λ) of Λ (m,) and risks (n,), computed when needed and never stored."""

    hazard: Tensor
    risk: Tensor

    def __len__(self) -> int:
        return len(self.risk)

    @property
    def like(self) -> Tensor:
        """Any tensor of the rows."""
        return self.risk

    def take(self, rows: Tensor) -> ProportionalRows:
        """Some of the rows."""
        return ProportionalRows(self.hazard, self.risk[rows])

    def table(self) -> Tensor:
        """All of S, (n, m)."""
        return torch.exp(-self.risk[:, None] * self.hazard)

    def ranking(self) -> Tensor:
        """The risks."""
        return self.risk

    def at(self, index: Tensor) -> Tensor:
        """S at columns of shape (n or 1, m)."""
        return torch.exp(-self.risk[:, None] * self.hazard[index])
