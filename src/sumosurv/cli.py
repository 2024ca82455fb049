"""The command line: ``sumosurv fit | predict | evaluate | datasets``. Arguments only."""

from __future__ import annotations

import argparse
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sumosurv._version import __version__

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["main"]

_EXACT_CONCORDANCE = 2000  # rows up to which `evaluate` takes the exact one, whose cost grows as their square


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 1 the data or the model is at fault, 2 wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["reproduce"]:
        command = shlex.join(["python", "-m", "paper", *words[1:]])
        print(
            f"sumosurv reproduce: the paper's tables and figures are made by `{command}`, "
            "at the top of a clone of the repository.",
            file=sys.stderr,
        )
        return 2
    parser = _parser()
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return 2
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError) as error:
        if arguments.traceback:
            raise
        print(f"sumosurv {arguments.command}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sumosurv", description="Survival regression with exact distributions.")
    parser.add_argument("--version", action="version", version=f"sumosurv {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    table = argparse.ArgumentParser(add_help=False)
    table.add_argument("--sep", type=_character, metavar="CHARACTER", help="separator of CSV files: ';', tab, ...")
    table.add_argument("--decimal", type=_character, default=".", metavar="CHARACTER", help="their decimal point")
    tables = "Tables are CSV, plain or compressed (.gz, .bz2, .xz, .zip), or Parquet; - is standard input."

    fit = commands.add_parser(
        "fit", parents=[table], help="fit SuMo-net to a table", description=f"Fit SuMo-net to a table. {tables}"
    )
    fit.add_argument("data", type=Path, help="table; every column but time and event is a covariate")
    fit.add_argument("--time", required=True, metavar="COLUMN", help="time of the event or of censoring")
    fit.add_argument(
        "--event", required=True, metavar="COLUMN", help="1 or true where the event was seen, 0 where censored"
    )
    fit.add_argument("--out", required=True, type=Path, metavar="FILE", help="model file to write")
    fit.add_argument(
        "--valid", type=Path, metavar="FILE", help="table for early stopping; a fifth of the rows by default"
    )
    fit.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="columns to leave out")
    fit.add_argument(
        "--categorical", nargs="+", default=[], metavar="COLUMN", help="numeric columns that are categories"
    )
    fit.add_argument("--ensemble-size", type=int, metavar="K", help="networks in the mixture")
    fit.add_argument("--max-epochs", type=int, metavar="N")
    fit.add_argument(
        "--variant", choices=("sumo", "paper"), default="sumo", help="'paper' for the paper's plain network"
    )
    fit.add_argument("--refit", action="store_true", help="train again on all rows after early stopping")
    fit.add_argument("--device", default="auto", help="auto, cpu or cuda")
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--quiet", action="store_true", help="no progress bar")
    fit.set_defaults(run=_fit)

    predict = commands.add_parser(
        "predict",
        parents=[table],
        help="predict from a model file",
        description=f"One row of predictions per row of the table, as CSV or Parquet. {tables}",
        epilog="Without any choice: risk, median, life expectancy and the quartiles.",
    )
    predict.add_argument("model", type=Path)
    predict.add_argument("data", type=Path, help="table with the covariates")
    predict.add_argument(
        "--out", type=Path, metavar="FILE", help="CSV or Parquet file to write; standard output by default"
    )
    predict.add_argument("--times", type=_numbers, metavar="T,T,...", help="survival probabilities at these times")
    predict.add_argument(
        "--quantiles", type=_numbers, metavar="Q,Q,...", help="quantiles of the event time, 0.5 the median"
    )
    predict.add_argument("--mean", action="store_true", help="life expectancy")
    predict.add_argument("--restricted-mean", type=float, metavar="HORIZON", help="expected time up to a horizon")
    predict.add_argument("--risk", action="store_true", help="risk score, higher for earlier events")
    predict.set_defaults(run=_predict)

    evaluate = commands.add_parser(
        "evaluate",
        parents=[table],
        help="score a model file on a table",
        description="Scores with bootstrap confidence intervals.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    evaluate.add_argument("-h", "--help", action=_HelpWithScores, nargs=0, help="show this help and the scores")
    evaluate.add_argument("model", type=Path)
    evaluate.add_argument("data", type=Path, help="table with covariates, time and event")
    evaluate.add_argument("--time", required=True, metavar="COLUMN")
    evaluate.add_argument("--event", required=True, metavar="COLUMN")
    evaluate.add_argument("--scores", nargs="+", metavar="NAME", help="the scores to compute, of those below")
    evaluate.add_argument("--times", type=_numbers, metavar="T,T,...", help="times of the scores at single times")
    evaluate.add_argument(
        "--range", type=_numbers, dest="span", metavar="LOW,HIGH", help="range of times of the integrated scores"
    )
    evaluate.add_argument("--bootstrap", type=int, default=200, metavar="N", help="resamples; 0 for no intervals")
    evaluate.add_argument("--out", type=Path, metavar="FILE", help="write the scores as CSV too")
    evaluate.set_defaults(run=_evaluate)

    data = commands.add_parser("datasets", help="list the datasets, or write one to a file")
    data.add_argument(
        "name", nargs="?", help="flchain, support, metabric, gbsg, whas, weibull, checkerboard, normal or kkbox"
    )
    data.add_argument("--out", type=Path, metavar="FILE", help="CSV or Parquet file to write")
    data.add_argument("--rows", type=int, default=25_000, metavar="N", help="rows of a simulated one")
    data.add_argument("--seed", type=int, default=0, help="of a simulated one")
    data.set_defaults(run=_datasets)
    return parser


def _fit(arguments: argparse.Namespace) -> None:
    _check_target(arguments.out, arguments.data, arguments.valid)
    if arguments.valid == arguments.data == Path("-"):
        raise ValueError("Standard input can be read once; give a file to --valid.")
    frame = _read(arguments.data, arguments)

    from sumosurv import SumoNet, Surv

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
        outcome = Surv.from_columns(held_out, event=arguments.event, time=arguments.time)
        validation = (_as_trained(held_out, X), outcome)
    model.fit(X, y, validation_data=validation)
    model.save(arguments.out)
    print(f"{len(y):,} rows, {X.shape[1]} covariates, {y['event'].mean():.1%} events; {model.n_members_} networks.")
    numeric = [c.name for c in model.preprocessor_.columns if not hasattr(c, "levels")]
    coded = [f"{c.name} ({len(c.levels)} levels)" for c in model.preprocessor_.columns if hasattr(c, "levels")]
    for kind, names in (("Numeric", numeric), ("Categorical", coded)):
        if names:
            print(f"{kind}: {', '.join(names)}.")
    if model.best_valid_.size and model.best_valid_.max() > float("-inf"):
        print(f"Mean log-likelihood on validation rows, average network: {model.best_valid_.mean():.4f} nats.")
    print(f"Model written to {arguments.out}")


def _predict(arguments: argparse.Namespace) -> None:
    import pandas as pd

    from sumosurv import load

    if arguments.out is not None:
        _check_target(arguments.out, arguments.model, arguments.data)
    model = load(arguments.model)
    X = _for_model(_read(arguments.data, arguments), model)
    distribution = model.predict_distribution(X)
    nothing = not (
        arguments.times or arguments.quantiles or arguments.mean or arguments.restricted_mean or arguments.risk
    )
    columns: dict[str, Any] = {}
    if arguments.risk or nothing:
        columns["risk"] = model.predict(X)
    if arguments.times:
        columns |= {f"survival_{t:g}": distribution.survival(float(t)) for t in arguments.times}
    if arguments.mean or nothing:
        columns["mean"] = distribution.mean()
    if arguments.restricted_mean is not None:
        columns[f"restricted_mean_{arguments.restricted_mean:g}"] = distribution.restricted_mean(
            arguments.restricted_mean
        )
    for q in arguments.quantiles or ([0.25, 0.5, 0.75] if nothing else []):
        columns["median" if q == 0.5 else f"quantile_{q:g}"] = distribution.quantile(float(q))
    table = pd.DataFrame(columns, index=X.index)
    if arguments.out is None:
        table.to_csv(sys.stdout, index=False)
    else:
        _write_table(table, arguments.out)
        print(f"{len(table):,} rows written to {arguments.out}")


def _evaluate(arguments: argparse.Namespace) -> None:
    import numpy as np

    from sumosurv import Surv, load
    from sumosurv.scores import evaluate

    if arguments.out is not None:
        _check_target(arguments.out, arguments.model, arguments.data)
    model = load(arguments.model)
    frame = _read(arguments.data, arguments)
    y = Surv.from_columns(frame, event=arguments.event, time=arguments.time)
    X = _for_model(frame, model)
    distribution = model.predict_distribution(X)
    options = _score_options(arguments)
    if "concordance_td" in options and len(y) > _EXACT_CONCORDANCE and y["event"].any():
        options["concordance_td"]["times"] = np.unique(np.quantile(y["time"][y["event"]], np.linspace(0, 1, 200)))
    table = evaluate(distribution, None, y, scores=options, n_bootstrap=arguments.bootstrap)
    print(table)
    notes = [f"{len(y):,} rows; times are in the unit of the training data, log-likelihoods in nats."]
    for better, rows in (("Higher", table["greater_is_better"]), ("Lower", ~table["greater_is_better"])):
        notes += [f"{better} is better: {', '.join(table['score'][rows].unique())}."] if rows.any() else []
    if options.get("concordance_td"):
        notes.append("Time-dependent concordance is taken at 200 quantiles of the event times.")
    print("", *(textwrap.fill(note, 80) for note in notes), sep="\n")
    if arguments.out is not None:
        _write_table(table, arguments.out)


def _score_options(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Options of each score asked for: the times given, to those that take times of that kind."""
    from sumosurv.scores import SCORES
    from sumosurv.scores.evaluation import DEFAULT_SCORES

    options: dict[str, dict[str, Any]] = {name: {} for name in arguments.scores or DEFAULT_SCORES}
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


class _HelpWithScores(argparse.Action):
    """Help that ends in the table of scores, which is loaded when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from sumosurv.scores import SCORES

        lines = [f"  {name:36s}{score.in_short}" for name, score in SCORES.items()]
        parser.epilog = "\n".join(["scores (G: the distribution of the censoring, estimated from the table):", *lines])
        parser.print_help()
        parser.exit()


def _datasets(arguments: argparse.Namespace) -> None:
    from sumosurv import datasets

    simulated = ("weibull", "checkerboard", "normal", "kkbox")
    if arguments.name is None:
        print(datasets.available().to_string(index=False))
        print(f"\nSimulated, with their true distribution: {', '.join(simulated)}.")
        print("Write one to a file: sumosurv datasets NAME --out FILE")
        return
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
        _check_target(arguments.out)
        _write_table(frame, arguments.out)
        print(f"Written to {arguments.out}")


# ---------------------------------------------------------------------- tables


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers separated by commas; got {text!r}") from None


def _character(text: str) -> str:
    character = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(character) != 1:
        raise argparse.ArgumentTypeError(f"expected one character, or tab; got {text!r}")
    return character


def _check_target(path: Path, *inputs: Path | None) -> None:
    """Say at once, and not after a long fit, that a file cannot be written, or would replace what is read."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file to write.")
    if not path.parent.is_dir():
        raise ValueError(f"The folder {path.parent} does not exist; make it first.")
    for read in inputs:
        if read is not None and path.exists() and read.exists() and path.samefile(read):
            raise ValueError(f"--out {path} would replace {read}, which is read; name another file to write.")


def _read(path: Path, arguments: argparse.Namespace) -> pd.DataFrame:
    from sumosurv.tables import read_table

    return read_table(path, sep=arguments.sep, decimal=arguments.decimal)


def _write_table(frame: pd.DataFrame, path: Path) -> None:
    from sumosurv.tables import is_parquet

    if is_parquet(path):
        from sumosurv.datasets import write_parquet

        write_parquet(frame, path)
    else:
        frame.to_csv(path, index=False)


def _covariates_and_outcome(frame: pd.DataFrame, arguments: argparse.Namespace) -> tuple[pd.DataFrame, Any]:
    from sumosurv import Surv

    y = Surv.from_columns(frame, event=arguments.event, time=arguments.time)
    for name in arguments.drop:
        if name not in frame.columns:
            raise ValueError(f"There is no column {name!r}; the columns are {', '.join(map(repr, frame.columns))}.")
    X = frame.drop(columns=[arguments.time, arguments.event, *arguments.drop])
    if X.shape[1] == 0:
        raise ValueError("No covariates are left beside time and event.")
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


if __name__ == "__main__":
    sys.exit(main())
