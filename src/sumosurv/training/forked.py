"""Objects in forked processes, whose methods are called in parallel."""

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
    """Whether a forked process can train networks: on Linux without a GPU, because CUDA does not survive a fork."""
    return sys.platform == "linux" and not torch.cuda.is_available()


class Forked:
    """Objects in one forked process each; leaving the context ends the processes.

    The processes inherit the memory of this process. Their errors are raised here. Ctrl-C interrupts only this process:
    the next call discards the results of the interrupted call, and the objects remain usable.

    Parameters
    ----------
    makers : sequence of callable
        Each creates one of the objects, in its process.
    """

    def __init__(self, makers: Sequence[Callable[[], Any]]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        self._asked: list[Connection] = []  # pipes with unread results
        for make in makers:
            here, there = context.Pipe()
            self._pipes.append(here)
            process = context.Process(target=_serve, args=(make, there, tuple(self._pipes)), daemon=True)
            with warnings.catch_warnings():  # Python warns about threads, which the child does not use
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
        """Call a method of all objects in parallel; each argument has one value per object."""
        self.begin(method, *arguments)
        return self.end()

    def begin(self, method: str, *arguments: Sequence[Any]) -> None:
        """Call a method of all objects without waiting for the results."""
        while self._asked:
            self._answer(self._asked[0])
        for pipe, own in zip(self._pipes, zip(*arguments) if arguments else [()] * len(self._pipes)):
            pipe.send((method, own))
            self._asked.append(pipe)

    def end(self) -> list[Any]:
        """Return the results of the last call."""
        return [self._answer(pipe) for pipe in self._pipes]

    def _answer(self, pipe: Connection) -> Any:
        wait([pipe])  # Ctrl-C interrupts this wait, not the reading of a message
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
    """Run method calls until the other end is closed, with one torch thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:  # with these ends of the parent open, its death would go unnoticed
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
