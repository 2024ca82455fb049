"""Speed and memory of the scores, each target beside its peer in one run.

    python benchmarks/scores.py                 # every part
    python benchmarks/scores.py --part exact    # one of: tabulated, exact, kkbox, brier
    python benchmarks/scores.py --json out.json

Each part runs in a process of its own, so that its peak memory is its own. pycox and scikit-survival are
compared with where they can be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import Continued, Monotone, Tabulated
from sumosurv.scores import (
    concordance_td,
    d_calibration,
    integrated_binomial_log_likelihood,
    integrated_brier,
    log_likelihood,
)

KKBOX_TEST_ROWS = 529_349
N_TIMES = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=sorted(PARTS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="torch and numba threads")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.part:
        checks = PARTS[arguments.part]()
        if arguments.json:
            arguments.json.write_text(json.dumps(checks, indent=2))
        return
    print(f"torch threads {arguments.threads}, numba threads {arguments.threads}, NumPy one, cores {os.cpu_count()}")
    results = {}
    for part in PARTS:
        print(f"\n== {part} ==", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "checks.json"
            command = [
                sys.executable,
                __file__,
                "--part",
                part,
                "--json",
                str(out),
                "--threads",
                str(arguments.threads),
            ]
            environment = os.environ | {
                "NUMBA_NUM_THREADS": str(arguments.threads),
                "OMP_NUM_THREADS": str(arguments.threads),
            }
            subprocess.run(command, check=True, env=environment)
            results[part] = json.loads(out.read_text())
    missed = [
        f"{part}: {check['check']}" for part, checks in results.items() for check in checks if check["met"] is False
    ]
    unknown = [
        f"{part}: {check['check']}" for part, checks in results.items() for check in checks if check["met"] is None
    ]
    print(f"\ntargets missed: {missed or 'none'}\ntargets without a peer to compare with: {unknown or 'none'}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"threads": arguments.threads, "parts": results}, indent=2))


# ------------------------------------------------------------------ measuring


def seconds(function: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Shortest of some runs, after one that is not counted where it is short."""
    start = time.perf_counter()
    result = function()
    first = time.perf_counter() - start
    if first > 20:
        return first, result
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return float(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def peak_megabytes(function: Callable[[], Any]) -> tuple[float, Any]:
    """Peak resident memory above that before the call (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    result = function()
    return _status("VmHWM") - before, result


def check(text: str, value: str, met: bool | None) -> dict[str, Any]:
    mark = {True: "met", False: "MISSED", None: "no peer here"}[met]
    print(f"  {text:<78} {value:>24}   {mark}", flush=True)
    return {"check": text, "value": value, "met": None if met is None else bool(met)}


def note(text: str, value: str) -> None:
    """A figure that is printed and has no target."""
    print(f"  {text:<78} {value:>24}", flush=True)


def slope(sizes: list[int], times: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


# ------------------------------------------------------------------ data


def outcome(n: int, seed: int = 0, risk: Any = 0.0) -> Any:
    """Weibull event times, shorter where ``risk`` is larger, and uniform censoring times."""
    rng = np.random.default_rng(seed)
    t, c = rng.weibull(1.3, n) * np.exp(-0.5 * np.asarray(risk)), 1.5 * rng.random(n)
    return Surv.from_arrays(t <= c, np.minimum(t, c))


def tied(y: Any) -> Any:
    """The same outcome with times rounded up to hundredths (pycox reads G(0) for G(0-), so none is zero)."""
    return Surv.from_arrays(y["event"], np.ceil(100 * y["time"]) / 100)


class Network:
    """A network monotone in time, two mixed layers of 32, the time derivative carried along; counts its own seconds."""

    def __init__(self, width: int = 32, seed: int = 0) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.w = [torch.rand(width, width, generator=draw) / width * 3 for _ in range(2)]
        self.b = [torch.randn(width, generator=draw) * 0.3 for _ in range(2)]
        self.time = torch.rand(width, generator=draw) * 2
        self.out = torch.rand(width, 1, generator=draw) / width * 8
        self.seconds = 0.0

    def __call__(self, code: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        start = time.perf_counter()
        value = torch.tanh(code[:, None, :] + t[:, :, None] * self.time)
        change = (1 - value.square()) * self.time
        for w, b in zip(self.w, self.b):
            value, change = torch.tanh(value @ w + b), change @ w
            change = (1 - value.square()) * change
        h, slope_of_h = (value @ self.out)[..., 0] + torch.log(t + 1e-3), (change @ self.out)[..., 0] + 1 / (t + 1e-3)
        self.seconds += time.perf_counter() - start
        return h, slope_of_h


def network_prediction(n: int, seed: int = 0) -> tuple[Continued, Network, Any]:
    """A prediction, its network, and outcomes that go with it."""
    network = Network(seed=seed)
    code = torch.randn(n, 32, generator=torch.Generator().manual_seed(seed + 1)) * 0.5
    risk = code.sum(dim=1).numpy() / (0.5 * np.sqrt(32))
    return Continued(Monotone(network, code), 1.5, 0.0), network, outcome(n, seed, risk)


def table(n: int, seed: int = 0) -> tuple[Tabulated, Any]:
    """A tabulated prediction, and outcomes that go with it."""
    rng = np.random.default_rng(seed + 1)
    times, risk = np.linspace(0.0, 1.5, N_TIMES), rng.normal(size=n)
    scale, shape = np.exp(-0.5 * risk)[:, None], np.exp(0.3 * rng.normal(size=(n, 1)))
    return Tabulated(times, np.exp(-((times / scale) ** shape))), outcome(n, seed, risk)


# ------------------------------------------------------------------ parts


def tabulated() -> list[dict[str, Any]]:
    """Ctd of a tabulated prediction (100 times)."""
    checks = []
    peer = _pycox()
    sizes, times = [10_000, 30_000, 100_000, 200_000, 500_000], []
    for n in sizes:
        d, y = table(n)
        spent, value = seconds(lambda d=d, y=y: concordance_td(d, y))
        times.append(spent)
        print(f"  sumosurv  n = {n:>7,}  {spent:8.3f} s   Ctd {value:.6f}", flush=True)
    if peer is not None:
        peer_sizes, peer_times = [10_000, 20_000, 50_000, 100_000], []
        for n in peer_sizes:
            d, y = table(n)
            surv = np.ascontiguousarray(d.table.numpy().T)
            spent, value = seconds(lambda s=surv, d=d, y=y: _pycox_concordance(peer, d, s, y))
            peer_times.append(spent)
            print(f"  pycox     n = {n:>7,}  {spent:8.3f} s   Ctd {value:.6f}", flush=True)
            if n == 10_000:
                gap = max(
                    abs(_pycox_concordance(peer, d, surv, y, m) - concordance_td(d, y, method=m))
                    for m in ("adj_antolini", "antolini")
                )
                gap = max(
                    gap,
                    abs(_pycox_concordance(peer, d, surv, tied(y)) - concordance_td(d, tied(y), method="adj_antolini")),
                )
        checks.append(
            check(
                "same value as pycox to 1e-12 (both methods, with and without tied times)", f"{gap:.1e}", gap <= 1e-12
            )
        )
        ratio = peer_times[0] / times[0]
        checks.append(check("at least as fast as pycox at n = 10,000", f"{ratio:.2f} x", ratio >= 1))
        note("pycox's time grows as n to the power", f"{slope(peer_sizes, peer_times):.2f}")
    else:
        checks.append(check("same value as pycox, at least as fast at n = 10,000", "pycox not importable", None))
    power = slope(sizes, times)
    n_log_n = slope(sizes, [n * np.log(n) for n in sizes])
    text = f"grows as n log n (power {n_log_n:.2f}, + 0.15 allowed) from 10^4 to 5·10^5 rows"
    checks.append(check(text, f"power {power:.2f}", power <= n_log_n + 0.15))
    return checks


def exact() -> list[dict[str, Any]]:
    """Exact Ctd of a continuous model at n = 10,000: S of everyone at risk at every event time."""
    n = 10_000
    d, network, y = network_prediction(n)
    concordance_td(d[:500], y[:500])  # first calls set up threads
    network.seconds, start = 0.0, time.perf_counter()
    memory, value = peak_megabytes(lambda: concordance_td(d, y))
    spent, inside = time.perf_counter() - start, network.seconds
    share = 1 - inside / spent
    events = int(y["event"].sum())
    print(f"  {events:,} event times, {spent:.2f} s, of it {inside:.2f} s in the network; Ctd {value:.6f}")
    checks = [
        check("no n x n array: peak extra memory <= 500 MB", f"{memory:.0f} MB", memory <= 500),
        check("share of time outside the network below a third", f"{share:.3f}", share < 1 / 3),
    ]
    even = np.linspace(0, y["time"].max(), N_TIMES)
    quantiles = np.unique(np.quantile(y["time"][y["event"]], np.linspace(0, 1, N_TIMES)))
    for name, grid in (("even times", even), ("quantiles of the event times", quantiles)):
        error = concordance_td(d, y, times=grid) - value
        note(f"error of the 100-point version, {name}", f"{error:+.2e}")
    return checks


def kkbox() -> list[dict[str, Any]]:
    """All scores together at the size of KKBOX's test fold."""
    n = KKBOX_TEST_ROWS
    d, network, y = network_prediction(n)
    grid = np.linspace(0.0, 1.45, N_TIMES)
    steps: dict[str, Callable[[], float]] = {
        "Ctd (100 times)": lambda: concordance_td(d, y, times=grid),
        "IBS": lambda: integrated_brier(d, y, times=grid, censoring=g).mean(),
        "IBLL": lambda: integrated_binomial_log_likelihood(d, y, times=grid[1:], censoring=g).mean(),
        "S_L": lambda: log_likelihood(d, y).mean(),
        "D-calibration": lambda: d_calibration(d, y).score,
    }
    g = kaplan_meier(y, censoring=True)

    def all_together() -> float:
        start = time.perf_counter()
        for name, step in steps.items():
            before, inside = time.perf_counter(), network.seconds
            value = float(step())
            took, inside = time.perf_counter() - before, network.seconds - inside
            print(f"  {name:<18} {value:>10.5f}   {took:7.2f} s ({inside:.2f} s in the network)", flush=True)
        return time.perf_counter() - start

    memory, spent = peak_megabytes(all_together)
    return [
        check(f"n = {n:,}, 100 times: all five together in minutes (< 5)", f"{spent:.1f} s", spent < 300),
        check("under 2 GB of extra memory", f"{memory:.0f} MB", memory < 2000),
    ]


def brier() -> list[dict[str, Any]]:
    """IBS on 100 times at n = 10,000, against scikit-survival and pycox."""
    n = 10_000
    y, train = outcome(n), outcome(n, seed=5)
    times = np.linspace(0.01, 1.4, N_TIMES)
    rng = np.random.default_rng(3)
    scale, shape = np.exp(0.4 * rng.normal(size=(n, 1))), np.exp(0.3 * rng.normal(size=(n, 1)))
    estimate = np.exp(-((times / scale) ** shape))
    d = Tabulated(np.concatenate([[0.0], times]), np.column_stack([np.ones(n), estimate]))

    def ours() -> float:
        return float(integrated_brier(d, y, times=times, censoring=kaplan_meier(train, censoring=True)).mean())

    spent, value = seconds(ours, 10)
    print(f"  sumosurv        {spent * 1e3:8.2f} ms   IBS {value:.8f}")
    checks = []
    try:
        from sksurv.metrics import integrated_brier_score
    except ImportError:
        checks.append(check("IBS: same value as scikit-survival, at least as fast", "not importable", None))
    else:
        peer_spent, peer_value = seconds(lambda: float(integrated_brier_score(train, y, estimate, times)), 10)
        print(f"  scikit-survival {peer_spent * 1e3:8.2f} ms   IBS {peer_value:.8f}")
        checks.append(
            check(
                "IBS: same value as scikit-survival to 1e-8",
                f"{abs(value - peer_value):.1e}",
                abs(value - peer_value) < 1e-8,
            )
        )
        checks.append(
            check("IBS: at least as fast as scikit-survival", f"{peer_spent / spent:.2f} x", peer_spent >= spent)
        )
    peer = _pycox()
    if peer is None:
        checks.append(check("IBS and IBLL in pycox's convention: same values", "pycox not importable", None))
        return checks
    import pandas as pd

    for name, target in (("distinct times", y), ("tied times", tied(y))):
        grid = np.linspace(target["time"].min(), target["time"].max(), N_TIMES)
        surv = pd.DataFrame(d.table.numpy().T, index=d.times.numpy())
        evaluation = peer.EvalSurv(surv, target["time"].copy(), target["event"].astype(int), censor_surv="km")
        g = kaplan_meier(Surv.from_arrays(~target["event"], target["time"]))
        options: dict[str, Any] = {"times": grid, "censoring": g, "normalize": True, "rule": "simpson"}
        gaps = [
            abs(integrated_brier(d, target, **options).mean() - evaluation.integrated_brier_score(grid)),
            abs(
                integrated_binomial_log_likelihood(d, target, floor=1e-7, **options).mean()
                + evaluation.integrated_nbll(grid)
            ),
        ]
        checks.append(
            check(f"IBS and IBLL in pycox's convention, {name}: to 1e-8", f"{max(gaps):.1e}", max(gaps) < 1e-8)
        )
    return checks


# ------------------------------------------------------------------ peers


def _pycox() -> Any:
    try:
        import scipy.integrate

        if not hasattr(scipy.integrate, "simps"):  # pycox 0.3 wants the name that SciPy dropped
            scipy.integrate.simps = scipy.integrate.simpson
        from pycox import evaluation
    except ImportError:
        return None
    return evaluation


def _pycox_concordance(peer: Any, d: Tabulated, surv: Any, y: Any, method: str = "adj_antolini") -> float:
    index = np.searchsorted(d.times.numpy(), y["time"], side="right") - 1
    events = y["event"].astype(int)
    return float(peer.concordance.concordance_td(y["time"].copy(), events, surv, index, method))


PARTS = {"tabulated": tabulated, "exact": exact, "brier": brier, "kkbox": kkbox}

if __name__ == "__main__":
    main()
