"""SurvSHAP(t) against brute force, and what Shapley values must satisfy."""

from __future__ import annotations

from itertools import combinations, permutations
from math import factorial

import numpy as np
import pandas as pd
import pytest

from explain.formulas import Formula, TwoCauses, data
from sumosurv import CoxPH, KaplanMeier, Surv, WeibullNet
from sumosurv.explain import survshap

TIMES = np.array([0.2, 0.7, 1.5])


def tangled(X):
    x = np.asarray(X, dtype=float)
    return np.exp(0.5 * x[:, 0] * x[:, 1] - 0.4 * x[:, 2] + 0.3 * np.sin(2 * x[:, 0] + x[:, -1]))


def over_all_orders(predict, x, background, p):
    """The definition, one order after the other."""
    total = np.zeros((p, len(TIMES)))
    for order in permutations(range(p)):
        for z in background:
            row, before = z.copy(), predict(z[None])[0]
            for column in order:
                row[column] = x[column]
                after = predict(row[None])[0]
                total[column] += after - before
                before = after
    return total / (factorial(p) * len(background))


def over_all_sets(predict, x, background, p):
    """Shapley's formula, one set after the other."""
    worth = {}
    for size in range(p + 1):
        for chosen in combinations(range(p), size):
            rows = background.copy()
            rows[:, list(chosen)] = x[list(chosen)]
            worth[chosen] = predict(rows).mean(axis=0)
    values = np.zeros((p, len(TIMES)))
    for chosen, own in worth.items():
        for column in set(range(p)) - set(chosen):
            more = tuple(sorted((*chosen, column)))
            weight = factorial(len(chosen)) * factorial(p - len(chosen) - 1) / factorial(p)
            values[column] += weight * (worth[more] - own)
    return values


def survival_of(model):
    return lambda rows: model.predict_distribution(rows).survival(TIMES)


def test_exact_values_are_the_mean_over_all_orders():
    rng = np.random.default_rng(0)
    X, background = rng.normal(size=(2, 4)), rng.normal(size=(3, 4))
    model = Formula(tangled)
    found = survshap(model, X, background, times=TIMES)
    assert found.std_error is None
    for i, x in enumerate(X):
        np.testing.assert_allclose(
            found.values[i], over_all_orders(survival_of(model), x, background, 4), rtol=0, atol=1e-12
        )


def test_eight_columns_of_a_fitted_model_equal_brute_force():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 8))
    X[:, 3], X[:, 6] = X[:, 3] > 0, np.round(X[:, 6])  # values that repeat are not asked for twice
    y = Surv.from_arrays(rng.random(150) < 0.8, rng.weibull(1.5, 150) * np.exp(-X[:, 0] * X[:, 3]))
    model = WeibullNet(n_members=2, max_epochs=5, covariate_layers=(8,), random_state=0).fit(X, y)
    found = survshap(model, X[:2], X[10:13], times=TIMES, method="exact", precision="double")
    for i in range(2):
        expected = over_all_sets(survival_of(model), X[i], X[10:13], 8)
        np.testing.assert_allclose(found.values[i], expected, rtol=0, atol=1e-12)
    drawn = survshap(model, X[:2], X[10:13], times=TIMES, n_permutations=100, precision="double")
    assert np.abs(drawn.values - found.values).max() < 0.01
    assert np.abs(drawn.values - found.values).max() > 0.0


@pytest.mark.parametrize("method", ["exact", "permutations"])
def test_values_sum_to_the_prediction_less_the_base(method):
    X, y = data()
    model = CoxPH(alpha=0.1, missing="indicator").fit(X, y)
    found = survshap(model, X[:9], X, times=TIMES, method=method, n_background=20)
    np.testing.assert_allclose(found.values.sum(axis=1), found.predicted - found.base, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.predicted, model.predict_survival_function(X[:9], TIMES), atol=1e-12)
    on_background = model.predict_survival_function(found.background, TIMES)
    np.testing.assert_allclose(found.base, on_background.mean(axis=0), atol=1e-12)
    assert found.columns == ("a", "b", "c", "d")
    assert len(found.background) == 20


