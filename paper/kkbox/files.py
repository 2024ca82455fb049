"""Kaggle's KKBOX files: what they must look like, and how they are dealt out by customer in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.datasets import DatasetUnavailableError

__all__ = ["FILES", "RawFile", "days_of", "find_files", "scatter"]

_PAGE = "https://www.kaggle.com/c/kkbox-churn-prediction-challenge/data"


@dataclass(frozen=True)
class RawFile:
    """One of the files, with the columns that are read; every other column is left alone."""

    name: str
    dtypes: dict[str, str]


FILES = (
    RawFile("train.csv", {"msno": "str", "is_churn": "int8"}),
    RawFile(
        "members_v3.csv",
        {
            "msno": "str",
            "city": "float32",
            "bd": "float32",
            "gender": "str",
            "registered_via": "float32",
            "registration_init_time": "float64",
        },
    ),
    RawFile(
        "transactions.csv",
        {
            "msno": "str",
            "payment_method_id": "int16",
            "payment_plan_days": "int32",
            "plan_list_price": "int32",
            "actual_amount_paid": "int32",
            "is_auto_renew": "int8",
            "transaction_date": "int32",
            "membership_expire_date": "int32",
            "is_cancel": "int8",
        },
    ),
)


def find_files(folder: Path) -> list[Path]:
    """The raw files in a folder, or an error that says which are missing and where to get them."""
    paths = [folder / raw.name for raw in FILES]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        packed = [name for name in missing if (folder / f"{name}.7z").is_file()]
        remedy = f" Unpack {', '.join(f'{name}.7z' for name in packed)} there first." if packed else ""
        raise DatasetUnavailableError(
            f"KKBOX needs {', '.join(raw.name for raw in FILES)} in {folder}; {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not there.{remedy} Kaggle's terms do not let others hand the "
            f"files on: accept the rules at {_PAGE}, fetch these files (.csv.7z), unpack them into one folder and "
            "pass it as load_kkbox(folder)."
        )
    for raw, path in zip(FILES, paths):
        _check_header(raw, path)
    return paths


def _check_header(raw: RawFile, path: Path) -> None:
    try:
        found = list(pd.read_csv(path, nrows=0).columns)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as CSV ({error}); unpack Kaggle's {raw.name}.7z again.") from None
    lacking = [name for name in raw.dtypes if name not in found]
    if lacking:
        raise ValueError(
            f"{path} lacks the columns {', '.join(lacking)}; it has {', '.join(map(str, found))}. "
            f"Expected Kaggle's {raw.name}."
        )


def scatter(path: Path, raw: RawFile, target: Path, n_buckets: int, chunk_rows: int, bar: Any) -> None:
    """Deal the rows of a CSV file out to ``target/<bucket>.parquet`` by a hash of the customer, in the file's order.

    Only ``chunk_rows`` rows are in memory at a time, and all rows of a customer end up in one bucket.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    target.mkdir(parents=True)
    schema = pa.schema([(name, _ARROW[dtype]()) for name, dtype in raw.dtypes.items()])
    with ExitStack() as stack:
        writers = [
            stack.enter_context(pq.ParquetWriter(target / f"{i}.parquet", schema, compression="lz4"))
            for i in range(n_buckets)
        ]
        for chunk in _chunks(path, raw, chunk_rows, bar):
            bucket = pd.util.hash_array(chunk["msno"].to_numpy(dtype=object), categorize=False) % n_buckets
            bucket = bucket.astype(np.int64)  # NumPy 1 does not count unsigned numbers
            order = np.argsort(bucket, kind="stable")
            table = pa.Table.from_pandas(chunk.iloc[order], schema=schema, preserve_index=False, nthreads=1)
            ends = np.cumsum(np.bincount(bucket, minlength=n_buckets))
            for i, (start, end) in enumerate(zip(np.append(0, ends), ends)):
                if end > start:
                    writers[i].write_table(table.slice(start, end - start))


def _chunks(path: Path, raw: RawFile, chunk_rows: int, bar: Any) -> Iterator[pd.DataFrame]:
    with path.open("rb") as file:
        # only an empty field is missing: a customer's id could be spelled like a word for "none"
        reader = pd.read_csv(
            file,
            usecols=list(raw.dtypes),
            dtype=raw.dtypes,
            chunksize=chunk_rows,
            keep_default_na=False,
            na_values=[""],
        )
        before = 0
        while True:
            try:
                chunk = next(reader)
            except StopIteration:
                return
            except (ValueError, OverflowError, pd.errors.ParserError) as error:
                raise ValueError(f"{path} has a value that does not fit its column: {error}.") from error
            if chunk["msno"].isna().any():
                raise ValueError(f"{path} has rows without a customer (msno); expected Kaggle's {raw.name}.")
            yield chunk[list(raw.dtypes)]
            bar.update(file.tell() - before)
            before = file.tell()


def days_of(dates: npt.ArrayLike, where: str) -> npt.NDArray[np.int64]:
    """Days since 1970 of dates written as the number YYYYMMDD.

    Examples
    --------
    >>> days_of([19700102, 20170228], "a file").tolist()
    [1, 17225]
    """
    number = np.asarray(dates, dtype=np.int64)
    year, month, day = number // 10000, number // 100 % 100, number % 100
    months = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    result = months.astype("datetime64[D]") + (day - 1)
    wrong = (month < 1) | (month > 12) | (day < 1) | (result.astype("datetime64[M]") != months)
    if wrong.any():
        raise ValueError(f"{where}: {number[wrong][0]} is no date; expected a number YYYYMMDD.")
    return result.astype(np.int64)


def _arrow(name: str) -> Any:
    def make() -> Any:
        import pyarrow as pa

        return getattr(pa, name)()

    return make


_ARROW = {
    "str": _arrow("string"),
    "float32": _arrow("float32"),
    "float64": _arrow("float64"),
    "int8": _arrow("int8"),
    "int16": _arrow("int16"),
    "int32": _arrow("int32"),
}
