"""Time and peak memory of fitting, scoring and predicting from rows on disk, for 10⁵ rows and more.

Each step of each size runs in a separate process, whose address space is limited to --limit GiB beyond the imported
library (0 for no limit). The rows
have 15 columns of numbers; they are simulated a million at a time and written to a folder of Parquet files. A fit is
one epoch of one network in batches of 5,000, as in scale.py; scores are the likelihood, the Brier score and the AUC at
the median time, and the concordance; predictions are survival probabilities at three times. Cost per row should stay
flat. "cpu" is the processor time, which depends less on other work on the machine than wall time does.

    python benchmarks/streaming.py --out results
    python benchmarks/streaming.py --rows 100000000 --folder rows --out results
    python benchmarks/streaming.py --parity --out results
    python benchmarks/streaming.py --draw results/streaming.json --picture docs/figures/streaming.png

A record in the folder of --out is extended: sizes that are not measured again are kept. It must have been made with the
same commit on the same machine, since it names one of each.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _measure import arguments, machine, peak_memory, show
from _measure import start as begin
from _record import current_commit, make_record, save_record

COLUMNS = ("rows", "step", "seconds", "us_per_row", "cpu_us_per_row", "peak_gib", "limit_gib", "log_likelihood")
STEPS = ("fit", "evaluate", "predict")
CHUNK = 1_000_000
COVARIATES = 15
MEMBERS, BATCH = 1, 5_000
OUTCOME = {"time": "time", "event": "event"}


def write_rows(folder, n):
    """Simulate n rows into Parquet files of a million each, in row groups of 131,072."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, n, CHUNK)):
        path = folder / f"{number:05d}.parquet"
        if path.exists():
            continue
        rng, rows = np.random.default_rng([0, number]), min(CHUNK, n - start)
        X = rng.standard_normal((rows, COVARIATES), dtype=np.float32)
        event = rng.weibull(1.2, size=rows) * np.exp(0.5 * X[:, 0] + 0.3 * np.sin(2 * X[:, 1]))
        end = 3.0 * rng.random(rows)
        columns = {f"x{j}": X[:, j] for j in range(COVARIATES)}
        columns |= {"time": np.minimum(event, end), "event": (event <= end).astype(np.int8)}
        partial = folder / f".{path.name}"
        pq.write_table(pa.table(columns), partial, row_group_size=131_072)
        partial.rename(path)


