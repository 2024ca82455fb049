"""Overhead and speed-up of several processes, measured with one and two workers and modelled for 8 to 1,000.

Measured: a training step by number of rows, in one process and in two (torchrun, Gloo); the all-reduce of its
gradient; connecting to Ray, the first and the second task of a worker; a search and predictions with one and two Ray
workers. The model is arithmetic: step = fixed + rows/W × seconds per row + ring all-reduce of the gradient. The network
of a cluster is not measured but assumed (--latency, --bandwidth).

    python benchmarks/cluster.py --out results
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from _record import make_record, save_record

import sumosurv
from sumosurv import NetworkSearch, SumoNet, datasets
from sumosurv.training import ALONE, torchrun_workers

WORKERS = (1, 2, 8, 32, 100, 320, 1000)
NETWORKS, ROWS = 8, 8192


def step_seconds(batch, epochs=4, workers=ALONE):
    """Wall and processor seconds of a training step, by the fastest epoch after the first, and the bytes it sums."""
    data = datasets.simulate("kkbox", ROWS, random_state=0)
    ends = []
    model = SumoNet(
        components="networks", n_members=NETWORKS, max_epochs=epochs,
        batch_size=batch, validation_fraction=0.0, random_state=0,
        device="cpu", verbose=lambda _: ends.append((time.perf_counter(), time.process_time())),
    )  # fmt: skip
    model.fit(data.X, data.y, workers=workers)
    parameters = sum(p.numel() for p in model.stack_.populations[0].network.parameters())
    wall, processor = np.diff(ends, axis=0).min(axis=0) / (ROWS // batch)
    return float(wall), float(processor), 4 * parameters


def all_reduce_seconds(count, repeats=30):
    """Seconds of an all-reduce of so many numbers: the median."""
    value, spent = torch.zeros(count), []
    for _ in range(repeats):
        torch.distributed.barrier()
        started = time.perf_counter()
        torch.distributed.all_reduce(value)
        spent.append(time.perf_counter() - started)
    return float(np.median(spent))


def shared(batches):
    """What each of the processes of torchrun does; the first writes what it found."""
    with torchrun_workers("cpu") as workers:
        found = {"steps": {batch: step_seconds(batch, workers=workers)[:2] for batch in batches}}
        found["all_reduce"] = {count: all_reduce_seconds(count) for count in (1, 100_000, 1_000_000)}
    if workers.first:
        print(json.dumps(found))


def by_torchrun(batches):
    """The same, started."""
    words = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        __file__,
        "--shared",
        *map(str, batches),
    ]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout.strip().splitlines()[-1])


def seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ray_figures(trials, predicted):
    """Overhead of Ray, and what one and two workers give, of a search and of predictions."""
    from sumosurv.cluster import Cluster, connected, map_blocks

    found = {}
    data = datasets.simulate("kkbox", 4096, random_state=0)
    rows = datasets.simulate("kkbox", predicted, random_state=1).X
    space = {"dropout": [0.1, 0.3], "weight_decay": [0.1, 0.3], "learning_rate": [0.01, 0.02]}
    estimator = SumoNet(n_members=1, covariate_layers=(64, 64), max_epochs=10, device="cpu")

    def search(cluster=None):
        return NetworkSearch(
            estimator, space=space, n_trials=trials, trials_per_round=trials // 2, layout="grouped", random_state=0,
            cluster=cluster,
        ).fit(data.X, data.y)  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.sumo"
        SumoNet(n_members=4, max_epochs=2, random_state=0).fit(data.X, data.y).save(model)
        loaded = sumosurv.load(model)
        found["search_here"] = seconds(lambda: search())
        blocks = [rows[start : start + 5000] for start in range(0, len(rows), 5000)]
        found["predict_here"] = seconds(lambda: [median(loaded, block) for block in blocks])
        started = time.perf_counter()
        with connected(Cluster("local")) as ray:
            found["connect"] = time.perf_counter() - started

            @ray.remote(num_cpus=1)
            def task():
                import sumosurv.search

                return len(sumosurv.search.__all__)

            found["first_task"] = seconds(lambda: ray.get(task.remote()))
            found["second_task"] = seconds(lambda: ray.get(task.remote()))
            for count in (1, 2):
                cluster = Cluster(workers=count, min_work=0)
                found[f"search_{count}"] = seconds(lambda cluster=cluster: search(cluster))
                found[f"predict_{count}"] = seconds(
                    lambda cluster=cluster: list(map_blocks(cluster, partial(median, loaded), blocks))
                )
    found["search_passes"] = trials * 4096 * 0.8 * 10
    found["predict_rows"] = predicted
    return found


def median(model, rows):
    import pandas as pd

    return pd.DataFrame({"median": model.predict_median(rows)})


def ring(workers, size, latency, bandwidth):
    """Seconds of a ring all-reduce of so many bytes."""
    return 0.0 if workers == 1 else 2 * (workers - 1) * (latency + size / workers / bandwidth)


def model_of_cost(fixed, per_row, size, latency, bandwidth, batches):
    """Seconds of a step and speed-up by workers, for some effective batches."""
    lines = []
    for batch in batches:
        alone = fixed + per_row * batch
        for count in WORKERS:
            step = fixed + per_row * batch / count + ring(count, size, latency, bandwidth)
            lines.append({"batch": batch, "workers": count, "ms": 1e3 * step, "speed_up": alone / step})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=50e-6, help="of a message of the cluster's network, seconds")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="of that network, bytes per second (10 Gbit/s)")
    parser.add_argument("--trials", type=int, default=32, help="of the search")
    parser.add_argument("--predicted", type=int, default=100_000, help="rows that are predicted")
    parser.add_argument("--shared", type=int, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="folder for the JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.shared:
        shared(options.shared)
        return
    batches = (256, 1024, 4096)
    load = os.getloadavg()[0]
    alone = {batch: step_seconds(batch) for batch in batches}
    size = alone[batches[0]][2]
    # processor time: what others do on the machine does not count
    per_row, fixed = np.polyfit(batches, [alone[batch][1] for batch in batches], 1)
    fixed = max(float(fixed), 0.0)
    two = by_torchrun(batches)
    found = {
        "networks": NETWORKS,
        "bytes_per_step": size,
        "step_alone": {str(batch): alone[batch][:2] for batch in batches},
        "step_of_two": two["steps"],
        "all_reduce_of_two": two["all_reduce"],
        "fixed": fixed,
        "per_row": float(per_row),
        "ray": ray_figures(options.trials, options.predicted),
        "model": model_of_cost(fixed, float(per_row), size, options.latency, options.bandwidth, (1024, 8192, 131_072)),
        "load": [load, os.getloadavg()[0]],
    }
    print(f"{NETWORKS} networks, {size / 1e6:.2f} MB of gradient a step; load of this machine {load:.1f}")
    for batch in batches:
        both = found["step_of_two"][str(batch)]
        print(
            f"  batch {batch:5d}: alone {1e3 * alone[batch][0]:7.1f} ms (processor {1e3 * alone[batch][1]:.1f}), "
            f"two processes {1e3 * both[0]:7.1f} ms ({1e3 * both[1]:.1f} each)"
        )
    print("  Ray:", ", ".join(f"{name} {value:,.1f}" for name, value in found["ray"].items()))
    for line in found["model"]:
        print(
            "  batch {batch:7,d}, {workers:5,d} workers: {ms:9.2f} ms a step, {speed_up:6.1f} times as fast".format(
                **line
            )
        )
    settings = {name: str(v) if isinstance(v, Path) else v for name, v in vars(options).items() if name != "shared"}
    if options.out:
        save_record(make_record("cluster", settings, found), options.out)


if __name__ == "__main__":
    main()