def test_permutations_are_within_their_standard_errors():
    rng = np.random.default_rng(2)
    X, background = rng.normal(size=(4, 6)), rng.normal(size=(40, 6))
    model = Formula(tangled)
    exact = survshap(model, X, background, times=TIMES, method="exact")
    drawn = survshap(model, X, background, times=TIMES, method="permutations", n_permutations=120)
    used = drawn.std_error > 0
    assert used.mean() > 0.6
    assert (np.abs(drawn.values - exact.values) <= 4 * drawn.std_error + 1e-12).all()
    again = survshap(model, X, background, times=TIMES, method="permutations", n_permutations=120)
    np.testing.assert_array_equal(drawn.values, again.values)
    other = survshap(model, X, background, times=TIMES, method="permutations", n_permutations=120, random_state=1)
    assert not np.array_equal(drawn.values, other.values)


def test_the_reverse_of_each_order_makes_pairs_of_columns_exact():
    """With interactions of two columns only, the mean over an order and its reverse is the Shapley value."""
    rng = np.random.default_rng(3)
    X, background = rng.uniform(1, 2, size=(3, 7)), rng.uniform(1, 2, size=(5, 7))
    model = Formula(lambda X: X[:, 0] * X[:, 1] + X[:, 2] * X[:, 5] + X[:, 3] + X[:, 4] * X[:, 0])
    drawn, exact = (
        survshap(model, X, background, times=1.0, quantity="cumulative_hazard", method=method, precision="double")
        for method in ("permutations", "exact")
    )
    np.testing.assert_allclose(drawn.values, exact.values, rtol=0, atol=1e-12)


def test_columns_without_a_say_and_columns_with_the_same_say():
    rng = np.random.default_rng(4)
    X, background = rng.normal(size=(3, 3)), rng.normal(size=(6, 3))
    X[:, 1], background[:, 1] = X[:, 0], background[:, 0]
    found = survshap(Formula(lambda X: np.exp(X[:, 0] + X[:, 1])), X, background, times=TIMES)
    np.testing.assert_allclose(found.values[:, 2], 0.0, atol=1e-15)
    np.testing.assert_allclose(found.values[:, 0], found.values[:, 1], atol=1e-14)
    assert list(found.importance().index[-1:]) == ["x2"]


def test_importance_is_the_mean_over_time_of_the_mean_absolute_value():
    rng = np.random.default_rng(8)
    X, background = rng.normal(size=(4, 2)), rng.normal(size=(5, 2))
    times = np.array([0.1, 0.2, 2.0])  # far from even
    found = survshap(Formula(lambda X: np.exp(X[:, 0] - 0.5 * X[:, 1])), X, background, times=times)
    expected = np.trapezoid(np.abs(found.values).mean(axis=0), times, axis=-1) / (times[-1] - times[0])
    importance = found.importance().loc[["x0", "x1"]]
    np.testing.assert_allclose(np.ravel(importance.to_numpy(dtype=float))[:2], expected, atol=1e-12)


def test_the_value_of_a_restricted_mean_is_the_integral_of_the_values_of_the_curve():
    rng = np.random.default_rng(5)
    X, background = rng.normal(size=(2, 3)), rng.normal(size=(4, 3))
    model = Formula(lambda X: np.exp(X[:, 0] * X[:, 1] + X[:, 2]))
    grid = np.linspace(0.0, 1.5, 4001)
    curve = survshap(model, X, background, times=grid).values
    mean = survshap(model, X, background, quantity="restricted_mean", times=1.5).values[..., 0]
    width = np.diff(grid)
    np.testing.assert_allclose(mean, (0.5 * (curve[..., 1:] + curve[..., :-1]) * width).sum(axis=-1), atol=1e-6)


def test_incidences_of_causes_and_medians():
    rng = np.random.default_rng(6)
    X, background = rng.normal(size=(2, 2)), rng.normal(size=(5, 2))
    model = TwoCauses(lambda X: np.exp(X[:, 1]))
    both = [survshap(model, X, background, cause=k, times=TIMES).values for k in (1, 2)]
    whole = survshap(model, X, background, times=TIMES).values
    np.testing.assert_allclose(both[0] + both[1], -whole, atol=1e-12)  # F1 + F2 = 1 - S
    median = survshap(Formula(lambda X: np.exp(X[:, 1])), X, background, quantity="median")
    expected = np.log(2) * (np.exp(-X[:, 1]) - np.exp(-background[:, 1]).mean())
    np.testing.assert_allclose(median.values[:, 1, 0], expected, rtol=1e-8)
    np.testing.assert_allclose(median.values[:, 0], 0.0, atol=1e-15)


