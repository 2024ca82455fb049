"""Formulas: how they are read, what they refuse, and the columns that they make of a table."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from sumosurv import CoxPH, FormulaTransformer, Surv, SurvivalPipeline, WeibullNet
from sumosurv.formulas import Formula, model_frame

pytest.importorskip("formulaic", reason="formulas are read by formulaic")

RNG = np.random.default_rng(30)
N = 80
DATA = pd.DataFrame(
    {
        "time": RNG.exponential(size=N) + 0.01,
        "event": RNG.integers(0, 2, N),
        "age": RNG.normal(60, 8, N),
        "grade": RNG.integers(1, 4, N),
        "sex": RNG.choice(["f", "m"], N),
        "stage": pd.Categorical(RNG.choice(["I", "II", "III"], N), categories=["III", "I", "II"]),
        "treated": RNG.random(N) < 0.5,
        "body mass": RNG.normal(26, 4, N),
    }
)


def learned(text: str, data: pd.DataFrame = DATA) -> Formula:
    return Formula.parse(text, list(data.columns)).learn(data)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("age", ["age"]),
        ("stage", ["stage[I]", "stage[II]"]),  # in the order of the categories
        ("C(stage, ref='II') + C(grade)", ["stage[III]", "stage[I]", "grade[2]", "grade[3]"]),
        ("treated + sex", ["treated[True]", "sex[m]"]),
        ("sex * age", ["sex[m]", "age", "sex[m]:age"]),
        ("sex:age", ["sex[f]:age", "sex[m]:age"]),  # no main effect of age: a slope for each level
        ("sex + sex:stage", ["sex[m]", *(f"sex[{s}]:stage[{g}]" for g in ("I", "II") for s in ("f", "m"))]),
        ("ns(age, df=2)", ["ns(age, df=2)[1]", "ns(age, df=2)[2]"]),
        ("`body mass` + log(`body mass`)", ["body mass", "log(`body mass`)"]),
        (". - time - event - sex", ["age", "grade", "stage[I]", "stage[II]", "treated[True]", "body mass"]),
        ("age - 1", ["age"]),
        ("{age / 10} + np.log(age)", ["I(age / 10)", "np.log(age)"]),
    ],
)
def test_names_and_columns(text, names):
    formula = learned(text)
    assert formula.names == names
    assert len(formula.sources) == len(names)
    assert formula.matrix(DATA).shape == (N, len(names))
    again = Formula.parse(str(formula), list(DATA.columns)).learn(DATA)
    assert again.names == names  # the text can be read again


def test_values_are_those_of_the_expressions():
    made = learned("I(age ** 2) + age:treated + I(sex == 'f') + I(-age // 7 % 3 <= 1) + sqrt(age) + center(age)")
    age = DATA["age"].to_numpy()
    columns = [age**2, np.sqrt(age), age - age.mean()]
    columns += [DATA["sex"] == "f", -age // 7 % 3 <= 1, age * DATA["treated"], age * ~DATA["treated"]]
    names = ["I(age ** 2)", "sqrt(age)", "center(age)", "I(sex == 'f')", "I(-age // 7 % 3 <= 1)"]
    expected = dict(zip([*names, "age:treated[True]", "age:treated[False]"], columns))
    found = dict(zip(made.names, made.matrix(DATA).T))
    assert set(found) == set(expected)
    for name, values in found.items():
        np.testing.assert_allclose(values, np.asarray(expected[name], dtype=float), err_msg=name)


HARMFUL = [
    "__import__('os').system('true')",
    "I(__import__('os'))",
    "I(age.__class__)",
    "I(().__class__.__bases__)",
    "I(eval('1'))",
    "I(open('x'))",
    "I([x for x in age])",
    "I((lambda: 1)())",
    "I(age if age else age)",
    "I(age[0])",
    "I(np.load('x'))",
    "I(np.age(age))",
    "I(f'{age}')",
    "I('a' * 1000000000)",
    "I((age := 1))",
    "bs(age, df=100000000)",
    "bs(age, df=4, degree=1000000)",
    "bs(age, knots=[__import__('os')])",
    "bs(bs(age, df=4), df=4)",
    "poly(age, 10 ** 9)",
    "C(age, __import__('os'))",
    "C(stage, ref=open('x'))",
    "log(age, sex)",
    "log(*age)",
    "I(" * 90 + "age" + ")" * 90 + " + " * 900,
]


@pytest.mark.parametrize("text", HARMFUL, ids=range(len(HARMFUL)))
def test_code_is_refused_in_formulas_and_in_model_files(text):
    with pytest.raises(ValueError, match="formula"):
        learned(text)
    state = learned("age").state()
    with pytest.raises(ValueError, match="formula"):
        Formula.from_state(state | {"terms": [[text]]}, list(DATA.columns))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agee", "'agee'.*columns are 'time'"),
        ("1", "no terms"),
        ("age +", "cannot be read"),
        ("age | sex", "cannot be read"),
        ("log(sex)", "categories such as"),
        ("log(age - 60)", "not finite in rows"),
        ("C(stage, ref='IV')", "'IV' .*'III', 'I', 'II'"),
        ("bs(grade, df=9)", "lower df"),
        ("bs(age)", "either df or knots"),
        ("bs(age, df=2)", "range"),
        ("bs(age, knots=[10])", "not distinct .*range"),
        ("ns(age, knots=[200])", "knots|Knots"),
        ("age + offset(sex)", "categories such as"),
        ("age + offset(C(grade))", "not supported"),
        ("C(age > 3)", "write C"),
        ("strata(sex) + age", "from_formula"),
    ],
)
def test_mistakes_are_explained(text, message):
    with pytest.raises(ValueError, match=message):
        learned(text)


def test_state_is_json_and_gives_the_same_columns():
    formula = learned("poly(age, 3) + bs(`body mass`, df=5) + ns(age, df=3):sex + scale(age) + C(grade, contr.sum)")
    state = json.loads(json.dumps(formula.state(), default=lambda value: value.item()))
    again = Formula.from_state(state, list(DATA.columns))
    np.testing.assert_array_equal(again.matrix(DATA.iloc[:5]), formula.matrix(DATA)[:5])
    assert (again.names, again.sources) == (formula.names, formula.sources)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("terms", []),
        ("terms", [[]]),
        ("terms", [["age"], [3]]),
        ("terms", [["unknown"]]),
        ("offsets", ["stage"]),
        ("learned", {}),
        ("learned", {"bs(age, df=4)": {}}),
        ("learned", {"bs(age, df=4)": {"knots": [1.0] * 9, "lower_bound": 1.0, "upper_bound": 2.0}}),
        ("learned", {"bs(age, df=4)": {"knots": [3.0, 2.0, 1.0], "lower_bound": 1.0, "upper_bound": 3.0}}),
        ("learned", {"bs(age, df=4)": {"knots": "x", "lower_bound": 1.0, "upper_bound": 3.0}}),
        ("levels", {}),
        ("levels", {"age": {"kind": "categorical"}}),
    ],
)
def test_states_that_do_not_fit_are_refused(key, value):
    state = learned("bs(age, df=4) + stage:age + C(grade)").state()
    Formula.from_state(state, list(DATA.columns))
    with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
        Formula.from_state(state | {key: value}, list(DATA.columns)).matrix(DATA)


def test_a_state_without_what_a_function_has_learned_is_refused():
    """It would be learned from the first rows to predict."""
    state = learned("age + center(age)").state()
    with pytest.raises(ValueError, match="do not belong together"):
        Formula.from_state(state | {"learned": {}}, list(DATA.columns))


def test_new_rows_use_what_was_learned():
    formula = learned("scale(age) + stage + C(grade)")
    one = formula.matrix(DATA.iloc[[7]])
    np.testing.assert_array_equal(one, formula.matrix(DATA)[[7]])
    for column, level in (("stage", "IV"), ("grade", 9)):
        with pytest.raises(ValueError, match=rf"'{column}' .*{level!r} in row 0, .* training"):
            formula.matrix(DATA.iloc[[7]].assign(**{column: [level]}))


def test_missing_values_stay_missing_in_a_transformer_and_the_estimator_decides():
    data = DATA.assign(age=DATA["age"].where(DATA.index > 4), sex=DATA["sex"].where(DATA.index != 9))
    made = FormulaTransformer("ns(age, df=2) + sex + grade").fit(data).transform(data)
    assert made.isna().sum().tolist() == [5, 5, 1, 0]
    unknown = FormulaTransformer("ns(age, df=2) + bs(age, df=3) + sex").fit(data).transform(data[data["age"].isna()])
    assert unknown.isna().sum().tolist() == [5] * 5 + [0]
    y = Surv.from_columns(data, "event", "time")
    chain = SurvivalPipeline([("columns", FormulaTransformer("ns(age, df=2) + sex + grade")), ("cox", CoxPH())])
    with pytest.warns(UserWarning, match="6 of 80 rows have missing values"):
        chain.fit(data, y)
    assert chain[-1].terms_ == made.columns.tolist() == chain[0].get_feature_names_out().tolist()
    whole = data.dropna()
    np.testing.assert_allclose(
        chain.predict_survival_function(whole, [0.5])[:, 0],
        CoxPH()
        .fit(made.loc[whole.index], y[whole.index])
        .predict_survival_function(made.loc[whole.index], [0.5])[:, 0],
    )


def test_a_transformer_serves_networks():
    y = Surv.from_columns(DATA, "event", "time")
    net = WeibullNet(n_members=1, max_epochs=1, random_state=0)
    chain = SurvivalPipeline([("columns", FormulaTransformer("bs(age, df=4) + stage:treated")), ("net", net)]).fit(
        DATA, y
    )
    assert chain.predict_survival_function(DATA.iloc[:3], [0.5, 1.0]).shape == (3, 2)


def test_a_transformer_needs_the_columns_of_its_formula_only():
    transformer = FormulaTransformer("age + sex").fit(DATA)
    assert transformer.transform(DATA[["sex", "age"]]).columns.tolist() == ["age", "sex[m]"]
    with pytest.raises(ValueError, match="'sex'"):
        transformer.transform(DATA[["age"]])
    with pytest.raises(TypeError, match="DataFrame"):
        FormulaTransformer("age").fit(DATA.to_numpy())
    with pytest.raises(ValueError, match="offset"):
        FormulaTransformer("age + offset(grade)").fit(DATA)


def test_outcomes():
    table = DATA.assign(
        start=DATA["time"] / 2, upper=DATA["time"].where(DATA["event"] == 1), cause=DATA["event"] * DATA["grade"]
    )
    pairs = {
        "Surv(time, event)": Surv.from_columns(table, "event", "time"),
        "Surv(time / 12, event == 1)": Surv.from_arrays(table["event"] == 1, table["time"] / 12),
        "Surv(start, time, event)": Surv.from_columns(table, "event", "time", entry="start"),
        "Surv(time, cause)": Surv.from_columns(table, "cause", "time"),
        "Surv(time, upper, type='interval')": Surv.interval(table["time"], table["upper"].fillna(np.inf)),
    }
    for left, expected in pairs.items():
        np.testing.assert_array_equal(model_frame(f"{left} ~ age", table).y, expected, err_msg=left)
    with pytest.raises(ValueError, match=r"status == 1.*nan"):  # not a row without event
        model_frame("Surv(time, status == 1) ~ age", table.assign(status=table["event"].where(table.index > 0)))
    for left in ("time", "Surv(time)", "Surv(time, event, type='left')", "Surv(time, gone)", "exec('x')"):
        with pytest.raises(ValueError, match="formula"):
            model_frame(f"{left} ~ age", table)


def test_roles_are_taken_out_of_the_formula():
    frame = model_frame("Surv(time, event) ~ . + strata(sex, stage) + cluster(grade) + offset(log(age))", DATA)
    assert frame.formula == "treated + `body mass` + offset(log(age))"
    assert frame.strata == ["sex", "stage"]
    assert frame.groups.equals(DATA["grade"])
    assert list(frame.X) == ["age", "sex", "stage", "treated", "body mass"]


@pytest.mark.parametrize("role", ["strata(sex)", "cluster(grade)"])
def test_a_transformer_refuses_roles_that_only_a_fit_can_use(role):
    with pytest.raises(ValueError, match="from_formula"):
        FormulaTransformer(f"age + {role}").fit(DATA)
