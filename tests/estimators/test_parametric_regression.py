"""Parametric regression: maxima, standard errors and limits. Values of R are in tests/r."""

from __future__ import annotations

from copy import copy
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats
from sklearn.exceptions import ConvergenceWarning

from sumosurv import CauseSpecific, ParametricRegression, Surv, compare_nested, load
from sumosurv.estimators.parametric_likelihood import (
    FAMILIES,
    ParametricLikelihood,
    Times,
    by_autodiff,
    make_family,
)
from sumosurv.estimators.regression import maximise
from sumosurv.outcome import check_outcome
from sumosurv.scores import evaluate, log_likelihood

N = 240


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    X = pd.DataFrame({"a": rng.normal(50.0, 10.0, N), "b": rng.normal(size=N), "c": rng.choice(["u", "v", "w"], N)})
    time = 3.0 * rng.weibull(1.5, N) * np.exp(0.02 * (X["a"] - 50.0) - 0.5 * X["b"])
    last, entry = rng.uniform(0.5, 6.0, N), rng.uniform(0.0, 0.4, N) * (rng.random(N) < 0.5)
    event, seen = (time < last).to_numpy(), np.minimum(time, last).to_numpy() + entry
    low, high = np.floor(4 * seen) / 4, np.where(event, np.floor(4 * seen) / 4 + 0.25, np.inf)
    outcomes = {
        "right": Surv.from_arrays(event, seen),
        "entry": Surv.from_arrays(event, seen, entry),
        "intervals": Surv.interval(np.where(event, low, seen), high),
        "both": Surv.interval(np.where(event, np.maximum(low, entry), seen), high, entry=entry),
    }
    return X, outcomes


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("name", ["weibull", "exponential", "lognormal", "loglogistic"])
def test_closed_form_derivatives_equal_automatic_differentiation(name, density):
    family = make_family(name)
    location, shape, t = np.meshgrid([-3.0, 0.0, 2.0], [-1.0, 0.0, 0.7], [1e-6, 0.3, 1.0, 4.0, 30.0])
    values = np.stack([location.ravel(), shape.ravel()])[: len(family.parameters)]
    found = family.derivatives(values, Times(t.ravel()), density)
    expected = by_autodiff(family.formula, values, t.ravel(), density)
    for part in ("value", "gradient", "hessian"):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def fitted(rows):
    """A copy of the fit of a family to one kind of outcome, which is made once."""

    @cache
    def fit(family, kind):
        return ParametricRegression(family=family).fit(rows[0], rows[1][kind])

    return lambda family, kind: copy(fit(family, kind))


def likelihood_at(model, X, y, values):
    """The log-likelihood of the distribution that coefficients and parameters give, by the score of the library."""
    p = len(model.coef_)
    model.coef_, model.baseline_ = values[:p], values[p:].reshape(model.baseline_.shape)
    return float(log_likelihood(model.predict_distribution(X), y).sum())


@pytest.mark.parametrize(
    ("family", "kind"),
    # "entry" has exact events, "both" has intervals: the two kinds of terms that a family has formulas for
    [(family, kind) for family in FAMILIES for kind in ("entry", "both")]
    + [("weibull", "right"), ("spline", "intervals")],
)
def test_the_fit_is_a_maximum_of_the_likelihood_of_its_distribution(family, kind, rows, fitted):
    X, y, model = rows[0], rows[1][kind], fitted(family, kind)
    best = np.concatenate([model.coef_, model.baseline_.reshape(-1)])
    found = likelihood_at(model, X, y, best)
    assert found == pytest.approx(model.log_likelihood_, abs=1e-8)
    information = np.diag(np.linalg.inv(model.covariance_))
    curvature = []
    for j in range(len(best)):
        step = np.zeros(len(best))
        step[j] = 1e-2 / np.sqrt(information[j])
        up, down, up2, down2 = (likelihood_at(model, X, y, best + m * step) for m in (1, -1, 2, -2))
        assert abs(8 * (up - down) - (up2 - down2)) < 1e-6  # 12 times the slope, in units of the step
        curvature.append((16 * (up + down) - (up2 + down2) - 30 * found) / 12 / step[j] ** 2)
    np.testing.assert_allclose(-np.array(curvature), information, rtol=1e-4)


