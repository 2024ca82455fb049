"""``sumosurv predict``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from sumosurv.advice import telling_unseen
from sumosurv.cli.clusters import cluster_of
from sumosurv.cli.rows import check_target, columns_of, for_model, how_many, read
from sumosurv.io import load
from sumosurv.tables import is_parquet, rows_of_parquet, write_table

__all__ = ["run_predict"]

_BLOCK = 20_000  # rows predicted at a time
_NEGLIGIBLE = 0.01  # a mean of which less than this lies past the last training time is not called extrapolated


def run_predict(arguments: argparse.Namespace) -> int:
    """Write one row of predictions for each row of a table."""
    if arguments.out is not None:
        check_target(arguments.out, arguments.model, arguments.data)
    model = load(arguments.model)
    beyond: Counter[str] = Counter()
    with telling_unseen():
        rows = write_table(_counted(_predictions(model, arguments), beyond), arguments.out)
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


def _predictions(model: Any, arguments: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """What was asked for, some rows at a time: here, or by the workers of a cluster."""
    cluster = cluster_of(arguments)
    if cluster is not None:
        from sumosurv.cluster import map_rows

        # a Parquet file is read by the workers, so that it need not fit in here
        rows = arguments.data if is_parquet(arguments.data) else read(arguments.data, arguments)
        if not cluster.too_small(rows=len(rows) if isinstance(rows, pd.DataFrame) else rows_of_parquet(rows)):
            yield from map_rows(cluster, arguments.model, rows, partial(_block, wanted=arguments))
            return
    frame = read(arguments.data, arguments)
    for_model(frame, model)  # what it lacks is told at once
    with tqdm(total=len(frame), desc="predicting", unit="row", disable=arguments.quiet or len(frame) <= _BLOCK) as bar:
        for start in range(0, len(frame), _BLOCK):
            part = frame.iloc[start : start + _BLOCK]
            yield _block(model, part, arguments)
            bar.update(len(part))


def _counted(parts: Iterator[pd.DataFrame], beyond: Counter[str]) -> Iterator[pd.DataFrame]:
    """The same; counts the rows in which a figure is extrapolated."""
    for made in parts:
        if "extrapolated" in made:
            named = [text.split() for text in made["extrapolated"]]
            found = {name: sum(name in own for own in named) for name in made.columns}
            beyond.update({name: count for name, count in found.items() if count})
        yield made


def _block(model: Any, frame: pd.DataFrame, wanted: argparse.Namespace) -> pd.DataFrame:
    """Predictions for some rows."""
    last = float(model.last_time_)
    nothing = not (wanted.times or wanted.quantiles or wanted.mean or wanted.restricted_mean or wanted.risk)
    mean, levels = wanted.mean or nothing, wanted.quantiles or ([0.25, 0.5, 0.75] if nothing else [])
    horizon = wanted.restricted_mean
    distribution = model.predict_distribution(for_model(frame, model))
    columns: dict[str, Any] = {}
    past: dict[str, Any] = {}  # the rows in which a figure rests on what lies past the last training time
    within = distribution.restricted_mean(last) if mean else None
    if horizon is not None:
        columns[f"restricted_mean_{horizon:g}"] = distribution.restricted_mean(horizon)
        past[f"restricted_mean_{horizon:g}"] = np.full(len(frame), horizon > last)
    elif within is not None:
        columns[f"restricted_mean_{last:g}"] = within
    if wanted.risk or nothing:
        columns["risk"] = distribution.cdf(model.risk_times_).mean(axis=1)  # as model.predict
    for t in wanted.times or ():
        columns[f"survival_{t:g}"] = distribution.survival(float(t))
        past[f"survival_{t:g}"] = np.full(len(frame), t > last)
        if model.n_causes_ > 1:
            incidence = distribution.cumulative_incidence(float(t))
            columns |= {f"incidence_{k + 1}_{t:g}": values for k, values in enumerate(incidence.T)}
    if within is not None:
        columns["mean"] = distribution.mean()
        past["mean"] = within < (1.0 - _NEGLIGIBLE) * columns["mean"]
    for q in levels:
        name = "median" if q == 0.5 else f"quantile_{q:g}"
        columns[name] = distribution.quantile(float(q))
        past[name] = columns[name] > last
    if mean or levels or any(rows.any() for rows in past.values()):
        columns["extrapolated"] = [" ".join(name for name, rows in past.items() if rows[i]) for i in range(len(frame))]
    made = pd.DataFrame(columns, index=frame.index)
    return pd.concat([columns_of(frame, wanted.id, "--id"), made], axis=1)
