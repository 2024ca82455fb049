"""Tables, outcomes and clusters, as the options name them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sumosurv.files import check_apart, check_writable
from sumosurv.sources import Roles, RowSource, Source, as_source, check_present, open_table

if TYPE_CHECKING:
    from sumosurv.cluster import Cluster

_ROLES = ("time", "event", "entry", "lower", "upper", "weight", "group", "event_value")


def check_target(path: Path, *inputs: str | Path | None) -> None:
    """Raise an error before any work if a file cannot be written, or would overwrite an input."""
    check_writable(path)
    check_apart(path, *inputs)


def read_rows(path: Path, arguments: argparse.Namespace, *, in_blocks: bool | None = None) -> pd.DataFrame | RowSource:
    """A table as --sep, --decimal, --categorical and --stream say; see `open_table` for ``in_blocks``.

    Index levels stored by pandas are not covariates, but options can name them.
    """
    return open_table(
        path,
        in_blocks=True if in_blocks is None and getattr(arguments, "stream", False) else in_blocks,
        sep=arguments.sep,
        decimal=arguments.decimal,
        index=[*filter(None, (getattr(arguments, role, None) for role in _ROLES[:-1])), *getattr(arguments, "id", ())],
        categorical=getattr(arguments, "categorical", ()),
    )


def read_source(
    path: Path,
    arguments: argparse.Namespace,
    *,
    n_causes: int | None = None,
    columns: Sequence[str] | None = None,
    whole: bool = False,
) -> Source:
    """A table with the outcome that was named, without identifiers and dropped columns.

    ``n_causes`` is that of a fitted model or of the training rows. The covariates are ``columns``, by default all
    columns that have no role. ``whole`` reads the table into memory, regardless of its size.
    """
    roles = Roles.of({role: getattr(arguments, role) for role in _ROLES}, prefix="--")
    unwanted = [*getattr(arguments, "drop", ()), *getattr(arguments, "id", ())] if columns is None else []
    table = read_rows(path, arguments, in_blocks=False if whole else None)
    check_present(unwanted, table.columns)
    if columns is None:
        columns = [name for name in roles.covariates(table) if name not in unwanted]
    check_present(getattr(arguments, "categorical", ()), columns, "covariate")
    return as_source(table, roles, n_causes=n_causes, columns=columns)


def cluster_of(arguments: argparse.Namespace) -> Cluster | None:
    """The cluster of the option --ray; None without it."""
    if arguments.ray is None:
        for name in ("ray_workers", "ray_min_work"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} requires --ray ADDRESS.")
        return None
    from sumosurv.cluster import Cluster

    return Cluster(arguments.ray, arguments.ray_workers, arguments.ray_min_work, arguments.ray_send_package)


def for_model(frame: pd.DataFrame, model: Any) -> pd.DataFrame:
    """The columns that a model was fitted on, in their order."""
    names = getattr(model, "feature_names_in_", None)
    return frame if names is None else frame[check_present(names, frame.columns)]
