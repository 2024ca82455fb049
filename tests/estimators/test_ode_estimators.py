"""SODEN and SurvNODE as estimators: proper distributions, the truth recovered, hard data, files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from sumosurv import Soden, Surv, SurvNode, load
from sumosurv.distributions import Weibull
from sumosurv.scores import log_likelihood

SMALL = {"n_members": 2, "max_epochs": 4, "covariate_layers": (8,), "hazard_layers": (8,), "random_state": 0}
MODELS = {
    "general": lambda **o: Soden(**(SMALL | o)),
    "cox": lambda **o: Soden(form="cox", **(SMALL | o)),
    "cox-network": lambda **o: Soden(form="cox-network", **(SMALL | o)),
    "survnode": lambda **o: SurvNode(**(SMALL | o)),
}


def data(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(["u", "v"], n)})
    return X, Surv.from_arrays(rng.random(n) < 0.7, 40.0 * rng.weibull(1.5, n) * np.exp(-0.7 * X["a"]))


@pytest.fixture(scope="module", params=list(MODELS))
def fitted(request):
    return MODELS[request.param]().fit(*data())


def test_survival_is_a_distribution(fitted):
    X, y = data()
    d, scale = fitted.predict_distribution(X)[:5], y["time"].max()
    assert (d.survival(0.0) == 1).all()
    grid = np.concatenate([[0.0], scale * np.logspace(-12, 12, 400)])
    s, log_f = d.survival(grid), d.log_density(grid)
    assert (np.diff(s, axis=1) <= 1e-13).all()
    assert (s[:, -1] < 1e-9).all()
    assert not np.isnan(log_f).any()
    assert np.isfinite(d.log_survival(grid[grid <= 3.0 * scale])).all()  # later the hazard may overflow
    assert (d.survival(np.inf) == 0).all()


def test_density_is_minus_the_slope_of_survival(fitted):
    X, y = data()
    d = fitted.predict_distribution(X)[:5]
    t = y["time"].max() * torch.tensor([[0.001, 0.01, 0.1, 0.4, 0.8, 1.3]]).double().repeat(5, 1).requires_grad_(True)
    (slope,) = torch.autograd.grad(d.survival(own_times=t).sum(), t)
    np.testing.assert_allclose(d.density(own_times=t).detach().numpy(), -slope.numpy(), rtol=2e-5)
    for horizon in (0.3, 1.0):
        edges = horizon * y["time"].max() * np.concatenate([[0.0], np.logspace(-4, 0, 400)])
        nodes, weights = np.polynomial.legendre.leggauss(6)
        half = 0.5 * np.diff(edges)[:, None]
        places = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes).ravel()
        area = (d.density(places) * (half * weights).ravel()).sum(1)
        np.testing.assert_allclose(area, 1 - d.survival(edges[-1]), atol=1e-6)


def test_quantiles_and_means(fitted):
    X, y = data()
    d = fitted.predict_distribution(X)[:20]
    levels = np.array([0.05, 0.3, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(d.cdf(own_times=d.quantile(levels)), np.tile(levels, (20, 1)), rtol=1e-9)
    assert np.isfinite(d.mean()).all()
    horizon = 0.7 * y["time"].max()
    nodes, weights = np.polynomial.legendre.leggauss(200)
    area = (d.survival(0.5 * horizon * (nodes + 1)) * weights).sum(1) * 0.5 * horizon
    np.testing.assert_allclose(d.restricted_mean(horizon), area, rtol=1e-6)
    np.testing.assert_allclose(d.restricted_mean(1e9), d.mean(), rtol=1e-9)
    later = d.conditional(horizon)
    assert (later.mean() > horizon).all()


@pytest.mark.usefixtures("coarse_solutions")
def test_files(fitted, tmp_path):
    X, y = data()
    fitted.save(tmp_path / "model")
    twin = load(tmp_path / "model")
    assert twin.get_params() == fitted.get_params()
    np.testing.assert_array_equal(
        twin.predict_density(X, [1.0, 30.0, 500.0]), fitted.predict_density(X, [1.0, 30.0, 500.0])
    )
    assert twin.score(X, y) == fitted.score(X, y)


@pytest.mark.usefixtures("coarse_solutions")
@pytest.mark.parametrize("name", list(MODELS))
def test_the_same_seed_gives_the_same_model(name):
    X, y = data(60)
    first, second = (MODELS[name]().fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", ["general", "cox", "cox-network"])
def test_only_the_form_cox_has_no_covariate_network(name):
    """There log Λ(t|x) - log Λ(t|0) is linear in x; elsewhere widths of the covariate network are those asked for."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (80, 1))
    y = Surv.from_arrays(rng.random(80) < 0.7, rng.weibull(1.5, 80) * np.exp(2.0 * x[:, 0] ** 2))
    options = {"n_members": 1, "numeric_scaling": "standard", "learning_rate": 0.1, "max_epochs": 8, "dropout": 0.0}
    model = MODELS[name](covariate_layers=(23,), **options).fit(x, y)
    d = model.predict_distribution(np.array([[-1.0], [0.0], [1.0]]))
    log_hazard = np.log(d.cumulative_hazard([0.3, 0.6]))
    bend = np.abs(log_hazard[0] + log_hazard[2] - 2.0 * log_hazard[1]).max()
    assert (bend < 1e-5) == (name == "cox")
    assert any(23 in p.shape for p in model.stack_.populations[0].network.parameters()) == (name != "cox")


