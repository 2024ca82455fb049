"""Predictions are made some rows at a time; the seams must not show."""

import numpy as np
import pytest

from sumosurv import SumoNet, datasets
from sumosurv.estimators import predictions


@pytest.fixture(scope="module")
def fitted():
    data = datasets.simulate("weibull", 100, random_state=0)
    return SumoNet(n_members=2, max_epochs=3, random_state=0).fit(data.X, data.y), data


@pytest.mark.parametrize(
    "ask",
    [
        lambda m, X, y: m.predict(X),
        lambda m, X, y: m.predict_survival_function(X, [0.3, 0.8]),
        lambda m, X, y: m.predict_median(X),
        lambda m, X, y: m.predict_quantile(X, [0.1, 0.9]),
        lambda m, X, y: m.predict_mean(X),
        lambda m, X, y: m.predict_restricted_mean(X, 0.7),
        lambda m, X, y: m.predict_restricted_mean(X, [0.3, 0.7]),
        lambda m, X, y: m.predict_restricted_mean(X, own_horizons=y["time"]),
        lambda m, X, y: m.score(X, y),
    ],
)
def test_blocks_give_what_one_call_gives(fitted, ask, monkeypatch):
    model, data = fitted
    sizes, original = [], SumoNet._predict
    monkeypatch.setattr(SumoNet, "_predict", lambda m, X, notes: sizes.append(len(X)) or original(m, X, notes))
    at_once = ask(model, data.X, data.y)
    assert sizes == [100]
    monkeypatch.setattr(predictions, "_BLOCK", 33)
    sizes.clear()
    # means are integrated on panels that the rows of a block share
    np.testing.assert_allclose(ask(model, data.X, data.y), at_once, rtol=1e-10)
    assert sizes == [33] * 3 + [1]
    np.testing.assert_allclose(ask(model, data.X.set_index(np.arange(100)[::-1]), data.y), at_once, rtol=1e-10)


def test_horizons_are_shared_or_each_row_s_own(fitted, monkeypatch):
    model, data = fitted
    X, horizons = data.X[:30], data.y["time"][:30]
    grid = model.predict_restricted_mean(X, horizons)  # as many as rows, and a grid all the same
    assert grid.shape == (30, 30)
    np.testing.assert_allclose(grid[:, 3], model.predict_restricted_mean(X, float(horizons[3])), rtol=1e-9)
    own = model.predict_restricted_mean(X, own_horizons=horizons)
    np.testing.assert_allclose(own, np.diagonal(grid), rtol=1e-9)
    monkeypatch.setattr(predictions, "_BLOCK", 20)
    for wrong in (horizons[:20], data.y["time"], np.ones((30, 2)), 1.0):
        with pytest.raises(ValueError, match=r"horizon .* 30 rows; got shape"):
            model.predict_restricted_mean(X, own_horizons=wrong)
    with pytest.raises(TypeError, match="either horizon or own_horizons"):
        model.predict_restricted_mean(X)
    with pytest.raises(TypeError, match="either horizon or own_horizons"):
        model.predict_restricted_mean(X, 1.0, own_horizons=horizons)
    with pytest.raises(ValueError, match=r"horizon.*own_horizons"):
        model.predict_restricted_mean(X, horizons[:, None])


@pytest.mark.parametrize("ask", ["survival_function", "cumulative_hazard_function", "density", "hazard"])
def test_single_precision_is_close(fitted, ask):
    model, data = fitted
    predict = getattr(model, f"predict_{ask}")
    double, single = predict(data.X, [0.1, 0.5, 0.9]), predict(data.X, [0.1, 0.5, 0.9], precision="single")
    assert single.dtype == np.float64
    assert not np.array_equal(single, double)
    np.testing.assert_allclose(single, double, rtol=2e-5, atol=1e-6)


def test_precision_has_two_names(fitted):
    model, data = fitted
    with pytest.raises(ValueError, match="'double' or 'single'; got 'half'"):
        model.predict_survival_function(data.X, [0.5], precision="half")
