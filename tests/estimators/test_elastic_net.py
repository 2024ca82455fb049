"""Elastic-net Cox regression: optimality, against ridge by Newton's method, and cross-validation by its definition."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

import sumosurv
from sumosurv import CauseSpecific, CoxPH, CoxPHCV, Surv, datasets
from sumosurv.estimators.elastic_net import _solve
from sumosurv.estimators.partial_likelihood import PartialLikelihood
from sumosurv.outcome import check_outcome

OUTCOMES = {
    "plain": {},
    "ties, Efron": {"tied": True},
    "ties, Breslow": {"tied": True, "ties": "breslow"},
    "entry": {"tied": True, "entry": True},
    "strata": {"tied": True, "strata": 0},
    "whole weights": {"tied": True, "weight": "whole"},
    "weights": {"tied": True, "weight": "any", "entry": True, "strata": 0},
}


def data(n=80, p=12, *, tied=False, entry=False, weight=None, strata=None, ties="efron", seed=0):
    """Covariates, outcome, weights and settings; with strata, the first column tells them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.5, 3.0, p) + rng.normal(size=p)
    effect = np.zeros(p)
    effect[1:4] = 0.5, -0.4, 0.3
    time = rng.exponential(np.exp(-X @ effect))
    time = np.ceil(4 * time) / 4 if tied else time
    start = np.where(rng.random(n) < 0.4, 0.5 * time, 0.0) if entry else None
    y = Surv.from_arrays(rng.random(n) < 0.7, time, entry=start)
    weights = {None: None, "whole": rng.integers(1, 4, n), "any": rng.uniform(0.5, 2.0, n)}[weight]
    if strata is not None:
        X[:, 0] = np.arange(n) % 2
    return X, y, weights, {"ties": ties, "strata": strata}


def likelihood(X, y, weights, settings):
    """The partial likelihood of the standardised columns with coefficients, and their standard deviations."""
    outcome = check_outcome(y, n_rows=len(X), sample_weight=weights)
    stratum = None if settings["strata"] is None else X[:, 0].astype(np.int64)
    columns = X if stratum is None else X[:, 1:]
    centre = np.average(columns, axis=0, weights=outcome.weights)
    scale = np.sqrt(np.average((columns - centre) ** 2, axis=0, weights=outcome.weights))
    return PartialLikelihood((columns - centre) / scale, outcome, settings["ties"], stratum), scale


@pytest.mark.parametrize(("p", "l1_ratio"), [(12, 0.0), (12, 1.0), (150, 0.3)])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_the_path_is_optimal(kind, p, l1_ratio):
    X, y, weights, settings = data(p=p, **OUTCOMES[kind])
    model = CoxPHCV(l1_ratio=l1_ratio, n_alphas=12, min_ratio=0.05, cv=2, random_state=0, **settings)
    model.fit(X, y, sample_weight=weights)
    value, scale = likelihood(X, y, weights, settings)
    largest = 0
    for alpha, coef in zip(model.alphas_, model.coef_path_ * scale):
        gradient = value(coef)[1] - alpha * (1.0 - l1_ratio) * coef
        used = coef != 0
        largest = max(largest, used.sum())
        np.testing.assert_allclose(gradient[used], alpha * l1_ratio * np.sign(coef[used]), atol=1e-5)
        assert (np.abs(gradient[~used]) <= alpha * l1_ratio + 1e-5).all()
    assert largest > 3
    if l1_ratio > 0:
        assert not model.coef_path_[0].any()
    chosen = CoxPH(alpha=model.alpha_, l1_ratio=l1_ratio, **settings).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(chosen.coef_, model.coef_, atol=1e-6)
    np.testing.assert_allclose(chosen.predict(X), model.predict(X), rtol=1e-5)


def test_coefficients_are_within_1e_8_of_the_optimum():
    """With more columns than rows; by the definition of the likelihood, not by the code that is tested.

    If the coefficients that are not zero and their signs are right, an exact Newton step leads to the optimum, and its
    size is the distance from it. They are right if the gradient of all other coefficients is below the penalty.
    """
    X, y, _, _ = data(n=60, p=400, seed=3)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    at_risk = y["time"][None, :] >= y["time"][y["event"], None]  # (events, rows)

    def derivatives(coef):
        used = np.flatnonzero(coef)
        risk = at_risk * np.exp(z @ coef)
        share = risk / risk.sum(axis=1, keepdims=True)
        means = share @ z
        centred = z[:, used] - means[:, None, used]
        return (z[y["event"]] - means).sum(axis=0), np.einsum("er,eri,erj->ij", share, centred, centred), used

    model = CoxPHCV(alphas=np.geomspace(20.0, 0.2, 15), cv=2, random_state=0).fit(X, y)
    sizes = []
    for alpha, own in zip(model.alphas_, model.coef_path_):
        gradient, information, used = derivatives(own * X.std(axis=0))
        excess = gradient[used] - alpha * np.sign(own[used])
        assert np.abs(excess).max(initial=0.0) < 1e-8 * alpha
        assert (np.abs(np.delete(gradient, used)) < alpha).all()
        sizes.append(len(used))
        if len(used):
            step = np.linalg.solve(information, excess) / X.std(axis=0)[used]
            assert np.abs(step).max() < 1e-8
    assert sizes[0] < 5
    assert sizes[-1] > 30


