"""Summaries of bounded size: exact where they say so, within their bounds elsewhere, however rows are split."""

import numpy as np
import pytest

from sumosurv.outcome import Outcome
from sumosurv.preprocessing.columns import quantiles
from sumosurv.sources import LevelSketch, Moments, OutcomeSketch, QuantileSketch, RowSample, hashed, uniform


def ranks(values, weight, points):
    """The weight of the rows up to each point, as a share; and before it."""
    order = np.argsort(values)
    ends = np.concatenate([[0.0], np.cumsum(weight[order])]) / weight.sum()
    return ends[np.searchsorted(values[order], points, "left")], ends[np.searchsorted(values[order], points, "right")]


def test_few_distinct_numbers_are_kept_exactly_however_many_rows():
    rng = np.random.default_rng(0)
    values, weight = rng.integers(0, 50, 20_000).astype(float), rng.integers(1, 4, 20_000).astype(float)
    sketch = QuantileSketch(size=64)
    for part in np.array_split(np.arange(20_000), 37):
        sketch.add(values[part], weight[part])
    points, masses = sketch.points()
    assert sketch.exact
    assert sketch.error == 0.0
    np.testing.assert_array_equal(points, np.arange(50))
    np.testing.assert_allclose(masses, np.bincount(values.astype(int), weights=weight))


@pytest.mark.parametrize("weighted", [False, True])
def test_ranks_are_off_by_no_more_than_the_sketch_says(weighted):
    rng = np.random.default_rng(1)
    n = 60_000
    values = np.sort(rng.lognormal(size=n))  # sorted: parts differ as much as they can
    weight = rng.exponential(size=n) if weighted else np.ones(n)
    sketch = QuantileSketch(size=128)
    for part in np.array_split(np.arange(n), 51):
        sketch.add(values[part], weight[part] if weighted else None)
    points, masses = sketch.points()
    before, after = ranks(values, weight, points)
    said = np.cumsum(masses) / masses.sum()
    off = np.maximum(before - said, 0) + np.maximum(said - masses / masses.sum() - after, 0)
    assert not sketch.exact
    assert 0 < sketch.error < 0.05
    assert off.max() <= sketch.error
    # the bound is not idle: a step of the summary is a 128th
    assert sketch.error > 1 / 256
    assert (points[0], points[-1]) == (values[0], values[-1])
    np.testing.assert_allclose(masses.sum(), weight.sum())
    levels = np.array([0.1, 0.5, 0.9])
    low, high = ranks(values, weight, quantiles(points, levels, masses))
    assert (np.abs(0.5 * (low + high) - levels) < sketch.error + 1 / 128).all()


def test_merged_sketches_are_those_of_all_rows_within_their_bound():
    rng = np.random.default_rng(2)
    values = rng.normal(size=40_000)
    parts = [QuantileSketch(size=256) for _ in range(4)]
    for own, sketch in zip(np.array_split(values, 4), parts):
        for block in np.array_split(own, 9):
            sketch.add(block)
    for other in parts[1:]:
        parts[0].merge(other)
    points, masses = parts[0].points()
    before, after = ranks(values, np.ones(len(values)), points)
    said = np.cumsum(masses) / masses.sum()
    assert parts[0].total == 40_000
    assert (np.maximum(before - said, said - masses / masses.sum() - after) <= parts[0].error).all()


def test_levels_are_counted_exactly_up_to_a_limit_and_the_frequent_ones_past_it():
    rng = np.random.default_rng(3)
    few, many = LevelSketch(most=10), LevelSketch(most=10)
    for _ in range(20):
        few.add({"a": 2.0, "b": 1.0})
        many.add({"a": 50.0, "b": 40.0} | {f"rare {k}": 1.0 for k in rng.integers(10_000, size=5)})
    assert few.levels() == {"a": 40.0, "b": 20.0}
    assert few.short == 0.0
    kept = many.levels()
    assert len(kept) <= 10
    assert 0 < many.short <= (20 * 95) / 11
    assert 1000 - many.short <= kept["a"] <= 1000
    assert 800 - many.short <= kept["b"] <= 800


def test_moments_are_those_of_all_rows():
    rng = np.random.default_rng(4)
    values, weight = 1e6 + rng.normal(size=5_000), rng.exponential(size=5_000)
    moments = Moments()
    for part in np.array_split(np.arange(5_000), 3):
        moments.add(values[part], weight[part])
    mean = np.average(values, weights=weight)
    assert moments.mean == pytest.approx(mean, rel=1e-12)
    assert moments.width == pytest.approx(np.sqrt(np.average((values - mean) ** 2, weights=weight)), rel=1e-6)


def test_a_sample_does_not_depend_on_the_order_of_the_rows():
    rows = np.arange(10_000)

    def sampled(order):
        sample = RowSample(100, lambda part, places: part[places], np.concatenate)
        for part in np.array_split(order, 13):
            sample.add(part, hashed(part, 7))
        return sample.rows()

    found = sampled(rows)
    np.testing.assert_array_equal(found, sampled(rows[::-1]))
    np.testing.assert_array_equal(np.sort(found), np.sort(rows[np.argsort(hashed(rows, 7))[:100]]))


def test_hashes_are_uniform_and_belong_to_the_value():
    found = uniform(hashed(np.arange(100_000), 0))
    assert np.abs(np.histogram(found, 20, (0, 1))[0] / 5_000 - 1).max() < 0.06
    assert np.abs(np.corrcoef(found, uniform(hashed(np.arange(100_000), 1)))[0, 1]) < 0.01
    names = np.array(["ann", "bob", "ann"], dtype=object)
    assert hashed(names, 3)[0] == hashed(names, 3)[2] != hashed(names, 3)[1]


def test_a_sample_of_outcomes_has_the_first_and_the_last_time_and_every_cause(monkeypatch):
    monkeypatch.setattr("sumosurv.sources.sketches._SAMPLED", 50)
    rng = np.random.default_rng(6)
    time = rng.exponential(size=2_000)
    cause = np.where(np.arange(2_000) == 777, 3, rng.integers(0, 2, 2_000))
    whole = Outcome(cause > 0, time, entry=0.5 * time, cause=cause)
    sketch = OutcomeSketch(3, two_times=True)
    for part in np.array_split(np.arange(2_000), 7):
        sketch.add(whole[part], hashed(part, 0))
    made = sketch.outcome()
    assert (made.last_time, made.entry.min()) == (time.max(), 0.5 * time.min())
    assert made.n_causes == 3
    assert 51 <= len(made) <= 54
    assert made.total == pytest.approx(2_000, abs=5)
    mean = np.average(made.time, weights=made.weight)
    assert abs(mean - time.mean()) < 3 * time.std() / np.sqrt(50)


def test_the_outcome_of_all_rows_stands_in_few_with_weights():
    rng = np.random.default_rng(5)
    time, cause = rng.integers(1, 40, 3_000).astype(float), rng.integers(0, 3, 3_000)
    whole = Outcome(cause > 0, time, cause=cause)
    sketch = OutcomeSketch(2)
    for part in np.array_split(np.arange(3_000), 7):
        sketch.add(whole[part], hashed(part, 0))
    made = sketch.outcome()
    assert sketch.exact
    assert len(made) == 3 * 39
    for k in range(3):
        np.testing.assert_array_equal(
            np.bincount(made.time[made.cause == k].astype(int), weights=made.weights[made.cause == k], minlength=40),
            np.bincount(time[cause == k].astype(int), minlength=40),
        )
