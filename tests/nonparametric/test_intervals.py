"""Turnbull's estimate against lifelines, Kaplan-Meier and direct maximisation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.isotonic import isotonic_regression

from sumosurv import Surv, check_outcome, kaplan_meier
from sumosurv.nonparametric import coarse_kaplan_meier, turnbull, turnbull_intervals


def mixed(n=40, seed=0, *, late=False, whole=True):
    """Exact, interval-, left- and right-censored rows, of whole numbers with many ties or of distinct times."""
    rng = np.random.default_rng(seed)
    lower = rng.integers(0, 9, n).astype(float) if whole else rng.exponential(5.0, n)
    upper = lower + (rng.integers(0, 5, n) if whole else rng.exponential(2.0, n))
    if not whole:
        upper = np.where(rng.random(n) < 0.2, lower, upper)
    upper = np.where(rng.random(n) < 0.25, np.inf, upper)
    lower = np.where((rng.random(n) < 0.2) & (upper > lower) & np.isfinite(upper), 0.0, lower)
    entry = np.minimum(np.floor(lower * rng.random(n)), 2.0) * (rng.random(n) < 0.6) if late else None
    return Surv.interval(lower, upper, entry=entry)


def mean_log_likelihood(curve, outcome, weight):
    """Of a step curve whose jumps lie at its times."""
    s = curve.survival(own_times=outcome.time) if len(curve) > 1 else curve.survival(outcome.time)[0]
    upper = np.where(outcome.event, outcome.time, outcome.upper)
    ends = np.where(np.isinf(upper), 0.0, curve.survival(np.where(np.isinf(upper), 0.0, upper))[0])
    before = curve.survival(np.maximum(np.nextafter(outcome.time, -1.0), 0.0))[0]
    before = np.where(outcome.time > 0, before, 1.0)
    p = np.where(outcome.event, before, s) - ends
    start = np.zeros(len(outcome)) if outcome.entry is None else outcome.entry
    truncated = np.where(start > 0, curve.survival(start)[0], 1.0)
    return np.sum(weight * (np.log(p) - np.log(truncated))) / weight.sum()


def best_of_any_masses(outcome, weight):
    """Maximum over masses at every finite limit, next to it on both sides, and past the end: by SciPy."""
    entry = np.zeros(len(outcome)) if outcome.entry is None else outcome.entry
    limits = np.unique(np.concatenate([outcome.time, outcome.upper[np.isfinite(outcome.upper)], entry]))
    points = np.unique(np.concatenate([limits, limits + 0.25, [1e3]]))
    points = points[points >= 0]
    upper = np.where(outcome.event, outcome.time, outcome.upper)
    inside = np.where(
        outcome.event[:, None],
        points == outcome.time[:, None],
        (points > outcome.time[:, None]) & (points <= upper[:, None]),
    )
    seen = (points > entry[:, None]) | (entry[:, None] == 0)

    def loss(theta):
        p = np.exp(theta - theta.max())
        p /= p.sum()
        a, b = inside @ p, seen @ p
        slope = (weight / a) @ inside - (weight / b) @ seen
        return -(weight @ (np.log(a) - np.log(b))) / weight.sum(), -p * (slope - p @ slope) / weight.sum()

    found = minimize(loss, np.zeros(len(points)), jac=True, options={"maxiter": 5000, "gtol": 1e-9})
    return -found.fun


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_no_other_masses_have_a_larger_likelihood(seed, late):
    outcome = check_outcome(mixed(seed=seed, late=late))
    weight = np.random.default_rng(seed).integers(1, 4, len(outcome)).astype(float)
    curve = turnbull(outcome, sample_weight=weight)
    value, best = mean_log_likelihood(curve, outcome, weight), best_of_any_masses(outcome, weight)
    assert value == pytest.approx(best, abs=2e-6)
    assert value >= best - 1e-8


@pytest.mark.parametrize("late", [False, True])
def test_without_intervals_it_is_kaplan_meier_by_either_way(late):
    rng = np.random.default_rng(0)
    time = np.ceil(rng.exponential(5.0, 200)) + 1.0
    entry = np.where(rng.random(200) < 0.5, np.floor(0.4 * time), 0.0) if late else None
    y = check_outcome(Surv.from_arrays(rng.random(200) < 0.6, time, entry))
    at = np.unique(time)
    expected = kaplan_meier(y).survival(at)[0]
    np.testing.assert_array_equal(turnbull(y).survival(at)[0], expected)
    found = turnbull_intervals(y)
    np.testing.assert_allclose(found.survival(at), expected, atol=1e-7)


@pytest.mark.real_data
def test_against_lifelines_on_real_data(outcome_data, lifelines):
    table = outcome_data("diabetes_interval")
    lower, upper = table["lower"].to_numpy(float), table["upper"].to_numpy(float)
    curve = turnbull(Surv.interval(lower, upper))
    # intervals are closed there
    opened = np.where((lower < upper) & (lower > 0), lower + 1e-6, lower)
    fitter = lifelines.KaplanMeierFitter().fit_interval_censoring(opened, upper, tol=1e-9)
    theirs = fitter.survival_function_["NPMLE_estimate_upper"]  # at each time the value before its jump
    at = np.unique(upper[np.isfinite(upper)])[:-1] + 1e-3
    values = theirs.to_numpy()[np.searchsorted(theirs.index, at)]
    np.testing.assert_allclose(curve.survival(at)[0], values, atol=1e-4)


@pytest.mark.real_data
def test_of_one_look_at_each_row_it_is_the_isotonic_regression_of_what_was_seen(outcome_data):
    table = outcome_data("mice")  # where lifelines is 1e-3 from the maximum after 17 seconds
    seen = np.isfinite(table["upper"])
    look = np.where(seen, table["upper"], table["lower"])
    times = np.unique(look)
    share, rows = (np.array([part[look == t].sum() for t in times]) for part in (seen, np.ones(len(look))))
    expected = isotonic_regression(share / rows, sample_weight=rows)
    curve = turnbull(Surv.interval(table["lower"], table["upper"]))
    np.testing.assert_allclose(1.0 - curve.survival(times)[0], expected, atol=1e-7)


@pytest.mark.parametrize("whole", [False, True])
def test_weights_are_repeated_rows_and_zero_leaves_one_out(whole):
    outcome = check_outcome(mixed(80, seed=3, whole=whole))
    weight = np.random.default_rng(1).integers(0, 4, 80).astype(float)
    repeated = outcome[np.repeat(np.arange(80), weight.astype(int))]
    at = np.arange(0.0, 15.0, 0.5)
    one, other = turnbull(outcome, sample_weight=weight), turnbull(repeated)
    np.testing.assert_array_equal(one.times, other.times)
    np.testing.assert_allclose(one.survival(at), other.survival(at), atol=1e-7)


def test_intervals_are_open_below_and_closed_above():
    touching = turnbull(Surv.interval([0.0, 1.0], [1.0, 2.0]))
    np.testing.assert_allclose(touching.survival([0.5, 1.0, 1.5, 2.0]), [[1.0, 0.5, 0.5, 0.0]], atol=1e-9)
    shared = turnbull(Surv.interval([0.0, 1.0, 1.5], [1.0, 1.0, 2.0]))  # {1} lies in (0, 1]
    np.testing.assert_allclose(shared.survival([0.5, 1.0, 2.0]), [[1.0, 1 / 3, 0.0]], atol=1e-9)
    after = turnbull(Surv.interval([1.0, 1.0], [1.0, 2.0]))  # {1} does not lie in (1, 2]
    np.testing.assert_allclose(after.survival([1.0, 2.0]), [[0.5, 0.0]], atol=1e-9)


def test_an_interval_ends_where_a_row_enters():
    # all of the mass of (0, 3] lies before the entry of the other row, which then says nothing of it
    found = turnbull_intervals(Surv.interval([0.0, 4.0, 5.0], [3.0, 6.0, 7.0], entry=[0.0, 1.0, 0.0]))
    assert found.upper[0] == 1.0
    # one of two rows from the beginning; after it two of two
    np.testing.assert_allclose(found.survival([1.0, 6.0]), [0.5, 0.0], atol=1e-6)


def test_mass_past_the_last_time_and_the_even_spread_of_the_rest():
    found = turnbull_intervals(Surv.interval([0.0, 4.0], [2.0, np.inf]))
    assert found.lower.tolist() == [0.0, 4.0]
    assert found.upper.tolist() == [2.0, np.inf]
    np.testing.assert_allclose(found.survival([0.0, 1.0, 2.0, 3.0, 9.0]), [1.0, 0.75, 0.5, 0.5, 0.5], atol=1e-9)
    np.testing.assert_allclose(turnbull(Surv.interval([0.0, 4.0], [2.0, np.inf])).survival([1.9, 9.0]), [[1.0, 0.5]])


@pytest.mark.parametrize("late", [False, True])
def test_many_rows_with_distinct_limits_converge(late):
    rng = np.random.default_rng(0)
    n = 25_000
    event, entry = 2.0 * rng.weibull(1.5, 2 * n), np.where(rng.random(2 * n) < 0.5, rng.random(2 * n), 0.0)
    event, entry = (part[entry < event][:n] for part in (event, entry))
    first = entry + rng.uniform(0.0, 0.8, n)
    second = first + rng.uniform(0.2, 0.8, n)
    visits = np.stack([entry, first, second], axis=1)
    place = (visits < event[:, None]).sum(axis=1)
    lower = visits[np.arange(n), place - 1]
    upper = np.append(visits, np.full((n, 1), np.inf), axis=1)[np.arange(n), place]
    y = Surv.interval(lower, upper, entry=entry if late else None)
    found = turnbull_intervals(y)
    assert found.gap <= 1e-9
    assert found.n_iter < 500
    at = np.array([0.5, 1.0, 1.5])
    error = abs(found.survival(at) - np.exp(-((at / 2.0) ** 1.5))).max()
    assert error < 0.03 if late else error > 0.06  # rows that enter late and are taken to be there from the beginning


def test_steps_that_do_not_suffice_are_told():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        turnbull_intervals(mixed(200, whole=False), max_iter=1)


def test_the_coarse_curve_of_intervals_is_turnbull_s():
    rng = np.random.default_rng(0)
    event = rng.exponential(5.0, 3000)
    width = rng.uniform(0.5, 2.0, 3000)
    lower = np.floor(event / width) * width
    upper = np.where(lower > 12.0, np.inf, lower + width)
    y = check_outcome(Surv.interval(lower, upper))
    curve = coarse_kaplan_meier(y)
    edges = curve.times.numpy()[1:-1]
    np.testing.assert_allclose(curve.survival(edges)[0], turnbull_intervals(y).survival(edges), rtol=1e-9)
    assert not np.isin(edges, np.concatenate([lower, upper])).any()
    at = np.array([1.0, 3.0, 8.0, 12.0])
    np.testing.assert_allclose(curve.survival(at)[0], np.exp(-at / 5.0), atol=0.03)
    assert np.isfinite(curve.log_density([0.0, 1e-3, 100.0])).all()
    weighted = coarse_kaplan_meier(replace(y, weight=np.full(3000, 2.0)))
    assert len(weighted.times) > len(curve.times)  # twice the events
