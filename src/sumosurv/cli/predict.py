"""``sumosurv predict``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from sumosurv.advice import telling_unseen
from sumosurv.cli.rows import check_target, columns_of, for_model, how_many, read
from sumosurv.io import load
from sumosurv.tables import write_table

__all__ = ["run_predict"]

_BLOCK = 20_000  # rows predicted at a time
_NEGLIGIBLE = 0.01  # a mean of which less than this lies past the last training time is not called extrapolated


def run_predict(arguments: argparse.Namespace) -> int:
    """Write one row of predictions for each row of a table."""
    if arguments.out is not None:
        check_target(arguments.out, arguments.model, arguments.data)
    model = load(arguments.model)
    frame = read(arguments.data, arguments)
    X, identifiers = for_model(frame, model), columns_of(frame, arguments.id, "--id")
    beyond: Counter[str] = Counter()
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


def _predictions(
    model: Any, X: pd.DataFrame, identifiers: pd.DataFrame, arguments: argparse.Namespace, beyond: Counter[str]
) -> Iterator[pd.DataFrame]:
    """What was asked for, some rows at a time; counts the rows in which a figure is extrapolated."""
    wanted, last = arguments, float(model.last_time_)
    nothing = not (wanted.times or wanted.quantiles or wanted.mean or wanted.restricted_mean or wanted.risk)
    mean, levels = wanted.mean or nothing, wanted.quantiles or ([0.25, 0.5, 0.75] if nothing else [])
    horizon = wanted.restricted_mean
    with tqdm(total=len(X), desc="predicting", unit="row", disable=wanted.quiet or len(X) <= _BLOCK) as bar:
        for start in range(0, len(X), _BLOCK):
            part = X.iloc[start : start + _BLOCK]
            distribution = model.predict_distribution(part)
            columns: dict[str, Any] = {}
            past: dict[str, Any] = {}  # the rows in which a figure rests on what lies past the last training time
            within = distribution.restricted_mean(last) if mean else None
            if horizon is not None:
                columns[f"restricted_mean_{horizon:g}"] = distribution.restricted_mean(horizon)
                past[f"restricted_mean_{horizon:g}"] = np.full(len(part), horizon > last)
            elif within is not None:
                columns[f"restricted_mean_{last:g}"] = within
            if wanted.risk or nothing:
                columns["risk"] = distribution.cdf(model.risk_times_).mean(axis=1)  # as model.predict
            for t in wanted.times or ():
                columns[f"survival_{t:g}"] = distribution.survival(float(t))
                past[f"survival_{t:g}"] = np.full(len(part), t > last)
                if model.n_causes_ > 1:
                    incidence = distribution.cumulative_incidence(float(t))
                    columns |= {f"incidence_{k + 1}_{t:g}": values for k, values in enumerate(incidence.T)}
            if within is not None:
                columns["mean"] = distribution.mean()
                past["mean"] = within < (1.0 - _NEGLIGIBLE) * columns["mean"]
            for q, values in zip(levels, distribution.quantile(levels).T if levels else ()):
                name = "median" if q == 0.5 else f"quantile_{q:g}"
                columns[name], past[name] = values, values > last
            if mean or levels or any(rows.any() for rows in past.values()):
                columns["extrapolated"] = _named(past, len(part))
            beyond.update({name: int(rows.sum()) for name, rows in past.items() if rows.any()})
            made = pd.DataFrame(columns, index=part.index)
            yield pd.concat([identifiers.iloc[start : start + _BLOCK], made], axis=1)
            bar.update(len(part))


def _named(past: dict[str, Any], n: int) -> np.ndarray:
    """For each of n rows the names of the columns that are marked in it, separated by spaces."""
    marks = np.column_stack([np.zeros(n, dtype=bool), *past.values()])
    kinds, which = np.unique(marks @ (1 << np.arange(marks.shape[1], dtype=object)), return_inverse=True)
    words = [" ".join(name for place, name in enumerate(past, 1) if kind >> place & 1) for kind in kinds]
    return np.array(words, dtype=object)[which]
