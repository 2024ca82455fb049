"""Cox's model against lifelines and scikit-survival, and its likelihood against a literal reading."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from sumosurv import CoxPH, FineGray, ParametricRegression, Surv, breslow, check_outcome, datasets, load
from sumosurv.estimators.coxph import PartialLikelihood
from sumosurv.scores import log_likelihood

linear_model = pytest.importorskip("sksurv.linear_model")


def sample(n=150, seed=0, ties=True):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    time = rng.exponential(np.exp(-x @ [0.8, -0.5, 0.0]))
    return x, Surv.from_arrays(rng.random(n) < 0.7, np.ceil(5 * time) if ties else time)


def literal(beta, x, y, ties):
    """Σ over distinct event times, as the textbooks write it."""
    total = 0.0
    g = x @ beta
    for t in np.unique(y["time"][y["event"]]):
        dead, at_risk = (y["time"] == t) & y["event"], y["time"] >= t
        d = dead.sum()
        for place in range(d):
            share = place / d if ties == "efron" else 0.0
            total -= np.log(np.exp(g[at_risk]).sum() - share * np.exp(g[dead]).sum())
        total += g[dead].sum()
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_value_gradient_and_information_are_those_of_the_formula(ties):
    x, y = sample(40)
    beta = np.array([0.3, -0.2, 0.1])
    value, gradient, information = PartialLikelihood(x, check_outcome(y), ties)(beta)
    assert value == pytest.approx(literal(beta, x, y, ties), rel=1e-12)
    step = 1e-5 * np.eye(3)
    slopes = [(literal(beta + e, x, y, ties) - literal(beta - e, x, y, ties)) / 2e-5 for e in step]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6)
    partial = PartialLikelihood(x, check_outcome(y), ties)
    rows = [(partial(beta - e)[1] - partial(beta + e)[1]) / 2e-5 for e in step]
    np.testing.assert_allclose(information, rows, rtol=1e-6)


def standardised(name):
    """A real dataset; lifelines does not solve FLCHAIN in its own units."""
    X, y = datasets.load(name)
    frame = X.astype(float)
    return (frame - frame.mean()) / frame.std(), y


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["metabric", "gbsg", "flchain", "support"])
def test_coefficients_errors_likelihood_and_baseline_on_real_data(name, real_data, lifelines):
    frame, y = standardised(name)
    model = CoxPH().fit(frame, y)
    table = frame.assign(time_=y["time"], event_=y["event"])
    theirs = lifelines.CoxPHFitter().fit(table, "time_", "event_", fit_options={"precision": 1e-12})
    np.testing.assert_allclose(model.coef_, theirs.params_, atol=1e-6)
    np.testing.assert_allclose(model.standard_errors_, theirs.standard_errors_, atol=1e-6)
    assert model.log_likelihood_ == pytest.approx(theirs.log_likelihood_, abs=1e-6)
    np.testing.assert_allclose(model.summary().coefficients["p"], theirs.summary["p"], atol=1e-6)
    at = np.unique(y["time"])[::7]
    rows = frame.iloc[::97]
    cumulative = theirs.predict_cumulative_hazard(rows, times=at).to_numpy().T
    curves = breslow(y, model.log_risk(frame), model.log_risk(rows))  # their baseline, with Efron's coefficients
    np.testing.assert_allclose(curves.cumulative_hazard(at), cumulative, rtol=1e-6, atol=1e-9)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "ties"),  # the coefficients of Efron are those of lifelines on all tables, above
    [("gbsg", "efron"), ("metabric", "breslow"), ("gbsg", "breslow"), ("flchain", "breslow"), ("support", "breslow")],
)
def test_coefficients_and_curves_against_scikit_survival_on_real_data(name, ties, real_data):
    frame, y = standardised(name)
    at, rows = np.unique(y["time"])[::7], frame.iloc[::97]
    ours = CoxPH(ties=ties).fit(frame, y)
    other = linear_model.CoxPHSurvivalAnalysis(ties=ties, tol=1e-14, n_iter=200).fit(frame.to_numpy(), y)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-6)
    curves = np.stack([curve(at) for curve in other.predict_survival_function(rows.to_numpy())])
    if ties == "breslow":  # their baseline with either
        np.testing.assert_allclose(ours.predict_survival_function(rows, at), curves, atol=1e-6)
    np.testing.assert_allclose(breslow(y, ours.log_risk(frame), ours.log_risk(rows)).survival(at), curves, atol=1e-6)


@pytest.mark.real_data
def test_categories_are_dummies_and_units_are_the_columns(real_data):
    X, y = datasets.load("gbsg")
    dummies = pd.get_dummies(X, drop_first=True, dtype=float).astype(float)
    model, plain = CoxPH().fit(X, y), CoxPH().fit(dummies, y)
    assert set(model.terms_) >= {"x1[1]", "x1[2]"}
    assert model.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-12)
    np.testing.assert_allclose(model.predict(X), plain.predict(dummies), rtol=1e-8)
    scaled = CoxPH().fit(dummies * 1000.0, y)
    np.testing.assert_allclose(scaled.coef_ * 1000.0, plain.coef_, rtol=1e-8)
    np.testing.assert_allclose(scaled.standard_errors_ * 1000.0, plain.standard_errors_, rtol=1e-8)


def test_ridge_is_that_of_scikit_survival_on_standardised_columns():
    x, y = sample()
    x = (x - x.mean(0)) / x.std(0)
    other = linear_model.CoxPHSurvivalAnalysis(alpha=7.0, ties="efron", tol=1e-14, n_iter=200).fit(x, y)
    np.testing.assert_allclose(CoxPH(alpha=7.0).fit(x, y).coef_, other.coef_, atol=1e-7)


def test_the_penalty_is_on_standardised_columns():
    """In other units it is the same model."""
    x, y = sample()
    units = np.array([1000.0, 0.01, 7.0])
    model, other = CoxPH(alpha=7.0).fit(x, y), CoxPH(alpha=7.0).fit(x * units, y)
    np.testing.assert_allclose(other.coef_ * units, model.coef_, rtol=1e-7)
    np.testing.assert_allclose(other.standard_errors_ * units, model.standard_errors_, rtol=1e-7)
    scale = x.std(axis=0)
    standardised = CoxPH(alpha=7.0).fit((x - x.mean(axis=0)) / scale, y)
    np.testing.assert_allclose(model.coef_ * scale, standardised.coef_, rtol=1e-7)


def test_the_summary_has_wald_s_tests(lifelines):
    x, y = sample(ties=False)
    model = CoxPH().fit(pd.DataFrame(x, columns=["a", "b", "c"]), y)
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(time=y["time"], event=y["event"])
    other = lifelines.CoxPHFitter().fit(frame, "time", "event").summary
    for ours, theirs in (("coef", "coef"), ("hazard_ratio", "exp(coef)"), ("standard_error", "se(coef)"), ("z", "z")):
        np.testing.assert_allclose(model.summary().coefficients[ours], other[theirs], rtol=1e-3)
    np.testing.assert_allclose(model.summary().coefficients["p"], other["p"], rtol=0.02)


def dummies(n=400, seed=0):
    """Both dummies of a treatment, three of a grade, a total, a constant: as `pandas.get_dummies` makes them."""
    rng = np.random.default_rng(seed)
    treated, grade = rng.random(n) < 0.4, rng.integers(3, size=n)
    table = pd.DataFrame({"no": 1.0 - treated, "yes": treated.astype(float), "age": rng.normal(53.0, 10.0, n)})
    for level in range(3):
        table[f"grade_{level}"] = (grade == level).astype(float)
    table["size"] = rng.exponential(20.0, n)
    table["total"] = 3.0 * table["age"] - 0.5 * table["size"] + 7.0
    table["year"] = 1990.0
    time = rng.exponential(np.exp(0.36 * treated - 0.5 * grade - 0.02 * table["age"]))
    return table, Surv.from_arrays(rng.random(n) < 0.6, time)


DROPPED = ["yes", "grade_2", "total", "year"]


@pytest.mark.parametrize("alpha", [0.0, 3.0])
def test_log_risks_are_relative_to_the_mean_of_the_rows(alpha):
    """And the baseline is Breslow's of these risks, whatever the columns are centred at."""
    x, y = sample()
    x += np.array([100.0, -40.0, 7.0])
    model = CoxPH(alpha=alpha, ties="breslow").fit(x, y)
    risk = (x - x.mean(axis=0)) @ model.coef_
    np.testing.assert_allclose(model.log_risk(x), risk, atol=1e-9)
    times = np.unique(y["time"][y["event"]])
    steps = [((y["time"] == t) & y["event"]).sum() / np.exp(risk[y["time"] >= t]).sum() for t in times]
    np.testing.assert_allclose(model.baseline_times_, times)
    np.testing.assert_allclose(model.baseline_, np.cumsum(steps), rtol=1e-8)


