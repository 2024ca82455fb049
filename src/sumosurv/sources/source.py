"""Tables that are read in pieces: Parquet files, folders of them, datasets of Arrow, record batches one by one."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

__all__ = ["RowSource", "is_source"]

_ROWS = 65_536  # read at a time
_WAYS = 16  # pieces that are read at the same time where rows are shuffled
_SPOOLED = 262_144  # rows of a row group of record batches that are kept on disk


def is_source(X: Any) -> bool:
    """Whether X is to be read in pieces: a path, a dataset of Arrow, an iterator of record batches or a `RowSource`."""
    if isinstance(X, (str, Path, RowSource, ds.Dataset, pa.RecordBatchReader)):
        return True
    return isinstance(X, Iterator)


class RowSource:
    """A table on disk of any length: its columns, the number of its rows, and the rows some at a time.

    Parameters
    ----------
    given : path, pyarrow.dataset.Dataset, RecordBatchReader or iterator of RecordBatch
        A Parquet file, a folder of them (read in the order of their names), or a dataset. Record batches that come
        one by one can be read once only: they are written to a temporary Parquet file first, in the folder that
        ``tempfile`` names (``TMPDIR``), which is removed with the source.
    columns : collection of str, optional
        The columns to look at; all by default.
    categorical : collection of str
        Numeric columns that are categories.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"age": [50.0, 60.0, 70.0]})
    >>> source = RowSource(iter([batch]))
    >>> source.n_rows, [len(frame) for frame in source.frames(rows=2)]
    (3, [2, 1])
    """

    def __init__(
        self, given: Any, *, columns: Collection[str] | None = None, categorical: Collection[str] = ()
    ) -> None:
        self._spool: _Spool | None = None
        self.name = str(given) if isinstance(given, (str, Path)) else type(given).__name__
        self._dataset = self._open(given)
        _check_names(self._dataset.schema.names, self.name)
        self._pieces = [piece for fragment in self._dataset.get_fragments() for piece in _split(fragment)]
        counts = [_count(piece) for piece in self._pieces]
        self.n_rows = sum(counts)
        if self.n_rows != self._dataset.count_rows():
            raise ValueError(
                f"The dataset has {self._dataset.count_rows():,} rows and its files {self.n_rows:,}: it is filtered. "
                "Write the rows that are wanted to files of their own."
            )
        if self.n_rows == 0:
            raise ValueError(f"{self.name} has no rows.")
        self._first = np.concatenate([[0], np.cumsum(counts)])  # row number at which each piece begins
        known = self._dataset.schema.names
        for name in [*(columns or ()), *categorical]:
            if name not in known:
                raise ValueError(f"There is no column {name!r} in {self.name}; they are {', '.join(map(repr, known))}.")
        self.columns = list(known if columns is None else columns)
        self.categorical = frozenset(categorical)

    @classmethod
    def of(cls, given: Any) -> RowSource:
        """The source itself, or one of anything that can be read as one."""
        return given if isinstance(given, RowSource) else cls(given)

    def with_columns(self, columns: Collection[str], categorical: Collection[str] = ()) -> Self:
        """The same rows with some of the columns, and further ones taken for categories."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.columns, made.categorical = list(columns), self.categorical | set(categorical)
        return made

    @property
    def names(self) -> list[str]:
        """All columns, also those that are not looked at."""
        return list(self._dataset.schema.names)

    def type_of(self, name: str) -> pa.DataType:
        """The Arrow type of a column."""
        return self._dataset.schema.field(name).type

    def is_category(self, name: str) -> bool:
        """Whether a column is read as categories: text, booleans, dictionaries and those that were named."""
        kind = self.type_of(name)
        if name in self.categorical or pa.types.is_dictionary(kind) or pa.types.is_boolean(kind):
            return True
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return True
        if any(of(kind) for of in (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_null)):
            return False
        raise ValueError(f"Column {name!r} holds {kind}; turn it into numbers or text first, for example days.")

    @property
    def files(self) -> list[Path]:
        """The files that are read, if the table is made of any."""
        return [Path(path) for path in getattr(self._dataset, "files", [])]

    def signature(self) -> dict[str, Any]:
        """What tells this table from another: its columns, the rows of each piece, and files with size and date."""
        files = []
        for path in self.files:
            state = path.stat() if path.exists() else None
            files.append([str(path), *((None, None) if state is None else (state.st_size, state.st_mtime_ns))])
        return {"columns": self.names, "first_rows": self._first.tolist(), "files": files}

    # ------------------------------------------------------------------ reading

    def frames(
        self, columns: Sequence[str] | None = None, *, rows: int = _ROWS, start: int = 0
    ) -> Iterator[pd.DataFrame]:
        """The rows in their order from a row number on, at most so many at a time; the index is the row number."""
        for place in range(int(np.searchsorted(self._first, start, side="right")) - 1, len(self._pieces)):
            for frame in self._piece(place, columns, rows):
                later = frame.iloc[max(0, start - int(frame.index[0])) :]
                if len(later):
                    yield later

    def shuffled_frames(
        self, seed: int, columns: Sequence[str] | None = None, *, buffer: int, ways: int = _WAYS
    ) -> Iterator[pd.DataFrame]:
        """All rows in an order given by a seed, for a shuffle buffer of so many rows.

        Pieces (row groups) are taken at random, ``ways`` of them in turns, so that a buffer has rows of as many at
        least; rows of one piece still come in their order.
        """
        rows = max(1, min(_ROWS, buffer) // ways)
        order = np.random.default_rng(seed).permutation(len(self._pieces)).tolist()
        open_ones: list[Iterator[pd.DataFrame]] = []
        while order or open_ones:
            while order and len(open_ones) < ways:
                open_ones.append(self._piece(order.pop(), columns, rows))
            for piece in list(open_ones):
                frame = next(piece, None)
                if frame is None:
                    open_ones.remove(piece)
                else:
                    yield frame

    def _piece(self, place: int, columns: Sequence[str] | None, rows: int) -> Iterator[pd.DataFrame]:
        wanted = list(self.columns if columns is None else columns)
        piece, first = self._pieces[place], int(self._first[place])
        options = {}
        if isinstance(piece, ds.ParquetFileFragment):  # page by page: a row group may be large
            options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
        batches = piece.to_batches(
            schema=self._dataset.schema,
            columns=wanted,
            batch_size=rows,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
            **options,
        )
        for batch in batches:
            for begin in range(0, batch.num_rows, rows):
                part = batch.slice(begin, rows)
                frame = _without_decimals(part).to_pandas()
                for name in self.categorical.intersection(wanted):
                    frame[name] = frame[name].astype("category")
                frame.index = pd.RangeIndex(first, first + len(frame))
                first += len(frame)
                yield frame

    # ------------------------------------------------------------------ opening

    def _open(self, given: Any) -> Any:
        if isinstance(given, ds.Dataset):
            return given
        if isinstance(given, (str, Path)):
            path = Path(given)
            if not path.exists():
                raise FileNotFoundError(f"There is no file or folder {path}.")
            files = _parquet_files(path) if path.is_dir() else [path]
            try:
                return ds.dataset([str(file) for file in files], format="parquet")
            except (pa.ArrowInvalid, OSError) as error:
                raise ValueError(f"{path} cannot be read as Parquet: {error}") from None
        return self._spooled(iter(given))

    def _spooled(self, batches: Iterator[Any]) -> Any:
        """Record batches that can be read once, in a temporary file."""
        self._spool = _Spool()
        path = self._spool.folder / "rows.parquet"
        writer, held, n_held = None, [], 0
        for batch in batches:
            if not isinstance(batch, pa.RecordBatch):
                raise TypeError(
                    f"An iterator gives record batches of pyarrow; got {type(batch).__name__}. Pass a table, a path, a "
                    "dataset of Arrow, or pyarrow.RecordBatch.from_pandas of each part."
                )
            writer = writer or pq.ParquetWriter(path, batch.schema)
            held.append(batch)
            n_held += batch.num_rows
            if n_held >= _SPOOLED:
                writer.write_table(pa.Table.from_batches(held), row_group_size=_SPOOLED)
                held, n_held = [], 0
        if writer is None:
            raise ValueError("The iterator gave no record batches.")
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=_SPOOLED)
        writer.close()
        return ds.dataset(str(path), format="parquet")


class _Spool:
    """A temporary folder that is removed with the last source that reads from it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sumosurv-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def _without_decimals(batch: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
    """The same rows; decimal numbers, as databases write them, are floating-point ones."""
    schema = pa.schema(
        [field.with_type(pa.float64()) if pa.types.is_decimal(field.type) else field for field in batch.schema]
    )
    return batch if schema.equals(batch.schema) else pa.Table.from_batches([batch]).cast(schema)


def _parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder and of those below it, hidden ones left out."""
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in (".parquet", ".pq")
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise FileNotFoundError(f"There is no Parquet file in the folder {folder}.")
    return found


def _split(fragment: Any) -> list[Any]:
    """A file by its row groups, where it has any."""
    return list(fragment.split_by_row_group()) if isinstance(fragment, ds.ParquetFileFragment) else [fragment]


def _count(piece: Any) -> int:
    """The rows of a row group, or of a file that has none."""
    if isinstance(piece, ds.ParquetFileFragment):
        return sum(group.num_rows for group in piece.row_groups)
    return int(piece.count_rows())


def _check_names(names: Sequence[str], what: str) -> None:
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{what} has more than one column named {twice!r}; rename or remove all but one.")
