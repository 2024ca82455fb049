"""Aalen-Johansen against the formula and lifelines."""

from __future__ import annotations

import numpy as np
import pytest

from sumosurv import Surv, check_outcome, kaplan_meier
from sumosurv.nonparametric import aalen_johansen


def sample(n=150, seed=0, *, ties=True, late=False):
    rng = np.random.default_rng(seed)
    time = np.ceil(rng.exponential(5.0, n)) if ties else rng.exponential(5.0, n)
    entry = np.where(rng.random(n) < 0.6, np.floor(0.5 * time) if ties else 0.5 * time, 0.0) if late else None
    return rng.integers(0, 4, n), time, entry


def literal(cause, time, entry, weight):
    """Time by time, cause by cause."""
    entry = np.zeros(len(time)) if entry is None else entry
    survival, incidence, rows = 1.0, np.zeros(3), []
    for t in np.unique(time[cause > 0]):
        n = weight[((entry < t) | (entry == 0)) & (time >= t)].sum()
        d = np.array([weight[(time == t) & (cause == k)].sum() for k in (1, 2, 3)])
        incidence = incidence + survival * d / n
        survival *= 1 - d.sum() / n
        rows.append([t, *incidence, survival])
    return np.array(rows)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_it_is_that_of_the_formula_and_sums_to_one(ties, late):
    cause, time, entry = sample(ties=ties, late=late)
    weight = np.random.default_rng(1).integers(1, 5, len(time)).astype(float)
    y = Surv.from_arrays(cause, time, entry)
    found, wanted = aalen_johansen(y, sample_weight=weight), literal(cause, time, entry, weight)
    np.testing.assert_array_equal(found.times[1:], wanted[:, 0])
    np.testing.assert_allclose(found.incidence[0, 1:], wanted[:, 1:4], atol=1e-12)
    np.testing.assert_allclose(found.table[0, 1:], wanted[:, 4], atol=1e-12)
    np.testing.assert_allclose(found.incidence.sum(-1) + found.table, 1.0, atol=1e-14)
    at = np.append(0.0, wanted[:, 0] + 1e-7)
    np.testing.assert_allclose(found.survival(at), kaplan_meier(y, sample_weight=weight).survival(at), atol=1e-12)
    np.testing.assert_array_equal(found.cumulative_incidence(at), found.incidence)


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["mgus2", "pbc", "melanoma"])
def test_against_lifelines_on_real_data(name, outcome_data, lifelines):
    table = outcome_data(name)
    rng = np.random.default_rng(0)
    time = table["time"].to_numpy(float) + rng.uniform(0.0, 1e-3, len(table))  # lifelines knows no ties
    cause, weight = table["event"].to_numpy(int), rng.integers(1, 4, len(table))
    entry = np.where(rng.random(len(table)) < 0.5, 0.3 * time, 0.0)
    found = aalen_johansen(Surv.from_arrays(cause, time, entry), sample_weight=weight)
    for k in (1, 2):
        fitter = lifelines.AalenJohansenFitter(calculate_variance=False)
        theirs = fitter.fit(time, cause, k, entry=entry, weights=weight).cumulative_density_.iloc[:, 0]
        np.testing.assert_allclose(found.cumulative_incidence(theirs.index)[0, :, k - 1], theirs, atol=1e-10)


def test_permuting_causes_permutes_incidences_and_one_cause_is_kaplan_meier():
    cause, time, entry = sample(late=True)
    found = aalen_johansen(Surv.from_arrays(cause, time, entry))
    permuted = aalen_johansen(Surv.from_arrays(np.array([0, 3, 1, 2])[cause], time, entry))
    np.testing.assert_array_equal(permuted.incidence[..., [2, 0, 1]], found.incidence)
    y = Surv.from_arrays(cause > 0, time, entry)
    one = aalen_johansen(y)
    np.testing.assert_allclose(one.incidence[..., 0], 1.0 - kaplan_meier(y).survival(one.times), atol=1e-12)


def test_causes_that_no_row_has():
    y = check_outcome(Surv.from_arrays([1, 0, 2], [1.0, 2.0, 3.0]))
    assert aalen_johansen(y, causes=4).cumulative_incidence([1.0, 3.0]).shape == (1, 2, 4)
    with pytest.raises(ValueError, match=r"causes is 1, .* cause 2"):
        aalen_johansen(y, causes=1)
    nobody = aalen_johansen(Surv.from_arrays([0, 0], [1.0, 2.0]))
    assert nobody.survival(5.0).tolist() == [1.0]
    assert nobody.cumulative_incidence(5.0).tolist() == [[0.0]]


def test_the_rounding_of_many_jumps_may_exceed_one():
    rng = np.random.default_rng(0)
    cause, time = rng.integers(1, 4, 10_000), np.round(rng.exponential(size=10_000), 4)
    found = aalen_johansen(Surv.from_arrays(cause, time, causes=3)).cumulative_incidence(np.inf)[0]
    assert found.sum() > 1.0 + 1e-14
    np.testing.assert_allclose(found, np.bincount(cause)[1:] / 10_000, atol=1e-11)
