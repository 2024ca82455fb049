"""From a table to covariates and outcomes, by the columns that were named."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sumosurv.files import check_apart, check_writable, is_parquet
from sumosurv.outcome import Outcome
from sumosurv.outcome.checks import names_in_words
from sumosurv.sources import Roles, RowSource
from sumosurv.tables import read_table

if TYPE_CHECKING:
    from sumosurv.cluster import Cluster

__all__ = [
    "check_target",
    "cluster_of",
    "columns_of",
    "covariates_and_outcome",
    "for_model",
    "how_many",
    "is_streamed",
    "outcome_of",
    "read",
    "roles_of",
    "source_of",
]

_LARGE = 2**30  # bytes of a Parquet file above which it is read in blocks

_ROLES = ("time", "event", "entry", "lower", "upper", "weight", "group", "event_value")


def check_target(path: Path, *inputs: str | Path | None) -> None:
    """Say at once, and not after a long fit, that a file cannot be written, or would replace what is read."""
    check_writable(path)
    check_apart(path, *inputs)


def read(path: Path, arguments: argparse.Namespace) -> pd.DataFrame:
    """A table, as --sep and --decimal say; an index stored by pandas has columns that can be named, no covariates."""
    frame = read_table(path, sep=arguments.sep, decimal=arguments.decimal)
    named = {getattr(arguments, role, None) for role in _ROLES[:-1]} | {*getattr(arguments, "id", ())}
    return frame.reset_index([name for name in frame.index.names if name is not None and name in named])


def outcome_of(frame: pd.DataFrame, arguments: argparse.Namespace, *, causes: int | None = None) -> Outcome:
    """The outcome, from the columns that were named; ``causes`` is the number of causes of a fitted model."""
    return roles_of(arguments).table_outcome(frame, causes)


def is_streamed(path: Path, arguments: argparse.Namespace) -> bool:
    """Whether a table is read in blocks: a folder, a large Parquet file, or one for which --stream was given."""
    if path.is_dir():
        return True
    parquet = is_parquet(path)
    if arguments.stream and not parquet:
        raise ValueError(f"--stream reads a Parquet file or a folder of Parquet files; {path} is neither.")
    return parquet and path.is_file() and (arguments.stream or path.stat().st_size > _LARGE)


def source_of(path: Path, arguments: argparse.Namespace) -> RowSource:
    """A table that is read in blocks, without identifiers and columns that were dropped."""
    source = RowSource(path, categorical=getattr(arguments, "categorical", ()))
    unwanted = [*getattr(arguments, "drop", ()), *arguments.id] if hasattr(arguments, "drop") else []
    check_columns(source.names, unwanted)
    return source.with_columns([name for name in source.columns if name not in unwanted])


def roles_of(arguments: argparse.Namespace) -> Roles:
    """The columns of the outcome that were named."""
    return Roles.of({role: getattr(arguments, role) for role in _ROLES}, prefix="--")


def how_many(number: int, what: str) -> str:
    """A number of things in words."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def covariates_and_outcome(frame: pd.DataFrame, arguments: argparse.Namespace) -> tuple[pd.DataFrame, Outcome]:
    """The training columns, without identifiers and dropped columns, and the outcome."""
    roles = roles_of(arguments)
    y = roles.table_outcome(frame)
    unwanted = [*arguments.drop, *arguments.id]
    check_columns(frame.columns, unwanted)
    X = frame[roles.covariates(frame.drop(columns=unwanted))]
    check_columns(X.columns, arguments.categorical, "covariate")
    for name in arguments.categorical:
        X = X.assign(**{name: X[name].astype("category")})
    return X, y


def cluster_of(arguments: argparse.Namespace) -> Cluster | None:
    """The cluster of the option --ray; None without it."""
    if arguments.ray is None:
        for name in ("ray_workers", "ray_smallest"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} requires --ray ADDRESS.")
        return None
    from sumosurv.cluster import Cluster

    return Cluster(arguments.ray, arguments.ray_workers, arguments.ray_smallest, arguments.ray_ship)


def check_columns(columns: Iterable[str], wanted: Iterable[str], what: str = "column") -> None:
    """Raise a ValueError that names a column which is not there."""
    known = set(columns)
    for name in wanted:
        if name not in known:
            raise ValueError(f"There is no {what} {name!r}; the {what}s are {names_in_words(columns)}.")


def for_model(frame: pd.DataFrame, model: Any) -> pd.DataFrame:
    """The columns that a model was fitted on, in their order."""
    names = getattr(model, "feature_names_in_", None)
    return frame if names is None else columns_of(frame, list(names))


def columns_of(frame: pd.DataFrame, names: list[str], option: str | None = None) -> pd.DataFrame:
    """Some columns of a table, or an error that names those that it lacks."""
    missing = [name for name in names if name not in frame.columns]
    if missing and option is not None:
        raise ValueError(
            f"There is no column {missing[0]!r} ({option}); the columns are {names_in_words(frame.columns)}."
        )
    if missing:
        raise ValueError(f"The table is missing columns that the model was fitted on: {names_in_words(missing)}.")
    return frame[names]
