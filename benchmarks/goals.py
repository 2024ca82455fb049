"""Goals of speed: whole tasks against an earlier state, and the time to the quality of the paper's network.

    git worktree add ../earlier 5adda12
    python benchmarks/goals.py --earlier ../earlier --released ../Sumo-Net --out results
    python benchmarks/goals.py --earlier ../earlier --jobs 5 16 --out results     # on a machine with 16 cores

Every task runs in a process of its own, in the earlier state and in this one by turns; the shortest processor time of
each counts, since other work on the machine adds to the time on the clock. Fits in several processes are timed on the
clock, which needs a quiet machine. The import is compared with the packages that it needs, and ridge regression has
only a time.

Time to quality: processor seconds until networks have the best validation likelihood that the network released with the
paper reaches in 100 epochs, with the settings of its example: batches of 100, Adam with a learning rate of 0.01. Its
covariates are standardised, its times min-max scaled; the time of its validation does not count. SumoNet has reached it
when the mean over its networks has, which is never sooner than their mixture.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from _measure import arguments, keep, show
from _measure import start as begin

HERE = Path(__file__).parents[1]

SHARED = """
import json, sys, tempfile, time, warnings
import numpy as np, pandas as pd, torch
torch.set_num_threads(1)
warnings.simplefilter("ignore")
from sumosurv import SumoNet, Surv

def table(n, seed=0, causes=False):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 8)), columns=[f"x{i}" for i in range(8)])
    died, left = rng.weibull(1.3, n) * np.exp(0.5 * X["x0"] - 0.3 * X["x1"]), rng.exponential(2.0, n)
    event = np.where(died < left, rng.integers(1, 3, n), 0) if causes else died < left
    return X, Surv.from_arrays(event, np.minimum(died, left))

def tell(task):
    begun = time.process_time()
    task()
    print(json.dumps(time.process_time() - begun))

def real(name):
    from sumosurv import datasets
    data, train = datasets.load(name), datasets.fold(name, 0)[0]
    return data.X.iloc[train], data.y[train]
"""

TASKS = {
    "predict": """
from sumosurv.cli import main
folder = tempfile.mkdtemp()
now = "n_members" in SumoNet().get_params()  # in the earlier state, a given size meant networks alone
two = {"n_members": 2, "components": "networks"} if now else {"ensemble_size": 2}
SumoNet(max_epochs=5, random_state=0, **two).fit(*table(4000)).save(f"{folder}/two.sumo")
table(ROWS, 1)[0].to_csv(f"{folder}/rows.csv", index=False)
tell(lambda: main(["predict", f"{folder}/two.sumo", f"{folder}/rows.csv", "--out", f"{folder}/out.csv", "--quiet"]))
""",
    "small fit": """
X, y = table(686)
tell(lambda: SumoNet(random_state=0).fit(X, y))
""",
    "large fit": """
X, y = table(50_000)
tell(lambda: SumoNet(max_epochs=1, random_state=0).fit(X, y))
""",
    "report": """
from sumosurv.report import make_report
model = SumoNet(random_state=0).fit(*table(1100, causes=True))
X, y = table(265, 1, causes=True)
tell(lambda: make_report(model, X, y, causes=["first", "second"], verbose=False))
""",
}

RIDGE = """
from sumosurv import CoxPH
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 5_000))
y = Surv.from_arrays(rng.random(200) < 0.6, rng.weibull(1.2, 200) * np.exp(0.5 * X[:, 0]))
tell(lambda: CoxPH(alpha=1.0).fit(X, y))
"""

# seconds on the clock of a default fit of SUPPORT, the shorter of two
FIT = """
X, y = real("support")
found = []
for _ in range(2):
    begun = time.perf_counter()
    SumoNet(random_state=0SETTINGS).fit(X, y)
    found.append(time.perf_counter() - begun)
print(json.dumps(min(found)))
"""

QUALITY = """
import contextlib, io
from sklearn.model_selection import train_test_split
from sumosurv import PaperSumoNet
sys.path.insert(0, RELEASED)
from nets.nets import log_objective_mean, survival_net_basic

X, y = real("NAME")
train, valid = train_test_split(np.arange(len(y)), test_size=0.2, random_state=0, stratify=y["event"])

