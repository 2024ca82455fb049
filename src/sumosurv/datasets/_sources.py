"""Where the frames of the real datasets come from: a folder, scikit-survival, the cache, the network."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import urllib.request
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from sumosurv.datasets._catalogue import ChecksumError, Entry, checked
from sumosurv.datasets._parquet import read_parquet, write_parquet

__all__ = ["DatasetUnavailableError", "cache_folder", "data_folder", "locate", "read"]

_TIMEOUT = 30.0  # seconds
_LARGEST = 50_000_000  # bytes; the public files have less than one million

BUNDLED = "scikit-survival"
DOWNLOAD = "download"


class DatasetUnavailableError(FileNotFoundError):
    """There is no copy of a dataset here and none could be fetched."""

    def __str__(self) -> str:
        return str(self.args[0])


def data_folder() -> Path | None:
    """The folder named by ``$SUMOSURV_DATA``, if it is set; it must exist then."""
    value = os.environ.get("SUMOSURV_DATA")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DatasetUnavailableError(
            f"SUMOSURV_DATA is set to {value!r}, and there is no such folder; correct it or unset it."
        )
    return folder


def cache_folder() -> Path:
    """``$SUMOSURV_CACHE``, else ``sumosurv`` in the platform's folder for caches."""
    if value := os.environ.get("SUMOSURV_CACHE"):
        return Path(value).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sumosurv"
    base = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sumosurv"


def locate(wanted: Entry) -> Path | str:
    """Where a dataset would come from now: a Parquet file, ``"scikit-survival"`` or ``"download"``."""
    folder = data_folder()
    if folder is not None and (path := folder / wanted.file).is_file():
        return path
    if wanted.name == "flchain" and importlib.util.find_spec("sksurv") is not None:
        return BUNDLED
    cached = cache_folder() / wanted.file
    return cached if cached.is_file() else DOWNLOAD


def read(wanted: Entry) -> tuple[pd.DataFrame, str]:
    """The verified frame of a dataset, and where it came from."""
    where = locate(wanted)
    if isinstance(where, Path):
        return checked(_from_file(where, wanted), wanted, str(where)), str(where)
    if where == BUNDLED:
        return checked(_from_scikit_survival(wanted), wanted, "scikit-survival's bundled data"), BUNDLED
    frame = checked(_from_public_file(_fetch(wanted), wanted), wanted, wanted.url)
    _keep(frame, wanted)
    return frame, wanted.url


def _from_file(path: Path, wanted: Entry) -> pd.DataFrame:
    try:
        return read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
        raise ChecksumError(
            f"{wanted.name!r} from {path} cannot be read as a Parquet file: {error}. "
            "Remove or replace it, then load again."
        ) from error


def _from_scikit_survival(wanted: Entry) -> pd.DataFrame:
    try:
        from sksurv.datasets import load_flchain
    except ImportError as error:
        raise DatasetUnavailableError(
            f"scikit-survival is installed and cannot be imported ({error}); {_ways(wanted)}"
        ) from error
    X, y = load_flchain()
    X = X.assign(sex=X["sex"] == "M", mgus=X["mgus"] == "yes", futime=y["futime"], death=y["death"])
    return _tidy_flchain(X, wanted)


def _tidy_flchain(frame: pd.DataFrame, wanted: Entry) -> pd.DataFrame:
    missing = [column for column in wanted.dtypes if column not in frame.columns]
    if missing:
        raise ChecksumError(f"The columns {', '.join(missing)} of {wanted.name!r} are missing; the source has changed.")
    return frame.loc[frame["creatinine"].notna(), list(wanted.dtypes)]


def _fetch(wanted: Entry) -> bytes:
    if wanted.url.endswith(".h5") and importlib.util.find_spec("h5py") is None:
        raise DatasetUnavailableError(
            f"There is no copy of {wanted.name!r} here, and its public file ({wanted.url}) is read with h5py, which is "
            f"not installed: pip install h5py (or 'sumosurv[datasets]'); or {_ways(wanted)}"
        )
    try:
        with urllib.request.urlopen(wanted.url, timeout=_TIMEOUT) as response:
            content: bytes = response.read(_LARGEST + 1)
    except OSError as error:
        raise DatasetUnavailableError(
            f"There is no copy of {wanted.name!r} here, and {wanted.url} could not be fetched ({error}). "
            f"To get it: {_ways(wanted)}"
        ) from error
    if len(content) > _LARGEST:
        raise ChecksumError(f"{wanted.url} is larger than {_LARGEST} bytes; this is not the file of {wanted.name!r}.")
    return content


def _ways(wanted: Entry) -> str:
    bundled = "pip install scikit-survival, which brings a copy; " if wanted.name == "flchain" else ""
    return (
        f"set SUMOSURV_DATA to a folder that holds {wanted.file}; {bundled}"
        "or go online and load again (the file is then kept in the cache)."
    )


def _from_public_file(content: bytes, wanted: Entry) -> pd.DataFrame:
    try:
        if wanted.url.endswith(".h5"):
            return _from_hdf5(content)
        table = pd.read_csv(io.BytesIO(content))
        return _tidy_flchain(table.assign(sex=table["sex"] == "M"), wanted)
    except (OSError, KeyError, ValueError) as error:
        if isinstance(error, ChecksumError):
            raise
        raise ChecksumError(f"What came from {wanted.url} is not the file of {wanted.name!r}: {error}.") from error


def _from_hdf5(content: bytes) -> pd.DataFrame:
    """DeepSurv's files: groups train and test, each with x (n, p), t (n,) and e (n,)."""
    import h5py

    with h5py.File(io.BytesIO(content), "r") as file:
        x, t, e = (np.concatenate([file[part][key][()] for part in ("train", "test")]) for key in "xte")
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
    return frame.assign(duration=t, event=e)


def _keep(frame: pd.DataFrame, wanted: Entry) -> None:
    path = cache_folder() / wanted.file
    try:
        write_parquet(frame, path)
    except OSError as error:
        warnings.warn(
            f"{wanted.name!r} was fetched but could not be kept at {path} ({error}); "
            "set SUMOSURV_CACHE to a folder that can be written.",
            UserWarning,
            stacklevel=4,
        )
