"""From ten thousand to ten million rows of 15 columns: seconds and memory per row of fitting and of prediction.

Each size runs in a process of its own, so that its peak memory is its own. One epoch of one network, batches of 5,000;
prediction is the survival probability at 10 times. Cost per row should stay flat. "cpu" is the processor time of the
process, which other work on the machine changes less than the time on the clock.

    python benchmarks/scale.py --out results
    python benchmarks/scale.py --rows 10000000 --members 16
"""

import json
import subprocess
import sys
import time

import numpy as np
from _measure import arguments, keep, peak_memory, show
from _measure import start as begin

COLUMNS = (
    "rows", "members", "fit_s", "fit_us_per_row", "fit_cpu_us_per_row", "predict_s", "predict_us_per_row",
    "predict_cpu_us_per_row", "host_gib", "bytes_per_row",
    "device_gib",
)  # fmt: skip


def one_size(n, members, device, threads):
    """Fit and predict n rows; a dictionary of figures."""
    import torch

    from sumosurv import SumoNet, Surv

    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 15), dtype=np.float32)
    time_ = rng.weibull(1.2, size=n) * np.exp(0.3 * X[:, 0].astype(float))
    y = Surv.from_arrays(rng.random(n) < 0.7, time_)
    del time_
    before = peak_memory(device)["host_bytes"]
    model = SumoNet(
        components="networks",
        n_members=members,
        covariate_layers=(32,),
        time_layers=(32,),
        max_epochs=1,
        batch_size=5_000,
        validation_fraction=0.2,
        random_state=0,
        device=device,
    )
    begun, busy = time.perf_counter(), time.process_time()
    model.fit(X, y)
    fitted, fit_busy = time.perf_counter() - begun, time.process_time() - busy
    after_fit = peak_memory(device)
    grid = np.quantile(y["time"][:10_000], (np.arange(10) + 0.5) / 10)
    begun, busy = time.perf_counter(), time.process_time()
    model.predict_survival_function(X, grid)
    predicted, predict_busy = time.perf_counter() - begun, time.process_time() - busy
    return {
        "rows": n,
        "members": members,
        "fit_s": fitted,
        "fit_us_per_row": 1e6 * fitted / n,
        "fit_cpu_us_per_row": 1e6 * fit_busy / n,
        "predict_s": predicted,
        "predict_us_per_row": 1e6 * predicted / n,
        "predict_cpu_us_per_row": 1e6 * predict_busy / n,
        "host_gib": after_fit["host_bytes"] / 2**30,
        "bytes_per_row": (after_fit["host_bytes"] - before) / n,
        "device_gib": after_fit["device_bytes"] / 2**30,
    }


def main():
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=None)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--worker", type=int, default=None, help="measure this many rows in this process, print JSON")
    options = parser.parse_args()
    if options.worker is not None:
        print(json.dumps(one_size(options.worker, options.members, options.device, options.threads)))
        return
    begin(options)
    sizes = options.rows or ([10**4, 10**5, 10**6] if options.quick else [10**4, 10**5, 10**6, 10**7])
    rows = []
    for n in sizes:
        command = [sys.executable, __file__, "--worker", str(n), "--members", str(options.members)]
        command += ["--device", options.device, "--threads", str(options.threads)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            print(f"{n:,} rows failed:\n{ran.stderr[-2000:]}")
            continue
        rows.append(json.loads(ran.stdout.strip().splitlines()[-1]))
        show(rows[-1:], COLUMNS)
    show(rows, COLUMNS)
    keep(options, "scale", {"quick": options.quick, "columns": 15, "batch": 5_000, "epochs": 1}, {"rows": rows})


if __name__ == "__main__":
    main()
