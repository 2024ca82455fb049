"""``sumosurv report``, ``serve``, ``export`` and ``datasets``."""

from __future__ import annotations

import argparse

from sumosurv import datasets, report, serve
from sumosurv.cli.options import check_target, for_model, read_source
from sumosurv.cli.predict import load_models
from sumosurv.datasets.simulated import NAMES
from sumosurv.estimators import load
from sumosurv.export import export_onnx, export_torch
from sumosurv.sources import write_table

_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def run_report(arguments: argparse.Namespace) -> int:
    """Write the report of a model file on a table."""
    check_target(arguments.out, arguments.model, arguments.data, *arguments.against)
    models = load_models(arguments)
    model = next(iter(models.values()))
    frame, y = read_source(arguments.data, arguments, n_causes=model.n_causes_, whole=True).whole("a report")
    others = {name: other for name, other in models.items() if other is not model}
    made = report.make_report(
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
    made.save(arguments.out)
    print(f"Report written to {arguments.out} ({arguments.out.stat().st_size / 1e6:.2f} MB)")
    return 0


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve a model file until Ctrl-C."""
    given = {"rows": arguments.max_rows, "seconds": arguments.timeout}
    limits = serve.Limits(**{name: value for name, value in given.items() if value is not None})

    def announce(address: str) -> None:
        print(f"{arguments.model} is served at {address} (stop with Ctrl-C)", flush=True)
        if arguments.host not in _THIS_MACHINE:
            print("There is no login: anyone who can reach this address can query the model.", flush=True)

    serve.serve(
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


def run_export(arguments: argparse.Namespace) -> int:
    """Export a model file to ONNX or torch."""
    check_target(arguments.out, arguments.model)
    kind = arguments.out.suffix.lower()
    if kind not in (".onnx", ".pt2"):
        raise ValueError(f"--out must end in .onnx (ONNX) or .pt2 (torch); got {arguments.out}.")
    model = load(arguments.model)
    write = export_onnx if kind == ".onnx" else export_torch
    write(model, arguments.out, precision=arguments.precision)
    print(f"{type(model).__name__} written to {arguments.out}")
    return 0


def run_datasets(arguments: argparse.Namespace) -> int:
    """List the datasets, or write one to a file."""
    if arguments.out is not None:
        check_target(arguments.out)
    if arguments.name is None:
        print(datasets.available().to_string(index=False))
        print(f"\nSimulated datasets, with known distributions: {', '.join(NAMES)}.")
        print("Write one to a file: sumosurv datasets NAME --out FILE")
        return 0
    if arguments.name in NAMES:
        made = datasets.simulate(arguments.name, arguments.rows, random_state=arguments.seed)
        frame = made.X.assign(time=made.y["time"], event=made.y["event"].astype(int))
        text = f"{arguments.name}: {len(frame):,} simulated rows, {made.y['event'].mean():.1%} events."
    else:
        known = [*datasets.available()["name"], *NAMES]
        if arguments.name not in known:
            raise ValueError(f"There is no dataset {arguments.name!r}; the names are {', '.join(known)}.")
        data = datasets.load(arguments.name)
        frame, text = data.frame, data.description
        text += f"\nColumns: --time {data.time_name} --event {data.event_name}"
    print(text)
    if arguments.out is not None:
        write_table([frame], arguments.out)
        print(f"Written to {arguments.out}")
    return 0
