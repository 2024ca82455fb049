"""Seconds of training: populations of networks, and one network on many rows, against the authors' released loop.

Population: one step of AdamW on a batch of 100 rows of 14 columns, two covariate and two mixed layers of width 32, for
many networks at once; cost per network. Large: one epoch of one network (one covariate, one mixed layer of 32) over
1.6 million rows of 15 columns, batches of 5,000, data resident on the device. Dropout is 0.1 everywhere. On the CPU an
epoch is extrapolated from some of its steps, ours and the peer's alike; on CUDA ours is run whole.

    python benchmarks/training.py --released ../Sumo-Net --out results
    python benchmarks/training.py --device cuda --released ../Sumo-Net --out results
"""

import contextlib
import io
import itertools
import sys
import time
from pathlib import Path

import numpy as np
import torch
from _measure import Limits, arguments, keep, peak_memory, seconds, show
from _measure import start as begin

from sumosurv import PaperSumoNet, Surv, check_outcome
from sumosurv.fitting.plan import FitPlan
from sumosurv.networks import Inputs, Observed, Rows, Table
from sumosurv.training.batches import Member, TableBatches
from sumosurv.training.step import TrainingStep, as_cuda_graph

COLUMNS = ("case", "who", "networks", "batch", "step_ms", "per_network_ms", "floor_ms", "epoch_s")


def table(n, columns):
    """Simulated rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, columns), dtype=np.float32)
    time_ = rng.weibull(1.2, size=n) * np.exp(0.3 * X[:, 0])
    return X, Surv.from_arrays(rng.random(n) < 0.7, time_)


def training_step(X, y, members, batch, device, **settings):
    """Our step for a population, and where its batches come from."""
    model = PaperSumoNet(n_members=members, **settings)
    plan = FitPlan(model)
    learned = plan.learn(model._read(X[:10_000], y[:10_000]))
    seeds, on = np.arange(members), torch.device(device)
    network = plan.build(learned, seeds).to(on)
    scaled = check_outcome(y).on_time_scale(unit=y["time"].max())
    table = Table(Inputs(torch.from_numpy(X), torch.zeros(len(X), 0, dtype=torch.long)), Observed.of(scaled)).to(on)
    every = np.arange(len(X))
    rows = Rows.of([every] * members).to(on)
    own = [Member(int(seed), every, None, learning_rate=0.01, weight_decay=0.1) for seed in seeds]
    batches = TableBatches(table, rows, own, batch)
    step = TrainingStep(network, batches, own, max_epochs=10_000)
    network.train()
    step.load(next(batches.epoch(0)))
    return step, (as_cuda_graph(step) if device == "cuda" else step), batches


def step_floor(limits, step, batch, members):
    """Three times the FLOPs of the forward pass, and value and derivative in the mixed network."""
    weights = step.optimiser.weights.shape[1]
    moved = members * weights * 4 * 9  # weights, gradients, two moments, read and written
    return limits.floor(flops=3 * 2 * 2 * weights * batch * members, moved=moved)[0]


def population(options, limits, rows):
    """Cost per network of one step."""
    X, y = table(6_000, 14)
    for members in (1, 64) if options.device == "cpu" else (1, 300, 1500):
        step, run, batches = training_step(X, y, members, 100, options.device)
        size = batches.size
        repeats = 20 if members == 1 else 5
        spent = seconds(lambda r=run, k=repeats: [r() for _ in range(k)], options.device, at_most=15.0) / repeats
        floor = step_floor(limits, step, size, members)
        add(rows, "population", "SumoNet", members, size, spent, floor)


def large(options, limits, rows):
    """One network, many rows."""
    n = 160_000 if options.quick else 1_600_000
    X, y = table(n, 15)
    begun = time.perf_counter()
    step, run, batches = training_step(X, y, 1, 5_000, options.device, covariate_layers=(32,), time_layers=(32,))
    ready = time.perf_counter() - begun
    steps = batches.per_epoch

    def epoch():
        for batch in batches.epoch(1):
            step.load(batch)
            run()

    if options.device == "cuda":
        spent = seconds(epoch, "cuda", repeats=3)
    else:
        turn = itertools.cycle(list(batches.epoch(1)))

        def some():
            for _ in range(3):
                step.load(next(turn))
                run()

        shuffle = seconds(lambda: next(batches.epoch(1)), repeats=3, at_most=6.0)
        spent = shuffle + seconds(some, at_most=15.0) / 3 * steps
    size = batches.size
    add(rows, f"large, {n:,} rows", "SumoNet", 1, size, spent / steps, step_floor(limits, step, size, 1))
    rows[-1]["epoch_s"], rows[-1]["ready_s"] = spent, ready


def released(path, options, rows):
    """The authors' network, loss and Adam, called as their example does."""
    sys.path.insert(0, str(path))
    from nets.nets import log_objective_mean, survival_net_basic

    for case, n, columns, batch, layers in (
        ("population", 6_000, 14, 100, [32, 32]),
        ("large", 160_000 if options.quick else 1_600_000, 15, 5_000, [32]),
    ):
        X, y = table(min(n, 100_000), columns)
        with contextlib.redirect_stdout(io.StringIO()):
            net = survival_net_basic(
                d_in_x=columns, cat_size_list=[], d_in_y=1, d_out=1, layers_x=layers, layers_t=[1], layers=layers,
                dropout=0.1, bounding_op=torch.square, direct_dif="autograd", objective="S_mean",
            ).to(options.device)  # fmt: skip
        adam = torch.optim.Adam(net.parameters(), lr=0.01)
        x = torch.from_numpy(X)
        z = torch.from_numpy((y["time"] / y["time"].max()).astype(np.float32))[:, None]
        d = torch.from_numpy(y["event"].astype(np.float32))

        def step(x=x[:batch], z=z[:batch], d=d[:batch], net=net, adam=adam):
            x, z, d = x.to(options.device), z.to(options.device), d.to(options.device)
            mask = d == 1
            censored = net.forward_cum(x, z, mask, [])
            events = net(x[mask], z[mask], [])
            loss = log_objective_mean(censored, events)
            adam.zero_grad()
            loss.backward()
            adam.step()

        spent = seconds(lambda step=step: [step() for _ in range(3)], options.device, at_most=15.0) / 3
        add(rows, case if case == "population" else f"large, {n:,} rows", "released code", 1, batch, spent, None)
        if case == "large":  # its loop also permutes the whole table before every epoch
            whole = torch.zeros(n, columns + 2)
            shuffle = seconds(lambda whole=whole, n=n: whole[torch.randperm(n)], repeats=3, at_most=6.0)
            rows[-1]["epoch_s"] = shuffle + spent * n / batch


