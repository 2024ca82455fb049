"""Self-contained JSON records of experiments, and their pictures."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from sumosurv import __version__

__all__ = ["current_commit", "load_record", "make_record", "save_figure", "save_record"]

_LIBRARIES = ("numpy", "scipy", "pandas", "scikit-learn", "torch")


def current_commit() -> str:
    """The commit of the code that runs, with a plus sign if Python files differ from it; $SUMOSURV_COMMIT if set.

    An empty string outside a git checkout.
    """
    if named := os.environ.get("SUMOSURV_COMMIT"):
        return named
    place: dict[str, Any] = {"cwd": Path(__file__).parent, "capture_output": True, "text": True}
    commit: str = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], **place).stdout.strip()
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ":/*.py"], **place).returncode == 1
    return commit + "+" * changed


def make_record(name: str, configuration: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """What was run, with what, where, and what came out."""
    return {
        "experiment": name,
        "configuration": dict(configuration),
        "commit": current_commit(),
        "versions": {
            "sumosurv": __version__,
            "python": platform.python_version(),
            **{library: metadata.version(library) for library in _LIBRARIES},
        },
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "results": dict(results),
    }


def save_record(record: Mapping[str, Any], out: Path) -> Path:
    """Write a record to ``out/<experiment>.json``; infinite and missing numbers become the strings inf, -inf, nan."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{record['experiment']}.json"
    path.write_text(json.dumps(_plain(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def load_record(path: Path) -> dict[str, Any]:
    """Read a record that `save_record` wrote; infinite and missing numbers are numbers again."""
    record: dict[str, Any] = _numbers(json.loads(path.read_text(encoding="utf-8")))
    return record


def save_figure(figure: Any, out: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG, the same bytes for the same figure."""
    import matplotlib as mpl

    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.png", out / f"{name}.svg"]
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(paths[0], dpi=150, bbox_inches="tight")
        figure.savefig(paths[1], bbox_inches="tight", metadata={"Date": None})
    return paths


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
