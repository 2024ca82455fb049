"""Kaplan-Meier, Nelson-Aalen and Breslow with entry times and weights."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from sumosurv import Surv, breslow, check_outcome, kaplan_meier, nelson_aalen
from sumosurv.nonparametric import aalen_johansen, coarse_kaplan_meier, confidence_band, risk_table


def sample(n=120, seed=0, *, ties=True, late=0.7):
    rng = np.random.default_rng(seed)
    time = np.ceil(rng.exponential(5.0, n)) if ties else rng.exponential(5.0, n)
    entry = np.where(rng.random(n) < late, np.floor(time * rng.random(n)) if ties else time * rng.random(n), 0.0)
    return rng.random(n) < 0.6, time, entry, rng.integers(0, 4, n).astype(float)


def literal(event, time, entry, weight, risk=None):
    """Events and rows at risk, time by time."""
    risk = np.ones(len(time)) if risk is None else risk
    times = np.unique(time)
    d = np.array([weight[event & (time == t)].sum() for t in times])
    # an entry of zero is from the beginning
    n = np.array([(weight * risk)[((entry < t) | (entry == 0)) & (time >= t)].sum() for t in times])
    return times, d, n


@pytest.mark.parametrize("ties", [True, False])
def test_the_risk_table_counts_rows_between_entry_and_time(ties):
    event, time, entry, weight = sample(ties=ties)
    time[:2], entry[:2] = 0.0, 0.0
    risk = np.random.default_rng(1).exponential(size=len(time))
    y = Surv.from_arrays(event, time, entry)
    for got, wanted in zip(
        risk_table(y, risk, sample_weight=weight), literal(event, time, entry, weight, risk), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_a_case_is_at_risk_at_its_own_time_however_large_the_risks_that_enter_later():
    y = Surv.from_arrays([1, 1, 0], [1.0, 4.0, 5.0], [0.0, 2.0, 3.0])
    _, events, at_risk = risk_table(y, [1e-18, 1.0, 1.0])
    assert events[0] == 1.0
    assert at_risk[0] == 1e-18


def test_kaplan_meier_and_nelson_aalen_are_those_of_the_formula():
    event, time, entry, weight = sample(seed=3)
    y = Surv.from_arrays(event, time, entry)
    times, d, n = literal(event, time, entry, weight)
    with np.errstate(invalid="ignore"):
        share = np.where(d > 0, d / n, 0.0)
    survival = kaplan_meier(y, sample_weight=weight).survival(times)[0]
    np.testing.assert_allclose(survival, np.cumprod(1 - share), atol=1e-12)
    hazard = nelson_aalen(y, sample_weight=weight).cumulative_hazard(times)[0]
    np.testing.assert_allclose(hazard, np.cumsum(share), atol=1e-12)


@pytest.mark.parametrize("ties", [True, False])
def test_entry_and_weights_against_lifelines(ties, lifelines):
    event, time, entry, weight = sample(400, seed=5, ties=ties)
    weight += 1.0
    y = Surv.from_arrays(event, time, entry)
    at = np.unique(time)
    # lifelines counts a row at its entry already
    after = np.where(entry > 0, entry + 1e-6 * ties, 0.0)
    theirs = lifelines.KaplanMeierFitter().fit(time, event, entry=after, weights=weight).predict(at).to_numpy()
    np.testing.assert_allclose(kaplan_meier(y, sample_weight=weight).survival(at)[0], theirs, atol=1e-10)
    fitter = lifelines.NelsonAalenFitter(nelson_aalen_smoothing=False).fit(time, event, entry=after, weights=weight)
    ours = nelson_aalen(y, sample_weight=weight).cumulative_hazard(at)[0]
    np.testing.assert_allclose(ours, fitter.predict(at).to_numpy(), atol=1e-10)


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["channing", "nafld_age", "insulator_string"])
def test_entry_against_lifelines_on_real_data(name, outcome_data, lifelines):
    table = outcome_data(name)
    y = Surv.from_columns(table, event="event", time="time", entry="entry")
    at = np.unique(table["time"])
    after = table["entry"] + np.where(table["entry"] > 0, 1e-7, 0.0)
    theirs = lifelines.KaplanMeierFitter().fit(table["time"], table["event"], entry=after).predict(at)
    np.testing.assert_allclose(kaplan_meier(y).survival(at)[0], theirs, atol=1e-9)


@pytest.mark.parametrize("censoring", [False, True])
def test_whole_weights_are_repeated_rows(censoring):
    event, time, entry, weight = sample(seed=7)
    y = check_outcome(Surv.from_arrays(event, time, entry))
    repeated = y[np.repeat(np.arange(len(y)), weight.astype(int))]
    at = np.unique(time)
    weighted = kaplan_meier(y, censoring=censoring, sample_weight=weight)
    np.testing.assert_array_equal(weighted.times, kaplan_meier(repeated, censoring=censoring).times)
    np.testing.assert_allclose(
        weighted.survival(at), kaplan_meier(repeated, censoring=censoring).survival(at), rtol=1e-12
    )
    for field in ("times", "table"):
        np.testing.assert_allclose(
            getattr(coarse_kaplan_meier(replace(y, weight=weight)), field),
            getattr(coarse_kaplan_meier(repeated), field),
            rtol=1e-12,
        )
    plain = replace(y, entry=None)
    np.testing.assert_array_equal(
        coarse_kaplan_meier(replace(plain, weight=weight)).times,
        coarse_kaplan_meier(replace(repeated, entry=None)).times,
    )


def test_the_scale_of_weights_does_not_matter():
    event, time, entry, _ = sample(seed=8)
    weight = np.random.default_rng(0).exponential(size=len(time))
    y, at = Surv.from_arrays(event, time, entry), np.unique(time)
    for estimate in (kaplan_meier, nelson_aalen):
        one, other = (estimate(y, sample_weight=w).survival(at) for w in (weight, 1e6 * weight))
        np.testing.assert_allclose(one, other, rtol=1e-10)
    last = kaplan_meier(Surv.from_arrays(np.ones(3), [1.0, 2.0, 3.0]), sample_weight=[0.3, 0.7, 0.1])
    assert last.survival(3.0)[0] == 0.0


def test_all_that_are_at_risk_leave_nobody_whatever_their_weights():
    rng = np.random.default_rng(0)
    early = np.arange(40) < 20
    for _ in range(20):
        y = Surv.from_arrays(np.ones(40), np.where(early, 1.0, 5.0 + rng.random(40)), np.where(early, 0.0, 2.0))
        weight = rng.random(40)
        assert kaplan_meier(y, sample_weight=weight).survival(1.0)[0] == 0.0
        assert np.isnan(confidence_band(y, sample_weight=weight)["upper"]).all()
        assert aalen_johansen(y, sample_weight=weight).survival(1.0)[0] == 0.0


def test_entry_zero_and_no_entry_are_the_same():
    event, time, _, _ = sample(seed=9)
    time[:3] = 0.0
    plain, zero = Surv.from_arrays(event, time), Surv.from_arrays(event, time, np.zeros(len(time)))
    kept = replace(check_outcome(plain), entry=np.zeros(len(time)))  # as a part of rows may have it
    for y in (zero, kept):
        np.testing.assert_array_equal(kaplan_meier(y).table, kaplan_meier(plain).table)


def test_cutting_rows_into_spells_changes_no_curve():
    event, time, entry, weight = sample(seed=10, ties=False)
    cut = entry + 0.4 * (time - entry)
    spells = Surv.from_arrays(
        np.append(np.zeros(len(time), dtype=bool), event), np.append(cut, time), np.append(entry, cut)
    )
    at = np.unique(time)
    whole = kaplan_meier(Surv.from_arrays(event, time, entry), sample_weight=weight).survival(at)
    np.testing.assert_allclose(kaplan_meier(spells, sample_weight=np.tile(weight, 2)).survival(at), whole, atol=1e-12)


def test_breslow_weighs_events_and_risks():
    event, time, entry, weight = sample(seed=11)
    g = np.random.default_rng(0).normal(size=len(time))
    times, d, n = literal(event, time, entry, weight, np.exp(g))
    with np.errstate(invalid="ignore"):
        cumulative = np.cumsum(np.where(d > 0, d / n, 0.0))
    curves = breslow(Surv.from_arrays(event, time, entry), g, [0.0, 0.5], sample_weight=weight)
    np.testing.assert_allclose(curves.cumulative_hazard(times), cumulative * np.exp([[0.0], [0.5]]), rtol=1e-10)


def test_intervals_are_refused_with_the_remedy():
    y = Surv.interval([1.0, 2.0, 3.0], [1.0, 4.0, np.inf])
    for estimate in (kaplan_meier, nelson_aalen, risk_table):
        with pytest.raises(ValueError, match=r"1 rows .* \(1\).*turnbull"):
            estimate(y)


def test_the_coarse_curve_of_late_entries_has_the_hazards_of_events_by_time_at_risk():
    rng = np.random.default_rng(0)
    entry = 60.0 + rng.exponential(12.0, 4000)
    time = entry + rng.exponential(10.0, 4000)
    censoring = entry + rng.exponential(15.0, 4000)
    y = Surv.from_arrays(time <= censoring, np.minimum(time, censoring), entry)
    curve = coarse_kaplan_meier(y)
    edges = curve.times.numpy()
    assert curve.survival(60.0)[0] > 0.99  # nobody was seen before
    assert not np.isin(edges[1:], np.concatenate([y["time"], y["entry"]])).any()
    np.testing.assert_allclose(curve.hazard(edges[2:-1])[0], 0.1, rtol=0.35)
    for low, high in pairwise(edges[1:-1]):
        inside = y["event"] & (y["time"] > low) & (y["time"] <= high)
        passed = np.maximum(np.minimum(y["time"], high) - np.maximum(y["entry"], low), 0.0)
        assert curve.hazard(0.5 * (low + high))[0] == pytest.approx(inside.sum() / passed.sum(), rel=1e-9)
    passed = np.maximum(y["time"] - np.maximum(y["entry"], edges[-2]), 0.0)
    assert curve.hazard(500.0)[0] == pytest.approx((y["event"] & (y["time"] > edges[-2])).sum() / passed.sum())
    assert np.isfinite(curve.log_density([1.0, 61.0, 100.0, 500.0])).all()


@pytest.mark.filterwarnings("error")
def test_the_coarse_curve_survives_an_early_death_of_all_at_risk():
    y = Surv.from_arrays([1, 1, 1, 0, 1], [1.0, 5.0, 6.0, 7.0, 8.0], [0.0, 2.0, 2.0, 3.0, 3.0])
    assert kaplan_meier(y).survival(1.0)[0] == 0.0
    assert (coarse_kaplan_meier(y).survival([1.0, 5.0, 8.0]) > 0).all()
