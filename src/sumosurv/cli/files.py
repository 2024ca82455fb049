"""``sumosurv datasets`` and ``sumosurv export``."""

from __future__ import annotations

import argparse

from sumosurv import datasets
from sumosurv.cli.rows import check_target
from sumosurv.export import export_onnx, export_torch
from sumosurv.io import load
from sumosurv.tables import write_table

__all__ = ["run_datasets", "run_export"]


def run_datasets(arguments: argparse.Namespace) -> int:
    """List the datasets, or write one to a file."""
    if arguments.out is not None:
        check_target(arguments.out)
    simulated = ("weibull", "checkerboard", "normal", "kkbox")
    if arguments.name is None:
        print(datasets.available().to_string(index=False))
        print(f"\nSimulated, with their true distribution: {', '.join(simulated)}.")
        print("Write one to a file: sumosurv datasets NAME --out FILE")
        return 0
    if arguments.name in simulated:
        made = datasets.simulate(arguments.name, arguments.rows, random_state=arguments.seed)
        frame = made.X.assign(time=made.y["time"], event=made.y["event"].astype(int))
        text = f"{arguments.name}: {len(frame):,} simulated rows, {made.y['event'].mean():.1%} events."
    else:
        known = [*datasets.available()["name"], *simulated]
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


def run_export(arguments: argparse.Namespace) -> int:
    """Write a model file in a form that other programs run."""
    check_target(arguments.out, arguments.model)
    kind = arguments.out.suffix.lower()
    if kind not in (".onnx", ".pt2"):
        raise ValueError(f"--out names an .onnx file, or a .pt2 file of torch; got {arguments.out}.")
    model = load(arguments.model)
    write = export_onnx if kind == ".onnx" else export_torch
    write(model, arguments.out, precision=arguments.precision)
    print(f"{type(model).__name__} written to {arguments.out}")
    return 0
