"""The growth of the hazard past the last training time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

import small_networks
import sumosurv
from sumosurv import SumoNet, Surv
from sumosurv.networks import Observed
from sumosurv.networks.population import estimate_growth


def gompertz_rows(n, growth, seed=0, *, late=False):
    """Rows with a constant factor r on the hazard r e^{growth t}, followed to 1 at most; some enter late."""
    rng = np.random.default_rng(seed)
    level = np.exp(0.7 * rng.normal(size=n))
    entry = rng.uniform(0.0, 0.6, n) * late
    start = level / growth * np.exp(growth * entry)
    time = entry + np.log1p(rng.exponential(size=n) / start) / growth
    end = np.minimum(1.0, entry + rng.uniform(0.2, 2.0, n))
    return level, entry, np.minimum(time, end), time <= end


def literal_growth(level, entry, time, weight, event, prior):
    """By numeric integration of each row's hazard, the level at its best by search."""

    def objective(log_c, g):
        total = -0.5 * (g / prior) ** 2
        for r, a, z, w, d in zip(level, entry, time, weight, event):
            first, last = max(a, 0.25), min(z, 1.0)
            if last > first:
                total -= w * np.exp(log_c) * r * quad(lambda t, g=g: np.exp(g * t), first, last)[0]
                total += w * (log_c + np.log(r) + g * z) if d and z <= 1.0 else 0.0
        return total

    def at_best(g):
        return minimize_scalar(lambda c: -objective(c, g), bounds=(-6.0, 6.0), method="bounded").fun

    return minimize_scalar(at_best, bounds=(0.0, 5.0), method="bounded", options={"xatol": 1e-4}).x


@pytest.mark.parametrize("prior", [0.5, 3.0])
def test_the_growth_is_the_mode_of_the_likelihood_and_the_prior(prior):
    level, entry, time, event = gompertz_rows(40, 2.0, seed=3, late=True)
    time[:3], event[:3] = 1.4, True  # past the last training time: at risk until then, and no event before
    weight = np.random.default_rng(1).uniform(0.0, 2.0, 40)
    found = estimate_growth(level, entry, time, weight, event, prior=prior)
    assert found > 0.1
    assert found == pytest.approx(literal_growth(level, entry, time, weight, event, prior), abs=2e-3)


def test_a_growth_that_many_rows_show_is_found_and_few_rows_show_little():
    for late in (False, True):
        level, entry, time, event = gompertz_rows(40_000, 1.2, late=late)
        assert estimate_growth(level, entry, time, np.ones(40_000), event) == pytest.approx(1.2, abs=0.12)
        few = slice(0, 60)
        assert estimate_growth(level[few], entry[few], time[few], np.ones(60), event[few]) < 0.8
    # without its level a hazard seems to grow less, since those at high risk go first
    assert estimate_growth(np.ones(40_000), entry, time, np.ones(40_000), event) < 1.0


def test_a_hazard_that_falls_goes_on_as_it_is():
    rng = np.random.default_rng(0)
    time = rng.weibull(0.5, 2000)
    event, time = time < 1.0, np.minimum(time, 1.0)
    one = np.ones(2000)
    assert estimate_growth(one, 0 * one, time, one, event) == 0.0
    assert estimate_growth(one, 0 * one, time, one, np.zeros(2000, bool)) == 0.0
    assert estimate_growth(one, 0 * one, 0.1 * time, one, event) == 0.0  # nobody was at risk late


def test_a_fit_learns_the_growth_from_its_rows():
    net, inputs = small_networks.network((0, 1), growth=0.0), small_networks.inputs(300)
    d = net.distribution(inputs)
    _, entry, time, event = gompertz_rows(300, 3.0, seed=5, late=True)
    weight = np.random.default_rng(2).uniform(0.5, 2.0, 300)
    rows = Observed(*(torch.from_numpy(part) for part in (event, time, entry)), weight=torch.from_numpy(weight))
    net.fit_baseline(inputs, rows)
    level = d.cumulative_hazard(1.0) - d.cumulative_hazard(0.25)
    expected = estimate_growth(level, entry, time, weight / weight[time > 0.25].mean(), event)
    assert expected > 0.3
    assert float(net.growth) == pytest.approx(expected, rel=1e-6)
    after = net.distribution(inputs)
    np.testing.assert_allclose(after.survival([0.3, 1.0]), d.survival([0.3, 1.0]))
    assert (after.survival(2.0) < d.survival(2.0)).all()