def test_columns_that_others_explain_are_left_out_by_name():
    table, y = dummies()
    with pytest.warns(UserWarning, match="Columns left out") as caught:
        model = CoxPH().fit(table, y)
    (message,) = [str(w.message) for w in caught]
    for told in (
        "'yes' (a linear function of 'no')",
        "'grade_2' (a linear combination of 'grade_0', 'grade_1')",
        "'total' (a linear combination of 'age', 'size')",
        "'year' (constant)",
    ):
        assert told in message
    gone = np.isin(model.terms_, DROPPED)
    np.testing.assert_array_equal(model.coef_[gone], 0.0)
    np.testing.assert_array_equal(np.isnan(model.standard_errors_), gone)
    np.testing.assert_array_equal(model.summary().to_frame().isna().all(axis=1), gone)
    lifelines = pytest.importorskip("lifelines")
    rest = table.drop(columns=DROPPED)
    theirs = lifelines.CoxPHFitter().fit(
        rest.assign(time_=y["time"], event_=y["event"]), "time_", "event_", fit_options={"precision": 1e-12}
    )
    np.testing.assert_allclose(model.coef_[~gone], theirs.params_, atol=1e-6)
    np.testing.assert_allclose(model.standard_errors_[~gone], theirs.standard_errors_, atol=1e-6)
    at = np.quantile(y["time"], [0.1, 0.5, 0.9])
    other = linear_model.CoxPHSurvivalAnalysis(ties="efron", tol=1e-14, n_iter=200).fit(rest.to_numpy(), y)
    curves = np.stack([curve(at) for curve in other.predict_survival_function(rest.to_numpy())])
    np.testing.assert_allclose(model.predict_survival_function(table, at), curves, atol=1e-6)


