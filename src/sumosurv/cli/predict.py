"""``sumosurv predict``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from sumosurv.advice import telling_unseen
from sumosurv.cli.rows import check_target, columns_of, for_model, how_many, is_streamed, read, source_of
from sumosurv.io import load
from sumosurv.predicted import Figures
from sumosurv.streaming import predict_to_parquet
from sumosurv.tables import write_table

__all__ = ["run_predict"]

_BLOCK = 20_000  # rows predicted at a time


def run_predict(arguments: argparse.Namespace) -> int:
    """Write one row of predictions for each row of a table."""
    if arguments.out is not None:
        check_target(arguments.out, arguments.model, arguments.data)
    model = load(arguments.model)
    beyond: Counter[str] = Counter()
    if is_streamed(arguments.data, arguments):
        rows = _predict_streamed(model, arguments, beyond)
    else:
        frame = read(arguments.data, arguments)
        X, identifiers = for_model(frame, model), columns_of(frame, arguments.id, "--id")
        with telling_unseen():
            rows = write_table(_predictions(model, X, identifiers, arguments, beyond), arguments.out)
    if arguments.out is not None:
        print(f"{rows:,} rows written to {arguments.out}")
    if beyond:
        named = ", ".join(f"{name} in {how_many(count, 'row')}" for name, count in beyond.items())
        print(
            f"sumosurv predict: the training data end at {model.last_time_:g}, and what lies past it is extrapolated: "
            f"{named} of {rows:,}; the column 'extrapolated' names them row by row.",
            file=sys.stderr,
        )
    return 0


def _predict_streamed(model: Any, arguments: argparse.Namespace, beyond: Counter[str]) -> int:
    """Predictions of a table that is read in pieces."""
    out = arguments.out
    if out is None or out.suffix.lower() not in (".parquet", ".pq"):
        raise ValueError("Predictions of a table that is read in pieces go to a Parquet file: --out FILE.parquet.")
    source = source_of(arguments.data, arguments)
    return predict_to_parquet(
        model,
        source,
        out,
        _figures(arguments),
        identifiers=arguments.id,
        verbose=not arguments.quiet and source.n_rows > _BLOCK,
        beyond=beyond,
    )


def _figures(arguments: argparse.Namespace) -> Figures:
    """What was asked for."""
    return Figures(
        arguments.times or (), arguments.quantiles or (), arguments.mean, arguments.restricted_mean, arguments.risk
    )


def _predictions(
    model: Any, X: pd.DataFrame, identifiers: pd.DataFrame, arguments: argparse.Namespace, beyond: Counter[str]
) -> Iterator[pd.DataFrame]:
    """What was asked for, some rows at a time; counts the rows in which a figure is extrapolated."""
    figures = _figures(arguments)
    with tqdm(total=len(X), desc="predicting", unit="row", disable=arguments.quiet or len(X) <= _BLOCK) as bar:
        for start in range(0, len(X), _BLOCK):
            part = X.iloc[start : start + _BLOCK]
            made = figures.table(model, part, beyond)
            yield pd.concat([identifiers.iloc[start : start + _BLOCK], made], axis=1)
            bar.update(len(part))