def test_events_in_intervals_count_at_their_middle():
    net, other = (small_networks.network((0,), growth=0.0) for _ in range(2))
    inputs = small_networks.inputs(200)
    _, _, time, event = gompertz_rows(200, 3.0, seed=5)
    exact = Observed(torch.from_numpy(event), torch.from_numpy(time))
    width = 0.1 * torch.from_numpy(np.where(event, np.minimum(time, 1.0 - time), 0.0))
    upper = torch.where(exact.event, exact.time + width, torch.inf)
    between = Observed(torch.zeros(200, dtype=torch.bool), exact.time - width, upper=upper)
    net.fit_baseline(inputs, exact)
    other.fit_baseline(inputs, between)
    assert float(net.growth) > 0.1
    assert float(other.growth) == pytest.approx(float(net.growth), rel=1e-6)


def rows(n=300, seed=0, growth=2.5):
    level, _, time, event = gompertz_rows(n, growth, seed)
    return np.column_stack([np.log(level), np.zeros(n)]), event, time


SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (8, 8), "time_layers": (6, 6), "random_state": 0}
SMALL |= {"components": "networks"}


def test_each_cause_has_a_growth_of_its_own():
    X, event, time = rows()
    cause = np.where(event, 1 + (np.random.default_rng(1).random(len(X)) < 0.4), 0)
    model = SumoNet(**SMALL).fit(X, Surv.from_arrays(cause, time, causes=2))
    net, d = model.stack_.populations[0].network, model.predict_distribution(X)
    unit = model.time_unit_
    first, second = (float(part.growth) for part in net.causes)
    assert first != second
    assert max(first, second) > 0.0
    late = unit * (1.0 + np.array([1e-9, 0.5]))
    assert np.isfinite(d.mean()).all()
    assert (d.survival(late[1]) < d.survival(late[0])).all()
    # by hand: rows of the first cause count whole, censored ones by the probability of that cause
    embedding = net.encoder(model.preprocessor_.transform(X).to(torch.device("cpu"), torch.float64).shared())
    shares = torch.exp(net.shares(embedding)).mean(0).numpy()
    parts = [sumosurv.distributions.Mixture(part.member_distributions(embedding)) for part in net.causes]
    ahead = shares * np.column_stack([part.survival(own_times=time / unit) for part in parts])
    weight = np.where(cause > 0, cause == 1, ahead[:, 0] / ahead.sum(axis=1))
    level = parts[0].cumulative_hazard(1.0) - parts[0].cumulative_hazard(0.25)
    used = time / unit > 0.25
    found = estimate_growth(level[used], np.zeros(used.sum()), (time / unit)[used], weight[used], event[used])
    assert first == pytest.approx(found, rel=1e-6)


def test_the_growth_is_kept_in_the_model_file(tmp_path):
    X, event, time = rows()
    model = SumoNet(**SMALL).fit(X, Surv.from_arrays(event, time))
    assert float(model.stack_.populations[0].network.growth) > 0.05
    model.save(tmp_path / "model.sumo")
    again = sumosurv.load(tmp_path / "model.sumo")
    assert float(again.stack_.populations[0].network.growth) == float(model.stack_.populations[0].network.growth)
    assert again.last_time_ == model.last_time_ == time.max() == pytest.approx(model.time_unit_)
    np.testing.assert_array_equal(again.predict_mean(X), model.predict_mean(X))


def test_a_missing_or_invalid_growth_is_refused():
    X, event, time = rows()
    model = SumoNet(**SMALL).fit(X, Surv.from_arrays(event, time))
    fitted, tensors = model._state()
    del tensors["network.growth"]
    with pytest.raises(ValueError, match="missing"):
        SumoNet(**SMALL)._restore(fitted, tensors)
    for wrong in (-0.1, 30.0):
        fitted, tensors = model._state()
        tensors["network.growth"] = torch.full((1, 1), wrong, dtype=torch.float64)
        with pytest.raises(ValueError, match="growth of the hazard"):
            SumoNet(**SMALL)._restore(fitted, tensors)