def test_what_a_fit_tells_is_asked_of_a_fitted_model():
    x, y = sample()
    for ask in (CoxPH().summary, lambda: CoxPH().log_risk(x), lambda: CoxPH().test_proportionality(x, y)):
        with pytest.raises(NotFittedError):
            ask()


def test_of_many_columns_that_explain_one_four_are_named():
    x, y = sample()
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(len(x), 6)), columns=list("abcdef"))
    table["sum"] = table.sum(axis=1)
    with pytest.warns(UserWarning, match=r"'sum' \(.*'e' and 1 more\)"):
        CoxPH().fit(table, y)
    table["sum"] = table[list("abcd")].sum(axis=1)
    with pytest.warns(UserWarning, match=r"'sum' \(.* 'a', 'b', 'c', 'd'\)"):
        CoxPH().fit(table, y)


@pytest.mark.filterwarnings("error")
def test_a_penalty_keeps_all_columns_and_nearly_dependent_ones_stay():
    table, y = dummies()
    ridge = CoxPH(alpha=1.0).fit(table, y)
    assert np.isfinite(ridge.standard_errors_).all()
    assert ridge.coef_[0] == pytest.approx(-ridge.coef_[1])
    x, y = sample()
    rng = np.random.default_rng(0)
    close = np.column_stack([x, x[:, 0] + 1e-5 * rng.normal(size=len(x))])
    apart = np.column_stack([x, (close[:, 3] - x[:, 0]) * 1e5])
    model, same = CoxPH().fit(close, y), CoxPH().fit(apart, y)
    assert model.log_likelihood_ == pytest.approx(same.log_likelihood_, rel=1e-10)
    assert model.standard_errors_[3] == pytest.approx(1e5 * same.standard_errors_[3], rel=1e-6)


