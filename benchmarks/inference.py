"""Seconds of prediction: SumoNet against the authors' released code, pycox's Cox-Time and an ODE model.

Equal architecture everywhere: width 32, one covariate layer and one mixed layer (and the default ensemble beside it).
Two sizes: the test fold of SUPPORT and KKBOX's test fold (529,349 rows of 15 simulated columns), 100 times each.
"whole" counts everything from the table of covariates to the array of probabilities; "from inputs" starts from scaled
numbers, as the peers do ("on the device": and leaves the result there); "curves" starts from the codes of the covariate
network and leaves the result there too. Beside each of our figures stands the least time that the machine's measured
limits allow.

    python benchmarks/inference.py --released ../Sumo-Net --pycox --soden --out results
    python benchmarks/inference.py --device cuda --out results

``--released`` is a checkout of the authors' code; ``--pycox`` needs pycox to be importable.
"""

import contextlib
import copy
import io
import sys
from pathlib import Path

import numpy as np
import torch
from _measure import (
    KKBOX_COLUMNS,
    KKBOX_ROWS,
    TIMES,
    Limits,
    arguments,
    keep,
    network_floor,
    peak_memory,
    seconds,
    show,
)
from _measure import start as begin

from sumosurv import PaperSumoNet, Soden, SumoNet, Surv, datasets
from sumosurv.distributions.ode import solver_time

SMALL = {"n_members": 1, "covariate_layers": (32,), "max_epochs": 1, "random_state": 0, "batch_size": 1000}
COLUMNS = ("case", "who", "what", "precision", "seconds", "floor", "bound", "times_floor", "error")


def support():
    """Rows of SUPPORT's first fold: training and test, covariates and outcome."""
    data = datasets.load("support")
    train, _, test = datasets.fold("support", 0)
    return data.X.iloc[train], data.y[train], data.X.iloc[test], data.y[test]


def kkbox_size(quick):
    """A table of KKBOX's size with 15 columns of numbers."""
    rng = np.random.default_rng(0)
    test = KKBOX_ROWS // 10 if quick else KKBOX_ROWS
    X = rng.normal(size=(20_000 + test, KKBOX_COLUMNS)).astype(np.float32)
    time = rng.weibull(1.2, size=20_000) * np.exp(0.3 * X[:20_000, 0])
    y = Surv.from_arrays(rng.random(20_000) < 0.7, time)
    return X[:20_000], y, X[20_000:], None


def ours(case, data, options, limits, rows):
    """SumoNet on one dataset."""
    X_train, y_train, X, _ = data
    grid = np.linspace(float(y_train["time"].min()), float(y_train["time"].max()), TIMES)
    models = {
        "SumoNet, equal": (PaperSumoNet(time_layers=(32,), device=options.device, **SMALL), (32,), 1),
    }
    if case == "support" or options.device == "cuda":
        settings = {"max_epochs": 1, "random_state": 0, "device": options.device, "n_members": 16}
        settings["components"] = "networks"
        models["SumoNet, default"] = (SumoNet(**settings), (32, 32), 16)
    for name, (model, widths, members) in models.items():
        model.fit(X_train, y_train)
        cells = members * len(X) * TIMES
        for precision in ("double", "single"):
            floor = network_floor(limits[precision], cells, widths, separable=members == 1)
            spent = seconds(
                lambda m=model, p=precision: m.predict_survival_function(X, grid, precision=p), options.device
            )
            add(rows, case, name, "S, whole", precision, floor, spent)
            add_inputs(rows, case, name, model, X, grid, precision, floor, options)
            slow = network_floor(limits[precision], cells, widths, separable=members == 1, slope=True)
            add_curves(rows, case, name, model, X, grid, precision, (floor, slow), options)
        if case == "support":
            for what, ask in (
                ("median, whole", lambda m=model: m.predict_median(X)),
                ("restricted mean, whole", lambda m=model: m.predict_restricted_mean(X, float(grid[50]))),
            ):
                add(rows, case, name, what, "double", None, seconds(ask, options.device, 3))
    return grid


def add_inputs(rows, case, name, model, X, grid, precision, floor, options):
    """From scaled numbers, which is where the peers start, to probabilities in host memory, some rows at a time."""
    weight = next(model.stack_.populations[0].network.parameters())
    inputs = model.preprocessor_.transform(X).to(weight.device, weight.dtype)
    block = 20_000 if options.device == "cpu" else 1 << 20

    def curves(some):
        distribution = model.stack_.populations[0].network.distribution(some)
        distribution = distribution.single() if precision == "single" else distribution
        return distribution.survival(torch.from_numpy(grid / model.time_unit_).to(distribution._like))

    def predict():
        result = np.empty((len(X), len(grid)), dtype=np.float64 if precision == "double" else np.float32)
        with torch.no_grad():
            for i in range(0, len(X), block):
                result[i : i + block] = curves(inputs[i : i + block]).cpu().numpy()
        return result

    def stay():
        with torch.no_grad():
            return curves(inputs)

    add(rows, case, name, "S, from inputs", precision, floor, seconds(predict, options.device))
    if options.device == "cuda":
        add(rows, case, name, "S, on the device", precision, floor, seconds(stay, options.device))


