"""The command ``sumosurv serve``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sumosurv.serve.limits import Limits

__all__ = ["add_arguments", "run"]

_HERE = ("127.0.0.1", "localhost", "::1")


def add_arguments(commands: Any, help_style: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "serve",
        help="serve a what-if page and a JSON interface",
        description="Serve a model file: a page on which covariates are set and predicted curves are drawn, and a JSON "
        "interface (/predict, /schema, /health, /openapi.json). Stop it with Ctrl-C.",
        epilog="There is no login: anyone who can reach the address can query the model.",
        formatter_class=help_style,
    )
    parser.add_argument("model", type=Path, help="model file")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at; the default is reachable from this machine only"
    )
    parser.add_argument("--port", type=int, default=8000, help="port; 0 for any that is free")
    parser.add_argument(
        "--allow-host",
        nargs="+",
        default=[],
        metavar="NAME",
        help="host names that browsers may use to reach it, if other machines may",
    )
    parser.add_argument("--unit", default="", help="unit of time, for labels: days, months, ...")
    parser.add_argument("--causes", nargs="+", metavar="NAME", help="names of the causes, in order")
    parser.add_argument(
        "--max-rows", type=int, default=Limits().rows, metavar="N", help="largest number of subjects in a request"
    )
    parser.add_argument(
        "--timeout", type=float, default=Limits().seconds, metavar="SECONDS", help="time limit of a request"
    )
    parser.add_argument("--verbose", action="store_true", help="log every request")
    parser.set_defaults(out=None)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    from sumosurv.io import load
    from sumosurv.serve import serve

    limits = Limits(rows=arguments.max_rows, seconds=arguments.timeout)
    model = load(arguments.model)

    def tell(address: str) -> None:
        print(f"{arguments.model} is served at {address} (stop with Ctrl-C)", flush=True)
        if arguments.host not in _HERE:
            print("There is no login: anyone who can reach this address can query the model.", flush=True)

    serve(
        model,
        host=arguments.host,
        port=arguments.port,
        hosts=arguments.allow_host,
        log_level="info" if arguments.verbose else "warning",
        on_start=tell,
        name=arguments.model.stem,
        unit=arguments.unit,
        causes=arguments.causes,
        limits=limits,
    )
    return 0