@pytest.mark.parametrize("kind", OUTCOMES)
def test_derivatives_with_respect_to_the_risks(kind):
    X, y, weights, settings = data(**OUTCOMES[kind])
    value, _ = likelihood(X, y, weights, settings)
    beta = 0.2 * np.random.default_rng(1).normal(size=value.x.shape[1])
    expected, gradient, information = value(beta)
    found, residual = value.residuals(value.x @ beta)
    factors = value.information_factors(value.x @ beta, value.x)
    own, means = factors[: len(X)], factors[len(X) :]
    assert found == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(value.x.T @ residual, gradient, atol=1e-10)
    np.testing.assert_allclose(own.T @ own - means.T @ means, information, atol=1e-10)


def test_the_score_is_the_cross_validated_partial_likelihood():
    X, y, _, _ = data(n=60, tied=False)
    folds, alphas = np.arange(60) % 4, [8.0, 2.0]

    def log_likelihood(coef, rows):
        risk, time = X[rows] @ coef, y["time"][rows]
        return sum(risk[i] - np.log(np.exp(risk[time >= time[i]]).sum()) for i in np.flatnonzero(y["event"][rows]))

    model = CoxPHCV(alphas=alphas, l1_ratio=0.5, cv=folds).fit(X, y)
    events = np.bincount(folds, weights=y["event"])
    for k, alpha in enumerate(alphas):
        scores = []
        for fold in range(4):
            rows = np.flatnonzero(folds != fold)
            coef = CoxPH(alpha=alpha * len(rows) / len(X), l1_ratio=0.5).fit(X[rows], y[rows]).coef_
            scores.append((log_likelihood(coef, np.arange(60)) - log_likelihood(coef, rows)) / events[fold])
        mean = np.average(scores, weights=events)
        spread = np.average((np.array(scores) - mean) ** 2, weights=events)
        assert model.cv_score_[k] == pytest.approx(mean, rel=1e-6)
        assert model.cv_error_[k] == pytest.approx(np.sqrt(spread / 3), rel=1e-6)


def test_whole_weights_are_repeated_rows():
    X, y, weights, _ = data(n=60, weight="whole", tied=True)
    repeated, folds = np.repeat(np.arange(60), weights), np.arange(60) % 3
    once = CoxPHCV(n_alphas=8, min_ratio=0.1, cv=folds).fit(X, y, sample_weight=weights)
    often = CoxPHCV(n_alphas=8, min_ratio=0.1, cv=folds[repeated]).fit(X[repeated], y[repeated])
    for name in ("alphas_", "cv_score_", "cv_error_", "coef_path_"):
        np.testing.assert_allclose(getattr(once, name), getattr(often, name), rtol=1e-6, atol=1e-7)


def test_one_standard_error_is_a_larger_penalty():
    X, y, _, _ = data(n=120)
    best, simple = (
        CoxPHCV(cv=5, rule=rule, n_alphas=40, random_state=0).fit(X, y) for rule in ("min", "one_standard_error")
    )
    k, s = (int(np.flatnonzero(m.alphas_ == m.alpha_)[0]) for m in (best, simple))
    assert k == best.cv_score_.argmax()
    least = best.cv_score_[k] - best.cv_error_[k]
    assert simple.cv_score_[s] >= least
    assert s < k
    assert (simple.cv_score_[:s] < least).all()


def test_rows_of_a_group_are_in_one_fold():
    _, y, _, _ = data(n=60)
    groups = np.arange(60) // 3
    model = CoxPHCV(cv=4, random_state=0)
    outcome = check_outcome(y, n_rows=60, groups=groups)
    for held_out in model._folds(outcome):
        assert len(held_out) == 3 * len(np.unique(groups[held_out]))


