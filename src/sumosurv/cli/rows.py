"""From a table to covariates and outcomes, by the columns that were named."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from sumosurv.files import check_apart, check_writable, is_parquet
from sumosurv.outcome import Outcome, Surv, check_outcome
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

_LARGE = 2**30  # bytes of a Parquet file above which it is read in pieces

_NO_EVENT = {"alive", "censored", "no", "none", "false", "n", "f", "0", "event-free"}  # words of columns of events
_ROLES = ("time", "event", "entry", "lower", "upper", "weight", "group")  # columns that are no covariates


def check_target(path: Path, *inputs: str | Path | None) -> None:
    """Say at once, and not after a long fit, that a file cannot be written, or would replace what is read."""
    check_writable(path)
    check_apart(path, *inputs)


def read(path: Path, arguments: argparse.Namespace) -> pd.DataFrame:
    """A table, as --sep and --decimal say."""
    return read_table(path, sep=arguments.sep, decimal=arguments.decimal)


def outcome_of(frame: pd.DataFrame, arguments: argparse.Namespace, *, causes: int | None = None) -> Outcome:
    """What was observed, from the columns that were named; of so many causes, if that is known beforehand."""
    between, named = _check_named(arguments), {role: getattr(arguments, role) for role in _ROLES}
    for flag, name in named.items():
        if name is not None and name not in frame.columns:
            listed = ", ".join(map(repr, frame.columns))
            raise ValueError(f"There is no column {name!r} (--{flag}); the columns are {listed}.")
    wanted = arguments.event_value
    if arguments.event is not None:
        frame = frame.assign(**{arguments.event: _event_values(frame[arguments.event], wanted, causes)})
    columns = {role: named[role] for role in ("event", "time", "entry", "lower", "upper")}
    several = len(wanted) if wanted is not None and len(wanted) > 1 else None
    y = check_outcome(
        Surv.from_columns(frame, **columns, causes=None if between else several),
        sample_weight=None if arguments.weight is None else frame[arguments.weight],
        groups=None if arguments.group is None else frame[arguments.group],
    )
    if several is not None and y.cause is None:  # of limits, and only the first cause occurs
        y = replace(y, cause=y.had_event.astype(np.int64))
    if causes is not None and (causes > 1) != (y.cause is not None):
        raise ValueError(
            f"The model was fitted to {causes} cause{'s' * (causes > 1)} and the table has {y.n_causes}; say with "
            "--event-value which values of the column they are, in the same order."
        )
    return y


def _check_named(arguments: argparse.Namespace) -> bool:
    """Whether the outcome is two limits; an error if it is not named, or twice."""
    between = arguments.lower is not None or arguments.upper is not None
    if between and (arguments.time is not None or None in (arguments.lower, arguments.upper)):
        raise ValueError("Name --time and --event, or --lower and --upper (then --event only to tell causes apart).")
    if not between and None in (arguments.time, arguments.event):
        raise ValueError("Name the outcome: --time and --event, or --lower and --upper for interval censoring.")
    if arguments.event is None and arguments.event_value is not None:
        raise ValueError("--event-value says what the values of a column mean; name it with --event.")
    roles: dict[str, str] = {}
    for role in _ROLES:
        name = getattr(arguments, role)
        if name is not None and (other := roles.setdefault(name, role)) != role:
            raise ValueError(
                f"--{other} and --{role} both name the column {name!r}; name a column of its own for each."
            )
    return between


def is_streamed(path: Path, arguments: argparse.Namespace) -> bool:
    """Whether a table is read in pieces: a folder, a large Parquet file, or one for which --stream was given."""
    if path.is_dir():
        return True
    parquet = is_parquet(path)
    if arguments.stream and not parquet:
        raise ValueError(f"--stream reads Parquet files and folders of them; {path} is neither.")
    return parquet and path.is_file() and (arguments.stream or path.stat().st_size > _LARGE)


def source_of(path: Path, arguments: argparse.Namespace) -> RowSource:
    """A table that is read in pieces, without identifiers and columns that were dropped."""
    source = RowSource(path, categorical=getattr(arguments, "categorical", ()))
    unwanted = [*getattr(arguments, "drop", ()), *arguments.id] if hasattr(arguments, "drop") else []
    for name in unwanted:
        if name not in source.names:
            raise ValueError(f"There is no column {name!r}; the columns are {', '.join(map(repr, source.names))}.")
    return source.with_columns([name for name in source.columns if name not in unwanted])


class _NamedByOptions(Roles):
    """Columns that were named on the command line."""

    option: ClassVar[str] = "--event-value"


def roles_of(arguments: argparse.Namespace) -> Roles:
    """The columns of the outcome of a table that is read in pieces."""
    _check_named(arguments)
    named = {role: getattr(arguments, role) for role in _ROLES if getattr(arguments, role) is not None}
    if arguments.event_value is not None:
        named["event_value"] = arguments.event_value
    return _NamedByOptions.of(named)


def _event_values(column: pd.Series, wanted: list[str] | None, causes: int | None) -> pd.Series:
    """Whether a row had the event, or 0, 1, 2, ..., by the values that mean one.

    The column as it is where none were named and it needs none. Where the causes are known beforehand, from another
    table, this one need not have them all.
    """
    words = column.map(lambda value: f"{value:g}" if isinstance(value, float) else str(value))
    known = list(dict.fromkeys(words[column.notna()]))
    if wanted is not None:
        twice = [value for place, value in enumerate(wanted) if value in wanted[:place]]
        if twice:
            raise ValueError(f"--event-value names {twice[0]!r} twice; name each cause once, in order.")
        unknown = [value for value in wanted if value not in known]
        if causes is not None and len(unknown) < len(wanted) == causes:
            unknown = []
        if unknown or column.isna().any():
            rows = int(column.isna().sum())
            what = f"has no value {unknown[0]!r}" if unknown else f"is missing in {rows} rows"
            raise ValueError(f"The column {column.name!r} {what}; its values are {', '.join(map(repr, known[:10]))}.")
        if len(wanted) == 1:
            return words == wanted[0]
        return words.map({value: place + 1 for place, value in enumerate(wanted)}).fillna(0).astype(np.int64)
    if set(known) == {"1", "2"}:
        raise ValueError(
            f"The column {column.name!r} holds 1 and 2, as in R, where 2 is the event: give --event-value 2. If they "
            "are two causes and no row is censored: --event-value 1 2."
        )
    if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
        likely = [value for value in known if value.lower() not in _NO_EVENT]
        example = f", for example --event-value {shlex.quote(likely[0])}" if len(likely) == 1 else ""
        raise ValueError(
            f"The column {column.name!r} holds {', '.join(map(repr, known[:5]))}; say with --event-value which of them "
            f"means an event (several for competing causes){example}."
        )
    return column


def how_many(number: int, what: str) -> str:
    """A number of things in words."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def covariates_and_outcome(frame: pd.DataFrame, arguments: argparse.Namespace) -> tuple[pd.DataFrame, Outcome]:
    """The training columns and what was observed, without identifiers and columns that were dropped."""
    y = outcome_of(frame, arguments)
    unwanted = [*arguments.drop, *arguments.id]
    for name in unwanted:
        if name not in frame.columns:
            raise ValueError(f"There is no column {name!r}; the columns are {', '.join(map(repr, frame.columns))}.")
    own = {getattr(arguments, role) for role in _ROLES} - {None}
    X = frame.drop(columns=list({*own, *unwanted}))
    if X.shape[1] == 0:
        raise ValueError("No covariates are left beside the outcome.")
    for name in arguments.categorical:
        if name not in X.columns:
            raise ValueError(f"There is no covariate {name!r}; they are {', '.join(map(repr, X.columns))}.")
    return X.astype(dict.fromkeys(arguments.categorical, "category")), y


def cluster_of(arguments: argparse.Namespace) -> Cluster | None:
    """The cluster of the option --ray; None without it."""
    if arguments.ray is None:
        for name in ("ray_workers", "ray_smallest"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} is for a cluster; name it with --ray ADDRESS.")
        return None
    from sumosurv.cluster import Cluster

    return Cluster(arguments.ray, arguments.ray_workers, arguments.ray_smallest, arguments.ray_ship)


def for_model(frame: pd.DataFrame, model: Any) -> pd.DataFrame:
    """The columns that a model was fitted on, in their order."""
    names = getattr(model, "feature_names_in_", None)
    return frame if names is None else columns_of(frame, list(names))


def columns_of(frame: pd.DataFrame, names: list[str], option: str | None = None) -> pd.DataFrame:
    """Some columns of a table, or an error that names those that it lacks."""
    missing = [name for name in names if name not in frame.columns]
    if missing and option is not None:
        listed = ", ".join(map(repr, frame.columns))
        raise ValueError(f"There is no column {missing[0]!r} ({option}); the columns are {listed}.")
    if missing:
        raise ValueError(f"The table lacks columns that the model was fitted on: {', '.join(map(repr, missing))}.")
    return frame[names]
