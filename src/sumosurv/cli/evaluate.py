"""``sumosurv evaluate``."""

from __future__ import annotations

import argparse
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.cli.clusters import cluster_of
from sumosurv.cli.rows import check_target, for_model, is_streamed, outcome_of, read, roles_of, source_of
from sumosurv.distributions import Tabulated
from sumosurv.io import load
from sumosurv.outcome import Outcome
from sumosurv.scores import SCORES, evaluate, log_likelihood, mean_and_error, usual_scores
from sumosurv.tables import write_table

__all__ = ["other_model", "run_evaluate"]

_OF_SINGLE_TIMES = ("brier", "binomial_log_likelihood", "cumulative_dynamic_auc")
_ROW = "sumosurv row"  # a column with the number of each row
_BLOCK = 20_000  # rows from which on a bar is shown
_MARGINAL = "kaplan-meier"  # of --against: the curve of the training rows, which every model file holds


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Print the scores of model files on a table."""
    if arguments.out is not None:
        check_target(arguments.out, arguments.model, arguments.data, *arguments.against)
    cluster = cluster_of(arguments)
    if cluster is None and is_streamed(arguments.data, arguments):
        return _evaluate_streamed(arguments)
    frame = read(arguments.data, arguments)
    named = {arguments.model.stem: load(arguments.model)}
    model = next(iter(named.values()))
    y = outcome_of(frame, arguments, causes=model.n_causes_)
    if cluster is not None and not cluster.too_small(rows=len(y)):
        return _by_cluster(cluster, arguments, for_model(frame, model), y)
    curves = {name: fitted.predict_distribution(for_model(frame, fitted)) for name, fitted in named.items()}
    for other in arguments.against:
        name, curve = other_model(other, model, frame, len(y))
        if name in curves:
            raise ValueError(f"--against names {name!r}, which is compared already; rename one of the files.")
        curves[name] = curve
    cells = model.cells_ if y.upper is None else None
    table = evaluate(
        curves if len(curves) > 1 else next(iter(curves.values())),
        for_model(frame, model),
        y,
        scores=_score_options(arguments, y, model.n_causes_),
        censoring=arguments.censoring,
        n_bootstrap=arguments.bootstrap,
        resolution=cells,
        verbose=not arguments.quiet and len(y) > _BLOCK,
    )
    print(table)
    asked = set(table["score"])
    notes = [f"{len(y):,} rows; times are in the unit of the training data, log-likelihoods in nats."]
    for better, rows in (("Higher", table["greater_is_better"]), ("Lower", ~table["greater_is_better"])):
        notes += [f"{better} is better: {', '.join(table['score'][rows].unique())}."] if rows.any() else []
    if cells is not None and {"log_likelihood", "d_calibration"} & asked:
        notes.append(
            f"Times are recorded to {cells.width:g}: an event counts by the probability of its cell of time, divided "
            "by the width of the cell, and not by a density."
        )
    if "log_likelihood" in asked:
        notes += [_gain_in_words(model, curves, y)] if _MARGINAL not in curves else []
    print("", *(textwrap.fill(note, 80) for note in notes), sep="\n")
    if arguments.out is not None:
        write_table([table], arguments.out)
    return 0


def _evaluate_streamed(arguments: argparse.Namespace) -> int:
    """Print the scores of model files on a table that is read in pieces."""
    model, source = load(arguments.model), source_of(arguments.data, arguments)
    roles = roles_of(arguments).read(source, model.n_causes_)
    models = {arguments.model.stem: model}
    for other in arguments.against:
        name = other if other == _MARGINAL else Path(other).stem
        if name in models:
            raise ValueError(f"--against names {name!r}, which is compared already; rename one of the files.")
        models[name] = _Marginal(model) if other == _MARGINAL else load(Path(other))
    first = roles.outcome(next(source.frames(roles.names, rows=1)))
    table = evaluate(
        models if len(models) > 1 else model,
        source,
        roles,
        scores=_score_options(arguments, first, model.n_causes_),
        censoring=arguments.censoring,
        n_bootstrap=arguments.bootstrap,
        verbose=not arguments.quiet,
    )
    print(table)
    notes = [f"{source.n_rows:,} rows; times are in the unit of the training data, log-likelihoods in nats."]
    if "log_likelihood" in set(table["score"]) and _MARGINAL not in models:
        both = {_MARGINAL: _Marginal(model)} | models
        gains = evaluate(both, source, roles, scores={"log_likelihood": {}}, verbose=not arguments.quiet)
        gains = gains[gains["against"] == _MARGINAL].set_index("model")
        notes.append(_in_words(model, first, {name: tuple(gains.loc[name, ["value", "std_error"]]) for name in models}))
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
        """The same curve for each row."""
        return self._curve.repeat(len(X))


def _by_cluster(cluster: Any, arguments: argparse.Namespace, X: pd.DataFrame, y: Outcome) -> int:
    """The scores that are made of single rows, whose parts the workers of a cluster compute."""
    from sumosurv.cluster import map_rows

    names, times = arguments.scores or ["log_likelihood"], sorted(set(arguments.times or ()))
    known = ["log_likelihood", *(name for name in _OF_SINGLE_TIMES if times)]
    other = [name for name in names if name not in known]
    if other or arguments.against or arguments.span:
        raise ValueError(
            f"On a cluster the scores are log_likelihood and, with --times, {', '.join(_OF_SINGLE_TIMES)}, of one "
            f"model; leave out {other[0] if other else '--against and --range'}, or --ray."
        )
    rows = X.assign(**{_ROW: np.arange(len(X))})
    work = partial(_of_block, y=y, times=times)
    made = pd.concat(list(map_rows(cluster, arguments.model, rows, work)), ignore_index=True)
    found = []
    if "log_likelihood" in names:
        value, error = mean_and_error(made["log_likelihood"].to_numpy(), y)
        ends = {"low": value - 1.96 * error, "high": value + 1.96 * error}
        found.append(
            pd.DataFrame([{"score": "log_likelihood", "times": "", "value": value, **ends, "std_error": error}])
        )
    at = {name: {"times": times} for name in names if name != "log_likelihood"}
    if at:
        curves = Tabulated(times, made[[f"survival_{t:g}" for t in times]].to_numpy())
        table = evaluate(curves, None, y, scores=at, censoring="marginal", n_bootstrap=arguments.bootstrap)
        found.append(pd.DataFrame(table)[["score", "times", "value", "low", "high", "std_error"]])
    scores = pd.concat(found, ignore_index=True)
    print(scores.to_string(index=False))
    print(f"\n{len(y):,} rows; times are in the unit of the training data, log-likelihoods in nats.")
    if arguments.out is not None:
        write_table([scores], arguments.out)
    return 0


def _of_block(model: Any, rows: pd.DataFrame, *, y: Outcome, times: list[float]) -> pd.DataFrame:
    """The log-likelihood of each row, and its survival probability at some times."""
    curves = model.predict_distribution(rows.drop(columns=_ROW))
    own = y[rows[_ROW].to_numpy()]
    cells = None if own.upper is not None else model.cells_
    made = {"log_likelihood": log_likelihood(curves, own, resolution=cells)}
    return pd.DataFrame(made | {f"survival_{t:g}": curves.survival(float(t)) for t in times})


def other_model(name: str, model: Any, frame: pd.DataFrame, n: int) -> tuple[str, Any]:
    """Curves to compare with: those of another model file, or the one of the training rows."""
    if name == _MARGINAL:
        return name, model.training_curve_.repeat(n)
    other = load(Path(name))
    if other.n_causes_ != model.n_causes_:
        raise ValueError(f"{name} was fitted to {other.n_causes_} causes and the model to {model.n_causes_}.")
    return Path(name).stem, other.predict_distribution(for_model(frame, other))


def _gain_in_words(model: Any, curves: dict[str, Any], y: Outcome) -> str:
    """By how much each model's mean log-likelihood exceeds that of the training rows' own curve."""
    return _in_words(model, y, {name: _gain(model, distribution, y) for name, distribution in curves.items()})


def _in_words(model: Any, y: Outcome, gains: dict[str, tuple[float, float]]) -> str:
    """The gain of each model and its standard error, for rows whose outcome has the fields of ``y``."""
    plain = model.n_causes_ == 1 and y.entry is None and y.upper is None
    kind = "Kaplan-Meier curve" if plain else "Aalen-Johansen curves" if model.n_causes_ > 1 else "marginal curve"
    each = [
        f"{f'{name} ' if len(gains) > 1 else ''}{gain:.4f} nats (standard error {error:.4f})"
        for name, (gain, error) in gains.items()
    ]
    return f"Gain in log-likelihood over the {kind} of the training rows: {'; '.join(each)}."


def _gain(model: Any, distribution: Any, y: Outcome) -> tuple[float, float]:
    """By how much the mean log-likelihood exceeds that of the training rows' own curve, and its standard error."""
    curves = (distribution, model.training_curve_.repeat(len(y)))
    own, marginal = (log_likelihood(d, y, resolution=None if y.upper is not None else model.cells_) for d in curves)
    return mean_and_error(own - marginal, y)


def _score_options(arguments: argparse.Namespace, y: Outcome, causes: int) -> dict[str, dict[str, Any]]:
    """Options of each score asked for: the times given, to those that take times of that kind."""
    usual, _ = usual_scores(y, arguments.times, causes)
    options: dict[str, dict[str, Any]] = {name: {} for name in arguments.scores or usual}
    if arguments.span is not None and len(arguments.span) != 2:
        raise ValueError(f"--range is given as LOW,HIGH; got {len(arguments.span)} numbers.")
    for flag, kind, value in (
        ("--times", "single", arguments.times),
        ("--range", "range", None if arguments.span is None else tuple(arguments.span)),
    ):
        possible = [name for name, score in SCORES.items() if score.times == kind]
        if value is not None and not any(name in options for name in possible):
            raise ValueError(f"{flag} is for {', '.join(possible)}; ask for them with --scores.")
        for name in options.keys() & set(possible) if value is not None else ():
            options[name][SCORES[name].times_option] = value
    return options
