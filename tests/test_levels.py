"""Categories that are numbers in one table and text in another are the same categories, and it is said."""

import io
import warnings

import numpy as np
import pandas as pd
import pytest

from sumosurv import LogNormalNet
from sumosurv.preprocessing import LevelNotes, Preprocessor, find_rewritten, ways_to_write


def read(fitted, frame):
    """Network inputs, with warnings of levels that were not seen in training."""
    notes = LevelNotes()
    fitted.note_levels(frame, notes)
    notes.warn()
    return fitted.transform(frame)


@pytest.mark.parametrize(
    ("levels", "values", "places"),
    [
        ((0, 1), ["0", "1", "1.0", "2", "x"], [0, 1, 1, -1, -1]),
        (("0", "1"), [0, 1.0, np.int64(1), 2], [0, 1, 1, -1]),
        ((False, True), ["False", "TRUE", "true", "1"], [0, 1, 1, -1]),
        (("true", "false"), [True, np.bool_(False)], [0, 1]),
        (("1", "01", "2"), [1, 2], [-1, 2]),  # 1 may be either
        (("a", "b"), ["A", "b ", "nan"], [-1, -1, -1]),
        ((1.5,), ["1.5", "1.50"], [0, 0]),
    ],
)
def test_values_find_the_level_they_mean(levels, values, places):
    assert find_rewritten(levels, np.array(values, dtype=object)).tolist() == places
    texts = ways_to_write(levels[0])
    assert (find_rewritten(levels[:1], np.array(texts, dtype=object)) != 0).sum() == (texts == ["a"])


@pytest.mark.parametrize("trained_on", ["text", "numbers"])
def test_codes_do_not_depend_on_how_levels_are_written(trained_on):
    numbers = pd.DataFrame({"grade": pd.Categorical([0, 1, 0, 1, 1])})
    text = numbers.astype(str).astype("category")
    train, new = (text, numbers) if trained_on == "text" else (numbers, text)
    fitted = Preprocessor().fit(train)
    expected = fitted.transform(train).codes
    with pytest.warns(UserWarning, match=r"'grade': 5 of 5 .* spelled") as told:
        found = read(fitted, new).codes
    assert found.tolist() == expected.tolist()
    assert len(told) == 1


def test_unseen_and_missing_values_stay_what_they_are():
    fitted = Preprocessor().fit(pd.DataFrame({"c": pd.Categorical([0, 1, None])}))
    with pytest.warns(UserWarning, match="of 4 values") as told:
        codes = read(fitted, pd.DataFrame({"c": ["1", "7", None, "0"]})).codes[:, 0].tolist()
    assert codes == [3, 0, 1, 2]
    texts = sorted(str(one.message) for one in told)
    assert "1 of 4 values were not seen" in texts[0]
    assert "2 of 4 values are spelled differently" in texts[1]


def test_predictions_of_a_csv_equal_those_of_the_table_it_was_written_from():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"sex": pd.Categorical(rng.choice(["0", "1"], 80)), "age": rng.normal(size=80).round(3)})
    time = rng.exponential(np.where(X["sex"] == "1", 3.0, 1.0))
    model = LogNormalNet(n_members=1, max_epochs=3, random_state=0).fit(X, (time, np.ones(80)))
    read = pd.read_csv(io.StringIO(X.to_csv(index=False)))
    read["sex"] = read["sex"].astype("category")
    with pytest.warns(UserWarning, match="80 of 80 values are spelled"):
        found = model.predict_median(read)
    np.testing.assert_array_equal(found, model.predict_median(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_median(X)


@pytest.mark.parametrize("kind", ["polars", "arrow"])
def test_other_kinds_of_tables(kind):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"stage": rng.choice(["I", "II"], 60), "age": rng.normal(size=60)})
    model = LogNormalNet(n_members=1, max_epochs=2, random_state=0).fit(X, (rng.exponential(size=60), np.ones(60)))
    if kind == "polars":
        table = pytest.importorskip("polars", reason="polars is not installed").DataFrame(X.to_dict("list"))
    else:
        table = pytest.importorskip("pyarrow").Table.from_pandas(X)
    np.testing.assert_array_equal(model.predict_median(table), model.predict_median(X))
    assert model.predict_median(table, as_frame=True).shape == (60, 2)
