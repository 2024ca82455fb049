"""``sumosurv fit`` and ``sumosurv search``."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.cli.options import check_target, cluster_of, read_source
from sumosurv.estimators import METHODS, SurvivalEstimator
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.outcome.checks import how_many
from sumosurv.search import NetworkSearch
from sumosurv.sources import Source, hashed, write_table
from sumosurv.streaming.fitting import MOST_VALIDATION
from sumosurv.training import Checkpoints, torchrun_workers
from sumosurv.training.processes import launched_by_torchrun

_SHOWN = 50  # covariates that are named
_SETTINGS = ("n_members", "max_epochs", "refit", "device")  # settings of estimators that are also options


def run_fit(arguments: argparse.Namespace) -> int:
    """Fit one estimator; as one of several processes if torchrun started this one."""
    model = _estimator(arguments)
    options = _checkpoint_options(arguments, model)
    cluster = cluster_of(arguments)
    with torchrun_workers(arguments.device or "auto") as workers, warnings.catch_warnings():
        if not workers.first:  # the first of several processes shows them
            warnings.simplefilter("ignore")
        if workers.size > 1:
            options["workers"] = workers
        source, validation = _rows(arguments, model, whole=cluster is not None)
        described = _describe_rows(source, arguments)
        if cluster is None:
            interrupted = _fit(model, source, None, validation, **options)
        else:
            rows = source.whole(type(model).__name__)
            interrupted = _fit_on_cluster(cluster, model, (*rows, validation), options)
        if not workers.first:  # all processes have the same model
            return 0
    model.save(arguments.out)
    networks = isinstance(model, NetworkEstimator)
    print(f"{described}; {how_many(model.n_members_, 'network') if networks else type(model).__name__}.")
    _print_columns(model)
    if networks:
        _print_networks(model)
    return _end(arguments, interrupted)


def run_search(arguments: argparse.Namespace) -> int:
    """Search over the settings of a network estimator, and write the mixture of the best trials."""
    if launched_by_torchrun():
        raise ValueError(
            "A search cannot run under torchrun; run it in one process, or in several processes with the "
            "same --storage."
        )
    _check_search_files(arguments)
    estimator = _estimator(arguments)
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
    source, validation = _rows(arguments, search, whole=True)
    interrupted = _fit(search, *source.whole("sumosurv search"), validation)
    search.save(arguments.out)
    trials = how_many(len(search.cv_results_["trial"]), "trial")
    print(f"{_describe_rows(source, arguments)}; {trials}.")
    chosen = ", ".join(f"{name}={value!r}" for name, value in search.best_params_.items())
    print(f"Best trial, {search.best_score_:.4f} nats on validation rows: {chosen}.")
    print(f"{how_many(len(search.mixture_), 'trial')} in the mixture, {search.mixture_score_:.4f} nats.")
    if arguments.trials_out is not None:
        write_table([_trials(search)], arguments.trials_out)
        print(f"Trials written to {arguments.trials_out}")
    return _end(arguments, interrupted)


def _check_search_files(arguments: argparse.Namespace) -> None:
    """Raise ValueError if --out, --trials-out and --storage do not name different files."""
    if arguments.trials_out is not None:
        check_target(arguments.trials_out, arguments.data, arguments.valid)
    storage = None if arguments.storage is None or "://" in arguments.storage else Path(arguments.storage)
    named: dict[Path, str] = {}
    for option, path in (("--out", arguments.out), ("--trials-out", arguments.trials_out), ("--storage", storage)):
        if path is not None and (other := named.setdefault(path.resolve(), option)) != option:
            raise ValueError(f"{other} and {option} both name {path}; name two different files.")


# ---------------------------------------------------------------------- the estimator


def _estimator(arguments: argparse.Namespace) -> SurvivalEstimator:
    """The unfitted estimator of --method, with the settings of --set and of other options."""
    method = _method(arguments.method)
    known = method().get_params(deep=False)
    settings: dict[str, Any] = {}
    for name in _SETTINGS:
        value = getattr(arguments, name, None)
        if value is None or value is False:
            continue
        if name not in known:
            raise ValueError(f"{method.__name__} has no setting {name}; leave out --{name.replace('_', '-')}.")
        settings[name] = value
    for name, value in (("random_state", arguments.seed), ("verbose", not arguments.quiet)):
        if name in known:
            settings[name] = value
    for name, text in arguments.set:
        if name not in known:
            raise ValueError(f"{method.__name__} has no setting {name!r}; it has {', '.join(sorted(known))}.")
        settings[name] = _value(text)
    return method(**settings)


def _method(name: str) -> type[SurvivalEstimator]:
    """An estimator class by its name, in upper or lower case."""
    composed = {n for n, method in METHODS.items() if {"estimator", "estimators"} & set(method._get_param_names())}
    known = {n.lower(): n for n in METHODS if n not in composed}
    if name.lower() not in known:
        what = f"{name} combines other estimators in Python" if name in composed else f"There is no method {name!r}"
        raise ValueError(f"{what}; --method is one of {', '.join(sorted(known.values()))}.")
    return METHODS[known[name.lower()]]


def _value(text: str) -> Any:
    """A Python literal (number, list, None, True, False); otherwise the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


# ---------------------------------------------------------------------- fitting


