"""What networks read: the inputs and outcomes of a table as tensors, the rows of each member, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sumosurv.outcome import Outcome, each_field


@dataclass(frozen=True)
class Inputs:
    """What a covariate network reads: numbers of shape (rows, ...) and category codes of shape (rows, c)."""

    numeric: Tensor
    codes: Tensor

    def __getitem__(self, rows: Any) -> Inputs:
        return Inputs(self.numeric[rows], self.codes[rows])

    def shared(self) -> Inputs:
        """With a member axis of one: the same rows for every member."""
        return Inputs(self.numeric[None], self.codes[None])

    def to(self, device: torch.device, dtype: torch.dtype) -> Inputs:
        """On another device, with numbers of another precision."""
        return Inputs(self.numeric.to(device, dtype), self.codes.to(device))

    @classmethod
    def join(cls, parts: Sequence[Inputs]) -> Inputs:
        """The rows of several tables, one below the other."""
        return cls(torch.cat([part.numeric for part in parts]), torch.cat([part.codes for part in parts]))

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.codes)


@dataclass(frozen=True)
class Observed:
    """An `Outcome` as tensors, its times in the networks' unit: of shape (rows,), or (K, rows) in a batch.

    It has the fields of `Outcome`; one that is added there is added here, and travels, also where it is None.
    """

    event: Tensor
    time: Tensor
    entry: Tensor | None = None
    upper: Tensor | None = None
    cause: Tensor | None = None
    weight: Tensor | None = None
    group: Tensor | None = None

    @classmethod
    def of(cls, outcome: Outcome, dtype: torch.dtype = torch.float32) -> Self:
        """From an outcome whose times are in the networks' unit; all real numbers get the given precision."""

        def tensor(values: npt.NDArray[Any]) -> Tensor:
            made = torch.from_numpy(values.copy())
            return made.to(dtype) if made.is_floating_point() else made

        return cls(**each_field(tensor, outcome))

    def __getitem__(self, rows: Any) -> Self:
        # once per training step: `each_field` would take as long as the indexing
        some: dict[str, Any] = {name: None if own is None else own[rows] for name, own in vars(self).items()}
        return type(self)(**some)

    def __len__(self) -> int:
        return len(self.time)

    def to(self, device: torch.device) -> Self:
        """On another device."""
        return type(self)(**each_field(lambda values: values.to(device), self))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The rows of several tables, one below the other."""
        return cls(**each_field(lambda *values: torch.cat(values), *parts))


@dataclass(frozen=True)
class Table:
    """Inputs and outcomes of the rows that all members read, each its own part of them."""

    inputs: Inputs
    outcome: Observed
    _remembered: dict[object, tuple[int, Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.outcome)

    def remembered(self, owner: object, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """What somebody makes of the times of all rows, computed once, and anew when the times have changed."""
        time = self.outcome.time
        version, found = self._remembered.get(owner, (-1, time))
        if version != time._version:
            version, found = time._version, compute(time)
            self._remembered[owner] = version, found
        return found

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.outcome.time.device

    def to(self, device: torch.device) -> Table:
        """On another device."""
        return Table(self.inputs.to(device, self.inputs.numeric.dtype), self.outcome.to(device))

    def batch(self, index: Tensor, present: Tensor) -> Batch:
        """Rows (K, b) of each member."""
        return Batch(self.inputs[index], self.outcome[index], present, index, self)

    @classmethod
    def join(cls, parts: Sequence[Table]) -> Table:
        """The rows of several tables, one below the other."""
        return cls(Inputs.join([part.inputs for part in parts]), Observed.join([part.outcome for part in parts]))


@dataclass(frozen=True)
class Batch:
    """Rows (K, b) of each member, or (1, b) for all; where ``present`` is False a row is padding and must not count."""

    inputs: Inputs
    outcome: Observed
    present: Tensor
    index: Tensor  # of the rows in the table
    table: Table


@dataclass(frozen=True)
class Rows:
    """Row numbers of each member, (K, n), padded where ``present`` is False."""

    index: Tensor
    present: Tensor

    @classmethod
    def of(cls, rows: Sequence[npt.NDArray[np.int64]]) -> Rows:
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

    def columns(self, part: slice) -> Rows:
        """The same columns of every member."""
        return Rows(self.index[:, part], self.present[:, part])
