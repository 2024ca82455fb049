"""Are the bootstrap intervals of `evaluate` right? Standard errors against the spread over fresh samples.

    python benchmarks/intervals.py                             # some minutes on one core
    python benchmarks/intervals.py --rows 1000 --samples 500
    python benchmarks/intervals.py --stretch 1.3               # score a model whose times are 1.3 times too long
    python benchmarks/intervals.py --censoring 2               # a third of the rows censored instead of half of them

Samples of one size are drawn from a known distribution (Weibull given x, exponential censoring) and scored with the
true conditional distribution, or one rescaled in time. Each score is printed with

sd        its standard deviation over the samples,
se        the bootstrap standard error, on average over the samples,
ratio     se / sd,
cover     how many of the 95 % intervals hold the mean of the score over all samples.

The censoring distribution of the weighted scores is estimated from the scored rows.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from sumosurv import Surv
from sumosurv.distributions import Rescaled, SurvivalDistribution, Weibull
from sumosurv.scores import SCORES, evaluate

TIME, SPAN = 0.7, (0.1, 1.5)
OPTIONS: dict[str, dict[str, Any]] = {
    "brier": {"times": TIME},
    "binomial_log_likelihood": {"times": TIME},
    "group_calibration": {"time": TIME},
    "integrated_brier": {"times": SPAN},
    "integrated_binomial_log_likelihood": {"times": SPAN},
    "uno_c": {"tau": SPAN[1]},
}


def sample(rows: int, stretch: float, censoring: float, rng: np.random.Generator) -> tuple[SurvivalDistribution, Any]:
    """(the model's distribution, outcome) of fresh subjects."""
    scale = np.exp(0.5 * rng.normal(size=rows))
    event_time = scale * rng.weibull(1.5, rows)
    censoring_time = rng.exponential(censoring, rows)
    y = Surv.from_arrays(event_time <= censoring_time, np.minimum(event_time, censoring_time))
    truth = Weibull(scale, 1.5)
    return (truth if stretch == 1.0 else Rescaled(truth, stretch)), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--bootstrap", type=int, default=200)
    parser.add_argument("--stretch", type=float, default=1.0, help="1 for the truth")
    parser.add_argument("--censoring", type=float, default=1.0, metavar="MEAN", help="mean censoring time")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    wanted = {name: OPTIONS.get(name, {}) for name in SCORES}
    tables = []
    for _ in range(arguments.samples):
        distribution, y = sample(arguments.rows, arguments.stretch, arguments.censoring, rng)
        table = evaluate(distribution, None, y, scores=wanted, n_bootstrap=arguments.bootstrap, random_state=rng)
        tables.append(table[["value", "low", "high", "std_error"]].to_numpy())
    value, low, high, error = np.moveaxis(np.stack(tables), 2, 0)
    sd, inside = value.std(axis=0, ddof=1), (low <= value.mean(axis=0)) & (value.mean(axis=0) <= high)
    print(f"{arguments.samples} samples of {arguments.rows} rows, {arguments.bootstrap} resamples of each")
    print(f"{'score':<36}{'mean':>10}{'sd':>10}{'se':>10}{'ratio':>8}{'cover':>8}")
    for i, name in enumerate(wanted):
        numbers = f"{value[:, i].mean():>10.4f}{sd[i]:>10.5f}{error[:, i].mean():>10.5f}"
        print(f"{name:<36}{numbers}{error[:, i].mean() / sd[i]:>8.2f}{inside[:, i].mean():>8.3f}")


if __name__ == "__main__":
    main()
