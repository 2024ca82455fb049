"""``sumosurv predict``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from sumosurv.cli.rows import check_target, cluster_of, columns_of, for_model, how_many, is_streamed, read, source_of
from sumosurv.files import is_parquet
from sumosurv.io import load
from sumosurv.preprocessing import telling_unseen
from sumosurv.streaming import PredictionTable, predict_to_parquet
from sumosurv.tables import rows_of_parquet, write_table

__all__ = ["run_predict"]

_BLOCK = 20_000  # rows predicted at a time


def run_predict(arguments: argparse.Namespace) -> int:
    """Write one row of predictions for each row of a table."""
    if arguments.out is not None:
        check_target(arguments.out, arguments.model, arguments.data)
    model = load(arguments.model)
    beyond: Counter[str] = Counter()
    if arguments.ray is None and is_streamed(arguments.data, arguments):
        rows = _predict_streamed(model, arguments, beyond)
    else:
        with telling_unseen():
            rows = write_table(_predictions(model, arguments, beyond), arguments.out)
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
    if out is None or not is_parquet(out):
        raise ValueError("Predictions of a table that is read in pieces go to a Parquet file: --out FILE.parquet.")
    source = source_of(arguments.data, arguments)
    return predict_to_parquet(
        model,
        source,
        out,
        _table(arguments),
        identifiers=arguments.id,
        verbose=not arguments.quiet and source.n_rows > _BLOCK,
        beyond=beyond,
    )


def _table(arguments: argparse.Namespace) -> PredictionTable:
    """The predictions that were requested."""
    return PredictionTable(
        arguments.times or (),
        arguments.quantiles or (),
        arguments.mean,
        arguments.restricted_mean,
        arguments.risk,
        arguments.precision,
    )


def _predictions(model: Any, arguments: argparse.Namespace, beyond: Counter[str]) -> Iterator[pd.DataFrame]:
    """The predictions, some rows at a time, here or by the workers of a cluster; counts extrapolated ones."""
    cluster, table = cluster_of(arguments), _table(arguments)
    if cluster is not None:
        from sumosurv.cluster import map_rows

        # a Parquet file is read by the workers, so that it need not fit in here
        rows = arguments.data if is_parquet(arguments.data) else read(arguments.data, arguments)
        if not cluster.too_small(rows=len(rows) if isinstance(rows, pd.DataFrame) else rows_of_parquet(rows)):
            for made in map_rows(cluster, arguments.model, rows, partial(_block, table=table, id=arguments.id)):
                beyond.update(name for text in made.get("extrapolated", ()) for name in text.split())
                yield made
            return
    frame = read(arguments.data, arguments)
    for_model(frame, model)  # missing columns are reported before any work
    with tqdm(total=len(frame), desc="predicting", unit="row", disable=arguments.quiet or len(frame) <= _BLOCK) as bar:
        for start in range(0, len(frame), _BLOCK):
            part = frame.iloc[start : start + _BLOCK]
            yield _block(model, part, table, arguments.id, beyond)
            bar.update(len(part))


def _block(
    model: Any, frame: pd.DataFrame, table: PredictionTable, id: Any, beyond: Counter[str] | None = None
) -> pd.DataFrame:
    """Predictions for some rows, beside their identifiers."""
    identifiers = columns_of(frame, id, "--id")
    return table.of_rows(model, for_model(frame, model), identifiers, Counter() if beyond is None else beyond)
