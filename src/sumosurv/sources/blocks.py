"""Rows in blocks with their outcome: a table in memory is one block, rows on disk are many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome import Outcome, as_pandas, check_outcome
from sumosurv.sources.roles import Roles
from sumosurv.sources.source import RowSource, is_source

__all__ = ["Block", "Source", "as_source", "count_rows", "opened", "take_rows"]

_ROWS = 65_536  # rows of a block on disk


@dataclass(frozen=True)
class Block:
    """Some rows of a source.

    Parameters
    ----------
    X : table
        Their covariates.
    outcome : Outcome or None
        Their outcome; None for a source without one.
    rows : int array of shape (n,)
        Their numbers in the whole table.
    subjects : array of shape (n,)
        The subject of each row; the row number if each row is a subject of its own.
    """

    X: Any
    outcome: Outcome | None
    rows: npt.NDArray[np.int64]
    subjects: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.rows)


class Source(ABC):
    """Rows in blocks, wherever they are.

    Attributes
    ----------
    name : str
        What error messages call the table.
    n_rows : int
        The number of rows, including rows whose weight is zero.
    n_causes : int
        The number of competing causes; 1 without an outcome.
    in_memory : bool
        Whether `blocks` gives all rows as one block unless asked for fewer at a time.
    """

    name: str
    n_rows: int
    n_causes: int
    in_memory: bool

    @property
    @abstractmethod
    def covariates(self) -> list[str] | None:
        """The names of the covariates; None for an array."""

    @abstractmethod
    def blocks(self, columns: Sequence[str] | None = None, *, rows: int | None = None) -> Iterator[Block]:
        """The rows in their order. Rows whose weight is zero are left out.

        Parameters
        ----------
        columns : sequence of str, optional
            The covariates to read; all by default.
        rows : int, optional
            The largest number of rows per block.
        """


class _Table(Source):
    """A table in memory."""

    in_memory = True

    def __init__(self, X: Any, outcome: Outcome | None) -> None:
        self.name = type(X).__name__
        self.n_rows = len(outcome) if outcome is not None else count_rows(X)
        self.n_causes = 1 if outcome is None else outcome.n_causes
        self._X, self._outcome = X, outcome

    @property
    def covariates(self) -> list[str] | None:
        return list(self._X.columns) if isinstance(self._X, pd.DataFrame) else None

    def blocks(self, columns: Sequence[str] | None = None, *, rows: int | None = None) -> Iterator[Block]:
        outcome = self._outcome
        numbers = np.arange(self.n_rows)
        if outcome is not None and outcome.weight is not None:
            numbers = np.flatnonzero(outcome.weight)
        X = self._X if columns is None else self._X[list(columns)]
        subjects = np.arange(self.n_rows) if outcome is None or outcome.group is None else outcome.group
        step = rows or max(len(numbers), 1)
        for start in range(0, len(numbers), step):
            part = numbers[start : start + step]
            if len(part) == self.n_rows:
                yield Block(X, outcome, part, subjects)
            else:
                some = None if X is None else take_rows(X, part)
                yield Block(some, None if outcome is None else outcome[part], part, subjects[part])


class _Streamed(Source):
    """Rows on disk."""

    in_memory = False

    def __init__(self, source: RowSource, roles: Roles | None) -> None:
        self.name, self.n_rows = source.name, source.n_rows
        self.n_causes = 1 if roles is None else roles.n_causes
        self.source, self.roles = source, roles

    @property
    def covariates(self) -> list[str]:
        return list(self.source.columns) if self.roles is None else self.roles.covariates(self.source)

    def blocks(self, columns: Sequence[str] | None = None, *, rows: int | None = None) -> Iterator[Block]:
        names = self.covariates if columns is None else list(columns)
        roles = self.roles
        if roles is None:
            for frame in self.source.frames(names, rows=rows or _ROWS):
                yield Block(frame, None, frame.index.to_numpy(), frame.index.to_numpy())
            return
        wanted = list(dict.fromkeys([*names, *roles.names]))
        for frame in roles.counted(self.source.frames(wanted, rows=rows or _ROWS)):
            yield Block(frame[names], roles.outcome(frame), frame.index.to_numpy(), roles.subject_names(frame))


def as_source(
    X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, *, n_causes: int | None = None
) -> Source:
    """Anything that rows can be read from, as a source of blocks.

    Parameters
    ----------
    X : table in memory, path, pyarrow.dataset.Dataset, iterator of record batches or RowSource
        None for an outcome without covariates.
    y : outcome, or mapping of roles to column names, optional
        A mapping such as ``{"time": "months", "event": "died"}`` names columns of X. Rows on disk require it, and it
        can be used with a DataFrame.
    sample_weight, groups : array of shape (n,) or str, optional
        The weight and the subject of each row; with a mapping ``y``, names of columns.
    n_causes : int, optional
        The number of causes of the model that reads the rows, which need not have all of them.
    """
    if is_source(X):
        source = RowSource.of(X)
        roles = None if y is None else Roles.of(y, sample_weight, groups).read(source, n_causes)
        return _Streamed(source, roles)
    if X is None and y is None:
        raise ValueError("There are no rows: pass X, y or both.")
    X = as_pandas(X)
    if isinstance(X, pd.DataFrame) and isinstance(y, (Roles, Mapping)):
        roles = Roles.of(y, sample_weight, groups)
        return _Table(X[roles.covariates(X)], roles.table_outcome(X, n_causes))
    n_rows = None if X is None else count_rows(X)
    outcome = None if y is None else check_outcome(y, n_rows=n_rows, sample_weight=sample_weight, groups=groups)
    return _Table(X, outcome)


def opened(X: Any) -> Any:
    """Rows on disk as a RowSource, so that they can be read more than once; a table in memory as it is."""
    return RowSource.of(X) if is_source(X) else X


def count_rows(X: Any) -> int:
    """The number of rows of a table of any kind, or of a RowSource."""
    if isinstance(X, RowSource):
        return X.n_rows
    if is_source(X):
        raise TypeError(f"Rows in memory are required, and {type(X).__name__} is read in pieces; read the table first.")
    return int(X.shape[0]) if hasattr(X, "shape") and len(X.shape) else len(X)


def take_rows(X: Any, rows: npt.NDArray[np.intp] | slice) -> Any:
    """Some rows of a table: a frame of pandas or of another library, an array, or a list of rows."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "columns") else np.asarray(X)[rows]
