"""Time and memory of SuMo-net on a CPU for the simulated KKBOX at full size, read in blocks from a Parquet file."""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paper.record import make_record, save_record
from paper.scoring import Fold, scored
from sumosurv import SumoNet, datasets, load

__all__ = ["ROWS", "in_words", "run", "show"]

ROWS = 2_646_746
_QUICK_ROWS = 20_000
_OUTCOME = {"time": "time", "event": "event"}
_CUSTOMER = "customer"  # the column of a row's customer, whose rows stay together


def run(out: Path, *, seed: int = 0, quick: bool | None = None) -> dict[str, Any]:
    """Write training and validation rows to a file, fit to it in a separate process, score the test rows.

    Writes ``kkbox_streamed.json`` under ``out`` and returns the record.
    """
    rows = _QUICK_ROWS if quick else ROWS
    settings = {"n_members": 2, "max_epochs": 1 if quick else 3, "random_state": seed, "device": "cpu"}
    fold = Fold.simulated(rows, 0)
    customer = datasets.simulate("kkbox", rows, random_state=0).customer
    both = np.sort(np.concatenate([fold.train, fold.valid]))
    with tempfile.TemporaryDirectory() as folder:
        table, model_file = Path(folder) / "rows.parquet", Path(folder) / "model.sumo"
        frame = fold.X.iloc[both].assign(time=fold.y["time"][both], event=fold.y["event"][both])
        frame.assign(**{_CUSTOMER: None if customer is None else customer[both]}).to_parquet(
            table, index=False, row_group_size=50_000
        )
        size = table.stat().st_size
        # a fresh process, so that its memory is its own
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            fitted = pool.submit(_fit, table, model_file, settings).result()
        model = load(model_file)
    scores = scored(model.predict_distribution(fold.X_test), fold)
    configuration = {"rows": rows, "fold": 0, "file_bytes": size, "settings": settings}
    record = make_record("kkbox_streamed", configuration, fitted | {"scores": scores, "truth": fold.truth()})
    save_record(record, out)
    show(record)
    return record


def show(record: dict[str, Any]) -> None:
    """Print the record."""
    print(in_words(record))


def in_words(record: dict[str, Any]) -> str:
    """What was run, and what came out."""
    own, found = record["configuration"], record["results"]
    scores, truth = found["scores"], found["truth"]["S_L_interval"]
    settings = own["settings"]
    return (
        f"{settings['n_members']} networks of SuMo-net with default settings were also trained from a Parquet file "
        f"read in blocks ({own['rows']:,} rows in all): {settings['max_epochs']} epochs took "
        f"{found['seconds'] / 60:.0f} minutes ({found['cpu_seconds'] / 60:.0f} minutes of processor time, threads: "
        f"{found['threads']}) and at most {found['peak_bytes'] / 2**30:.1f} GiB of memory. Scores: S_L "
        f"{scores['S_L']:.4f}, IBLL {scores['IBLL']:.4f}, IBS {scores['IBS']:.4f}, Ctd {scores['Ctd']:.4f}; S_L of "
        f"the day {scores['S_L_interval']:.4f}, {truth - scores['S_L_interval']:.4f} behind the truth."
    )


def _fit(table: Path, model_file: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Fit to a file; seconds and peak memory of this process."""
    threads = min(2, torch.get_num_threads())
    torch.set_num_threads(threads)
    begun, busy = time.perf_counter(), time.process_time()
    model = SumoNet(**settings).fit(table, _OUTCOME, groups=_CUSTOMER)
    spent, used = time.perf_counter() - begun, time.process_time() - busy
    model.save(model_file)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": spent, "cpu_seconds": used, "peak_bytes": peak, "threads": threads}
