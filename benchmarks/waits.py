"""What a user waits for: seconds of whole tasks, each beside its goal.

    python benchmarks/waits.py [--tasks evaluate predict first fit wide] --out results
    python benchmarks/waits.py --device cuda --out results

On the CPU: `evaluate` of 20,000 rows, the command ``sumosurv predict`` for 200,000, loading a model and its first
predictions in a fresh process, default fits beside random survival forests, and a fit of a table of 5,000 columns.
Seconds are of the processor, since other work on the machine adds to those on the clock. On CUDA: curves of a table of
KKBOX's size, from numbers in host memory to probabilities in host memory, on the clock. Ratios to the authors' code are
those of training.py and inference.py, read from their records in results/.
"""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from _measure import KKBOX_COLUMNS, KKBOX_ROWS, TIMES, arguments, keep, seconds, show, start
from evaluation import table

from sumosurv import PaperSumoNet, SumoNet, Surv
from sumosurv.scores import evaluate

RESULTS = Path(__file__).parents[1] / "results"
COLUMNS = ("what", "measured", "unit", "goal", "met", "beside")

FIRST = """
import sys, time, json
import torch
torch.set_num_threads(1)
begun = time.process_time()
import numpy, pandas, scipy, sklearn
from sumosurv import load
imported = time.process_time()
model = load(sys.argv[1])
loaded = time.process_time()
row = pandas.read_csv(sys.argv[2], nrows=1)
spent = {"import": imported - begun, "load": loaded - imported}
for name, ask in (
    ("curve", lambda: model.predict_survival_function(row, [0.5, 1.0])),
    ("median", lambda: model.predict_median(row)),
    ("restricted mean", lambda: model.predict_restricted_mean(row, model.last_time_)),
):
    for turn in ("first", "again"):
        begun = time.process_time()
        ask()
        spent[f"{turn} {name}"] = time.process_time() - begun
print(json.dumps(spent))
"""


def spent(task):
    """Processor seconds of one call."""
    begun = time.process_time()
    task()
    return time.process_time() - begun


def add(rows, what, measured, goal, unit="s", at_least=False, beside=""):
    """One line: what was measured, and whether that is as good as was asked for."""
    met = None if goal is None else bool(measured >= goal if at_least else measured <= goal)
    sign = None if goal is None else f"{'≥' if at_least else '≤'} {goal:g}"
    row = {"what": what, "measured": float(measured), "unit": unit, "goal": sign, "met": met, "beside": beside}
    rows.append(row)
    print(f"  {what}: {measured:.4g} {unit}, goal {sign}", flush=True)


def two_networks(folder):
    """A small model and where it was saved."""
    X, y = table(4000)
    model = SumoNet(n_members=2, max_epochs=5, random_state=0).fit(X, y)
    model.save(folder / "two.sumo")
    return model


def evaluation(options, folder, rows):
    """All default scores with intervals."""
    n = 2_000 if options.quick else 20_000
    X, y = table(n, seed=1)
    model = two_networks(folder)
    add(rows, f"evaluate, {n:,} rows, two networks", min(spent(lambda: evaluate(model, X, y)) for _ in range(2)), 5.0)


def prediction(options, folder, rows):
    """The command line's default output."""
    from sumosurv.cli import main as command

    n = 5_000 if options.quick else 200_000
    two_networks(folder)
    table(n, seed=1)[0].to_csv(folder / "rows.csv", index=False)
    asked = ["predict", folder / "two.sumo", folder / "rows.csv", "--out", folder / "out.csv", "--quiet"]
    for more in ((), ("--precision", "double")):
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            took = spent(lambda more=more: command([str(part) for part in (*asked, *more)]))
        what = " ".join([f"sumosurv predict, {n:,} rows, two networks, default output", *more])
        add(rows, what, took, 15.0)


def first(options, folder, rows):
    """A fresh process; the best of several."""
    two_networks(folder)
    table(10, seed=1)[0].to_csv(folder / "one.csv", index=False)
    found = []
    for _ in range(2 if options.quick else 5):
        asked = [sys.executable, "-c", FIRST, str(folder / "two.sumo"), str(folder / "one.csv")]
        found.append(json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout))
    best = {name: min(one[name] for one in found) for name in found[0]}
    add(rows, "load a model, two networks, after the imports", best["load"], 0.2)
    add(rows, "imports beyond torch (NumPy, pandas, SciPy, scikit-learn among them)", best["import"], None)
    add(rows, "first prediction of a loaded model: curve of one row", 1e3 * best["first curve"], 10.0, "ms")
    for name in ("curve", "median", "restricted mean"):
        add(rows, f"{name} of one row, again", 1e3 * best[f"again {name}"], None, "ms")