def add_curves(rows, case, name, model, X, grid, precision, floors, options):
    """From codes to curves, the result staying on the device."""
    with torch.no_grad():
        exact = model.predict_distribution(X)
        distribution = exact.single() if precision == "single" else exact
        t = torch.from_numpy(grid).to(distribution._like)
        spent = seconds(lambda: distribution.survival(t), options.device)
        add(rows, case, name, "S, curves", precision, floors[0], spent)
        if precision == "single":
            some = slice(0, 2000)
            gap = np.abs(exact[some].survival(grid) - distribution[some].survival(grid)).max()
            rows[-1]["error"] = float(gap)
        add(
            rows,
            case,
            name,
            "f, curves",
            precision,
            floors[1],
            seconds(lambda: distribution.density(t), options.device, 3),
        )


def add(rows, case, who, what, precision, floor, spent):
    """One line of the table."""
    least, bound = floor if floor else (None, None)
    rows.append(
        {"case": case, "who": who, "what": what, "precision": precision, "seconds": spent, "floor": least,
         "bound": bound, "times_floor": None if least is None else spent / least}
    )  # fmt: skip
    print(f"  {case}: {who}, {what}, {precision}: {spent:.5f} s", flush=True)


def released(case, path, X, device, rows):
    """The authors' code as its own timing script runs it: the covariate network for every time, 50 rows at a time."""
    sys.path.insert(0, str(path))
    from nets.nets import survival_net_basic

    with contextlib.redirect_stdout(io.StringIO()):
        net = survival_net_basic(
            d_in_x=X.shape[1], cat_size_list=[], d_in_y=1, d_out=1, layers_x=[32], layers_t=[1], layers=[32],
            dropout=0.25, bounding_op=torch.square, direct_dif="autograd", objective="S_mean",
        ).to(device)  # fmt: skip
    table = torch.from_numpy(np.asarray(X, dtype=np.float32))
    grid = torch.linspace(0, 1, TIMES)[:, None]

    def predict(target="cpu"):
        parts = []
        for batch in torch.chunk(table, len(table) // 1000 + 1):
            for part in torch.chunk(batch.to(device), 1000 // 50 + 1):
                times = grid.repeat((part.shape[0], 1)).to(device)
                survival = net.forward_S_eval(part.repeat_interleave(TIMES, 0), times, [])
                parts.append(survival.detach().view(-1, TIMES).t().to(target))
        return torch.cat(parts, 1)

    add(rows, case, "released code", "S, from inputs", "single", None, seconds(predict, device, 3, at_most=40.0))
    if device == "cuda":
        spent = seconds(lambda: predict("cuda"), device, 3, at_most=20.0)
        add(rows, case, "released code", "S, on the device", "single", None, spent)


def cox_time(case, data, rows):
    """pycox's Cox-Time, as the paper times it (baseline hazards of all training times included), and on our grid."""
    import pandas as pd
    import torchtuples
    from pycox.models import CoxTime
    from pycox.models.cox_time import MLPVanillaCoxTime

    X_train, y_train, X, _ = data
    transform = CoxTime.label_transform()
    x = np.asarray(X_train, dtype=np.float32)
    y = transform.fit_transform(y_train["time"].astype(np.float32), y_train["event"].astype(np.float32))
    net = MLPVanillaCoxTime(x.shape[1], [32, 32], batch_norm=False, dropout=0.1)
    model = CoxTime(net, torchtuples.optim.Adam(0.01), labtrans=transform)
    model.fit(x, y, batch_size=1000, epochs=1, verbose=False)
    test = np.asarray(X, dtype=np.float32)

    def as_the_paper():
        model.compute_baseline_hazards()
        return model.predict_surv_df(test)

    spent = seconds(as_the_paper, repeats=2)
    add(rows, case, "pycox Cox-Time", "S, all training times", "single", None, spent)
    hazards = model.baseline_hazards_
    grid = np.linspace(float(hazards.index.min()), float(hazards.index.max()), TIMES)
    place = np.searchsorted(grid, hazards.index.to_numpy()).clip(0, TIMES - 1)
    steps = np.bincount(place, hazards.to_numpy(), TIMES)
    model.baseline_hazards_ = pd.Series(steps, index=pd.Index(grid, name="duration"))
    spent = seconds(lambda: model.predict_surv_df(test), repeats=5)
    add(rows, case, "pycox Cox-Time", "S, same grid", "single", None, spent)


def soden(case, data, options, grid, rows):
    """SODEN of the same width: solved by torchdiffeq with its default tolerances, and as `Soden` predicts.

    torchdiffeq is timed in double precision, in which we predict by default, and in torch's default, single precision.
    """
    X_train, y_train, X, _ = data
    settings = SMALL | {"max_epochs": 20}  # an equation that has learnt nothing would be too easy to solve
    model = Soden(hazard_layers=(32,), frequencies=0, device=options.device, **settings).fit(X_train, y_train)
    spent = seconds(lambda: model.predict_survival_function(X, grid), options.device, 2)
    add(rows, case, "Soden, our solver", "S, whole", "double", None, spent)
    try:
        from torchdiffeq import odeint
    except ImportError:
        print("torchdiffeq is not installed: left out")
        return
    for precision, dtype in (("double", torch.float64), ("single", torch.float32)):
        net = copy.deepcopy(model.stack_.populations[0].network).to(dtype)
        weight = next(net.parameters())
        inputs = model.preprocessor_.transform(X).to(weight.device, dtype).shared()
        tau = solver_time(torch.from_numpy(grid / model.time_unit_).to(weight), net.offset)
        tau = tau if float(tau[0]) == 0.0 else torch.cat([tau.new_zeros(1), tau])

        def solve(net=net, inputs=inputs, tau=tau):
            with torch.no_grad():
                code = net.code(net.encoder(inputs))
                first = net.initial(code)
                path = odeint(lambda s, state: net.speed(s.expand(*state.shape[:2], 1), state, code), first, tau)
                return torch.exp(-path[..., 0])

        add(rows, case, "Soden, torchdiffeq", "S, from inputs", precision, None, seconds(solve, options.device, 2))


def ratios(rows):
    """Every peer against our prediction from the same scaled inputs, and from the raw table, in both precisions.

    A peer that is timed in both precisions is compared in the same precision.
    """
    ways = ("S, from inputs", "S, on the device", "S, whole")
    own = {(r["case"], r["what"], r["precision"]): r["seconds"] for r in rows if r["who"] == "SumoNet, equal"}
    peers = {}
    for row in rows:
        if not row["who"].startswith("SumoNet"):
            peers.setdefault((row["case"], f"{row['who']}: {row['what']}"), {})[row["precision"]] = row["seconds"]
    found = []
    for (case, peer), spent in peers.items():
        entry = {"case": case, "peer": peer, "seconds": next(iter(spent.values()))}
        for what in ways:
            for precision in ("double", "single"):
                if (case, what, precision) in own:
                    theirs = spent.get(precision, entry["seconds"])
                    entry[f"{what}, {precision}"] = theirs / own[case, what, precision]
        found.append(entry)
    return found


def main():
    parser = arguments(__doc__)
    parser.add_argument("--released", type=Path, default=None, help="checkout of the authors' code")
    parser.add_argument("--pycox", action="store_true", help="time pycox's Cox-Time too")
    parser.add_argument("--soden", action="store_true", help="time our SODEN too")
    parser.add_argument("--cases", nargs="+", default=("support", "kkbox size"), choices=("support", "kkbox size"))
    options = parser.parse_args()
    begin(options)
    limits = {"double": Limits(options.device, torch.float64), "single": Limits(options.device, torch.float32)}
    rows = []
    for case in options.cases:
        try:
            data = support() if case == "support" else kkbox_size(options.quick)
        except FileNotFoundError as error:
            print(f"SUPPORT is left out: {error}")
            continue
        grid = ours(case, data, options, limits, rows)
        if options.released is not None:
            released(case, options.released, data[2], options.device, rows)
        if options.pycox and case == "support" and options.device == "cpu":
            cox_time(case, data, rows)
        if options.soden and case == "support":
            soden(case, data, options, grid, rows)
    print()
    show(rows, COLUMNS)
    compared = ratios(rows)
    if compared:
        print("How many times as long the peers take:")
        show(compared, list(compared[0]))
    memory = peak_memory(options.device)
    print(f"peak memory: host {memory['host_bytes'] / 2**30:.2f} GiB, device {memory['device_bytes'] / 2**30:.2f} GiB")
    sizes = {"times": TIMES, "kkbox_rows": KKBOX_ROWS // 10 if options.quick else KKBOX_ROWS}
    results = {
        "rows": rows,
        "ratios": compared,
        "limits": {k: v.describe() for k, v in limits.items()},
        "memory": memory,
    }
    keep(options, "inference", sizes | {"quick": options.quick}, results)


if __name__ == "__main__":
    main()
