"""Tables that are read in pieces: Parquet files, folders of them, datasets of Arrow, record batches one by one."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from sumosurv.outcome.checks import names_in_words

_ROWS = 65_536  # read at a time
_WAYS = 16  # pieces that are read at the same time where rows are shuffled
_SIGNED = 64  # row groups, and rows of each, that a signature reads
# types that pandas would take for objects where values are missing
_TYPES = {pa.string(): pd.StringDtype(), pa.large_string(): pd.StringDtype(), pa.bool_(): pd.BooleanDtype()}
_SPOOLED = 262_144  # rows of a row group of record batches that are kept on disk


class RowSource:
    """A table on disk of any length, read in blocks of rows.

    Parameters
    ----------
    given : path, pyarrow.dataset.Dataset, RecordBatchReader or iterator of RecordBatch
        A Parquet file, a folder of Parquet files (read in the order of their names), or a dataset. Record batches can
        be read only once and are first written to a temporary Parquet file (in ``TMPDIR``), which is removed with the
        source.
    columns : collection of str, optional
        The columns to read; all by default.
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
        schema = self._dataset.schema
        check_no_duplicates(schema.names, self.name)
        # an index that pandas stored with the table is not a covariate, as in a table in memory
        index = _stored_index(schema)
        self.names = _without_row_numbers(schema).names
        pieces = [piece for fragment in self._dataset.get_fragments() for piece in _split(fragment)]
        filled = [(piece, count) for piece in pieces if (count := _count(piece))]
        self._pieces, counts = [piece for piece, _ in filled], [count for _, count in filled]
        self.n_rows = sum(counts)
        if self.n_rows != self._dataset.count_rows():
            raise ValueError(
                f"The dataset has {self._dataset.count_rows():,} rows and its files {self.n_rows:,}: it is "
                "filtered, which is not supported. Write the selected rows to new files."
            )
        if self.n_rows == 0:
            raise ValueError(f"{self.name} has no rows.")
        self._first = np.concatenate([[0], np.cumsum(counts)])  # row number at which each piece begins
        check_present([*(columns or ()), *categorical], self.names)
        self.columns = [name for name in self.names if name not in index] if columns is None else list(columns)
        # Arrow keeps dictionaries of text alone; pandas notes which columns of numbers were categories
        noted = noted_categories(schema)
        self.categorical = frozenset(categorical) | noted.intersection(self.names)

    @classmethod
    def of(cls, given: Any) -> RowSource:
        """The source itself, or one of anything that can be read as one."""
        return given if isinstance(given, RowSource) else cls(given)

    def with_columns(self, columns: Collection[str]) -> Self:
        """The same rows with some of the columns."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.columns = check_present(columns, self.names)
        return made

    @property
    def files(self) -> list[Path]:
        """The files of the table; empty if it is not read from files."""
        return [Path(path) for path in getattr(self._dataset, "files", [])]

    def signature(self) -> str:
        """A digest of the schema, the number of rows per row group, and some rows: equal for a copy of the files."""
        digest = hashlib.sha256(str(self._dataset.schema.remove_metadata()).encode())
        digest.update(self._first.tobytes())
        for place in np.unique(np.linspace(0, len(self._pieces) - 1, _SIGNED).astype(int)).tolist():
            digest.update(digest_of(next(self._piece(place, self.names, _SIGNED))).encode())
        return digest.hexdigest()

    # ------------------------------------------------------------------ reading

    def frames(self, columns: Sequence[str] | None = None, *, rows: int = _ROWS) -> Iterator[pd.DataFrame]:
        """The rows in their order, at most ``rows`` at a time; the index is the row number."""
        for place in range(len(self._pieces)):
            yield from self._piece(place, columns, rows)

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
                frame = _without_decimals(part).to_pandas(ignore_metadata=True, types_mapper=_TYPES.get)
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
            files = [str(file) for file in _parquet_files(path)] if path.is_dir() else []
            try:
                if not files:
                    return ds.dataset(str(path), format="parquet")
                options = {"format": "parquet", "partitioning": "hive", "partition_base_dir": str(path)}
                return ds.dataset(files, schema=_common_schema(ds.dataset(files, **options)), **options)
            except (pa.ArrowInvalid, OSError) as error:
                raise ValueError(f"{path} cannot be read as Parquet: {error}") from None
        return self._spooled(iter(given))

    def _spooled(self, batches: Iterator[Any]) -> Any:
        """Record batches that can be read once, in a temporary file."""
        self._spool = _Spool()
        path = self._spool.folder / "rows.parquet"
        writer: Any = None
        held: list[pa.RecordBatch] = []
        n_held = 0
        for batch in batches:
            if not isinstance(batch, pa.RecordBatch):
                raise TypeError(
                    f"An iterator must yield pyarrow record batches; got {type(batch).__name__}. Pass a table, a path, "
                    "a pyarrow dataset, or pyarrow.RecordBatch.from_pandas of each part."
                )
            writer = writer or pq.ParquetWriter(path, batch.schema)
            if not batch.schema.equals(writer.schema):
                raise ValueError(
                    "All record batches must have the same columns and types; a batch differs from the first: "
                    f"{names_in_words(batch.schema.names)}."
                )
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
    """The row groups of a Parquet file; other fragments as they are."""
    return list(fragment.split_by_row_group()) if isinstance(fragment, ds.ParquetFileFragment) else [fragment]


def _count(piece: Any) -> int:
    """The rows of a row group, or of a file that has none."""
    if isinstance(piece, ds.ParquetFileFragment):
        return sum(group.num_rows for group in piece.row_groups)
    return int(piece.count_rows())


def noted_categories(schema: pa.Schema) -> set[str]:
    """The columns that were categories when pandas wrote a file."""
    columns = (schema.pandas_metadata or {}).get("columns", [])
    return {own["name"] for own in columns if own["pandas_type"] == "categorical"}


def _stored_index(schema: pa.Schema) -> set[str]:
    """The columns that were the index when pandas wrote a file."""
    return {name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)}


def _without_row_numbers(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the unnamed index that pandas stores when rows were selected or sorted."""
    unnamed = [name for name in _stored_index(schema) if name.startswith("__index_level_")]
    return pa.schema([field for field in schema if field.name not in unnamed], schema.metadata)


