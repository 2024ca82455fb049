"""Explanations as text and in blocks: every number that is printed is that of the result."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from explain.formulas import Formula
from sumosurv.distributions import Gompertz, Weibull
from sumosurv.explain import Contrast, Effect, Importance, Quantity, SurvShap, partial_dependence
from sumosurv.explain import _quantity as quantities

TIMES = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 16.0])
CURVE = Quantity("survival", TIMES, None, 9.0)
MEDIAN = Quantity("median", np.empty(0), None, 9.0)
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(4, 12)), columns=[f"x{j}" for j in range(12)])


def words(line):
    return line.split()


def test_at_most_five_times_are_printed_the_last_among_them():
    assert quantities.spread_out(5, 5).tolist() == [0, 1, 2, 3, 4]
    assert quantities.spread_out(7, 5).tolist() == [1, 2, 4, 5, 6]
    mean = RNG.random((3, 7))
    effect = Effect(
        "partial dependence", ("a",), ("number",), (np.array([0.0, 1.25, 2.0]),), CURVE, mean, None, None, 0.9, None,
        (np.zeros(4),), 1,
    )  # fmt: skip
    head, times, *lines, note = repr(effect).splitlines()
    assert head == "Partial dependence of the survival probability S(t) on a, 1 row"
    assert times.split()[2::3] == ["1", "2", "8", "10", "16"]
    for line, value, own in zip(lines, ("0", "1.25", "2"), mean):
        assert words(line) == [value, *(f"{v:.4g}" for v in own[[1, 2, 4, 5, 6]])]
    assert "9" in note  # the last training time, past which there are times
    many = Effect(
        "partial dependence", ("a",), ("number",), (np.arange(30.0),), MEDIAN, np.arange(30.0)[:, None], None, None,
        0.9, None, (np.zeros(4),), 2,
    )  # fmt: skip
    lines = repr(many).splitlines()
    assert len(lines) == 2 + 12
    assert words(lines[-1]) == ["29", "29"]
    assert lines[0].endswith(", 2 rows")


def test_nothing_is_said_of_extrapolation_up_to_the_last_training_time():
    assert quantities.beyond(np.array([9.0]), CURVE) == ""
    assert "9" in quantities.beyond(np.array([1.0, 9.5]), CURVE)
    assert quantities.beyond(np.array([99.0]), Quantity("survival", TIMES, None, None)) == ""


def test_an_importance_has_forty_lines():
    columns = ["column", "score", "cause", "time", "value", "low", "high", "std_error"]
    rows = [(f"x{j}", "brier", np.nan, 1.0, j / 7, j / 9, j / 5, 0.1) for j in range(41)]
    for n in (40, 41):
        table = pd.DataFrame(rows[:n], columns=columns)
        text = repr(Importance(table, table[:0], 3, 0.9)).splitlines()
        assert "mean of 3 repeats, 90% limits" in text[0]
        assert words(text[1]) == ["column", "score", "time", "value", "low", "high"]
        assert words(text[41])[0] == "x39"
        assert [float(word) for word in words(text[5])[2:]] == pytest.approx([1.0, 3 / 7, 3 / 9, 3 / 5], rel=1e-3)
        assert text[42:] == ([] if n == 40 else ["... 1 more lines"])


@pytest.mark.parametrize("exact", [True, False])
def test_shapley_values_are_printed_for_the_ten_most_important_columns(exact):
    values = RNG.normal(size=(4, 12, 7)) * np.arange(1, 13)[:, None]
    error = None if exact else np.full(values.shape, 0.25)
    shap = SurvShap(tuple(X.columns), CURVE, values, np.zeros(7), values.sum(axis=1), error, X, X[:1])
    width = np.diff(TIMES)
    absolute = np.abs(values).mean(axis=0)
    each = (0.5 * (absolute[:, 1:] + absolute[:, :-1]) * width).sum(axis=1) / width.sum()
    found = shap.importance()
    np.testing.assert_allclose(found[list(X.columns)], each)
    assert found.is_monotonic_decreasing
    lines = repr(shap).splitlines()
    how = "exact" if exact else "sampled permutations"
    assert lines[0].endswith(f"4 subjects, 12 columns, {how}, against 1 background row")
    body = lines[3:13]
    assert [words(line)[0] for line in body] == list(found.index[:10])
    first = absolute[int(found.index[0][1:])]
    assert words(body[0])[1:] == [f"{v:.4g}" for v in first[[1, 2, 4, 5, 6]]]
    assert set(shap.to_frame()["std_error"]) == {0.0 if exact else 0.25}
    flat = SurvShap(tuple(X.columns), MEDIAN, values[..., :1], np.zeros(1), np.zeros((4, 1)), None, X, X)
    np.testing.assert_allclose(flat.importance()[list(X.columns)], absolute[:, 0])


@pytest.mark.parametrize("source", ["members", "bootstrap", "none"])
def test_a_contrast_is_printed_with_the_source_of_its_limits(source):
    curves = np.stack([np.exp(-TIMES / 9), np.exp(-TIMES / 5)])
    gap = curves[0] - curves[1]
    limits = (gap - 0.1, gap + 0.2) if source != "none" else (None, None)
    numbers = pd.DataFrame({"first": [3.0], "second": [np.nan], "difference": [np.nan]}, index=["median"])
    found = Contrast(("one", "second"), CURVE, curves, None, None, gap, *limits, numbers, source, 0.9, 7, "meant so")
    frame = found.to_frame()
    assert ("low" in frame) == ("high" in frame) == (source != "none")
    np.testing.assert_array_equal(frame["difference"], gap)
    lines = repr(found).splitlines()
    assert lines[0] == "survival probability S(t): one (first) less second, mean of 7 rows"
    assert lines[-1] == "meant so"
    assert ("90%" in lines[-2]) == (source != "none")
    row = next(words(line) for line in lines if line.startswith("t = 8 "))
    assert row[3:6] == [f"{v:.4g}" for v in (curves[0, 4], curves[1, 4], gap[4])]
    median = next(words(line) for line in lines if line.startswith("median"))
    assert median[1:4] == ["3", "–", "–"]
    alone = Contrast(("first", "b"), CURVE, curves, None, None, gap, None, None, numbers, "none", 0.9, 1, "")
    assert repr(alone).splitlines()[0] == "survival probability S(t): first less b (second)"


def test_names_of_quantities_and_times():
    lost = Quantity("restricted_time_lost", np.array([5.0, 20_000.0]), 2, None)
    assert lost.label.endswith("of cause 2")
    assert [lost.time_name(i, "days") for i in (0, 1)] == ["up to 5 days", "up to 20,000 days"]
    assert CURVE.time_name(0) == "t = 0.5"
    assert MEDIAN.time_name(0, "days") == ""
    assert [q.is_curve for q in (lost, CURVE, MEDIAN)] == [False, True, False]
    assert quantities._short("x" * 28) == "x" * 28
    assert quantities._short("x" * 29) == "x" * 27 + "…"


@pytest.mark.parametrize("d", [Weibull([1.0, 2.0], 1.5), Gompertz([0.5, 1.0], 0.3)])
def test_restricted_means_by_few_nodes_are_those_of_the_distribution(d):
    horizons = np.array([0.3, 1.0, 2.5])
    np.testing.assert_allclose(quantities._restricted_mean(d, horizons), d.restricted_mean(horizons), rtol=1e-5)
    mean = Quantity("restricted_mean", horizons, None, None)
    lost = Quantity("restricted_time_lost", horizons, 1, None)
    np.testing.assert_allclose(lost.of(d) + mean.of(d), np.tile(horizons, (2, 1)), rtol=1e-5)


@pytest.mark.parametrize("limit", ["_ROWS", "_CELLS"])
def test_blocks_of_rows_do_not_show(limit, monkeypatch):
    model = Formula(lambda X: np.exp(X["x0"]), lambda X: np.exp(X["x1"]))
    rows = pd.concat([X] * 5, ignore_index=True)
    plain = partial_dependence(model, rows, "x0", times=[0.5, 1.0], values=[0.0, 1.0])
    monkeypatch.setattr(quantities, limit, 3)
    found = partial_dependence(model, rows, "x0", times=[0.5, 1.0], values=[0.0, 1.0])
    np.testing.assert_allclose(found.individual, plain.individual, rtol=1e-12)


def test_defaults_follow_from_the_last_training_time():
    model = Formula(lambda X: np.exp(X["x0"]), last_time=3.0)
    curve = partial_dependence(model, X, "x0", n_values=2).quantity
    np.testing.assert_allclose(curve.times, np.linspace(0.0, 3.0, 50))
    assert partial_dependence(model, X, "x0", n_values=2, quantity="restricted_mean").quantity.times.tolist() == [3.0]
    for asked, message in (
        ({"quantity": "median", "times": 1.0}, "no times"),
        ({"quantity": "restricted_mean", "times": 0.0}, "positive"),
        ({"quantity": "survival", "cause": 1}, "any cause"),
        ({"quantity": "hazard"}, "quantity must be"),
        ({"times": []}, "times must be"),
    ):
        with pytest.raises(ValueError, match=message):
            partial_dependence(model, X, "x0", n_values=2, **asked)
    with pytest.raises(ValueError, match="times is required"):
        partial_dependence(Formula(lambda X: np.exp(X["x0"]), last_time=None), X, "x0", n_values=2)
