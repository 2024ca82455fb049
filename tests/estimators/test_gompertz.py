"""Gompertz networks: SciPy's density, a direct fit of the linear model, the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, stats

import small_networks
from sumosurv import GompertzNet, Surv, datasets
from sumosurv.distributions import Gompertz, Rescaled
from sumosurv.networks import Inputs
from sumosurv.networks.parametric import GompertzNetwork
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
    "learning_rate": 0.05,
    "random_state": 0,
}
QUICK = {"n_members": 1, "max_epochs": 2, "random_state": 0}


def ages(n, seed, bends=1.0):
    """Deaths of adults: the hazard doubles every seven to twelve years after forty; follow-up ends somewhere."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    level = np.exp(-6.0 + bends * np.sin(2 * x[:, 0]) + 0.5 * x[:, 1])
    truth = Gompertz(level, np.log(2) / (9.5 + 2.5 * x[:, 1]))
    time, censoring = truth.sample(random_state=100 + seed), rng.uniform(20.0, 90.0, n)
    return pd.DataFrame(x, columns=["u", "v"]), Surv.from_arrays(time <= censoring, np.minimum(time, censoring)), truth


def direct_fit(x, y, centre, unit, entry=0.0):
    """The highest likelihood with log-hazard at the centre and inverse softplus of the rate linear in x."""
    t, event, centre, entry = y["time"] / unit, y["event"], centre / unit, entry / unit
    design = np.column_stack([x, np.ones(len(x))])

    def parts(weights):
        a, b = design @ weights[: design.shape[1]], design @ weights[design.shape[1] :]
        rate = np.logaddexp(0.0, b)
        return np.exp(a - rate * centre), rate

    def loss(weights):
        level, rate = parts(weights)
        hazard = level * (np.expm1(rate * t) - np.expm1(rate * entry)) / rate
        return -np.mean(event * (np.log(level) + rate * t) - hazard)

    begin, options = np.zeros(2 * design.shape[1]), {"gtol": 1e-7, "maxiter": 2000}
    found = optimize.minimize(loss, begin, method="BFGS", options=options)
    level, rate = parts(found.x)
    return -found.fun - event.mean() * np.log(unit), level / unit, rate / unit


def against_direct_fit(frame, y, max_epochs, atol, entry=0.0):
    known = y if np.ndim(entry) == 0 else Surv.from_arrays(y["event"], y["time"], entry=entry)
    model = GompertzNet(max_epochs=max_epochs, **LINEAR).fit(frame, known)
    best, level, rate = direct_fit(frame.to_numpy(), y, y["time"][y["event"]].mean(), y["time"].max(), entry)
    assert model.score(frame, known) == pytest.approx(best, abs=1e-5)
    at = np.quantile(y["time"], [0.1, 0.3, 0.5, 0.7, 0.9])
    curves = np.exp(-level[:, None] * np.expm1(rate[:, None] * at) / rate[:, None])
    np.testing.assert_allclose(model.predict_survival_function(frame, at), curves, atol=atol)


def test_the_linear_version_is_a_direct_fit():
    frame, y, _ = ages(800, 0, bends=0.0)
    against_direct_fit((frame - frame.mean()) / frame.std(ddof=0), y, 300, atol=1e-4)


def test_the_linear_version_is_a_direct_fit_with_delayed_entry():
    frame, y, _ = ages(800, 0, bends=0.0)
    rng = np.random.default_rng(5)
    entry = y["time"] * rng.uniform(0.0, 0.9, 800) * (rng.random(800) < 0.8)
    against_direct_fit((frame - frame.mean()) / frame.std(ddof=0), y, 300, 1e-4, entry)


@pytest.mark.real_data
def test_the_linear_version_is_a_direct_fit_on_real_data(real_data):
    X, y = datasets.load("metabric")
    frame = X.astype(float)
    # a tenth of the rates is nearly zero, where the likelihood is flat
    against_direct_fit((frame - frame.mean()) / frame.std(ddof=0), y, 1000, atol=0.02)


def test_the_truth_is_found():
    X, y, _ = ages(3000, 0)
    test_X, test_y, truth = ages(5000, 1)
    model = GompertzNet(n_members=1, max_epochs=12, random_state=0).fit(X, y)
    assert abs(model.score(test_X, test_y) - log_likelihood(truth, test_y).mean()) < 0.01
    assert np.median(np.abs(model.predict_mean(test_X) - truth.mean())) < 2.0  # years


def test_training_starts_at_the_best_for_all_subjects_alike():
    frame, y, _ = ages(500, 0)
    model = GompertzNet(**QUICK).fit(frame, y)
    a, b = model.stack_.learned.start["values"]
    unit, centre, rate = model.time_unit_, model.stack_.learned.start["centre"], np.logaddexp(0.0, b)
    started = Gompertz(np.full(500, np.exp(a - rate * centre) / unit), rate / unit)
    best, _, _ = direct_fit(np.zeros((500, 0)), y, centre * unit, unit)
    assert log_likelihood(started, y).mean() == pytest.approx(best, abs=1e-6)