def test_newton_ends_at_the_maximum_to_eight_digits(rows):
    """Exponential regression, maximised by another method."""
    X, y = np.column_stack([rows[0]["b"]]), rows[1]["right"]
    model = ParametricRegression(family="exponential").fit(X, y)

    def equations(theta):
        score = y["event"] - y["time"] * np.exp(-theta[0] - X[:, 0] * theta[1])
        return [score.sum(), score @ X[:, 0]]

    exact = optimize.root(equations, [1.0, 0.0], tol=1e-14).x
    np.testing.assert_allclose([model.baseline_[0, 0], model.coef_[0]], exact, atol=1e-10)


def test_families_that_contain_others(rows, fitted):
    X, y = rows[0], rows[1]["both"]
    fits = {name: fitted(name, "both") for name in FAMILIES}
    value = {name: fit.log_likelihood_ for name, fit in fits.items()}
    assert value["exponential"] < value["weibull"] < value["generalised_gamma"]
    assert value["lognormal"] < value["generalised_gamma"]
    assert value["exponential"] < value["gompertz"]
    spline = ParametricRegression(family="spline", df=1).fit(X, y)  # a Weibull distribution
    assert spline.log_likelihood_ == pytest.approx(value["weibull"], abs=1e-8)
    shape = np.exp(fits["weibull"].baseline_[0, 1])
    np.testing.assert_allclose(spline.coef_, -shape * fits["weibull"].coef_, atol=1e-7)


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_weights_are_repeated_rows_and_units_do_not_matter(family, rows):
    # intervals of the generalised gamma, whose derivatives are automatic, take ten times as long
    X, y = rows[0], rows[1]["right" if family == "generalised_gamma" else "both"]
    count = np.random.default_rng(0).integers(0, 3, N)
    again = np.repeat(np.arange(N), count)
    weighted = ParametricRegression(family=family).fit(X, y, sample_weight=count)
    repeated = ParametricRegression(family=family).fit(X.iloc[again], y[again])
    np.testing.assert_allclose(weighted.covariance_, repeated.covariance_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(weighted.baseline_, repeated.baseline_, rtol=1e-7)
    days = y.copy()
    for name in set(days.dtype.names) - {"event"}:
        days[name] *= 365.25
    other = ParametricRegression(family=family).fit(X.assign(a=1e6 * X["a"]), days, sample_weight=count)
    grid = np.array([0.2, 1.0, 3.0])
    np.testing.assert_allclose(
        other.predict_survival_function(X.assign(a=1e6 * X["a"]), 365.25 * grid),
        weighted.predict_survival_function(X, grid),
        atol=1e-8,
    )
    np.testing.assert_allclose(other.standard_errors_[1:], weighted.standard_errors_[1:], rtol=1e-5)


def test_robust_errors_are_the_influence_of_rows(rows):
    """R's residuals of interval-censored rows are not their influence; differences of weights are."""
    X, y = rows[0][["a", "b"]], rows[1]["both"]
    weight = np.random.default_rng(1).uniform(0.5, 1.5, N)
    weight /= weight.mean()
    outcome = check_outcome(y, sample_weight=weight)
    group = np.arange(N) // 4
    fit = ParametricRegression(family="lognormal").fit(X, outcome, groups=group)
    assert fit.robust_
    values = []
    for g in range(N // 4):
        less = weight.copy()
        less[group == g] *= 1.0 - 1e-4
        scaled = check_outcome(y, sample_weight=less)  # of mean one again
        one = ParametricRegression(family="lognormal", robust=False).fit(X, scaled)
        values.append((np.append(fit.coef_, fit.baseline_) - np.append(one.coef_, one.baseline_)) / 1e-4)
    jackknife = np.stack(values)
    np.testing.assert_allclose(fit.covariance_, jackknife.T @ jackknife, rtol=5e-3, atol=1e-7)


def test_limits_cover_the_truth(rows):
    times, inside = np.array([0.5, 1.0, 2.0]), []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(80, 1))
        t, last = 2.0 * rng.weibull(1.3, 80) * np.exp(0.5 * x[:, 0]), rng.uniform(1.0, 5.0, 80)
        model = ParametricRegression().fit(x, Surv.from_arrays(t < last, np.minimum(t, last)))
        lower, upper = model.predict_survival_band([[1.0]], times, level=0.9)
        truth = np.exp(-((times / (2.0 * np.exp(0.5))) ** 1.3))
        inside.append((lower[0] <= truth) & (truth <= upper[0]))
    assert (np.abs(np.mean(inside, axis=0) - 0.9) < 3 * np.sqrt(0.09 / 150) + 0.02).all()


def test_limits_are_those_of_a_bootstrap_of_the_parameters(rows):
    X, y = rows[0], rows[1]["entry"]
    model = ParametricRegression(family="spline", strata="c").fit(X, y)
    lower, upper = model.predict_survival_band(X[:5], [0.0, 1.0, 3.0], level=0.8)
    np.testing.assert_array_equal(lower[:, 0], 1.0)
    np.testing.assert_array_equal(upper[:, 0], 1.0)
    best, p = np.concatenate([model.coef_, model.baseline_.reshape(-1)]), len(model.coef_)
    drawn = np.random.default_rng(0).multivariate_normal(best, model.covariance_, 4000)
    place = X["c"][:5].map({"u": 0, "v": 1, "w": 2}).to_numpy()
    gamma = drawn[:, p:].reshape(-1, 3, 4)[:, place]
    gamma[..., 0] += drawn[:, :p] @ X[["a", "b"]].to_numpy()[:5].T
    log_survival = model._family.formula(list(np_to_torch(gamma.reshape(-1, 4))), np_to_torch([1.0])).survival
    limits = np.quantile(np.exp(log_survival.numpy()).reshape(-1, 5), [0.1, 0.9], axis=0)
    np.testing.assert_allclose(np.stack([lower[:, 1], upper[:, 1]]), limits, atol=0.01)


def np_to_torch(values):
    import torch

    return torch.from_numpy(np.asarray(values, dtype=np.float64).T.copy())


@pytest.mark.parametrize(
    "settings", [{}, {"family": "spline", "df": 2, "strata": "c"}, {"family": "generalised_gamma"}]
)
def test_files_and_scores(settings, rows, tmp_path):
    X, y = rows[0], rows[1]["right"]
    model = ParametricRegression(**settings).fit(X, y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_median(X), model.predict_median(X))
    assert str(again.summary()) == str(model.summary())
    first, second = (m.predict_survival_band(X, [1.0]) for m in (model, again))
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(evaluate(model, X, y, scores=["log_likelihood", "harrell_c"], n_bootstrap=0)["value"]).all()


def test_a_summary_names_ratios_and_parameters(rows):
    X, y = rows[0], rows[1]["right"]
    table = ParametricRegression(strata="c").fit(X, y).summary(level=0.9).to_frame()
    assert table.index.tolist()[:4] == ["a", "b", "intercept[u]", "log_shape[u]"]
    assert table.columns[1:4].tolist() == ["time_ratio", "time_ratio_lower", "time_ratio_upper"]
    half = stats.norm.ppf(0.95) * table["standard_error"]["b"]
    assert table["time_ratio_lower"]["b"] == pytest.approx(np.exp(table["coef"]["b"] - half))
    assert table["time_ratio"].isna().tolist() == [False] * 2 + [True] * 6
    assert "hazard_ratio" in ParametricRegression(family="gompertz").fit(X, y).summary().to_frame()
    causes = CauseSpecific(ParametricRegression()).fit(
        X, Surv.from_arrays(y["event"] * (1 + np.arange(N) % 2), y["time"])
    )
    assert causes.summary().to_frame().index.names == ["cause", "term"]


def test_tests_of_nested_models(rows):
    X, y = rows[0], rows[1]["both"]
    small, large = (ParametricRegression(family="lognormal").fit(x, y) for x in (X[["a", "b"]], X))
    found = compare_nested(small, large).loc["large"]
    assert found["statistic"] == pytest.approx(2 * (large.log_likelihood_ - small.log_likelihood_))
    assert found["df"] == 2
    summary = large.summary()
    assert summary.fit["aic"] == pytest.approx(2 * 6 - 2 * large.log_likelihood_)
    assert summary.fit["events"] == np.isfinite(y["upper"]).sum()
    assert summary.terms["df"].tolist() == [1, 1, 2]
    assert (summary.tests["df"] == 4).all()
    assert summary.tests["p"].max() < 1e-6
    assert np.ptp(summary.tests["statistic"]) < 0.2 * summary.tests["statistic"].max()
    assert max(map(len, str(summary).splitlines())) <= 80


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_predictions_do_not_depend_on_the_unit_of_time(family, unit, rows):
    X, y = rows[0], rows[1]["right"]
    scaled = Surv.from_arrays(y["event"], y["time"] * unit)
    expected = ParametricRegression(family=family).fit(X, y).predict_survival_function(X, [1.0, 4.0])
    found = ParametricRegression(family=family).fit(X, scaled).predict_survival_function(X, [unit, 4.0 * unit])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# ------------------------------------------------------------------ warnings and errors


def test_redundant_columns_are_left_out(rows):
    X, y = rows[0], rows[1]["right"]
    with pytest.warns(UserWarning, match=r"left out.*'twice'.*'a'"):
        model = ParametricRegression().fit(X.assign(twice=2 * X["a"] + 1.0), y)
    plain = ParametricRegression().fit(X, y)
    assert model.coef_[-1] == 0.0
    assert np.isnan(model.standard_errors_[-1])
    assert model.summary().to_frame().loc["twice"].isna().all()
    np.testing.assert_allclose(
        model.predict_survival_band(X.assign(twice=0.0), [1.0]), plain.predict_survival_band(X, [1.0]), atol=1e-9
    )


@pytest.mark.parametrize("family", ["weibull", "lognormal", "gompertz"])
def test_separation_names_the_column(family, rows):
    X, y = rows[0], rows[1]["right"]
    never = (~y["event"] & (np.arange(N) % 2 == 0)).astype(float)
    with pytest.warns(ConvergenceWarning, match=r"no maximum.*'never'.*alpha"):
        model = ParametricRegression(family=family).fit(X.assign(never=never), y)
    assert np.isinf(model.standard_errors_[-1])
    rest = never == 0  # in the limit, rows with never = 1 add nothing
    other = ParametricRegression(family=family).fit(X[rest], y[rest])
    np.testing.assert_allclose(model.coef_[:-1], other.coef_, atol=1e-4)
    np.testing.assert_allclose(model.standard_errors_[:-1], other.standard_errors_, rtol=1e-3)
    np.testing.assert_allclose(np.diag(model.covariance_)[5:], np.diag(other.covariance_)[4:], rtol=1e-2)
    ridge = ParametricRegression(family=family, alpha=0.1).fit(X.assign(never=never), y)
    assert np.isfinite(ridge.standard_errors_).all()


def test_a_likelihood_without_maximum_is_reported(rows):
    X = rows[0]
    with pytest.warns(ConvergenceWarning, match=r"not converged.*log_shape"):
        model = ParametricRegression().fit(X, Surv.from_arrays(np.ones(N), np.full(N, 2.0)))
    assert np.isfinite(model.predict_survival_function(X, [1.0, 3.0])).all()
    with pytest.raises(ValueError, match=r"df=3 .* 1 distinct .*[Ll]ower df"):
        ParametricRegression(family="spline").fit(X, Surv.from_arrays(np.ones(N), np.full(N, 2.0)))


def test_events_at_time_zero_are_left_censored(rows):
    X, y = rows[0], rows[1]["right"].copy()
    y["time"][:5], y["event"][:5] = 0.0, True
    least = y["time"][y["time"] > 0].min() / 2
    with pytest.warns(UserWarning, match="5 events are at time 0"):
        model = ParametricRegression().fit(X, y)
    upper = np.where(y["event"], y["time"], np.inf)
    upper[:5] = least
    same = ParametricRegression().fit(X, Surv.interval(y["time"], upper))
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-9)
    ParametricRegression(family="gompertz").fit(X, y)  # has a density there