def test_columns_may_enter_together():
    rng = np.random.default_rng(7)
    X, background = rng.normal(size=(2, 3)), rng.normal(size=(4, 3))
    found = survshap(Formula(tangled), X, background, times=TIMES, columns={"pair": ["x0", "x1"]})
    assert found.columns == ("pair", "x2")

    def merged(rows):  # the same game between two players
        return survival_of(Formula(tangled))(rows)

    for i, x in enumerate(X):
        with_pair, with_last = background.copy(), background.copy()
        with_pair[:, :2], with_last[:, 2] = x[:2], x[2]
        none, all_ = merged(background).mean(axis=0), merged(x[None])[0]
        pair = 0.5 * (merged(with_pair).mean(axis=0) - none + all_ - merged(with_last).mean(axis=0))
        np.testing.assert_allclose(found.values[i, 0], pair, atol=1e-12)


def test_what_is_equal_is_not_asked_for():
    X = np.array([[1.0, 2.0, 3.0, np.nan]])
    background = np.array([[1.0, 2.0, 5.0, np.nan], [1.0, 4.0, 5.0, np.nan]])
    model = Formula(lambda X: np.exp(0.1 * np.nan_to_num(X).sum(axis=1)))
    found = survshap(model, X, background, times=1.0)
    np.testing.assert_array_equal(found.values[0, [0, 3]], 0.0)
    assert model.rows == 1 + 3 + 2  # one to ask about times, the ends, and two sets of the second pair


def test_a_long_background_is_represented_by_rows_at_equal_steps_of_the_prediction():
    rng = np.random.default_rng(8)
    background = rng.normal(size=(900, 2))
    model = Formula(lambda X: np.exp(X[:, 0]))
    found = survshap(model, background[:1], background, times=1.0, n_background=30)
    everyone = model.predict_distribution(background).survival(1.0).mean()
    assert found.base[0] == pytest.approx(everyone, abs=2e-3)  # 30 random rows have a standard error of 0.05


def test_the_frame_and_the_text():
    X, y = data()
    found = survshap(CoxPH(alpha=0.1, missing="indicator").fit(X, y), X[5:8], X[:20], times=TIMES)
    frame = found.to_frame()
    assert list(frame.columns) == ["subject", "column", "time", "value", "std_error"]
    assert len(frame) == 3 * 4 * 3
    one = frame[(frame["subject"] == 6) & (frame["column"] == "c") & (frame["time"] == 0.7)]
    assert one["value"].item() == found.values[1, 2, 1]
    text = repr(found)
    assert "3 subjects, 4 columns, exact" in text
    assert max(map(len, text.splitlines()[1:])) <= 80


def test_what_cannot_be_is_named():
    X = np.zeros((2, 20))
    model = Formula(lambda X: np.ones(len(X)))
    with pytest.raises(ValueError, match=r"2\^20 predictions"):
        survshap(model, X, X, method="exact")
    with pytest.raises(ValueError, match="kernel"):
        survshap(model, X, X, method="kernel")
    with pytest.raises(ValueError, match="different columns"):
        survshap(model, X, X[:, :3])
    with pytest.raises(ValueError, match="X has no column 'z'"):
        survshap(model, X, X, columns={"z": ["z"]})
    curve = KaplanMeier().fit(np.zeros((3, 20)), Surv.from_arrays([True, False, False], [2.0, 3.0, 3.0]))
    with pytest.raises(ValueError, match="infinite"):
        survshap(curve, X, X, quantity="median")
    with pytest.raises(ValueError, match="Images"):
        survshap(model, np.zeros((2, 3, 3)), np.zeros((2, 3, 3)))
    frame = pd.DataFrame(X)
    with pytest.raises(TypeError, match="One table is a DataFrame"):
        survshap(Formula(lambda X: np.ones(len(X))), frame.rename(columns=lambda c: f"x{c}"), X)
