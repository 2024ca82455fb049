"""The paper's Table 2: facts of the datasets, counted here, beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paper.kkbox import load_kkbox
from paper.record import make_record, save_record
from sumosurv import datasets
from sumosurv.datasets import DatasetUnavailableError

__all__ = ["NAMES", "PUBLISHED", "Facts", "facts", "run", "show"]

REAL = ("support", "metabric", "gbsg", "flchain")
SIMULATED = ("weibull", "checkerboard", "normal")
NAMES = (*REAL, "kkbox", *SIMULATED, "kkbox (simulated)")
QUICK_ROWS = 100_000  # of the stand-in for KKBOX

# name -> size, covariates, unique durations, "Prop. Censored"
PUBLISHED: dict[str, tuple[int, int, int, float]] = {
    "support": (8_873, 14, 1_714, 0.32),
    "metabric": (1_904, 9, 1_686, 0.42),
    "gbsg": (2_232, 7, 1_230, 0.43),
    "flchain": (6_524, 8, 2_715, 0.70),
    "kkbox": (2_646_746, 15, 2_344_004, 0.28),
    "weibull": (25_000, 1, 25_000, 0.55),
    "checkerboard": (25_000, 1, 25_000, 0.75),
    "normal": (25_000, 1, 25_000, 0.50),
}

NOTES = (
    "The paper's censored shares of the three simulated datasets are shares of events, as counting shows: the column "
    "'events' is the one to compare with theirs. The other shares are of censored rows.",
    "KKBOX's durations are whole days, a few years at most: there cannot be 2,344,004 different ones.",
    "'tied' is the share of rows whose time another row has too; 'step' the unit to which all times are rounded.",
    "'kkbox (simulated)' is made up: the form of KKBOX, a known distribution, times not rounded. The row 'kkbox' is "
    "there only where Kaggle's files are (paper.kkbox).",
)


@dataclass(frozen=True)
class Facts:
    """One dataset in figures, and the paper's figures of it."""

    name: str
    simulated: bool
    rows: int
    covariates: int
    numeric: int
    binary: int
    categorical: int
    unique_durations: int
    censored: float
    events: float
    tied: float
    step: float | None
    missing: float
    megabytes: float
    published: dict[str, float] | None


def facts(name: str, X: pd.DataFrame, y: Any, *, simulated: bool = False) -> Facts:
    """Count what Table 2 says of a dataset, and a little more.

    Examples
    --------
    >>> data = datasets.simulate("weibull", 1000, random_state=0)
    >>> counted = facts("weibull", data.X, data.y, simulated=True)
    >>> counted.rows, counted.covariates, counted.unique_durations, counted.tied
    (1000, 1, 1000, 0.0)
    """
    categorical = [column for column in X if isinstance(X[column].dtype, pd.CategoricalDtype)]
    binary = [c for c in X if c not in categorical and X[c].nunique() <= 2]
    times, counts = np.unique(y["time"], return_counts=True)
    published = PUBLISHED.get(name.split(" ")[0])
    keys = ("rows", "covariates", "unique_durations", "censored")
    return Facts(
        name=name,
        simulated=simulated,
        rows=len(y),
        covariates=X.shape[1],
        numeric=X.shape[1] - len(categorical) - len(binary),
        binary=len(binary),
        categorical=len(categorical),
        unique_durations=len(times),
        censored=float(1.0 - y["event"].mean()),
        events=float(y["event"].mean()),
        tied=float(counts[counts > 1].sum() / len(y)),
        step=1.0 if bool((times == np.round(times)).all()) else None,
        missing=float(X.isna().to_numpy().mean()),
        megabytes=float((X.memory_usage(deep=True).sum() + y.nbytes) / 1e6),
        published=None if published is None else dict(zip(keys, published)),
    )


def run(out: Path, *, seed: int = 0, quick: bool = False, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """Print the table, write ``table2.json`` under ``out``, return the record.

    Parameters
    ----------
    out : path
    seed : int
        Of the simulated datasets.
    quick : bool
        100,000 rows of the stand-in for KKBOX instead of 2,646,746.
    names : sequence of str
        Which datasets.
    """
    for name in names:
        if name not in NAMES:
            raise ValueError(f"There is no dataset {name!r} in Table 2; the names are {', '.join(NAMES)}.")
    table = [row for name in names if (row := _row(name, seed, quick)) is not None]
    print(_text(table))
    configuration = {"seed": seed, "quick": quick, "names": list(names)}
    record = make_record("table2", configuration, {"rows": [asdict(row) for row in table], "notes": NOTES})
    save_record(record, Path(out))
    return record


def show(record: Mapping[str, Any]) -> None:
    """Print the table of a stored record."""
    print(_text([Facts(**row) for row in record["results"]["rows"]]))


def _row(name: str, seed: int, quick: bool) -> Facts | None:
    if name == "kkbox (simulated)":
        made = datasets.simulate("kkbox", QUICK_ROWS if quick else None, random_state=seed)
        return facts(name, made.X, made.y, simulated=True)
    if name in SIMULATED:
        made = datasets.simulate(name, random_state=seed)  # type: ignore[arg-type]
        return facts(name, made.X, made.y, simulated=True)
    if name == "kkbox":
        try:
            data: datasets.Dataset = load_kkbox(as_published=True)
        except DatasetUnavailableError:
            return None
    else:
        data = datasets.load(name)
    return facts(name, data.X, data.y)


def _text(table: Sequence[Facts]) -> str:
    head = (
        f"{'dataset':<19}{'rows':>10}{'cov.':>5} {'num/bin/cat':>12}{'unique times':>13}{'censored':>9}{'events':>8}"
        f"{'tied':>7}{'step':>5}{'MB':>8} |{'paper: rows':>12}{'cov.':>5}{'unique':>10}{'cens.':>6} | differs"
    )
    lines = [head, "-" * len(head)]
    for row in table:
        kinds = f"{row.numeric}/{row.binary}/{row.categorical}"
        step = "" if row.step is None else f"{row.step:g}"
        line = (
            f"{row.name:<19}{row.rows:>10,}{row.covariates:>5} {kinds:>12}{row.unique_durations:>13,}"
            f"{row.censored:>9.3f}{row.events:>8.3f}{row.tied:>7.3f}{step:>5}{row.megabytes:>8.1f} |"
        )
        if (paper := row.published) is not None:
            line += f"{paper['rows']:>12,}{paper['covariates']:>5}{paper['unique_durations']:>10,}"
            line += f"{paper['censored']:>6.2f} | {_differences(row, paper) or '-'}"
        lines.append(line)
    return "\n".join([*lines, "", *(f"({i}) {note}" for i, note in enumerate(NOTES, 1))])


def _differences(row: Facts, paper: dict[str, float]) -> str:
    parts = [
        f"{label} {getattr(row, key) - paper[key]:+,}"
        for key, label in (("rows", "rows"), ("covariates", "cov."), ("unique_durations", "unique"))
        if getattr(row, key) != paper[key]
    ]
    if abs(row.censored - paper["censored"]) > 0.0051:  # more than a rounding
        parts.append(f"censored {row.censored - paper['censored']:+.3f}")
        if row.simulated and abs(row.events - paper["censored"]) <= 0.025:
            parts[-1] += f" (events {row.events - paper['censored']:+.3f})"
    return ", ".join(parts)
