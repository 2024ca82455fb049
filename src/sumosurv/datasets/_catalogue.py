"""Facts about each real dataset (`catalogue.json`): columns, unit of time, source, licence and digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd


class ChecksumError(ValueError):
    """A copy of a dataset differs from the published one."""


@dataclass(frozen=True)
class Entry:
    """Facts about a dataset, and the address of its public file at a commit, so that its bytes stay the same.

    ``file_digest`` is the sha256 of the public file, ``digest`` that of the values (`content_digest`), which may also
    come from other files.
    """

    name: str
    dtypes: dict[str, str]
    time: str
    event: str
    categorical: Sequence[str]
    rows: int
    censored: float
    time_unit: str
    resolution: float | None
    about: str
    source: str
    licence: str
    url: str
    file_digest: str
    digest: str

    @property
    def file(self) -> str:
        """Name of the Parquet file in a data folder or in the cache."""
        return f"{self.name}.parquet"

    @property
    def covariates(self) -> list[str]:
        """Names of the covariate columns, in order."""
        return [column for column in self.dtypes if column not in (self.time, self.event)]

    @property
    def description(self) -> str:
        """A few lines: what it is, the unit of time, source and licence."""
        whole = ", whole numbers" if self.resolution else ""
        return (
            f"{self.about}\n"
            f"{self.rows} subjects, {len(self.covariates)} covariates, {self.censored:.1%} censored. "
            f"Time is in {self.time_unit}{whole}.\n"
            f"Source: {self.source}; licence stated there: {self.licence}."
        )


def content_digest(frame: pd.DataFrame) -> str:
    """sha256 of a frame's content: for each column its name, its dtype and its little-endian bytes.

    It does not depend on the file format: the same values may come from HDF5, CSV or Parquet.

    Examples
    --------
    >>> content_digest(pd.DataFrame({"a": [1.0, 2.0]}))[:12]
    'cf32c0de74ee'
    """
    digest = hashlib.sha256()
    for name in frame.columns:
        values = frame[name].to_numpy()
        values = values.astype(str) if values.dtype == object else values
        values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        digest.update(f"{name}\0{values.dtype.str}\0{len(values)}\0".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def checked(frame: pd.DataFrame, wanted: Entry, where: str) -> pd.DataFrame:
    """The frame with the dtypes of the dataset and a plain index; ChecksumError if its values are wrong."""
    if list(frame.columns) != list(wanted.dtypes):
        raise ChecksumError(
            f"{wanted.name!r} from {where} has the columns {', '.join(map(str, frame.columns))}; "
            f"expected {', '.join(wanted.dtypes)}. {_remedy(where)}"
        )
    try:
        typed = frame.reset_index(drop=True).astype(wanted.dtypes)
    except (TypeError, ValueError, OverflowError) as error:
        raise ChecksumError(
            f"{wanted.name!r} from {where} has values that are not numbers: {error}. {_remedy(where)}"
        ) from error
    found = content_digest(typed)
    if found != wanted.digest:
        raise ChecksumError(
            f"{wanted.name!r} from {where} does not have the expected values: sha256 of the content is {found}, "
            f"expected {wanted.digest} ({len(typed)} rows, expected {wanted.rows}). {_remedy(where)}"
        )
    return typed


def _remedy(where: str) -> str:
    return f"Remove or replace the copy ({where}), then load again."


def entry(name: str) -> Entry:
    """The entry of a dataset; raise ValueError with the list of names if the name is unknown."""
    if name == "kkbox":
        raise ValueError("KKBOX is made from Kaggle's files, in a clone of the repository; see docs/kkbox.md.")
    try:
        return CATALOGUE[name]
    except (KeyError, TypeError):
        raise ValueError(f"There is no dataset {name!r}; the names are {', '.join(CATALOGUE)}.") from None


_FACTS = json.loads(Path(__file__).with_name("catalogue.json").read_text(encoding="utf-8"))
CATALOGUE = {name: Entry(name, **facts) for name, facts in _FACTS.items()}
