"""Regressions from formulas behave as all other estimators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from forging import forged, put
from sumosurv import (
    CauseSpecific,
    Conformal,
    CoxPH,
    FineGray,
    FormulaTransformer,
    KaplanMeier,
    ModelFileError,
    ParametricRegression,
    Surv,
    SurvivalMixture,
    compare_nested,
    explain,
    load,
    make_survival_pipeline,
    scores,
)
from sumosurv.model_files import save
from sumosurv.report import make_report
from sumosurv.serve import ServedModel
from sumosurv.serve.request import RequestError

pytest.importorskip("formulaic", reason="formulas are read by formulaic")

RNG = np.random.default_rng(31)
N = 150
DATA = pd.DataFrame(
    {
        "id": np.arange(N) // 2,
        "age": RNG.normal(60, 8, N),
        "grade": RNG.integers(1, 4, N),
        "sex": RNG.choice(["f", "m"], N),
        "site": RNG.choice(["east", "west"], N),
        "z": RNG.normal(size=N),
    }
)
RISK = 0.04 * (DATA["age"] - 60) + 0.4 * (DATA["grade"] == 3) + 0.5 * DATA["z"]
DATA["time"] = np.ceil(10 * RNG.exponential(np.exp(-RISK))) / 10
DATA["cause"] = RNG.integers(0, 3, N)
DATA["event"] = DATA["cause"] > 0
Y = Surv.from_columns(DATA, "event", "time")
CAUSES = Surv.from_columns(DATA, "cause", "time")
TERMS = "ns(age, df=3) + C(grade, ref=2) + sex:z + z"
CASES = {
    "CoxPH": (CoxPH, {}, "event"),
    "FineGray": (FineGray, {}, "cause"),
    "weibull": (ParametricRegression, {}, "event"),
    "spline": (ParametricRegression, {"family": "spline", "df": 2}, "event"),
    "CauseSpecific": (CauseSpecific, {}, "cause"),
}
every_regression = pytest.mark.parametrize("name", CASES)


def fitted(name, terms=TERMS, data=DATA, **more):
    cls, settings, event = CASES[name]
    return cls.from_formula(f"Surv(time, {event}) ~ {terms}", data, **settings, **more)


def coefficients(model):
    return model.summary().to_frame()["coef"]


@every_regression
def test_the_columns_are_those_of_the_transformer(name):
    cls, settings, event = CASES[name]
    table = FormulaTransformer(TERMS).fit_transform(DATA)
    plain = cls(**settings).fit(table, CAUSES if event == "cause" else Y)
    model = fitted(name)
    pd.testing.assert_series_equal(coefficients(model), coefficients(plain))
    times = [0.2, 0.5, 1.0]
    np.testing.assert_allclose(
        model.predict_survival_function(DATA, times), plain.predict_survival_function(table, times), rtol=1e-10
    )


@every_regression
def test_tests_of_terms_have_all_columns_of_a_term(name):
    terms = fitted(name).summary().terms
    assert terms["df"].groupby(level="term").first().to_dict() == {"ns(age, df=3)": 3, "grade": 2, "z": 1, "sex:z": 1}


@every_regression
def test_an_offset_is_a_coefficient_of_one(name):
    """A coefficient beside an offset is the difference to one, and predictions are the same: in the fit and after."""
    whole, rest = fitted(name, "age + z + sex"), fitted(name, "age + z + sex + offset(z)")
    without = fitted(name, "age + z + sex + offset(0 * z)")
    shift = (coefficients(whole).index.get_level_values("term") == "z").astype(float)
    np.testing.assert_allclose(coefficients(rest) + shift, coefficients(whole), atol=1e-7)
    np.testing.assert_allclose(coefficients(without), coefficients(whole), atol=1e-10)
    new = DATA.iloc[:20].assign(z=3.0)
    for rows in (DATA, new):
        expected = whole.predict_survival_function(rows, [0.3, 1.0])
        np.testing.assert_allclose(rest.predict_survival_function(rows, [0.3, 1.0]), expected, atol=1e-7)
    if name == "CoxPH":
        for method, options in (
            ("predict_survival_band", ([0.3, 1.0],)),
            ("predict_restricted_mean_limits", (1.0,)),
        ):
            found, expected = (getattr(model, method)(new, *options) for model in (rest, whole))
            np.testing.assert_allclose(found, expected, atol=1e-7)
        zph = [model.test_proportionality(DATA, Y)["statistic"] for model in (rest, whole)]
        np.testing.assert_allclose(*zph, rtol=1e-6)


@every_regression
def test_files_clones_and_refits(name, tmp_path):
    model = fitted(name, TERMS + " + offset(log(age))")
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_median(DATA), model.predict_median(DATA))
    assert repr(again.summary()) == repr(model.summary())
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    refitted = clone(again).fit(DATA, CAUSES if CASES[name][2] == "cause" else Y)
    pd.testing.assert_series_equal(coefficients(refitted), coefficients(model))


HARMFUL = ("I(__import__('os').system('true'))", "I(age.__class__)", "exec('1')")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((("terms", 0, 0), text) for text in HARMFUL),
        *((("offsets",), [text]) for text in HARMFUL),
        (("terms",), [["age"]]),
        (("terms", 0, 0), "ns(age, df=4)"),
        (("terms", 0, 0), "ns(z, df=3)"),
        (("terms", 0, 0), "time"),
        (("learned", "ns(age, df=3)", "knots"), [40.0, 80.0]),
        (("learned", "ns(age, df=3)", "knots"), [80.0, 70.0, 60.0, 50.0]),
        (("learned", "ns(age, df=3)", "knots"), [40.0, float(2**60), 1e308, 1e308]),
        (("learned", "ns(age, df=3)"), {}),
        (("levels", "C(grade, ref=2)", "levels"), [1, 3]),
        (("levels", "C(grade, ref=2)", "levels"), [1, 2]),
    ],
)
def test_forged_formulas_are_refused(place, value, tmp_path):
    fitted("CoxPH").save(tmp_path / "model")
    with pytest.raises(ModelFileError):
        load(forged(tmp_path / "model", tmp_path / "forged", put("fitted", "formula", *place, value=value)))


def pipeline():
    return make_survival_pipeline(FormulaTransformer(TERMS), CoxPH(alpha=0.1)).fit(DATA, Y)


def test_a_file_has_a_pipeline_with_a_formula(tmp_path):
    model = pipeline()
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert list(again.named_steps) == list(model.named_steps)
    assert list(again.feature_names_in_) == list(model.feature_names_in_)
    np.testing.assert_array_equal(again.predict_median(DATA), model.predict_median(DATA))
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    np.testing.assert_array_equal(clone(again).fit(DATA, Y).predict_median(DATA), model.predict_median(DATA))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((("formula", "terms", 0, 0), text) for text in HARMFUL),
        (("formula", "terms"), [["age"]]),
        (("formula", "learned", "ns(age, df=3)", "knots"), [80.0, 70.0, 60.0, 50.0]),
        (("columns",), ["age"]),
        (("columns",), ["age", "grade", "sex", "z", "id"]),
        (("names",), ["one"]),
        (("text",), 3),
    ],
)
def test_forged_pipelines_are_refused(place, value, tmp_path):
    pipeline().save(tmp_path / "model")
    with pytest.raises(ModelFileError):
        load(forged(tmp_path / "model", tmp_path / "forged", put("fitted", *place, value=value)))


def test_a_file_does_not_take_other_transformers(tmp_path):
    X = DATA[["age", "z"]]
    with pytest.raises(TypeError, match="StandardScaler"):
        make_survival_pipeline(StandardScaler(), CoxPH()).fit(X, Y).save(tmp_path / "model")
    with pytest.raises(TypeError, match="make_survival_pipeline"):
        save(make_pipeline(FormulaTransformer("age"), CoxPH()).fit(X, Y), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_formula_that_is_not_described_is_refused(tmp_path):
    fitted("CoxPH").save(tmp_path / "model")
    CoxPH().fit(DATA[["age"]], Y).save(tmp_path / "plain")
    for name, value in (("model", None), ("plain", "age")):
        with pytest.raises(ModelFileError):
            load(forged(tmp_path / name, tmp_path / "forged", put("parameters", "formula", value=value)))


def test_roles_become_parameters():
    model = CoxPH.from_formula("Surv(time, event) ~ age + sex:age + strata(sex, site) + cluster(id)", DATA)
    assert (model.formula, model.strata, model.robust) == ("age + sex:age", ["sex", "site"], True)
    covariates = DATA[["age"]].assign(other=DATA["age"] * (DATA["sex"] == "m"), sex=DATA["sex"], site=DATA["site"])
    plain = CoxPH(strata=["sex", "site"], robust=True).fit(covariates, Y, groups=DATA["id"])
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-8)
    np.testing.assert_allclose(model.standard_errors_, plain.standard_errors_, rtol=1e-8)
    with pytest.raises(ValueError, match="no strata"):
        FineGray.from_formula("Surv(time, cause) ~ age + strata(sex)", DATA)
    weighted = CoxPH.from_formula("Surv(time, event) ~ age", DATA, sample_weight="grade", ties="breslow")
    np.testing.assert_allclose(
        weighted.coef_, CoxPH(ties="breslow").fit(DATA[["age"]], Y, sample_weight=DATA["grade"]).coef_
    )


def test_missing_values_follow_the_rule_of_the_estimator():
    data = DATA.assign(age=DATA["age"].where(DATA.index > 4), sex=DATA["sex"].where(DATA.index != 9))
    data.loc[20, "site"] = None  # which the formula does not name
    with pytest.warns(UserWarning, match="6 of 150 rows"):
        model = CoxPH.from_formula("Surv(time, event) ~ age + sex", data)
    whole = data.dropna(subset=["age", "sex"])
    np.testing.assert_allclose(model.coef_, CoxPH.from_formula("Surv(time, event) ~ age + sex", whole).coef_, rtol=1e-9)
    with pytest.warns(UserWarning, match="training mean"):
        mean = model.predict_survival_function(data.iloc[[0]], [0.5])
    np.testing.assert_allclose(
        mean, model.predict_survival_function(data.iloc[[0]].assign(age=whole["age"].mean()), [0.5]), rtol=1e-10
    )
    with pytest.raises(ValueError, match="6 of 150 rows"):
        CoxPH.from_formula("Surv(time, event) ~ age + sex", data, missing="error")
    shown = CoxPH.from_formula("Surv(time, event) ~ age + sex", data, missing="indicator")
    assert shown.terms_ == ["age", "sex[m]", "age[missing]", "sex[missing]"]
    plain = CoxPH(missing="indicator").fit(data[["age", "sex"]], Y)
    by_name = dict(zip(plain.terms_, plain.coef_))
    np.testing.assert_allclose(shown.coef_, [by_name[name] for name in shown.terms_], rtol=1e-8)
    np.testing.assert_allclose(
        shown.predict_survival_function(data, [0.5]), plain.predict_survival_function(data[["age", "sex"]], [0.5])
    )


def test_new_rows_are_checked():
    model = fitted("CoxPH")
    mixed = DATA.iloc[:5, ::-1].assign(extra=1)
    np.testing.assert_array_equal(model.predict_median(mixed), model.predict_median(DATA)[:5])
    with pytest.raises(ValueError, match="'grade'"):
        model.predict_median(DATA.drop(columns="grade"))
    with pytest.raises(ValueError, match="'grade' has the level 7 in row 2"):
        model.predict_median(DATA.iloc[:4].assign(grade=[1, 2, 7, 1]))
    with pytest.raises(TypeError, match="DataFrame"):
        model.predict_median(DATA.to_numpy())


def test_evaluations_reports_pages_and_explanations():
    model, X = fitted("CoxPH"), DATA[["age", "grade", "sex", "z"]]
    values = [scores.evaluate(model, rows, Y, scores="log_likelihood", n_bootstrap=0)["value"] for rows in (DATA, X)]
    np.testing.assert_array_equal(*values)
    effect = explain.partial_dependence(model, X, "grade", times=[0.5])
    assert effect.grid[0].tolist() == [1, 2, 3]
    assert "C(grade, ref=2)" in make_report(model, X, Y, n_bootstrap=0, max_rows=50, verbose=False).html
    served, row = ServedModel(model), {"age": 61, "grade": 3, "sex": "m", "z": 0.2}
    answer = served.answer({"rows": [row], "times": [0.5]})
    expected = model.predict_survival_function(pd.DataFrame([row]), [0.5])
    np.testing.assert_allclose([answer["rows"][0]["survival"]], expected, rtol=1e-6)
    with pytest.raises(RequestError):
        served.answer({"rows": [row | {"grade": 7}]})


def test_other_estimators_read_plain_columns():
    model = KaplanMeier.from_formula("Surv(time, event) ~ age + sex", DATA)
    assert list(model.feature_names_in_) == ["age", "sex"]
    for terms in ("log(age)", "age:sex", "age + strata(sex)", "age + offset(z)"):
        with pytest.raises(ValueError, match="FormulaTransformer"):
            KaplanMeier.from_formula(f"Surv(time, event) ~ {terms}", DATA)


def test_a_regression_with_a_formula_may_be_a_part_of_another():
    X = DATA[["age", "grade", "sex", "z", "site"]]
    model = SurvivalMixture([CoxPH(formula="age + C(grade)"), CoxPH(formula="ns(z, df=2)", strata="sex")]).fit(X, Y)
    assert [part.n_features_in_ for part in model.estimators_] == [2, 2]
    assert np.isfinite(model.predict_survival_function(X, [0.5])).all()
    assert compare_nested(fitted("CoxPH", "age"), fitted("CoxPH", "ns(age, df=3)")).loc["large", "df"] == 2
    with pytest.raises(TypeError, match="got KaplanMeier"):
        compare_nested(KaplanMeier().fit(DATA[["z"]], Y), fitted("CoxPH", "age"))


@pytest.mark.parametrize("wrapper", ["CauseSpecific", "Conformal", "SurvivalMixture"])
def test_a_part_with_a_formula_need_not_read_all_columns(wrapper, tmp_path):
    part = CoxPH(formula="ns(age, df=2) + sex")
    made = {
        "CauseSpecific": lambda: CauseSpecific(part).fit(DATA, CAUSES),
        "Conformal": lambda: Conformal(estimator=part, random_state=0).fit(DATA[["age", "sex", "z"]], Y),
        "SurvivalMixture": lambda: SurvivalMixture([part, KaplanMeier()]).fit(DATA[["age", "sex", "z"]], Y),
    }
    model = made[wrapper]()
    new = DATA if wrapper == "CauseSpecific" else DATA[["age", "sex", "z"]]
    expected = model.predict_survival_function(new, [0.5, 1.0])
    model.save(tmp_path / "model.sumo")
    np.testing.assert_array_equal(load(tmp_path / "model.sumo").predict_survival_function(new, [0.5, 1.0]), expected)
