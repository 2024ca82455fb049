"""The command line, ``sumosurv COMMAND``; `parser.py` lists the commands."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from sumosurv.cli.parser import COMMANDS, make_parser

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit code: 0 success, 1 an error in the data or the model, 2 wrong usage, 130 interrupted by Ctrl-C.
    """
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 2
    try:
        with _plain_warnings(arguments.command):
            module, function = COMMANDS[arguments.command].function.split(":")
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
    """Print each warning on one line, without the code that issued it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"sumosurv {command}: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
