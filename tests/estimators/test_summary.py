"""Summaries of regressions: text within 80 columns, HTML, LaTeX, tests of nested models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, norm

from sumosurv import CauseSpecific, CoxPH, CoxPHCV, FineGray, ParametricRegression, Surv, compare_nested, load
from sumosurv.estimators.summary import ModelSummary, coefficient_table

RNG = np.random.default_rng(0)
N = 200
X = pd.DataFrame(
    {
        "arm": np.tile(["a", "b", "c", "d"], N // 4),
        "a column with a name that is much longer than the page is wide, & <odd>": RNG.normal(size=N),
        "age": RNG.normal(60, 8, N),
    }
)
LONG = X.columns[1]
TIME = RNG.exponential(np.exp(-0.5 * X[LONG]))
CAUSE = RNG.integers(0, 3, N)
Y = Surv.from_arrays(CAUSE > 0, TIME)


def test_text_fits_on_the_page_and_has_every_part():
    with pytest.warns(UserWarning, match="missing"):
        model = CoxPH().fit(X.where(pd.Series(np.arange(N) >= 3)), Y)
    text = str(model.summary(level=0.9))
    assert max(map(len, text.splitlines())) <= 80
    events = int((CAUSE[3:] > 0).sum())
    for part in (f"{N - 3} rows (3 more dropped", f"{events} events", "90% limits", "arm[c]", "Wald test of arm"):
        assert part in text
    for name in ("likelihood ratio", "Wald", "score"):
        assert f"{name} test: " in text
    assert "<odd>" in text  # the ends of long names tell columns apart
    assert "concordance 0." in text
    assert "AIC" in text


def test_html_and_latex_escape_names():
    summary = CoxPH().fit(X, Y).summary()
    shown = summary._repr_html_()
    assert "&amp; &lt;odd&gt;" in shown
    assert "<odd>" not in shown
    latex = summary.to_latex()
    assert r"\& $<$odd>" in latex
    assert latex.count(r"\\") == 1 + len(summary.coefficients)
    copied = summary.to_frame()
    copied["coef"] = 0.0
    assert (summary.coefficients["coef"] != 0).all()


@pytest.mark.parametrize(
    "method",
    [CauseSpecific(), CauseSpecific(CoxPHCV(cv=3, random_state=0)), FineGray(), FineGray(alpha=1.0)],
)
def test_causes_are_told_apart(method):
    model = method.fit(X, Surv.from_arrays(CAUSE, TIME))
    summary = model.summary()
    text = str(summary)
    assert "Cause 1" in text
    assert "Cause 2" in text
    assert max(map(len, text.splitlines())) <= 80
    assert summary.fit.loc[(2, "events")] == (CAUSE == 2).sum()
    assert summary.to_latex().count("cause") == summary._repr_html_().count("Cause ") == 2


def test_the_penalty_of_each_cause_is_told():
    model = CauseSpecific(CoxPHCV(cv=3, random_state=0)).fit(X, Surv.from_arrays(CAUSE, TIME))
    alphas = [part.alpha_ for part in model.estimators_]
    assert alphas[0] != alphas[1]
    for alpha in alphas:
        assert f"alpha {alpha:.4g}" in model.summary().title


@pytest.mark.parametrize("method", [CoxPH(), CoxPH(alpha=1.0), CoxPH(penalty="firth"), FineGray()])
def test_summary_survives_a_model_file(method, tmp_path):
    model = method.fit(X, Surv.from_arrays(CAUSE, TIME) if isinstance(method, FineGray) else Y)
    model.save(tmp_path / "model.sumo")
    stored = load(tmp_path / "model.sumo").summary()
    assert str(stored) == str(model.summary())
    pd.testing.assert_frame_equal(stored.terms, model.summary().terms)


def test_joint_test_of_a_term_is_that_of_its_contrasts():
    model = CoxPH().fit(X, Y)
    rows = [i for i, name in enumerate(model.terms_) if name.startswith("arm")]
    beta, covariance = model.coef_[rows], model.covariance_[np.ix_(rows, rows)]
    found = model.summary().terms.loc["arm"]
    expected = beta @ np.linalg.inv(covariance) @ beta
    np.testing.assert_allclose([found["statistic"], found["p"]], [expected, chi2.sf(expected, 3)])
    np.testing.assert_allclose(np.sqrt(np.diag(model.covariance_)), model.standard_errors_)


def test_penalised_fits_have_no_criteria():
    ridge = CoxPH(alpha=1.0).fit(X, Y)
    assert ridge.covariance_ is None
    assert ridge.summary().tests.empty
    assert np.isnan(ridge.summary().fit["aic"])
    firth = CoxPH(penalty="firth").fit(X, Y).summary()
    assert firth.tests.index.tolist() == ["likelihood_ratio", "wald"]
    assert np.isnan(firth.fit["bic"])


def test_separated_columns_have_no_wald_test():
    carrier = np.where(CAUSE > 0, 0.0, RNG.integers(0, 2, N))
    with pytest.warns(UserWarning, match="carrier"):
        summary = CoxPH().fit(X.assign(carrier=carrier), Y).summary()
    assert np.isnan(summary.terms.loc["carrier", "statistic"])
    rest = CoxPH().fit(X, Y).summary()
    assert np.isfinite(summary.tests["statistic"]).all()
    assert summary.tests.loc["likelihood_ratio", "statistic"] > rest.tests.loc["likelihood_ratio", "statistic"]
    assert "inf" in str(summary)


def test_nested_models():
    small, large = CoxPH().fit(X[["age"]], Y), CoxPH().fit(X, Y)
    found = compare_nested(small, large).loc["large"]
    statistic = 2 * (large.log_likelihood_ - small.log_likelihood_)
    np.testing.assert_allclose(found[["statistic", "df", "p"]], [statistic, 4, chi2.sf(statistic, 4)])
    with pytest.raises(ValueError, match="smaller model first"):
        compare_nested(large, small)
    for other, fact in (
        (CoxPH(ties="breslow").fit(X, Y), "Breslow"),
        (CoxPH().fit(X[1:], Y[1:]), f"{N - 1} rows"),
        (CoxPH(alpha=1.0).fit(X, Y), "alpha=0"),
        (CoxPH(robust=True).fit(X, Y), "terms"),
        (CauseSpecific().fit(X, Surv.from_arrays(CAUSE, TIME)), "estimators_"),
    ):
        with pytest.raises(ValueError, match=fact):
            compare_nested(small, other)


def test_huge_values_have_a_summary_without_wald_tests():
    """The variances of their coefficients underflow to zero."""
    rng = np.random.default_rng(0)
    X, y = 1e290 * rng.normal(size=(80, 2)), Surv.from_arrays(np.ones(80), rng.exponential(size=80))
    assert CoxPH().fit(X, y).summary().terms["statistic"].isna().all()


def test_strata_without_any_event_are_fitted_as_one_stratum_is():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=60), "s": np.arange(60) % 3})
    y = Surv.from_arrays(np.zeros(60), rng.exponential(size=60))
    with pytest.warns(UserWarning, match="All 60 rows are censored"):
        model = CoxPH(strata="s").fit(X, y)
    np.testing.assert_array_equal(model.predict_survival_function(X, [1.0]), 1.0)
    assert model.summary().fit["events"] == 0


@pytest.mark.parametrize("times", [pd.to_timedelta([1, 2], unit="D"), np.ma.masked_array([1.0, 2.0], [False, True])])
def test_durations_and_masked_values_are_no_times(times):
    rng = np.random.default_rng(0)
    model = CoxPH().fit(rng.normal(size=(50, 1)), Surv.from_arrays(np.ones(50), rng.exponential(size=50)))
    with pytest.raises(ValueError, match="times"):
        model.predict_survival_function(np.zeros((1, 1)), times)


def test_numbers_of_a_table_as_text():
    coef = np.array([0.0, 0.00099, 0.001, 999.9, -1000.0, 1.0, np.nan])
    errors = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.26, np.nan])
    names = list("abcdefg")
    table = coefficient_table(coef, errors, 0.9, pd.Index(names, name="term"))
    made = ModelSummary("Title", 0.9, table, table[:0].assign(df=0), table[:0], CoxPH().fit(X, Y).summary().fit)
    rows = {
        line.split()[0]: line.split()[1:] for line in str(made).splitlines() if line[:1] in names and line[1] == " "
    }
    assert [rows[name][0] for name in names] == ["0.0000", "9.9e-04", "0.0010", "999.9000", "-1.0e+03", "1.0000", "-"]
    z = float(norm.ppf(0.95))
    assert rows["f"][1:] == [
        f"{np.e:.3f}", f"{np.exp(1 - z * 0.26):.3f}", "to", f"{np.exp(1 + z * 0.26):.3f}", "0.2600",
        f"{1 / 0.26:.2f}", f"{2 * norm.sf(1 / 0.26):.4f}",
    ]  # fmt: skip
    assert rows["f"][-1] == "0.0001"  # and not below it
    assert rows["d"][-1] == "<0.0001"


@pytest.mark.parametrize("method", [CoxPH, ParametricRegression, FineGray])
def test_a_penalised_fit_has_no_tests_and_no_criteria(method):
    """Wald's test needs estimates that are not shrunk."""
    y = Surv.from_arrays(CAUSE, TIME) if method is FineGray else Y
    plain, shrunk = method().fit(X, y).summary(), method(alpha=1.0).fit(X, y).summary()
    assert not plain.terms.empty
    assert shrunk.terms.empty
    assert shrunk.tests.empty
    names = [key[-1] if isinstance(key, tuple) else key for key in shrunk.fit.index]
    assert shrunk.fit[[name in ("aic", "bic") for name in names]].isna().all()
    if method is not FineGray:  # which has no likelihood
        assert plain.fit[[name in ("aic", "bic") for name in names]].notna().all()


