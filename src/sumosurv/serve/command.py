"""The command ``sumosurv serve``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

__all__ = ["add_arguments", "run"]

_HERE = ("127.0.0.1", "localhost", "::1")


def add_arguments(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "serve",
        help="a page to set covariates and see curves, and a JSON interface",
        description="Serve a model file as a page in which covariates are set and curves are seen, and as a JSON "
        "interface (/predict, /schema, /health, /openapi.json). Ctrl-C ends it.",
        epilog="There is no login: whoever reaches the address can ask the model.",
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s: this machine alone)")
    parser.add_argument("--port", type=int, default=8000, help="port; 0 for any that is free (%(default)s)")
    parser.add_argument(
        "--allow-host",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names under which browsers reach it, if that is not this machine alone",
    )
    parser.add_argument("--unit", default="", help="of time, for labels: days, months, ...")
    parser.add_argument("--causes", nargs="+", metavar="NAME", help="names of the causes, in order")
    parser.add_argument("--max-rows", type=int, metavar="N", help="most subjects of a request (1000)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="most time for a request (10)")
    parser.add_argument("--verbose", action="store_true", help="log every request")
    parser.set_defaults(out=None)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    from sumosurv.io import load
    from sumosurv.serve import Limits, serve

    given = {"rows": arguments.max_rows, "seconds": arguments.timeout}
    limits = Limits(**{name: value for name, value in given.items() if value is not None})
    model = load(arguments.model)

    def tell(address: str) -> None:
        print(f"{arguments.model} is served at {address} (Ctrl-C ends it)", flush=True)
        if arguments.host not in _HERE:
            print("There is no login: whoever reaches this address can ask the model.", flush=True)

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
