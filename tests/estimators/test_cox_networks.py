"""DeepSurv, CoxCC and Cox-Time: baselines, curves and objectives against literal readings; the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from sumosurv import CoxCC, CoxTime, DeepSurv, Surv, TrainingError, breslow
from sumosurv.distributions import Weibull
from sumosurv.networks import Inputs
from sumosurv.scores import concordance_td, log_likelihood

SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (8,), "random_state": 0}


def sample(n=80, seed=0, ties=True):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    time = rng.exponential(np.exp(-X["a"]))
    return X, Surv.from_arrays(rng.random(n) < 0.7, np.ceil(8 * time) if ties else time)


def double_inputs(model, X):
    inputs = model.preprocessor_.transform(X)
    return Inputs(inputs.numeric.double(), inputs.codes).shared()


@pytest.mark.parametrize("method", [DeepSurv, CoxCC])
def test_curves_are_breslow_s_with_the_network_s_risks(method):
    X, y = sample()
    model = method(**SMALL).fit(X, y)
    new, _ = sample(9, seed=1)
    g, g_new = (model.stack_.populations[0].network(double_inputs(model, part)).numpy() for part in (X, new))
    at = np.unique(np.concatenate([y["time"], y["time"] + 1e-7, [0.0]]))
    curves = np.mean([breslow(y, g[k], g_new[k]).survival(at) for k in range(2)], axis=0)
    np.testing.assert_allclose(model.predict_survival_function(new, at), curves, rtol=1e-10)
    density = np.mean([breslow(y, g[k], g_new[k]).density(at) for k in range(2)], axis=0)
    np.testing.assert_allclose(model.predict_density(new, at), density, rtol=1e-8, atol=1e-14)


def test_cox_time_integrates_the_hazard_over_the_event_times():
    X, y = sample()
    model = CoxTime(**SMALL, time_layers=(6, 5)).fit(X, y)
    network, unit = model.stack_.populations[0].network, model.time_unit_

    def g(table, t):
        """Of one time and every row, member by member."""
        time = network.time_code(torch.full((1, 1), t / unit, dtype=torch.float64))
        return network.log_risk(network.code(double_inputs(model, table)) + time).numpy()

    new, _ = sample(7, seed=1)
    cumulative = np.zeros((2, 7))
    for t in np.unique(y["time"][y["event"]]):
        at_risk, deaths = y["time"] >= t, ((y["time"] == t) & y["event"]).sum()
        total = np.exp(g(X, t))[:, at_risk].sum(axis=1)
        cumulative += (deaths / total)[:, None] * np.exp(g(new, t))
        expected = np.exp(-cumulative).mean(axis=0)
        np.testing.assert_allclose(model.predict_survival_function(new, t)[:, 0], expected, rtol=1e-9)
        np.testing.assert_allclose(model.predict_survival_function(new, t + 1e-6)[:, 0], expected, rtol=1e-9)


def test_full_batches_take_the_risk_sets_of_all_rows():
    X, y = sample()
    settings = SMALL | {"validation_fraction": 0.0, "max_epochs": 1, "dropout": 0.0, "n_members": 1}
    full = DeepSurv(**settings, batch_size="full").fit(X, y)
    same = DeepSurv(**settings, batch_size=len(y)).fit(X, y)
    np.testing.assert_array_equal(full.predict(X), same.predict(X))
    assert not np.array_equal(DeepSurv(**settings, batch_size=20).fit(X, y).predict(X), full.predict(X))


def test_the_history_is_the_partial_likelihood_of_validation_rows():
    X, y = sample()
    valid, y_valid = sample(40, seed=2)
    model = DeepSurv(**(SMALL | {"max_epochs": 1, "n_members": 1})).fit(X, y, validation_data=(valid, y_valid))
    g = model.stack_.populations[0].network(double_inputs(model, valid))[0].numpy()
    terms = [
        g[i] - np.log(np.exp(g[y_valid["time"] >= y_valid["time"][i]]).sum()) for i in np.flatnonzero(y_valid["event"])
    ]
    assert model.history_["valid"][0] == pytest.approx(np.sum(terms) / 40, rel=1e-5)


def proportional(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    g = 1.5 * np.sin(2 * x[:, 0]) - x[:, 1] ** 2
    truth = Weibull(np.exp(-g / 1.5), 1.5)
    time, censoring = truth.sample(random_state=100 + seed), rng.exponential(3.0, n)
    return pd.DataFrame(x), Surv.from_arrays(time <= censoring, np.minimum(time, censoring)), truth


@pytest.mark.parametrize("method", [DeepSurv, CoxCC, CoxTime])
def test_proportional_hazards_are_found(method):
    X, y, _ = proportional(12000, 0)
    y = Surv.from_arrays(y["event"], np.ceil(y["time"] * 100) / 100)  # as recorded; fewer steps, and a faster table
    test_X, test_y, truth = proportional(4000, 1)
    # a window of a few steps: with k = 2 the density is mostly noise
    model = method(n_members=1, max_epochs=6, half_width=8, dropout=0.1, random_state=0).fit(X, y)
    assert abs(model.score(test_X, test_y) - log_likelihood(truth, test_y).mean()) < 0.02


def crossing(n, seed):
    """Shapes differ, so that hazards cross: nothing that proportional hazards can say."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=n)
    truth = Weibull(np.ones(n), np.exp(x))
    time = truth.sample(random_state=100 + seed)
    return pd.DataFrame({"x": x}), Surv.from_arrays(np.ones(n, dtype=bool), time), truth


def test_cox_time_sees_hazards_that_cross():
    X, y, _ = crossing(4000, 0)
    y = Surv.from_arrays(y["event"], np.ceil(y["time"] * 50) / 50)
    test_X, _, truth = crossing(1000, 1)
    settings = {"n_members": 1, "max_epochs": 20, "half_width": 4, "dropout": 0.0, "random_state": 0}
    at = np.arange(0.1, 2.5, 0.1)
    best = truth.survival(at)
    time, proportional = (
        abs(method(**settings).fit(X, y).predict_survival_function(test_X, at) - best).mean()
        for method in (CoxTime, CoxCC)
    )
    assert time < 0.03
    assert proportional > 0.06


@pytest.mark.parametrize("n_controls", [1, 4])
def test_controls_and_their_number(n_controls):
    X, y = sample(400, ties=False)
    model = CoxCC(**(SMALL | {"max_epochs": 10}), n_controls=n_controls).fit(X, y)
    assert concordance_td(model.predict_distribution(X), y) > 0.6


def test_errors():
    X, y = sample(20)
    for method, options, message in (
        (DeepSurv, {"half_width": 0}, "half_width .*integer of at least 1; got 0"),
        (CoxCC, {"n_controls": 0}, "n_controls .*integer of at least 1"),
        (CoxCC, {"shrink": -1.0}, "shrink .*at least 0"),
        (CoxTime, {"time_layers": ()}, "time_layers .*one or more"),
        (CoxTime, {"time_layers": (0,)}, "time_layers .*positive integers"),
        (CoxTime, {"time_features": "cubic"}, "time_features .*'marginal'"),
    ):
        with pytest.raises(ValueError, match=message):
            method(**SMALL, **options).fit(X, y)


@pytest.mark.parametrize("method", [DeepSurv, CoxCC, CoxTime])
def test_risks_that_have_no_baseline_are_an_error_that_says_what_to_do(method):
    X, y = sample(ties=False)
    with pytest.raises(TrainingError, match="Try a smaller learning_rate"):
        method(**(SMALL | {"learning_rate": 1e6})).fit(X, y)
