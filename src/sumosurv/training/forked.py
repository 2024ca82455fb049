"""Objects in forked processes: one call asks all of them at once."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

import torch

from sumosurv.networks import TrainingError


def can_fork() -> bool:
    """Whether a forked process can train networks: on Linux, if torch has no GPU, whose threads do not survive."""
    return sys.platform == "linux" and not torch.cuda.is_available()


class Forked:
    """Objects that live in one forked process each; leaving the context ends the processes.

    The processes share the memory of this one as it was when they were forked. Errors in them are raised here. Ctrl-C
    reaches this process alone: the call is given up, its answers are dropped by the next call, and the objects remain
    usable.

    Parameters
    ----------
    makers : sequence of callable
        Each makes one of the objects, in its process.
    """

    def __init__(self, makers: Sequence[Callable[[], Any]]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        self._asked: list[Connection] = []  # those whose answers have not been read
        for make in makers:
            here, there = context.Pipe()
            self._pipes.append(here)
            process = context.Process(target=_serve, args=(make, there, tuple(self._pipes)), daemon=True)
            with warnings.catch_warnings():  # Python warns of threads, which the child does not use
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            there.close()
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in zip(self._pipes, self._processes):
            process.terminate()
            process.join()
            pipe.close()

    def ask(self, method: str, *arguments: Sequence[Any]) -> list[Any]:
        """Call a method of all objects at once; each argument has one value per object."""
        while self._asked:
            self._answer(self._asked[0])
        for pipe, own in zip(self._pipes, zip(*arguments) if arguments else [()] * len(self._pipes)):
            pipe.send((method, own))
            self._asked.append(pipe)
        return [self._answer(pipe) for pipe in self._pipes]

    def _answer(self, pipe: Connection) -> Any:
        wait([pipe])  # Ctrl-C comes here, and not while a message is read
        self._asked.remove(pipe)
        try:
            value, error = pipe.recv()
        except EOFError:
            raise TrainingError(
                "A training process was killed, possibly because memory was exhausted; use a smaller n_jobs."
            ) from None
        if error is not None:
            raise error
        return value


def _serve(make: Callable[[], Any], pipe: Connection, others: Sequence[Connection]) -> None:
    """Answer calls until the other end is closed, with one thread of torch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:  # ends of the parent, which would keep this process from noticing that the parent is gone
        other.close()
    torch.set_num_threads(1)
    made = None
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        value, failure = None, None
        try:
            made = make() if made is None else made
            value = getattr(made, method)(*arguments)
        except Exception as error:
            error.add_note(traceback.format_exc())
            failure = error
        pipe.send((value, failure))
