"""``sumosurv fit`` and ``sumosurv search``."""

from __future__ import annotations

import argparse
import inspect
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.cli.clusters import cluster_of
from sumosurv.cli.methods import method_of, settings_of
from sumosurv.cli.rows import (
    check_target,
    columns_of,
    covariates_and_outcome,
    how_many,
    is_streamed,
    outcome_of,
    read,
    roles_of,
    source_of,
)
from sumosurv.estimators import SurvivalEstimator
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.outcome import Outcome
from sumosurv.search import NetworkSearch
from sumosurv.tables import write_table
from sumosurv.training import Checkpoints, launched_by_torchrun, torchrun_workers

__all__ = ["run_fit", "run_search"]


def run_fit(arguments: argparse.Namespace) -> int:
    """Fit one method with given settings; as one of several processes if torchrun started this one."""
    model = method_of(arguments)(**settings_of(arguments))
    options = _options(arguments, model)
    cluster = cluster_of(arguments)
    with torchrun_workers(arguments.device or "auto") as workers, _silent(not workers.first):
        if cluster is None and is_streamed(arguments.data, arguments):
            return _fit_streamed(model, arguments, options, tell=workers.first)
        X, y, validation = _given(arguments, model)
        if cluster is None:
            interrupted = _fit(model, X, y, validation, **options)
        else:
            interrupted = _fit_by_cluster(cluster, model, (X, y, validation), options)
        if not workers.first:  # all have the same model
            return 0
    model.save(arguments.out)
    print(f"{len(y):,} rows, {how_many(X.shape[1], 'covariate')}, {_events_in_words(y)}; {_kind_in_words(model)}.")
    _tell_columns(model)
    if isinstance(model, NetworkEstimator):
        _tell_networks(model)
    return _end(arguments, interrupted)


def _fit_streamed(
    model: SurvivalEstimator, arguments: argparse.Namespace, options: dict[str, Any], *, tell: bool
) -> int:
    """Fit to a table that is read in pieces."""
    check_target(arguments.out, arguments.data, arguments.valid)
    source, roles = source_of(arguments.data, arguments), roles_of(arguments)
    validation: Any = None
    if arguments.valid is not None and is_streamed(arguments.valid, arguments):
        validation = source_of(arguments.valid, arguments), roles
    elif arguments.valid is not None:
        rows, causes = read(arguments.valid, arguments), roles.read(source).n_causes
        validation = columns_of(rows, roles.covariates(source)), outcome_of(rows, arguments, causes=causes)
    interrupted = _fit(model, source, roles, validation, **options)
    if not tell:  # all processes have the same model
        return 0
    model.save(arguments.out)
    covariates = how_many(len(roles.covariates(source)), "covariate")
    print(f"{source.n_rows:,} rows, read in pieces, {covariates}; {_kind_in_words(model)}.")
    _tell_columns(model)
    if isinstance(model, NetworkEstimator):
        _tell_networks(model)
    return _end(arguments, interrupted)


def run_search(arguments: argparse.Namespace) -> int:
    """Search over the settings of a network method, and keep what was chosen."""
    if launched_by_torchrun():
        raise ValueError(
            "torchrun does not share out a search; run it in one process, or in several with one --storage."
        )
    if arguments.trials_out is not None:
        check_target(arguments.trials_out, arguments.data, arguments.valid)
        if arguments.trials_out.resolve() == arguments.out.resolve():
            raise ValueError(f"--out and --trials-out both name {arguments.out}; give each a file of its own.")
    if arguments.storage is not None and "://" not in (study := str(arguments.storage)):
        for option, target in (("--out", arguments.out), ("--trials-out", arguments.trials_out)):
            if target is not None and target.resolve() == Path(study).resolve():
                raise ValueError(f"{option} and --storage both name {target}; give each a file of its own.")
    estimator = method_of(arguments)(**settings_of(arguments))
    if not isinstance(estimator, NetworkEstimator):
        raise ValueError(f"--method {arguments.method} has no networks to search over; fit it with sumosurv fit.")
    search = NetworkSearch(
        estimator,
        space=arguments.space,
        n_trials=arguments.trials,
        method=arguments.proposals,
        cv=arguments.cv,
        storage=arguments.storage,
        random_state=arguments.seed,
        verbose=not arguments.quiet,
        cluster=cluster_of(arguments),
    )
    X, y, validation = _given(arguments, search)
    interrupted = _fit(search, X, y, validation)
    search.save(arguments.out)
    print(f"{len(y):,} rows, {how_many(X.shape[1], 'covariate')}, {_events_in_words(y)}; {_trials_in_words(search)}.")
    chosen = ", ".join(f"{name}={value!r}" for name, value in search.best_params_.items())
    print(f"Best trial, {search.best_score_:.4f} nats on validation rows: {chosen}.")
    print(f"{how_many(len(search.mixture_), 'trial')} in the mixture, {search.mixture_score_:.4f} nats.")
    if arguments.trials_out is not None:
        write_table([_trials(search)], arguments.trials_out)
        print(f"Trials written to {arguments.trials_out}")
    return _end(arguments, interrupted)