def _rows(arguments: argparse.Namespace, model: SurvivalEstimator, *, whole: bool) -> tuple[Source, Any]:
    """Training and validation rows, read after checking that the output can be written and --valid can be used."""
    check_target(arguments.out, arguments.data, arguments.valid)
    if arguments.valid is not None and "validation_data" not in inspect.signature(model.fit).parameters:
        raise ValueError(f"{type(model).__name__} does not stop early, so --valid has no effect; leave it out.")
    if arguments.valid == arguments.data == Path("-"):
        raise ValueError("Standard input can be read only once; pass a file to --valid.")
    source = read_source(arguments.data, arguments, whole=whole)
    if arguments.valid is None:
        return source, None
    held_out = read_source(arguments.valid, arguments, n_causes=source.n_causes, columns=source.covariates, whole=whole)
    return source, held_out.sample(MOST_VALIDATION)


def _fit(model: Any, X: Any, y: Any, validation: Any, **options: Any) -> bool:
    """Fit; whether Ctrl-C ended the fit early."""
    try:
        if validation is None:
            model.fit(X, y, **options)
        else:
            model.fit(X, y, validation_data=validation, **options)
    except KeyboardInterrupt:
        if not hasattr(model, "interrupted_"):
            raise  # there is no model yet
    return bool(getattr(model, "interrupted_", False))


def _fit_on_cluster(cluster: Any, model: Any, rows: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Fit on a Ray cluster, where Ctrl-C leaves no model."""
    if not options:
        raise ValueError("--ray requires --checkpoint FOLDER, a path that exists on this machine and on all workers.")
    if launched_by_torchrun():
        raise ValueError("torchrun and --ray cannot be combined; use one of them.")
    from sumosurv.cluster import ray_fit

    ray_fit(cluster, model, *rows, **options)
    return False


def _checkpoint_options(arguments: argparse.Namespace, model: SurvivalEstimator) -> dict[str, Any]:
    """The argument ``checkpoint`` of ``fit``, if --checkpoint was given."""
    networks = isinstance(model, NetworkEstimator)
    if launched_by_torchrun() and not networks:
        raise ValueError(
            f"{type(model).__name__} has no networks to train in several processes; run it in one process."
        )
    if arguments.checkpoint is None:
        return {}
    if not networks:
        raise ValueError(f"{type(model).__name__} is not trained in epochs; leave out --checkpoint.")
    if arguments.checkpoint.exists() and not arguments.checkpoint.is_dir():
        raise ValueError(f"--checkpoint names {arguments.checkpoint}, which is a file; name a folder.")
    return {"checkpoint": Checkpoints(arguments.checkpoint, arguments.checkpoint_seconds)}


# ---------------------------------------------------------------------- output


def _end(arguments: argparse.Namespace, interrupted: bool) -> int:
    print(f"Model written to {arguments.out}")
    if not interrupted:
        return 0
    what = f"sumosurv {arguments.command}: training was interrupted"
    print(f"{what}; the model has the best weights so far.", file=sys.stderr)
    return 130


def _trials(search: NetworkSearch) -> pd.DataFrame:
    """All trials, best first, with their settings as columns."""
    results = dict(search.cv_results_)
    settings = pd.DataFrame(list(results.pop("params"))).map(lambda value: value if np.isscalar(value) else str(value))
    settings = settings.rename(columns=lambda name: f"{name}_setting" if name in results else name)
    return pd.DataFrame(results).join(settings).sort_values("rank_valid_score")


def _print_columns(model: SurvivalEstimator) -> None:
    """Print which covariates are numeric and which are categorical."""
    columns = getattr(getattr(model, "preprocessor_", None), "columns", [])
    numeric = [c.name for c in columns if not hasattr(c, "levels")]
    categorical = [f"{c.name} ({len(c.levels)} levels)" for c in columns if hasattr(c, "levels")]
    for title, names in (("Numeric", numeric), ("Categorical", categorical)):
        if names:
            more = f", ... ({len(names):,} in all)" if len(names) > _SHOWN else ""
            print(f"{title}: {', '.join(names[:_SHOWN])}{more}.")


def _print_networks(model: NetworkEstimator) -> None:
    """Print the weights of the components and the likelihood of validation rows."""
    parts = model.stack_.populations
    if len(parts) > 1:
        shares = ", ".join(f"{part.name} {part.weight:.2f}" for part in parts)
        print(f"Components and their weights, by the likelihood of held-out rows: {shares}.")
    if model.resolution_ is not None:
        print(f"Times are recorded to {model.resolution_:g}: an event counts by the probability of its cell of time.")
    if model.best_valid_.size and model.best_valid_.max() > float("-inf"):
        print(f"Mean log-likelihood on validation rows, average network: {model.best_valid_.mean():.4f} nats.")


def _describe_rows(source: Source, arguments: argparse.Namespace) -> str:
    """The numbers of rows, covariates and subjects, and the shares of events, intervals and delayed entry."""
    counts: Counter[str] = Counter()
    subjects = np.zeros(0, dtype=np.uint64)
    for block in source.blocks([]):
        y = block.outcome
        assert y is not None
        counts["rows"] += len(y)
        for k in range(1, source.n_causes + 1):
            name = "events" if source.n_causes == 1 else f"events of cause {k}"
            counts[name] += int((y.had_event if y.cause is None else y.cause == k).sum())
        if y.upper is not None:
            counts["of rows interval-censored"] += int(y.in_interval.sum())
        if y.entry is not None:
            counts["with delayed entry"] += int((y.entry > 0).sum())
        if arguments.group is not None:
            subjects = np.union1d(subjects, hashed(block.subjects, 0))
    total = counts.pop("rows")
    parts = [f"{source.n_rows:,} rows", how_many(len(source.covariates or ()), "covariate")]
    parts += [f"{count / total:.1%} {name}" for name, count in counts.items()]
    return ", ".join([*parts, how_many(len(subjects), "subject")] if len(subjects) else parts)
