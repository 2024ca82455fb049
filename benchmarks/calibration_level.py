"""How often do the tests of calibration reject the true distribution? The nominal level is 5 %.

    python benchmarks/calibration_level.py --out results       # some minutes on one core
    python benchmarks/page.py                                  # fills the table of docs/scores_evidence.md

Each design is a Weibull distribution given x with exponential censoring, scored with the truth. Recorded are the share
of rows censored, the 5 % and 95 % quantiles of S(t|x), and the share of samples with p < 0.05:

KM          `group_calibration`, with the variance of the observed survival under the model,
Greenwood   the same with Greenwood's variance of the observed survival (Demler et al. 2015),
D           `d_calibration`, corrected for censoring,
Pearson     the same with Pearson's test (Haider et al. 2020).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from _record import make_record, save_record
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


TESTS = ("KM", "Greenwood", "D", "Pearson")


def levels(name: str, rows: int, groups: int, samples: int, rng: np.random.Generator) -> dict[str, object]:
    """Simulate one design: rejection rates of the four tests, and what the samples look like."""
    spread, centre, shape, mean, time = DESIGNS[name]
    rejected, censored, survival = np.zeros(len(TESTS)), 0.0, np.zeros(2)
    for _ in range(samples):
        scale = centre * np.exp(spread * rng.normal(size=rows))
        t = scale * rng.weibull(shape, rows)
        c = np.full(rows, np.inf) if np.isinf(mean) else rng.exponential(mean, rows)
        y, d = Surv.from_arrays(t <= c, np.minimum(t, c)), Weibull(scale, shape)
        result = group_calibration(d, y, time, groups=groups)
        used = result.std_error > 0
        squares = np.square((result.predicted - result.observed)[used] / result.std_error[used])
        whole = d_calibration(d, y)
        p = (result.p_value, chi2.sf(squares.sum(), used.sum()), whole.p_value, chi2.sf(10 * rows * whole.score, 9))
        rejected += np.array(p) < 0.05
        censored += 1.0 - y["event"].mean()
        survival += np.quantile(d.survival(time), [0.05, 0.95])
    shares = {test: share / samples for test, share in zip(TESTS, rejected.tolist())}
    return {"design": name, "censored": censored / samples, "survival": (survival / samples).tolist(), **shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of the record")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    found = [levels(name, options.rows, options.groups, options.samples, rng) for name in DESIGNS]
    for row in found:
        print(f"{row['design']:<20}" + "".join(f"  {test} {row[test]:.1%}" for test in TESTS))
    if options.out is not None:
        settings = {name: getattr(options, name) for name in ("rows", "groups", "samples", "seed")}
        print(save_record(make_record("calibration_level", settings, {"rows": found}), options.out))


if __name__ == "__main__":
    main()
