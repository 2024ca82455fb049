"""Parquet files, read and written on one thread.

pyarrow's thread pools can abort an interpreter that ends soon after a read; these files are small, so
no thread is started at all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd

from sumosurv.files import replacing

__all__ = ["read_parquet", "write_parquet"]


def read_parquet(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The DataFrame in a Parquet file.

    Parameters
    ----------
    path : path-like

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "two.parquet"
    ...     write_parquet(pd.DataFrame({"a": [1.5, 2.5]}), path)
    ...     read_parquet(path)["a"].tolist()
    [1.5, 2.5]
    """
    import pyarrow.parquet as pq

    # ParquetFile reads just this file; read_table would go through the dataset scanner and its threads
    with pq.ParquetFile(Path(path), pre_buffer=False) as file:
        table: Any = file.read(use_threads=False)
    return table.to_pandas(use_threads=False)


def write_parquet(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a DataFrame, without its index, so that the file is there whole or not at all.

    Parameters
    ----------
    frame : DataFrame
    path : path-like
        Missing folders are made; an existing file is replaced.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as part:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False, nthreads=1), part)
