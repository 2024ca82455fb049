"""The neutral comparison of Burk et al.: 34 tables, 750 published folds, the published scores of 21 learners.

Runs estimators on the folds of *A Large-Scale Neutral Comparison Study of Survival Models on Low-Dimensional Data*
(arXiv 2406.04098) and scores them as mlr3proba does, so that the results stand beside the published ones:

- ISBS: at the distinct test times up to the first at which more than 80 % of the test rows are no longer at risk, the
  squared error of S(t), weighted by 1/G(t) for rows still at risk and by 1/G(T) for events; G is the Kaplan-Meier
  curve of the censoring times of the training rows, and 0.001 where it is zero. Mean over the rows, trapezoid over
  time, divided by the range of the times.
- ISLL: the same with -log(p) in place of the squared error, p at least 0.001.
- C: Harrell's concordance of the sum of the cumulative hazard over the training event times.

    python benchmarks/neutral.py --methods "current default" --jobs 16 --out results  # all folds that are not there yet
    python benchmarks/neutral.py --methods Cox --sample 100 --out results      # a random 100 of the 750 folds
    python benchmarks/neutral.py --methods none --out results --page docs      # docs/neutral.md and its picture

Results are appended to ``neutral_<method>.jsonl`` fold by fold, and a run continues where the file ends. The tables are
read from ``neutral`` in ``$SUMOSURV_DATA`` or ../shared/data. Each fit uses one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from _measure import machine
from _record import current_commit
from _zoo_fits import METHODS as PEERS
from _zoo_fits import Method, fit_ours

import sumosurv
from sumosurv import CoxPH, KaplanMeier, ParametricRegression, SumoNet, Surv

SHARE_OBSERVED = 0.8  # scores stop once more than this share of the test rows is no longer at risk
LEAST = 0.001  # of the censoring curve, and of probabilities inside a logarithm
SCORES = {"isbs": "ISBS", "isll": "ISLL", "harrell_c": "C"}


# ------------------------------------------------------------------ methods


def _default(seed):
    return Method(lambda: SumoNet(random_state=seed, device="cpu"), True, fit_ours)


# Each makes the entry for a fold, whose number is the seed. Peers are those of zoo.py. The results of "SumoNet" are of
# the default at 5adda12, which was fixed before it was first run; "current default" is the default after later changes.
METHODS = {
    "SumoNet": _default,
    "current default": _default,
    "Kaplan-Meier": lambda seed: Method(KaplanMeier, False, fit_ours),
    "Cox": lambda seed: Method(CoxPH, False, fit_ours),
    "Weibull regression": lambda seed: Method(ParametricRegression, True, fit_ours),
    "penalised Cox": lambda seed: PEERS["penalised Cox"],
    "random forest": lambda seed: PEERS["random forest"],
    "gradient boosting": lambda seed: PEERS["gradient boosting"],
}


# ------------------------------------------------------------------ scores


def censoring_curve(time, event):
    """Kaplan-Meier of the censoring times: sorted distinct times, and G just after each."""
    times, place = np.unique(time, return_inverse=True)
    censored = np.bincount(place, weights=1.0 - event)
    at_risk = len(time) - np.concatenate([[0.0], np.cumsum(np.bincount(place))[:-1]])
    return times, np.cumprod(1.0 - censored / at_risk)


def score_times(time):
    """The distinct test times up to the first at which more than 80 % are no longer at risk."""
    times, counts = np.unique(time, return_counts=True)
    at_risk = len(time) - np.concatenate([[0], np.cumsum(counts)[:-1]])
    late = np.flatnonzero(1.0 - at_risk / len(time) > SHARE_OBSERVED)
    return times[: late[0] + 1] if len(late) else times


def integrated_scores(survival, times, time, event, training):
    """ISBS and ISLL of S(t|x), an array (rows, times), on test rows."""
    knots, values = censoring_curve(*training)

    def weight(t):
        found = np.concatenate([[1.0], values])[np.searchsorted(knots, t, side="right")]
        return 1.0 / np.where(found == 0.0, LEAST, found)

    alive = time[:, None] > times
    failed = (time[:, None] <= times) & (event[:, None] == 1)
    of_alive, of_failed = alive * weight(times), failed * weight(time)[:, None]
    squared = of_alive * (1.0 - survival) ** 2 + of_failed * survival**2
    logs = -of_alive * np.log(np.maximum(survival, LEAST)) - of_failed * np.log(np.maximum(1.0 - survival, LEAST))
    span = times[-1] - times[0]
    return [float(np.trapezoid(loss.mean(axis=0), times) / span) for loss in (squared, logs)]


def harrell_c(risk, time, event):
    """The share of comparable pairs in which the earlier event has the higher risk; ties in risk count one half."""
    order = np.argsort(time, kind="stable")
    risk, time = risk[order], time[order]
    concordant, pairs = 0.0, 0
    for i in np.flatnonzero(event[order] == 1):
        later = risk[np.searchsorted(time, time[i], side="right") :]
        concordant += (risk[i] > later).sum() + 0.5 * (risk[i] == later).sum()
        pairs += len(later)
    return float(concordant / pairs) if pairs else float("nan")


# ------------------------------------------------------------------ folds


def folder() -> Path:
    """Where the tables are."""
    root = Path(os.environ.get("SUMOSURV_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    return root / "neutral"


@cache
def test_rows(where: Path) -> dict[tuple[str, int], np.ndarray]:
    """The test rows of every published fold."""
    rows = pd.read_parquet(where / "test_rows.parquet")
    grouped = rows.groupby(["table", "iteration"], observed=True)["row"]
    return {(str(table), int(iteration)): own.to_numpy() for (table, iteration), own in grouped}


def run_fold(where: Path, table: str, iteration: int, method: str) -> dict:
    """Fit a method to the training rows of a fold and score it on the test rows."""
    torch.set_num_threads(1)
    frame = pd.read_parquet(where / f"{table}.parquet")
    X = frame.drop(columns=["time", "event"])
    time_, event = frame["time"].to_numpy(float), frame["event"].to_numpy(int)
    held_out = np.zeros(len(frame), dtype=bool)
    held_out[test_rows(where)[table, iteration]] = True
    y = Surv.from_arrays(event.astype(bool), time_)
    entry = METHODS[method](iteration)
    begun = time.perf_counter()
    predict = entry.fit(entry.make(), X[~held_out], y[~held_out])
    seconds = time.perf_counter() - begun
    t, d = time_[held_out], event[held_out]
    times, training = score_times(t), (time_[~held_out], event[~held_out])
    events = np.unique(training[0][training[1] == 1])
    risk, losses, n_rows = [], np.zeros(2), 0
    for rows in np.array_split(np.arange(len(t)), max(1, len(t) * (len(times) + len(events)) // 4_000_000)):
        predicted = predict(X[held_out].iloc[rows])
        losses += len(rows) * np.array(integrated_scores(predicted.survival(times), times, t[rows], d[rows], training))
        risk.append(predicted.cumulative_hazard(events).sum(axis=1))
        n_rows += len(rows)
    isbs, isll = losses / n_rows
    return {
        "table": table,
        "iteration": iteration,
        "isbs": isbs,
        "isll": isll,
        "harrell_c": harrell_c(np.concatenate(risk), t, d),
        "fit_seconds": round(seconds, 3),
    }


def record_path(out: Path, method: str) -> Path:
    """The results of a method, one line per fold."""
    return out / f"neutral_{method.lower().replace(' ', '_').replace('-', '_')}.jsonl"


def read_results(out: Path, method: str) -> pd.DataFrame:
    """The results of a method as far as they go."""
    path = record_path(out, method)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = [json.loads(line) for line in lines]
    return pd.DataFrame(
        [row for row in found if "table" in row], columns=["table", "iteration", *SCORES, "fit_seconds"]
    )


def run(where: Path, out: Path, method: str, folds: list[tuple[str, int]], jobs: int) -> None:
    """Run the folds that have no result yet, large tables first, and append their results to the record."""
    done = set(read_results(out, method)[["table", "iteration"]].itertuples(index=False, name=None))
    sizes = {table: (where / f"{table}.parquet").stat().st_size for table, _ in folds}
    todo = sorted((fold for fold in folds if fold not in done), key=lambda fold: -sizes[fold[0]])
    path = record_path(out, method)
    path.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs) as pool, path.open("a", encoding="utf-8") as file:
        if not done:
            file.write(json.dumps(description(method)) + "\n")
        waiting = {pool.submit(run_fold, where, *fold, method): fold for fold in todo}
        for number, future in enumerate(as_completed(waiting), 1):
            file.write(json.dumps(future.result()) + "\n")
            file.flush()
            print(f"{method}: {number} of {len(todo)} folds, {waiting[future]}", flush=True)


def description(method: str) -> dict:
    """The first line of a record: what was run, with which versions, on which processor."""
    versions = {"sumosurv": sumosurv.__version__, "python": platform.python_version(), "torch": torch.__version__}
    return {
        "method": method,
        "model": METHODS[method](0).describe(),
        "commit": current_commit(),
        "versions": versions,
        "machine": machine("cpu"),
        "threads_per_fit": 1,
    }


def main() -> None:
    """Run what was asked for, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="SumoNet", help=f"of {', '.join(METHODS)}, separated by commas; or none")
    parser.add_argument("--tables", help="names separated by commas; all by default")
    parser.add_argument("--sample", type=int, metavar="K", help="a random K of the 750 folds, the same in every run")
    parser.add_argument("--jobs", type=int, default=1, help="fits at once")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the records")
    parser.add_argument("--page", type=Path, help="write neutral.md and its picture into this folder")
    options = parser.parse_args()
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    methods = [] if options.methods == "none" else options.methods.split(",")
    if unknown := [name for name in methods if name not in METHODS]:
        parser.error(f"unknown method {unknown[0]!r}; choose from {', '.join(METHODS)}")
    if methods:
        where = folder()
        folds = sorted(test_rows(where))
        if options.sample is not None:
            folds = [folds[i] for i in np.random.default_rng(0).permutation(len(folds))[: options.sample]]
        if options.tables is not None:
            folds = [fold for fold in folds if fold[0] in options.tables.split(",")]
        for method in methods:
            run(where, options.out, method, folds, options.jobs)
    if options.page is not None:
        from _neutral_page import write_page

        write_page(options.out, folder(), options.page)


if __name__ == "__main__":
    main()
