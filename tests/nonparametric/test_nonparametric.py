"""Kaplan-Meier, Nelson-Aalen and Breslow against lifelines and scikit-survival."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sumosurv import Surv, breslow, kaplan_meier, nelson_aalen
from sumosurv.nonparametric import coarse_kaplan_meier, risk_table

sksurv_np = pytest.importorskip("sksurv.nonparametric")


def sample(n, seed, *, ties=False, zeros=False, event_share=0.6):
    rng = np.random.default_rng(seed)
    time = rng.exponential(5.0, n)
    if ties:
        time = np.ceil(time)
    if zeros:
        time[:3] = 0.0
    return rng.random(n) < event_share, time


CASES = {
    "plain": sample(80, 0),
    "ties": sample(200, 1, ties=True),
    "zero times": sample(60, 2, zeros=True),
    "ties and zeros": sample(90, 3, ties=True, zeros=True),
    "no censored": sample(50, 4, event_share=1.1),
    "all censored": sample(50, 5, event_share=-1.0),
    "one event": (np.array([True]), np.array([3.0])),
    "one censored": (np.array([False]), np.array([3.0])),
    "all at one time": (np.array([True, False, True]), np.array([2.0, 2.0, 2.0])),
}


def grid(time):
    """Before, at and after every time, and past the end."""
    return np.unique(np.concatenate([[0.0], time, np.maximum(time - 1e-9, 0.0), time + 1e-9, [time.max() * 2]]))


def step(times, values, at, before):
    """A right-continuous step function."""
    index = np.searchsorted(times, at, side="right") - 1
    return np.where(index >= 0, values[np.maximum(index, 0)], before)


@pytest.mark.parametrize("case", CASES)
def test_kaplan_meier(case):
    event, time = CASES[case]
    at = grid(time)
    ours = kaplan_meier(Surv.from_arrays(event, time)).survival(at)[0]
    x, s = sksurv_np.kaplan_meier_estimator(event, time)
    np.testing.assert_allclose(ours, step(x, s, at, 1.0), atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_kaplan_meier_of_the_censoring_time(case):
    event, time = CASES[case]
    at = grid(time)
    ours = kaplan_meier(Surv.from_arrays(event, time), censoring=True).survival(at)[0]
    x, s = sksurv_np.kaplan_meier_estimator(event, time, reverse=True)
    np.testing.assert_allclose(ours, step(x, s, at, 1.0), atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_nelson_aalen(case):
    event, time = CASES[case]
    at = grid(time)
    ours = nelson_aalen(Surv.from_arrays(event, time)).cumulative_hazard(at)[0]
    if not event.any():  # which scikit-survival refuses
        assert (ours == 0.0).all()
        return
    x, h = sksurv_np.nelson_aalen_estimator(event, time)
    np.testing.assert_allclose(ours, step(x, h, at, 0.0), atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_both_against_lifelines(case, lifelines):
    event, time = CASES[case]
    y, at = Surv.from_arrays(event, time), grid(time)
    fitter = lifelines.KaplanMeierFitter().fit(time, event)
    np.testing.assert_allclose(kaplan_meier(y).survival(at)[0], fitter.predict(at).to_numpy(), atol=1e-12)
    fitter = lifelines.NelsonAalenFitter(nelson_aalen_smoothing=False).fit(time, event)
    np.testing.assert_allclose(nelson_aalen(y).cumulative_hazard(at)[0], fitter.predict(at).to_numpy(), atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_breslow_is_the_baseline_of_scikit_survival_s_cox_model(ties):
    linear_model = pytest.importorskip("sksurv.linear_model")
    rng = np.random.default_rng(8)
    X = rng.normal(size=(150, 2))
    time = rng.exponential(np.exp(-X[:, 0]))
    time = np.ceil(time * 5) if ties else time
    event = rng.random(150) < 0.7
    y = Surv.from_arrays(event, time)
    cox = linear_model.CoxPHSurvivalAnalysis(ties="breslow").fit(X, y)
    new = X[:7]
    ours = breslow(y, X @ cox.coef_, new @ cox.coef_)
    at = np.unique(time)
    theirs = np.stack([curve(at) for curve in cox.predict_survival_function(new)])
    np.testing.assert_allclose(ours.survival(at), theirs, rtol=1e-10)


def test_breslow_is_the_baseline_of_lifelines_cox_model(lifelines):
    rng = np.random.default_rng(9)
    frame = pd.DataFrame({"a": rng.normal(size=120), "time": rng.exponential(size=120), "event": rng.random(120) < 0.6})
    cox = lifelines.CoxPHFitter(baseline_estimation_method="breslow").fit(frame, "time", "event")
    y = Surv.from_columns(frame, event="event", time="time")
    risk = np.log(cox.predict_partial_hazard(frame).to_numpy())
    at = np.sort(frame["time"].to_numpy())
    theirs = cox.predict_survival_function(frame.iloc[:5], times=at).to_numpy().T
    np.testing.assert_allclose(breslow(y, risk, risk[:5]).survival(at), theirs, rtol=1e-6)


def test_breslow_without_risks_is_nelson_aalen_and_survives_large_ones():
    event, time = CASES["ties"]
    y = Surv.from_arrays(event, time)
    at = grid(time)
    flat = breslow(y, np.zeros(len(y)), [0.0])
    np.testing.assert_allclose(flat.survival(at), nelson_aalen(y).survival(at), rtol=1e-12)
    shifted = breslow(y, np.full(len(y), 900.0), [900.0])
    np.testing.assert_allclose(shifted.survival(at), nelson_aalen(y).survival(at), rtol=1e-12)


def test_breslow_says_what_does_not_fit():
    y = Surv.from_arrays([1, 0, 1], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"log_risk .*\(2,\); .* row \(3\)"):
        breslow(y, [0.0, 1.0], [0.0])
    with pytest.raises(ValueError, match="log_risk has shape"):
        breslow(y, [0.0, np.nan, 1.0], [0.0])
    with pytest.raises(ValueError, match=r"log_risk_new has shape \(\)"):
        breslow(y, [0.0, 0.0, 0.0], 0.0)


def test_risk_table_counts():
    times, events, at_risk = risk_table(Surv.from_arrays([1, 0, 1, 1, 0], [2.0, 2.0, 2.0, 5.0, 1.0]))
    assert times.tolist() == [1.0, 2.0, 5.0]
    assert events.tolist() == [0.0, 2.0, 1.0]
    assert at_risk.tolist() == [5.0, 4.0, 1.0]


def test_the_knots_of_the_interpolated_density_are_the_event_times():
    km = kaplan_meier(Surv.from_arrays([1, 0, 1, 0], [1.0, 2.0, 3.0, 4.0]), half_width=1)
    assert km.times.tolist() == [0.0, 1.0, 3.0]
    assert km.density(2.0)[0] == pytest.approx((0.75 - 0.375) / 2.0)


@pytest.mark.parametrize("case", CASES)
def test_the_coarse_curve_is_kaplan_meier_between_event_times(case):
    event, time = CASES[case]
    y = Surv.from_arrays(event, time)
    curve = coarse_kaplan_meier(y)
    edges = curve.times.numpy()[1:-1]
    np.testing.assert_allclose(curve.survival(edges), kaplan_meier(y).survival(edges), rtol=1e-12)
    if len(np.unique(time[event])) > 1:
        assert not np.isin(curve.times.numpy()[1:], time).any()
    if event.any():
        far = np.array([0.0, *time, 50 * time.max()])
        assert np.isfinite(curve.log_density(far)).all()
        assert np.isfinite(curve.mean()).all()


def test_the_coarse_curve_has_few_cells_and_a_good_likelihood():
    rng = np.random.default_rng(0)
    new = rng.exponential(5.0, 20_000)
    truth = -np.log(5.0) - new.mean() / 5.0
    for n, cells in ((64, 8), (1000, 20), (100_000, 92), (2_000_000, 200)):
        curve = coarse_kaplan_meier(Surv.from_arrays(np.ones(n), rng.exponential(5.0, n)))
        assert cells - 1 <= len(curve.times) - 1 <= cells
        assert abs(curve.log_density(new).mean() - truth) < 1.5 * cells / n + 2e-3
    assert coarse_kaplan_meier(Surv.from_arrays([1, 1, 1], [1.7e308, 1e308, 1.0])).survival(1e308) < 0.7
    assert np.isfinite(coarse_kaplan_meier(Surv.from_arrays([1, 1, 1], [5e-324, 1e-323, 2e-323])).survival(1.0)).all()


@pytest.mark.parametrize("entry", [None, [0.0, 0.5, 1.0]])
def test_the_coarse_curve_of_one_event_has_the_hazard_of_events_by_time_at_risk(entry):
    y = Surv.from_arrays([1, 0, 0], [1.0, 2.0, 3.0], entry)
    exposure = 6.0 - (0.0 if entry is None else 1.5)
    times = np.array([0.3, 1.0, 8.0])
    np.testing.assert_allclose(coarse_kaplan_meier(y).survival(times)[0], np.exp(-times / exposure), rtol=1e-12)