def _given(arguments: argparse.Namespace, model: SurvivalEstimator) -> tuple[pd.DataFrame, Outcome, Any]:
    """Training rows and those of --valid, read once it is known that the model can be written and use them."""
    check_target(arguments.out, arguments.data, arguments.valid)
    if arguments.valid is not None and "validation_data" not in inspect.signature(model.fit).parameters:
        raise ValueError(f"{type(model).__name__} is not stopped early and has no use for --valid; leave it out.")
    if arguments.valid == arguments.data == Path("-"):
        raise ValueError("Standard input can be read once; give a file to --valid.")
    X, y = covariates_and_outcome(read(arguments.data, arguments), arguments)
    if arguments.valid is None:
        return X, y, None
    held_out = read(arguments.valid, arguments)
    return X, y, (columns_of(held_out, list(X.columns)), outcome_of(held_out, arguments, causes=y.n_causes))


def _fit_by_cluster(cluster: Any, model: Any, given: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Fit on a Ray cluster; whether Ctrl-C ended it early, which it does without a model."""
    if not options:
        raise ValueError("--ray needs --checkpoint FOLDER, which this machine and all workers see under the same path.")
    if launched_by_torchrun():
        raise ValueError("torchrun and --ray are two ways to do the same; use one of them.")
    from sumosurv.cluster import ray_fit

    ray_fit(cluster, model, *given, **options)
    return False


def _options(arguments: argparse.Namespace, model: SurvivalEstimator) -> dict[str, Any]:
    """What ``fit`` is told beside the rows: where checkpoints are kept."""
    networks = isinstance(model, NetworkEstimator)
    if launched_by_torchrun() and not networks:
        raise ValueError(f"{type(model).__name__} has no networks that several processes could train; run it in one.")
    if arguments.checkpoint is None:
        return {}
    if not networks:
        raise ValueError(f"{type(model).__name__} is not trained in epochs and has no use for --checkpoint.")
    if arguments.checkpoint.exists() and not arguments.checkpoint.is_dir():
        raise ValueError(f"--checkpoint names {arguments.checkpoint}, which is a file; name a folder.")
    return {"checkpoint": Checkpoints(arguments.checkpoint, arguments.checkpoint_seconds)}


@contextmanager
def _silent(yes: bool) -> Iterator[None]:
    """No warnings, of which the first process tells."""
    with warnings.catch_warnings():
        if yes:
            warnings.simplefilter("ignore")
        yield


def _fit(model: Any, X: Any, y: Any, validation: Any, **options: Any) -> bool:
    """Fit; whether Ctrl-C ended it early."""
    try:
        if validation is None:
            model.fit(X, y, **options)
        else:
            model.fit(X, y, validation_data=validation, **options)
    except KeyboardInterrupt:
        if not hasattr(model, "interrupted_"):
            raise  # before there was anything to keep
    return bool(getattr(model, "interrupted_", False))


def _end(arguments: argparse.Namespace, interrupted: bool) -> int:
    print(f"Model written to {arguments.out}")
    if not interrupted:
        return 0
    what = f"sumosurv {arguments.command}: training was interrupted"
    print(f"{what}; the model has its best weights until then.", file=sys.stderr)
    return 130


def _kind_in_words(model: SurvivalEstimator) -> str:
    return how_many(model.n_members_, "network") if isinstance(model, NetworkEstimator) else type(model).__name__


def _trials_in_words(search: NetworkSearch) -> str:
    return how_many(len(search.cv_results_["trial"]), "trial")


def _trials(search: NetworkSearch) -> pd.DataFrame:
    """All trials, the best first, their settings as columns."""
    results = dict(search.cv_results_)
    settings = pd.DataFrame(list(results.pop("params"))).map(lambda value: value if np.isscalar(value) else str(value))
    settings = settings.rename(columns=lambda name: f"{name}_setting" if name in results else name)
    return pd.DataFrame(results).join(settings).sort_values("rank_valid_score")


def _tell_columns(model: SurvivalEstimator) -> None:
    """How the columns were read."""
    columns = getattr(getattr(model, "preprocessor_", None), "columns", [])
    numeric = [c.name for c in columns if not hasattr(c, "levels")]
    coded = [f"{c.name} ({len(c.levels)} levels)" for c in columns if hasattr(c, "levels")]
    for kind, names in (("Numeric", numeric), ("Categorical", coded)):
        if names:
            print(f"{kind}: {', '.join(names)}.")


def _tell_networks(model: NetworkEstimator) -> None:
    """What was trained."""
    weights = model.members_.groupby("kind", sort=False)["weight"].sum()
    if len(weights) > 1:
        shares = ", ".join(f"{kind} {weight:.2f}" for kind, weight in weights.items())
        print(f"Kinds of networks and their weights, by the likelihood of held-out rows: {shares}.")
    if model.resolution_ is not None:
        print(f"Times are recorded to {model.resolution_:g}: an event counts by the probability of its cell of time.")
    if model.best_valid_.size and model.best_valid_.max() > float("-inf"):
        print(f"Mean log-likelihood on validation rows, average network: {model.best_valid_.mean():.4f} nats.")


def _events_in_words(y: Outcome) -> str:
    """The share of events, of each cause where they compete, and what else was observed."""
    if y.cause is None:
        text = f"{y.had_event.mean():.1%} events"
    else:
        text = ", ".join(f"{(y.cause == k).mean():.1%} events of cause {k}" for k in range(1, y.n_causes + 1))
    if y.upper is not None:
        text += f", {y.in_interval.mean():.1%} of rows in intervals"
    if y.entry is not None:
        text += f", {(y.entry > 0).mean():.1%} enter late"
    return text if y.group is None else f"{text}, {len(np.unique(y.group)):,} subjects"
