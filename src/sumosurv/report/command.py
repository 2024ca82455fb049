"""The command ``sumosurv report``: its arguments, and the file that it writes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["add_arguments", "run"]


def add_arguments(
    commands: Any, parents: Sequence[Any], numbers: Callable[[str], list[float]], help_style: Any
) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "report",
        parents=list(parents),
        help="write a report on a model as one HTML file",
        description="Write a report as one HTML file: data, performance, risk groups, what drives the predictions, "
        "example subjects, limitations, settings and versions. Give rows that were not used to fit the model.",
        formatter_class=help_style,
    )
    parser.add_argument("model", type=Path, help="model file")
    parser.add_argument("data", type=Path, help="table with covariates and outcome")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="HTML file to write")
    parser.add_argument(
        "--against", nargs="+", default=[], metavar="MODEL", help="model files to compare with, for example a Cox model"
    )
    parser.add_argument(
        "--times",
        type=numbers,
        metavar="T,T,...",
        help="horizons of interest; by default the quartiles of the event times",
    )
    parser.add_argument("--title", default="", help="title of the report")
    parser.add_argument("--unit", default="", help="unit of time, for labels: days, months, ...")
    parser.add_argument("--causes", nargs="+", metavar="NAME", help="names of the causes, in order")
    parser.add_argument(
        "--no-subjects", action="store_true", help="leave out the example subjects, which are rows of the table"
    )
    parser.add_argument(
        "--bootstrap", type=int, default=200, metavar="N", help="bootstrap resamples; 0 for no intervals"
    )
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
