"""Model files as a careful forger would make them: small true ones, edited, with a checksum that fits."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import sumosurv
from sumosurv import Surv

Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], object]

_NETWORK = {
    "n_members": 2,
    "max_epochs": 1,
    "covariate_layers": (4, 4),
    "frequencies": 2,
    "random_state": 0,
    "device": "cpu",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "SumoNet": {**_NETWORK, "components": "networks", "time_layers": (4, 4)},
    "PaperSumoNet": {**_NETWORK, "time_layers": (4, 4)},
    "DeepSurv": _NETWORK,
    "CoxCC": _NETWORK,
    "CoxTime": {**_NETWORK, "time_layers": (4,)},
    "DeepHit": {**_NETWORK, "n_cuts": 5},
    "WeibullNet": _NETWORK,
    "LogNormalNet": _NETWORK,
    "LogLogisticNet": _NETWORK,
    "GompertzNet": _NETWORK,
    "Soden": {**_NETWORK, "hazard_layers": (4,), "steps": 2},
    "SurvNode": {**_NETWORK, "hazard_layers": (4,), "latent_size": 2, "steps": 2},
    "RandomSurvivalForest": {"n_estimators": 4, "min_samples_leaf": 3, "min_samples_split": 6, "random_state": 0},
    "CoxPH": {"alpha": 1.0, "missing": "indicator"},
    "CoxPHCV": {"missing": "indicator", "n_alphas": 5, "cv": 2, "random_state": 0},
    "KaplanMeier": {},
    "SurvivalMixture": {},
    "Conformal": {"fraction": 0.3, "random_state": 0},
    "AalenJohansen": {},
    "FineGray": {"alpha": 1.0, "missing": "indicator"},
    "ParametricRegression": {"alpha": 1.0, "missing": "indicator"},
    "CauseSpecific": {},
}
COMPETING = ("AalenJohansen", "FineGray", "CauseSpecific")  # fitted to two causes


def table(n: int = 60, causes: int = 1) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.exponential(size=n)),
            "text": rng.choice(["u", "é", "w"], n),
        }
    )
    event, time = rng.random(n) < 0.7, rng.exponential(size=n) + 0.01
    return X, Surv.from_arrays(event if causes == 1 else event * (1 + np.arange(n) % causes), time)


@cache
def saved(name: str) -> Path:
    """The file of a small model of this kind."""
    X, y = table(causes=2 if name in COMPETING else 1)
    options = SETTINGS[name]
    small = sumosurv.WeibullNet(**_NETWORK)
    if name == "SurvivalMixture":
        model = sumosurv.SurvivalMixture([sumosurv.KaplanMeier(), small], weights=(1.0, 2.0))
    elif name in ("CauseSpecific", "Conformal"):
        model = getattr(sumosurv, name)(estimator=small, **options)
    else:
        model = getattr(sumosurv, name)(**options)
    path = Path(tempfile.mkdtemp(prefix="sumosurv-models-")) / f"{name}.sumo"
    model.fit(X, y).save(path)
    return path


def read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    with safe_open(str(path), framework="pt") as file:
        description = json.loads(file.metadata()["sumosurv"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    del tensors["sha256"]
    return description, tensors


def write(target: Path, text: str, tensors: dict[str, torch.Tensor]) -> Path:
    """A file with this description and these tensors, and a checksum that fits."""
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().tobytes())
    tensors["sha256"] = torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
    save_file(tensors, target, metadata={"sumosurv": text})
    return target


def forged(path: Path, target: Path, change: Change) -> Path:
    """The same file with an edited description or edited tensors."""
    description, tensors = read(path)
    change(description, tensors)
    return write(target, json.dumps(description), tensors)


def put(*keys: Any, value: Any) -> Change:
    """Set a value of the description."""

    def change(description: Any, tensors: Any) -> None:
        place = description
        for key in keys[:-1]:
            place = place[key]
        assert keys[-1] in place if isinstance(place, dict) else True, f"no {keys[-1]} in the description"
        place[keys[-1]] = value

    return change


def edit(name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Replace a tensor by what is made of it."""

    def change(description: Any, tensors: dict[str, torch.Tensor]) -> None:
        tensors[name] = make(tensors[name].clone())

    return change


def at(place: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """With one entry changed."""

    def make(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[place] = value
        return tensor

    return make