@pytest.mark.parametrize(
    ("model", "robust"),
    [(CoxPH(), False), (CoxPH(robust=True), True), (FineGray(), True),
     (ParametricRegression(), False), (ParametricRegression(robust=True), True),
     (CauseSpecific(CoxPH()), False), (CauseSpecific(CoxPH(robust=True)), True)],
)  # fmt: skip
def test_a_summary_says_whether_its_standard_errors_are_robust(model, robust):
    """Those of a Fine-Gray regression always are: its risk sets are weighted."""
    competing = isinstance(model, (FineGray, CauseSpecific))
    fitted = model.fit(X[["age"]], Surv.from_arrays(CAUSE, TIME) if competing else Y)
    summary = fitted.summary()
    assert summary.robust is robust
    for text in (str(summary), summary.to_latex(), summary._repr_html_()):
        assert ("robust SE" in text) is robust


def test_an_elastic_net_has_no_robust_standard_errors():
    shrunk = CoxPH(alpha=1.0, l1_ratio=0.5, robust=True).fit(X, Y).summary()
    assert not shrunk.robust
    assert "robust" not in str(shrunk)


def test_a_long_name_takes_the_room_of_the_head_of_the_ratios():
    long = "a_column_of_22_letters"
    for model, head, short in ((CoxPH(), "hazard ratio", " HR "), (ParametricRegression(), "time ratio", " TR ")):
        wide, narrow = (str(model.fit(X[["age"]].set_axis([name], axis=1), Y).summary()) for name in (long, "age"))
        assert long in wide
        assert max(map(len, wide.splitlines())) <= 80
        assert short in wide
        assert head not in wide
        assert head in narrow
