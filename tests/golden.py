"""Values of every estimator on fixed seeds and small data, which a change of structure must not alter.

``python tests/golden.py write`` stores them in golden.json, which the tests compare with up to rounding. Last digits
depend on the processor, so bits are compared on one machine only, before and after a change::

    python tests/golden.py save before.json
    python tests/golden.py compare before.json
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import sumosurv
from sumosurv import Surv, datasets
from sumosurv.export import export_onnx

FILE = Path(__file__).with_name("golden.json")
TIMES = [0.0, 0.1, 0.4, 0.8, 1.5, 4.0]

SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (8, 8), "random_state": 0}
NETWORKS = SMALL | {"components": "networks"}
CASES: dict[str, tuple[str, dict]] = {
    "SumoNet": ("SumoNet", NETWORKS | {"time_layers": (6, 6)}),
    "SumoNet paper": ("PaperSumoNet", SMALL),
    "SumoNet first": ("SumoNet", NETWORKS | {"time_origin": "first", "refit": True}),
    "WeibullNet": ("WeibullNet", SMALL),
    "LogNormalNet": ("LogNormalNet", SMALL | {"refit": True}),
    "LogLogisticNet": ("LogLogisticNet", SMALL),
    "GompertzNet": ("GompertzNet", SMALL),
    "DeepSurv": ("DeepSurv", SMALL),
    "CoxCC": ("CoxCC", SMALL | {"n_controls": 2}),
    "CoxTime": ("CoxTime", SMALL),
    "DeepHit": ("DeepHit", SMALL | {"n_cuts": 8}),
    "Soden": ("Soden", SMALL | {"steps": 3}),
    "Soden cox": ("Soden", SMALL | {"steps": 3, "form": "cox"}),
    "SurvNode": ("SurvNode", SMALL | {"steps": 3}),
    "CoxPH": ("CoxPH", {"missing": "indicator"}),
    "CoxPH lasso": ("CoxPH", {"missing": "indicator", "alpha": 4.0, "l1_ratio": 1.0}),
    "CoxPHCV": ("CoxPHCV", {"missing": "indicator", "l1_ratio": 0.5, "n_alphas": 30, "cv": 3, "random_state": 0}),
    "CoxPH formula": ("CoxPH", {"formula": "ns(x, df=2) + other:C(kind, ref='b') + log(abs(other))"}),
    "KaplanMeier": ("KaplanMeier", {}),
    "RandomSurvivalForest": ("RandomSurvivalForest", {"n_estimators": 5, "random_state": 0}),
}

# the default fit, in full for right-censored rows and with few epochs for every other outcome
DEFAULTS: dict[str, tuple[int, str, dict]] = {
    "few rows": (240, "right", {}),
    "many rows": (1_100, "right", {}),
    "entry": (240, "entry", {"max_epochs": 3}),
    "intervals": (240, "intervals", {"max_epochs": 3}),
    "causes": (240, "causes", {"max_epochs": 3}),
    "causes, many rows": (1_100, "causes", {"max_epochs": 2}),
    "weights": (240, "weights", {"max_epochs": 3}),
    "groups": (240, "groups", {"max_epochs": 3}),
    "first time, cells": (240, "right", {"max_epochs": 3, "time_origin": "first", "resolution": 0.25}),
}

# methods with competing causes, and methods made of others
OTHERS = ("AalenJohansen", "FineGray", "CauseSpecific", "WeibullNet causes", "GompertzNet causes", "SumoNet causes",
          "DeepHit causes", "SurvivalMixture", "Conformal", "CoxPH weights", "KaplanMeier intervals",
          "ParametricRegression intervals")  # fmt: skip

STREAMS: dict[str, tuple[str, str, dict]] = {
    "SumoNet default": ("SumoNet", "right", {"max_epochs": 2, "random_state": 0}),
    "SumoNet": ("SumoNet", "right", NETWORKS | {"time_layers": (6, 6)}),
    "SumoNet causes": ("SumoNet", "causes", NETWORKS),
    "WeibullNet weights": ("WeibullNet", "weights", SMALL),
}

EXPORTS = ("right", "causes", "entry")


def rows(n=240, seed=0):
    """Two numbers, a category and a column with gaps; times rounded, so that some are tied."""
    data = datasets.simulate("weibull", n, random_state=seed)
    rng = np.random.default_rng(seed)
    X = data.X.assign(
        other=rng.normal(size=n), kind=rng.choice(["a", "b", "c"], n), gaps=np.where(rng.random(n) < 0.2, np.nan, 1.0)
    )
    return X, sumosurv.Surv.from_arrays(data.y["event"], np.round(data.y["time"], 2) + 0.01)


def outcome(kind: str, y) -> tuple[object, dict]:
    """What was observed, in one of the forms that a fit can learn from, and further arguments of ``fit``."""
    n, rng = len(y), np.random.default_rng(5)
    event, time = y["event"], y["time"]
    if kind == "entry":
        return Surv.from_arrays(event, time, entry=0.5 * time * rng.random(n)), {}
    if kind == "intervals":
        return Surv.interval(0.8 * time, np.where(event, 1.1 * time, np.inf)), {}
    if kind == "causes":
        return Surv.from_arrays(np.where(event, rng.integers(1, 3, n), 0), time), {}
    more = {"weights": {"sample_weight": rng.integers(0, 4, n)}, "groups": {"groups": np.arange(n) // 2}}
    return y, more.get(kind, {})


def digest(arrays) -> str:
    """Of the bytes of some arrays, whatever their names and their order."""
    parts = sorted(hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for a in arrays)
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def describe(model, X, y) -> dict:
    """Digest of the weights and of the predictions; some figures to compare where bits may differ."""
    curves, medians = model.predict_survival_function(X, TIMES), model.predict_quantile(X, [0.25, 0.5])
    found = {
        "curves": digest([curves, np.nan_to_num(medians, posinf=-1.0)]),
        "score": float(model.score(X, y)),
        "survival": curves[:3].tolist(),
        "risk": model.predict(X)[:3].tolist(),
        "mean": np.nan_to_num(model.predict_restricted_mean(X, 0.7))[:3].tolist(),
    }
    if model.n_causes_ > 1:
        incidence = model.predict_cumulative_incidence(X, TIMES)
        found["incidence"], found["incidences"] = digest([incidence]), incidence[:3].tolist()
    if hasattr(model, "stack_") and len(model.stack_.populations) == 1:
        network = model.stack_.populations[0].network
        found["weights"] = digest([p.detach().cpu().numpy() for p in network.parameters()])
    if hasattr(model, "history_"):
        found["history"] = digest([model.history_["train"].to_numpy(), model.history_["valid"].to_numpy()])
        found["best_valid"] = np.nan_to_num(model.best_valid_, neginf=-1.0).tolist()
    return found


def one_thread(function):
    """Products are summed in an order that depends on the number of threads."""

    def alone(name: str) -> dict:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return json.loads(json.dumps(function(name)))
        finally:
            torch.set_num_threads(before)

    return alone


@one_thread
def compute(name: str) -> dict:
    """One case."""
    X, y = rows()
    method, options = CASES[name]
    return describe(getattr(sumosurv, method)(**options).fit(X, y), X, y)


@one_thread
def compute_default(name: str) -> dict:
    """The default `SumoNet`, whose settings say nothing about its networks."""
    n, kind, options = DEFAULTS[name]
    X, plain = rows(n)
    y, more = outcome(kind, plain)
    return describe(sumosurv.SumoNet(random_state=0, **options).fit(X, y, **more), X, y)


@one_thread
def compute_other(name: str) -> dict:
    """A method with causes, weights or intervals, or one that is made of other methods."""
    X, plain = rows()
    method, _, kind = name.partition(" ")
    if not kind and method not in ("SurvivalMixture", "Conformal"):
        kind = "causes"
    y, more = outcome(kind, plain)
    parts = [sumosurv.WeibullNet(**SMALL), sumosurv.CoxPH(alpha=0.1, missing="indicator")]
    options = {
        "CauseSpecific": {"estimator": parts[0]},
        "SurvivalMixture": {"estimators": parts, "weights": [1.0, 3.0]},
        "Conformal": {"estimator": parts[0], "random_state": 0},
        "SumoNet": NETWORKS,
        "WeibullNet": SMALL,
        "GompertzNet": SMALL,
        "DeepHit": SMALL | {"n_cuts": 8},
        "CoxPH": {"alpha": 0.1, "missing": "indicator"},
        "FineGray": {"missing": "indicator", "alpha": 0.1},
        "ParametricRegression": {"missing": "indicator", "family": "lognormal"},
    }
    return describe(getattr(sumosurv, method)(**options.get(method, {})).fit(X, y, **more), X, y)


@one_thread
def compute_stream(name: str) -> dict:
    """A fit to rows on disk, and its scores of them."""
    method, kind, options = STREAMS[name]
    X, plain = rows(900)
    y, more = outcome(kind, plain)
    frame = X.assign(t=y["time"], d=y["event"].astype(int), **{"w": more["sample_weight"]} if more else {})
    columns = {"time": "t", "event": "d"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        frame.to_parquet(path, index=False, row_group_size=250)
        weight = {"sample_weight": "w"} if more else {}
        model = getattr(sumosurv, method)(**options).fit(path, columns, **weight)
        found = describe(model, X, y)
        table = sumosurv.scores.evaluate(model, path, columns, times=[0.2, 0.5], **weight)
        found["scores"] = [float(v) for v in table["value"]]
    return found


@one_thread
def compute_export(kind: str) -> dict:
    """What an ONNX file of the default model gives."""
    import onnxruntime

    X, plain = rows()
    y, more = outcome(kind, plain)
    model = sumosurv.SumoNet(max_epochs=2, random_state=0).fit(X, y, **more)
    numbers = list(X.select_dtypes("number"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        export_onnx(model, path)
        session = onnxruntime.InferenceSession(path)
        given = {
            "numbers": X[numbers].to_numpy(float)[:20],
            "categories": X[["kind"]].to_numpy(object)[:20],
            "times": np.array(TIMES),
        }
        results = session.run(None, given)
        names = [output.name for output in session.get_outputs()]
    return {name: np.asarray(value).ravel()[:60].tolist() for name, value in zip(names, results)}


SEARCHES: dict[str, dict] = {
    "padded": {"layout": "padded"},
    "grouped cv": {"layout": "grouped", "cv": 2, "n_trials": 3},
    "halving": {"method": "halving", "n_trials": 6},
    "refit": {"refit": True, "n_trials": 3, "mixture": 2},
    "cross": {"refit": "cross", "refit_members": 3, "n_trials": 3},
}


@one_thread
def compute_search(name: str) -> dict:
    """A small search: its trials' scores and what it predicts."""
    X, y = rows()
    space = {
        "covariate_layers": [(4,), (8, 8)],
        "time_layers": [(4,), (6, 6)],
        "dropout": [0.1, 0.4],
        "weight_decay": [0.1, 0.3],
        "numeric_scaling": ["quantile", "standard"],
    }
    options = {"n_trials": 4, "space": space, "random_state": 1} | SEARCHES[name]
    base = sumosurv.SumoNet(max_epochs=4, random_state=0)
    search = sumosurv.SumoNetSearch(base, **options).fit(X, y)
    found = describe(search, X, y)
    found["trials"] = digest([search.cv_results_["valid_score"]])
    found["valid_score"] = [float(v) for v in search.cv_results_["valid_score"]]
    return found


GROUPS = {
    "estimator": (CASES, compute),
    "search": (SEARCHES, compute_search),
    "default": (DEFAULTS, compute_default),
    "other": (OTHERS, compute_other),
    "stream": (STREAMS, compute_stream),
    "export": (EXPORTS, compute_export),
}


def compute_all() -> dict[str, dict]:
    return {f"{group} {name}": function(name) for group, (names, function) in GROUPS.items() for name in names}


def main(command: str, *path: str) -> None:
    values = compute_all()
    if command == "compare":
        stored = json.loads(Path(*path).read_text())
        changed = [
            f"{case}: {key}" for case in stored for key in stored[case] if values[case][key] != stored[case][key]
        ]
        sys.exit("\n".join(["These values have changed:", *changed]) if changed else 0)
    if command == "write":  # without digests, which are of this machine
        path = (FILE,)
        values = {case: {k: v for k, v in found.items() if not isinstance(v, str)} for case, found in values.items()}
    Path(*path).write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] != ["write"] and not (len(sys.argv) == 3 and sys.argv[1] in ("save", "compare")):
        sys.exit(__doc__)
    main(*sys.argv[1:])
