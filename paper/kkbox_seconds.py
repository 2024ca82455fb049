"""The paper's timing tables on the simulated KKBOX at full size: three fifths for training, one fifth predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paper.record import make_record, save_record
from paper.table7 import show, timed

__all__ = ["METHODS", "run", "show"]

METHODS = ("SumoNet", "CoxTime", "DeepSurv", "CoxCC", "DeepHit", "WeibullNet", "LogNormalNet")
_BATCH = 5000


def run(
    out: Path, *, seed: int = 0, device: str = "cuda", quick: bool = False, methods: Sequence[str] = METHODS
) -> dict[str, Any]:
    """Print the timings, write ``kkbox_seconds.json`` under ``out``, return the record."""
    names = ("kkbox (simulated)",)
    made = timed(names, methods, seed=seed, device=device, quick=quick, repeats=2, batch_size=_BATCH)
    record = make_record("kkbox_seconds", *made)
    save_record(record, Path(out))
    return record
