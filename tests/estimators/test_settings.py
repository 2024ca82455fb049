"""Every setting of every method has an effect: none is lost on its way to where it is used."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sumosurv import CoxPH, KaplanMeier, Surv
from sumosurv.estimators import METHODS
from sumosurv.estimators.network import NetworkEstimator

N = 80
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=N) ** 3, "b": RNG.normal(size=N), "c": RNG.choice(["u", "v"], N)})
TIME = np.ceil(40 * np.exp(-0.5 * X["b"]) * RNG.weibull(1.5, N)) / 20
Y = Surv.from_arrays(RNG.random(N) < 0.8, TIME)
CAUSES = Surv.from_arrays(RNG.integers(0, 3, N), TIME)
WITH_MISSING = X.assign(b=X["b"].where(np.arange(N) > 4))
AT = np.quantile(TIME, [0.2, 0.5, 0.8])

# settings that change how a fit is computed, or what is shown, but not the fitted model
SILENT = {"device", "verbose", "n_jobs", "refit", "gradient"}
TINY = {"n_members": 2, "max_epochs": 2, "covariate_layers": (4,), "random_state": 0, "batch_size": 40}

OF_ALL_NETWORKS = {
    "batch_size": 20, "covariate_layers": (5,), "dropout": 0.6, "frequencies": 2, "learning_rate": 0.1,
    "max_epochs": 3, "n_members": 1, "numeric_scaling": "standard", "patience": 0, "random_state": 1,
    "validation_fraction": 0.5, "weight_decay": 3.0, "offset": 1.0,
}  # fmt: skip
# another value of each setting
OTHERS = {
    "WeibullNet": OF_ALL_NETWORKS,
    "SumoNet": {"components": ["network"], "time_layers": (3,), "time_origin": "first", "resolution": 0.05},
    "PaperSumoNet": {"positive": "softplus", "time_layers": (3,), "time_origin": "first", "resolution": 0.05},
    "DeepSurv": {"half_width": 6},
    "CoxCC": {"half_width": 6, "n_controls": 3, "shrink": 0.5},
    "CoxTime": {"half_width": 6, "n_controls": 3, "shrink": 0.5, "time_layers": (3,), "time_features": "linear"},
    "DeepHit": {"alpha": 0.9, "sigma": 3.0, "n_cuts": 4, "cuts": "equidistant", "interpolation": "density"},
    "Soden": {"form": "cox", "hazard_layers": (3,), "solver": "dopri5", "steps": 3, "time_scale": "linear"},
    "SurvNode": {"hazard_layers": (3,), "latent_size": 2, "regularisation": 5.0, "solver": "dopri5", "steps": 3,
                 "time_scale": "linear"},
    "KaplanMeier": {"half_width": 6},
    "AalenJohansen": {"half_width": 6},
    "CoxPH": {"alpha": 5.0, "formula": "a", "half_width": 6, "l1_ratio": 0.5, "max_iter": 1,
              "penalty": "firth", "robust": True, "strata": "c", "ties": "breslow", "tol": 0.5,
              "missing": "indicator"},
    "CoxPHCV": {"alphas": [5.0], "cv": 3, "formula": "a", "half_width": 6, "l1_ratio": 0.3, "min_ratio": 0.9,
                "n_alphas": 3, "random_state": 3, "missing": "indicator",
                "rule": "one_standard_error", "strata": "c", "ties": "breslow",
                "max_iter": 1},
    "FineGray": {"alpha": 5.0, "formula": "a", "half_width": 6, "max_iter": 1, "tol": 0.5, "missing": "indicator"},
    "ParametricRegression": {"alpha": 5.0, "df": 2, "family": "gompertz", "formula": "a",
                             "robust": True, "strata": "c", "max_iter": 1, "tol": 0.5,
                             "missing": "indicator"},
    "CauseSpecific": {"estimator": CoxPH(alpha=5.0)},
    "Conformal": {"bins": 2, "censoring": CoxPH(), "cutoff": 0.5, "cv": 3, "estimator": CoxPH(alpha=5.0),
                  "fraction": 0.5, "random_state": 3, "shrink": False},
    "SurvivalMixture": {"estimators": [KaplanMeier()], "weights": [0.1, 0.9]},
}  # fmt: skip
BASES = {
    "CoxPHCV": {"cv": 2, "n_alphas": 5, "random_state": 0},
    "Conformal": {"estimator": CoxPH(), "random_state": 0, "fraction": 0.6},
    "SurvivalMixture": {"estimators": [CoxPH(), KaplanMeier()]},
    "CauseSpecific": {"estimator": CoxPH()},
    "SumoNet": {"components": ["network", "lognormal"], "time_layers": (4,)},
    "PaperSumoNet": {"time_layers": (4,)},
}
NEEDED = {  # by a setting, to have an effect
    ("WeibullNet", "patience"): {"max_epochs": 9, "learning_rate": 0.5},
    ("CoxPH", "l1_ratio"): {"alpha": 5.0},
    ("ParametricRegression", "df"): {"family": "spline"},
}


@cache
def fitted(name, setting=None, changed=True):
    """All numbers of a fit with another value of a setting: probabilities, densities, coefficients and their errors.

    If not ``changed``, with what the setting needs, but not with its other value.
    """
    method = METHODS[name]
    settings = (TINY if issubclass(method, NetworkEstimator) else {}) | BASES.get(name, {})
    settings = settings | NEEDED.get((name, setting), {}) | ({setting: OTHERS[name][setting]} if changed else {})
    model, causes = clone(method(**settings)), name in ("AalenJohansen", "CauseSpecific", "FineGray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as: the fit did not converge
        model.fit(WITH_MISSING if setting == "missing" else X, CAUSES if causes else Y)
        d = model.predict_distribution(X[:10])
        numbers = [d.cdf(AT), d.cause(1).density(AT) if causes else d.density(AT)]
        if name == "CoxPHCV":
            numbers.append(model.cv_score_)
        elif hasattr(model, "summary"):
            numbers.append(model.summary().coefficients["standard_error"].to_numpy(dtype=float))
        if setting == "patience":  # the best weights may be those of an early epoch anyway
            numbers.append(len(model.history_))
        if name == "Conformal" and model.cv is None:
            numbers.append(model.lower_bound(X, 0.8))
    return np.nan_to_num(np.concatenate([np.ravel(part) for part in numbers]))


@pytest.mark.usefixtures("coarse_solutions")
@pytest.mark.parametrize(("name", "setting"), [(name, setting) for name, own in OTHERS.items() for setting in own])
def test_a_setting_has_an_effect(name, setting):
    needs = (name, setting) in NEEDED or setting == "missing"
    plain, changed = fitted(name, setting if needs else None, changed=False), fitted(name, setting)
    same = plain.shape == changed.shape and np.abs(plain - changed).max() < 1e-9
    assert not same


def test_every_setting_has_a_case():
    for name, method in METHODS.items():
        known = set(method().get_params(deep=False)) - SILENT
        if issubclass(method, NetworkEstimator):
            known -= {*OF_ALL_NETWORKS, "encoder", "derivative"}  # a module; another way to compute the same
        if name != "RandomSurvivalForest":  # they are those of scikit-survival
            assert known <= set(OTHERS.get(name, {})), name