def test_there_is_no_inference_with_a_lasso():
    X, y, _, _ = data()
    for model in (CoxPH(alpha=5.0, l1_ratio=1.0).fit(X, y), CoxPHCV(cv=3, random_state=0).fit(X, y)):
        assert np.isnan(model.standard_errors_).all()
        assert model.covariance_ is None
        summary = model.summary()
        np.testing.assert_array_equal(summary.coefficients["coef"], model.coef_)
        assert summary.coefficients[["standard_error", "z", "p"]].isna().all(axis=None)
        assert summary.tests.empty
        assert summary.fit["parameters"] == (model.coef_ != 0).sum()
        assert "without standard errors" in summary.title
    with pytest.raises(ValueError, match="alpha=0"):
        CoxPH(alpha=5.0, l1_ratio=1.0).fit(X, y).predict_survival_band(X, [1.0])
    with pytest.raises(ValueError, match="l1_ratio=0"):
        CoxPH(alpha=5.0, l1_ratio=1.0).fit(X, y).test_proportionality(X, y)


def test_a_constant_column_has_no_coefficient():
    X, y, _, _ = data()
    X[:, 5] = 3.0
    assert not CoxPHCV(cv=3, random_state=0).fit(X, y).coef_path_[:, 5].any()


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.filterwarnings("ignore:The coefficients have not converged")
def test_separated_events_have_finite_paths(l1_ratio):
    rng = np.random.default_rng(0)
    time, X = np.arange(1.0, 41.0), rng.normal(size=(40, 30))
    X[:, 0] = -time  # the order of the events
    X[:, 1] = X[:, 0] + 1e-6 * X[:, 1]
    y = Surv.from_arrays(np.ones(40, dtype=bool), time)
    model = CoxPHCV(l1_ratio=l1_ratio, min_ratio=1e-7, n_alphas=40, cv=2, random_state=0).fit(X, y)
    assert np.isfinite(model.coef_path_).all()
    assert np.isfinite(model.cv_score_).all()
    assert (np.diff(np.abs(model.coef_path_ * X.std(axis=0)).sum(axis=1)) > -1e-3).all()


def test_an_information_that_rounding_left_indefinite_is_solved():
    np.testing.assert_allclose(_solve(np.diag([2.0, -1e-12]), np.array([3.0, 0.0])), [1.5, 0.0])


def test_equal_columns_share_their_coefficient():
    X, y, _, _ = data()
    twice = np.column_stack([X, X[:, 1]])
    one, two = CoxPH(alpha=4.0, l1_ratio=1.0).fit(X, y), CoxPH(alpha=4.0, l1_ratio=1.0).fit(twice, y)
    assert two.coef_[1] + two.coef_[-1] == pytest.approx(one.coef_[1], abs=1e-6)


def test_causes_have_paths_of_their_own():
    X, y, _, _ = data(n=100)
    rng = np.random.default_rng(0)
    both = Surv.from_arrays(np.where(y["event"], rng.integers(1, 3, 100), 0), y["time"])
    settings = {"cv": np.arange(100) % 3, "n_alphas": 20, "min_ratio": 0.1}
    model = CauseSpecific(CoxPHCV(**settings)).fit(X, both)
    for k, part in enumerate(model.estimators_, start=1):
        alone = CoxPHCV(**settings).fit(X, Surv.from_arrays(both["event"] == k, both["time"]))
        np.testing.assert_array_equal(part.coef_path_, alone.coef_path_)
    assert model.summary().coefficients.shape == (24, 7)


def test_a_model_file_has_the_path(tmp_path):
    X, y, _, _ = data()
    model = CoxPHCV(cv=np.arange(80) % 2, n_alphas=6).fit(pd.DataFrame(X).rename(columns=str), y)
    model.save(tmp_path / "path.sumo")
    loaded = sumosurv.load(tmp_path / "path.sumo")
    for name in ("alphas_", "cv_score_", "cv_error_", "coef_path_", "coef_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    assert loaded.alpha_ == model.alpha_


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"alphas": [1.0, 2.0]}, "alphas"),
        ({"alphas": [1.0, 0.0]}, "alphas"),
        ({"alphas": []}, "alphas"),
        ({"cv": 1}, "cv"),
        ({"cv": [0] * 80}, "cv"),
        ({"cv": [0, 1]}, "80 rows"),
        ({"rule": "1se"}, "rule"),
        ({"l1_ratio": 1.5}, "l1_ratio"),
        ({"min_ratio": 1.0}, "min_ratio"),
    ],
)
def test_invalid_settings_are_named(settings, fact):
    X, y, _, _ = data()
    with pytest.raises(ValueError, match=fact):
        CoxPHCV(**settings).fit(X, y)
    with pytest.raises(ValueError, match="l1_ratio"):
        CoxPH(l1_ratio=-0.1).fit(X, y)