def test_each_subject_has_a_distribution_of_the_family():
    X, y, _ = ages(200, 0)
    d = GompertzNet(**QUICK).fit(X, y).predict_distribution(X)
    assert isinstance(d, Rescaled)
    assert isinstance(d.base, Gompertz)
    level, rate = d.base.level.numpy() / d.scale, d.base.rate.numpy() / d.scale
    at = np.array([0.0, 5.0, 40.0, 90.0])
    np.testing.assert_allclose(d.density(at), stats.gompertz.pdf(at, level / rate, scale=1 / rate), rtol=1e-10)
    np.testing.assert_allclose(d.survival(at), stats.gompertz.sf(at, level / rate, scale=1 / rate), rtol=1e-10)


def test_the_objective_is_the_likelihood_of_the_distribution():
    X, y, _ = ages(100, 0)
    y["time"][:4], y["event"][:4] = 0.0, [True, True, False, False]
    model = GompertzNet(**QUICK).fit(X, y)
    inputs = model.preprocessor_.transform(X)
    time, event = torch.from_numpy(y["time"] / model.time_unit_), torch.from_numpy(y["event"].copy())
    shared = Inputs(inputs.numeric.double(), inputs.codes).shared()
    terms = small_networks.terms(model.stack_.populations[0].network, shared, time[None], event[None])[0].numpy()
    terms = terms - np.where(y["event"], np.log(model.time_unit_), 0.0)
    np.testing.assert_allclose(terms, log_likelihood(model.predict_distribution(X), y), rtol=1e-8, atol=1e-10)


def test_events_at_time_zero_have_the_density_of_the_level():
    X, y, _ = ages(200, 0)
    y["time"][:10], y["event"][:10] = 0.0, True
    model = GompertzNet(**QUICK).fit(X, y)
    d = model.predict_distribution(X)
    level = d.base.level.numpy()[:, 0] / d.scale
    np.testing.assert_allclose(log_likelihood(d, y)[:10], np.log(level[:10]), rtol=1e-12)


def test_hazards_that_fall_become_constant():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"u": rng.normal(size=1000)})
    y = Surv.from_arrays(np.ones(1000, dtype=bool), rng.weibull(0.6, 1000))
    model = GompertzNet(n_members=1, max_epochs=20, random_state=0).fit(X, y)
    hazard = model.predict_distribution(X).hazard([0.0, y["time"].max()])
    assert (hazard[:, 1] < 1.2 * hazard[:, 0]).all()


def network(rate, dtype=torch.float32):
    """One with the rate for all subjects, nearly."""
    start = (0.0, float(np.log(np.expm1(rate)) if rate > 0 else -200.0))
    generators = [torch.Generator().manual_seed(0)]
    return GompertzNetwork(generators, small_networks.table_encoder(), start, 0.7).to(dtype).eval()


def rows(n, dtype=torch.float32):
    inputs = small_networks.inputs(n)
    return Inputs(inputs.numeric.to(dtype), inputs.codes).shared()


@pytest.mark.parametrize("rate", [0.0, 1e-7, 1e-3, 1.0, 30.0])
def test_terms_and_gradients_are_finite_and_right_at_extreme_times(rate):
    """Those of single precision are those of double precision; times run from zero to twice the training times."""
    time = torch.tensor([[0.0, 1e-38, 1e-12, 1e-3, 0.05, 0.7, 1.0, 2.0] * 2])
    event = torch.arange(16)[None] >= 8
    single, double = network(rate), network(rate, torch.float64)
    found = small_networks.terms(single, rows(16), time, event)[0]
    exact = small_networks.terms(double, rows(16, torch.float64), time.double(), event)[0]
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found.double(), exact, rtol=2e-4, atol=1e-5)
    for mine, true in zip(found, exact):
        gradient = torch.autograd.grad(mine, single.head.weight, retain_graph=True)[0].double()
        expected = torch.autograd.grad(true, double.head.weight, retain_graph=True)[0]
        assert torch.isfinite(gradient).all()
        torch.testing.assert_close(gradient, expected, rtol=2e-3, atol=1e-5)


def test_terms_and_gradients_are_those_of_the_formula():
    """On both sides of the place where the series of the cumulative hazard ends."""
    net = network(1.0, torch.float64)
    time = torch.tensor([[1e-3, 0.02, 0.06, 0.09, 0.1, 0.11, 0.5, 3.0]], dtype=torch.float64)
    event = torch.arange(8)[None] % 2 == 0
    a, b = (torch.full((1, 8), v, dtype=torch.float64, requires_grad=True) for v in (-0.3, 0.55))
    net.outputs = lambda embedding: (a, b)
    found = small_networks.terms(net, rows(8, torch.float64), time, event)
    rate = torch.log1p(torch.exp(b))
    level = torch.exp(a - 0.7 * rate)
    expected = event * (torch.log(level) + rate * time) - level * torch.expm1(rate * time) / rate
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-14)
    for mine, true in zip(*(torch.autograd.grad(terms.sum(), (a, b)) for terms in (found, expected))):
        torch.testing.assert_close(mine, true, rtol=1e-9, atol=1e-12)


def test_a_rate_too_small_for_a_number_is_a_constant_hazard():
    net = network(1.0, torch.float64)
    a, b = torch.zeros(1, dtype=torch.float64), torch.tensor([-1e4], dtype=torch.float64)
    np.testing.assert_allclose(net._member(a, b).survival([0.5, 3.0]), np.exp([[-0.5, -3.0]]), rtol=1e-12)
