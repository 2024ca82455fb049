"""The command line: ``sumosurv fit | predict | evaluate | datasets | report | serve``. Arguments only."""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sumosurv._version import __version__
from sumosurv.report import command as report_command
from sumosurv.serve import command as serve_command

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit code: 0 done, 1 the data or the model is at fault, 2 wrong usage, 130 interrupted by Ctrl-C.
    """
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
        with _plain_warnings(arguments.command):
            from sumosurv.commands import COMMANDS

            return COMMANDS[arguments.command](arguments)
    except KeyboardInterrupt:
        kept = "" if arguments.out is None else f"; {arguments.out} was not written"
        print(f"sumosurv {arguments.command}: interrupted{kept}.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError) as error:
        if arguments.traceback:
            raise
        print(f"sumosurv {arguments.command}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sumosurv", description="Survival regression with exact distributions.")
    parser.add_argument("--version", action="version", version=f"sumosurv {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    table = argparse.ArgumentParser(add_help=False)
    table.add_argument("--sep", type=_character, metavar="CHARACTER", help="separator of CSV files: ';', tab, ...")
    table.add_argument("--decimal", type=_character, default=".", metavar="CHARACTER", help="their decimal point")
    tables = "Tables are CSV, plain or compressed (.gz, .bz2, .xz, .zip), or Parquet; - is standard input."

    outcome = argparse.ArgumentParser(add_help=False)
    seen = outcome.add_argument_group("outcome", "--time and --event, or --lower and --upper")
    seen.add_argument("--time", metavar="COLUMN", help="time of the event or of censoring")
    seen.add_argument(
        "--event",
        metavar="COLUMN",
        help="1 or true where the event was seen, 0 where censored; 1, 2, ... where causes compete",
    )
    seen.add_argument(
        "--event-value",
        nargs="+",
        metavar="VALUE",
        help="the value of that column that means an event, such as dead or 2; several for several causes, in order",
    )
    seen.add_argument("--lower", metavar="COLUMN", help="last time known to be event-free (interval censoring)")
    seen.add_argument("--upper", metavar="COLUMN", help="first time known to have had the event; inf if censored")
    seen.add_argument("--entry", metavar="COLUMN", help="when a row came under observation (late entry)")
    seen.add_argument("--weight", metavar="COLUMN", help="how many rows a row counts for")
    seen.add_argument("--group", metavar="COLUMN", help="the subject, where a subject has several rows")

    fit = commands.add_parser(
        "fit",
        parents=[table, outcome],
        help="fit SuMo-net to a table",
        description=f"Fit SuMo-net to a table. {tables}",
    )
    fit.add_argument("data", type=Path, help="table; every column but those of the outcome is a covariate")
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

    predict = commands.add_parser(
        "predict",
        parents=[table],
        help="predict from a model file",
        description=f"One row of predictions per row of the table, as CSV or Parquet. {tables}",
        epilog="Without any choice: the expected time up to the last training time, risk, life expectancy, quartiles. "
        "The column 'extrapolated' names the figures of a row that lie past the last training time: quantiles and "
        "times that do, and a life expectancy of which more than 1 %% comes from there.",
    )
    predict.add_argument("model", type=Path)
    predict.add_argument("data", type=Path, help="table with the covariates")
    predict.add_argument(
        "--out", type=Path, metavar="FILE", help="CSV or Parquet file to write; standard output by default"
    )
    predict.add_argument(
        "--times",
        type=_numbers,
        metavar="T,T,...",
        help="survival probabilities at these times, and the incidence of each cause",
    )
    predict.add_argument(
        "--quantiles", type=_numbers, metavar="Q,Q,...", help="quantiles of the event time, 0.5 the median"
    )
    predict.add_argument(
        "--mean", action="store_true", help="life expectancy, after the expected time up to the last training time"
    )
    predict.add_argument("--restricted-mean", type=float, metavar="HORIZON", help="expected time up to a horizon")
    predict.add_argument("--risk", action="store_true", help="risk score, higher for earlier events")
    predict.add_argument("--quiet", action="store_true", help="no progress bar")

    evaluate = commands.add_parser(
        "evaluate",
        parents=[table, outcome],
        help="score a model file on a table",
        description="Scores with bootstrap confidence intervals.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    evaluate.add_argument("-h", "--help", action=_HelpWithScores, nargs=0, help="show this help and the scores")
    evaluate.add_argument("model", type=Path)
    evaluate.add_argument("data", type=Path, help="table with covariates and outcome")
    evaluate.add_argument("--scores", nargs="+", metavar="NAME", help="the scores to compute, of those below")
    evaluate.add_argument(
        "--times",
        type=_numbers,
        metavar="T,T,...",
        help="times of the scores at single times, which are then shown too",
    )
    evaluate.add_argument(
        "--against",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="model files to compare with, or kaplan-meier for the curve of the training rows; differences have paired "
        "bootstrap intervals",
    )
    evaluate.add_argument(
        "--censoring",
        choices=("auto", "marginal"),
        default="auto",
        help="auto: test whether censoring depends on the covariates, and if it does weight by both; marginal: by one "
        "distribution for all rows",
    )
    evaluate.add_argument("--quiet", action="store_true", help="no progress bar")
    evaluate.add_argument(
        "--range", type=_numbers, dest="span", metavar="LOW,HIGH", help="range of times of the integrated scores"
    )
    evaluate.add_argument("--bootstrap", type=int, default=200, metavar="N", help="resamples; 0 for no intervals")
    evaluate.add_argument("--out", type=Path, metavar="FILE", help="write the scores as CSV too")

    data = commands.add_parser("datasets", help="list the datasets, or write one to a file")
    data.add_argument(
        "name", nargs="?", help="flchain, support, metabric, gbsg, whas, weibull, checkerboard, normal or kkbox"
    )
    data.add_argument("--out", type=Path, metavar="FILE", help="CSV or Parquet file to write")
    data.add_argument("--rows", type=int, default=25_000, metavar="N", help="rows of a simulated one")
    data.add_argument("--seed", type=int, default=0, help="of a simulated one")

    report_command.add_arguments(commands, [table, outcome], _numbers)
    serve_command.add_arguments(commands)
    return parser


class _HelpWithScores(argparse.Action):
    """Help that ends in the table of scores, which is loaded when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from sumosurv.scores import SCORES

        lines = [f"  {name:36s}{score.in_short}" for name, score in SCORES.items()]
        parser.epilog = "\n".join(["scores (G: the distribution of the censoring, estimated from the table):", *lines])
        parser.print_help()
        parser.exit()


@contextmanager
def _plain_warnings(command: str) -> Iterator[None]:
    """Warnings in one line each, without the code that gave them."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"sumosurv {command}: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


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


if __name__ == "__main__":
    sys.exit(main())
