"""KKBOX: when subscribers of a music service leave, made from the files that Kaggle gives out."""

from __future__ import annotations

import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from paper.kkbox.files import FILES, find_files, scatter
from paper.kkbox.spells import spells
from sumosurv.datasets import ChecksumError, Dataset, DatasetUnavailableError, read_parquet, write_parquet
from sumosurv.outcome import Surv

__all__ = ["CustomerDataset", "load_kkbox"]

_FORMAT = 1  # of the cached table; raised whenever the rules change
_N_BUCKETS = 64
_CHUNK_ROWS = 500_000
_OLDEST = 100  # ages from here on, and from zero down, are no ages
_LOGGED = ("days_between_subs", "days_since_reg_init", "payment_plan_days", "plan_list_price", "actual_amount_paid")
_CATEGORICAL = ("city", "gender", "registered_via", "payment_method_id")
_COVARIATES = (
    "n_prev_churns",
    "days_between_subs",
    "days_since_reg_init",
    "payment_plan_days",
    "plan_list_price",
    "actual_amount_paid",
    "age_at_start",
    "strange_age",
    "is_auto_renew",
    "is_cancel",
    *_CATEGORICAL,
)
_TABLE = ("msno", "start", "duration", "event", *(name for name in _COVARIATES if name != "strange_age"))
_PUBLISHED = (
    "n_prev_churns",
    "log_days_between_subs",
    "log_days_since_reg_init",
    "log_payment_plan_days",
    "log_plan_list_price",
    "log_actual_amount_paid",
    "is_auto_renew",
    "is_cancel",
    "city",
    "gender",
    "registered_via",
    "age_at_start",
    "strange_age",
    "nan_days_since_reg_init",
    "no_prev_churns",
)


@dataclass(frozen=True, eq=False, repr=False)
class CustomerDataset(Dataset):
    """A dataset in which a customer can have several rows; unpacks as ``X, y``.

    Attributes
    ----------
    customer : ndarray of shape (n,)
        The customer of each row, as a number. Split by it and not by row: `sumosurv.datasets.fold_by_customer`.
    """

    customer: npt.NDArray[np.int64]


def load_kkbox(
    folder: str | Path | None = None, *, as_published: bool = False, cache: bool = True, progress: bool = True
) -> CustomerDataset:
    """Load KKBOX: one row per membership spell, from Kaggle's raw files.

    Kaggle's terms do not let others hand the files on. Fetch train.csv, members_v3.csv and transactions.csv from
    https://www.kaggle.com/c/kkbox-churn-prediction-challenge/data and unpack them into one folder. They are read
    in pieces (the transactions alone have 1.7 GB), and the spells are kept as a Parquet file beside them.

    A spell begins with a transaction and goes on as long as each next one comes within 30 days of the
    membership's end. It lasts to the end date of its last transaction. Without a next transaction the spell has
    churned if it ended by 2017-01-29, 30 days before the files do, or if Kaggle's train.csv says so; else it is
    censored. Covariates are those of the spell's first day. Spells of no days are left out.

    Parameters
    ----------
    folder : path, optional
        Where the files are; by default the folder ``kkbox`` in ``$SUMOSURV_DATA``.
    as_published : bool
        Follow the dataset of Kvamme et al. (2019) to the letter, which the paper used: 15 covariates, amounts and
        days as log(1 + x), numbers for what is missing, and rows left out that are kept by default. See Notes.
    cache : bool
        Read the Parquet file beside the raw ones if it is newer, and write it if not.
    progress : bool
        Show a progress bar while the raw files are read.

    Returns
    -------
    CustomerDataset
        Also unpacks as ``X, y``. Time is in whole days; ``customer`` says who each row belongs to, and ``frame``
        has the customer's id and the spell's first day too.

    Notes
    -----
    By default nothing that is missing is filled in or dropped: NaN stands for an unknown gender, city, registration
    or age (an age of 0, as unknown ones are recorded, or above 99 sets ``strange_age``), and for days since the
    spell before where there was none. The published dataset differs: the current spell of a customer who churned
    before is left out, although it is censored like any other; a transaction that ends before it begins still
    counts as a renewal; ``days_between_subs`` is 0 for every spell of more than one transaction; rows that begin
    before the registration are left out.

    Raises
    ------
    DatasetUnavailableError
        A FileNotFoundError: files are missing; it says which, and where to get them.

    Examples
    --------
    >>> data = load_kkbox("kaggle/kkbox")  # doctest: +SKIP
    >>> train, valid, test = datasets.fold_by_customer(data.customer, 0)  # doctest: +SKIP
    """
    place = _folder(folder)
    stored = place / f"kkbox_{'published' if as_published else 'spells'}_{_FORMAT}.parquet"
    if cache and _is_fresh(stored, place):
        table = _cached(stored)
    else:
        table = _make(place, find_files(place), as_published, progress)
        if cache:
            _keep(table, stored)
    return _dataset(table, as_published, str(stored if cache else place))


# ------------------------------------------------------------------


def _folder(folder: str | Path | None) -> Path:
    if folder is None:
        base = os.environ.get("SUMOSURV_DATA")
        if not base:
            raise DatasetUnavailableError(
                f"Say where Kaggle's files {', '.join(raw.name for raw in FILES)} are: load_kkbox(folder), or set "
                "SUMOSURV_DATA to a folder that has them in a folder kkbox."
            )
        return Path(base).expanduser() / "kkbox"
    return Path(folder).expanduser()


def _is_fresh(stored: Path, folder: Path) -> bool:
    """The cached table exists, and no raw file (if there still are any) is newer."""
    if not stored.is_file():
        return False
    raw = [folder / raw.name for raw in FILES]
    return all(path.stat().st_mtime <= stored.stat().st_mtime for path in raw if path.is_file())


