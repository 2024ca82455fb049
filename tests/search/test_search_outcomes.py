"""Searches on rows with causes, late entry, intervals, weights and several rows of one subject."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sumosurv import DeepHit, NetworkSearch, SumoNet, SumoNetSearch, Surv, WeibullNet, load
from sumosurv.scores import log_likelihood
from sumosurv.search.selection import choose_size, mixture_scores

N, TRAIN = 160, 110
SPACE = {"dropout": [0.0, 0.3], "covariate_layers": [(4,), (6,)]}
SMALL = {"max_epochs": 4, "time_layers": (4,), "device": "cpu"}


@pytest.fixture(scope="module")
def data():
    """Covariates, time, cause, entry and weight."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(N, 2)), columns=["a", "b"])
    each = np.stack([np.exp(0.5 * X["a"]) * rng.weibull(1.4, N), 1.5 * rng.weibull(1.0, N)], axis=1)
    last = rng.uniform(0.3, 3.0, N)
    time = np.minimum(each.min(axis=1), last)
    cause = np.where(each.min(axis=1) <= last, 1 + each.argmin(axis=1), 0)
    entry = np.where(rng.random(N) < 0.6, 0.7 * time, 0.0)
    return X, time, cause, entry, rng.integers(1, 4, N)


def outcome(data, kind):
    _, time, cause, entry, _ = data
    lower = np.floor(4 * time) / 4
    upper = np.where(cause > 0, lower + 0.25, np.inf)
    return {
        "causes": Surv.from_arrays(cause, time),
        "entry": Surv.from_arrays(cause > 0, time, entry),
        "intervals": Surv.interval(lower, upper),
        "all": Surv.interval(lower, upper, cause, entry=0.9 * np.minimum(entry, lower)),
    }[kind]


def search(**options):
    return SumoNetSearch(SumoNet(**SMALL), space=SPACE, n_trials=4, **({"random_state": 0, "mixture": 2} | options))


def parts(data, kind):
    X, y = data[0], outcome(data, kind)
    return X[:TRAIN], y[:TRAIN], X[TRAIN:], y[TRAIN:]


@pytest.fixture(scope="module")
def fitted(data):
    made = {}

    def get(kind):
        if kind not in made:
            X, y, valid_X, valid_y = parts(data, kind)
            made[kind] = search().fit(X, y, (valid_X, valid_y))
        return made[kind]

    return get


KINDS = ["causes", "entry", "intervals", "all"]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_estimators(kind, data, fitted):
    """Of each trial, and of the mixture: where rows enter late it is given that the mixture reaches their entry."""
    found = fitted(kind)
    _, _, X, y = parts(data, kind)
    for place, score in enumerate(found.cv_results_["valid_score"]):
        assert found.trial(place).score(X, y) == pytest.approx(score, abs=2e-4)
    assert found.best_estimator_.score(X, y) == pytest.approx(found.mixture_score_, abs=2e-4)
    by_row = found.trial_log_likelihoods(X, y)
    for place, row in enumerate(by_row):
        np.testing.assert_allclose(row, log_likelihood(found.trial(place).predict_distribution(X), y), atol=1e-6)


@pytest.mark.parametrize("kind", ["entry", "all"])
def test_with_folds_a_trial_is_the_mixture_of_its_networks(kind, data):
    X, y = data[0], outcome(data, kind)
    found = search(cv=2).fit(X, y)
    for place, row in enumerate(found.trial_log_likelihoods(X, y)):  # one of the two is in single precision
        np.testing.assert_allclose(row, log_likelihood(found.trial(place).predict_distribution(X), y), atol=1e-5)


@pytest.mark.parametrize("kind", ["causes", "all"])
def test_a_saved_search_predicts_incidences(kind, data, fitted, tmp_path):
    found, X = fitted(kind), data[0]
    found.save(tmp_path / "m.sumo")
    again = load(tmp_path / "m.sumo")
    assert found.n_causes_ == again.n_causes_ == 2
    incidence = found.predict_cumulative_incidence(X, [0.5, 1.0])
    np.testing.assert_allclose(again.predict_cumulative_incidence(X, [0.5, 1.0]), incidence, atol=1e-7)
    total = incidence.sum(axis=-1) + found.predict_survival_function(X, [0.5, 1.0])
    np.testing.assert_allclose(total, 1.0, atol=1e-12)


def test_another_network_is_searched_with_causes(data):
    X, y = data[0], outcome(data, "causes")
    space = {"learning_rate": [0.003, 0.01]}
    found = NetworkSearch(WeibullNet(max_epochs=3, device="cpu"), space=space, n_trials=2, random_state=0).fit(X, y)
    assert found.predict_cumulative_incidence(X[:3], [1.0]).shape == (3, 1, 2)


