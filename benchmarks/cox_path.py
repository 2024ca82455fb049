"""Linear models: paths of penalties against R's glmnet, and plain regressions against lifelines; processor seconds.

    python benchmarks/cox_path.py --out results

R with glmnet is used if it is installed. Both fit the same penalties to the same rows, with the same folds. The last
table compares their coefficients on 200 x 5,000 for several thresholds of convergence of glmnet. The
distance from the optimum is measured by the optimality conditions, by the penalised likelihood, and by one exact Newton
step of the nonzero coefficients.
"""

import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from _measure import arguments, keep, show, start

from sumosurv import CoxPH, CoxPHCV, ParametricRegression, Surv
from sumosurv.estimators.basis import standardise
from sumosurv.estimators.elastic_net import fit_path, largest_penalty
from sumosurv.estimators.partial_likelihood import PartialLikelihood
from sumosurv.outcome import check_outcome

SCRIPT = r"""
suppressPackageStartupMessages({library(glmnet); library(survival)})
given <- commandArgs(TRUE); n <- as.integer(given[2]); p <- as.integer(given[3])
d <- matrix(readBin(given[1], "double", n * (p + 2)), n)
x <- d[, -(1:2)]; y <- Surv(d[, 1], d[, 2]); ratio <- as.numeric(given[4])
if (given[5] == "path") {
  spent <- system.time(fit <- glmnet(x, y, family = "cox", lambda.min.ratio = ratio))
} else {
  lambda <- glmnet(x, y, family = "cox", lambda.min.ratio = ratio)$lambda
  spent <- system.time(fit <- cv.glmnet(x, y, family = "cox", lambda = lambda, foldid = (seq_len(n) - 1) %% 10 + 1))
}
cat(spent[["user.self"]] + spent[["sys.self"]], as.character(packageVersion("glmnet")))
"""


COEFFICIENTS = r"""
suppressPackageStartupMessages({library(glmnet); library(survival)})
glmnet.control(fdev = 0, epsnr = 1e-14, mxitnr = 200)
given <- commandArgs(TRUE); n <- as.integer(given[2]); p <- as.integer(given[3])
d <- matrix(readBin(given[1], "double", n * (p + 2)), n)
fit <- glmnet(d[, -(1:2)], Surv(d[, 1], d[, 2]), family = "cox", lambda = readBin(given[4], "double", 1000),
              thresh = as.numeric(given[5]), maxit = 1e9)
writeBin(as.numeric(as.matrix(fit$beta)), given[6])
"""