def add(rows, case, who, networks, batch, step, floor):
    """One line of the table."""
    rows.append(
        {
            "case": case,
            "who": who,
            "networks": networks,
            "batch": batch,
            "step_ms": 1e3 * step,
            "per_network_ms": 1e3 * step / networks,
            "floor_ms": None if floor is None else 1e3 * floor,
        }
    )
    print(f"  {case}: {who}, {networks} networks, batch {batch}: {1e3 * step:.4f} ms per step", flush=True)


def ratios(rows):
    """The released step against ours per network, and epoch against epoch."""
    found = []
    for peer in (row for row in rows if row["who"] == "released code"):
        for row in (row for row in rows if row["who"] == "SumoNet" and row["case"] == peer["case"]):
            ratio = peer["per_network_ms"] / row["per_network_ms"] * row["batch"] / peer["batch"]
            if "epoch_s" in row:
                ratio = peer["epoch_s"] / row["epoch_s"]
            found.append({"case": row["case"], "networks": row["networks"], "released / ours": ratio})
    return found


def main():
    parser = arguments(__doc__)
    parser.add_argument("--released", type=Path, default=None, help="checkout of the authors' code")
    options = parser.parse_args()
    begin(options)
    limits = Limits(options.device, torch.float32)
    rows = []
    population(options, limits, rows)
    large(options, limits, rows)
    if options.released is not None:
        released(options.released, options, rows)
    print()
    show(rows, COLUMNS)
    compared = ratios(rows)
    if compared:
        show(compared, list(compared[0]))
    memory = peak_memory(options.device)
    print(f"peak memory: host {memory['host_bytes'] / 2**30:.2f} GiB, device {memory['device_bytes'] / 2**30:.2f} GiB")
    results = {"rows": rows, "ratios": compared, "limits": limits.describe(), "memory": memory}
    keep(options, "training", {"quick": options.quick}, results)


if __name__ == "__main__":
    main()
