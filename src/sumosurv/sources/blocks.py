"""Rows in blocks with their outcome: a table in memory is one block, rows on disk are many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from scipy import sparse

from sumosurv.outcome import Outcome, as_pandas, check_outcome
from sumosurv.sources.roles import Roles
from sumosurv.sources.sketches import hashed, row_sample
from sumosurv.sources.source import RowSource, check_present
from sumosurv.warn import warn_user

_ROWS = 65_536  # rows of a block on disk

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Block:
    """Some rows of a source."""

    X: Any  # their covariates
    outcome: Outcome | None  # None for a source without one
    rows: npt.NDArray[np.int64]  # their numbers in the whole table
    subjects: npt.NDArray[Any]  # the subject of each row; the row number if each row is a subject of its own

    def __len__(self) -> int:
        return len(self.rows)


class Source(ABC):
    """Rows in blocks, wherever they are."""

    name: str  # what error messages call the table
    n_rows: int  # including rows whose weight is zero
    n_causes: int  # 1 without an outcome
    covariates: list[str] | None  # their names; None for an array
    names: list[str] | None  # of all columns that `blocks` can read; None for an array
    files: Sequence[Path] = ()  # that are read

    @abstractmethod
    def dispatch(self, at_once: Callable[[Source], T], in_blocks: Callable[[StoredRows], U]) -> T | U:
        """Call ``at_once`` with the source if all rows fit into memory together, else ``in_blocks``.

        Only sources know where rows are; whoever needs two algorithms gives both.
        """

    @abstractmethod
    def blocks(self, columns: Sequence[str] | None = None, *, rows: int | None = None) -> Iterator[Block]:
        """The rows in their order. Rows whose weight is zero are left out.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, out of ``names``; all covariates by default.
        rows : int, optional
            The largest number of rows per block.
        """

    @abstractmethod
    def sample(self, size: int) -> tuple[Any, Outcome]:
        """Covariates and outcome of a table in memory; of rows on disk a random sample of at most ``size`` rows."""

    @abstractmethod
    def whole(self, reader: str) -> tuple[Any, Outcome | None]:
        """Covariates and outcome of all rows; a TypeError that names the reader if they are on disk."""


class _Table(Source):
    """A table in memory."""

    def __init__(self, X: Any, outcome: Outcome | None) -> None:
        self.name = type(X).__name__
        self.n_rows = len(outcome) if outcome is not None else _count_rows(X)
        self.n_causes = 1 if outcome is None else outcome.n_causes
        self.covariates = self.names = list(X.columns) if isinstance(X, pd.DataFrame) else None
        self._X, self._outcome = X, outcome

    def dispatch(self, at_once: Callable[[Source], T], in_blocks: Callable[[StoredRows], U]) -> T | U:
        return at_once(self)

    def blocks(self, columns: Sequence[str] | None = None, *, rows: int | None = None) -> Iterator[Block]:
        outcome = self._outcome
        numbers = np.arange(self.n_rows)
        if outcome is not None and outcome.weight is not None:
            numbers = np.flatnonzero(outcome.weight)
        X = self._X if columns is None else self._X[list(columns)]
        subjects = np.arange(self.n_rows) if outcome is None or outcome.group is None else outcome.group
        step = rows or max(len(numbers), 1)
        for start in range(0, max(len(numbers), 1), step):
            part = numbers[start : start + step]
            if len(part) == self.n_rows:
                yield Block(X, outcome, part, subjects)
            else:
                yield Block(take_rows(X, part), None if outcome is None else outcome[part], part, subjects[part])

    def sample(self, size: int) -> tuple[Any, Outcome]:
        assert self._outcome is not None
        return self._X, self._outcome

    def whole(self, reader: str) -> tuple[Any, Outcome | None]:
        return self._X, self._outcome


class StoredRows(Source):
    """Rows on disk, with the columns that hold their outcome."""

    def __init__(self, source: RowSource, roles: Roles | None) -> None:
        self.name, self.n_rows = source.name, source.n_rows
        self.n_causes = 1 if roles is None else roles.n_causes
        self.source, self._roles = source, roles
        self.covariates: list[str] = list(source.columns) if roles is None else roles.covariates(source)
        self.names, self.files = source.names, source.files

    def dispatch(self, at_once: Callable[[Source], T], in_blocks: Callable[[StoredRows], U]) -> T | U:
        """Call ``in_blocks``; see `Source.dispatch`."""
        return in_blocks(self)

    @property
    def roles(self) -> Roles:
        """The columns that hold the outcome; a TypeError if none were named."""
        return Roles.of(self._roles)

    def blocks(self, columns: Sequence[str] | None = None, *, rows: int | None = None) -> Iterator[Block]:
        """The rows in their order; see `Source.blocks`."""
        names = self.covariates if columns is None else list(columns)
        return self._blocks(names, self.source.frames(self._wanted(names), rows=rows or _ROWS))

    def shuffled_blocks(self, seed: int, *, buffer: int) -> Iterator[Block]:
        """All rows in an order given by a seed; see `RowSource.shuffled_frames`."""
        frames = self.source.shuffled_frames(seed, self._wanted(self.covariates), buffer=buffer)
        return self._blocks(self.covariates, frames)

    def sample(self, size: int) -> tuple[Any, Outcome]:
        """A random sample of at most ``size`` rows."""
        sample = row_sample(size)
        for block in self.blocks():
            assert block.outcome is not None
            sample.add((block.X, block.outcome), hashed(block.rows, 1))
        found = sample.rows()
        assert found is not None  # a source without rows of positive weight is refused
        return found

    def whole(self, reader: str) -> tuple[Any, Outcome | None]:
        """Raise a TypeError."""
        raise TypeError(
            f"{reader} needs all rows at once and cannot be fitted to rows on disk; read the table into "
            "memory, or fit SumoNet or a parametric network such as WeibullNet."
        )

    def _wanted(self, names: list[str]) -> list[str]:
        return list(dict.fromkeys([*names, *([] if self._roles is None else self._roles.names)]))

    def _blocks(self, names: list[str], frames: Iterator[pd.DataFrame]) -> Iterator[Block]:
        roles = self._roles
        if roles is None:
            for frame in frames:
                yield Block(frame, None, frame.index.to_numpy(), frame.index.to_numpy())
            return
        for frame in roles.counted(frames):
            yield Block(frame[names], roles.outcome(frame), frame.index.to_numpy(), roles.subject_names(frame))


def as_source(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    n_causes: int | None = None,
    columns: Sequence[str] | None = None,
) -> Source:
    """Return anything that rows can be read from as a source of blocks.

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
    columns : sequence of str, optional
        The covariates to read from rows on disk, or from a DataFrame with a mapping ``y``; others are left out.
    """
    if isinstance(X, Source):
        return X
    if is_source(X):
        source = RowSource.of(X)
        if columns is not None:
            source = source.with_columns(columns)
        roles = None if y is None else Roles.of(y, sample_weight, groups).read(source, n_causes)
        return StoredRows(source, roles)
    if X is None and y is None:
        raise ValueError("There are no rows: pass X, y or both.")
    X = as_pandas(X)
    if isinstance(X, pd.DataFrame) and isinstance(y, (Roles, Mapping)):
        roles = Roles.of(y, sample_weight, groups)
        names = roles.covariates(X) if columns is None else check_present(columns, X.columns)
        return _Table(X[names], roles.table_outcome(X, n_causes))
    warn_of_order(X, y=y, sample_weight=sample_weight, groups=groups)
    n_rows = None if X is None else _count_rows(X)
    outcome = None if y is None else check_outcome(y, n_rows=n_rows, sample_weight=sample_weight, groups=groups)
    return _Table(X, outcome)


def warn_of_order(X: Any, **others: Any) -> None:
    """Warn of pandas objects with the index of X in another order: rows are matched by position, not by label.

    Default row numbers are not labels.
    """
    for name, other in others.items():
        own, theirs = getattr(X, "index", None), getattr(other, "index", None)
        if not isinstance(own, pd.Index) or not isinstance(theirs, pd.Index):
            continue
        if isinstance(own, pd.RangeIndex) or isinstance(theirs, pd.RangeIndex):
            continue
        if len(own) == len(theirs) and not own.equals(theirs) and own.is_unique and theirs.isin(own).all():
            warn_user(
                f"{name} has the row labels of X in another order. Rows are matched by position: pass "
                f"{name}.loc[X.index] to match them by label."
            )


def in_memory(X: Any) -> Any:
    """A table in memory, of pandas if it is of another library; a TypeError for rows on disk."""
    if is_source(X):
        raise TypeError(
            f"Rows in memory are required, and {type(X).__name__} is read in blocks; read the table "
            "first. For rows on disk, predict_* methods return arrays and predict_to_parquet writes a "
            "file."
        )
    return as_pandas(X)


def is_source(X: Any) -> bool:
    """Whether X is to be read in pieces: a path, a dataset of Arrow, an iterator of record batches or a `RowSource`."""
    if isinstance(X, (str, Path, RowSource, ds.Dataset, pa.RecordBatchReader)):
        return True
    return isinstance(X, Iterator)


def _count_rows(X: Any) -> int:
    return int(X.shape[0]) if getattr(X, "shape", ()) else len(X if hasattr(X, "__len__") else np.asarray(X))


def take_rows(X: Any, rows: npt.NDArray[np.intp] | slice) -> Any:
    """Some rows of a table: a frame of pandas or of another library, an array or sparse matrix, or a list of rows."""
    if X is None:  # distributions are evaluated without covariates
        return None
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if sparse.issparse(X):
        return X.tocsr()[rows]
    return X[rows] if hasattr(X, "columns") else np.asarray(X)[rows]
