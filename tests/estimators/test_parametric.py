"""Weibull and log-normal networks: true families, lifelines' accelerated failure time models, the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import small_networks
from sumosurv import LogNormalNet, Surv, WeibullNet, datasets
from sumosurv.distributions import LogNormal, Remaining, Rescaled, Weibull
from sumosurv.networks import Inputs
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
    "max_epochs": 400,
    "random_state": 0,
}


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [(WeibullNet, "WeibullAFTFitter", "metabric"), (LogNormalNet, "LogNormalAFTFitter", "gbsg")],
)
def test_linear_versions_are_lifelines_models(ours, theirs, name, real_data, lifelines):
    X, y = datasets.load(name)
    keep = y["time"] > 0  # lifelines takes no time zero
    frame, y = X.astype(float)[keep], y[keep]
    frame = (frame - frame.mean()) / frame.std()
    model = ours(**LINEAR).fit(frame, y)
    table = frame.assign(time_=y["time"], event_=y["event"])
    other = getattr(lifelines, theirs)().fit(table, "time_", "event_", ancillary=True)
    assert model.score(frame, y) == pytest.approx(other.log_likelihood_ / len(y), abs=1e-4)
    at = np.quantile(y["time"], [0.1, 0.3, 0.5, 0.7, 0.9])
    curves = other.predict_survival_function(frame, times=at, ancillary=frame).to_numpy().T
    np.testing.assert_allclose(model.predict_survival_function(frame, at), curves, atol=1e-4)


def simulated(family, n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    a, b = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1], 0.5 * x[:, 0]
    truth = Weibull(np.exp(a), np.exp(b)) if family is WeibullNet else LogNormal(a, np.exp(b - 0.5))
    time, censoring = truth.sample(random_state=100 + seed), rng.exponential(4.0, n)
    return pd.DataFrame(x), Surv.from_arrays(time <= censoring, np.minimum(time, censoring)), truth


@pytest.mark.parametrize("family", [WeibullNet, LogNormalNet])
def test_the_truth_is_found(family):
    X, y, _ = simulated(family, 4000, 0)
    test_X, test_y, truth = simulated(family, 4000, 1)
    model = family(n_members=1, max_epochs=12, random_state=0).fit(X, y)
    assert abs(model.score(test_X, test_y) - log_likelihood(truth, test_y).mean()) < 0.02


@pytest.mark.parametrize(("family", "kind"), [(WeibullNet, Weibull), (LogNormalNet, LogNormal)])
def test_each_subject_has_a_distribution_of_the_family(family, kind):
    X, y, _ = simulated(family, 200, 0)
    settings = {"n_members": 1, "max_epochs": 2, "random_state": 0}
    plain = family(offset=0.0, **settings).fit(X, y).predict_distribution(X)
    assert isinstance(plain, Rescaled)
    assert isinstance(plain.base, kind)
    shifted = family(offset=0.5, **settings).fit(X, y).predict_distribution(X)
    assert isinstance(shifted.base, Remaining)
    base, at = shifted.base.base, y["time"]
    unit = shifted.scale
    expected = base.survival(own_times=(at + 0.5) / unit) / base.survival(0.5 / unit)
    np.testing.assert_allclose(shifted.survival(own_times=at), expected, rtol=1e-9)
    assert (shifted.density(0.0) > 0).all()


@pytest.mark.parametrize("family", [WeibullNet, LogNormalNet])
@pytest.mark.parametrize("offset", [0.0, "auto", 0.3])
def test_the_objective_is_the_likelihood_of_the_distribution(family, offset):
    X, y, _ = simulated(family, 100, 0)
    y["time"][:2], y["event"][:2] = 0.0, offset != 0.0
    model = family(offset=offset, n_members=1, max_epochs=2, random_state=0).fit(X, y)
    inputs = model.preprocessor_.transform(X)
    time, event = torch.from_numpy(y["time"] / model.time_unit_), torch.from_numpy(y["event"].copy())
    shared = Inputs(inputs.numeric.double(), inputs.codes).shared()
    terms = small_networks.terms(model.stack_.populations[0].network, shared, time[None], event[None])[0].numpy()
    terms = terms - np.where(y["event"], np.log(model.time_unit_), 0.0)
    np.testing.assert_allclose(terms, log_likelihood(model.predict_distribution(X), y), rtol=1e-8, atol=1e-10)


def test_offsets():
    X, y, _ = simulated(WeibullNet, 60, 0)
    days = Surv.from_arrays(y["event"], np.floor(10 * y["time"]))
    settings = {"n_members": 1, "max_epochs": 1, "random_state": 0}
    model = WeibullNet(**settings).fit(X, days)
    assert float(model.stack_.populations[0].network.offset) * model.time_unit_ == pytest.approx(0.5)
    assert np.isfinite(model.score(X, days))
    with pytest.raises(ValueError, match="events at time zero"):
        WeibullNet(offset=0.0, **settings).fit(X, days)
    with pytest.raises(ValueError, match=r"offset .*'auto' or a number"):
        WeibullNet(offset=-1.0, **settings).fit(X, days)


def test_a_shifted_clock():
    base = Weibull([2.0, 3.0], [0.7, 2.0])
    late = Remaining(base, 0.4)
    t = np.array([0.0, 0.1, 1.0, 5.0])
    np.testing.assert_allclose(late.survival(t), base.survival(t + 0.4) / base.survival([0.4]), rtol=1e-12)
    q = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(late.cdf(own_times=late.quantile(q)), np.tile(q, (2, 1)), rtol=1e-9)
    np.testing.assert_allclose(late.mean(), base.conditional(0.4).mean() - 0.4, rtol=1e-9)
    with pytest.raises(ValueError, match="zero or more"):
        Remaining(base, -1.0)


def test_networks_read_principal_components_of_a_wide_table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1500))
    y = Surv.from_arrays(np.ones(80), rng.exponential(np.exp(X[:, 0])))
    model = WeibullNet(n_members=2, max_epochs=2, random_state=0).fit(X, y)
    assert model.history_["train"].min() > -10  # the likelihood of all columns is below -1e9
    assert model.preprocessor_.n_numeric <= 64
