"""How often does the band of `predict_survival_band` contain the true survival curve?

The default is fitted to simulated tables with a known truth, and its band is compared with S(t|x) of new subjects at
the 10, 30, 50, 70 and 90 % quantiles of the event times. Printed and recorded by table, number of rows and level: the
share of true values inside (pointwise, over subjects, times and samples), the standard error of that share over
samples, the mean width of the band, and the mean error of the predicted curve.

    python benchmarks/bands.py --out results       # 20 minutes on one core
    python benchmarks/page.py

One thread.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from _record import make_record, save_record

from sumosurv import SumoNet, Surv
from sumosurv.distributions import LogNormal, SurvivalDistribution, Weibull

LEVELS = (0.5, 0.8, 0.95)
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
FRESH = 300  # subjects that the band is judged on


def linear(x: np.ndarray) -> SurvivalDistribution:
    """Weibull times, linear in x: a component of the default is correct."""
    return Weibull(np.exp(0.5 * x[:, 0] - 0.5 * x[:, 1]), 1.5)


def curved(x: np.ndarray) -> SurvivalDistribution:
    """Weibull with a bend and an interaction in the scale, and a shape that depends on x."""
    scale = np.exp(np.sin(2.0 * x[:, 0]) + 0.6 * x[:, 1] * x[:, 2])
    return Weibull(scale, np.exp(0.4 + 0.3 * np.tanh(x[:, 3])))


def steps(x: np.ndarray) -> SurvivalDistribution:
    """Log-normal times whose centre jumps where two covariates change sign."""
    return LogNormal(0.8 * np.sign(x[:, 0]) + 0.5 * np.sign(x[:, 1]), 0.7)


TABLES = {"linear": linear, "curved": curved, "steps": steps}


def sample(truth, n: int, rng: np.random.Generator):
    x = rng.normal(size=(n, 5))
    t = truth(x).sample(random_state=rng)
    c = rng.exponential(3.0 * np.median(t), n)
    return x, Surv.from_arrays(t <= c, np.minimum(t, c))


def judge(truth, n: int, seed: int) -> list[dict]:
    rng = np.random.default_rng(seed)
    x, y = sample(truth, n, rng)
    fresh = rng.normal(size=(FRESH, 5))
    times = np.quantile(y["time"][y["event"]], QUANTILES)
    model = SumoNet(random_state=seed, device="cpu").fit(x, y)
    true = truth(fresh).survival(times)
    error = float(np.abs(model.predict_survival_function(fresh, times) - true).mean())
    rows = []
    for level in LEVELS:
        lower, upper = model.predict_survival_band(fresh, times, level)
        inside = float(((lower <= true) & (true <= upper)).mean())
        rows.append({"level": level, "inside": inside, "width": float((upper - lower).mean()), "error": error})
    return [row | {"members": model.n_members_} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 1000, 3000])
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the record")
    arguments = parser.parse_args()
    rows = []
    for name, truth in TABLES.items():
        for n in arguments.rows:
            for seed in range(arguments.samples):
                rows += [{"table": name, "rows": n, "seed": seed} | row for row in judge(truth, n, seed)]
            done = pd.DataFrame(rows).query("table == @name and rows == @n").groupby("level")
            print(name, n, done[["inside", "width", "error"]].mean().round(3).to_string(), flush=True)
    if arguments.out:
        configuration = {"rows": arguments.rows, "samples": arguments.samples, "fresh": FRESH, "quantiles": QUANTILES}
        save_record(make_record("bands", configuration, {"fits": rows}), arguments.out)


if __name__ == "__main__":
    main()
