"""What all tests share: one thread, no figures left open, and where the real data are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if "SUMOSURV_TEST_CUDA" not in os.environ:  # tests ask for the same bits everywhere: those for GPUs are in tests/cuda
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
# Tests run in one process per core, so threads of BLAS and OpenMP would only wait for one another. Read when NumPy
# and torch are imported, and by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pandas as pd
import pytest
import torch

from fuzz.bench import Bench

_NAMED = os.environ.get("SUMOSURV_DATA")  # read before any test changes the environment

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """No test leaves figures to the next one: matplotlib warns of too many."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    """A process with little memory that opens files."""
    made = Bench()
    yield made
    made.close()


@pytest.fixture
def coarse_solutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differential equations are solved in an eighth of the steps, for tests that do not ask how exactly."""
    monkeypatch.setattr("sumosurv.distributions.ode._MIN_STEPS", 8)
    monkeypatch.setattr("sumosurv.distributions.ode._MAX_STEPS", 16)


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks train for two epochs at most, for pages whose code is to run, however well."""
    from dataclasses import replace

    from sumosurv.fitting.plan import FitPlan

    whole = FitPlan.schedule

    def short(self: FitPlan, n_rows: int) -> Any:
        made = whole(self, n_rows)
        return replace(made, max_epochs=min(made.max_epochs, 2))

    monkeypatch.setattr(FitPlan, "schedule", short)


@pytest.fixture
def lifelines() -> Any:
    """An oracle that is not there where pandas is newer than it allows."""
    return pytest.importorskip("lifelines", reason="lifelines, this test's oracle, is not installed")


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the real datasets ($SUMOSURV_DATA, else ../shared/data beside the repository), or a skip."""
    folder = Path(_NAMED) if _NAMED else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "folds.npz").is_file():
        pytest.skip(f"no real data: set SUMOSURV_DATA, or put the Parquet files and folds.npz in {folder}")
    monkeypatch.setenv("SUMOSURV_DATA", str(folder))
    return folder


@pytest.fixture
def outcome_data(real_data: Path) -> Callable[[str], pd.DataFrame]:
    """Reads a table with a richer outcome (entry, intervals, causes) by its name, or skips."""

    def read(name: str) -> pd.DataFrame:
        path = real_data / "outcomes" / f"{name}.parquet"
        if not path.is_file():
            pytest.skip(f"no real data: {path} is not there")
        return pd.read_parquet(path)

    return read
