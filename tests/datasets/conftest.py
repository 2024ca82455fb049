"""Where the real data lie for these tests, and a clean environment for each of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
# read before any test changes the environment
_NAMED = os.environ.get("SUMOSURV_DATA")


@pytest.fixture
def real_folder() -> Path:
    """The folder with the Parquet files: $SUMOSURV_DATA, else ../shared/data beside the repository."""
    folder = Path(_NAMED) if _NAMED else _REPOSITORY.parent / "shared" / "data"
    if not (folder / "support.parquet").is_file():
        pytest.skip(f"no real data: set SUMOSURV_DATA, or put the Parquet files in {folder}")
    return folder


@pytest.fixture(autouse=True)
def no_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No data folder, and an empty cache, whose path is returned."""
    cache = tmp_path / "cache"
    monkeypatch.delenv("SUMOSURV_DATA", raising=False)
    monkeypatch.setenv("SUMOSURV_CACHE", str(cache))
    return cache
