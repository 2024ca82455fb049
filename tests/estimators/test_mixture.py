"""The mixture of estimators."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from sumosurv import CoxPH, KaplanMeier, SumoNet, SumoNetSearch, Surv, SurvivalMixture, WeibullNet, datasets, load


@pytest.fixture(scope="module")
def data():
    return datasets.simulate("weibull", 300, random_state=0)


@pytest.fixture(scope="module")
def fitted(data):
    parts = [WeibullNet(n_members=2, max_epochs=3, random_state=0), CoxPH(), KaplanMeier()]
    return SurvivalMixture(parts, weights=[2, 1, 1]).fit(data.X, data.y)


def test_it_is_the_weighted_mean_of_its_parts(fitted, data):
    times = np.linspace(0.0, 2.0, 7)
    curves = [part.predict_survival_function(data.X[:20], times) for part in fitted.estimators_]
    expected = 0.5 * curves[0] + 0.25 * curves[1] + 0.25 * curves[2]
    np.testing.assert_allclose(fitted.predict_survival_function(data.X[:20], times), expected, atol=1e-12)


def test_it_is_saved_with_its_parts(fitted, data, tmp_path):
    fitted.save(tmp_path / "mixture.sumo")
    again = load(tmp_path / "mixture.sumo")
    np.testing.assert_array_equal(again.predict_median(data.X[:9]), fitted.predict_median(data.X[:9]))
    assert again.score(data.X, data.y) == fitted.score(data.X, data.y)


def test_of_fitted_estimators(data):
    parts = [CoxPH().fit(data.X, data.y), KaplanMeier().fit(data.X, data.y)]
    both = SurvivalMixture.of(parts)
    mean = np.mean([part.predict_survival_function(data.X[:5], [1.0]) for part in parts], axis=0)
    np.testing.assert_allclose(both.predict_survival_function(data.X[:5], [1.0]), mean, atol=1e-12)


def test_cells_of_times_are_those_that_all_parts_share(data):
    days = Surv.from_arrays(data.y["event"], np.ceil(20 * data.y["time"]))
    fast = {"components": "networks", "n_members": 1, "max_epochs": 1, "random_state": 0}
    whole = [SumoNet(**fast, resolution=1.0).fit(data.X, days) for _ in range(2)]
    assert whole[0].cells_ is not None
    assert SurvivalMixture.of(whole).cells_ == whole[0].cells_
    exact = SumoNet(**fast, resolution=None).fit(data.X, days)
    assert SurvivalMixture.of([whole[0], exact]).cells_ is None


def test_of_estimators_that_do_not_fit_together(data):
    with pytest.raises(NotFittedError):
        SurvivalMixture.of([KaplanMeier()])
    wide = KaplanMeier().fit(np.zeros((300, 2)), data.y)
    with pytest.raises(ValueError, match="different numbers of columns"):
        SurvivalMixture.of([wide, KaplanMeier().fit(data.X, data.y)])


def test_a_search_among_the_parts_is_saved_as_what_it_found(data, tmp_path):
    search = SumoNetSearch(SumoNet(max_epochs=2), space={"dropout": [0.1, 0.2]}, n_trials=2, random_state=0)
    both = SurvivalMixture([KaplanMeier(), search]).fit(data.X, data.y)
    both.save(tmp_path / "both.sumo")
    np.testing.assert_array_equal(load(tmp_path / "both.sumo").predict(data.X[:5]), both.predict(data.X[:5]))


@pytest.mark.parametrize(
    ("estimators", "weights", "error", "message"),
    [
        ([], None, ValueError, "one or more"),
        ([3], None, ValueError, "survival estimators"),
        ([KaplanMeier()], [1.0, 2.0], ValueError, "1 positive weights"),
        ([KaplanMeier(), KaplanMeier()], [1.0, 0.0], ValueError, "2 positive weights"),
        ([KaplanMeier(), KaplanMeier()], [1.0, np.inf], ValueError, "2 positive weights"),
        (KaplanMeier(), None, ValueError, "a sequence of"),
    ],
)
def test_what_cannot_be_mixed(data, estimators, weights, error, message):
    with pytest.raises(error, match=message):
        SurvivalMixture(estimators, weights).fit(data.X, data.y)


def test_its_components_are_listed_as_those_of_a_default_fit(data, tmp_path):
    fast = {"n_members": 2, "max_epochs": 2, "random_state": 0}
    stack = SumoNet(**fast, components=("network", "lognormal")).fit(data.X, data.y)
    both = SurvivalMixture.of([stack, KaplanMeier().fit(data.X, data.y)], weights=[3.0, 1.0])
    table = both.components_
    assert list(table["component"]) == ["network", "lognormal", "KaplanMeier"]
    np.testing.assert_allclose(table["weight"], [*0.75 * stack.components_["weight"], 0.25])
    assert list(table["members"]) == [2, 2, 1]
    assert list(table["estimator"]) == [0, 0, 1]
    both.save(tmp_path / "both.sumo")
    again = load(tmp_path / "both.sumo").components_
    columns = ["component", "weight", "members", "estimator"]
    assert again[columns].equals(table.loc[table["weight"] > 0, columns].reset_index(drop=True))