def fits(options, folder, rows):
    """Default fits, a random survival forest beside each."""
    from sumosurv import RandomSurvivalForest, datasets

    for name, goal in (("metabric", 8 / 3), ("gbsg", None), ("flchain", 27 / 3), ("support", 45 / 3)):
        try:
            data = datasets.load(name)
        except OSError as error:
            print(f"  {name} is left out: {error}")
            continue
        train = datasets.fold(name, 0)[0]
        X, y = data.X.iloc[train], data.y[train]
        if options.quick:
            X, y = X[:300], y[:300]
        ours = spent(lambda X=X, y=y: SumoNet(random_state=0).fit(X, y))
        forest = spent(lambda X=X, y=y: RandomSurvivalForest(random_state=0).fit(X, y))
        add(rows, f"default fit, {name}, {len(y):,} rows", ours, goal, beside=f"random survival forest {forest:.3g} s")


def wide(options, folder, rows):
    """Many columns, few rows."""
    columns = 500 if options.quick else 5_000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, columns))
    y = Surv.from_arrays(rng.random(300) < 0.6, rng.weibull(1.2, 300) * np.exp(0.5 * X[:, 0]))
    took = spent(lambda: SumoNet(random_state=0).fit(X, y))
    add(rows, f"default fit, 300 rows of {columns:,} columns", took, 20.0)


def ratios(rows):
    """Against the authors' code and others, from the records of the other benchmarks."""
    record = RESULTS / "performance_training_cpu.json"
    if record.is_file():
        goals = {("population", 1): 3.0, ("population", 64): 15.0}
        for found in json.loads(record.read_text())["results"]["ratios"]:
            goal = goals.get((found["case"], found["networks"]), 4.0)
            what = f"training, {found['case']}, networks together: {found['networks']}; released code"
            add(rows, what, found["released / ours"], goal, "×", at_least=True, beside=record.name)
    record = RESULTS / "performance_inference_cpu.json"
    if record.is_file():
        goals = {"released code": 20.0, "pycox Cox-Time: S, same grid": 25.0, "Soden, torchdiffeq": 30.0}
        for found in json.loads(record.read_text())["results"]["ratios"]:
            goal = next((goal for name, goal in goals.items() if found["peer"].startswith(name)), None)
            if goal is not None and found["case"] == "support":
                measured = found["S, from inputs, double"]
                what = f"curves of SUPPORT's test fold from inputs, double; {found['peer']}"
                add(rows, what, measured, goal, "×", at_least=True, beside=record.name)


def on_cuda(options, rows):
    """From a table of numbers in host memory to probabilities in host memory."""
    n = KKBOX_ROWS // 10 if options.quick else KKBOX_ROWS
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000 + n, KKBOX_COLUMNS)).astype(np.float32)
    y = Surv.from_arrays(rng.random(20_000) < 0.7, rng.weibull(1.2, 20_000) * np.exp(0.3 * X[:20_000, 0]))
    grid = np.linspace(float(y["time"].min()), float(y["time"].max()), TIMES)
    common = {"max_epochs": 1, "random_state": 0, "device": options.device}
    sixteen = SumoNet(n_members=16, components="networks", **common)
    paper = PaperSumoNet(n_members=1, covariate_layers=(32,), time_layers=(32,), **common)
    new, out, there = X[20_000:], np.empty((n, TIMES), dtype=np.float32), torch.device(options.device)
    for name, model, goal in (("16 members", sixteen, 0.5), ("paper-sized", paper, 0.1)):
        model.fit(X[:20_000], y)
        for way, ask in _ways(model, new, grid, out).items():
            took = seconds(ask, options.device, repeats=5, at_most=10.0)
            add(rows, f"{n:,} × {TIMES} from a table of numbers, {name}: {way}", took, goal)
        took = seconds(lambda columns=model.preprocessor_: columns.transform_on(new, there), options.device)
        add(rows, f"of that, columns prepared, {name}", took, None)


def _ways(model, X, grid, out):
    """Where the probabilities may go, and in which precision they are kept."""
    ask = model.predict_survival_function
    return {
        "float32, memory used again": lambda: ask(X, grid, precision="single", out=out),
        "float32, new memory": lambda: ask(X, grid, precision="single", dtype="float32"),
        "float64, new memory": lambda: ask(X, grid, precision="single"),
        "a tensor on the device": lambda: model.predict_distribution(X).single().survival(torch.from_numpy(grid)),
    }


TASKS = {"evaluate": evaluation, "predict": prediction, "first": first, "fit": fits, "wide": wide}


def main():
    """Measure, print, keep."""
    parser = arguments(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS], help="on the CPU")
    options = parser.parse_args()
    start(options)
    rows = []
    if options.device == "cuda":
        on_cuda(options, rows)
    else:
        with tempfile.TemporaryDirectory() as folder:
            for name in options.tasks:
                TASKS[name](options, Path(folder), rows)
        ratios(rows)
    print()
    show(rows, COLUMNS)
    keep(options, "waits", {"quick": options.quick}, {"rows": rows})


if __name__ == "__main__":
    main()
