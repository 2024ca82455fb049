"""SuMo-net among scikit-learn's tools: its own checks, clone, pipelines, searches, cross-validation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sumosurv import SumoNet, Surv

SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (8,), "time_layers": (4,), "random_state": 0}

# Checks that do not apply, each with its reason. That the target is an outcome is none: times alone are read as "every
# event was seen", with a warning, which is all that these checks need.
NOT_APPLICABLE = {
    "check_sample_weight_equivalence_on_dense_data": "repeated rows are shuffled and held out one by one; "
    "tests/estimators/test_outcomes.py has the check with full batches"
}


@pytest.mark.filterwarnings("ignore:y contains only times")
@parametrize_with_checks([SumoNet(**SMALL)], expected_failed_checks=lambda _: NOT_APPLICABLE)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def data(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "c": rng.choice(["u", "v"], n)})
    time = rng.weibull(1.5, n) * np.exp(-1.5 * X["a"])
    return X, Surv.from_arrays(rng.random(n) < 0.8, time)


def test_tags_say_what_is_read():
    tags = SumoNet().__sklearn_tags__()
    assert tags.target_tags.required
    assert tags.target_tags.positive_only
    assert tags.input_tags.allow_nan
    assert tags.input_tags.string
    assert tags.input_tags.categorical


def test_clone_and_parameters():
    model = SumoNet(**SMALL, dropout=0.1, learning_rate=0.05)
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    assert clone(model.set_params(max_epochs=7)).max_epochs == 7
    assert model.fit(*data()) is model
    assert not hasattr(clone(model), "stack_")
    assert "dropout=0.1" in repr(model)
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        model.set_params(depth=3)


def test_fit_leaves_the_parameters_alone():
    layers = [8]
    model = SumoNet(**(SMALL | {"covariate_layers": layers}))
    before = model.get_params()
    model.fit(*data())
    assert model.get_params() == before
    assert model.covariate_layers is layers


def test_pipeline():
    X, y = data()
    numbers = X[["a", "b"]]
    pipe = make_pipeline(StandardScaler(), SumoNet(**SMALL)).fit(numbers, y)
    assert pipe.predict(numbers).shape == (90,)
    direct = SumoNet(**SMALL).fit(StandardScaler().fit_transform(numbers), y)
    assert pipe.score(numbers, y) == direct.score(StandardScaler().fit_transform(numbers), y)


def test_grid_search_with_a_structured_outcome():
    X, y = data()
    search = GridSearchCV(SumoNet(**SMALL), {"learning_rate": [1e-6, 0.05], "dropout": [0.0]}, cv=KFold(2)).fit(X, y)
    assert search.best_params_["learning_rate"] == 0.05
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert search.predict(X).shape == (90,)


def test_cross_validation_is_the_mean_log_likelihood():
    X, y = data()
    scores = cross_val_score(SumoNet(**SMALL), X, y, cv=KFold(3))
    folds = list(KFold(3).split(X))
    by_hand = [SumoNet(**SMALL).fit(X.iloc[a], y[a]).score(X.iloc[b], y[b]) for a, b in folds]
    np.testing.assert_allclose(scores, by_hand)
    frame = pd.DataFrame({"time": y["time"], "event": y["event"]})
    np.testing.assert_allclose(cross_val_score(SumoNet(**SMALL), X, frame, cv=KFold(3)), scores)
    assert set(cross_validate(SumoNet(**SMALL), X, y, cv=2, return_train_score=True)) >= {"test_score", "train_score"}


def test_an_unfitted_model_says_so(tmp_path):
    X, y = data()
    model = SumoNet()
    for call in (
        lambda: model.predict(X),
        lambda: model.predict_survival_function(X, [1.0]),
        lambda: model.score(X, y),
        lambda: model.save(tmp_path / "m"),
    ):
        with pytest.raises(NotFittedError):
            call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"components": "network"}, "components .*'auto', 'networks' or"),
        ({"components": ("network", "network")}, "components .* different names"),
        ({"components": ("forest",)}, "components .*got .*forest"),
        ({"numeric_scaling": "minmax"}, "scaling .*'standard'; got 'minmax'"),
        ({"dropout": 1.0}, "dropout .*below 1.*; got 1.0"),
        ({"dropout": -0.1}, "dropout .*at least 0"),
        ({"covariate_layers": (8, 0)}, r"covariate_layers .*got \(8, 0\)"),
        ({"covariate_layers": 8}, "covariate_layers .*integers; got 8"),
        ({"time_layers": ()}, "time_layers .*one or more"),
        ({"time_layers": (2.5,)}, "time_layers .*positive integers"),
        ({"n_members": 0}, "n_members .*at least 1.*; got 0"),
        ({"max_epochs": 1.5}, "max_epochs .*integer"),
        ({"max_epochs": "many"}, "max_epochs .*integer.*; got 'many'"),
        ({"frequencies": -1}, "frequencies .*at least 0; got -1"),
        ({"frequencies": 0.5}, "frequencies .*integer.*; got 0.5"),
        ({"batch_size": 0}, "batch_size .*at least 1; got 0"),
        ({"batch_size": "big"}, "batch_size .*'auto'"),
        ({"validation_fraction": 1.0}, "validation_fraction .*below 1"),
        ({"learning_rate": 0.0}, "learning_rate .*above 0; got 0.0"),
        ({"learning_rate": "fast"}, "learning_rate .*above 0; got 'fast'"),
        ({"weight_decay": -1.0}, "weight_decay .*at least 0"),
        ({"patience": -1}, "patience .*0 or None; got -1"),
        ({"time_origin": "last"}, "time_origin .*'zero' or 'first'"),
        ({"device": "abacus"}, "device .*'cuda'; got 'abacus'"),
    ],
)
def test_invalid_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SumoNet(**(SMALL | options)).fit(*data())
