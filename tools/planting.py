"""A temporary copy of the repository in which `mutate` changes files and runs tests."""

from __future__ import annotations

import compileall
import math
import os
import py_compile
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["ROOT", "Copy", "preload"]

ROOT = Path(__file__).resolve().parents[1]

_PARTS = (
    "src", "paper", "tests", "tools", "benchmarks", "examples", "results", "docs", "README.md", "CONTRIBUTING.md",
    "CHANGELOG.md", "CITATION.cff", "LICENSE", "pyproject.toml", "Makefile", "constraints.txt",
    "constraints-lowest.txt",
)  # fmt: skip
_HEAVY = (
    "numpy", "scipy.stats", "scipy.interpolate", "pandas", "pyarrow.parquet", "torch", "torch.func", "torch._dynamo",
    "torchdiffeq", "sklearn.model_selection", "sklearn.utils.estimator_checks", "sksurv.ensemble", "safetensors.torch",
    "optuna", "lifelines", "matplotlib.pyplot", "h5py", "tqdm.auto", "pytest",
)  # fmt: skip


def preload() -> None:
    """Import what the tests import, except the library itself, so that a forked child starts quickly."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name in _HEAVY:
        try:
            __import__(name)
        except ImportError:
            continue
    import torch

    torch.set_num_threads(1)
    assert not any(name.partition(".")[0] == "sumosurv" for name in sys.modules)


class Copy:
    """A copy of the repository, whose files are changed and restored."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        for part in _PARTS:
            source, target = ROOT / part, folder / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            elif source.is_file():
                shutil.copy(source, target)
        # compiled files are believed only where the source has not changed
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(folder / "src", quiet=2, invalidation_mode=mode)

    @classmethod
    @contextmanager
    def made(cls) -> Iterator[Copy]:
        """In a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="planted-") as folder:
            yield cls(Path(folder) / "repository")

    @contextmanager
    def changed(self, path: str, text: str) -> Iterator[None]:
        """With another text in one of its files."""
        target = self.root / path
        before = target.read_bytes()
        target.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            target.write_bytes(before)

    def run(self, tests: Sequence[str], limit: float, plugins: Sequence[object] = ()) -> tuple[int | None, str]:
        """pytest's exit code (None past the time limit) and output for some tests, in a child process.

        The limit is one of processor time, so that a busy machine makes no difference; a process that only waits is
        stopped after ten times as long. pytest stops at the first failure, unless there are plugins that look at every
        test.

        `preload` must have been called before; the library must not have been imported.
        """
        log = self.root.parent / "log"
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))
            self._in_child(tests, log, plugins)
        until = time.monotonic() + 10.0 * limit
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                if code not in (-signal.SIGKILL, -signal.SIGXCPU):
                    return code, log.read_text(encoding="utf-8", errors="replace")
                break
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
        return None, log.read_text(encoding="utf-8", errors="replace")

    def _in_child(self, tests: Sequence[str], log: Path, plugins: Sequence[object]) -> None:
        code = 99
        try:
            os.setsid()
            target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(target, 1)
            os.dup2(target, 2)
            os.chdir(self.root)
            source = str(self.root / "src")
            sys.path[:] = [source, *(p for p in sys.path if Path(p or ".").resolve() != ROOT / "src")]
            sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
            os.environ["PYTHONPATH"] = source
            os.environ.setdefault("SUMOSURV_DATA", str(ROOT.parent / "shared" / "data"))  # none beside the copy
            sys.dont_write_bytecode = True
            import pytest

            options = ["-q" if plugins else "-xq", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
            code = int(pytest.main([*options, *tests], plugins=list(plugins)))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
