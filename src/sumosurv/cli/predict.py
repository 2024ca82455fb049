"""``sumosurv predict`` and ``sumosurv evaluate``."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm.auto import tqdm

from sumosurv.cli.options import check_target, cluster_of, read_rows, read_source
from sumosurv.estimators import load
from sumosurv.files import is_parquet
from sumosurv.outcome import Outcome
from sumosurv.outcome.checks import how_many
from sumosurv.preprocessing import LevelNotes
from sumosurv.scores import SCORES
from sumosurv.scores.blocks import BlockRows, MemoryRows, common_causes, rows_of
from sumosurv.scores.evaluation import evaluate_rows
from sumosurv.scores.score import default_scores
from sumosurv.sources import Source, as_source, write_table
from sumosurv.streaming.predicting import (
    PredictionTable,
    check_prediction_columns,
    count_extrapolated,
    predict_to_parquet,
)

if TYPE_CHECKING:
    from sumosurv.cluster import Cluster

_BLOCK = 20_000  # rows predicted at a time; a progress bar is shown for more
_MARGINAL = "kaplan-meier"  # value of --against: the curve of the training rows, which every model file holds


def run_predict(arguments: argparse.Namespace) -> int:
    """Write one row of predictions for each row of a table."""
    out, identifiers = arguments.out, arguments.id
    given = {field.name: getattr(arguments, field.name) for field in fields(PredictionTable)}
    table = PredictionTable(**{name: value for name, value in given.items() if value is not None})
    if out is not None:
        check_target(out, arguments.model, arguments.data)
    model, cluster = load(arguments.model), cluster_of(arguments)
    # rows that a cluster predicts need not fit into memory
    in_blocks = True if cluster is not None and is_parquet(arguments.data) else None
    source = as_source(read_rows(arguments.data, arguments, in_blocks=in_blocks))
    if cluster is not None and cluster.too_small(rows=source.n_rows):
        cluster = None
    beyond: Counter[str] = Counter()
    verbose = not arguments.quiet and source.n_rows > _BLOCK

    def write(source: Source) -> int:
        with tqdm(total=source.n_rows, desc="predicting", unit="row", disable=not verbose) as bar:
            return write_table(_predictions(model, source, table, identifiers, cluster, beyond, bar), out)

    def write_parts(source: Source) -> int:
        return predict_to_parquet(model, source, out, table, identifiers=identifiers, verbose=verbose, beyond=beyond)

    resumes = cluster is None and out is not None and is_parquet(out)
    rows = source.dispatch(write, write_parts if resumes else write)
    if out is not None:
        print(f"{rows:,} rows written to {out}")
    if beyond:
        named = ", ".join(f"{name} in {how_many(count, 'row')}" for name, count in beyond.items())
        print(
            f"sumosurv predict: predictions beyond {model.last_time_:g}, the end of the training data, are "
            f"extrapolated: {named} of {rows:,}; the column 'extrapolated' names them for each row.",
            file=sys.stderr,
        )
    return 0


def _predictions(
    model: Any,
    source: Source,
    table: PredictionTable,
    identifiers: Sequence[str],
    cluster: Cluster | None,
    beyond: Counter[str],
    bar: Any,
) -> Iterator[pd.DataFrame]:
    """Predictions in blocks of rows, made here or on a cluster; counts the extrapolated ones."""
    names, notes = check_prediction_columns(model, source, identifiers), LevelNotes()
    blocks = (block.X for block in source.blocks(list(dict.fromkeys([*names, *identifiers])), rows=_BLOCK))
    work = partial(table.of_rows, model, names, identifiers)
    if cluster is None:
        parts: Iterator[pd.DataFrame] = map(partial(work, notes=notes), blocks)
    else:
        from sumosurv.cluster import map_blocks

        parts = map_blocks(cluster, work, blocks)
    for made in parts:
        beyond += count_extrapolated(made.get("extrapolated", ()))
        yield made
        bar.update(len(made))
    notes.warn()


# ---------------------------------------------------------------------- evaluate


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Print the scores of model files on a table."""
    if arguments.out is not None:
        check_target(arguments.out, arguments.model, arguments.data, *arguments.against)
    models, cluster = load_models(arguments), cluster_of(arguments)
    model = next(iter(models.values()))
    names = dict.fromkeys(name for own in models.values() for name in own.feature_names_in_)
    source = read_source(arguments.data, arguments, n_causes=model.n_causes_, columns=list(names))
    outcome = next(source.blocks([], rows=1)).outcome  # which has the fields of all rows
    assert outcome is not None
    if cluster is not None and cluster.too_small(rows=source.n_rows):
        cluster = None
    verbose = not arguments.quiet and source.n_rows > _BLOCK
    table = evaluate_rows(
        _rows(models, source, cluster),
        verbose=verbose,
        scores=_score_options(arguments, outcome),
        censoring=arguments.censoring,
        n_bootstrap=arguments.bootstrap,
    )
    print(table)
    notes = [f"{source.n_rows:,} rows; times are in the unit of the training data, log-likelihoods in nats."]
    for better, names in table["score"].groupby(table["score"].map(lambda name: SCORES[name].direction), sort=False):
        notes.append(f"{better.capitalize()} is better: {', '.join(names.unique())}.")
    if table["times"].str.startswith("cells ").any():
        notes.append(
            f"Times are recorded to {model.cells_.width:g}: an event counts by the probability of its cell of time, "
            "divided by the width of the cell, and not by a density."
        )
    proper = [name for name in table["score"].unique() if SCORES[name].proper]
    if proper and _MARGINAL not in models:
        compared = _rows({_MARGINAL: _Marginal(model)} | models, source, cluster)
        gains = evaluate_rows(compared, scores=proper[0], verbose=verbose)
        notes.append(_gain_in_words(gains[gains["against"] == _MARGINAL], model, outcome))
    print("", *(textwrap.fill(note, 80) for note in notes), sep="\n")
    if arguments.out is not None:
        write_table([table], arguments.out)
    return 0


