"""Seconds and memory of `evaluate`, `concordance_td`, AUC and survival-CRPS, beside scikit-survival in the same run.

    python benchmarks/evaluation.py [--quick] [--out results]

Two networks of SumoNet on 8 columns, and a Cox model. Processor seconds, since other work on the machine adds to the
others. AUC and integrated Brier score are of the same tables as scikit-survival's, with their values compared.
"""

import time

import numpy as np
import pandas as pd
from _measure import arguments, keep, peak_memory, show, start

from sumosurv import CoxPH, SumoNet, Surv, kaplan_meier
from sumosurv.distributions import Tabulated
from sumosurv.scores import concordance_td, cumulative_dynamic_auc, evaluate, integrated_brier, survival_crps


def table(n, seed=0):
    """Covariates and an outcome whose censoring depends on one of them."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 8)), columns=list("abcdefgh"))
    event = np.exp(0.5 * X["a"] - 0.3 * X["b"] ** 2) * rng.weibull(1.3, n)
    censored = rng.exponential(2.0, n) * np.exp(-0.5 * X["c"])
    return X, Surv.from_arrays(event <= censored, np.minimum(event, censored))


def spent(function):
    """Processor seconds of one call, and its result."""
    begun = time.process_time()
    result = function()
    return time.process_time() - begun, result


def ours(model, cox, sizes, crps_rows):
    """Rows of the table: what of, how many rows, seconds, largest memory so far."""
    found = []

    def note(what, n, seconds):
        gigabytes = peak_memory("cpu")["host_bytes"] / 1e9
        found.append({"what": what, "rows": n, "cpu_seconds": seconds, "peak_gb": gigabytes})

    def measure(n):
        X, y = table(n, seed=1)
        note("evaluate, Cox", n, spent(lambda: evaluate(cox, X, y))[0])
        note("concordance_td, Cox", n, spent(lambda: concordance_td(cox.predict_distribution(X), y))[0])
        note("concordance_td, two networks", n, spent(lambda: concordance_td(model.predict_distribution(X), y))[0])
        note("evaluate, two networks", n, spent(lambda: evaluate(model, X, y))[0])

    for n in sizes:
        measure(n)
    X, y = table(crps_rows, seed=1)
    note("survival_crps, two networks", crps_rows, spent(lambda: survival_crps(model.predict_distribution(X), y))[0])
    return found


def peers(n):
    """Seconds beside scikit-survival's, on the same curves and weights, and the largest difference of the values."""
    from sksurv.metrics import cumulative_dynamic_auc as their_auc
    from sksurv.metrics import integrated_brier_score

    X, y = table(n, seed=2)
    times = np.quantile(y["time"], np.linspace(0.05, 0.9, 50))
    survival = np.exp(-times / np.exp(0.5 * X["a"].to_numpy())[:, None])
    d = Tabulated(np.append(0.0, times), np.column_stack([np.ones(n), survival]))
    g = kaplan_meier(y, censoring=True)
    options = {"censoring": g, "left_limit": False, "on_zero": "drop"}
    pairs = {
        "AUC, 50 times": (
            lambda: cumulative_dynamic_auc(1.0 - survival, y, times, **options),
            lambda: their_auc(y, y, 1.0 - survival, times, tied_tol=0.0)[0],
        ),
        "integrated Brier, 50 times": (
            lambda: integrated_brier(d, y, times=times, **options).mean(),
            lambda: integrated_brier_score(y, y, survival, times),
        ),
    }
    rows = []
    for what, (own, other) in pairs.items():
        (seconds, value), (their_seconds, theirs) = spent(own), spent(other)
        gap = float(np.max(np.abs(value - theirs)))
        rows.append({"what": what, "rows": n, "ours": seconds, "scikit-survival": their_seconds,
                     "ratio": their_seconds / seconds, "difference": gap})  # fmt: skip
    return rows


def main():
    """Measure, print, keep."""
    options = arguments(__doc__).parse_args()
    start(options)
    X, y = table(4000)
    model = SumoNet(n_members=2, max_epochs=5, random_state=0).fit(X, y)
    cox = CoxPH().fit(X, y)
    sizes = [2_500] if options.quick else [20_000, 100_000, 200_000]
    measured = ours(model, cox, sizes, 500 if options.quick else 5_000)
    show(measured, ["what", "rows", "cpu_seconds", "peak_gb"])
    beside = peers(2_000 if options.quick else 20_000)
    show(beside, ["what", "rows", "ours", "scikit-survival", "ratio", "difference"])
    keep(options, "evaluation", {"sizes": sizes, "networks": 2, "columns": 8}, {"ours": measured, "peers": beside})


if __name__ == "__main__":
    main()
