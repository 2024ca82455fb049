"""Partial dependence, individual curves and accumulated local effects against loops, closed forms and scikit-learn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import sklearn.inspection
import torch
from scipy.stats import ks_2samp
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from explain.formulas import Formula, TwoCauses, data
from sumosurv import CoxPH, KaplanMeier, Surv, WeibullNet
from sumosurv.explain import (
    QuantityRegressor,
    SurvShap,
    accumulated_local_effects,
    partial_dependence,
    permutation_importance,
    survshap,
)
from sumosurv.scores import make_survival_scorer

TIMES = np.array([0.3, 1.0])


@pytest.fixture(scope="module")
def fitted():
    X, y = data()
    return WeibullNet(n_members=3, max_epochs=8, covariate_layers=(8,), random_state=0).fit(X, y), X, y


def set_to(X, **values):
    made = X.copy()
    for name, value in values.items():
        made[name] = pd.Series([value] * len(X), index=X.index, dtype=X[name].dtype)
    return made


@pytest.mark.parametrize(("column", "values"), [("a", [-1.0, 0.5]), ("b", [0.0]), ("c", ["w", "u"]), ("d", [0, 1])])
def test_partial_dependence_is_the_mean_of_predictions_with_the_column_set(fitted, column, values):
    model, X, _ = fitted
    effect = partial_dependence(model, X, column, times=TIMES, values=values)
    for g, value in enumerate(values):
        curves = model.predict_survival_function(set_to(X, **{column: value}), TIMES)
        np.testing.assert_allclose(effect.individual[:, g], curves, atol=1e-12)
        np.testing.assert_allclose(effect.mean[g], curves.mean(axis=0), atol=1e-12)
    assert list(effect.grid[0]) == values


def test_limits_are_those_of_the_members(fitted):
    model, X, _ = fitted
    effect = partial_dependence(model, X, "a", times=1.0, values=[0.0], level=0.5)
    members = [one.survival(1.0).mean() for one in model.predict_members(set_to(X, a=0.0)).distributions]
    low, middle, high = sorted(members)
    # a member in the middle of its third: at 1/6, 1/2 and 5/6; quartiles lie a quarter of the way inwards
    assert effect.low[0, 0] == pytest.approx(low + 0.25 * (middle - low), abs=1e-12)
    assert effect.high[0, 0] == pytest.approx(high - 0.25 * (high - middle), abs=1e-12)


@pytest.mark.parametrize(
    ("quantity", "options", "ask"),
    [
        ("median", {}, lambda d: d.median()),
        ("restricted_mean", {"times": 1.5}, lambda d: d.restricted_mean(1.5)),
        ("cumulative_hazard", {"times": 0.7}, lambda d: d.cumulative_hazard(0.7)),
        ("cumulative_incidence", {"times": 0.7}, lambda d: d.cdf(0.7)),
        ("restricted_time_lost", {"times": 1.5}, lambda d: 1.5 - d.restricted_mean(1.5)),
    ],
)
def test_other_quantities(fitted, quantity, options, ask):
    model, X, _ = fitted
    effect = partial_dependence(model, X, "d", quantity=quantity, values=[1], **options)
    expected = ask(model.predict_distribution(set_to(X, d=1)))
    np.testing.assert_allclose(effect.individual[:, 0, 0], expected, rtol=1e-5)
    assert effect.mean[0, 0] == pytest.approx(expected.mean(), rel=1e-5)


def test_two_columns(fitted):
    model, X, _ = fitted
    effect = partial_dependence(model, X, ["c", "a"], times=TIMES, values=(["v", "u"], [-0.5, 0.0, 1.0]), max_rows=None)
    assert effect.mean.shape == (2, 3, 2)
    curves = model.predict_survival_function(set_to(X, c="u", a=0.0), TIMES)
    np.testing.assert_allclose(effect.mean[1, 1], curves.mean(axis=0), atol=1e-12)
    frame = effect.to_frame()
    one = frame[(frame["c"] == "u") & (frame["a"] == 0.0) & (frame["time"] == 1.0)]
    assert one["value"].item() == effect.mean[1, 1, 1]


def test_of_a_cause():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = TwoCauses(lambda X: np.exp(X[:, 1]))
    effect = partial_dependence(model, X, 0, cause=2, times=TIMES, values=[0.7])
    rows = X.copy()
    rows[:, 0] = 0.7
    expected = model.predict_distribution(rows).cumulative_incidence(TIMES)[..., 1].mean(axis=0)
    np.testing.assert_allclose(effect.mean[0], expected, atol=1e-12)
    for options, message in (
        ({"cause": 3}, "numbered from 1 to 2; got 3"),
        ({"quantity": "cumulative_incidence"}, "2 causes"),
        ({"quantity": "survival", "cause": 1}, "cause=1.*cumulative_incidence"),
    ):
        with pytest.raises(ValueError, match=message):
            partial_dependence(model, X, 0, **options)


def test_several_causes_are_predicted_at_once():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = TwoCauses(lambda X: np.exp(X[:, 1]))
    both = partial_dependence(model, X, 1, times=TIMES, cause=[2, 1])
    for cause, found in zip((2, 1), both, strict=True):
        alone = partial_dependence(model, X, 1, times=TIMES, cause=cause)
        assert found.quantity.cause == cause
        np.testing.assert_allclose(found.mean, alone.mean, rtol=1e-12)
        np.testing.assert_allclose(found.individual, alone.individual, rtol=1e-12)
    with pytest.raises(ValueError, match="cumulative_incidence alone"):
        partial_dependence(model, X, 1, times=TIMES, cause=[2, 1], quantity="restricted_time_lost")


def test_whole_weights_count_repeated_rows(fitted):
    model, X, _ = fitted
    weight = np.arange(len(X)) % 3
    repeated = X.iloc[np.repeat(np.arange(len(X)), weight)]
    for function in (partial_dependence, accumulated_local_effects):
        for column in ("a", "c"):
            options = {"values": list(X[column][:3])} if function is partial_dependence else {}
            one = function(model, X, column, times=TIMES, sample_weight=weight, **options)
            other = function(model, repeated, column, times=TIMES, **options)
            np.testing.assert_allclose(one.mean, other.mean, atol=1e-12)


def test_grids_are_values_that_occur():
    X, _ = data()
    X["e"] = pd.Series(["p", "q"] * 60, dtype=object)
    X["f"] = np.arange(120) % 2 == 0
    model = Formula(lambda X: np.ones(len(X)))
    grids = {name: list(partial_dependence(model, X, name, times=1.0, n_values=7).grid[0]) for name in X}
    assert len(grids["a"]) == 7
    assert set(grids["a"]) <= set(X["a"])
    assert np.isfinite(grids["b"]).all()
    assert grids["c"] == ["u", "v", "w"]
    assert grids["d"] == [0, 1]
    assert grids["e"] == ["p", "q"]
    assert grids["f"] == [False, True]


def test_categories_and_kinds_stay_what_they_are():
    X, y = data()
    seen = []

    class Spy(CoxPH):
        def predict_distribution(self, X):
            seen.append(X.dtypes)
            return super().predict_distribution(X)

    model = Spy(alpha=0.1, missing="indicator").fit(X, y)
    for column in X:
        partial_dependence(model, X, column, times=1.0, n_values=3)
        accumulated_local_effects(model, X, column, times=1.0, n_intervals=3)
    for dtypes in seen:
        pd.testing.assert_series_equal(dtypes, X.dtypes)


# ------------------------------------------------------------------ accumulated local effects


def test_effects_of_a_sum_are_its_terms():
    """Λ(1) = 1 + x² + g(level): its effects are these terms, centred, however the columns go together."""
    rng = np.random.default_rng(1)
    level = rng.choice(["p", "q", "r"], 400, p=[0.5, 0.3, 0.2])
    step = {"p": 0.0, "q": 1.0, "r": 0.3}
    X = pd.DataFrame({"x": rng.uniform(0, 1, 400) + (level == "q"), "level": level})
    model = Formula(lambda X: 1 + X["x"] ** 2 + X["level"].map(step).astype(float))
    number = accumulated_local_effects(model, X, "x", quantity="cumulative_hazard", times=1.0)
    edges = number.grid[0].astype(float)
    np.testing.assert_allclose(np.diff(number.mean[:, 0]), np.diff(edges**2), atol=1e-12)
    assert len(edges) == 21
    levels = accumulated_local_effects(model, X, "level", quantity="cumulative_hazard", times=1.0)
    centred = np.array([step[name] for name in levels.grid[0]]) - X["level"].map(step).mean()
    np.testing.assert_allclose(levels.mean[:, 0], centred, atol=1e-12)


def test_effects_are_the_sums_of_local_differences(fitted):
    model, X, _ = fitted
    effect = accumulated_local_effects(model, X, "b", times=TIMES, n_intervals=4)
    present = X[X["b"].notna()]
    edges = np.unique(np.quantile(present["b"], np.linspace(0, 1, 5), method="inverted_cdf"))
    np.testing.assert_array_equal(effect.grid[0], edges)
    total, middle, curve = np.zeros(2), np.zeros(2), [np.zeros(2)]
    for low, high in pairwise(edges):
        inside = present[(present["b"] > low) & (present["b"] <= high)]
        if low == edges[0]:
            inside = present[present["b"] <= high]
        upper, lower = (model.predict_survival_function(set_to(inside, b=end), TIMES) for end in (high, low))
        before, total = total, total + (upper - lower).mean(axis=0)
        middle = middle + len(inside) / len(present) * 0.5 * (before + total)
        curve.append(total)
    np.testing.assert_allclose(effect.mean, np.array(curve) - middle, atol=1e-12)


def test_local_effects_stay_where_the_data_are():
    """Two columns that are nearly the same, and a model that is wild where they differ: only ALE does not see that."""
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 1, 500)
    X = np.stack([x, x + rng.normal(0, 0.002, 500)], axis=1)

    def rate(X):
        return 1 + X[:, 0] + 20 * (np.abs(X[:, 0] - X[:, 1]) > 0.3)

    asked = {"quantity": "cumulative_hazard", "times": 1.0}
    local = accumulated_local_effects(Formula(rate), X, 0, **asked)
    assert local.mean[-1, 0] - local.mean[0, 0] == pytest.approx(1.0, abs=0.02)
    away = partial_dependence(Formula(rate), X, 0, **asked)
    assert away.mean.max() > 5


def test_unordered_levels_stand_beside_those_that_are_alike():
    rng = np.random.default_rng(3)
    centre = {"first": 0.0, "second": 1.0, "third": 2.0, "fourth": 3.0}  # alphabetically: first, fourth, second, third
    level = rng.choice(list(centre), 300)
    X = pd.DataFrame({"level": level, "x": pd.Series(level).map(centre) + rng.normal(0, 0.4, 300)})
    model = Formula(lambda X: np.ones(len(X)))
    found = list(accumulated_local_effects(model, X, "level", times=1.0).grid[0])
    assert found in (list(centre), list(centre)[::-1])
    X["word"] = pd.cut(X.pop("x"), [-9.0, 0.5, 1.5, 2.5, 9.0], labels=["n", "a", "z", "c"]).astype(object)
    found = list(accumulated_local_effects(model, X, "level", times=1.0).grid[0])
    assert found[0] in ("first", "fourth")
    assert found[-1] in ("first", "fourth")
    X["level"] = pd.Categorical(X["level"], ["third", "first", "fourth", "second"], ordered=True)
    assert list(accumulated_local_effects(model, X, "level", times=1.0).grid[0]) == list(X["level"].cat.categories)


# ------------------------------------------------------------------ among scikit-learn's tools


def test_scikit_learn_s_partial_dependence_is_ours(fitted):
    model, X, _ = fitted
    number = QuantityRegressor(model, "survival", times=1.0)
    theirs = sklearn.inspection.partial_dependence(number, X, ["a"], grid_resolution=5, kind="both")
    ours = partial_dependence(model, X, "a", times=1.0, values=theirs["grid_values"][0])
    np.testing.assert_allclose(ours.mean[:, 0], theirs["average"][0], atol=1e-12)
    np.testing.assert_allclose(ours.individual[..., 0], theirs["individual"][0], atol=1e-12)
    theirs = sklearn.inspection.partial_dependence(number, X, ["c"], categorical_features=["c"])
    ours = partial_dependence(model, X, "c", times=1.0)
    np.testing.assert_allclose(ours.mean[:, 0], theirs["average"][0], atol=1e-12)


def test_scikit_learn_s_permutation_importance_is_ours_on_average():
    X, y = data()
    model = WeibullNet(n_members=1, max_epochs=8, covariate_layers=(), random_state=0).fit(X, y)
    scorer = make_survival_scorer("log_likelihood")
    theirs = sklearn.inspection.permutation_importance(model, X, y, scoring=scorer, n_repeats=15, random_state=0)
    ours = permutation_importance(model, X, y, n_repeats=15, n_bootstrap=0).table.set_index("column")["value"]
    error = 4 * np.sqrt(2) * theirs["importances_std"] / np.sqrt(15)
    assert (np.abs(ours[list(X)].to_numpy() - theirs["importances_mean"]) <= error + 1e-12).all()


def test_the_regressor_is_one_number(fitted):
    model, X, y = fitted
    with pytest.raises(ValueError, match="50 times"):
        QuantityRegressor(model).predict(X)
    assert not QuantityRegressor(CoxPH(), "median").__sklearn_is_fitted__()
    again = QuantityRegressor(CoxPH(alpha=0.1, missing="indicator"), "restricted_mean", times=1.0).fit(X, y)
    np.testing.assert_allclose(again.predict(X), again.model_.predict_restricted_mean(X, 1.0), rtol=1e-9)
    assert again.score(X, y) == again.model_.score(X, y)


def test_pipelines_and_searches_are_explained_in_the_columns_they_are_given():
    X, y = data()
    X = X.drop(columns="b")
    columns = make_column_transformer((StandardScaler(), ["a", "d"]), (OneHotEncoder(), ["c"]))
    pipe = make_pipeline(columns, CoxPH(alpha=0.1, missing="indicator")).fit(X, y)
    search = GridSearchCV(make_pipeline(columns, CoxPH(missing="indicator")), {"coxph__alpha": [0.1]}, cv=2).fit(X, y)
    for model, own in ((pipe, pipe), (search, search.best_estimator_)):
        effect = partial_dependence(model, X, "c", times=TIMES)
        rows = own[:-1].transform(set_to(X, c="v"))
        expected = own[-1].predict_survival_function(rows, TIMES).mean(axis=0)
        np.testing.assert_allclose(effect.mean[1], expected, atol=1e-12)


def test_what_cannot_be_is_named(fitted):
    model, X, _ = fitted
    for options, message in (
        ({"columns": "z"}, "X has no column 'z'; its columns are a, b, c, d"),
        ({"columns": ["a", "b", "c"]}, "one column or a pair"),
        ({"columns": "c", "values": ["x"]}, r"has the categories 'u', 'v', 'w'; got 'x'"),
        ({"columns": "a", "values": ["x"]}, "holds numbers; got 'x'"),
        ({"columns": "a", "times": [2.0, 1.0]}, "strictly increasing"),
        ({"columns": "a", "times": [-1.0, 1.0]}, "non-negative"),
        ({"columns": "a", "quantity": "restricted_mean", "times": 0.0}, "positive; got 0"),
        ({"columns": "a", "quantity": "mean"}, "quantity must be one of survival"),
        ({"columns": "a", "quantity": "median", "times": 1.0}, "leave out times"),
        ({"columns": "a", "level": 95}, "level.*got 95"),
        ({"columns": "a", "cause": 2}, "numbered from 1 to 1; got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            partial_dependence(model, X, **options)
    with pytest.raises(TypeError, match="has no predict_distribution"):
        partial_dependence(StandardScaler(), X, "a")
    with pytest.raises(ValueError, match="only the value 3"):
        accumulated_local_effects(model, X.assign(a=3.0), "a")
    with pytest.raises(ValueError, match="missing in all rows"):
        accumulated_local_effects(model, X.assign(a=np.nan), "a")


def test_levels_that_were_not_seen_are_told_once_and_gradients_stay_on(fitted):
    model, X, _ = fitted
    strange = X.assign(c=pd.Categorical(["z"] * 60 + list(X["c"][60:])))
    with pytest.warns(UserWarning, match="not seen in training") as told:
        partial_dependence(model, strange, "a", times=1.0, n_values=4)
    assert len(told) == 1
    flat = KaplanMeier().fit(X[:3], Surv.from_arrays([True, False, False], [2.0, 3.0, 3.0]))
    with pytest.raises(ValueError, match=r"median of .* is infinite"):
        partial_dependence(flat, X, "a", quantity="median")
    assert torch.is_grad_enabled()


def test_text_and_frames(fitted):
    model, X, _ = fitted
    effect = partial_dependence(model, X, "c", times=TIMES)
    assert repr(effect).splitlines()[0] == "Partial dependence of the survival probability S(t) on c, 120 rows"
    assert list(effect.to_frame().columns) == ["c", "time", "value", "low", "high"]
    local = accumulated_local_effects(model, X, "a", quantity="median", n_intervals=3)
    assert list(local.to_frame().columns) == ["a", "value", "low", "high"]
    assert "Accumulated local effects of the median time on a" in repr(local)


def test_rows_with_a_missing_value_are_averaged_over_and_counted():
    X, y = data()
    X = X.assign(a=X["a"].where(np.arange(len(X)) % 2 == 0))
    model = WeibullNet(n_members=1, max_epochs=2, covariate_layers=(8,), random_state=0).fit(X, y)
    effect = partial_dependence(model, X, "a", times=1.0, values=[0.0], max_rows=None)
    assert (effect.n_rows, len(effect.individual)) == (len(X), len(X))
    assert f", {len(X)} rows" in repr(effect)
    assert ", 1 row\n" in repr(partial_dependence(model, X[:1], "a", times=1.0))
    for wrong in ({"n_values": -3}, {"n_values": 2.5}, {"max_rows": 0}, {"max_rows": 1.5}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be .*integer"):
            partial_dependence(model, X, "b", times=1.0, **wrong)
    with pytest.raises(TypeError, match=r"WeibullNet is a class; .* fitted"):
        partial_dependence(WeibullNet, X, "b", times=1.0)


def test_the_order_of_levels_is_that_of_their_distances():
    """Distances by SciPy: Kolmogorov and Smirnov's in numbers, total variation in categories; missing is a category."""
    rng = np.random.default_rng(7)
    level = rng.choice(list("pqrst"), 200)
    shift = {"p": 1.0, "q": -0.5, "r": 2.0, "s": 0.2, "t": -1.5}
    X = pd.DataFrame({"level": level, "x": pd.Series(level).map(shift) + rng.normal(size=200)})
    X["word"] = np.where(rng.random(200) < 0.3 + 0.1 * X["x"], "yes", None)
    X.loc[::9, "x"] = np.nan
    names, apart = sorted(set(level)), np.zeros((5, 5))
    for i, j in np.ndindex(5, 5):
        one, two = X[level == names[i]], X[level == names[j]]
        apart[i, j] = ks_2samp(one["x"].dropna(), two["x"].dropna()).statistic
        apart[i, j] += abs((one["word"] == "yes").mean() - (two["word"] == "yes").mean())
    middle = np.eye(5) - 0.2
    first = np.linalg.eigh(-0.5 * middle @ apart**2 @ middle)[1][:, -1]
    expected = [names[place] for place in np.argsort(first)]
    effect = accumulated_local_effects(Formula(lambda X: np.ones(len(X))), X, "level", times=1.0)
    assert list(effect.grid[0]) in (expected, expected[::-1])


@pytest.mark.parametrize("quantity", ["survival", "median", "restricted_mean"])
def test_tables_have_a_time_unless_the_quantity_has_none(fitted, quantity):
    model, X, _ = fitted
    asked = {"quantity": quantity} | ({} if quantity == "median" else {"times": TIMES})
    made = [
        partial_dependence(model, X, "c", **asked),
        accumulated_local_effects(model, X, "a", n_intervals=3, **asked),
        survshap(model, X[3:5], X[:6], **asked),
    ]
    for found in made:
        table, times = found.to_frame(), 1 if quantity == "median" else len(TIMES)
        assert ("time" in table) == (quantity != "median")
        values = found.values if isinstance(found, SurvShap) else found.mean
        np.testing.assert_array_equal(table["value"], values.ravel())
        assert values.shape[-1] == times
        if "time" in table:
            np.testing.assert_array_equal(table["time"], np.tile(TIMES, len(table) // times))
    assert list(made[2].to_frame()["subject"].unique()) == [3, 4]