def _cached(stored: Path) -> pd.DataFrame:
    """The cached table, if it is one."""
    try:
        table = read_parquet(stored)
    except Exception as error:  # a damaged file makes pyarrow raise almost anything
        raise ChecksumError(
            f"{stored} cannot be read as a Parquet file ({error}). Remove it, and it is made again from Kaggle's files."
        ) from error
    lacking = [name for name in _TABLE if name not in table.columns]
    if lacking:
        raise ChecksumError(
            f"{stored} lacks the columns {', '.join(lacking)}. Remove it, and it is made again from Kaggle's files."
        )
    return table


def _make(
    folder: Path,
    paths: list[Path],
    as_published: bool,
    progress: bool,
    n_buckets: int = _N_BUCKETS,
    chunk_rows: int = _CHUNK_ROWS,
) -> pd.DataFrame:
    """The spells of all customers: deal the files out by customer, then take bucket by bucket."""
    from tqdm.auto import tqdm

    total = sum(path.stat().st_size for path in paths)
    with tempfile.TemporaryDirectory(prefix="sumosurv-kkbox-") as scratch:
        with tqdm(total=total, unit="B", unit_scale=True, desc="KKBOX files", disable=not progress) as bar:
            for raw, path in zip(FILES, paths):
                scatter(path, raw, Path(scratch) / raw.name, n_buckets, chunk_rows, bar)
        parts = []
        for i in tqdm(range(n_buckets), desc="KKBOX spells", disable=not progress):
            frames = [read_parquet(Path(scratch) / raw.name / f"{i}.parquet") for raw in FILES]
            parts.append(spells(*frames, as_published=as_published))
    parts = [part for part in parts if len(part)]
    if not parts:
        raise ValueError(f"The transactions in {folder} make no membership of at least one day.")
    table = pd.concat(parts, ignore_index=True)
    # one order whatever the number of buckets
    return table.sort_values(["msno", "start"], kind="stable", ignore_index=True)


def _keep(table: pd.DataFrame, stored: Path) -> None:
    try:
        write_parquet(table, stored)
    except OSError as error:
        warnings.warn(
            f"KKBOX was made but could not be kept at {stored} ({error}); pass cache=False, or copy the raw files to a "
            "folder that can be written.",
            UserWarning,
            stacklevel=3,
        )


def _dataset(table: pd.DataFrame, as_published: bool, source: str) -> CustomerDataset:
    if as_published:  # a registration after the start is taken for an error of the row there
        table = table[~(table["days_since_reg_init"] < 0)].reset_index(drop=True)
    covariates = _published_covariates(table) if as_published else _covariates(table)
    outcome = {"duration": table["duration"].astype("float32"), "event": table["event"].astype("int32")}
    y = Surv.from_arrays(event=table["event"], time=table["duration"])
    kind = "the published rules" if as_published else "every spell kept"
    return CustomerDataset(
        name="kkbox",
        X=covariates,
        y=y,
        frame=pd.concat([table[["msno", "start"]], covariates, pd.DataFrame(outcome)], axis=1),
        time_name="duration",
        event_name="event",
        time_unit="days",
        resolution=1.0,
        description=(
            f"KKBOX ({kind}): membership spells of a music service and the churn that ends them.\n"
            f"{len(y)} spells, {covariates.shape[1]} covariates, {1 - y['event'].mean():.1%} censored. "
            "Time is in days, whole numbers.\n"
            "Source: WSDM - KKBox's Churn Prediction Challenge (Kaggle, 2017); under the competition's rules."
        ),
        source=source,
        customer=pd.factorize(table["msno"])[0].astype(np.int64),
    )


def _covariates(table: pd.DataFrame) -> pd.DataFrame:
    X = table[[name for name in _COVARIATES if name in table.columns]].copy()
    age = X["age_at_start"]
    strange = (age <= 0) | (age >= _OLDEST)
    X["strange_age"] = strange.astype("float32")
    X["age_at_start"] = age.where(~strange)
    X["days_since_reg_init"] = X["days_since_reg_init"].where(X["days_since_reg_init"] >= 0)
    return _typed(X[list(_COVARIATES)])


def _published_covariates(table: pd.DataFrame) -> pd.DataFrame:
    X = table.drop(columns=["msno", "start", "duration", "event", "payment_method_id"])
    age, since = X["age_at_start"], X["days_since_reg_init"]
    X["strange_age"] = (age <= 0) | (age >= _OLDEST)
    X["age_at_start"] = age.clip(0, _OLDEST).fillna(-1.0)
    X["nan_days_since_reg_init"] = since.isna()
    X["no_prev_churns"] = X["n_prev_churns"] == 0
    for name in _LOGGED:
        shift = 2.0 if name == "days_since_reg_init" else 1.0  # -1 stands for an unknown registration there
        filled = X[name].fillna(-1.0 if name == "days_since_reg_init" else 0.0)
        X[f"log_{name}"] = np.log(filled + shift)
    return _typed(X[list(_PUBLISHED)])


def _typed(X: pd.DataFrame) -> pd.DataFrame:
    """Numbers in float32 and categories: three million rows stay in a few hundred megabytes."""

    def typed(name: str) -> Any:
        if name == "gender":
            return X[name].astype("category")
        return _integer_category(X[name]) if name in _CATEGORICAL else X[name].astype("float32")

    return pd.DataFrame({name: typed(name) for name in X.columns}, index=X.index)


def _integer_category(values: pd.Series) -> Any:
    numbers = values.astype("float64")
    levels = np.unique(numbers[numbers.notna()])
    codes = np.where(numbers.notna(), np.searchsorted(levels, numbers), -1)
    return pd.Categorical.from_codes(codes, categories=levels.astype(np.int64))
