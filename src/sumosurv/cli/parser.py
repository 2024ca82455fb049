"""The commands and their options, as tables. A new command is one entry of `COMMANDS`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sumosurv._version import __version__

Kind = dict[str, Any]  # of an option: keyword arguments of argparse


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.removesuffix(",").split(",")]
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


def _choice(*choices: str) -> Kind:
    return {"choices": choices}


# kinds of options
_PATH: Kind = {"type": Path}
_FILE, _FOLDER = _PATH | {"metavar": "FILE"}, _PATH | {"metavar": "FOLDER"}
_COLUMN, _NAME = {"metavar": "COLUMN"}, {"metavar": "NAME"}
_SEVERAL: Kind = {"nargs": "+", "default": []}
_COLUMNS, _NAMES, _MODELS = _SEVERAL | _COLUMN, _SEVERAL | _NAME, _SEVERAL | {"metavar": "MODEL"}
_COUNT: Kind = {"type": int, "metavar": "N"}
_SECONDS = {"type": float, "metavar": "SECONDS"}
_TIMES = {"type": _numbers, "metavar": "T,T,..."}
_CHARACTER = {"type": _character, "metavar": "CHARACTER"}
_TEXT = {"default": ""}
_SWITCH = {"action": "store_true"}
_REQUIRED = {"required": True}

Option = tuple[str, Kind, str]  # name, kind, help
Options = tuple[Option, ...]

# ---------------------------------------------------------------------- options of several commands

_MODEL: Option = ("model", _PATH, "model file")
_DATA: Option = ("data", _PATH, "table with covariates and outcome")
_QUIET: Option = ("--quiet", _SWITCH, "do not show a progress bar")
_STREAM: Option = ("--stream", _SWITCH, "read a Parquet file in blocks, regardless of its size; see docs/large_data.md")
_BOOTSTRAP: Option = ("--bootstrap", _COUNT | {"default": 200}, "number of bootstrap resamples; 0 for no intervals")
_UNIT: Option = ("--unit", _TEXT, "time unit, for labels: days, months, ...")
_CAUSES: Option = ("--causes", {"nargs": "+", "metavar": "NAME"}, "names of the competing causes, in order")

_TABLE: Options = (
    ("--sep", _CHARACTER, "field separator of CSV files: ';', tab, ... (default: ,)"),
    ("--decimal", _CHARACTER | {"default": "."}, "decimal point of CSV files"),
)
_OUTCOME: Options = (
    ("--time", _COLUMN, "time of the event or of censoring"),
    ("--event", _COLUMN, "1 or true if the event was observed, 0 if censored; 1, 2, ... for competing risks"),
    (
        "--event-value",
        {"nargs": "+", "metavar": "VALUE"},
        "value in the event column that denotes an event, such as dead or 2; several values: competing risks",
    ),
    ("--lower", _COLUMN, "last time known to be event-free (interval censoring)"),
    ("--upper", _COLUMN, "first time known to be after the event (inf: right-censored)"),
    ("--entry", _COLUMN, "time at which a row came under observation (delayed entry)"),
    ("--weight", _COLUMN, "weights of the rows"),
    ("--group", _COLUMN, "identifier of the subject, if subjects have several rows"),
)
_CLUSTER: Options = (
    ("--ray", {"metavar": "ADDRESS"}, "HOST:PORT of the head node, or auto for the cluster on this machine"),
    ("--ray-workers", _COUNT, "number of worker processes; by default as many as the cluster has resources for"),
    ("--ray-min-work", _COUNT, "minimum amount of work for which the cluster is used; 0: always"),
    ("--ray-send-package", _SWITCH, "send this package to the workers"),
)
_METHOD: Options = (
    ("data", _PATH, "table; all columns are covariates except the outcome and those in --id and --drop"),
    ("--out", _FILE | _REQUIRED, "model file to write"),
    ("--valid", _FILE, "table of validation rows; by default, a fifth of the rows is held out"),
    ("--id", _COLUMNS, "identifiers, which are not used as covariates"),
    ("--drop", _COLUMNS, "columns to omit"),
    ("--categorical", _COLUMNS, "numeric columns to treat as categories"),
    ("--method", _NAME | {"default": "SumoNet"}, "estimator, such as WeibullNet; fit also accepts CoxPH, ..."),
    (
        "--set",
        _SEVERAL | {"type": _setting, "metavar": "NAME=VALUE"},
        "settings of the estimator, as in Python: dropout=0.2 covariate_layers=(32,32)",
    ),
    ("--max-epochs", _COUNT, "maximum number of epochs; by default, chosen by the estimator"),
    ("--device", {"metavar": "DEVICE"}, "cpu or cuda; by default cuda if available"),
    ("--seed", {"type": int, "default": 0}, "random seed"),
    _QUIET,
)

# Groups of options with a title and a note; the others are listed without a title.
_GROUPS = {
    "outcome": (_OUTCOME, "--time and --event, or --lower and --upper"),
    "cluster": (_CLUSTER, "a Ray cluster (requires the extra ray); see docs/distributed.md"),
}

# ---------------------------------------------------------------------- commands

_TABLES = "Tables are CSV, plain or compressed (.gz, .bz2, .xz, .zip), or Parquet; - is standard input."
_ON_DISK = (
    "A folder of Parquet files, or a Parquet file of more than 1 GiB, is read in blocks and need not fit into memory."
)


@dataclass(frozen=True)
class Command:
    """A command: where its function is, its texts, its options and its groups of options.

    The function is imported when the command runs, so that help is shown without importing torch.
    """

    function: str
    summary: str
    description: str
    options: Options
    groups: tuple[str, ...] = ()
    epilog: str = ""


COMMANDS = {
    "fit": Command(
        "sumosurv.cli.fit:run_fit",
        "fit a model to a table",
        f"Fit SuMo-net, or another estimator, to a table. {_TABLES} {_ON_DISK}",
        (
            *_METHOD,
            *_TABLE,
            _STREAM,
            ("--n-members", _COUNT, "number of networks; by default, chosen by the estimator"),
            ("--refit", _SWITCH, "train again on all rows after early stopping"),
            ("--checkpoint", _FOLDER, "folder for checkpoints; the same command resumes a killed fit"),
            ("--checkpoint-seconds", _SECONDS | {"default": 30.0}, "minimum time between checkpoints"),
        ),
        ("outcome", "cluster"),
    ),
    "search": Command(
        "sumosurv.cli.fit:run_search",
        "tune the settings of a network estimator",
        "Train networks with different settings, rank them by validation likelihood, and write a mixture of the best. "
        f"Settings given as options stay fixed. {_TABLES}",
        (
            *_METHOD,
            *_TABLE,
            ("--trials", _COUNT | {"default": 100}, "number of settings to try"),
            ("--proposals", _choice("random", "tpe", "halving") | {"default": "random"}, "how settings are proposed"),
            ("--space", _choice("paper", "recipe") | {"default": "paper"}, "search space; see docs/tuning.md"),
            ("--cv", {"type": int, "metavar": "FOLDS"}, "compare trials by cross-validation with this many folds"),
            ("--storage", {"metavar": "FILE"}, "database of trials, to resume or share a search (extra search)"),
            ("--trials-out", _FILE, "file for a table of all trials"),
        ),
        ("outcome", "cluster"),
    ),
    "predict": Command(
        "sumosurv.cli.predict:run_predict",
        "predict from a model file",
        f"Write one row of predictions for each row of a table, as CSV or Parquet. {_TABLES} {_ON_DISK} In "
        "this case, predictions are written in parts, and the same command resumes a run that was stopped.",
        (
            _MODEL,
            ("data", _PATH, "table with the covariates"),
            *_TABLE,
            ("--out", _FILE, "CSV or Parquet file to write; standard output by default"),
            ("--id", _COLUMNS, "identifier columns to copy to the output"),
            ("--times", _TIMES, "survival probabilities, and the incidence of each cause, at these times"),
            ("--quantiles", _TIMES | {"metavar": "Q,Q,..."}, "quantiles of the event time; 0.5 is the median"),
            ("--mean", _SWITCH, "mean event time, and the mean restricted to the last training time"),
            ("--restricted-mean", {"type": float, "metavar": "HORIZON"}, "mean event time restricted to a horizon"),
            ("--risk", _SWITCH, "risk score; higher means earlier events"),
            (
                "--precision",
                _choice("single", "double") | {"default": "single"},
                "single: about six correct digits; double: the same values as in Python, but slower",
            ),
            _STREAM,
            _QUIET,
        ),
        ("cluster",),
        "Without options, the output contains the risk score, the mean, the quartiles and the mean restricted to the "
        "last training time. The column 'extrapolated' lists the predictions that depend on times beyond the last "
        "training time: probabilities and quantiles at later times, and means if later times contribute more than 1%.",
    ),
    "evaluate": Command(
        "sumosurv.cli.predict:run_evaluate",
        "score a model file on a table",
        f"Print scores of a model on a table, with bootstrap confidence intervals. {_ON_DISK}",
        (
            _MODEL,
            _DATA,
            *_TABLE,
            ("--scores", {"nargs": "+", "metavar": "NAME"}, "scores to compute, from the list below"),
            ("--times", _TIMES, "times at which to compute scores such as the Brier score"),
            (
                "--against",
                _MODELS,
                "model files to compare with, or kaplan-meier for the Kaplan-Meier curve of the training rows; "
                "differences have paired bootstrap intervals",
            ),
            (
                "--censoring",
                _choice("auto", "marginal") | {"default": "auto"},
                "marginal: weight by one censoring distribution for all rows; auto: also by one given the covariates, "
                "if a test finds that censoring depends on them",
            ),
            ("--range", _TIMES | {"dest": "span", "metavar": "LOW,HIGH"}, "time range of the integrated scores"),
            _BOOTSTRAP,
            ("--out", _FILE, "CSV file for the scores, which are also printed"),
            _STREAM,
            _QUIET,
        ),
        ("outcome", "cluster"),
    ),
    "report": Command(
        "sumosurv.cli.publish:run_report",
        "write a report on a model as one HTML file",
        "Write a report as one HTML file: data, performance, risk groups, what drives the predictions, example "
        "subjects, limitations, settings and versions. Use rows that the model was not fitted to.",
        (
            _MODEL,
            _DATA,
            *_TABLE,
            ("--out", _FILE | _REQUIRED, "HTML file to write"),
            ("--against", _MODELS, "model files to compare with, for example a Cox model"),
            ("--times", _TIMES, "horizons of interest; by default the quartiles of the event times"),
            ("--title", _TEXT, "title of the report"),
            _UNIT,
            _CAUSES,
            ("--no-subjects", _SWITCH, "omit the example subjects, which are real rows of the table"),
            _BOOTSTRAP,
            _QUIET,
        ),
        ("outcome",),
    ),
    "serve": Command(
        "sumosurv.cli.publish:run_serve",
        "serve a what-if page and a JSON interface",
        "Serve a what-if page, which draws predicted curves for chosen covariates, and a JSON interface "
        "(/predict, /schema, /health, /openapi.json). Stop it with Ctrl-C.",
        (
            _MODEL,
            (
                "--host",
                {"default": "127.0.0.1"},
                "address to listen on; the default is reachable from this machine only",
            ),
            ("--port", {"type": int, "default": 8000}, "port; 0 for any free port"),
            ("--allow-host", _NAMES, "additional host names that requests may use, such as a proxy's"),
            _UNIT,
            _CAUSES,
            ("--max-rows", _COUNT, "maximum number of subjects per request (default: 1000)"),
            ("--timeout", _SECONDS, "time limit of a request (default: 10.0)"),
            ("--verbose", _SWITCH, "log every request"),
        ),
        epilog="There is no login: anyone who can reach the address can query the model.",
    ),
    "export": Command(
        "sumosurv.cli.publish:run_export",
        "export a model file to ONNX or torch",
        "Export a model so that programs without this library can run it.",
        (
            _MODEL,
            ("--out", _FILE | _REQUIRED, "file to write: .onnx, or .pt2 for torch"),
            (
                "--precision",
                _choice("double", "single") | {"default": "double"},
                "floating-point precision of the networks",
            ),
        ),
    ),
    "datasets": Command(
        "sumosurv.cli.publish:run_datasets",
        "list the datasets, or write one to a file",
        "List the datasets, or write one to a file.",
        (
            (
                "name",
                {"nargs": "?", "metavar": "NAME"},
                "gbsg2, flchain, support, metabric, gbsg, whas, weibull, checkerboard, normal or kkbox",
            ),
            ("--out", _FILE, "CSV or Parquet file to write"),
            ("--rows", _COUNT | {"default": 25_000}, "number of rows of a simulated dataset"),
            ("--seed", {"type": int, "default": 0}, "random seed of a simulated dataset"),
        ),
    ),
}

# ---------------------------------------------------------------------- the parser


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="sumosurv", description="Fit, evaluate and deploy survival models.")
    parser.add_argument("--version", action="version", version=f"sumosurv {__version__}")
    parser.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        own = commands.add_parser(
            name,
            help=command.summary,
            description=command.description,
            epilog=command.epilog,
            formatter_class=_Help,
            add_help=False,
        )
        own.add_argument("-h", "--help", action=_ShowHelp, nargs=0, help="show this help message and exit")
        _add(own, command.options)
        for title in command.groups:
            options, note = _GROUPS[title]
            _add(own.add_argument_group(title, note), options)
    return parser


def _add(parser: Any, options: Options) -> None:
    for name, kind, text in options:
        parser.add_argument(name, help=text, **kind)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that shows the default of an option, if it has an informative one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default is None or action.default is False or action.default in ([], "", argparse.SUPPRESS)
        return action.help if silent or action.help is None else f"{action.help} (default: %(default)s)"


class _ShowHelp(argparse.Action):
    """Show help; that of ``evaluate`` ends with the table of scores, which is imported only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        if parser.prog.endswith("evaluate"):
            from sumosurv.scores import SCORES

            lines = [f"  {name:36s}{score.in_short}" for name, score in SCORES.items()]
            head = "scores (G: the distribution of the censoring times, estimated from the table):"
            parser.epilog = "\n".join([head, *lines])
        parser.print_help()
        parser.exit()
