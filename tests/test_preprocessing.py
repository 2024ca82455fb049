"""Preprocessing: against scikit-learn, direct readings, and every dtype a frame can bring."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import stats
from sklearn.preprocessing import StandardScaler

from pandas_modes import pandas_copy_on_write
from sumosurv import (
    Conformal,
    CoxPH,
    PaperSumoNet,
    ParametricRegression,
    RandomSurvivalForest,
    SumoNet,
    Surv,
    SurvivalMixture,
)
from sumosurv.preprocessing import LevelNotes, NumericColumn, Preprocessor

RNG = np.random.default_rng(0)
NUMBERS = pd.DataFrame({"a": RNG.normal(5, 2, 60), "b": RNG.exponential(size=60), "c": RNG.integers(0, 9, 60)})


def read(fitted, frame):
    """Network inputs, with warnings of levels that were not seen in training."""
    notes = LevelNotes()
    fitted.note_levels(frame, notes)
    notes.warn()
    return fitted.transform(frame)


def numeric(frame, scaling="standard", new=None, **options):
    fitted = Preprocessor(scaling, **options).fit(frame)
    return fitted.transform(frame if new is None else new).numeric.numpy()


def test_standard_scaling_is_scikit_learn_s():
    new = pd.DataFrame({"a": [0.0, 99.0], "b": [1.0, -3.0], "c": [2, 40]})
    expected = StandardScaler().fit(NUMBERS).transform(new)
    np.testing.assert_allclose(numeric(NUMBERS, new=new), expected, rtol=1e-5)


def test_a_missing_value_is_the_centre_beside_an_indicator():
    frame = NUMBERS.copy()
    frame.loc[[3, 7], "a"] = np.nan
    result = numeric(frame)
    expected = StandardScaler().fit_transform(frame)  # which ignores missing values
    np.testing.assert_allclose(result[:, 0], np.nan_to_num(expected[:, 0]), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(result[:, 1], frame["a"].isna())
    assert result.shape == (60, 4)
    late = numeric(NUMBERS, new=frame)  # missing for the first time at prediction: the centre, nothing to flag
    assert late.shape == (60, 3)
    assert (late[[3, 7], 0] == 0.0).all()


def direct_scores(values, new):
    """Normal scores by a loop: the mean rank among the sorted training values, a line between two of them."""
    knots = np.sort(values)
    ranks = []
    for v in new:
        equal = np.flatnonzero(knots == v)
        if len(equal):
            rank = equal.mean()
        elif v < knots[0]:
            rank = 0.0
        elif v > knots[-1]:
            rank = len(knots) - 1.0
        else:
            right = int(np.argmax(knots > v))
            rank = right - 1 + (v - knots[right - 1]) / (knots[right] - knots[right - 1])
        ranks.append(rank)
    return stats.norm.ppf((np.array(ranks) + 0.5) / len(knots))


@pytest.mark.parametrize("column", ["a", "b", "c"])
def test_quantile_scaling_gives_normal_scores(column):
    """With fewer rows than knots the quantiles are the sorted values themselves."""
    frame = NUMBERS[[column]]
    new = np.concatenate([frame[column], [-100.0, 100.0, frame[column].median() + 0.1]]).astype(float)
    train = direct_scores(frame[column].to_numpy(float), frame[column].to_numpy(float))
    expected = (direct_scores(frame[column].to_numpy(float), new) - train.mean()) / train.std()
    result = numeric(frame, "quantile", pd.DataFrame({column: new}))
    np.testing.assert_allclose(result[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_quantile_scaling_of_many_rows_is_close_to_normal_whatever_the_shape():
    values = np.exp(3 * np.random.default_rng(1).normal(size=5000))
    result = numeric(pd.DataFrame({"x": values}), "quantile")[:, 0]
    assert stats.kstest(result, "norm").statistic < 0.01
    assert np.abs(result).max() < 4.0
    assert (np.argsort(result, kind="stable") == np.argsort(values, kind="stable")).mean() > 0.9
    assert stats.spearmanr(result, values).statistic > 0.9999


def test_two_valued_columns_are_standardised_in_either_way():
    frame = pd.DataFrame({"x": [0, 1, 1, 0, 1]})
    np.testing.assert_allclose(numeric(frame, "quantile"), numeric(frame, "standard"))


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_constant_and_empty_columns(scaling):
    frame = pd.DataFrame({"k": np.full(6, 3.0), "none": np.full(6, np.nan), "some": [2.0, np.nan, 2.0, 2.0, 2.0, 2.0]})
    result = numeric(frame, scaling)
    assert np.isfinite(result).all()
    np.testing.assert_array_equal(result[:, 0], 0.0)
    np.testing.assert_array_equal(result[:, 1:3], [[0.0, 1.0]] * 6)
    np.testing.assert_array_equal(result[:, 4], [0, 1, 0, 0, 0, 0])
    np.testing.assert_allclose(numeric(frame, scaling, frame.head(1).assign(k=4.0))[0, 0], 1.0)


@pytest.mark.parametrize(
    ("make", "levels"),
    [
        (lambda: pd.Series(["u", "v", None, "u"], dtype=object), ("u", "v")),
        (lambda: pd.Series(["u", "v", None, "u"], dtype="string"), ("u", "v")),
        (lambda: pd.Series(["u", "v", None, "u"], dtype="category"), ("u", "v")),
        (lambda: pd.Series(pd.Categorical([1, 2, None, 1], categories=[2, 1, 7])), (1, 2)),
        (lambda: pd.Series([False, True, None, False], dtype="boolean"), (False, True)),
        (lambda: pd.Series([False, True, None, False], dtype=object), (False, True)),
    ],
)
def test_categorical_dtypes(make, levels):
    column = make()
    fitted = Preprocessor().fit(pd.DataFrame({"x": column}))
    assert fitted.columns[0].levels == levels
    assert fitted.transform(pd.DataFrame({"x": column})).codes[:, 0].tolist() == [2, 3, 1, 2]
    assert fitted.levels == [4]
    assert fitted.n_numeric == 0


def test_plain_bool_is_a_category():
    fitted = Preprocessor().fit(pd.DataFrame({"x": [True, False, True]}))
    assert fitted.transform(pd.DataFrame({"x": [False, True]})).codes[:, 0].tolist() == [2, 3]
    assert fitted.transform(pd.DataFrame({"x": [0, 1]})).codes[:, 0].tolist() == [2, 3]


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "Float32", "int8", "uint16", "float32", object])
def test_numeric_dtypes(dtype):
    frame = pd.DataFrame({"x": pd.Series([1, 2, 3, 6], dtype=dtype)})
    np.testing.assert_allclose(numeric(frame), StandardScaler().fit_transform(frame.astype(float)), rtol=1e-5)


def test_nullable_and_object_numbers_with_gaps():
    for column in (pd.array([1, None, 3], "Int64"), pd.Series([1, None, 3.0], dtype=object), [1.0, np.nan, 3.0]):
        np.testing.assert_allclose(numeric(pd.DataFrame({"x": column})), [[-1, 0], [0, 1], [1, 0]], rtol=1e-6)


def test_unseen_and_missing_levels():
    fitted = Preprocessor().fit(pd.DataFrame({"x": ["u", "v"], "y": ["p", None]}))
    with pytest.warns(UserWarning, match="not seen in training") as caught:
        codes = read(fitted, pd.DataFrame({"x": ["w", None], "y": ["w", None]})).codes
    texts = [str(warning.message) for warning in caught]
    assert [text.split(" and are")[0] for text in texts] == [
        "Column 'x': 2 of 2 values were not seen in training ('w', missing)",
        "Column 'y': 1 of 2 values were not seen in training ('w')",
    ]
    assert codes.tolist() == [[0, 0], [0, 1]]  # x had no missing values to learn from: as good as unseen
    mixed = Preprocessor().fit(pd.DataFrame({"x": [1, "1", 2.5, True]}, dtype=object))
    assert mixed.levels == [5]  # 1 and True are one value to Python
    with pytest.warns(UserWarning, match="'x': 1 of 2 values were not seen"):
        assert read(mixed, pd.DataFrame({"x": ["1", "3"]}, dtype=object)).codes[1, 0] == 0


def test_one_hot_for_encoders():
    frame = pd.DataFrame({"n": [1.0, 3.0], "c": ["u", "v"]})
    fitted = Preprocessor(one_hot=True).fit(frame)
    with pytest.warns(UserWarning, match="Column 'c': 2 of 3 values"):
        inputs = read(fitted, pd.DataFrame({"n": [2.0, 3.0, 1.0], "c": ["v", "w", None]}))
    np.testing.assert_allclose(inputs.numeric, [[0, 0, 0, 0, 1], [1, 1, 0, 0, 0], [-1, 1, 0, 0, 0]])
    assert inputs.codes.shape == (3, 0)
    assert (fitted.n_numeric, fitted.levels) == (5, [])


def test_inputs_are_left_alone():
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0], "c": pd.Categorical(["u", None, "v"])})
    before = frame.copy(deep=True)
    array = np.array([[1.0, np.nan], [2.0, 3.0]])
    array.setflags(write=False)
    with pandas_copy_on_write():
        Preprocessor("quantile").fit(frame).transform(frame)
        Preprocessor().fit(array).transform(array)
    pd.testing.assert_frame_equal(frame, before)


def objects(*values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def arrow(values, kind):
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, kind)))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, np.inf, 2.0], r"'x' .*infinity in rows 1; replace"),
        (pd.date_range("2020", periods=3), "'x' .*durations.*into numbers"),
        (pd.to_timedelta([1, 2, 3], unit="D"), "Column 'x' holds dates or durations"),
        (pd.date_range("2020", periods=3, tz="UTC"), "Column 'x' holds dates"),
        ([date(2020, 1, 1), None, date(2020, 1, 3)], "Column 'x' holds dates"),
        (objects(np.datetime64("2020-01-01"), "x"), "Column 'x' holds dates"),
        (objects(np.timedelta64(3, "D"), 1.0), "Column 'x' holds dates"),
        (np.array([1 + 2j, 0, 1]), "Complex .*'x'"),
        (objects(np.complex128(1 + 2j), 1.0), "Column 'x'.*string or a real number"),
        (objects(np.bytes_(b"u"), "u"), "Column 'x'.*string or a real number"),
        (arrow([1, 2, None], pa.duration("s")), "Column 'x' holds dates or durations"),
        (arrow([1, 2, None], pa.time32("s")), "Column 'x' holds dates or durations"),
        (arrow([[1.0], [2.0], None], pa.list_(pa.float64())), "Column 'x'.*string or a real number"),
        (arrow([{"a": 1}, None], pa.struct([("a", pa.int64())])), "Column 'x'.*must be a string"),
        (pd.Categorical([1.0, np.inf, 1.0]), "Column 'x' has an infinite level"),
        (pd.Series([1, 10**400, None], dtype=object), r"'x' .*1e\+300 in rows 1;"),
    ],
)
def test_columns_that_cannot_be_used(column, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Preprocessor().fit(pd.DataFrame({"x": column}))


@pytest.mark.parametrize("kind", ["Float64", pd.ArrowDtype(pa.float64())])
def test_nan_in_a_nullable_column_is_a_missing_value(kind):
    """pandas does not count it as one: 0/0 of Float64 is NaN, and not NA."""
    plain = pd.DataFrame({"x": np.r_[np.nan, 1.0, 0.2:3.0:30j]})
    zero = pd.Series(np.r_[0.0, np.ones(31)], dtype=kind)
    odd = pd.DataFrame({"x": pd.Series(plain["x"].fillna(0.0), dtype=kind) / zero})
    assert not odd["x"].isna().any()
    y = Surv.from_arrays(np.arange(32) % 3 > 0, np.arange(1.0, 33.0))
    for estimator in (CoxPH(), CoxPH(formula="log(x)"), ParametricRegression()):
        with pytest.warns(UserWarning, match="1 of 32 rows have missing values"):
            expected = estimator.fit(plain, y).coef_
        with pytest.warns(UserWarning, match="1 of 32 rows have missing values"):
            np.testing.assert_array_equal(estimator.fit(odd, y).coef_, expected)


DATES = [
    "2021-03-{:02d}", "2021/03/{:02d}", "{:02d}.03.2021", "{:02d}.03.21", "03/{:02d}/21", "{}-Mar-21", "{:02d}MAR2021",
    "202103{:02d}T120000", "2021-03-{:02d} 12:00:00,500", "2021-03-{:02d}T12:00:00Z", "03/{:02d}/2021 1:15 PM",
    "Mon, {} Mar 2021", "March {}, 2021", "{}. März 2021", "{}:15 pm", "{}:15", "2021-W{:02d}", "{:02d}/Mar/2021",
    "{:02d}/Mar/2021:10:15:30 +0000", "2021-Mar-{:02d}", "Mon Mar {} 10:15:30 2021", "2021年3月{}日", "{}h15",
    "Mar '{:02d}", "'2021-03-{:02d}'", "2021-03-{:02d} 12",
]  # fmt: skip
MONTHS = ["2021-{:02d}", "{:02d}/2021"]


@pytest.mark.parametrize("text", [*DATES, *MONTHS])
def test_dates_as_text_are_refused(text):
    numbers = range(1, 13) if text in MONTHS else range(1, 24)
    column = [text.format(number) for number in numbers]
    with pytest.raises(ValueError, match="'x' holds dates or times"):
        Preprocessor().fit(pd.DataFrame({"x": column * 2}))
    Preprocessor().fit(pd.DataFrame({"x": pd.Categorical(column)}))  # as it was asked for


@pytest.mark.parametrize("text", ["{}%", "{} %", "% {}", "-{},5 %", ".{}%", "{}.%", "{}e-1%"])
def test_percentages_as_text_are_refused(text):
    column = [text.format(number) for number in (5, 25, 60)]
    with pytest.raises(ValueError, match="'x' holds percentages"):
        Preprocessor().fit(pd.DataFrame({"x": column * 2}))
    Preprocessor().fit(pd.DataFrame({"x": pd.Categorical(column)}))  # as it was asked for


def test_decimal_numbers_of_databases_are_numbers():
    numbers = pd.DataFrame({"x": [1.5, np.nan, -0.25, 2.0]})
    decimals = pd.DataFrame({"x": [Decimal("1.50"), None, Decimal("-0.25"), 2]}, dtype=object)
    fitted = Preprocessor().fit(decimals)
    assert isinstance(fitted.columns[0], NumericColumn)
    expected = Preprocessor().fit(numbers).transform(numbers)
    assert torch.equal(fitted.transform(decimals).numeric, expected.numeric)


def test_objects_that_are_neither_text_nor_numbers():
    with pytest.raises(TypeError, match=r"'x': .* real number, not 'dict'"):
        Preprocessor().fit(pd.DataFrame({"x": [{}, {}]}))


def test_a_numeric_column_that_became_text():
    fitted = Preprocessor().fit(NUMBERS)
    with pytest.raises(ValueError, match=r"'a' was numeric .* holds '4o'"):
        fitted.transform(pd.DataFrame({"a": [1.0, "4o"], "b": 1.0, "c": 1}))
    with pytest.raises(ValueError, match=r"'a' was numeric .* holds 'Total'"):  # the last line of a CSV file
        fitted.transform(pd.DataFrame({"a": ["1.5", "2", "Total"], "b": 1.0, "c": 1}))
    with pytest.raises(ValueError, match=r"'a' was numeric .* holds '1\.5'"):
        fitted.transform(pd.DataFrame({"a": ["1.5", "2"], "b": 1.0, "c": 1}))
    with pytest.raises(ValueError, match=r"'a' was numeric .* holds 'high'"):
        fitted.transform(pd.DataFrame({"a": ["high"], "b": [1.0], "c": [1]}))
    with pytest.raises(ValueError, match=r"'b' .*infinity in rows 0"):
        fitted.transform(pd.DataFrame({"a": [1.0], "b": [-np.inf], "c": [1]}))


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
@pytest.mark.parametrize("one_hot", [True, False])
def test_state_survives_json(scaling, one_hot):
    frame = NUMBERS.assign(
        s=["u", "vé", None] * 20, t=[True, False] * 30, i=pd.Categorical([3, 1, 2] * 20), f=[0.5, np.nan, 2.5] * 20
    )
    fitted = Preprocessor(scaling, one_hot=one_hot).fit(frame)
    again = Preprocessor.from_state(json.loads(json.dumps(fitted.state(), allow_nan=False)))
    assert again.columns == fitted.columns
    new = frame.sample(20, random_state=0)
    ours, theirs = again.transform(new), fitted.transform(new)
    np.testing.assert_array_equal(ours.numeric.numpy(), theirs.numeric.numpy())
    np.testing.assert_array_equal(ours.codes.numpy(), theirs.codes.numpy())
    assert (again.n_numeric, again.levels) == (fitted.n_numeric, fitted.levels)


# ---------------------------------------------------------------------- through the estimator

SMALL = {"n_members": 2, "covariate_layers": (8,), "time_layers": (6,), "max_epochs": 5, "random_state": 0}
NETWORKS = SMALL | {"components": "networks"}


def example(n=120):
    rng = np.random.default_rng(2)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(["x", "y"], n), "c": rng.random(n) > 0.5})
    time = np.round(rng.exponential(np.exp(X["a"])), 3) + 0.001
    return X, Surv.from_arrays(rng.random(n) < 0.7, time)


def test_names_and_order_are_checked_at_prediction():
    X, y = example()
    model = SumoNet(**NETWORKS).fit(X, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    with pytest.raises(ValueError, match=r"should match .* during fit"):
        model.predict(X.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match=r"in the same order .* in fit"):
        model.predict(X[["b", "a", "c"]])
    with pytest.raises(ValueError, match="missing"):
        model.predict(X[["a", "b"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X.to_numpy(dtype=object))


def test_an_odd_frame_goes_all_the_way_through():
    X, y = example()
    X = X.assign(
        missing=np.nan,
        constant=1,
        nullable=pd.array([1, None, 3] * 40, "Int64"),
        text=pd.array(["u", None] * 60, "string"),
        lot=[f"lot{i}" for i in range(120)],
    )
    with pytest.warns(UserWarning, match=r"'lot' .* category .* 120 rows"):
        model = SumoNet(**NETWORKS).fit(X, y)
    new = X.head(5).copy()
    new["b"] = ["never seen", None, "x", "y", "x"]
    with pytest.warns(UserWarning, match=r"'b': 2 of 5 .*'never seen', missing"):
        assert np.isfinite(model.predict(new)).all()
    with pytest.warns(UserWarning, match="Column 'b': 2 of 5 values"):
        assert np.isfinite(model.predict_mean(new)).all()


@pytest.mark.parametrize("make", [SumoNet, PaperSumoNet])
def test_the_unit_of_time_does_not_matter(make):
    X, y = example()
    days = y.copy()
    days["time"] *= 365.0
    one, two = (make(**SMALL).fit(X, outcome) for outcome in (y, days))
    assert two.time_unit_ == pytest.approx(365 * one.time_unit_)
    grid = np.quantile(y["time"], [0.01, 0.2, 0.5, 0.9, 1.0])
    np.testing.assert_allclose(
        two.predict_survival_function(X, 365 * grid), one.predict_survival_function(X, grid), rtol=2e-3, atol=1e-5
    )
    shift = y["event"].mean() * np.log(365)
    assert two.score(X, days) == pytest.approx(one.score(X, y) - shift, abs=1e-4)
    np.testing.assert_allclose(two.predict(X), one.predict(X), rtol=1e-3)
    if make is SumoNet:
        np.testing.assert_allclose(two.predict_median(X), 365 * one.predict_median(X), rtol=2e-3)


def test_integer_column_names_are_checked_too():
    frame = pd.DataFrame(np.arange(12.0).reshape(6, 2))
    fitted = Preprocessor().fit(frame)
    with pytest.raises(ValueError, match="expected '0', '1'; got '1', '0'"):
        fitted.transform(frame[[1, 0]])


def test_a_column_coded_in_another_way_is_named():
    frame = pd.DataFrame({"g": ["a", "b"] * 10})
    fitted = Preprocessor().fit(frame)
    with pytest.warns(UserWarning, match=r"'g': 20 of 20 .*'A', 'B'.* 'a', 'b'"):
        read(fitted, pd.DataFrame({"g": ["A", "B"] * 10}))


def test_unseen_levels_are_told_once_per_column_whatever_the_number_of_rows():
    X, y = example()
    model = SumoNet(**NETWORKS).fit(X, y)
    many = pd.concat([X] * 400, ignore_index=True)  # three blocks
    many.loc[[0, 30_000, 45_000], "b"] = ["p", "q", "p"]
    with pytest.warns(UserWarning, match="not seen") as caught:
        model.predict(many)
    assert len(caught) == 1
    assert "Column 'b': 3 of 48,000 values were not seen in training ('p', 'q')" in str(caught[0].message)
    mixture = SurvivalMixture.of([model, SumoNet(**NETWORKS).fit(X, y)])
    with pytest.warns(UserWarning, match="'b': 1 of 1 values were not seen") as caught:
        mixture.predict(many.head(1))
    assert len(caught) == 1


@pytest.mark.parametrize(
    "estimator",
    [
        SumoNet(**NETWORKS), CoxPH(missing="indicator"), RandomSurvivalForest(n_estimators=3, random_state=0),
        Conformal(estimator=CoxPH(missing="indicator"), random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)  # fmt: skip
def test_numbers_that_were_never_missing_in_training(estimator):
    X, y = example()
    X = X.assign(sometimes=X["a"].where(X.index % 5 > 0), whole=np.arange(120))
    model = estimator.fit(X, y)
    new = X.assign(a=X["a"].where(X.index != 3), whole=X["whole"].where(X.index > 1), sometimes=np.nan)
    with pytest.warns(UserWarning, match=r"3 of 120 rows .* never missing in training \('a', 'whole'\)") as caught:
        model.predict(new)
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="3 of 120 rows") as caught:
        model.score(new, y)
    assert len(caught) == 1
    model.predict(X.assign(sometimes=np.nan))


@pytest.mark.parametrize("pair", [("male", "Male"), ("male", "male "), ("stage 2", "stage  2")])
def test_levels_that_look_alike(pair):
    column = ["female", *pair] * 4
    with pytest.warns(UserWarning, match=f"'x' has the levels '{pair[0]}' and '{pair[1]}'"):
        Preprocessor().fit(pd.DataFrame({"x": column}))
    Preprocessor().fit(pd.DataFrame({"x": pd.Categorical(column)}))  # as it was asked for


def number_text(extra):
    return [str(i / 2) for i in range(197)] + list(extra)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (number_text(["4o"]), r"'x' .*198 categories.*but 1 .*'4o'"),
        (number_text(["?", "n/a"]), r"but 2 .*'\?', 'n/a'\. Correct .*mark"),
        ([f"{i},5" for i in range(40)], r"40 categories.*commas.*'0,5'"),
        (
            [f"{i:,.1f}" for i in range(2000, 2040)],
            r"commas.*'2,000\.0'\. .*decimal",
        ),
        (["0,5", "1", "1,5"] * 2, r"3 categories.*commas.*'0,5'"),
        (["1,000", "2,500"] * 2, r"2 categories.*commas"),
        (number_text([]) * 2, r"197 categories.*'0\.0'.*into numbers"),
        ([f"{i} days" for i in range(40)] * 2, r"other characters.*'0 days'"),
        ([f"<{i}" if i % 9 == 0 else str(i) for i in range(40)] * 2, r"other characters.*'<0'"),
        ([f"$ {i}'000" for i in range(40)] * 2, r"other characters.*\"\$ 0'000\""),
    ],
)
def test_a_typo_among_numbers_is_named(column, message):
    with pytest.warns(UserWarning, match=message):
        Preprocessor().fit(pd.DataFrame({"x": column}))
    Preprocessor().fit(pd.DataFrame({"x": pd.Categorical(column)}))  # as it was asked for


@pytest.mark.parametrize(
    "column",
    [
        [str(i) for i in range(197)] * 2,  # codes
        [f"{i}{letter}" for i in range(20) for letter in "ABC"] * 2,
        ["1", "2", "3", "4", "unknown"] * 5,
        [f"lot {i}" for i in range(50)] * 2,
        [*map(str, range(12)), *"abcdef"],
        ["may", "march", "Marker-21", "ICD-10", "HLA-27", "10/11", "2019/20", "1.2.3", "T1a"],
        ["0.5", "1.5", "2.5"],
        ["5 mg", "10 mg", "20 mg"],
        ["<5%", "5-10%", ">10%"],
        ["1:40", "1:160", "1:640"],  # titres
        ["1,2", "3", "none"],
    ],
)
def test_names_of_categories_are_left_alone(column):
    Preprocessor().fit(pd.DataFrame({"x": column}))


def test_columns_of_one_name_are_refused():
    X, y = example()
    twice = pd.concat([X, X[["a"]]], axis=1)
    with pytest.raises(ValueError, match="two columns named 'a'; rename"):
        SumoNet(**NETWORKS).fit(twice, y)


@pytest.mark.parametrize("n", [1, 2, 7, 1001])
def test_a_table_of_numbers_is_learned_as_column_by_column(n: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(n, 12)) * 10.0 ** rng.integers(-5, 5, 12)
    values[:, 3], values[:, 4] = 2.0, np.round(values[:, 4])
    values[:, 5] *= 1e150
    frame = pd.DataFrame(values, columns=list("abcdefghijkl"))
    mixed = frame.assign(kind="a")  # a category, so that columns are read one by one
    whole, single = Preprocessor().fit(frame), Preprocessor().fit(mixed)
    assert whole.columns == single.columns[:-1]
    np.testing.assert_array_equal(whole.table(frame)[0], single.table(mixed)[0])
    with_gap = frame.copy()
    with_gap.iloc[0] = np.nan
    np.testing.assert_array_equal(whole.table(with_gap)[0][1:], whole.table(frame)[0][1:])
    assert not whole.table(with_gap)[0][0].any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_columns_learned_together_are_those_learned_alone(scaling, weighted):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(40, 6)), columns=list("abcdef"))
    frame["whole"] = rng.integers(0, 5, 40)
    frame["two values"] = np.arange(40) % 2
    frame["constant"], frame["empty"], frame["huge"] = 3.0, np.nan, 1e200 * frame["f"]
    frame["words"] = rng.choice(["u", "v"], 40)
    for place, name in enumerate("bcd"):  # c and d miss the same rows
        frame.loc[frame.index % 7 == place // 2, name] = np.nan
    weight = rng.integers(1, 4, 40).astype(float) if weighted else None
    together = Preprocessor(scaling).fit(frame, weight)
    for name, column in zip(frame, together.columns):
        alone = Preprocessor(scaling).fit(frame[[name]], weight)
        assert [column] == alone.columns
    numbers, codes = together.table(frame)
    each = [Preprocessor(scaling).fit(frame[[name]], weight).table(frame[[name]]) for name in frame]
    np.testing.assert_array_equal(numbers, np.hstack([own for own, _ in each]))
    np.testing.assert_array_equal(codes, np.hstack([own for _, own in each]))


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_columns_of_a_wide_table_are_learned_many_at_a_time(scaling, monkeypatch):
    """A table with 200,000 columns is read in seconds, if no work in Python is repeated for each of them."""
    calls = []
    quantile = np.quantile
    monkeypatch.setattr(np, "quantile", lambda *given, **options: calls.append(1) or quantile(*given, **options))
    monkeypatch.setattr(pd.Series, "to_numpy", lambda self, *_, **__: pytest.fail("a column was read by itself"))
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3_000)))
    Preprocessor(scaling).fit(frame).table(frame)
    assert len(calls) <= 2
