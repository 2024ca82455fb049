"""Whether the process that works on a trial is still there: by its id on this machine, by its heartbeat elsewhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

__all__ = ["BEAT", "GRACE", "Heartbeat", "is_gone", "this_process"]

BEAT = 30  # seconds from one sign of life to the next
GRACE = 180  # seconds without one after which a trial is taken for abandoned


def this_process() -> str:
    """A name for this process that no other has, on any machine; empty where the system does not tell (not Linux)."""
    return _name(os.getpid())


def is_gone(process: str) -> bool:
    """Whether a process is known to have ended; False also of what cannot be seen from here."""
    here, _, _ = this_process().rpartition("/")
    there, _, pid_and_start = process.rpartition("/")
    if not process or there != here:
        return False
    pid = int(pid_and_start.split(":")[0])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it is somebody else's
        return False
    return _name(pid) != process


def _name(pid: int) -> str:
    """Boot, space of process ids, id and start of a process; empty of one that has ended or cannot be seen."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = Path("/proc/self/ns/pid").readlink()
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else f"{boot}/{space}/{pid}:{fields[18]}"


class Heartbeat:
    """A thread that gives a sign of life of every trial in work, until it is stopped.

    Parameters
    ----------
    beat : callable
        Gives the sign of one trial, by its id in the storage.
    leave : callable
        Called by the thread at its end and after every round of signs.
    """

    def __init__(self, beat: Callable[[int], None], leave: Callable[[], None]) -> None:
        self._beat, self._leave = beat, leave
        self._trials: set[int] = set()
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, trial: int) -> None:
        """A first sign at once, others in turn."""
        self._beat(trial)
        with self._lock:
            self._trials.add(trial)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sumosurv heartbeat", daemon=True)
            self._thread.start()

    def remove(self, trial: int) -> None:
        """No more signs of this one."""
        with self._lock:
            self._trials.discard(trial)

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(BEAT):
            with self._lock:
                trials = sorted(self._trials)
            for trial in trials:
                if self._end.is_set():
                    break
                try:
                    self._beat(trial)
                except Exception:  # the database is away or busy: the next sign may get through
                    continue
            self._leave()