def test_invalid_settings_and_outcomes(rows):
    X, y = rows[0], rows[1]["right"]
    with pytest.raises(ValueError, match=r"family .*'weibull'.*'gamma'"):
        ParametricRegression(family="gamma").fit(X, y)
    with pytest.raises(ValueError, match=r"CauseSpecific\(ParametricRegression"):
        ParametricRegression().fit(X, Surv.from_arrays(y["event"] * (1 + np.arange(N) % 2), y["time"]))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stratum_without_events_changes_nothing_in_the_others(name):
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200), "site": rng.choice(list("uvw"), 200)})
    event, time = (rng.random(200) < 0.7) & (X["site"] != "v"), rng.weibull(1.5, 200) * np.exp(0.3 * X["a"])
    there = (X["site"] != "v").to_numpy()
    with pytest.warns(UserWarning, match="no events in stratum 'v'"):
        model = ParametricRegression(family=name, strata="site").fit(X, Surv.from_arrays(event, time))
    alone = ParametricRegression(family=name, strata="site").fit(X[there], Surv.from_arrays(event[there], time[there]))
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.baseline_[[0, 2]], alone.baseline_, rtol=1e-9)
    np.testing.assert_allclose(model.standard_errors_, alone.standard_errors_, rtol=1e-9)
    pd.testing.assert_frame_equal(model.summary().tests, alone.summary().tests)
    assert model.summary().coefficients.filter(like="[v]", axis=0).isna().all(axis=None)
    assert model.log_likelihood_ == pytest.approx(alone.log_likelihood_, rel=1e-12)
    assert (model.predict_survival_function(X[~there], [1.0, 5.0]) == 1.0).all()
    for found, expected in zip(model.predict_survival_band(X, [1.0]), alone.predict_survival_band(X[there], [1.0])):
        np.testing.assert_allclose(found[there], expected, rtol=1e-9)
        assert np.isnan(found[~there]).all()


def test_the_score_with_observed_information_may_be_negative_and_is_not_printed():
    rng = np.random.default_rng(0)
    x, n = rng.normal(size=300), 300
    time, censored = rng.weibull(1.5, n) * np.exp(x), rng.exponential(3.0, n)
    y = Surv.from_arrays(time <= censored, np.minimum(time, censored))
    given = check_outcome(y), np.zeros(n, int), np.zeros(n), np.zeros(1), np.eye(1)
    likelihood = ParametricLikelihood(make_family("weibull"), x[None], *given)
    null = likelihood.without_columns()
    at = np.append(0.0, maximise(null, null.start(), np.zeros(2), 100, 1e-16).parameters)
    _, gradient, information = likelihood(at)
    np.testing.assert_allclose(gradient[1:], 0.0, atol=1e-8)
    tests = ParametricRegression().fit(x[:, None], y).summary().tests
    assert gradient @ np.linalg.solve(information, gradient) < 0 < tests["statistic"].min()
    assert list(tests.index) == ["likelihood_ratio", "wald"]
