"""DeepHit: its loss as the formula reads, its cuts, its curves between them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from sumosurv import DeepHit, Surv, datasets, kaplan_meier
from sumosurv.distributions import Tabulated
from sumosurv.networks import Inputs, Observed, Table
from sumosurv.scores import concordance_td, log_likelihood

SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (8,), "random_state": 0}


def sample(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    time = np.round(rng.exponential(np.exp(-X["a"])), 1)
    return X, Surv.from_arrays(rng.random(n) < 0.7, time)


@pytest.mark.parametrize(("alpha", "sigma"), [(0.3, 0.2), (1.0, 0.2), (0.8, 1.5)])
def test_the_objective_is_that_of_the_formula(alpha, sigma):
    X, y = sample()
    model = DeepHit(**SMALL, alpha=alpha, sigma=sigma, n_cuts=6).fit(X, y)
    inputs = model.preprocessor_.transform(X)
    numbers = Inputs(inputs.numeric.double(), inputs.codes)
    present = torch.ones(2, 60, dtype=torch.bool)
    present[1, 50:] = False
    time = torch.from_numpy(y["time"] / model.time_unit_)
    index = torch.arange(60)[None].expand(2, -1)
    event = torch.from_numpy(y["event"].copy())
    terms = model.stack_.populations[0].network.terms(Table(numbers, Observed(event, time)).batch(index, present))
    p = torch.exp(model.stack_.populations[0].network(numbers.shared()))[:, :, 0].numpy()  # of the only cause
    np.testing.assert_allclose(p.sum(axis=2), 1.0)
    cuts = model.cuts_
    assert model.n_intervals_ == len(cuts)
    for k in range(2):
        rows = np.flatnonzero(present[k].numpy())
        for i in rows:
            c = int(np.sum(cuts < y["time"][i] * (1 - 1e-12)))
            likelihood = np.log(p[k, i, c] if y["event"][i] else p[k, i, c:].sum())
            rank = 0.0
            for j in rows:
                if y["event"][i] and y["time"][i] < y["time"][j]:
                    rank += np.exp(-(p[k, i, : c + 1].sum() - p[k, j, : c + 1].sum()) / sigma)
            expected = alpha * likelihood - (1 - alpha) * rank / len(rows)
            assert float(terms[k, i]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("cuts", ["quantile", "equidistant"])
def test_training_starts_at_the_curve_of_all_rows(cuts):
    """With half an event where an interval has none, so that none starts as impossible."""
    X, y = sample()
    model = DeepHit(**SMALL, cuts=cuts, n_cuts=12).fit(X, y)
    curve = kaplan_meier(y).survival(model.cuts_ + 1e-9)[0]
    falls = -np.diff([1.0, *curve, 0.0])
    assert (falls[:-1] == 0).any() == (cuts == "equidistant")
    expected = np.maximum(falls, 0.5 / len(y))
    np.testing.assert_allclose(np.exp(model.stack_.learned.start["log_shares"]), expected / expected.sum(), rtol=1e-9)


def test_one_interval_is_enough():
    X, y = sample()
    model = DeepHit(**SMALL, n_cuts=1).fit(X, y)
    np.testing.assert_allclose(model.cuts_, [y["time"].max()])
    assert np.isfinite(model.score(X, y))


def test_cuts():
    X, y = sample(300)
    last = y["time"].max()
    even = DeepHit(**SMALL, cuts="equidistant", n_cuts=8).fit(X, y)
    np.testing.assert_allclose(even.cuts_, np.linspace(0, last, 9)[1:])
    quantile = DeepHit(**SMALL, n_cuts=8).fit(X, y)
    assert quantile.cuts_[-1] == pytest.approx(last)
    fall = -np.diff(np.append(1.0, kaplan_meier(y).survival(quantile.cuts_)[0]))
    assert fall.max() < 3 * fall.mean()
    tied = Surv.from_arrays(np.ones(300), np.ones(300))
    assert len(DeepHit(**SMALL).fit(X, tied).cuts_) == 1


@pytest.mark.parametrize("between", ["hazard", "density"])
def test_curves_between_the_cuts(between):
    X, y = sample()
    model = DeepHit(**(SMALL | {"n_members": 1}), interpolation=between, n_cuts=5).fit(X, y)
    inputs = model.preprocessor_.transform(X)
    p = torch.exp(model.stack_.populations[0].network(Inputs(inputs.numeric.double(), inputs.codes).shared()))[
        0, :, 0
    ].numpy()
    at_cuts = 1.0 - np.cumsum(p[:, :-1], axis=1)
    d = model.predict_distribution(X)
    np.testing.assert_allclose(d.survival(model.cuts_ * (1 + 1e-12)), at_cuts, rtol=1e-6)
    table = Tabulated(model.cuts_, at_cuts, between=between)
    t = np.linspace(0.0, 1.2 * model.cuts_[-1], 50)
    np.testing.assert_allclose(d.survival(t), table.survival(t), rtol=1e-8)
    np.testing.assert_allclose(d.density(t), table.density(t), rtol=1e-6, atol=1e-12)


def test_likelihood_alone_finds_the_truth():
    data, test = (datasets.simulate("weibull", 20000, random_state=seed) for seed in (0, 1))
    settings = {"alpha": 1.0, "n_cuts": 60, "n_members": 1, "max_epochs": 12, "dropout": 0.1, "random_state": 0}
    model = DeepHit(**settings).fit(data.X, data.y)
    truth = log_likelihood(test.distribution, test.y).mean()
    assert abs(model.score(test.X, test.y) - truth) < 0.02


def test_ranking_buys_concordance_with_likelihood():
    X, y = sample(600)
    settings = {"n_members": 1, "max_epochs": 15, "random_state": 0}
    plain, ranked = (DeepHit(alpha=alpha, sigma=0.05, **settings).fit(X, y) for alpha in (1.0, 0.02))
    assert ranked.score(X, y) < plain.score(X, y)
    assert concordance_td(ranked.predict_distribution(X), y) > 0.6


def test_errors():
    X, y = sample()
    for options, message in (
        ({"alpha": 0.0}, "alpha .*above 0 and at most 1"),
        ({"sigma": 0.0}, "sigma .*above 0"),
        ({"n_cuts": 0}, "n_cuts .*integer"),
        ({"alpha": 1.5}, "alpha .*at most 1; got 1.5"),
        ({"cuts": "log"}, "cuts .*'quantile'"),
        ({"interpolation": "spline"}, "interpolation .*'hazard'"),
    ):
        with pytest.raises(ValueError, match=message):
            DeepHit(**SMALL, **options).fit(X, y)
