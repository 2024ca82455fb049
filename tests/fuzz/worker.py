"""Opens what it is given in a process of its own, with little memory, and says how each one ended.

Reads lines of JSON, {"task": ..., "path": ...}, and answers each with a line: {"end": "done"}, or the kind of the
exception and where it was raised. Run by `bench.Bench`, which also limits the time.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sumosurv
from sumosurv import cli

sys.path.insert(0, str(Path(__file__).parents[1]))
from forging import table

MEMORY = 600 << 20  # bytes beyond what the libraries take; the small models here need a few MB
GRID = [0.0, 0.3, 1.0, 40.0]


def open_model(path: str, encoder: Any = None) -> dict[str, Any]:
    """Load a model file, then ask it for everything."""
    try:
        model = sumosurv.load(path, encoder=encoder)
    except Exception as error:
        return ended("load", error)
    X, y = table(12, model.n_causes_)
    try:
        model.predict(X)
        model.predict_median(X)
        model.predict_restricted_mean(X, 2.0)
        model.score(X, y)
        curve = model.predict_survival_function(X, GRID)
    except Exception as error:
        return ended("predict", error)
    if not (np.isfinite(curve) & (curve >= 0) & (curve <= 1)).all():
        return {"end": "no curve", "where": "predict"}
    return {"end": "done", "where": "predict"}


def open_images(path: str) -> dict[str, Any]:
    """Load a model of images with the encoder it was fitted with."""
    return open_model(path, lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 4)))


def read_table(path: str) -> dict[str, Any]:
    """Fit to a table by the command line."""
    words = ["fit", path, "--time", "time", "--event", "event", "--out", f"{path}.sumo", "--quiet"]
    return run(lambda: cli.main([*words, "--n-members", "1", "--max-epochs", "1", "--device", "cpu"]))


def predict_table(path: str) -> dict[str, Any]:
    """Predict a table by the command line, with the model beside it."""
    return run(lambda: cli.main(["predict", str(Path(path).with_name("model.sumo")), path]))


def fit_frame(path: str) -> dict[str, Any]:
    """Fit to (X, y) as Python hands them over, and predict."""
    X, y = pickle.loads(Path(path).read_bytes())
    small = {"n_members": 1, "max_epochs": 1, "covariate_layers": (4,), "time_layers": (4,), "random_state": 0}
    return run(lambda: np.isnan(sumosurv.SumoNet(**small, device="cpu").fit(X, y).predict(X)).any())


def run(job: Any) -> dict[str, Any]:
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123
            code = job()
    except Exception as error:
        return ended("run", error)
    return {"end": "done", "code": int(code)}


def ended(where: str, error: BaseException) -> dict[str, Any]:
    chain, memory = error, False
    while chain is not None:
        memory = memory or isinstance(chain, MemoryError) or "allocate" in str(chain)
        chain = chain.__cause__ or chain.__context__
    return {"end": type(error).__name__, "where": where, "says": str(error)[:300], "memory": memory}


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    X, y = table()
    sumosurv.SumoNet(n_members=1, max_epochs=1, device="cpu").fit(X, y).predict(X)  # all that is loaded late
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    tasks = {task.__name__: task for task in (open_model, open_images, read_table, predict_table, fit_frame)}
    print(json.dumps({"end": "ready", "size": size}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(tasks[job["task"]](job["path"])), flush=True)


if __name__ == "__main__":
    main()