def test_a_mixture_of_networks_trained_on_something_else_is_scored_given_entry(data):
    X, y, valid_X, valid_y = parts(data, "entry")
    model = DeepHit(max_epochs=3, n_cuts=8, covariate_layers=(4,), device="cpu")
    found = NetworkSearch(model, space={"dropout": [0.0, 0.5]}, n_trials=4, mixture=4, random_state=0)
    found.fit(X, y, (valid_X, valid_y))
    assert found.best_estimator_.score(valid_X, valid_y) == pytest.approx(found.mixture_score_, abs=1e-6)


# ---------------------------------------------------------------------- weights


def test_trials_are_compared_by_weighted_rows(data):
    """Whole weights of validation rows are repeated rows: the same networks, the same scores."""
    X, y, valid_X, valid_y = parts(data, "causes")
    weight = data[4][TRAIN:] - 1
    again = np.repeat(np.arange(len(weight)), weight)
    one = search().fit(X, y, (valid_X, valid_y, weight))
    two = search().fit(X, y, (valid_X.iloc[again], valid_y[again]))
    plain = search().fit(X, y, (valid_X, valid_y))
    np.testing.assert_allclose(one.cv_results_["valid_score"], two.cv_results_["valid_score"], atol=1e-5)
    assert one.mixture_scores_ == pytest.approx(two.mixture_scores_, abs=1e-5)
    assert np.abs(one.cv_results_["valid_score"] - plain.cv_results_["valid_score"]).max() > 1e-3


def test_weights_of_training_rows_reach_the_networks(data):
    X, y, valid_X, valid_y = parts(data, "causes")
    weight = 1.0 * (data[4][:TRAIN] == 1)
    kept = np.flatnonzero(weight)
    one = search().fit(X, y, (valid_X, valid_y), sample_weight=weight)
    two = search().fit(X.iloc[kept], y[kept], (valid_X, valid_y))
    np.testing.assert_allclose(one.cv_results_["valid_score"], two.cv_results_["valid_score"], atol=1e-6)


def test_the_size_of_a_mixture_with_weights():
    values, weight = np.random.default_rng(0).normal(size=(8, 30)), np.random.default_rng(1).integers(0, 4, 30)
    again = np.repeat(np.arange(30), weight)
    by_weight, repeated = mixture_scores(values, weight * 1.0), mixture_scores(values[:, again])
    assert by_weight == pytest.approx(repeated, rel=1e-12)
    assert choose_size(values, np.full(30, 2.0)) == choose_size(values)


# ---------------------------------------------------------------------- subjects


@pytest.mark.parametrize("options", [{}, {"cv": 3}, {"refit": "cross", "refit_members": 3}], ids=str)
def test_subjects_stay_whole(options, data, monkeypatch):
    from sumosurv.search import executor

    calls, real = [], executor.train
    monkeypatch.setattr(executor, "train", lambda *given: calls.append(given[2]) or real(*given))
    subject = np.random.default_rng(0).permutation(np.arange(N) // 4)
    search(**options).fit(data[0], outcome(data, "causes"), groups=subject)
    members = [member for call in calls for member in call]
    assert members
    for member in members:
        train, valid = set(subject[member.train_rows]), set(subject[member.valid_rows])
        assert valid
        assert not train & valid
        assert len(member.train_rows) + len(member.valid_rows) == N


# ---------------------------------------------------------------------- stored studies


def test_a_stored_study_is_of_its_weights_subjects_and_entries(data, tmp_path):
    pytest.importorskip("optuna", reason="stored studies need Optuna (the extra 'search')")
    X, y = data[0], outcome(data, "entry")
    weight, subject = data[4], np.arange(N) // 2
    options = {"storage": tmp_path / "study.db", "trials_per_round": 1, "n_trials": 1}

    def stored(**more):
        return SumoNetSearch(SumoNet(**SMALL), space=SPACE, random_state=0, **(options | more))

    stored().fit(X, y, sample_weight=weight, groups=subject)
    later = y.copy()
    later["entry"][:2] = 0.5 * later["time"][:2]
    for other in (
        (y, weight + (np.arange(N) == 5), subject),
        (y, None, subject),
        (y, weight, np.arange(N) // 4),
        (y, weight, None),
        (later, weight, subject),
        (outcome(data, "all"), weight, subject),
        (outcome(data, "causes"), weight, subject),
    ):
        with pytest.raises(ValueError, match="another set of rows"):
            stored(n_trials=2).fit(X, other[0], sample_weight=other[1], groups=other[2])
    again = stored(n_trials=2).fit(X, y.copy(), sample_weight=weight.copy(), groups=subject.copy())
    assert len(again.cv_results_["trial"]) == 2
