"""What the commands of the command line do, once their arguments are read. Each returns an exit code."""

from __future__ import annotations

import argparse
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from sumosurv import datasets
from sumosurv.advice import telling_unseen
from sumosurv.estimators import SumoNet
from sumosurv.files import check_writable
from sumosurv.io import load
from sumosurv.outcome import Outcome, Surv, check_outcome
from sumosurv.report import command as report_command
from sumosurv.scores import SCORES, evaluate, log_likelihood, mean_and_error, usual_scores
from sumosurv.serve import command as serve_command
from sumosurv.tables import read_table, write_table

__all__ = ["COMMANDS"]

_BLOCK = 20_000  # rows predicted at a time
_NEGLIGIBLE = 0.01  # a mean of which less than this lies past the last training time is not called extrapolated
_NO_EVENT = {"alive", "censored", "no", "none", "false", "n", "f", "0", "event-free"}  # words of columns of events
_ROLES = ("time", "event", "entry", "lower", "upper", "weight", "group")  # columns that are no covariates
_MARGINAL = "kaplan-meier"  # of --against: the curve of the training rows, which every model file holds


def _fit(arguments: argparse.Namespace) -> int:
    _check_target(arguments.out, arguments.data, arguments.valid)
    if arguments.valid == arguments.data == Path("-"):
        raise ValueError("Standard input can be read once; give a file to --valid.")
    frame = _read(arguments.data, arguments)
    X, y = _covariates_and_outcome(frame, arguments)
    options = {
        name: getattr(arguments, name)
        for name in ("ensemble_size", "max_epochs")
        if getattr(arguments, name) is not None
    }
    model = SumoNet(
        variant=arguments.variant,
        refit=arguments.refit,
        device=arguments.device,
        random_state=arguments.seed,
        verbose=not arguments.quiet,
        **options,
    )
    validation = None
    if arguments.valid is not None:
        held_out = _read(arguments.valid, arguments)
        validation = (_as_trained(held_out, X), _outcome(held_out, arguments, causes=y.n_causes))
    try:
        model.fit(X, y, validation_data=validation)
    except KeyboardInterrupt:
        if not hasattr(model, "interrupted_"):
            raise  # before there was anything to keep
    model.save(arguments.out)
    print(
        f"{len(y):,} rows, {_count(X.shape[1], 'covariate')}, {_events_in_words(y)}; "
        f"{_count(model.n_members_, 'network')}."
    )
    numeric = [c.name for c in model.preprocessor_.columns if not hasattr(c, "levels")]
    coded = [f"{c.name} ({len(c.levels)} levels)" for c in model.preprocessor_.columns if hasattr(c, "levels")]
    for kind, names in (("Numeric", numeric), ("Categorical", coded)):
        if names:
            print(f"{kind}: {', '.join(names)}.")
    weights = model.members_.groupby("kind", sort=False)["weight"].sum()
    if len(weights) > 1:
        shares = ", ".join(f"{kind} {weight:.2f}" for kind, weight in weights.items())
        print(f"Kinds of networks and their weights, by the likelihood of held-out rows: {shares}.")
    if model.resolution_ is not None:
        print(f"Times are recorded to {model.resolution_:g}: an event counts by the probability of its cell of time.")
    if model.best_valid_.size and model.best_valid_.max() > float("-inf"):
        print(f"Mean log-likelihood on validation rows, average network: {model.best_valid_.mean():.4f} nats.")
    print(f"Model written to {arguments.out}")
    if not model.interrupted_:
        return 0
    print("sumosurv fit: training was interrupted; the model has its best weights until then.", file=sys.stderr)
    return 130


def _predict(arguments: argparse.Namespace) -> int:
    if arguments.out is not None:
        _check_target(arguments.out, arguments.model, arguments.data)
    model = load(arguments.model)
    X = _for_model(_read(arguments.data, arguments), model)
    beyond: Counter[str] = Counter()
    with telling_unseen():
        rows = write_table(_predictions(model, X, arguments, beyond), arguments.out)
    if arguments.out is not None:
        print(f"{rows:,} rows written to {arguments.out}")
    if beyond:
        named = ", ".join(f"{name} in {_count(count, 'row')}" for name, count in beyond.items())
        print(
            f"sumosurv predict: the training data end at {model.last_time_:g}, and what lies past it is extrapolated: "
            f"{named} of {rows:,}; the column 'extrapolated' names them row by row.",
            file=sys.stderr,
        )
    return 0


