"""Values of every estimator on fixed seeds and small data, stored before a change of structure and compared after it.

``python tests/golden.py write`` stores them in golden.json, for the machine that it runs on.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from pathlib import Path

import numpy as np
import torch

import sumosurv
from sumosurv import datasets

FILE = Path(__file__).with_name("golden.json")
TIMES = [0.0, 0.1, 0.4, 0.8, 1.5, 4.0]

SMALL = {"ensemble_size": 2, "max_epochs": 3, "covariate_layers": (8, 8), "random_state": 0, "n_threads": 1}
CASES: dict[str, tuple[str, dict]] = {
    "SumoNet": ("SumoNet", SMALL | {"mixed_layers": (6, 6)}),
    "SumoNet paper": ("SumoNet", SMALL | {"variant": "paper"}),
    "SumoNet first": ("SumoNet", SMALL | {"time_origin": "first", "refit": True, "time_features": "log"}),
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
    "CoxPH": ("CoxPH", {}),
    "KaplanMeier": ("KaplanMeier", {}),
}


def machine() -> str:
    """What the last bits depend on."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), "")
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{name or platform.processor()}, {capability}, torch {torch.__version__}, numpy {np.__version__}"


def rows(n=240, seed=0):
    """Two numbers, a category and a column with gaps; times rounded, so that some are tied."""
    data = datasets.simulate("weibull", n, random_state=seed)
    rng = np.random.default_rng(seed)
    X = data.X.assign(
        other=rng.normal(size=n), kind=rng.choice(["a", "b", "c"], n), gaps=np.where(rng.random(n) < 0.2, np.nan, 1.0)
    )
    return X, sumosurv.Surv.from_arrays(data.y["event"], np.round(data.y["time"], 2) + 0.01)


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
    if hasattr(model, "network_"):
        found["weights"] = digest([p.detach().cpu().numpy() for p in model.network_.parameters()])
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


SEARCHES: dict[str, dict] = {
    "padded": {"shapes": "padded"},
    "grouped cv": {"shapes": "grouped", "cv": 2, "n_trials": 3},
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
        "mixed_layers": [(4,), (6, 6)],
        "dropout": [0.1, 0.4],
        "weight_decay": [0.1, 0.3],
        "numeric_scaling": ["quantile", "standard"],
    }
    options = {"n_trials": 4, "space": space, "random_state": 1} | SEARCHES[name]
    base = sumosurv.SumoNet(max_epochs=4, n_threads=1, random_state=0)
    search = sumosurv.SumoNetSearch(base, **options).fit(X, y)
    found = describe(search, X, y)
    found["trials"] = digest([search.cv_results_["valid_score"]])
    found["valid_score"] = [float(v) for v in search.cv_results_["valid_score"]]
    return found


def compute_all() -> dict:
    """Everything that is stored."""
    found = {f"estimator {name}": compute(name) for name in CASES}
    found |= {f"search {name}": compute_search(name) for name in SEARCHES}
    return {"machine": machine(), "values": found}


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        sys.exit(__doc__)
    FILE.write_text(json.dumps(compute_all(), indent=1) + "\n")
    print(f"{FILE} written for {machine()}")
