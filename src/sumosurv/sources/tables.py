"""Tables on disk: CSV, plain or compressed, and Parquet; read as a whole or in blocks, and written."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sumosurv.files import is_parquet, replacing
from sumosurv.sources.source import RowSource, check_no_duplicates, check_present, noted_categories
from sumosurv.warn import warn_user

_LARGE = 2**30  # bytes of a Parquet file above which it is read in blocks

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_OTHER_SEPARATORS = {"\t": "tab", ";": ";", "|": "|"}

Open = Callable[[], Any]  # opens the text of a table, from its beginning each time


def open_table(
    path: Path,
    *,
    in_blocks: bool | None = None,
    sep: str | None = None,
    decimal: str = ".",
    index: Collection[str] = (),
    categorical: Collection[str] = (),
) -> pd.DataFrame | RowSource:
    """A table on disk, in memory or to be read in blocks: `as_source` accepts both.

    Parameters
    ----------
    path : Path
        A file that `read_table` reads, or a folder of Parquet files.
    in_blocks : bool, optional
        True reads any Parquet file in blocks; False reads every file into memory. By default folders and Parquet files
        of more than 1 GiB are read in blocks.
    sep, decimal : str
        As in `read_table`.
    index : collection of str
        Levels of an index stored by pandas that are columns like others, if the table has them.
    categorical : collection of str
        Numeric columns that are categories.
    """
    if in_blocks and not (path.is_dir() or is_parquet(path)):
        raise ValueError(
            f"Only a Parquet file or a folder of Parquet files can be read in blocks; {path} is neither. Write it as "
            "Parquet, or read it as a whole."
        )
    large = path.is_dir() or (is_parquet(path) and path.is_file() and path.stat().st_size > _LARGE)
    if large if in_blocks is None else in_blocks:
        return RowSource(path, categorical=categorical)
    frame = read_table(path, sep=sep, decimal=decimal)
    frame = frame.reset_index([name for name in frame.index.names if name is not None and name in index])
    return frame.astype(dict.fromkeys(check_present(categorical, frame.columns), "category"))


def read_table(path: Path, *, sep: str | None = None, decimal: str = ".") -> pd.DataFrame:
    """The table in a file, or a ValueError that says what is wrong with the file and where.

    Parameters
    ----------
    path : Path
        Parquet by its suffix, else CSV in UTF-8, which may be compressed (.gz, .bz2, .xz, .zip); "-" is standard input.
    sep : str, optional
        What separates the fields of a CSV file: a tab in .tsv files, else a comma.
    decimal : str
        The decimal point of its numbers.
    """
    name = "standard input" if str(path) == "-" else str(path)
    if str(path) != "-" and not (path.is_file() or path.is_fifo()):
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        if is_parquet(path):
            frame = _read_parquet(path)
        else:
            tabbed = ".tsv" in [suffix.lower() for suffix in path.suffixes]
            frame = _read_csv(_text(path), name, sep or ("\t" if tabbed else None), decimal)
    except (zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the system's; those of gzip and bz2 have none
            raise
        raise ValueError(
            f"{name} is corrupted or not a {path.suffix} file ({error}); compress the table again."
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} cannot be read as CSV: save it as UTF-8 text ({error}).") from None
    if len(frame) == 0:
        raise ValueError(f"{name} has a header but no rows.")
    return frame


def write_table(parts: Iterable[pd.DataFrame], path: Path | None) -> int:
    """Write a table that comes in parts, without its index, and return the number of rows.

    The file is Parquet by its suffix, else CSV; None is standard output, part by part. A file is replaced when all is
    written, or stays as it was.
    """
    if path is None:
        return _write_csv(parts, sys.stdout)
    if is_parquet(path):
        frame = pd.concat(list(parts))
        write_parquet(frame, path)
        return len(frame)
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        return _write_csv(parts, file)


def _write_csv(parts: Iterable[pd.DataFrame], file: IO[str]) -> int:
    rows = 0
    for part in parts:
        lines = _plain_lines(part)
        (part if lines is None else part.iloc[:0]).to_csv(file, index=False, header=rows == 0)
        file.write(lines or "")
        rows += len(part)
    return rows


def _plain_lines(frame: pd.DataFrame) -> str | None:
    """The rows of a table of numbers and words as CSV, by Arrow, which is several times as fast as pandas.

    The same fields as pandas writes, but for numbers that read the same (100 for 100.0, 1e-7 for 1e-07). None for other
    kinds of columns, for words that need quotes, and for a single column, whose missing values would be blank lines.
    """
    import pyarrow.csv as arrow_csv

    if frame.shape[1] < 2 or any(str(kind) in ("bool", "category") for kind in frame.dtypes):
        return None
    target = io.BytesIO()
    try:
        made = pa.Table.from_pandas(frame, preserve_index=False)
        if not all(_is_plain(field.type) for field in made.schema):
            return None
        arrow_csv.write_csv(made, target, arrow_csv.WriteOptions(include_header=False, quoting_style="none"))
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # a column of several types; a word with a separator or a quote in it
        return None
    return target.getvalue().decode()


def _is_plain(kind: Any) -> bool:
    """Whether a type of Arrow is one of numbers or words."""
    import pyarrow.types as of

    plain = (of.is_float32, of.is_float64, of.is_integer, of.is_string, of.is_large_string)
    return any(is_one(kind) for is_one in plain)


def read_parquet(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a DataFrame from a Parquet file."""
    # ParquetFile reads just this file; read_table would go through the dataset scanner and its threads
    with pq.ParquetFile(Path(path), pre_buffer=False) as file:
        table: Any = file.read(use_threads=False)
    return table.to_pandas(use_threads=False)


