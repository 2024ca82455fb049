"""Predictions of many rows in one array, of either precision, new or given."""

import numpy as np
import pandas as pd
import pytest
import torch

from sumosurv import SumoNet, datasets
from sumosurv.estimators import predictions
from sumosurv.estimators.predictions import ResultArray
from sumosurv.preprocessing import Preprocessor

TIMES = [0.2, 0.5, 1.0, 3.0]


@pytest.fixture(scope="module")
def model_and_rows():
    X, y = datasets.simulate("weibull", 150, random_state=0)
    return SumoNet(n_members=2, max_epochs=3, random_state=0).fit(X, y), X


def test_results_of_either_type_are_the_same_numbers(model_and_rows):
    model, X = model_and_rows
    usual = model.predict_survival_function(X, TIMES)
    assert usual.dtype == np.float64
    np.testing.assert_array_equal(usual, model.predict_distribution(X).survival(TIMES))
    small = model.predict_survival_function(X, TIMES, dtype="float32")
    assert small.dtype == np.float32
    np.testing.assert_array_equal(small, usual.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_given_array_is_filled_block_by_block(model_and_rows, monkeypatch, dtype):
    model, X = model_and_rows
    usual = model.predict_survival_function(X, TIMES)
    monkeypatch.setattr(predictions, "_BLOCK", 40)
    out = np.full((150, 4), np.nan, dtype=dtype)
    assert model.predict_survival_function(X, TIMES, out=out) is out
    np.testing.assert_allclose(out, usual, rtol=1e-12 if dtype is np.float64 else 1e-6)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"dtype": "float16"}, "dtype .*'float32'; got 'float16'"),
        ({"out": np.zeros((150, 3))}, r"\(150, 4\); got .*\(150, 3\)"),
        ({"out": np.zeros((150, 4), dtype=int)}, "got int64"),
        ({"out": np.zeros((4, 150)).T}, "contiguous"),
        ({"out": [[0.0]]}, "got list"),
    ],
)
def test_what_cannot_be_filled_is_refused(model_and_rows, wanted, message):
    model, X = model_and_rows
    with pytest.raises(ValueError, match=message):
        model.predict_survival_function(X, TIMES, **wanted)


def test_copies_under_way_are_waited_for_in_order(monkeypatch):
    events = []

    def copy(values):
        number = len(events)
        events.append(f"begun {number}")
        staged = torch.full_like(values, torch.nan)

        def wait():
            events.append("done")
            staged.copy_(values)

        return staged, wait

    values = torch.arange(20.0).reshape(10, 2)
    monkeypatch.setattr(predictions, "start_copy", copy)
    gathered = ResultArray(10)
    for i in range(0, 10, 3):
        gathered.put(slice(i, min(i + 3, 10)), values[i : i + 3])
    assert events.count("done") == 2  # of four copies two are still under way
    np.testing.assert_array_equal(gathered.array(), values.double())
    assert events.count("done") == 4


def test_numbers_prepared_as_on_a_device_are_those_of_the_host():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "normal": rng.normal(size=400),
            "ties": rng.integers(0, 5, 400).astype(float),
            "heavy": rng.standard_cauchy(400),
            "two": rng.integers(0, 2, 400).astype(float),
            "gaps": np.where(rng.random(400) < 0.3, np.nan, rng.exponential(size=400)),
        }
    )
    few = frame.assign(gaps=np.where(np.arange(400) < 30, frame["gaps"], np.nan))  # fewer knots than the others
    for training in (frame, few):
        for scaling in ("quantile", "standard"):
            columns = Preprocessor(scaling).fit(training)
            new = pd.concat([frame, 3.0 * frame, frame.iloc[:5] * np.nan], ignore_index=True)
            expected = columns.transform(new).numeric
            found = columns.transform_on(new, torch.device("cpu"))
            assert found.numeric.dtype == torch.float32
            np.testing.assert_allclose(found.numeric, expected, rtol=3e-7, atol=1e-7)
            assert found.codes.shape == (len(new), 0)


def test_a_table_for_a_device_is_checked_as_on_the_host():
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [1, 2, 3]})
    columns = Preprocessor("quantile").fit(frame)
    cpu = torch.device("cpu")
    with pytest.raises(ValueError, match=r"'a' .*infinity in rows 1"):
        columns.transform_on(frame.assign(a=[0.0, np.inf, 1.0]), cpu)
    with pytest.raises(ValueError, match="training columns"):
        columns.transform_on(frame[["b", "a"]], cpu)
    np.testing.assert_allclose(columns.transform_on(frame, cpu).numeric, columns.transform(frame).numeric, rtol=1e-6)