def released(epochs=100, batch=100):
    columns = pd.get_dummies(X, dtype=float)
    columns = ((columns - columns.iloc[train].mean()) / columns.iloc[train].std()).fillna(0.0)
    low, high = y["time"][train].min(), y["time"][train].max()
    x = torch.tensor(columns.to_numpy(), dtype=torch.float32)
    z = torch.tensor((y["time"] - low) / (high - low), dtype=torch.float32)[:, None]
    d = torch.tensor(y["event"])
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()):
        net = survival_net_basic(
            d_in_x=x.shape[1], cat_size_list=[], d_in_y=1, d_out=1, layers_x=[32, 32], layers_t=[1], layers=[32, 32],
            dropout=0.1, bounding_op=torch.square, direct_dif="autograd", objective="S_mean",
        )
    adam = torch.optim.Adam(net.parameters(), lr=0.01)

    def likelihood(rows):
        return -log_objective_mean(
            net.forward_cum(x[rows], z[rows], d[rows], []), net(x[rows][d[rows]], z[rows][d[rows]], [])
        )

    seen, spent = [], 0.0
    for _ in range(epochs):
        net.train()
        begun = time.process_time()
        for rows in np.array_split(np.random.default_rng(len(seen)).permutation(train), -(-len(train) // batch)):
            adam.zero_grad()
            (-likelihood(rows)).backward()
            adam.step()
        spent += time.process_time() - begun
        net.eval()
        unit = float(y["event"][valid].mean() * np.log(high - low))
        seen.append((spent, float(likelihood(valid)) - unit))
    return seen

def course(model):
    seen, begun = [], time.process_time()
    model.set_params(verbose=lambda epoch: seen.append((time.process_time() - begun, float(np.mean(epoch.valid)))))
    model.fit(X.iloc[train], y[train], validation_data=(X.iloc[valid], y[valid]))
    return seen

peer = released()
goal = max(value for _, value in peer)
found = {"goal": goal, "released code": next(spent for spent, value in peer if value >= goal)}
paper = PaperSumoNet(n_members=1, batch_size=100, max_epochs=100, random_state=0)
ours = {"n_members": 1, "components": "networks"}
for name, model in {
    "PaperSumoNet": paper, "SumoNet, one network": SumoNet(random_state=0, **ours), "SumoNet": SumoNet(random_state=0)
}.items():
    found[name] = next((spent for spent, value in course(model) if value >= goal), None)
print(json.dumps(found))
"""

BASE, IMPORT = "import torch, pandas, sklearn.base", "from sumosurv import SumoNet"
CLOCK = "import time\nbegun = time.process_time()\n{}\nprint(time.process_time() - begun)"


def fresh(code, source):
    """What a new process prints that imports the library from a folder."""
    environment = os.environ | {"PYTHONPATH": str(Path(source) / "src"), "OMP_NUM_THREADS": "1"}
    made = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(made.stdout.splitlines()[-1])


def by_turns(runs, repeats):
    """The shortest time of each of several runs, taken by turns."""
    found = {name: [] for name in runs}
    for _ in range(repeats):
        for name, (code, source) in runs.items():
            found[name].append(fresh(code, source))
    return {name: min(times) for name, times in found.items()}


def fits(options, jobs):
    """Seconds of a default fit of SUPPORT: in the earlier state, in one process, in several; ratios to the first."""

    def spent(source, settings):
        settings += ", max_epochs=2" if options.quick else ""
        return fresh(SHARED + FIT.replace("SETTINGS", settings), source)

    found = {"earlier": spent(options.earlier, ""), "one": spent(HERE, "")}
    found |= {str(n): spent(HERE, f", n_jobs={n}") for n in jobs}
    return {name: {"seconds": value, "ratio": found["earlier"] / value} for name, value in found.items()}


def others(options, repeats, rows):
    """What is not compared with the earlier state."""
    imports = by_turns({"base": (CLOCK.format(BASE), HERE), "ours": (CLOCK.format(IMPORT), HERE)}, 2 * repeats)
    return {
        "predicted_rows": rows,
        "processes": fits(options, [2]),
        "ridge": fresh(SHARED + RIDGE, HERE),
        "import": imports | {"ratio": imports["ours"] / imports["base"]},
        "quality": qualities(options),
    }


def qualities(options):
    """Seconds to the quality of the released code."""
    code = SHARED + QUALITY.replace("RELEASED", repr(str(options.released.resolve())))
    return {name: fresh(code.replace("NAME", name), HERE) for name in ("support", "metabric")}


def main():
    """Measure, print, keep."""
    parser = arguments(__doc__)
    parser.add_argument("--earlier", type=Path, required=True, help="checkout of an earlier commit")
    parser.add_argument("--released", type=Path, help="clone of the code released with the paper")
    parser.add_argument(
        "--again", nargs="+", choices=[*TASKS], help="measure these tasks; take the rest from the record"
    )
    parser.add_argument("--jobs", nargs="+", type=int, help="measure only default fits in so many processes")
    options = parser.parse_args()
    if options.released is None and not (options.again or options.jobs):
        parser.error("the time to quality needs --released")
    begin(options)
    asked = ["git", "-C", str(options.earlier), "rev-parse", "--short=7", "HEAD"]
    made = subprocess.run(asked, check=False, stdout=subprocess.PIPE, text=True)
    commit = made.stdout.strip() or options.earlier.name
    if options.jobs:
        found = fits(options, options.jobs)
        print(found)
        keep(options, "jobs", {"earlier": commit}, found)
        return
    repeats, rows = (1, 5_000) if options.quick else (3, 50_000)
    kept = {}
    if options.again:
        kept = json.loads((options.out / "performance_goals_cpu.json").read_text(encoding="utf-8"))["results"]
    lines = []
    for name, code in TASKS.items():
        if options.again and name not in options.again:
            lines += [line for line in kept["rows"] if line["task"] == name]
            continue
        code = SHARED + code.replace("ROWS", str(rows))
        turns = {"report": 1, "small fit": 2 * repeats}.get(name, repeats)  # fewer of a long task
        times = by_turns({"earlier": (code, options.earlier), "now": (code, HERE)}, turns)
        lines.append({"task": name, **times, "ratio": times["earlier"] / times["now"]})
        print(lines[-1], flush=True)
    results = kept | {"rows": lines} if options.again else {"rows": lines, **others(options, repeats, rows)}
    show(lines, ("task", "earlier", "now", "ratio"))
    print({name: value for name, value in results.items() if name != "rows"})
    keep(options, "goals", {"quick": options.quick, "earlier": commit}, results)


if __name__ == "__main__":
    main()
