"""The real datasets: loaded, verified, split into folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import StratifiedKFold, train_test_split

from sumosurv.datasets._catalogue import CATALOGUE, ChecksumError, entry
from sumosurv.datasets._sources import data_folder, locate, read
from sumosurv.outcome import Surv

N_FOLDS = 5
_FOLD_SEED = 1337


@dataclass(frozen=True, eq=False)
class Dataset:
    """A real dataset; unpacks as ``X, y``.

    Attributes
    ----------
    name : str
    X : DataFrame
        The covariates: numbers as float32 or int64, categorical columns as pandas ``category``.
    y : structured array
        The outcome, see `Surv`.
    frame : DataFrame
        The table as published: the covariates, then the time and event columns.
    time_name, event_name : str
        The two outcome columns of ``frame``.
    time_unit : str
        "days" or "months".
    resolution : float or None
        1.0 if times are rounded to whole units, otherwise None.
    description : str
    source : str
        Source from which it was loaded: a path, "scikit-survival" or a URL.
    """

    name: str
    X: pd.DataFrame
    y: npt.NDArray[np.void]
    frame: pd.DataFrame
    time_name: str
    event_name: str
    time_unit: str
    resolution: float | None
    description: str
    source: str

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.y))

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, rows={len(self)}, covariates={self.X.shape[1]}, time_unit={self.time_unit!r})"


class Fold(NamedTuple):
    """Row numbers of one split: fit on ``train``, stop and select on ``valid``, report on ``test``."""

    train: npt.NDArray[np.intp]
    valid: npt.NDArray[np.intp]
    test: npt.NDArray[np.intp]


def load(name: str) -> Dataset:
    """Load one of the datasets gbsg2, flchain, support, metabric, gbsg and whas.

    gbsg2 is installed with the library. The others are read from the first source that has them: the folder
    ``$SUMOSURV_DATA`` (``<name>.parquet``), scikit-survival if it is installed (flchain only), the cache
    (``$SUMOSURV_CACHE``, else the platform's cache folder), and the public file, which is downloaded and kept in the
    cache. The values are verified by a checksum, and a download must equal the published file.

    Parameters
    ----------
    name : str
        Name of the dataset; `available` lists them.

    Returns
    -------
    Dataset
        Also unpacks as ``X, y = load(name)``.

    Raises
    ------
    DatasetUnavailableError
        If there is no local copy and the download failed; the message says how to get one. A FileNotFoundError.
    ChecksumError
        If the copy is corrupted or does not have the published values. A ValueError.

    Examples
    --------
    >>> X, y = load("gbsg2")
    >>> X.shape, X["tumour_grade"].cat.categories.tolist(), int(y["event"].sum())
    ((686, 8), ['I', 'II', 'III'], 299)
    """
    wanted = entry(name)
    frame, source = read(wanted)
    X = frame[wanted.covariates].copy()
    for column in wanted.categorical:
        codes = X[column] if wanted.dtypes[column] == "str" else X[column].astype("int64")
        X[column] = codes.astype("category")
    return Dataset(
        name=wanted.name,
        X=X,
        y=Surv.from_columns(frame, event=wanted.event, time=wanted.time),
        frame=frame,
        time_name=wanted.time,
        event_name=wanted.event,
        time_unit=wanted.time_unit,
        resolution=wanted.resolution,
        description=wanted.description,
        source=source,
    )


def available() -> pd.DataFrame:
    """List the datasets: size, share of censored rows, and where each would be loaded from.

    No data are loaded: ``source`` is a path, "scikit-survival" or "download".

    Examples
    --------
    >>> available()[["name", "rows", "covariates", "censored", "time_unit"]]
           name  rows  covariates  censored time_unit
    0     gbsg2   686           8    0.5641      days
    1   flchain  6524           8    0.6993      days
    2   support  8873          14    0.3197      days
    3  metabric  1904           9    0.4207    months
    4      gbsg  2232           7    0.4323    months
    5      whas  1638           6    0.5788      days
    """
    return pd.DataFrame(
        {
            "name": e.name,
            "rows": e.rows,
            "covariates": len(e.covariates),
            "censored": e.censored,
            "time_unit": e.time_unit,
            "source": str(locate(e)),
        }
        for e in CATALOGUE.values()
    )


def fold(name: str, i: int) -> Fold:
    """Row numbers of fold i of the five fixed folds of a dataset: 3/5 train, 1/5 valid, 1/5 test.

    Read from ``folds.npz`` in the folder ``$SUMOSURV_DATA`` if that file has the dataset. Otherwise made by the rule
    with which that file was made: the test parts are those of scikit-learn's ``StratifiedKFold(5)`` of the event,
    shuffled with seed 1337, and the validation part is a quarter of the other rows, stratified by the event with the
    same seed. Rows are in increasing order.

    Parameters
    ----------
    name : str
    i : int
        0 to 4.

    Returns
    -------
    Fold
        ``train, valid, test``.

    Examples
    --------
    >>> train, valid, test = fold("gbsg", 0)  # doctest: +SKIP
    >>> len(train), len(valid), len(test)  # doctest: +SKIP
    (1338, 447, 447)
    """
    wanted = entry(name)
    _check_number(i)
    stored = _stored_fold(name, int(i))
    if stored is not None:
        if not np.array_equal(np.sort(np.concatenate(stored)), np.arange(wanted.rows)):
            raise ChecksumError(
                f"{name!r}, fold {i} in folds.npz does not hold each of the {wanted.rows} rows exactly once; replace "
                "the file."
            )
        return stored
    event = load(name).y["event"]
    splitter = StratifiedKFold(N_FOLDS, shuffle=True, random_state=_FOLD_SEED)
    rest, test = list(splitter.split(np.zeros(len(event)), event))[int(i)]
    train, valid = train_test_split(rest, test_size=0.25, random_state=_FOLD_SEED, stratify=event[rest])
    return Fold(np.sort(train), np.sort(valid), test)


def _check_number(i: int) -> None:
    if isinstance(i, bool) or i not in range(N_FOLDS):
        raise ValueError(f"The folds are numbered 0 to {N_FOLDS - 1}; got {i!r}.")


def fold_source(name: str) -> str:
    """Say whether the folds of a dataset were read from ``folds.npz`` or drawn from a seed."""
    return "folds.npz" if _stored_fold(name, 0) is not None else "made from the seed"


def _stored_fold(name: str, i: int) -> Fold | None:
    folder = data_folder()
    if folder is None or not (path := folder / "folds.npz").is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as folds:
            keys = [f"{name}_{part}_{i}" for part in Fold._fields]
            if not all(key in folds for key in keys):
                return None
            return Fold(*(folds[key].astype(np.intp).ravel() for key in keys))
    except Exception as error:  # a damaged archive makes NumPy and zipfile raise almost anything
        raise ChecksumError(f"{path} cannot be read ({error}); replace the file, or remove it.") from error


def fold_by_customer(customer: npt.ArrayLike, i: int) -> Fold:
    """Row numbers of fold i of five, 3/5 train, 1/5 valid, 1/5 test, with all rows of a customer in one part.

    Customers are assigned to five parts at random, with a fixed seed. Part i is the test part of fold i and the
    validation part of fold i - 1.

    Parameters
    ----------
    customer : array-like of shape (n,)
        The customer of each row.
    i : int
        0 to 4.

    Examples
    --------
    >>> train, valid, test = fold_by_customer([7, 7, 8, 9, 10, 11, 11], 0)
    >>> sorted(map(int, [*train, *valid, *test]))
    [0, 1, 2, 3, 4, 5, 6]
    """
    _check_number(i)
    codes, names = pd.factorize(np.asarray(customer), sort=True)
    if len(names) < N_FOLDS:
        raise ValueError(f"{N_FOLDS} folds need at least {N_FOLDS} customers; got {len(names)}.")
    part = np.random.default_rng(_FOLD_SEED).permutation(len(names))[codes] % N_FOLDS
    test, valid = part == i, part == (i + 1) % N_FOLDS
    return Fold(*(np.flatnonzero(chosen) for chosen in (~test & ~valid, valid, test)))