def test_what_differs_among_rows_that_were_never_at_risk_is_not_told():
    x, y = sample(ties=False)
    early = np.argsort(y["time"])[:5]
    y["event"][early] = False
    extra = np.zeros(len(x))
    extra[early] = [1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.warns(UserWarning, match=r"'3' \(constant\)"):
        model = CoxPH().fit(np.column_stack([x, extra]), y)
    np.testing.assert_allclose(model.coef_, [*CoxPH().fit(x, y).coef_, 0.0], atol=1e-10)
    assert np.isnan(model.standard_errors_[3])


def test_units_do_not_decide_what_is_constant():
    x, y = sample()
    tiny = CoxPH().fit(x * [1e-20, 1.0, 1e20], y)
    np.testing.assert_allclose(tiny.coef_ * [1e-20, 1.0, 1e20], CoxPH().fit(x, y).coef_, rtol=1e-8)


def test_a_column_that_tells_all_events_is_named_as_the_trouble():
    x = np.linspace(0.0, 1.0, 20)[:, None]
    y = Surv.from_arrays(np.ones(20), 2.0 - x[:, 0])
    with pytest.warns(ConvergenceWarning, match="alpha > 0"):
        CoxPH(max_iter=5).fit(x, y)
    assert np.isfinite(CoxPH(alpha=1.0).fit(x, y).coef_).all()


@pytest.mark.filterwarnings("ignore:Columns left out")
@pytest.mark.parametrize(("n", "columns"), [(3, 4), (40, 80)])
def test_a_table_that_tells_all_events_still_gives_a_distribution(n, columns):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, columns)), Surv.from_arrays(np.ones(n), rng.exponential(size=n))
    with pytest.warns(ConvergenceWarning, match="no maximum.*'0', '1'.*alpha > 0"):
        model = CoxPH().fit(x, y)
    assert np.isfinite(model.coef_).all()
    survival = model.predict_survival_function(x, [0.0, 0.5, 1.0, 9.0])
    assert np.isfinite(survival).all()
    assert (np.diff(survival, axis=1) <= 0).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:Columns left out")
def test_separated_events_far_apart_have_curves_that_fall():
    """Log risks that are thousands apart: sums over the last risk sets are zero next to the first."""
    for seed in (31, 62, 80, 109):  # the curves of some rows increased
        rng = np.random.default_rng(seed)
        n, columns = rng.integers(20, 60), rng.integers(5, 40)
        x, time = rng.integers(0, 2, size=(n, columns)).astype(float), np.ceil(10 * rng.exponential(size=n)) / 10
        y, fitted = Surv.from_arrays(rng.random(n) < 0.5, time), n * 4 // 5
        model = CoxPH().fit(x[:fitted], y[:fitted])
        assert np.isfinite(model.baseline_).all()
        survival = model.predict_survival_function(x, np.sort(time))
        assert np.isfinite(survival).all()
        assert (np.diff(survival, axis=1) <= 0).all()


def separated(n=120, seed=0):
    """A column that is one in some censored rows only, beside an ordinary one."""
    rng = np.random.default_rng(seed)
    event = rng.random(n) < 0.6
    table = pd.DataFrame({"a": rng.normal(size=n), "carrier": (~event & (rng.random(n) < 0.4)).astype(float)})
    return table, event, rng.exponential(size=n)


@pytest.mark.parametrize("robust", [True, False])
def test_separation_is_reported_and_leaves_other_columns_alone(robust, tmp_path):
    table, event, time = separated()
    y = Surv.from_arrays(event, time)
    with pytest.warns(ConvergenceWarning, match=r"no maximum.*'carrier'.*firth") as told:
        model = CoxPH(robust=robust).fit(table, y)
    assert len(told) == 1
    assert told[0].filename == __file__
    summary = model.summary().coefficients
    assert np.isposinf(summary.loc["carrier", "standard_error"])
    assert summary.loc["carrier", "p"] == 1.0
    assert summary.loc["carrier", "hazard_ratio_lower"] == 0.0
    assert np.isposinf(summary.loc["carrier", "hazard_ratio_upper"])
    # the limit of the other coefficient: carriers contribute to no risk set
    rest = CoxPH(robust=robust).fit(table.loc[table["carrier"] == 0, ["a"]], y[table["carrier"] == 0])
    np.testing.assert_allclose(model.coef_[0], rest.coef_[0], atol=1e-8)
    np.testing.assert_allclose(model.standard_errors_[0], rest.standard_errors_[0], atol=1e-8)
    model.save(tmp_path / "m.sumo")
    np.testing.assert_array_equal(load(tmp_path / "m.sumo").standard_errors_, model.standard_errors_)
    tested = model.test_proportionality(table, y)
    assert np.isnan(tested.loc["carrier", "p"])
    assert tested.loc["global", "df"] == 1