def one_step(step, folder, model_file, threads, limit):
    """Run a step on the rows of a folder; a dictionary of figures."""
    import torch

    import sumosurv
    from sumosurv import SumoNet, scores

    torch.set_num_threads(threads)
    warm_up()
    if limit:
        taken = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize"))
        most = int(taken.split()[1]) * 1024 + int(limit * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    begun, busy = time.perf_counter(), time.process_time()
    found = {}
    if step == "fit":
        model = SumoNet(
            n_members=MEMBERS,
            covariate_layers=(32,),
            time_layers=(32,),
            dropout=0.5,
            max_epochs=1,
            batch_size=BATCH,
            random_state=0,
            device="cpu",
        )
        model.fit(folder, OUTCOME)
        model.save(model_file)
    elif step == "evaluate":
        table = scores.evaluate(
            sumosurv.load(model_file),
            folder,
            OUTCOME,
            scores=["log_likelihood", "brier", "cumulative_dynamic_auc", "concordance_td"],
            n_bootstrap=50,
        )
        found = {
            row["score"]: {"value": row["value"], "low": row["low"], "high": row["high"]}
            for row in table.to_dict("records")
        }
    else:
        with tempfile.TemporaryDirectory() as place:
            sumosurv.load(model_file).predict_to_parquet(folder, Path(place) / "out.parquet", times=[0.25, 0.5, 1.0])
    spent, used = time.perf_counter() - begun, time.process_time() - busy
    return {
        "seconds": spent,
        "cpu_seconds": used,
        "peak_gib": peak_memory("cpu")["host_bytes"] / 2**30,
        "scores": found,
    }


def warm_up():
    """A small fit, so that what is loaded when it is first needed is there before memory is limited."""
    from sumosurv import SumoNet, scores

    with tempfile.TemporaryDirectory() as place:
        write_rows(Path(place) / "rows", 2_000)
        model = SumoNet(n_members=1, max_epochs=1, random_state=0).fit(Path(place) / "rows", OUTCOME)
        scores.evaluate(model, Path(place) / "rows", OUTCOME, n_bootstrap=2)
        model.predict_to_parquet(Path(place) / "rows", Path(place) / "out.parquet", times=[0.5])


def measure(n, folder, options):
    """All steps of one size."""
    model_file = folder / "model.sumo"
    write_rows(folder / "rows", n)
    for step in options.steps:
        command = [sys.executable, __file__, "--worker", step, "--folder", str(folder)]
        command += ["--threads", str(options.threads), "--limit", str(options.limit)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            print(f"{n:,} rows, {step} failed:\n{ran.stderr[-2000:]}", flush=True)
            return
        found = json.loads(ran.stdout.strip().splitlines()[-1])
        yield {
            "rows": n,
            "step": step,
            "seconds": found["seconds"],
            "us_per_row": 1e6 * found["seconds"] / n,
            "cpu_us_per_row": 1e6 * found["cpu_seconds"] / n,
            "peak_gib": found["peak_gib"],
            "limit_gib": options.limit,
            "scores": found["scores"],
            "log_likelihood": found["scores"].get("log_likelihood", {}).get("value"),
        }
    model_file.unlink(missing_ok=True)


def parity(threads):
    """The likelihood of test rows after a fit from disk, and after a fit to the same rows in memory."""
    import pandas as pd

    from sumosurv import SumoNet, Surv

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "rows"
        write_rows(folder, 60_000)
        frame = pd.read_parquet(folder)
        train, test = frame[:40_000], frame[40_000:]
        train.to_parquet(Path(place) / "train.parquet", index=False, row_group_size=2_000)
        settings = {"n_members": 2, "covariate_layers": (32,), "time_layers": (32,), "max_epochs": 10}
        settings |= {"random_state": 0, "device": "cpu"}

        def parts(table):
            return table.drop(columns=["time", "event"]), Surv.from_columns(table, event="event", time="time")

        streamed = SumoNet(**settings).fit(Path(place) / "train.parquet", OUTCOME).score(*parts(test))
        memory = SumoNet(components="networks", **settings).fit(*parts(train)).score(*parts(test))
    return {"rows": 40_000, "test_rows": 20_000, "streamed": streamed, "in_memory": memory, "gap": streamed - memory}


def draw(record, picture):
    """Processor time per row and peak memory against the number of rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = json.loads(Path(record).read_text())["results"]["rows"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for step in STEPS:
        own = sorted((row["rows"], row["cpu_us_per_row"], row["peak_gib"]) for row in rows if row["step"] == step)
        if own:
            n, cost, peak = zip(*own)
            left.plot(n, cost, marker="o", label=step)
            right.plot(n, peak, marker="o", label=step)
    right.axhline(4.0, color="grey", linestyle="--", linewidth=1)
    right.text(min(row["rows"] for row in rows), 4.06, "limit: 4 GiB beyond the library", color="grey", va="bottom")
    for axes, label, top in ((left, "processor time per row (µs)", None), (right, "peak memory (GiB)", 4.6)):
        axes.set(xscale="log", xlabel="rows", ylabel=label)
        axes.set_ylim(0, top)
        axes.grid(alpha=0.3)
    left.legend(frameon=False)
    figure.savefig(picture, dpi=120)
    print(picture)


def store(options, rows, compared):
    """Write the record, if a folder was given."""
    if options.out is None:
        return
    where = {"machine": machine("cpu"), "threads": options.threads}
    configuration = where | {"columns": COVARIATES, "members": MEMBERS, "batch": BATCH, "epochs": 1}
    results = {"rows": sorted(rows, key=lambda row: (row["rows"], row["step"])), "parity": compared}
    print(save_record(make_record("streaming", configuration, results), options.out), flush=True)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=None)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--folder", type=Path, default=None, help="where the rows are written; temporary by default")
    parser.add_argument("--limit", type=float, default=4.0, help="GiB of address space beyond the imported library")
    parser.add_argument("--parity", action="store_true", help="compare the likelihood with a fit in memory")
    parser.add_argument("--draw", type=Path, default=None, help="draw a record and do nothing else")
    parser.add_argument("--picture", type=Path, default=Path("streaming.png"))
    parser.add_argument("--worker", default=None, choices=STEPS, help="measure this step in this process, print JSON")
    options = parser.parse_args()
    if options.draw is not None:
        draw(options.draw, options.picture)
        return
    if options.worker is not None:
        folder = options.folder
        found = one_step(options.worker, folder / "rows", folder / "model.sumo", options.threads, options.limit)
        print(json.dumps(found))
        return
    begin(options)
    sizes = options.rows or ([10**5, 10**6] if options.quick else [10**5, 10**6, 10**7])
    kept, compared = [], {}
    if options.out is not None and (path := options.out / "streaming.json").exists():
        record = json.loads(path.read_text())
        if (record.get("commit"), record["configuration"]["machine"]) != (current_commit(), machine("cpu")):
            raise SystemExit(
                f"{path} was made with another commit or on another machine; give another folder as --out."
            )
        kept, compared = record["results"]["rows"], record["results"].get("parity", {})
    if options.parity:
        compared = parity(options.threads)
        print(compared)
        store(options, kept, compared)
        return
    for n in sizes:
        with tempfile.TemporaryDirectory() as place:
            for row in measure(n, options.folder or Path(place), options):
                kept = [old for old in kept if (old["rows"], old["step"]) != (n, row["step"])] + [row]
                show([row], COLUMNS)
                store(options, kept, compared)


if __name__ == "__main__":
    main()
