"""Predictions are made some rows at a time; the seams must not show."""

import numpy as np
import pytest

from sumosurv import SumoNet, datasets
from sumosurv.estimators import base


@pytest.fixture(scope="module")
def fitted():
    data = datasets.simulate("weibull", 200, random_state=0)
    return SumoNet(ensemble_size=2, max_epochs=3, random_state=0).fit(data.X, data.y), data


@pytest.mark.parametrize(
    "ask",
    [
        lambda m, X, y: m.predict(X),
        lambda m, X, y: m.predict_survival_function(X, [0.3, 0.8]),
        lambda m, X, y: m.predict_median(X),
        lambda m, X, y: m.predict_quantile(X, [0.1, 0.9]),
        lambda m, X, y: m.predict_mean(X),
        lambda m, X, y: m.predict_restricted_mean(X, 0.7),
        lambda m, X, y: m.predict_restricted_mean(X, y["time"]),
        lambda m, X, y: m.score(X, y),
    ],
)
def test_blocks_give_what_one_call_gives(fitted, ask, monkeypatch):
    model, data = fitted
    at_once = ask(model, data.X, data.y)
    monkeypatch.setattr(base, "_BLOCK", 33)
    np.testing.assert_allclose(ask(model, data.X, data.y), at_once, rtol=1e-12)
    np.testing.assert_allclose(ask(model, data.X.set_index(np.arange(200)[::-1]), data.y), at_once, rtol=1e-12)