def test_separation_of_a_combination_names_both_columns():
    """Neither column separates; their sum, which is negative in all rows without events, does."""
    rng = np.random.default_rng(0)
    a, total = rng.normal(size=100), rng.uniform(0.1, 1.0, size=100) * np.where(np.arange(100) < 50, 1, -1)
    y = Surv.from_arrays(np.arange(100) < 50, np.where(np.arange(100) < 50, 2.0 - total, 3.0))
    with pytest.warns(ConvergenceWarning, match="no maximum.*'a', 'b'"):
        model = CoxPH().fit(pd.DataFrame({"a": a, "b": total - a}), y)
    assert np.isposinf(model.standard_errors_).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_strong_effects_are_not_separation(ties):
    """One carrier with an event, who is not the last: a coefficient near -5 with a standard error of about one."""
    table, event, time = separated(400)
    first = int(np.argmax(table["carrier"]))
    event[first] = True
    time[first] = np.quantile(time, 0.7)
    model = CoxPH(ties=ties).fit(table, Surv.from_arrays(event, time))
    assert model.coef_[1] < -2.0
    assert 0.5 < model.standard_errors_[1] < 2.0
    assert np.isfinite(CoxPH(penalty="firth", ties=ties).fit(table, Surv.from_arrays(event, time)).coef_).all()


@pytest.mark.parametrize("model", [CoxPH(strata="site"), ParametricRegression(strata="site")])
def test_a_stratum_without_events_is_named(model):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "site": np.repeat(["u", "v", "w"], 20)})
    y = Surv.from_arrays(X["site"] != "v", rng.exponential(size=60))
    with pytest.warns(UserWarning, match="'v' of 'site'"):
        model.fit(X, y)


def test_firth_maximises_the_likelihood_times_the_root_of_the_information():
    table, event, time = separated()
    time = np.ceil(5 * time)
    y = check_outcome(Surv.from_arrays(event, time, np.where(np.arange(120) % 3 == 0, 0.5, 0.0)))
    stratum = np.arange(120) % 2
    model = CoxPH(penalty="firth", strata="s").fit(table.assign(s=stratum), y)
    partial = PartialLikelihood(table.to_numpy(), y, "efron", stratum)

    def penalised(beta):
        value, _, information = partial(beta)
        return value + 0.5 * np.linalg.slogdet(information)[1]

    best = penalised(model.coef_)
    for step in np.vstack([np.eye(2), -np.eye(2)]) * 1e-3:
        assert penalised(model.coef_ + step) < best
    assert model.coef_[1] < -1.0
    with pytest.raises(ValueError, match=r"alpha.*2.0.*firth"):
        CoxPH(penalty="firth", alpha=2.0).fit(table, y)
    with pytest.raises(ValueError, match=r"penalty.*'lasso'"):
        CoxPH(penalty="lasso").fit(table, y)


def test_ridge_with_more_columns_than_rows_works_in_the_space_of_the_rows():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 45)), Surv.from_arrays(np.arange(30) % 4 > 0, rng.exponential(size=30))
    model = CoxPH(alpha=3.0).fit(x, y)
    unit = (x - x.mean(axis=0)) / x.std(axis=0)
    partial = PartialLikelihood(unit, check_outcome(y), "efron")
    beta = model.coef_ * x.std(axis=0)
    _, gradient, information = partial(beta)
    np.testing.assert_allclose(gradient, 3.0 * beta, atol=1e-7)
    errors = np.sqrt(np.diag(np.linalg.inv(information + 3.0 * np.eye(45)))) / x.std(axis=0)
    np.testing.assert_allclose(model.standard_errors_, errors, rtol=1e-8)


