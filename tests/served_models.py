"""Small models for tests of the server: mixed columns, hostile names, missing values; one cause, or two."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from sumosurv import SumoNet, Surv

HOSTILE = '<img src=x onerror=alert(1)>"&'


@cache
def table(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(40, 90, n).astype(float),
            "marker": np.where(rng.random(n) < 0.2, np.nan, rng.exponential(size=n)),
            "arm": rng.choice(["a", "b", "b"], n),
            "treated": rng.random(n) < 0.5,
            HOSTILE: rng.choice(["</script>", "plain"], n),
        }
    )


@cache
def model(causes: int = 1) -> SumoNet:
    rng = np.random.default_rng(1)
    X = table()
    time = rng.weibull(1.5, len(X)) * np.exp(-0.03 * (X["age"] - 65)) * 100
    event = rng.integers(0, causes + 1, len(X))
    y = Surv.from_arrays(event if causes > 1 else event > 0, time)
    small = {"covariate_layers": (8,), "time_layers": (6,), "max_epochs": 4, "n_members": 3}
    return SumoNet(**small, random_state=0).fit(X, y)


ROW = {"age": 61, "marker": 0.7, "arm": "b", "treated": True, HOSTILE: "plain"}
EMPTY = {"age": 61, "marker": None, "arm": "b", "treated": True, HOSTILE: "plain"}


def frame(*rows: dict) -> pd.DataFrame:
    made = pd.DataFrame(list(rows), columns=list(table().columns))
    return made.astype({"age": float, "marker": float, "arm": object, "treated": object, HOSTILE: object})
