"""Size of tests that all coefficients of a Weibull regression are zero, at 5 %, and score tests far from zero.

    python benchmarks/score_test.py --out results

The score tests take the gradient without covariates, and as its variance the observed information of all parameters
there, or the sum of the squared contributions of the rows. Summaries print neither: both reject a true hypothesis more
often than the likelihood ratio and Wald tests do, and the observed information need not be positive far from it.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from _measure import show
from _record import make_record, save_record
from scipy.stats import chi2

from sumosurv import ParametricRegression, Surv, check_outcome
from sumosurv.estimators.parametric_likelihood import ParametricLikelihood, make_family
from sumosurv.estimators.regression import maximise

LEVEL, SEED = 0.05, 0
TESTS = ("likelihood ratio", "Wald", "score, observed", "score, squares")


def statistics(rng, n, p, effect):
    """The four statistics of one sample with a shape of 1.5; about four in ten rows are censored."""
    X = rng.normal(size=(n, p))
    time = rng.weibull(1.5, n) * np.exp(effect * X[:, 0])
    censored = rng.exponential(2.0, n)
    y = Surv.from_arrays(time <= censored, np.minimum(time, censored))
    tests = ParametricRegression().fit(X, y).summary().tests["statistic"]
    given = check_outcome(y), np.zeros(n, dtype=np.int64), np.zeros(n), np.zeros(p), np.eye(p)
    likelihood = ParametricLikelihood(make_family("weibull"), X.T.copy(), *given)
    null = likelihood.without_columns()
    at = np.append(np.zeros(p), maximise(null, null.start(), np.zeros(2), 100, 1e-16).parameters)
    _, gradient, information = likelihood(at)
    rows = likelihood.score_residuals(at)
    scores = [float(gradient @ np.linalg.solve(matrix, gradient)) for matrix in (information, rows.T @ rows)]
    return [tests["likelihood_ratio"], tests["wald"], *scores]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=None, help="folder for the JSON record")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    size, far = [], []
    for n, p in ((50, 1), (50, 4), (100, 4), (200, 4), (500, 4)):
        rng = np.random.default_rng([SEED, n, p])
        found = np.array([statistics(rng, n, p, 0.0) for _ in range(options.samples)])
        size.append(
            {"rows": n, "columns": p} | dict(zip(TESTS, (found > chi2.ppf(1 - LEVEL, p)).mean(axis=0).tolist()))
        )
    for effect in (0.2, 0.5, 1.0, 1.5):
        rng = np.random.default_rng([SEED, int(10 * effect)])
        found = np.array([statistics(rng, 200, 4, effect) for _ in range(options.samples // 10)])
        medians = dict(zip(TESTS, np.median(found, axis=0).tolist()))
        far.append({"effect": effect} | medians | {"observed below zero": float((found[:, 2] < 0).mean())})
    show(size, tuple(size[0]))
    show(far, tuple(far[0]))
    if options.out is not None:
        given = {"level": LEVEL, "samples": options.samples, "seed": SEED, "family": "weibull"}
        print(save_record(make_record("score_test", given, {"size": size, "medians": far}), options.out))


if __name__ == "__main__":
    main()