@pytest.mark.parametrize("method", [CoxPH, FineGray])
def test_missing_values_are_dropped_refused_or_indicated(method):
    x, y = sample()
    table = pd.DataFrame(x, columns=["a", "b", "c"])
    table["d"] = pd.Categorical(np.array(["u", "v"])[np.arange(len(x)) % 2])
    table.loc[3:7, "a"] = np.nan
    table.loc[7:9, "d"] = None
    whole = np.setdiff1d(np.arange(len(x)), np.arange(3, 10))
    with pytest.warns(UserWarning, match=f"7 of {len(x)} rows.*'a', 'd'.*{len(whole)} complete") as told:
        model = method().fit(table, y)
    assert told[0].filename == __file__
    complete = method(missing="error").fit(table.iloc[whole], y[whole])
    np.testing.assert_array_equal(model.coef_, complete.coef_)
    np.testing.assert_array_equal(model.risk_times_, complete.risk_times_)
    with pytest.warns(UserWarning, match="2 of 4 rows.*'a'"):
        curves = model.predict_survival_function(table.iloc[[0, 3, 4, 20]], [0.5])
    filled = table.assign(a=table["a"].fillna(table["a"].iloc[whole].mean()))
    np.testing.assert_allclose(curves, model.predict_survival_function(filled.iloc[[0, 3, 4, 20]], [0.5]), rtol=1e-12)
    with pytest.raises(ValueError, match=f"7 of {len(x)} rows.*indicator"):
        method(missing="error").fit(table, y)
    with pytest.raises(ValueError, match=r"1 of 1 rows.*indicator"):
        complete.predict(table.iloc[[3]])
    assert "a[missing]" in method(missing="indicator").fit(table, y).terms_
    with pytest.raises(ValueError, match="rows have missing values"):
        method().fit(table.assign(c=np.nan), y)
    with pytest.raises(ValueError, match=r"missing.*'omit'"):
        method(missing="omit").fit(table, y)


def test_subjects_far_from_the_data():
    x, y = sample()
    model = CoxPH().fit(x, y)
    far = np.sign(model.coef_) * np.array([[1e9], [-1e9], [1e300]])
    survival = model.predict_survival_function(far, np.quantile(y["time"], [0.5, 0.9]))
    np.testing.assert_array_equal(survival, [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])


def test_the_truth_is_found():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(25000, 2))
    beta = np.array([0.7, -0.4])
    time = rng.weibull(1.5, len(x)) * np.exp(-(x @ beta) / 1.5)
    censoring = rng.exponential(2.0, len(x))
    y = Surv.from_arrays(time <= censoring, np.minimum(time, censoring))
    model = CoxPH(half_width=64).fit(x[:20000], y[:20000])
    np.testing.assert_allclose(model.coef_, beta, atol=0.03)
    truth = sum_of_weibull(x[20000:], beta, y[20000:])
    assert abs(model.score(x[20000:], y[20000:]) - truth) < 0.02


def sum_of_weibull(x, beta, y):
    from sumosurv.distributions import Weibull

    return log_likelihood(Weibull(np.exp(-(x @ beta) / 1.5), 1.5), y).mean()


def test_errors():
    x, y = sample(20)
    with pytest.raises(ValueError, match=r"ties.*'exact'"):
        CoxPH(ties="exact").fit(x, y)
    for alpha in (-1.0, "x", float("nan")):
        with pytest.raises(ValueError, match=r"alpha of CoxPH.*at least 0"):
            CoxPH(alpha=alpha).fit(x, y)
    with pytest.raises(ValueError, match=r"half_width.* 0"):
        CoxPH(half_width=0).fit(x, y)
    with pytest.raises(ValueError, match=r"tol.*0"):
        CoxPH(tol=0.0).fit(x, y)
    with pytest.raises(ValueError, match=r"max_iter.* 0"):
        CoxPH(max_iter=0).fit(x, y)
    with pytest.raises(ValueError, match="reads a table of two dimensions"):
        CoxPH().fit(np.zeros((20, 3, 3)), y)


def test_predictions_say_once_how_unseen_and_missing_levels_are_read():
    X = pd.DataFrame({"arm": np.tile(["a", "b"], 20), "age": np.random.default_rng(0).normal(size=40)})
    model = CoxPH().fit(X, Surv.from_arrays(np.ones(40), np.arange(1.0, 41.0)))
    new = X[:4].assign(arm=["c", "b", None, "a"], age=0.0)
    with pytest.warns(UserWarning, match="missing values|not seen") as told:
        found = model.predict_median(new)
    texts = sorted(str(warning.message) for warning in told)
    assert len(texts) == 2
    assert texts[0].startswith("1 of 4 rows have missing values (in 'arm')")
    assert texts[1].startswith("Column 'arm': 1 of 3 values were not seen in training ('c') and are read as the first")
    assert found[0] == found[2] == found[3]
