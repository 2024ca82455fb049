"""DeepSurv, CoxCC and Cox-Time with entry times and weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from sumosurv import CoxCC, CoxPH, CoxTime, DeepSurv, Surv, breslow, check_outcome
from sumosurv.networks import Inputs, Observed, Table

SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (8,), "random_state": 0}


def sample(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    time = np.ceil(8 * rng.exponential(np.exp(-X["a"])))
    entry = np.where(rng.random(n) < 0.6, np.floor(0.6 * time), 0.0)
    y = check_outcome(Surv.from_arrays(rng.random(n) < 0.7, time, entry))
    return X, y, rng.integers(1, 4, n).astype(float)


def double_inputs(model, X):
    inputs = model.preprocessor_.transform(X)
    return Inputs(inputs.numeric.double(), inputs.codes).shared()


@pytest.mark.parametrize("method", [DeepSurv, CoxCC])
def test_curves_are_breslow_s_with_the_network_s_risks(method):
    X, y, weight = sample()
    model = method(**SMALL).fit(X, y, sample_weight=weight)
    new, _, _ = sample(9, seed=1)
    g, g_new = (model.stack_.populations[0].network(double_inputs(model, part)).numpy() for part in (X, new))
    at = np.unique(np.concatenate([y.time, y.time + 1e-7, [0.0]]))
    weighted = replace(y, weight=weight)
    curves = np.mean([breslow(weighted, g[k], g_new[k]).survival(at) for k in range(2)], axis=0)
    np.testing.assert_allclose(model.predict_survival_function(new, at), curves, rtol=1e-9)


def test_cox_time_integrates_the_hazard_over_the_event_times():
    X, y, weight = sample()
    model = CoxTime(**SMALL, time_layers=(6, 5)).fit(X, y, sample_weight=weight)
    network, unit = model.stack_.populations[0].network, model.time_unit_

    def g(table, t):
        """Of one time and every row, member by member."""
        time = network.time_code(torch.full((1, 1), t / unit, dtype=torch.float64))
        return network.log_risk(network.code(double_inputs(model, table)) + time).numpy()

    new, _, _ = sample(7, seed=1)
    cumulative = np.zeros((2, 7))
    for t in np.unique(y.time[y.event]):
        at_risk = (y.time >= t) & ((y.entry < t) | (y.entry == 0))
        deaths = weight[(y.time == t) & y.event].sum()
        total = (weight * np.exp(g(X, t)))[:, at_risk].sum(axis=1)
        cumulative += (deaths / total)[:, None] * np.exp(g(new, t))
        expected = np.exp(-cumulative).mean(axis=0)
        np.testing.assert_allclose(model.predict_survival_function(new, t)[:, 0], expected, rtol=1e-9)


@pytest.mark.parametrize("method", [CoxCC, CoxTime])
def test_a_case_without_controls_has_only_its_penalty(method):
    X, y, _ = sample()
    settings = SMALL | {"n_members": 1, "dropout": 0.0}
    network = method(**settings, shrink=0.0).fit(X, y).stack_.populations[0].network.train()
    inputs = Inputs(torch.randn(2, 2, dtype=torch.float64), torch.zeros(2, 0, dtype=torch.long))
    times, entry = torch.tensor([0.1, 0.3]).double(), torch.tensor([0.0, 0.2]).double()
    table = Table(inputs, Observed(torch.ones(2, dtype=torch.bool), times, entry=entry))
    network.controls.take(table, [np.array([0])])  # which has left when the other comes
    terms = network.terms(table.batch(torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool)))
    np.testing.assert_allclose(terms.detach()[0], [-np.log(2.0), 0.0], atol=1e-12)


LINEAR = {
    "covariate_layers": (),
    "frequencies": 0,
    "numeric_scaling": "standard",
    "dropout": 0.0,
    "n_members": 1,
    "weight_decay": 0.0,
    "validation_fraction": 0.0,
    "random_state": 0,
}


def late(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    time = rng.weibull(1.5, n) * np.exp(-(0.8 * X["a"] - 0.4 * X["b"]) / 1.5)
    entry = rng.exponential(0.7, n)
    seen = entry < time
    y = Surv.from_arrays(rng.random(seen.sum()) < 0.8, time[seen], entry[seen])
    return X[seen].reset_index(drop=True), check_outcome(y)


def slopes(model):
    """Differences of log-risk for a step of one in each column."""
    at = pd.DataFrame({"a": [0.0, 1.0, 0.0], "b": [0.0, 0.0, 1.0]})
    g = model.stack_.populations[0].network(double_inputs(model, at))[0].numpy()
    return g[1:] - g[0]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_linear_deepsurv_has_the_coefficients_of_cox_s_model(weighted):
    X, y = late(1500, 0)
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y)) if weighted else None
    settings = {"learning_rate": 0.05, "max_epochs": 400, "batch_size": "full"}
    model = DeepSurv(**LINEAR, **settings).fit(X, y, sample_weight=weight)
    exact = CoxPH(ties="breslow").fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(slopes(model), exact.coef_, atol=2e-3)
    naive = CoxPH(ties="breslow").fit(X, replace(y, entry=None), sample_weight=weight)
    assert abs(naive.coef_ - exact.coef_).max() > 0.02


def test_a_linear_coxcc_is_close_to_them():
    X, y = late(4000, 0)
    weight = np.where(X["a"] > 0, 3.0, 1.0)
    settings = {"learning_rate": 0.03, "max_epochs": 12, "batch_size": 256, "n_controls": 8, "shrink": 0.0}
    model = CoxCC(**LINEAR, **settings).fit(X, y, sample_weight=weight)
    exact = CoxPH(ties="breslow").fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(slopes(model), exact.coef_, atol=0.06)


def test_the_history_is_the_weighted_partial_likelihood_of_validation_rows():
    X, y, weight = sample()
    valid, y_valid, w = sample(40, seed=2)
    model = DeepSurv(**(SMALL | {"max_epochs": 1, "n_members": 1}))
    model.fit(X, y, sample_weight=weight, validation_data=(valid, y_valid, w))
    g = model.stack_.populations[0].network(double_inputs(model, valid))[0].numpy()
    w, total = w / weight.mean(), 0.0  # of mean one over the training rows
    for i in np.flatnonzero(y_valid.event):
        t = y_valid.time[i]
        at_risk = (y_valid.time >= t) & ((y_valid.entry < t) | (y_valid.entry == 0))
        total += w[i] * (g[i] - np.log((w * np.exp(g))[at_risk].sum()))
    assert model.history_["valid"][0] == pytest.approx(total / w.sum(), rel=1e-5)


@pytest.mark.parametrize("method", [DeepSurv, CoxCC, CoxTime])
def test_without_entry_and_weights_nothing_changes(method):
    X, y, _ = sample()
    plain = replace(y, entry=None)
    one = method(**SMALL).fit(X, plain).predict(X)
    ones = method(**SMALL).fit(X, plain, sample_weight=np.ones(len(y))).predict(X)
    zeros = method(**SMALL).fit(X, Surv.from_arrays(y.event, y.time, 0 * y.entry)).predict(X)
    np.testing.assert_array_equal(one, ones)
    np.testing.assert_array_equal(one, zeros)
    assert not np.allclose(one, method(**SMALL).fit(X, y).predict(X))
