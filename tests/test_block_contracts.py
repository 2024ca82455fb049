"""Work is done in blocks so that it fits into memory: no result depends on their size."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pandas as pd
import pytest

from sumosurv import (
    CoxPH,
    CoxTime,
    DeepSurv,
    NetworkSearch,
    ParametricRegression,
    RandomSurvivalForest,
    Soden,
    SumoNet,
    Surv,
    WeibullNet,
    kaplan_meier,
)
from sumosurv.distributions import Mixture, Weibull
from sumosurv.explain import partial_dependence, standardised_contrast, survshap
from sumosurv.nonparametric import confidence_band
from sumosurv.preprocessing import Preprocessor
from sumosurv.scores import brier, concordance_td, log_likelihood, survival_crps

RNG = np.random.default_rng(0)
N = 40
X = pd.DataFrame({f"x{j}": RNG.normal(size=N) for j in range(3)} | {"z": np.arange(N) % 2})
X.loc[3, "x1"] = np.nan
FULL = X.fillna(0.0)
SCALE = np.exp(0.5 * FULL["x0"].to_numpy())
EVENT_TIME, END = SCALE * RNG.exponential(size=N), RNG.exponential(1.5, size=N)
Y = Surv.from_arrays(EVENT_TIME <= END, np.minimum(EVENT_TIME, END))
KNOWN = Surv.interval(Y["time"], np.where(Y["event"], Y["time"] + 0.3, np.inf))
TIMES = np.array([0.0, 0.3, 0.8, 1.4])
D = Mixture([Weibull(SCALE, 0.8), Weibull(1.5 * SCALE[::-1], 1.6)], [0.7, 0.3])  # curves that cross
COX = CoxPH().fit(FULL, Y)
SMALL = {"n_members": 2, "max_epochs": 2, "covariate_layers": (4,), "random_state": 0}
STRATIFIED = CoxPH(strata=["z"]).fit(FULL, Y)


def curves(model):
    """Predictions on a grid and, in another code path, at one time per row."""
    d = model.predict_distribution(X)
    return np.concatenate([d.survival(TIMES).ravel(), d.log_density(own_times=Y["time"]), d.restricted_mean(1.2)])


def fitted(method, **settings):
    return lambda: curves(method(**SMALL | settings).fit(X, Y))


def regression(family):
    def fit():
        found = ParametricRegression(family=family, robust=True).fit(FULL, Y).summary().coefficients
        return found[["coef", "standard_error"]].to_numpy()

    return fit


def columns():
    made = Preprocessor("quantile").fit(X)
    return np.asarray(made.table(X)[0])


EQUATION = fitted(Soden, n_members=1, max_epochs=1, steps=1)

# module, name of the number, a small one, and a computation
BLOCKS = {
    "limits of Cox curves": ("estimators.cox_inference", "_CELLS", 30, lambda: COX.predict_survival_band(FULL, TIMES)),
    "limits of stratified Cox curves": (
        "estimators.cox_inference", "_CELLS", 30, lambda: STRATIFIED.predict_survival_band(FULL, TIMES)),
    "trees": ("estimators.forest", "_ROWS", 7,
              lambda: curves(RandomSurvivalForest(n_estimators=3, random_state=0).fit(X, Y))),
    "derivatives of a Weibull regression": ("estimators.parametric_likelihood", "_BLOCK", 7, regression("weibull")),
    "derivatives of a spline regression": ("estimators.parametric_likelihood", "_BLOCK", 7, regression("spline")),
    "rows of effects": ("explain._quantity", "_ROWS", 7,
                        lambda: partial_dependence(COX, FULL, "x0", times=TIMES, n_values=3).individual),
    "cells of effects": ("explain._quantity", "_CELLS", 7,
                         lambda: partial_dependence(COX, FULL, "x0", times=TIMES, n_values=3).individual),
    "rows of means of networks": (
        "explain._quantity", "_AVERAGED", 7,
        lambda: (lambda e: np.stack([e.mean, e.low, e.high]))(
            partial_dependence(WeibullNet(**SMALL).fit(X, Y), X, "x0", times=TIMES, n_values=3))),
    "rows of medians of contrasts": (
        "explain.contrasts", "_ROWS", 7,
        lambda: standardised_contrast(COX, FULL, "z", times=TIMES[1:]).numbers.select_dtypes("number")),
    "rows of Shapley values": ("explain.shapley", "_ROWS", 7,
                               lambda: survshap(COX, FULL[:5], FULL, times=TIMES, n_background=4).values),
    "cells of monotone curves": ("distributions.monotone", "_CELLS", 7, fitted(SumoNet, components="networks")),
    "cells of differential equations": ("distributions.ode", "_CELLS", {"cpu": 60}, EQUATION),
    "rows of differential equations": ("networks.ode", "_ROWS", {"cpu": 15}, EQUATION),
    "rows for the tail": ("networks.population", "BLOCK", 7, fitted(SumoNet, components="networks")),
    "rows for the baseline": ("networks.risk", "_ROWS", 7, fitted(DeepSurv)),
    "cells of Cox-Time": ("networks.risk", "_CELLS", {"cpu": 7}, fitted(CoxTime)),
    "times of fused curves": ("networks.fused", "_CACHED_TIMES", 7, fitted(SumoNet, components="networks")),
    "entries of a variance": (
        "nonparametric.bands", "_BLOCK", 30,
        lambda: confidence_band(Y, groups=np.arange(N) // 2)[["lower", "upper"]].to_numpy()),
    "values of columns": ("preprocessing.columns", "AT_ONCE", 50, columns),
    "values of a matrix": ("preprocessing.preprocessor", "AT_ONCE", 50, columns),
    "cells of scores": ("scores._inputs", "_CELLS", 7,
                        lambda: brier(D, Y, TIMES[1:], censoring=kaplan_meier(Y, censoring=True))),
    "cells of the concordance": ("scores.concordance", "_CELLS", 60, lambda: concordance_td(D, Y)),
    "rows of the CRPS": ("scores.crps", "_ROWS", 7, lambda: survival_crps(D, Y)),
    "rows of the likelihood": ("scores.likelihood", "_ROWS", 7, lambda: log_likelihood(D, KNOWN)),
    "members of a population": (
        "search.executor", "_MAX_MEMBERS", 2,
        lambda: NetworkSearch(
            WeibullNet(max_epochs=2), space={"dropout": [0.0, 0.3]}, n_trials=5, random_state=0
        ).fit(X, Y).cv_results_["valid_score"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_the_size_of_blocks_does_not_matter(name, monkeypatch):
    module, constant, small, compute = BLOCKS[name]
    whole = np.asarray(compute(), dtype=float)
    module = import_module(f"sumosurv.{module}")
    assert hasattr(module, constant)
    monkeypatch.setattr(module, constant, small)
    in_parts = np.asarray(compute(), dtype=float)
    assert np.isfinite(whole).any()
    np.testing.assert_allclose(in_parts, whole, rtol=1e-5, atol=1e-7)
