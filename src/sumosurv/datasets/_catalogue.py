"""Facts about each real dataset: columns, unit of time, source, licence and digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pandas as pd

# at a commit, so that the bytes stay the same
_DEEPSURV = (
    "https://raw.githubusercontent.com/jaredleekatzman/DeepSurv/41eed003e5b892c81e7855e400861fa7a2d9da4f/"
    "experiments/data/"
)
_RDATASETS = (
    "https://raw.githubusercontent.com/vincentarelbundock/Rdatasets/cc03c29690889dbe83089f5206e2422db8c3f71f/"
    "csv/survival/"
)


class ChecksumError(ValueError):
    """A copy of a dataset differs from the published one."""


@dataclass(frozen=True)
class Entry:
    """Facts about a dataset, and the address of its public file.

    ``file_digest`` is the sha256 of the public file, ``digest`` that of the values (`content_digest`), which may also
    come from other files.
    """

    name: str
    dtypes: dict[str, str]
    time: str
    event: str
    categorical: tuple[str, ...]
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
    """The entry of a dataset; ValueError lists the names if there is none."""
    if name == "kkbox":
        raise ValueError("KKBOX is made from Kaggle's files, in a clone of the repository; see docs/kkbox.md.")
    try:
        return CATALOGUE[name]
    except (KeyError, TypeError):
        raise ValueError(f"There is no dataset {name!r}; the names are {', '.join(CATALOGUE)}.") from None


_GBSG2 = Entry(
    name="gbsg2",
    dtypes={
        "hormone_therapy": "str",
        "age": "int64",
        "menopause": "str",
        "tumour_size": "int64",
        "tumour_grade": "str",
        "positive_nodes": "int64",
        "progesterone": "int64",
        "oestrogen": "int64",
        "days": "int64",
        "event": "int64",
    },
    time="days",
    event="event",
    categorical=("hormone_therapy", "menopause", "tumour_grade"),
    rows=686,
    censored=0.5641,
    time_unit="days",
    resolution=1.0,
    about=(
        "GBSG2: recurrence-free survival of women with node-positive breast cancer, in a trial of the German Breast\n"
        "Cancer Study Group. Tumour size in mm, receptors in fmol/l. Installed with the library."
    ),
    source="lifelines (CamDavidsonPilon/lifelines), lifelines/datasets/lymph_node.csv",
    licence="MIT",
    url="",
    file_digest="",
    digest="110f06172412268f71e4332674628919c687ffb31348576e0abdf15e0cf80b2e",
)


_FLCHAIN = Entry(
    name="flchain",
    dtypes={
        "age": "float32",
        "sex": "float32",
        "sample.yr": "int64",
        "kappa": "float32",
        "lambda": "float32",
        "flc.grp": "int64",
        "creatinine": "float32",
        "mgus": "float32",
        "futime": "float32",
        "death": "float32",
    },
    time="futime",
    event="death",
    categorical=("flc.grp",),
    rows=6524,
    censored=0.6993,
    time_unit="days",
    resolution=1.0,
    about=(
        "FLCHAIN: survival of residents of Olmsted County, Minnesota, aged 50 or more, and their serum free\n"
        "light chains. The 1,350 rows without creatinine and the cause of death are left out; sex is 1 for men."
    ),
    source="Rdatasets (vincentarelbundock/Rdatasets), csv/survival/flchain.csv",
    licence="GPL-3",
    url=_RDATASETS + "flchain.csv",
    file_digest="a96bcc58addb4c127e5012c5974aec8c7daf66123ddb104f309a78f158daa563",
    digest="fbee51ec87b76b177bac1b04597df572e661de5c2c225f91a462e02e6c620687",
)


def _deepsurv(
    path: str,
    n_columns: int,
    rows: int,
    censored: float,
    time_unit: str,
    about: str,
    file_digest: str,
    digest: str,
    *,
    categorical: tuple[str, ...] = (),
    resolution: float | None = None,
) -> Entry:
    """One of the datasets of DeepSurv, whose columns have numbers as names."""
    covariates = {f"x{i}": "float32" for i in range(n_columns)}
    return Entry(
        name=path.partition("/")[0],
        dtypes={**covariates, "duration": "float32", "event": "int32"},
        time="duration",
        event="event",
        categorical=categorical,
        rows=rows,
        censored=censored,
        time_unit=time_unit,
        resolution=resolution,
        about=about,
        source=f"DeepSurv (jaredleekatzman/DeepSurv), experiments/data/{path}",
        licence="MIT",
        url=_DEEPSURV + path,
        file_digest=file_digest,
        digest=digest,
    )


_ENTRIES = (
    _GBSG2,
    _FLCHAIN,
    _deepsurv(
        "support/support_train_test.h5", 14, 8873, 0.3197, "days",
        "SUPPORT: survival of seriously ill adults in five US hospitals.",
        "e398f49930e4efc4ecd675a72ac547f0d1ae25ccf13f6a1024cded12ea88a83e",
        "c7c51a952575df5391f5240f1aee896c8e816015e71a9a5e0a5262709b64a61c",
        categorical=("x2", "x6"), resolution=1.0,
    ),
    _deepsurv(
        "metabric/metabric_IHC4_clinical_train_test.h5", 9, 1904, 0.4207, "months",
        "METABRIC: survival with breast cancer; four gene expressions (x0-x3) and five clinical covariates.",
        "e959131973c906c7e8b1e662c81160914768156a6da145a9bfed9b9ee8bf3e72",
        "beb602b0c8e994953b9ad934fb58dfc8f5f698730d690ca24d49ce9164c4cb0e",
    ),
    _deepsurv(
        "gbsg/gbsg_cancer_train_test.h5", 7, 2232, 0.4323, "months",
        "GBSG: patients with node-positive breast cancer; rows 0-1545 are of the Rotterdam tumour bank,\n"
        "rows 1546-2231 of the trial of the German Breast Cancer Study Group.",
        "bd455f4395322a8b23040c15cedbef00ad51a447d02c95f1f1d686a6b196484b",
        "b00e07c45b0865ab96670d3a408336d35510b652589cbc4b2ad949da72743568",
        categorical=("x1",),
    ),
    _deepsurv(
        "whas/whas_train_test.h5", 6, 1638, 0.5788, "days",
        "WHAS: survival after a heart attack, Worcester. Not for comparing models without care: 903 rows are\n"
        "exact copies of others, and x0 = 1 occurs only with an event.",
        "2ed86f073fdbe34be10f7e485eeaf67b61004521390c46b9a18aa9b82d5e8f9c",
        "98667cd7529448ae50fa731101ae12c5fec1e7dd674f33d7bdaf79b0bfa9ad7f",
    ),
)  # fmt: skip
CATALOGUE = {entry.name: entry for entry in _ENTRIES}
