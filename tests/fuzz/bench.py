"""A worker process that opens files, and the patience with which it is waited for."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

LONG = os.environ.get("SUMOSURV_FUZZ")  # number of examples; `make fuzz`

FUZZ = settings(
    max_examples=int(LONG or 100),
    derandomize=LONG is None,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

ROOT = Path(__file__).parents[2]
SECONDS = 60.0  # for one file; some take half a second on a busy machine


class Bench:
    """Hands files to a worker; one that crashes or hangs fails the test, and the next file gets a new worker."""

    def __init__(self) -> None:
        self.worker: subprocess.Popen[str] | None = None

    def open(self, task: str, path: Path) -> dict[str, Any]:
        """How a task of the worker ended; "crash" or "hang" where it did not."""
        if self.worker is None:
            self._start()
        assert self.worker is not None
        assert self.worker.stdin is not None
        self.worker.stdin.write(json.dumps({"task": task, "path": str(path)}) + "\n")
        self.worker.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the worker."""
        if self.worker is not None:
            self.worker.kill()
            self.worker.communicate()
            self.worker = None

    def _start(self) -> None:
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        self.worker = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"},
        )
        ready = self._answer()
        assert ready["end"] == "ready", ready

    def _answer(self) -> dict[str, Any]:
        assert self.worker is not None
        assert self.worker.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.worker.stdout, selectors.EVENT_READ)
            line = self.worker.stdout.readline() if selector.select(SECONDS) else None
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = self.worker.poll()
        self.close()
        return {"end": "hang"} if line is None else {"end": "crash", "code": code}