class _Marginal:
    """The curve of a model's training rows, as a model that predicts it for all rows."""

    def __init__(self, model: Any) -> None:
        self._curve, self.n_causes_, self.cells_ = model.training_curve_, model.n_causes_, model.cells_
        self.feature_names_in_ = model.feature_names_in_

    def predict_distribution(self, X: pd.DataFrame) -> Any:
        """Predict the same curve for each row."""
        return self._curve.repeat(len(X))


def load_models(arguments: argparse.Namespace) -> dict[str, Any]:
    """Load the model and the models that it is compared with, by the names of their files."""
    model = load(arguments.model)
    models = {arguments.model.stem: model}
    for other in arguments.against:
        name = Path(other).stem
        if name in models:
            raise ValueError(f"Two models are named {name!r} (--against); rename one of the files.")
        models[name] = _Marginal(model) if other == _MARGINAL else load(Path(other))
    common_causes(models)
    return models


def _rows(models: dict[str, Any], source: Source, cluster: Cluster | None) -> MemoryRows | BlockRows:
    if cluster is None:
        return rows_of(models, source)
    from sumosurv.cluster import map_blocks

    return BlockRows(models, source, partial(map_blocks, cluster))


def _gain_in_words(gains: pd.DataFrame, model: Any, outcome: Outcome) -> str:
    """Describe by how much the mean log-likelihood of each model exceeds that of the curve of the training rows."""
    plain = model.n_causes_ == 1 and outcome.entry is None and outcome.upper is None
    curve = "Kaplan-Meier curve" if plain else "Aalen-Johansen curves" if model.n_causes_ > 1 else "marginal curve"
    each = [
        f"{f'{row.model} ' if len(gains) > 1 else ''}{row.value:.4f} nats (standard error {row.std_error:.4f})"
        for row in gains.itertuples()
    ]
    return f"Gain in log-likelihood over the {curve} of the training rows: {'; '.join(each)}."


def _score_options(arguments: argparse.Namespace, y: Outcome) -> dict[str, dict[str, Any]]:
    """The options of each requested score: --times and --range apply to scores that take them."""
    usual, _ = default_scores(y, arguments.times)
    options: dict[str, dict[str, Any]] = {name: {} for name in arguments.scores or usual}
    if arguments.span is not None and len(arguments.span) != 2:
        raise ValueError(f"--range must be LOW,HIGH; got {len(arguments.span)} numbers.")
    for flag, kind, value in (
        ("--times", "single", arguments.times),
        ("--range", "range", None if arguments.span is None else tuple(arguments.span)),
    ):
        possible = [name for name, score in SCORES.items() if score.times == kind]
        if value is not None and not any(name in options for name in possible):
            raise ValueError(f"{flag} is for {', '.join(possible)}; select one of them with --scores.")
        for name in options.keys() & set(possible) if value is not None else ():
            options[name][SCORES[name].times_option] = value
    return options