@pytest.mark.usefixtures("coarse_solutions")
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.filterwarnings("ignore:All .* rows are censored")
def test_hard_data(name):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.normal(size=40)})
    time = rng.exponential(size=40)
    cases = {
        "ties": (x, Surv.from_arrays(rng.random(40) < 0.6, np.ceil(3 * time))),
        "zero times": (x, Surv.from_arrays(np.ones(40, bool), np.where(time < 0.5, 0.0, time))),
        "all zero": (x, Surv.from_arrays(np.ones(40, bool), np.zeros(40))),
        "all censored": (x, Surv.from_arrays(np.zeros(40, bool), time)),
        "constant feature": (x.assign(a=1.0), Surv.from_arrays(rng.random(40) < 0.6, time)),
        "far apart": (x, Surv.from_arrays(rng.random(40) < 0.6, np.exp(8 * rng.normal(size=40)))),
    }
    if name in ("general", "survnode"):  # of these tests/estimators/test_methods.py has the others
        cases = {case: cases[case] for case in ("all zero", "far apart")}
    for case, (X, y) in cases.items():
        model = MODELS[name](max_epochs=2, steps=3).fit(X, y)
        assert model.n_members_ == 2, case
        assert np.isfinite(model.history_["train"]).all(), case
        assert np.isfinite(model.score(X, y)), case


def truth(n, seed, crossing):
    """Weibull times with a covariate: proportional hazards, or a shape that changes with it."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    shape = np.exp(0.3 * x) if crossing else np.full(n, 1.4)
    d = Weibull(scale=np.exp(-0.8 * x / shape), shape=shape)
    time, censored = d.sample(random_state=rng), rng.exponential(2.0, n)
    return pd.DataFrame({"x": x}), Surv.from_arrays(time <= censored, np.minimum(time, censored)), d


@pytest.mark.usefixtures("coarse_solutions")
@pytest.mark.parametrize("name", list(MODELS))
def test_the_truth_is_found(name):
    crossing = not name.startswith("cox")
    X, y, _ = truth(3000, 1, crossing)
    X_test, y_test, d = truth(2000, 2, crossing)
    options = {"covariate_layers": (16,), "frequencies": 0, "dropout": 0.0, "max_epochs": 6, "n_members": 1}
    options |= {"batch_size": 128, "learning_rate": 0.02, "weight_decay": 0.01}
    model = MODELS[name](**options, hazard_layers=(16,)).fit(X, y)
    best = log_likelihood(d, y_test).mean()
    assert abs(model.score(X_test, y_test) - best) < 0.02


def test_an_adaptive_solver_fits_too():
    pytest.importorskip("torchdiffeq")
    X, y = data(60)
    for gradient in ("direct", "adjoint"):
        model = Soden(**(SMALL | {"max_epochs": 2}), solver="dopri5", gradient=gradient, device="cpu").fit(X, y)
        assert np.isfinite(model.score(X, y))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Soden(form="best"), "form .*'general'"),
        (Soden(solver="euler"), "solver .*'dopri5'; got 'euler'"),
        (Soden(gradient="adjoint"), "'adjoint' .*solver='dopri5'"),
        (Soden(steps=0), "steps .*at least 1; got 0"),
        (Soden(hazard_layers=()), "hazard_layers .*one or more"),
        (Soden(time_scale="sun"), "time_scale .*'log' or 'linear'"),
        (SurvNode(latent_size=0), "latent_size .*integer"),
        (SurvNode(regularisation=-1.0), "regularisation .*at least 0"),
        (SurvNode(regularisation="much"), "regularisation .*0; got 'much'"),
        (Soden(hazard_layers=8), "hazard_layers .*integers; got 8"),
    ],
)
def test_invalid_settings_are_named(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*data(30))
