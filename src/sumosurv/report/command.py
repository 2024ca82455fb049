"""The command ``sumosurv report``: its arguments, and the file that it writes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["add_arguments", "run"]


def add_arguments(commands: Any, parents: Sequence[Any], numbers: Callable[[str], list[float]]) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "report",
        parents=list(parents),
        help="one HTML file about a model on a table, for people who decide",
        description="Write one HTML file: what the data are, how good the model is, whom it separates, what drives it, "
        "three subjects, limits, settings and versions. Give rows that the model was not fitted to.",
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path, help="table with covariates and outcome")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="HTML file to write")
    parser.add_argument(
        "--against", nargs="+", default=[], metavar="MODEL", help="model files to compare with, a Cox model for example"
    )
    parser.add_argument("--times", type=numbers, metavar="T,T,...", help="horizons that matter")
    parser.add_argument("--title", default="", help="of the report")
    parser.add_argument("--unit", default="", help="of time, for labels: days, months, ...")
    parser.add_argument("--causes", nargs="+", metavar="NAME", help="names of the causes, in order")
    parser.add_argument("--no-subjects", action="store_true", help="show no rows of the table as examples")
    parser.add_argument("--bootstrap", type=int, default=200, metavar="N", help="resamples; 0 for no intervals (200)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace, model: Any, X: Any, y: Any, against: dict[str, Any]) -> int:
    """Make the report and write it."""
    from sumosurv.report.making import make_report

    report = make_report(
        model,
        X,
        y,
        against=against,
        times=arguments.times,
        title=arguments.title,
        name=arguments.model.stem,
        unit=arguments.unit,
        causes=arguments.causes,
        subjects=not arguments.no_subjects,
        n_bootstrap=arguments.bootstrap,
        verbose=not arguments.quiet,
    )
    report.save(arguments.out)
    print(f"Report written to {arguments.out} ({arguments.out.stat().st_size / 1e6:.2f} MB)")
    return 0
