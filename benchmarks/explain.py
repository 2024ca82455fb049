"""SurvSHAP(t) against the packages survshap and shap: the same model, subjects, background rows and times.

The peers live in an environment of their own, which is put last on the path:

    python3 -m venv .venv-peer && .venv-peer/bin/pip install survshap shap
    python benchmarks/explain.py --peers .venv-peer --out results

Eight columns: exact values, which must agree. Twenty columns: sampled values, their error against a long run of ours,
and what each costs; "at equal error" is the ratio of CPU seconds if each drew as many orders as make its mean square
error that of ours. CPU seconds are of the process; seconds on the clock are longer where others use the machine.
"""

import contextlib
import io
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from _measure import arguments, keep, show, start

from sumosurv import SumoNet, Surv
from sumosurv.explain import survshap

TIMES = 50


class Counted:
    """A model that counts the rows it predicts."""

    def __init__(self, model):
        self.model, self.rows = model, 0

    def predict_distribution(self, X):
        self.rows += len(X)
        return self.model.predict_distribution(X)

    def survival(self, X, times):
        return self.predict_distribution(X).single().survival(times)


class Curve:
    """A curve at fixed times, as survshap asks for it."""

    def __init__(self, values):
        self.y = values

    def __call__(self, times):
        return self.y


def fitted(columns, device, seed=0, n=2000):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, columns)), columns=[f"c{i}" for i in range(columns)])
    event = rng.weibull(1.5, n) * np.exp(-0.5 * X["c0"] + 0.4 * X["c1"] * X["c2"] - 0.4 * X["c3"])
    end = rng.exponential(2.0, n)
    y = Surv.from_arrays(event <= end, np.minimum(event, end))
    return SumoNet(random_state=0, device=device).fit(X, y), X, y


def measured(function):
    """What a function gives, seconds on the clock, CPU seconds."""
    clock, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        result = function()
    return result, time.perf_counter() - clock, time.process_time() - cpu


def by_survshap(model, X, background, y, times, **settings):
    from survshap import PredictSurvSHAP, SurvivalModelExplainer

    def curves(model, rows):
        return [Curve(own) for own in model.survival(rows, times)]

    explainer = SurvivalModelExplainer(model, background, y, predict_survival_function=curves)
    found = []
    for i in range(len(X)):
        explained = PredictSurvSHAP(random_state=0, **settings)
        explained.fit(explainer, X.iloc[[i]], timestamps=times)
        mean = explained.result[explained.result["B"] == 0].set_index("variable_name")
        found.append(mean.loc[X.columns, [c for c in mean if str(c).startswith("t = ")]].to_numpy(dtype=float))
    return np.stack(found)


def by_shap(model, X, background, times, kind):
    import shap

    def predict(rows):
        return model.survival(pd.DataFrame(rows, columns=X.columns), times)

    if kind == "permutation":
        masker = shap.maskers.Independent(background, max_samples=len(background))
        found = shap.PermutationExplainer(predict, masker, seed=0)(X, max_evals=10 * (2 * X.shape[1] + 1), silent=True)
        return np.asarray(found.values)
    found = shap.KernelExplainer(predict, background, seed=0).shap_values(X, silent=True)
    return np.asarray(found)


def line(name, columns, subjects, model, made, reference):
    values, clock, cpu = made
    rows, model.rows = model.rows, 0
    return {
        "columns": columns,
        "method": name,
        "rows a subject": round(rows / subjects),
        "seconds a subject": clock / subjects,
        "CPU s a subject": cpu / subjects,
        "rms error": float(np.sqrt(np.mean((values - reference) ** 2))),
        "largest": float(np.abs(values - reference).max()),
    }


def main():
    parser = arguments(__doc__)
    parser.add_argument("--peers", type=Path, default=None, help="virtual environment with survshap and shap")
    options = parser.parse_args()
    if options.peers is not None:
        sys.path += [str(path) for path in options.peers.resolve().glob("lib/python*/site-packages")]
    start(options)
    rows = [*eight(options), *twenty(options)]
    for group in (8, 20):
        own = [row for row in rows if row["columns"] == group]
        for row in own:
            row["CPU ratio"] = row["CPU s a subject"] / own[0]["CPU s a subject"]
            if group == 20:
                row["at equal error"] = row["CPU ratio"] * (row["rms error"] / own[0]["rms error"]) ** 2
        show(own, list(own[0]))
    peers = {name: version(name) for name in ("survshap", "shap")} if options.peers is not None else {}
    keep(options, "explain", {"times": TIMES, "quick": options.quick, "peers": peers}, {"rows": rows})


def eight(options):
    """Exact values of eight columns."""
    fit, X, y = fitted(8, options.device)
    model, times = Counted(fit), np.linspace(0.0, fit.last_time_, TIMES)
    subjects, background = X.iloc[: 2 if options.quick else 3], X.iloc[100:120]
    asked = {"times": times, "n_background": 20}
    made = measured(lambda: survshap(model, subjects, background, method="exact", **asked).values)
    yield line("sumosurv, exact", 8, len(subjects), model, made, made[0])
    if options.peers is not None:
        own = made[0]
        made = measured(lambda: by_survshap(model, subjects, background, y, times, calculation_method="kernel"))
        yield line("survshap, exact kernel", 8, len(subjects), model, made, own)


def twenty(options):
    """Sampled values of twenty columns."""
    fit, X, y = fitted(20, options.device)
    model, times = Counted(fit), np.linspace(0.0, fit.last_time_, TIMES)
    n, few = (20, 1) if options.quick else (100, 2)
    asked = {"times": times, "n_background": 32}
    shap, clock, cpu = measured(lambda: survshap(model, X.iloc[:n], X, **asked))
    count, model.rows = model.rows, 0
    print(f"{n} subjects x 20 columns x {TIMES} times: {clock:.1f} s on the clock, {cpu:.1f} CPU s, {count} rows\n")
    background = shap.background
    subjects = X.iloc[:few]
    long = survshap(
        model, subjects, background, n_permutations=(8 if options.quick else 32) * 32, random_state=1, **asked
    )
    model.rows = count
    ours = line("sumosurv, 32 orders and their reverse", 20, n, model, (shap.values, clock, cpu), 0.0)
    error = shap.values[:few] - long.values
    yield ours | {"rms error": float(np.sqrt(np.mean(error**2))), "largest": float(np.abs(error).max())}
    if options.peers is None:
        return
    peers = {
        "survshap, 25 orders": lambda: by_survshap(
            model, subjects, background, y, times, calculation_method="sampling", B=25
        ),
        "shap, 10 orders and their reverse": lambda: by_shap(model, subjects, background, times, "permutation"),
        "shap, kernel": lambda: by_shap(model, subjects, background, times, "kernel"),
    }
    for name, function in peers.items():
        model.rows = 0
        yield line(name, 20, few, model, measured(function), long.values)


if __name__ == "__main__":
    main()