def _predictions(
    model: Any, X: pd.DataFrame, arguments: argparse.Namespace, beyond: Counter[str]
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
            for q in levels:
                name = "median" if q == 0.5 else f"quantile_{q:g}"
                columns[name] = distribution.quantile(float(q))
                past[name] = columns[name] > last
            if mean or levels or any(rows.any() for rows in past.values()):
                columns["extrapolated"] = [
                    " ".join(name for name, rows in past.items() if rows[i]) for i in range(len(part))
                ]
            beyond.update({name: int(rows.sum()) for name, rows in past.items() if rows.any()})
            yield pd.DataFrame(columns, index=part.index)
            bar.update(len(part))


def _evaluate(arguments: argparse.Namespace) -> int:
    if arguments.out is not None:
        _check_target(arguments.out, arguments.model, arguments.data)
    frame = _read(arguments.data, arguments)
    named = {arguments.model.stem: load(arguments.model)}
    model = next(iter(named.values()))
    y = _outcome(frame, arguments, causes=model.n_causes_)
    curves = {name: fitted.predict_distribution(_for_model(frame, fitted)) for name, fitted in named.items()}
    for other in arguments.against:
        name, curve = _other_model(other, model, frame, len(y))
        if name in curves:
            raise ValueError(f"--against names {name!r}, which is compared already; rename one of the files.")
        curves[name] = curve
    cells = model.cells_ if y.upper is None else None
    table = evaluate(
        curves if len(curves) > 1 else next(iter(curves.values())),
        _for_model(frame, model),
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


def _other_model(name: str, model: Any, frame: pd.DataFrame, n: int) -> tuple[str, Any]:
    """Curves to compare with: those of another model file, or the one of the training rows."""
    if name == _MARGINAL:
        return name, model.training_curve_.repeat(n)
    other = load(Path(name))
    if other.n_causes_ != model.n_causes_:
        raise ValueError(f"{name} was fitted to {other.n_causes_} causes and the model to {model.n_causes_}.")
    return Path(name).stem, other.predict_distribution(_for_model(frame, other))


def _gain_in_words(model: Any, curves: dict[str, Any], y: Outcome) -> str:
    """By how much each model's mean log-likelihood exceeds that of the training rows' own curve."""
    plain = model.n_causes_ == 1 and y.entry is None and y.upper is None
    kind = "Kaplan-Meier curve" if plain else "Aalen-Johansen curves" if model.n_causes_ > 1 else "marginal curve"
    gains = []
    for name, distribution in curves.items():
        gain, error = _gain(model, distribution, y)
        of = f"{name} " if len(curves) > 1 else ""
        gains.append(f"{of}{gain:.4f} nats (standard error {error:.4f})")
    return f"Gain in log-likelihood over the {kind} of the training rows: {'; '.join(gains)}."


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


def _datasets(arguments: argparse.Namespace) -> int:
    if arguments.out is not None:
        _check_target(arguments.out)
    simulated = ("weibull", "checkerboard", "normal", "kkbox")
    if arguments.name is None:
        print(datasets.available().to_string(index=False))
        print(f"\nSimulated, with their true distribution: {', '.join(simulated)}.")
        print("Write one to a file: sumosurv datasets NAME --out FILE")
        return 0
    if arguments.name in simulated:
        made = datasets.simulate(arguments.name, arguments.rows, random_state=arguments.seed)
        frame = made.X.assign(time=made.y["time"], event=made.y["event"].astype(int))
        text = f"{arguments.name}: {len(frame):,} simulated rows, {made.y['event'].mean():.1%} events."
    else:
        data = datasets.load(arguments.name)
        frame, text = data.frame, data.description
        text += f"\nColumns: --time {data.time_name} --event {data.event_name}"
    print(text)
    if arguments.out is not None:
        write_table([frame], arguments.out)
        print(f"Written to {arguments.out}")
    return 0


def _report(arguments: argparse.Namespace) -> int:
    _check_target(arguments.out, arguments.model, arguments.data)
    frame, model = _read(arguments.data, arguments), load(arguments.model)
    y = _outcome(frame, arguments, causes=model.n_causes_)
    against = dict(_other_model(other, model, frame, len(y)) for other in arguments.against)
    return report_command.run(arguments, model, _for_model(frame, model), y, against)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "fit": _fit,
    "predict": _predict,
    "evaluate": _evaluate,
    "datasets": _datasets,
    "report": _report,
    "serve": serve_command.run,
}


def _check_target(path: Path, *inputs: Path | None) -> None:
    """Say at once, and not after a long fit, that a file cannot be written, or would replace what is read."""
    check_writable(path)
    for read in inputs:
        if read is not None and path.exists() and read.exists() and path.samefile(read):
            raise ValueError(f"--out {path} would replace {read}, which is read; name another file to write.")


def _read(path: Path, arguments: argparse.Namespace) -> pd.DataFrame:
    return read_table(path, sep=arguments.sep, decimal=arguments.decimal)


def _outcome(frame: pd.DataFrame, arguments: argparse.Namespace, *, causes: int | None = None) -> Outcome:
    """What was observed, from the columns that were named; of so many causes, if that is known beforehand."""
    named = {role: getattr(arguments, role) for role in _ROLES}
    between = arguments.lower is not None or arguments.upper is not None
    if between and (arguments.time is not None or None in (arguments.lower, arguments.upper)):
        raise ValueError("Name --time and --event, or --lower and --upper (then --event only to tell causes apart).")
    if not between and None in (arguments.time, arguments.event):
        raise ValueError("Name the outcome: --time and --event, or --lower and --upper for interval censoring.")
    for flag, name in named.items():
        if name is not None and name not in frame.columns:
            listed = ", ".join(map(repr, frame.columns))
            raise ValueError(f"There is no column {name!r} (--{flag}); the columns are {listed}.")
    wanted = arguments.event_value
    if arguments.event is not None:
        frame = frame.assign(**{arguments.event: _event_values(frame[arguments.event], wanted, causes)})
    elif wanted is not None:
        raise ValueError("--event-value says what the values of a column mean; name it with --event.")
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
        likely = next((value for value in known if value.lower() not in _NO_EVENT), "dead")
        raise ValueError(
            f"The column {column.name!r} holds {', '.join(map(repr, known[:5]))}; say which value means an event, for "
            f"example --event-value {shlex.quote(likely)}."
        )
    return column


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


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


def _covariates_and_outcome(frame: pd.DataFrame, arguments: argparse.Namespace) -> tuple[pd.DataFrame, Outcome]:
    y = _outcome(frame, arguments)
    for name in arguments.drop:
        if name not in frame.columns:
            raise ValueError(f"There is no column {name!r}; the columns are {', '.join(map(repr, frame.columns))}.")
    own = {getattr(arguments, role) for role in _ROLES} - {None}
    X = frame.drop(columns=[*own, *(name for name in arguments.drop if name not in own)])
    if X.shape[1] == 0:
        raise ValueError("No covariates are left beside the outcome.")
    for name in arguments.categorical:
        if name not in X.columns:
            raise ValueError(f"There is no covariate {name!r}; they are {', '.join(map(repr, X.columns))}.")
    return X.astype(dict.fromkeys(arguments.categorical, "category")), y


def _as_trained(frame: pd.DataFrame, X: pd.DataFrame) -> pd.DataFrame:
    """The training columns of another table, in their order."""
    return _pick(frame, list(X.columns))


def _for_model(frame: pd.DataFrame, model: Any) -> pd.DataFrame:
    names = getattr(model, "feature_names_in_", None)
    return frame if names is None else _pick(frame, list(names))


def _pick(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(f"The table lacks columns that the model was fitted on: {', '.join(map(repr, missing))}.")
    return frame[names]
