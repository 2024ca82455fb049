"""``sumosurv report``."""

from __future__ import annotations

import argparse

from sumosurv.cli.evaluate import other_model
from sumosurv.cli.rows import check_target, for_model, outcome_of, read
from sumosurv.io import load
from sumosurv.report import command

__all__ = ["run_report"]


def run_report(arguments: argparse.Namespace) -> int:
    """Write the report of a model file on a table."""
    check_target(arguments.out, arguments.model, arguments.data, *arguments.against)
    frame, model = read(arguments.data, arguments), load(arguments.model)
    y = outcome_of(frame, arguments, causes=model.n_causes_)
    against = dict(other_model(other, model, frame, len(y)) for other in arguments.against)
    return command.run(arguments, model, for_model(frame, model), y, against)
