"""``sumosurv report``."""

from __future__ import annotations

import argparse

from sumosurv.cli.evaluate import load_models
from sumosurv.cli.rows import check_target, for_model, outcome_of, read
from sumosurv.report import command

__all__ = ["run_report"]


def run_report(arguments: argparse.Namespace) -> int:
    """Write the report of a model file on a table."""
    check_target(arguments.out, arguments.model, arguments.data, *arguments.against)
    frame, models = read(arguments.data, arguments), load_models(arguments)
    model = next(iter(models.values()))
    y = outcome_of(frame, arguments, causes=model.n_causes_)
    against = {
        name: other.predict_distribution(for_model(frame, other))
        for name, other in models.items()
        if other is not model
    }
    return command.run(arguments, model, for_model(frame, model), y, against)