def write_parquet(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a DataFrame without its index, completely or not at all; missing folders are created."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as part:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False, nthreads=1), part)


def _read_parquet(path: Path) -> pd.DataFrame:
    """The table in a Parquet file, with the types that a `RowSource` gives to it."""
    try:
        frame, noted = read_parquet(path), noted_categories(pq.read_schema(path))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from None
    check_no_duplicates(list(frame.columns), str(path))
    return frame.astype(dict.fromkeys(noted.intersection(frame.columns), "category"))


def _text(path: Path) -> Open:
    """How to open the text of a CSV file; what can be read only once is kept in memory."""
    suffix = path.suffix.lower()
    if suffix == ".zip":
        return lambda: _in_zip(path)
    if str(path) == "-" or path.is_fifo():
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        return lambda: io.StringIO(text.removeprefix("\ufeff"), newline=None)
    return lambda: _OPENERS.get(suffix, open)(path, "rt", encoding="utf-8-sig", newline=None)


@contextmanager
def _in_zip(path: Path) -> Iterator[IO[str]]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) != 1:
            raise ValueError(f"{path} holds {len(names)} files; give one that holds a single table, or unpack it.")
        with archive.open(names[0]) as file:
            yield io.TextIOWrapper(file, encoding="utf-8-sig", newline=None)


def _read_csv(open_text: Open, name: str, sep: str | None, decimal: str) -> pd.DataFrame:
    with open_text() as text:
        n_rows = _regular_rows(text, name, sep or ",")
    if n_rows is None:
        with open_text() as text:
            n_rows = _check_fields(text, name, sep)
    try:
        with open_text() as text:
            # whole columns at a time: in pieces, a column of numbers with one typo would be numbers here and text there
            options = {"index_col": False, "low_memory": False, "float_precision": "round_trip"}
            frame = pd.read_csv(text, sep=sep or ",", decimal=decimal, **options)
    except pd.errors.ParserError as error:
        raise ValueError(f"{name} cannot be read as CSV: {error}") from None
    if len(frame) != n_rows:
        raise ValueError(
            f"{name} has {n_rows} rows with fields, but would be read as {len(frame)}; remove lines that hold only "
            "blanks."
        )
    return _without_row_names(frame, name)


def _without_row_names(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The table without a first column of row names, which pandas and R write without a heading.

    Raises a ValueError for any other column without a heading.
    """
    unnamed = [place for place, column in enumerate(frame.columns) if str(column).startswith("Unnamed: ")]
    if unnamed == [0] and frame.iloc[:, 0].is_unique:
        warn_user(f"The first column of {name} has no heading and holds row names; it is left out.")
        return frame.iloc[:, 1:]
    if unnamed:
        raise ValueError(f"Column {unnamed[0] + 1} of {name} has no heading; write one, or remove the column.")
    return frame


def _regular_rows(text: IO[str], name: str, sep: str) -> int | None:
    """The number of rows, if there are no quotes and every line has as many fields as the header; None otherwise.

    It takes a third of the time of `_check_fields`, which says what is wrong with any other table.
    """
    header = text.readline()
    fields, n_rows = header.count(sep), 0
    if fields == 0 or '"' in header or "\0" in header:
        return None
    check_no_duplicates([column for column in header.rstrip("\n").split(sep) if column], name)
    for line in text:
        if line.count(sep) != fields or '"' in line or "\0" in line:
            return None
        n_rows += 1
    return n_rows


def _check_fields(text: IO[str], name: str, sep: str | None) -> int:
    """Every line has one field for each name in the header: pandas shifts or fills up lines that have not.

    Returns the number of rows.

    Nor is there a quote that is not closed, or closed in the middle of a field, which makes several lines one.
    """
    rows = csv.reader(_without_nul(text, name), delimiter=sep or ",", strict=True)
    line = 1  # where a row begins, which may have several lines
    try:
        header = next((row for row in rows if not _is_blank(row)), None)
        if header is None:
            raise ValueError(f"{name} is empty.")
        other = next((other for other in _OTHER_SEPARATORS if other in header[0]), None)
        if sep is None and len(header) == 1 and other is not None:
            shown = _OTHER_SEPARATORS[other]
            raise ValueError(
                f"{name} has a single column, {header[0]!r}; if its fields are separated by {shown!r}, give "
                f"--sep {shown if shown.isalpha() else repr(shown)}."
            )
        check_no_duplicates([column for column in header if column], name)
        line, n_rows = rows.line_num + 1, 0
        width = len(header)
        for row in rows:
            if len(row) == width > 1 or not _is_blank(row):
                n_rows += 1
                if len(row) != width:
                    remedy = (
                        "quote fields that hold the separator, and name the first column if it holds row names"
                        if len(row) > width
                        else "a missing value is an empty field between two separators"
                    )
                    raise ValueError(f"Line {line} of {name} has {len(row)} fields and the header {width}; {remedy}.")
            line = rows.line_num + 1
        return n_rows
    except csv.Error as error:
        remedy = "" if "limit" in str(error) else "; close the quote in it, right before a separator or the line's end"
        raise ValueError(f"Line {line} of {name} cannot be read as CSV: {error}{remedy}.") from None


def _without_nul(text: Iterable[str], name: str) -> Iterator[str]:
    """The lines of a text, none with a NUL character, at which pandas ends a field: 60\\0.5 would become 60."""
    for number, line in enumerate(text, start=1):
        if "\0" in line:
            raise ValueError(f"Line {number} of {name} holds a NUL character; save the table as UTF-8 text.")
        yield line


def _is_blank(row: list[str]) -> bool:
    """Whether pandas leaves a line out; [""] is a quoted empty field."""
    return not row or (len(row) == 1 and row[0] != "" and not row[0].strip(" \t"))
