"""How often do the tests of calibration reject the true distribution? The nominal level is 5 %.

    python benchmarks/calibration_level.py                     # some minutes on one core
    python benchmarks/calibration_level.py --rows 1000 --groups 10

Each design is a Weibull distribution given x with exponential censoring, scored with the truth. Printed are the share
of rows censored, the 5 % and 95 % quantiles of S(t|x), and the share of samples with p < 0.05:

KM          `group_calibration`, with the variance of the observed survival under the model,
Greenwood   the same with Greenwood's variance of the observed survival (Demler et al. 2015),
D           `d_calibration`, corrected for censoring,
Pearson     the same with Pearson's test (Haider et al. 2020).
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import chi2

from sumosurv import Surv
from sumosurv.distributions import Weibull
from sumosurv.scores import d_calibration, group_calibration

# spread of log scale given x, median scale, shape, mean censoring time, time
DESIGNS = {
    "a third censored": (0.5, 1.0, 1.5, 2.0, 0.7),
    "weak covariates": (0.2, 1.0, 1.0, 2.0, 0.7),
    "strong covariates": (1.2, 1.0, 1.5, 2.0, 0.7),
    "rare events": (0.5, 8.0, 1.0, 2.0, 1.0),
    "heavy censoring": (0.5, 1.0, 1.5, 0.7, 0.7),
    "no censoring": (0.5, 1.0, 1.5, np.inf, 0.7),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, n = np.random.default_rng(arguments.seed), arguments.rows
    print(f"{arguments.samples} samples of {n} rows, {arguments.groups} groups; rejected at a nominal 5 %")
    print(f"{'design':<20}{'censored':>10}{'S(t|x)':>14}{'KM':>8}{'Greenwood':>11}{'D':>8}{'Pearson':>9}")
    for name, (spread, centre, shape, mean, time) in DESIGNS.items():
        rejected, censored, survival = np.zeros(4), 0.0, np.zeros(2)
        for _ in range(arguments.samples):
            scale = centre * np.exp(spread * rng.normal(size=n))
            t = scale * rng.weibull(shape, n)
            c = np.full(n, np.inf) if np.isinf(mean) else rng.exponential(mean, n)
            y, d = Surv.from_arrays(t <= c, np.minimum(t, c)), Weibull(scale, shape)
            result = group_calibration(d, y, time, groups=arguments.groups)
            used = result.std_error > 0
            squares = np.square((result.predicted - result.observed)[used] / result.std_error[used])
            whole = d_calibration(d, y)
            p = (result.p_value, chi2.sf(squares.sum(), used.sum()), whole.p_value, chi2.sf(10 * n * whole.score, 9))
            rejected += np.array(p) < 0.05
            censored += 1.0 - y["event"].mean()
            survival += np.quantile(d.survival(time), [0.05, 0.95])
        rejected, survival = rejected / arguments.samples, survival / arguments.samples
        span = f"{survival[0]:.2f} - {survival[1]:.2f}"
        levels = "".join(f"{level:>{width}.1%}" for level, width in zip(rejected, (8, 11, 8, 9)))
        print(f"{name:<20}{censored / arguments.samples:>10.0%}{span:>14}{levels}")


if __name__ == "__main__":
    main()
