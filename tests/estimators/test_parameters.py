"""Constructor arguments of every estimator: defaults in the signature, and one declaration of valid values each."""

import inspect
import math

import numpy as np
import pytest

from sumosurv import SumoNet, WeibullNet, datasets
from sumosurv.estimators import METHODS
from sumosurv.fitting.settings import NONE, integer, number, one_of, widths

SAMPLE = datasets.simulate("weibull", 60, random_state=0)
# what None stands for, with 60 rows
RULES = {
    "n_members": 15,
    "dropout": 0.5,
    "components": ("network", "small_network", "proportional_hazards", "lognormal"),
}
QUICK = {"n_members": 2, "max_epochs": 2, "covariate_layers": (4,), "random_state": 0}


def defaults(method):
    return {name: part.default for name, part in inspect.signature(method).parameters.items()}


def fit_settings(name):
    own = {"Soden": {"steps": 2}, "SurvNode": {"steps": 2}, "RandomSurvivalForest": {"random_state": 0}}.get(name, {})
    return (QUICK if "n_members" in defaults(METHODS[name]) else {}) | own


@pytest.mark.parametrize("name", METHODS)
def test_passing_a_default_changes_no_parameter(name):
    method = METHODS[name]
    assert method(**defaults(method)).get_params(deep=False) == method().get_params(deep=False)


@pytest.mark.parametrize(
    "name", ["CoxPH", "DeepHit", "DeepSurv", "GompertzNet", "KaplanMeier", "PaperSumoNet", "WeibullNet"]
)
def test_passing_all_defaults_fits_the_same_bits(name):
    method, own = METHODS[name], fit_settings(name)
    plain = method(**own).fit(SAMPLE.X, SAMPLE.y).predict(SAMPLE.X)
    given = method(**(defaults(method) | own)).fit(SAMPLE.X, SAMPLE.y).predict(SAMPLE.X)
    np.testing.assert_array_equal(given, plain)


@pytest.fixture(scope="module")
def default_fit():
    return SumoNet(max_epochs=2, random_state=0).fit(SAMPLE.X, SAMPLE.y).predict(SAMPLE.X)


@pytest.mark.parametrize("name", [name for name in defaults(SumoNet) if name not in ("max_epochs", "random_state")])
def test_a_default_or_what_none_stands_for_fits_the_same_bits(name, default_fit):
    value = RULES.get(name, defaults(SumoNet)[name])
    model = SumoNet(max_epochs=2, random_state=0, **{name: value}).fit(SAMPLE.X, SAMPLE.y)
    np.testing.assert_array_equal(model.predict(SAMPLE.X), default_fit)


def test_sumonet_has_few_parameters_and_public_names():
    assert len(defaults(SumoNet)) <= 21
    assert {name for name, value in defaults(SumoNet).items() if value is None} == {
        "n_members", "dropout", "max_epochs", "encoder", "n_jobs", "random_state",
    }  # fmt: skip
    public = [name for name in dir(SumoNet) if not name.startswith("_")]
    assert len(public) <= 45, public


@pytest.mark.parametrize("name", METHODS)
def test_constraints_are_those_of_parameters_and_allow_the_defaults(name):
    method = METHODS[name]
    for cls in method.__mro__:
        assert set(vars(cls).get("_parameter_constraints", {})) <= set(defaults(method))
    if name != "SurvivalMixture":  # it needs estimators
        method()._check_settings()


@pytest.mark.parametrize(
    ("allowed", "good", "bad"),
    [
        (integer(1), [1, np.int64(7)], [0, 1.0, True, "1", None]),
        (number(above=0), [1e-9, 3, np.float32(2)], [0, -1.0, math.nan, math.inf, True, "fast", None]),
        (number(low=0, below=1), [0, 0.5], [1, -0.1]),
        (one_of("a", "b") | NONE, ["a", None], ["c", 1]),
        (widths(), [(), (4, 4), [3], np.array([2])], [4, "44", (0,), (2.5,)]),
        (widths(least=1), [(4,)], [()]),
    ],
)
def test_what_is_allowed(allowed, good, bad):
    assert all(allowed.accepts(value) for value in good)
    assert not any(allowed.accepts(value) for value in bad)


def test_an_invalid_value_is_named_with_what_is_allowed():
    with pytest.raises(ValueError, match=r"learning_rate .*above 0; got 'fast'"):
        WeibullNet(learning_rate="fast").fit(SAMPLE.X, SAMPLE.y)
