"""Every method can be explained, from a DataFrame with categories and missing values."""

from __future__ import annotations

import numpy as np
import pytest

import sumosurv
from explain.formulas import data
from sumosurv import CauseSpecific, CoxPH, SumoNet, Surv, SurvivalMixture, WeibullNet, estimators, explain
from sumosurv.estimators.network import NetworkEstimator

pytestmark = pytest.mark.usefixtures("coarse_solutions")

SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (8,), "random_state": 0}
OWN = {
    "CoxPH": {"alpha": 0.1, "missing": "indicator"},
    "CoxPHCV": {"missing": "indicator", "n_alphas": 10, "cv": 3, "random_state": 0},
    "FineGray": {"alpha": 0.1, "missing": "indicator"},
    "ParametricRegression": {"alpha": 0.1, "missing": "indicator"},
    "RandomSurvivalForest": {"n_estimators": 5, "random_state": 0},
    "Soden": {"steps": 3, "hazard_layers": (6,)},
    "SurvNode": {"steps": 3, "hazard_layers": (6,)},
    "SurvivalMixture": {"estimators": [CoxPH(alpha=0.1, missing="indicator"), WeibullNet(**SMALL)]},
    "CauseSpecific": {"estimator": CoxPH(alpha=0.1, missing="indicator")},
    "Conformal": {"estimator": WeibullNet(**SMALL), "random_state": 0},
}
COMPETING = ("AalenJohansen", "CauseSpecific", "DeepHit", "FineGray", "SumoNet")
SLOW = ("Soden", "SurvNode")  # each prediction solves an equation
BLIND = ("AalenJohansen", "KaplanMeier")  # they know of no covariates


def fitted(name, y):
    if name == "RandomSurvivalForest":
        pytest.importorskip("sksurv")
    method = estimators.METHODS[name]
    settings = SMALL if issubclass(method, NetworkEstimator) else {}
    return getattr(sumosurv, name)(**(settings | OWN.get(name, {}))).fit(X, y)


X, Y = data()
EVENT, TIME = Y["event"], Y["time"]
CAUSES = Surv.from_arrays(np.where(EVENT, 1 + np.arange(len(X)) % 2, 0), TIME)
TIMES = np.quantile(TIME, [0.3, 0.6])


@pytest.mark.parametrize("name", estimators.METHODS)
def test_all_explanations(name):
    model = fitted(name, CAUSES if name in COMPETING else Y)
    y, cause = (CAUSES, 2) if name in COMPETING else (Y, None)
    curve = model.predict_survival_function
    if cause is not None:

        def curve(X, times):
            return model.predict_cumulative_incidence(X, times)[..., 1]

    shap = explain.survshap(model, X[:2], X[:15], times=TIMES, cause=cause, precision="double")
    np.testing.assert_allclose(shap.predicted, curve(X[:2], TIMES), atol=1e-9)
    np.testing.assert_allclose(shap.values.sum(axis=1), shap.predicted - shap.base, atol=1e-9)
    effect = explain.partial_dependence(model, X, "c", times=TIMES, cause=cause, max_rows=20)
    local = explain.accumulated_local_effects(model, X[:40], "a", times=TIMES, cause=cause, n_intervals=3)
    assert np.isfinite(effect.mean).all()
    assert np.isfinite(local.mean).all()
    if name in SLOW:
        return
    found = explain.contrast(model, X[:1], X[1:2], times=TIMES, cause=cause)
    np.testing.assert_allclose(found.curves, curve(X[:2], TIMES), atol=1e-9)
    lost = explain.permutation_importance(model, X, y, scores="brier", times=TIMES, n_repeats=1, n_bootstrap=5)
    if name in BLIND:
        np.testing.assert_allclose(shap.values, 0.0, atol=1e-15)
        np.testing.assert_allclose(lost.table["value"], 0.0, atol=1e-15)
    else:
        assert lost.table["value"].abs().max() > 0


def test_a_default_fit_of_several_kinds():
    """The networks of all kinds are members, by their weights; up to the last training time they make up the curve."""
    model = SumoNet(max_epochs=2, random_state=0).fit(X, Y)
    d = model.predict_distribution(X[:4])
    members = model.predict_members(X[:4])
    assert len(members) == model.n_members_
    assert sum(members.weights) == pytest.approx(1.0)
    times = np.linspace(0, model.last_time_, 7)
    mean = sum(w * one.survival(times) for w, one in zip(members.weights, members.distributions))
    np.testing.assert_allclose(mean, d.survival(times), atol=1e-12)
    effect = explain.partial_dependence(model, X, "a", n_values=3, max_rows=10, times=times[1:])
    assert (effect.low <= effect.mean + 1e-9).mean() > 0.9
    beyond = explain.partial_dependence(model, X, "a", values=[0.0], max_rows=10, times=[2 * model.last_time_])
    expected = model.predict_survival_function(X.iloc[:0:-1].assign(a=0.0), [2 * model.last_time_])
    assert beyond.mean[0, 0] == pytest.approx(expected.mean(), abs=0.1)
    np.testing.assert_allclose(beyond.mean[0], beyond.individual[:, 0].mean(axis=0))


def test_cause_specific_members_are_one():
    model = CauseSpecific(WeibullNet(**SMALL)).fit(X, CAUSES)
    found = explain.contrast(model, X[:1], X[1:2], cause=1, times=TIMES)
    assert found.limits_from == "none"


def test_mixtures_have_all_members():
    model = SurvivalMixture([CoxPH(alpha=0.1, missing="indicator"), WeibullNet(**SMALL)], [3.0, 1.0]).fit(X, Y)
    np.testing.assert_allclose(model.predict_members(X[:2]).weights, [0.75, 0.125, 0.125])