def sparse_data(n=150, p=200, density=0.1, seed=0):
    """A sparse matrix, an outcome that depends on ten of its columns, and weights of which some are zero."""
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, p), density=density, rng=rng, format="csr", data_sampler=rng.normal)
    time, last = rng.exponential(np.exp(-2.0 * X[:, :10].sum(axis=1))), rng.exponential(2.0, n)
    return X, Surv.from_arrays(time <= last, np.minimum(time, last)), rng.integers(0, 3, n)


@pytest.mark.parametrize(("form", "weighted"), [("csr_array", True), ("csc_matrix", False), ("coo_array", True)])
def test_a_sparse_matrix_gives_the_fit_of_an_array(form, weighted, tmp_path):
    X, y, weights = sparse_data()
    table, weight = getattr(sparse, form)(X), weights if weighted else None
    settings = {"cv": 3, "random_state": 0, "n_alphas": 20, "min_ratio": 0.2, "l1_ratio": 0.8}
    expected = CoxPHCV(**settings).fit(X.toarray(), y, sample_weight=weight)
    found = CoxPHCV(**settings).fit(table, y, sample_weight=weight)
    assert expected.coef_.any()
    np.testing.assert_allclose(found.coef_path_, expected.coef_path_, atol=1e-10)
    np.testing.assert_allclose(found.cv_score_, expected.cv_score_, atol=1e-6)  # fits of folds stop at a tolerance
    single = CoxPH(alpha=found.alpha_, l1_ratio=0.8).fit(table, y, sample_weight=weight)
    np.testing.assert_allclose(single.coef_, expected.coef_, atol=1e-7)
    found.save(tmp_path / "model.sumo")
    curves = expected.predict_survival_function(X.toarray(), [0.1, 0.5, 2.0])
    for model, rows in ((found, table), (found, X.toarray()), (sumosurv.load(tmp_path / "model.sumo"), table)):
        np.testing.assert_allclose(model.predict_survival_function(rows, [0.1, 0.5, 2.0]), curves, atol=1e-10)
    assert found.score(table, y) == pytest.approx(expected.score(X.toarray(), y))


def test_steps_that_must_be_halved_are_no_reason_to_stop():
    _, y = datasets.load("gbsg2")
    rare = sparse.random_array((len(y), 2_000), density=0.01, format="csr", rng=np.random.default_rng(0))
    model = CoxPH(alpha=40.0, l1_ratio=1.0).fit(rare, y)  # a ConvergenceWarning is an error
    assert model.coef_.any()


def test_a_sparse_matrix_is_never_an_array():
    X, y, _ = sparse_data(n=1_000, p=10_000, density=0.01)
    tracemalloc.start()
    model = CoxPH(alpha=70.0, l1_ratio=1.0).fit(X, y)
    model.predict(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert model.coef_.any()
    assert peak < 0.5 * 8 * 1_000 * 10_000


def test_cause_specific_models_read_sparse_matrices(tmp_path):
    X, y, _ = sparse_data()
    outcome = check_outcome(y)
    y = Surv.from_arrays(np.where(outcome.event, 1 + np.arange(len(y)) % 2, 0), outcome.time)
    model = CauseSpecific(CoxPH(alpha=5.0, l1_ratio=0.8))
    expected = clone(model).fit(X.toarray(), y).predict_cumulative_incidence(X.toarray(), [0.5, 1.0])
    found = model.fit(X, y)
    found.save(tmp_path / "model.sumo")
    for fitted, rows in ((found, X), (found, X.toarray()), (sumosurv.load(tmp_path / "model.sumo"), X)):
        np.testing.assert_allclose(fitted.predict_cumulative_incidence(rows, [0.5, 1.0]), expected, atol=1e-8)
    assert expected.std(axis=0).max() > 0
    with pytest.raises(ValueError, match="199 features"):
        found.predict_median(X[:, :199])


@pytest.mark.parametrize(
    "model",
    [CoxPH(), CoxPH(alpha=1.0), CoxPHCV(l1_ratio=0.0), sumosurv.KaplanMeier(), CauseSpecific(CoxPH())],
)
def test_other_models_name_the_remedy_for_sparse_matrices(model):
    X, y, _ = sparse_data(20, 5)
    with pytest.raises(TypeError, match="toarray"):
        model.fit(X, y)


def test_a_sparse_matrix_cannot_stand_for_categories_or_strata():
    X, y, _ = sparse_data(60, 3, density=0.5)
    table = X.toarray().astype(object)
    table[:, 2] = np.where(np.arange(60) % 2, "u", "v")
    model = CoxPH(alpha=0.1, l1_ratio=0.5).fit(table, y)
    with pytest.raises(ValueError, match="DataFrame"):
        model.predict(X)
    with pytest.raises(TypeError, match="DataFrame"):
        CoxPH(alpha=0.1, l1_ratio=0.5, strata=0).fit(X, y)
