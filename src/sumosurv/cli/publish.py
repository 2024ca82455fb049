"""``sumosurv report`` and ``sumosurv serve``."""

from __future__ import annotations

import argparse

from sumosurv.cli.evaluate import load_models
from sumosurv.cli.rows import check_target, for_model, outcome_of, read
from sumosurv.io import load
from sumosurv.report import make_report
from sumosurv.serve import Limits, serve

__all__ = ["run_report", "run_serve"]

_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def run_report(arguments: argparse.Namespace) -> int:
    """Write the report of a model file on a table."""
    check_target(arguments.out, arguments.model, arguments.data, *arguments.against)
    frame, models = read(arguments.data, arguments), load_models(arguments)
    model = next(iter(models.values()))
    y = outcome_of(frame, arguments, causes=model.n_causes_)
    others = {name: other for name, other in models.items() if other is not model}
    report = make_report(
        model,
        for_model(frame, model),
        y,
        against={name: other.predict_distribution(for_model(frame, other)) for name, other in others.items()},
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


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve a model file until Ctrl-C."""
    given = {"rows": arguments.max_rows, "seconds": arguments.timeout}
    limits = Limits(**{name: value for name, value in given.items() if value is not None})

    def announce(address: str) -> None:
        print(f"{arguments.model} is served at {address} (stop with Ctrl-C)", flush=True)
        if arguments.host not in _THIS_MACHINE:
            print("There is no login: anyone who can reach this address can query the model.", flush=True)

    serve(
        load(arguments.model),
        host=arguments.host,
        port=arguments.port,
        hosts=arguments.allow_host,
        log_level="info" if arguments.verbose else "warning",
        on_start=announce,
        name=arguments.model.stem,
        unit=arguments.unit,
        causes=arguments.causes,
        limits=limits,
    )
    return 0