def simulate(n, p, seed=0):
    """Correlated columns, 20 of which matter; four in ten rows are censored."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.5 * rng.normal(size=(n, 1))
    time_to_event = rng.exponential(np.exp(-0.4 * X[:, :20] @ rng.normal(size=20)))
    censored = rng.exponential(3.0 * np.median(time_to_event), n)
    return X, time_to_event <= censored, np.minimum(time_to_event, censored)


def processor_seconds(function, *arguments):
    """Of one call."""
    begun = time.process_time()
    function(*arguments)
    return time.process_time() - begun


def by_glmnet(X, event, when, ratio, what):
    """Processor seconds and version of glmnet; None if it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.bin")
        np.asfortranarray(np.column_stack([when, event, X])).T.tofile(path)
        options = [str(path), *map(str, X.shape), str(ratio), what]
        try:
            told = subprocess.run(["Rscript", "-e", SCRIPT, *options], capture_output=True, text=True, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            return None, None
    spent, version = told.stdout.split()
    return float(spent), version


def standardised(X, y):
    """Columns, their standard deviations and the likelihood of the rows."""
    z, scale = standardise(X, X.mean(axis=0), None)
    return z, scale, PartialLikelihood(np.empty((len(X), 0)), check_outcome(y, n_rows=len(X)), "breslow")


def whole_path(X, y, ratio):
    """Fit 100 penalties, without cross-validation."""
    z, _, likelihood = standardised(X, y)
    alphas = largest_penalty(z, likelihood, 1.0) * np.exp(np.linspace(0.0, np.log(ratio), 100))
    return fit_path(z, likelihood, 1.0, alphas, 100, stop=True)


def cross_validated(X, y, ratio):
    """Fit 100 penalties to all rows and to the training rows of ten folds."""
    return CoxPHCV(ties="breslow", min_ratio=ratio, cv=np.arange(len(X)) % 10).fit(X, y)


def paths(quick):
    """Rows of the table of paths, and the version of glmnet."""
    made, version = [], None
    cases = [
        (200, 5_000, 0.01, "path"),
        (1_000, 1_000, 0.05, "cross-validation"),
        (1_000, 1_000, 0.01, "path"),  # glmnet takes minutes for smaller penalties
    ]
    for n, p, ratio, what in cases[:1] if quick else cases:
        X, event, when = simulate(n, p)
        function = whole_path if what == "path" else cross_validated
        spent = processor_seconds(function, X, Surv.from_arrays(event, when), ratio)
        theirs, found = by_glmnet(X, event, when, ratio, what)
        version = version or found
        row = {"what": f"lasso, {what}", "rows": n, "columns": p, "smallest penalty": ratio, "sumosurv": spent}
        made.append(row | {"peer": "glmnet", "seconds of peer": theirs, "ratio": theirs / spent if theirs else None})
    return made, version


def agreement(n=200, p=5_000, penalties=53):
    """Distance of glmnet's coefficients from ours, and how far both are from the optimum, by glmnet's threshold.

    The penalties are those of a path of 100 down to 1 % of the largest one; the rest of it would take glmnet hours.
    """
    X, event, when = simulate(n, p)
    z, scale, likelihood = standardised(X, Surv.from_arrays(event, when))
    alphas = largest_penalty(z, likelihood, 1.0) * np.exp(np.linspace(0.0, np.log(0.01), 100))[:penalties]
    ours = fit_path(z, likelihood, 1.0, alphas, 100).coef

    def assess(b, alpha):
        """Violation of the conditions relative to the penalty, objective per row, and size of a Newton step."""
        value, residual = likelihood.residuals(z @ b)
        gradient, used = z.T @ residual, np.flatnonzero(b)
        wrong = np.where(b != 0, np.abs(gradient - alpha * np.sign(b)), np.maximum(np.abs(gradient) - alpha, 0.0))
        factors = likelihood.information_factors(z @ b, z[:, used])
        information = factors[:n].T @ factors[:n] - factors[n:].T @ factors[n:]
        step = np.linalg.lstsq(information, (gradient - alpha * np.sign(b))[used], rcond=1e-12)[0] / scale[used]
        return wrong.max() / alpha, (alpha * np.abs(b).sum() - value) / n, np.abs(step).max(initial=0.0)

    best, made = [assess(b, alpha) for b, alpha in zip(ours, alphas)], []
    for threshold in (1e-7, 1e-9, 1e-11, 1e-14, 1e-16):
        with tempfile.TemporaryDirectory() as folder:
            rows, lambdas, found = (Path(folder, name) for name in ("rows.bin", "lambdas.bin", "coef.bin"))
            np.asfortranarray(np.column_stack([when, event, X])).T.tofile(rows)
            (alphas / n).tofile(lambdas)
            options = [str(rows), str(n), str(p), str(lambdas), str(threshold), str(found)]
            try:
                subprocess.run(["Rscript", "-e", COEFFICIENTS, *options], capture_output=True, check=True)
            except (FileNotFoundError, subprocess.CalledProcessError):
                return None
            theirs = np.fromfile(found).reshape(penalties, p)
        distance = np.abs(theirs - ours / scale).max(axis=1)
        reached = [assess(b * scale, alpha) for b, alpha in zip(theirs, alphas)]
        gaps = [other[1] - own[1] for own, other in zip(best, reached)]
        made.append(
            {
                "threshold of glmnet": threshold,
                "penalties": penalties,
                "within 1e-5": int((distance <= 1e-5).sum()),
                "largest difference": float(distance.max()),
                "violation, glmnet": float(max(own[0] for own in reached)),
                "violation, sumosurv": float(max(own[0] for own in best)),
                "Newton step, glmnet": float(max(own[2] for own in reached)),
                "Newton step, sumosurv": float(max(own[2] for own in best)),
                "objective of glmnet less ours, at least": float(min(gaps)),
                "at most": float(max(gaps)),
            }
        )
    return made


def regressions(quick):
    """Rows of the table of regressions without a penalty."""
    import lifelines

    X, event, when = simulate(1_000 if quick else 10_000, 20)
    y, frame = Surv.from_arrays(event, when), pd.DataFrame(X).rename(columns=str).assign(event=event, time=when)
    pairs = {
        "Cox": (CoxPH(), lifelines.CoxPHFitter()),
        "Weibull": (ParametricRegression(), lifelines.WeibullAFTFitter()),
    }
    made = []
    for name, (ours, theirs) in pairs.items():
        # in turn, and the shortest of five: other work on the machine can only add to it
        times = [
            (processor_seconds(ours.fit, X, y), processor_seconds(theirs.fit, frame, "time", "event")) for _ in range(5)
        ]
        spent, peer = (min(each) for each in zip(*times))
        row = {"what": f"{name} regression", "rows": len(X), "columns": 20, "sumosurv": spent, "peer": "lifelines"}
        made.append(row | {"seconds of peer": peer, "ratio": peer / spent})
    return made, lifelines.__version__


def main():
    options = arguments(__doc__).parse_args()
    start(options)
    penalised, glmnet = paths(options.quick)
    plain, lifelines = regressions(options.quick)
    rows = penalised + plain
    show(rows, ("what", "rows", "columns", "smallest penalty", "sumosurv", "peer", "seconds of peer", "ratio"))
    compared = None if options.quick else agreement()
    if compared:
        show(compared, tuple(compared[0]))
    keep(options, "cox_path", {"glmnet": glmnet, "lifelines": lifelines}, {"rows": rows, "agreement": compared})


if __name__ == "__main__":
    main()
