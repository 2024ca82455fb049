"""Log-logistic networks: lifelines' accelerated failure time model, SciPy's density, the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import small_networks
from sumosurv import LogLogisticNet, Surv, datasets
from sumosurv.distributions import LogLogistic, Remaining, Rescaled
from sumosurv.networks import Inputs
from sumosurv.networks.parametric import LogTimeNetwork
from sumosurv.scores import log_likelihood

LINEAR = {
    "covariate_layers": (),
    "frequencies": 0,
    "dropout": 0.0,
    "numeric_scaling": "standard",
    "weight_decay": 0.0,
    "n_members": 1,
    "validation_fraction": 0.0,
    "batch_size": "full",
    "offset": 0.0,
    "learning_rate": 0.05,
    "random_state": 0,
}


def simulated(n, seed, bends=1.0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    a, b = bends * np.sin(2 * x[:, 0]) + 0.5 * x[:, 1], 0.4 + 0.5 * x[:, 0]
    truth = LogLogistic(np.exp(a), np.exp(b))
    time, censoring = truth.sample(random_state=100 + seed), rng.exponential(4.0, n)
    return pd.DataFrame(x, columns=["u", "v"]), Surv.from_arrays(time <= censoring, np.minimum(time, censoring)), truth


def against_lifelines(frame, y, max_epochs):
    lifelines = pytest.importorskip("lifelines")
    model = LogLogisticNet(max_epochs=max_epochs, **LINEAR).fit(frame, y)
    table = frame.assign(time_=y["time"], event_=y["event"])
    fitter, exact = lifelines.LogLogisticAFTFitter(), {"ftol": 1e-12}  # by itself it stops some 1e-3 from its optimum
    other = fitter.fit(table, "time_", "event_", ancillary=True, fit_options=exact)
    assert model.score(frame, y) == pytest.approx(other.log_likelihood_ / len(y), abs=1e-6)
    at = np.quantile(y["time"], [0.1, 0.3, 0.5, 0.7, 0.9])
    curves = other.predict_survival_function(frame, times=at, ancillary=frame).to_numpy().T
    np.testing.assert_allclose(model.predict_survival_function(frame, at), curves, atol=1e-4)
    return model, other


def test_the_linear_version_is_lifelines_model():
    frame, y, _ = simulated(800, 0, bends=0.0)
    frame = (frame - frame.mean()) / frame.std(ddof=0)
    model, other = against_lifelines(frame, y, 300)
    d = model.predict_distribution(frame)
    scale, shape = d.base.scale[:, 0].numpy() * d.scale, d.base.shape[:, 0].numpy()
    design = np.column_stack([frame, np.ones(len(frame))])
    for parameter, name in ((scale, "alpha_"), (shape, "beta_")):
        ours = np.linalg.lstsq(design, np.log(parameter), rcond=None)[0]
        np.testing.assert_allclose(ours, other.params_[name][["u", "v", "Intercept"]], atol=1e-4)


@pytest.mark.real_data
def test_the_linear_version_is_lifelines_model_on_real_data(real_data):
    X, y = datasets.load("gbsg")
    keep = y["time"] > 0  # lifelines takes no time zero
    frame, y = X.astype(float)[keep], y[keep]
    against_lifelines((frame - frame.mean()) / frame.std(), y, 500)


def test_the_truth_is_found():
    X, y, _ = simulated(5000, 0)
    test_X, test_y, truth = simulated(5000, 1)
    model = LogLogisticNet(n_members=1, max_epochs=20, random_state=0).fit(X, y)
    assert abs(model.score(test_X, test_y) - log_likelihood(truth, test_y).mean()) < 0.01
    median = np.median(np.abs(np.log(model.predict_median(test_X) / truth.median())))
    assert median < 0.1


def test_odds_are_proportional_where_the_shape_is_constant():
    X, y, _ = simulated(100, 0)
    model = LogLogisticNet(offset=0.0, n_members=1, max_epochs=2, random_state=0).fit(X, y)
    with torch.no_grad():
        model.stack_.populations[0].network.head.weight[..., 1] = 0.0
    survival = model.predict_survival_function(X, [0.1, 0.5, 2.0, 7.0])
    odds = (1 - survival) / survival
    ratio = odds / odds[:1]
    np.testing.assert_allclose(ratio, np.repeat(ratio[:, :1], 4, axis=1), rtol=1e-6)
    assert np.ptp(ratio[:, 0]) > 0.01


def test_each_subject_has_a_distribution_of_the_family():
    X, y, _ = simulated(200, 0)
    settings = {"n_members": 1, "max_epochs": 2, "random_state": 0}
    plain = LogLogisticNet(offset=0.0, **settings).fit(X, y).predict_distribution(X)
    assert isinstance(plain, Rescaled)
    assert isinstance(plain.base, LogLogistic)
    scale, shape = plain.base.scale.numpy() * plain.scale, plain.base.shape.numpy()
    at = np.array([0.2, 1.0, 5.0])
    np.testing.assert_allclose(plain.density(at), stats.fisk.pdf(at, shape, scale=scale), rtol=1e-10)
    shifted = LogLogisticNet(offset=0.5, **settings).fit(X, y).predict_distribution(X)
    assert isinstance(shifted.base, Remaining)
    assert (shifted.density(0.0) > 0).all()


@pytest.mark.parametrize("offset", [0.0, "auto", 0.3])
def test_the_objective_is_the_likelihood_of_the_distribution(offset):
    X, y, _ = simulated(100, 0)
    y["time"][:2], y["event"][:2] = 0.0, offset != 0.0
    model = LogLogisticNet(offset=offset, n_members=1, max_epochs=2, random_state=0).fit(X, y)
    inputs = model.preprocessor_.transform(X)
    time, event = torch.from_numpy(y["time"] / model.time_unit_), torch.from_numpy(y["event"].copy())
    shared = Inputs(inputs.numeric.double(), inputs.codes).shared()
    terms = small_networks.terms(model.stack_.populations[0].network, shared, time[None], event[None])[0].numpy()
    terms = terms - np.where(y["event"], np.log(model.time_unit_), 0.0)
    np.testing.assert_allclose(terms, log_likelihood(model.predict_distribution(X), y), rtol=1e-8, atol=1e-10)


def test_events_at_time_zero():
    X, y, _ = simulated(60, 0)
    days = Surv.from_arrays(y["event"], np.floor(10 * y["time"]))
    assert ((days["time"] == 0) & days["event"]).any()
    settings = {"n_members": 1, "max_epochs": 1, "random_state": 0}
    assert np.isfinite(LogLogisticNet(**settings).fit(X, days).score(X, days))
    with pytest.raises(ValueError, match=r"LogLogisticNet.*time zero.*offset"):
        LogLogisticNet(offset=0.0, **settings).fit(X, days)


@pytest.mark.parametrize("offset", [0.0, 1e-6])
def test_terms_and_gradients_are_finite_at_extreme_times(offset):
    encoder = small_networks.table_encoder()
    network = LogTimeNetwork(LogLogistic, [torch.Generator().manual_seed(0)], encoder, (-1.0, 1.5), offset)
    time = torch.tensor([[0.0, 1e-38, 1e-12, 1e-3, 1.0, 1e3, 1e12, 1e38] * 2])
    event = torch.arange(16)[None] >= 8
    event[0, 8] = offset > 0  # the plain family gives no likelihood to an event at time zero
    inputs = small_networks.inputs(16)
    inputs = Inputs(inputs.numeric.float(), inputs.codes).shared()
    terms = small_networks.terms(network, inputs, time, event)
    assert torch.isfinite(terms).all()
    for term in terms[0]:
        for gradient in torch.autograd.grad(term, list(network.parameters()), retain_graph=True, allow_unused=True):
            assert gradient is None or torch.isfinite(gradient).all()
