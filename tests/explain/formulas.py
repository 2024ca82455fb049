"""Models with a formula in place of a fit, whose explanations can be told with pencil and paper."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sumosurv import Surv
from sumosurv.distributions import CauseMixture, Mixture, Weibull


class Formula:
    """T is exponential with rate(X); of several rates, an equal mixture of members."""

    def __init__(self, *rates, last_time=2.0):
        self.rates, self.last_time, self.rows = rates, last_time, 0

    def predict_distribution(self, X):
        self.rows += len(X)
        parts = [Weibull(1.0 / np.asarray(rate(X), dtype=float), 1.0) for rate in self.rates]
        made = parts[0] if len(parts) == 1 else Mixture(parts)
        made.last_time = self.last_time
        return made


class TwoCauses(Formula):
    """Two causes: shares by the first column, rates by the formula."""

    def predict_distribution(self, X):
        share = 1 / (1 + np.exp(-np.asarray(X)[:, 0].astype(float)))
        parts = [Weibull(1.0 / self.rates[0](X), 1.0), Weibull(2.0 / self.rates[0](X), 1.0)]
        made = CauseMixture(np.log(np.stack([share, 1 - share], axis=1)), parts)
        made.last_time = self.last_time
        return made


def data(n=120, seed=0):
    """Numbers, categories and missing values, with an outcome."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": rng.normal(size=n),
            "c": pd.Categorical(rng.choice(["u", "v", "w"], n)),
            "d": rng.integers(0, 2, n),
        }
    )
    X.loc[::17, "b"] = np.nan
    time = rng.weibull(1.5, n) * np.exp(-1.2 * X["a"] + 0.5 * (X["c"] == "v"))
    end = rng.exponential(3.0, n)
    return X, Surv.from_arrays(time <= end, np.minimum(time, end))