def _check_partitions(fragment: Any) -> None:
    """Raise a ValueError if a column of a file differs from the value in the name of its folder (``site=3``)."""
    for name, value in ds.get_partition_keys(fragment.partition_expression).items():
        if name in fragment.physical_schema.names:
            stored = pq.ParquetFile(fragment.path).read(columns=[name])[name].unique().to_pylist()
            if any(str(own) != str(value) for own in stored):
                raise ValueError(
                    f"{fragment.path} is in the folder {name}={value}, and its column {name!r} has other values; "
                    "rename the folder or the column."
                )


def _common_schema(dataset: Any) -> pa.Schema:
    """The schema of all files: the same columns in each, with numbers of the widest type among the files."""
    fragments = list(dataset.get_fragments())
    for fragment in fragments:
        _check_partitions(fragment)
    schemas = {fragment.path: _without_row_numbers(fragment.physical_schema) for fragment in fragments}
    first, own = next(iter(schemas.items()))
    for path, other in schemas.items():
        differing = sorted(noted_categories(own) ^ noted_categories(other))
        if differing and differing[0] in own.names:
            raise ValueError(
                f"Column {differing[0]!r} holds categories in one of {first} and {path}, and not in the other; write "
                "it with one type in all files."
            )
        differing = sorted((_stored_index(own) ^ _stored_index(other)).intersection(own.names))
        if differing:
            raise ValueError(
                f"Column {differing[0]!r} is an index in one of {first} and {path}, and not in the other; write all "
                "files with reset_index() or with the same index."
            )
        differing = sorted(set(own.names) ^ set(other.names))
        if differing:
            name = differing[0]
            has, without = (first, path) if name in own.names else (path, first)
            raise ValueError(
                f"{without} has no column {name!r}, which {has} has; write all files of a folder with the same columns."
            )
        for name in own.names:
            kinds = [schema.field(name).type for schema in (own, other)]
            try:
                pa.unify_schemas([pa.schema([(name, kind)]) for kind in kinds], promote_options="permissive")
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                raise ValueError(
                    f"Column {name!r} holds {kinds[0]} in {first} and {kinds[1]} in {path}; write it with one type in "
                    "all files."
                ) from None
    fields = [schema.remove_metadata() for schema in schemas.values()]
    partitions = [field for field in dataset.schema if field.name not in own.names]
    common = pa.unify_schemas([*fields, pa.schema(partitions)], promote_options="permissive")
    return common.with_metadata(own.metadata)


def check_present(columns: Collection[str], present: Collection[str], what: str = "column") -> list[str]:
    """The columns to read; a ValueError lists those that are missing from a table."""
    known = set(present)
    missing = [name for name in columns if name not in known]
    if missing:
        raise ValueError(f"There is no {what} {names_in_words(missing)}; the {what}s are {names_in_words(present)}.")
    return list(columns)


def check_no_duplicates(names: Sequence[str], what: str) -> None:
    """Raise a ValueError that lists the names which several columns have."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{what} has more than one column named {names_in_words(twice, 5)}; rename or remove all but one."
        )


def digest_of(*frames: pd.DataFrame) -> str:
    """A digest of the values of some rows."""
    digest = hashlib.sha256()
    for frame in frames:
        digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
    return digest.hexdigest()
