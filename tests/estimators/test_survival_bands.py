"""Bands from the spread of members: weighted quantiles of the members' curves, whatever the model is made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sumosurv import (
    CoxPH,
    DeepHit,
    DeepSurv,
    KaplanMeier,
    SumoNet,
    SumoNetSearch,
    Surv,
    SurvivalMixture,
    WeibullNet,
    datasets,
    load,
)
from sumosurv.fitting.spread import limits
from sumosurv.networks import select_members

GRID = np.array([0.0, 0.3, 0.7, 1.0, 1.4, 4.0])


@pytest.fixture(scope="module")
def data():
    return datasets.simulate("weibull", 250, random_state=0)


@pytest.fixture(scope="module")
def default(data):
    return SumoNet(max_epochs=3, random_state=0).fit(data.X, data.y)


def mean_quantile(values, weights, level):
    """Quantiles of the weighted values, averaged over levels within a window as wide as the weight of a member."""
    order, width = np.argsort(values), np.square(weights).sum()
    first = np.clip(level - 0.5 * width, 0.0, 1.0 - width)
    levels = first + (np.arange(20_000) + 0.5) / 20_000 * width
    places = np.searchsorted(np.cumsum(weights[order]), levels)
    return values[order][np.minimum(places, len(values) - 1)].mean()


@pytest.mark.parametrize("kind", [DeepHit, DeepSurv, WeibullNet])
def test_members_are_the_networks_one_by_one(kind, data):
    model = kind(n_members=3, max_epochs=2, random_state=0).fit(data.X, data.y)
    members = model.predict_members(data.X[:7])
    assert len(members) == 3
    np.testing.assert_allclose(members.weights, 1 / 3)
    twin = kind(n_members=3)
    twin.__dict__.update(model.__dict__)
    (population,) = model.stack_.populations
    alone = replace(population, network=select_members(population.network, [1]))
    twin.stack_ = replace(model.stack_, populations=(alone,))
    expected = twin.predict_survival_function(data.X[:7], GRID)
    np.testing.assert_array_equal(members.distributions[1].survival(GRID), expected)
    mean = np.mean([member.survival(GRID) for member in members.distributions], axis=0)
    np.testing.assert_allclose(mean, model.predict_survival_function(data.X[:7], GRID), atol=1e-12)


def test_the_default_counts_every_network_of_every_kind_with_its_weight(default, data):
    X = data.X[:9]
    members = default.predict_members(X)
    kept = default.members_[default.members_["weight"] > 0]
    assert len(members) == default.n_members_ == len(kept)
    assert kept["component"].nunique() > 1
    np.testing.assert_allclose(members.weights, kept["weight"])
    curves = np.stack([member.survival(GRID) for member in members.distributions])
    mixed = np.tensordot(members.weights, curves, axes=1)
    np.testing.assert_allclose(mixed, default.predict_survival_function(X, GRID), atol=1e-12)
    lower, upper = default.predict_survival_band(X, GRID, level=0.8)
    for i in range(len(X)):
        for j in range(len(GRID)):
            assert lower[i, j] == pytest.approx(mean_quantile(curves[:, i, j], members.weights, 0.1), abs=1e-4)
            assert upper[i, j] == pytest.approx(mean_quantile(curves[:, i, j], members.weights, 0.9), abs=1e-4)


def test_limits_fall_in_time_and_widen_with_the_level(default, data):
    times = np.linspace(0.0, 3.0, 40)
    narrow, wide = (default.predict_survival_band(data.X[:20], times, level) for level in (0.5, 0.99))
    for limit in (*narrow, *wide):
        assert limit.shape == (20, 40)
        assert (np.diff(limit, axis=1) <= 1e-15).all()
        assert ((limit >= 0) & (limit <= 1)).all()
        np.testing.assert_array_equal(limit[:, 0], 1.0)
    assert (wide[0] <= narrow[0]).all()
    assert (narrow[0] <= narrow[1]).all()
    assert (narrow[1] <= wide[1]).all()


def test_blocks_of_rows_change_nothing(default, data, monkeypatch):
    whole = default.predict_survival_band(data.X[:20], GRID)
    monkeypatch.setattr("sumosurv.fitting.spread._CELLS", 1)
    np.testing.assert_allclose(default.predict_survival_band(data.X[:20], GRID), whole, atol=1e-12)


def test_mixtures_searches_and_files_have_the_members_of_their_parts(default, data, tmp_path):
    X = data.X[:5]
    both = SurvivalMixture.of([default, CoxPH().fit(data.X, data.y)], weights=[3, 1])
    members = both.predict_members(X)
    assert len(members) == default.n_members_ + 1
    assert members.weights[-1] == pytest.approx(0.25)
    assert members.weights.sum() == pytest.approx(1.0)
    default.save(tmp_path / "model.sumo")
    again = load(tmp_path / "model.sumo")
    np.testing.assert_array_equal(again.predict_survival_band(X, GRID), default.predict_survival_band(X, GRID))
    search = SumoNetSearch(SumoNet(max_epochs=2), n_trials=2, mixture=2, random_state=0).fit(data.X, data.y)
    found = search.best_estimator_.predict_survival_band(X, GRID)
    np.testing.assert_array_equal(search.predict_survival_band(X, GRID), found)


def test_competing_causes_and_a_table_without_events(data):
    rng = np.random.default_rng(0)
    y = Surv.from_arrays(rng.integers(0, 3, 250), data.y["time"])
    lower, upper = WeibullNet(n_members=2, max_epochs=2).fit(data.X, y).predict_survival_band(data.X, GRID)
    assert (lower <= upper).all()
    never = Surv.from_arrays(np.zeros(250, bool), data.y["time"])
    with pytest.warns(UserWarning, match="All 250 rows are censored"):
        model = SumoNet(max_epochs=2, random_state=0).fit(data.X, never)
    lower, upper = model.predict_survival_band(data.X[:5], GRID)
    assert (lower <= upper).all()
    assert model.predict_members(data.X[:5]).distributions[0].last_time == model.last_time_


def test_what_has_no_members(data):
    with pytest.raises(ValueError, match=r"KaplanMeier .*confidence_band"):
        KaplanMeier().fit(data.X, data.y).predict_survival_band(data.X, GRID)
    alone = WeibullNet(n_members=1, max_epochs=2).fit(data.X, data.y)
    with pytest.raises(ValueError, match="is a single model"):
        alone.predict_survival_band(data.X, GRID)
    with pytest.raises(ValueError, match="level must be a probability"):
        alone.predict_survival_band(data.X, GRID, level=95)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_limits_of_survival_curves_are_monotone_with_unequal_weights(level):
    """Curves that cross change places; interpolation between the middles of unequal weights then jumped upwards."""
    rng = np.random.default_rng(0)
    times = np.linspace(0.0, 5.0, 400)
    for _ in range(20):
        scale, shape = rng.uniform(0.3, 3.0, (8, 1)), rng.uniform(0.5, 3.0, (8, 1))
        curves, weights = np.exp(-((times / scale) ** shape)), rng.dirichlet(np.ones(8))
        for limit in limits(curves, weights, level):
            assert (np.diff(limit) <= 1e-15).all()
            assert (curves.min(axis=0) - 1e-12 <= limit).all()
            assert (limit <= curves.max(axis=0) + 1e-12).all()


def test_limits_with_equal_weights_are_interpolated_between_the_middles():
    values = np.random.default_rng(1).normal(size=(7, 3))
    for level in (0.3, 0.8, 0.99):
        for limit, q in zip(limits(values, np.full(7, 1 / 7), level), (0.5 - level / 2, 0.5 + level / 2)):
            expected = [np.interp(q, (np.arange(7) + 0.5) / 7, np.sort(column)) for column in values.T]
            np.testing.assert_allclose(limit, expected, atol=1e-12)
