"""Sources of the real datasets: a folder, this package, scikit-survival, the cache, the network."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

import numpy as np
import pandas as pd

from sumosurv.datasets._catalogue import ChecksumError, Entry, checked
from sumosurv.sources import read_parquet, write_parquet
from sumosurv.warn import warn_user

_TIMEOUT = 30.0  # seconds to wait for the next byte of a download
_LARGEST = 50_000_000  # bytes; the public files have less than one million

BUNDLED = "scikit-survival"
DOWNLOAD = "download"


class DatasetUnavailableError(FileNotFoundError):
    """There is no local copy of a dataset, and it could not be downloaded."""

    def __str__(self) -> str:
        return str(self.args[0])


def data_folder() -> Path | None:
    """The folder named by ``$SUMOSURV_DATA``; None if it is not set, an error if there is no such folder."""
    value = os.environ.get("SUMOSURV_DATA")
    if not value:
        return None
    folder = _expanded(value)
    if not _exists(folder.is_dir):
        raise DatasetUnavailableError(f"SUMOSURV_DATA is set to {value!r}, which is not a folder; correct or unset it.")
    return folder


def cache_folder() -> Path:
    """``$SUMOSURV_CACHE``, else ``sumosurv`` in the platform's folder for caches."""
    if value := os.environ.get("SUMOSURV_CACHE"):
        return _expanded(value)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sumosurv"
    base = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sumosurv"


def _expanded(value: str) -> Path:
    try:
        return Path(value).expanduser()
    except RuntimeError:  # ~name of an unknown user
        return Path(value)


def _exists(test: Callable[[], bool]) -> bool:
    """The result of ``is_file`` or ``is_dir``; False if a folder cannot be entered or a name is too long."""
    try:
        return test()
    except OSError:
        return False


def locate(wanted: Entry) -> Path | str:
    """The source from which a dataset would be loaded now: a file, ``"scikit-survival"`` or ``"download"``."""
    folder = data_folder()
    if folder is not None and _exists((path := folder / wanted.file).is_file):
        return path
    if (bundled := Path(__file__).with_name(f"{wanted.name}.csv")).is_file():
        return bundled
    if wanted.name == "flchain" and importlib.util.find_spec("sksurv") is not None:
        return BUNDLED
    cached = cache_folder() / wanted.file
    return cached if _exists(cached.is_file) else DOWNLOAD


def read(wanted: Entry) -> tuple[pd.DataFrame, str]:
    """The verified frame of a dataset, and its source."""
    where = locate(wanted)
    if isinstance(where, Path):
        return checked(_from_file(where, wanted), wanted, str(where)), str(where)
    if where == BUNDLED:
        return checked(_from_scikit_survival(wanted), wanted, "scikit-survival's bundled data"), BUNDLED
    content = _fetch(wanted)
    found = hashlib.sha256(content).hexdigest()
    if found != wanted.file_digest:  # before it is read
        raise ChecksumError(
            f"The file from {wanted.url} ({len(content)} bytes) is not the published file of {wanted.name!r}: its "
            f"sha256 is {found}, expected {wanted.file_digest}. {_instead(wanted)}"
        )
    frame = checked(_from_public_file(content, wanted), wanted, wanted.url)
    _keep(frame, wanted)
    return frame, wanted.url


def _from_file(path: Path, wanted: Entry) -> pd.DataFrame:
    try:
        return pd.read_csv(path) if path.suffix == ".csv" else read_parquet(path)
    except Exception as error:  # a damaged file makes pyarrow raise almost anything
        raise ChecksumError(
            f"{wanted.name!r} from {path} cannot be read: {error}. Remove or replace that file, then load again."
        ) from error


def _from_scikit_survival(wanted: Entry) -> pd.DataFrame:
    try:
        from sksurv.datasets import load_flchain
    except ImportError as error:
        raise DatasetUnavailableError(
            f"scikit-survival is installed but cannot be imported ({error}); {_ways(wanted)}"
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
            f"There is no local copy of {wanted.name!r}, and its public file ({wanted.url}) is read with h5py, which "
            f"is not installed: pip install h5py (or 'sumosurv[datasets]'); or {_ways(wanted)}"
        )
    try:
        content = _download(wanted.url)
    except OSError as error:
        raise DatasetUnavailableError(
            f"There is no local copy of {wanted.name!r}, and {wanted.url} could not be downloaded ({error}). "
            f"To get it: {_ways(wanted)}"
        ) from error
    if len(content) > _LARGEST:
        raise ChecksumError(
            f"{wanted.url} is larger than {_LARGEST} bytes; this is not the file of {wanted.name!r}. {_instead(wanted)}"
        )
    return content


def _instead(wanted: Entry) -> str:
    return f"Load again; if that does not help, set SUMOSURV_DATA to a folder that holds {wanted.file}."


def _ways(wanted: Entry) -> str:
    bundled = "pip install scikit-survival, which includes a copy; " if wanted.name == "flchain" else ""
    return (
        f"set SUMOSURV_DATA to a folder that holds {wanted.file}; {bundled}"
        "or load it again with a network connection (the file is then stored in the cache)."
    )


def _from_public_file(content: bytes, wanted: Entry) -> pd.DataFrame:
    try:
        if wanted.url.endswith(".h5"):
            return _from_hdf5(content)
        table = pd.read_csv(io.BytesIO(content))
        return _tidy_flchain(table.assign(sex=table["sex"] == "M"), wanted)
    except ChecksumError:
        raise
    except Exception as error:  # HDF5 makes h5py raise almost anything
        reader = "h5py" if wanted.url.endswith(".h5") else "pandas"
        raise DatasetUnavailableError(
            f"The file of {wanted.name!r} was downloaded from {wanted.url}, but {reader} cannot read it ({error}). "
            f"Install another version of {reader}; or set SUMOSURV_DATA to a folder that holds {wanted.file}."
        ) from error


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
        warn_user(
            f"{wanted.name!r} was downloaded but could not be stored at {path} ({error}); set SUMOSURV_CACHE to a "
            "writable folder."
        )


def _download(url: str) -> bytes:
    """The content of an address, at most one byte more than the largest file; OSError if it cannot be fetched."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            return bytes(response.read(_LARGEST + 1))
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except (HTTPException, ValueError) as error:  # a reply that is not HTTP, or an invalid address
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
