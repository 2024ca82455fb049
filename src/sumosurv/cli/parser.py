"""The arguments of all commands. A command is entered here and in `COMMANDS` (``__init__.py``)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sumosurv._version import __version__
from sumosurv.report import command as report
from sumosurv.serve import command as serve

__all__ = ["make_parser"]

_TABLES = "Tables are CSV, plain or compressed (.gz, .bz2, .xz, .zip), or Parquet; - is standard input."
_ON_DISK = (
    "A folder of Parquet files, or a Parquet file of more than 1 GiB, is read in pieces and need not fit into memory."
)

Commands = Any  # argparse has no public name for what add_subparsers gives


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that names the default of an option, where it has one that says something."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default is None or action.default is False or action.default in ([], "", argparse.SUPPRESS)
        return action.help if silent or action.help is None else f"{action.help} (default: %(default)s)"


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="sumosurv", description="Survival regression with exact distributions.")
    parser.add_argument("--version", action="version", version=f"sumosurv {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    table, outcome, method, cluster = (argparse.ArgumentParser(add_help=False) for _ in range(4))
    _add_table(table)
    _add_cluster(cluster)
    _add_outcome(outcome)
    _add_method(method)
    _add_fit(commands, [table, outcome, method, cluster])
    _add_search(commands, [table, outcome, method, cluster])
    _add_predict(commands, [table, cluster])
    _add_evaluate(commands, [table, outcome, cluster])
    report.add_arguments(commands, [table, outcome], _numbers, _Help)
    serve.add_arguments(commands, _Help)
    _add_export(commands)
    _add_datasets(commands)
    return parser


def _add_table(table: argparse.ArgumentParser) -> None:
    table.add_argument(
        "--sep", type=_character, metavar="CHARACTER", help="field separator of CSV files: ';', tab, ... (default: ,)"
    )
    table.add_argument(
        "--decimal", type=_character, default=".", metavar="CHARACTER", help="decimal point of CSV files"
    )


def _add_stream(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--stream", action="store_true", help="read a Parquet file in pieces, whatever its size; see docs/large_data.md"
    )


def _add_outcome(outcome: argparse.ArgumentParser) -> None:
    seen = outcome.add_argument_group("outcome", "--time and --event, or --lower and --upper")
    seen.add_argument("--time", metavar="COLUMN", help="time of the event or of censoring")
    seen.add_argument(
        "--event",
        metavar="COLUMN",
        help="1 or true if the event was observed, 0 if censored; 1, 2, ... for competing causes",
    )
    seen.add_argument(
        "--event-value",
        nargs="+",
        metavar="VALUE",
        help="value of that column that means an event, such as dead or 2; several values mean competing causes",
    )
    seen.add_argument("--lower", metavar="COLUMN", help="last time known to be event-free (interval censoring)")
    seen.add_argument("--upper", metavar="COLUMN", help="first time known to be after the event; inf if right-censored")
    seen.add_argument("--entry", metavar="COLUMN", help="time at which a row came under observation (late entry)")
    seen.add_argument("--weight", metavar="COLUMN", help="weight of a row")
    seen.add_argument("--group", metavar="COLUMN", help="identifier of the subject, if subjects have several rows")


def _add_cluster(cluster: argparse.ArgumentParser) -> None:
    ray = cluster.add_argument_group("cluster", "a Ray cluster (extra ray); see docs/large_data.md")
    ray.add_argument("--ray", metavar="ADDRESS", help="HOST:PORT of the head node, or auto for the one of this machine")
    ray.add_argument("--ray-workers", type=int, metavar="N", help="worker processes; by default as many as fit")
    ray.add_argument(
        "--ray-smallest", type=int, metavar="N", help="work below which the cluster is not asked; 0 always asks it"
    )
    ray.add_argument("--ray-ship", action="store_true", help="send this package to the workers")


def _add_method(method: argparse.ArgumentParser) -> None:
    """What is fitted, for ``fit`` and ``search``."""
    method.add_argument("data", type=Path, help="table; every column that no option names is a covariate")
    method.add_argument("--out", required=True, type=Path, metavar="FILE", help="model file to write")
    method.add_argument(
        "--valid",
        type=Path,
        metavar="FILE",
        help="table for early stopping; by default a fifth of the rows is held out",
    )
    method.add_argument(
        "--id", nargs="+", default=[], metavar="COLUMN", help="identifiers, which are not used as covariates"
    )
    method.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="columns to leave out")
    method.add_argument(
        "--categorical", nargs="+", default=[], metavar="COLUMN", help="numeric columns that are categories"
    )
    method.add_argument("--method", default="SumoNet", metavar="NAME", help="estimator to fit: CoxPH, WeibullNet, ...")
    method.add_argument(
        "--set",
        nargs="+",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="settings of the method, as in Python: dropout=0.2 covariate_layers=(32,32)",
    )
    method.add_argument(
        "--max-epochs", type=int, metavar="N", help="largest number of epochs; by default that of the method"
    )
    method.add_argument("--device", metavar="DEVICE", help="cpu or cuda; by default cuda if available")
    method.add_argument("--seed", type=int, default=0, help="random seed")
    method.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_fit(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    fit = commands.add_parser(
        "fit",
        parents=parents,
        help="fit a model to a table",
        description=f"Fit SuMo-net, or another method, to a table. {_TABLES} {_ON_DISK}",
        formatter_class=_Help,
    )
    _add_stream(fit)
    fit.add_argument("--n-members", type=int, metavar="K", help="number of networks; by default that of the method")
    fit.add_argument(
        "--variant", choices=("sumo", "paper"), help="variant of SumoNet: 'paper' is the network of the paper"
    )
    fit.add_argument("--refit", action="store_true", help="train again on all rows after early stopping")
    fit.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FOLDER",
        help="keep the state of training there; the same command goes on where it was ended",
    )
    fit.add_argument(
        "--checkpoint-seconds", type=float, default=30.0, metavar="S", help="least time between two checkpoints"
    )


def _add_search(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    search = commands.add_parser(
        "search",
        parents=parents,
        help="search over the settings of a network method",
        description="Train networks with many settings side by side, choose on validation rows and write the mixture "
        f"of the best. Settings given by options are kept fixed. {_TABLES}",
        formatter_class=_Help,
    )
    search.add_argument("--trials", type=int, default=100, metavar="N", help="number of settings to try")
    search.add_argument(
        "--proposals", choices=("random", "tpe", "halving"), default="random", help="how settings are proposed"
    )
    search.add_argument(
        "--space",
        choices=("paper", "recipe"),
        default="paper",
        help="search space; see the page on search in the documentation",
    )
    search.add_argument(
        "--cv", type=int, metavar="FOLDS", help="compare trials by cross-validation, with so many folds"
    )
    search.add_argument(
        "--storage", metavar="FILE", help="database of trials, so that a search can be resumed (extra search)"
    )
    search.add_argument("--trials-out", type=Path, metavar="FILE", help="write a table of all trials")


def _add_predict(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    predict = commands.add_parser(
        "predict",
        parents=parents,
        help="predict from a model file",
        description=f"Write one row of predictions for each row of a table, as CSV or Parquet. {_TABLES} {_ON_DISK} "
        "Its predictions are written part by part, and a run that was stopped resumes where it left off.",
        epilog="By default: the mean restricted to the last training time, the risk score, the mean and the quartiles. "
        "The column 'extrapolated' names the predictions of a row that rest on extrapolation: quantiles and times "
        "beyond the last training time, and a mean of which more than 1% comes from beyond it.",
        formatter_class=_Help,
    )
    predict.add_argument("model", type=Path, help="model file")
    predict.add_argument("data", type=Path, help="table with the covariates")
    predict.add_argument(
        "--out", type=Path, metavar="FILE", help="CSV or Parquet file to write; standard output by default"
    )
    predict.add_argument(
        "--id", nargs="+", default=[], metavar="COLUMN", help="identifier columns to copy to the output"
    )
    predict.add_argument(
        "--times",
        type=_numbers,
        metavar="T,T,...",
        help="survival probabilities at these times; with competing causes also the incidence of each",
    )
    predict.add_argument(
        "--quantiles", type=_numbers, metavar="Q,Q,...", help="quantiles of the event time; 0.5 is the median"
    )
    predict.add_argument(
        "--mean", action="store_true", help="mean event time, and the mean restricted to the last training time"
    )
    predict.add_argument(
        "--restricted-mean", type=float, metavar="HORIZON", help="mean event time restricted to a horizon"
    )
    predict.add_argument("--risk", action="store_true", help="risk score; higher means earlier events")
    predict.add_argument(
        "--precision",
        choices=("double", "single"),
        default="double",
        help="double: all digits, what the methods of the model give; single: six digits or so, in half the time",
    )
    _add_stream(predict)
    predict.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_evaluate(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        parents=parents,
        help="score a model file on a table",
        description=f"Print scores of a model on a table, with bootstrap confidence intervals. {_ON_DISK}",
        formatter_class=_Help,
        add_help=False,
    )
    evaluate.add_argument("-h", "--help", action=_HelpWithScores, nargs=0, help="show this help and the scores")
    evaluate.add_argument("model", type=Path, help="model file")
    evaluate.add_argument("data", type=Path, help="table with covariates and outcome")
    evaluate.add_argument("--scores", nargs="+", metavar="NAME", help="scores to compute, from the list below")
    evaluate.add_argument(
        "--times",
        type=_numbers,
        metavar="T,T,...",
        help="times at which to compute scores such as the Brier score",
    )
    evaluate.add_argument(
        "--against",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="model files to compare with, or kaplan-meier for the Kaplan-Meier curve of the training rows; "
        "differences have paired bootstrap intervals",
    )
    evaluate.add_argument(
        "--censoring",
        choices=("auto", "marginal"),
        default="auto",
        help="auto: test whether censoring depends on the covariates and, if so, weight in both ways; marginal: weight "
        "by one censoring distribution for all rows",
    )
    _add_stream(evaluate)
    evaluate.add_argument("--quiet", action="store_true", help="no progress bar")
    evaluate.add_argument(
        "--range", type=_numbers, dest="span", metavar="LOW,HIGH", help="time range of the integrated scores"
    )
    evaluate.add_argument(
        "--bootstrap", type=int, default=200, metavar="N", help="bootstrap resamples; 0 for no intervals"
    )
    evaluate.add_argument("--out", type=Path, metavar="FILE", help="also write the scores to a CSV file")


def _add_export(commands: Commands) -> None:
    export = commands.add_parser(
        "export",
        help="export a model file to ONNX or torch",
        description="Export a model so that programs without this library can run it.",
        formatter_class=_Help,
    )
    export.add_argument("model", type=Path, help="model file")
    export.add_argument(
        "--out", required=True, type=Path, metavar="FILE", help="an .onnx file, or a .pt2 file for torch"
    )
    export.add_argument(
        "--precision", choices=("double", "single"), default="double", help="floating-point precision of the networks"
    )


def _add_datasets(commands: Commands) -> None:
    data = commands.add_parser("datasets", help="list the datasets, or write one to a file", formatter_class=_Help)
    data.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="flchain, support, metabric, gbsg, whas, weibull, checkerboard, normal or kkbox",
    )
    data.add_argument("--out", type=Path, metavar="FILE", help="CSV or Parquet file to write")
    data.add_argument("--rows", type=int, default=25_000, metavar="N", help="rows of a simulated dataset")
    data.add_argument("--seed", type=int, default=0, help="random seed of a simulated dataset")


class _HelpWithScores(argparse.Action):
    """Help that ends in the table of scores, which is loaded when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from sumosurv.scores import SCORES

        lines = [f"  {name:36s}{score.in_short}" for name, score in SCORES.items()]
        parser.epilog = "\n".join(["scores (G: the distribution of the censoring, estimated from the table):", *lines])
        parser.print_help()
        parser.exit()


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


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (sign and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE; got {text!r}")
    return name, value
