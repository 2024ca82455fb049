"""The command line: ``sumosurv fit | search | predict | evaluate | export | datasets``.

To add a command: its arguments in `parser.py`, a function of them that returns an exit code, and a line in `COMMANDS`.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from sumosurv.cli.parser import make_parser

__all__ = ["COMMANDS", "main"]

# where the function of each command is: loaded when the command is run, so that help does not wait for torch
COMMANDS = {
    "fit": "sumosurv.cli.fit:run_fit",
    "search": "sumosurv.cli.fit:run_search",
    "predict": "sumosurv.cli.predict:run_predict",
    "evaluate": "sumosurv.cli.evaluate:run_evaluate",
    "export": "sumosurv.cli.files:run_export",
    "datasets": "sumosurv.cli.files:run_datasets",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit code: 0 done, 1 the data or the model is at fault, 2 wrong usage, 130 interrupted by Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["reproduce"]:
        command = shlex.join(["python", "-m", "paper", *words[1:]])
        print(
            f"sumosurv reproduce: the paper's tables and figures are made by `{command}`, "
            "at the top of a clone of the repository.",
            file=sys.stderr,
        )
        return 2
    parser = make_parser()
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return 2
    try:
        with _plain_warnings(arguments.command):
            module, function = COMMANDS[arguments.command].split(":")
            return int(getattr(import_module(module), function)(arguments))
    except KeyboardInterrupt:
        out = getattr(arguments, "out", None)
        kept = "" if out is None else f"; {out} was not written"
        print(f"sumosurv {arguments.command}: interrupted{kept}.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError) as error:
        if arguments.traceback:
            raise
        print(f"sumosurv {arguments.command}: {error}", file=sys.stderr)
        return 1


@contextmanager
def _plain_warnings(command: str) -> Iterator[None]:
    """Warnings in one line each, without the code that gave them."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"sumosurv {command}: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
