"""Smoothed calibration against lifelines' Cox model on the same spline, lifelines' own curve, and known truths."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sumosurv import CoxPH, FineGray, KaplanMeier, Surv, aalen_johansen, check_outcome, kaplan_meier
from sumosurv.calibrate import smooth_calibration
from sumosurv.distributions import CauseMixture, Weibull

T0 = 0.8


def sample(n=400, seed=0, end=2.0):
    rng = np.random.default_rng(seed)
    scale = np.exp(0.7 * rng.normal(size=n))
    t, c = scale * rng.weibull(1.4, n), rng.exponential(end, n)
    return scale, Surv.from_arrays(t <= c, np.minimum(t, c))


def harrell_spline(z, quantiles):
    """Written out from Harrell (2015), equation 2.25."""
    k = np.quantile(z, quantiles)
    cube = lambda x: np.where(x > 0, x, 0.0) ** 3  # noqa: E731
    columns = [z]
    for j in range(len(k) - 2):
        x = cube(z - k[j]) - cube(z - k[-2]) * (k[-1] - k[j]) / (k[-1] - k[-2])
        columns.append((x + cube(z - k[-1]) * (k[-2] - k[j]) / (k[-1] - k[-2])) / (k[-1] - k[0]) ** 2)
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("censor_at_time", [False, True])
@pytest.mark.parametrize(("knots", "places"), [(3, (0.1, 0.5, 0.9)), (4, (0.05, 0.35, 0.65, 0.95))])
def test_it_is_cox_regression_on_a_restricted_cubic_spline(knots, places, censor_at_time):
    lifelines = pytest.importorskip("lifelines")
    scale, y = sample()
    d = Weibull(0.8 * scale, 1.4)
    found = smooth_calibration(d, y, T0, knots=knots, censor_at_time=censor_at_time)
    risk = d.cdf(T0)
    columns = harrell_spline(np.log(-d.log_survival(T0)), places)
    frame = pd.DataFrame(columns, columns=[f"s{i}" for i in range(columns.shape[1])])
    frame["time"] = np.minimum(y["time"], T0) if censor_at_time else y["time"]
    frame["event"] = y["event"] & (y["time"] <= T0) if censor_at_time else y["event"]
    cox = lifelines.CoxPHFitter().fit(frame, "time", "event", fit_options={"precision": 1e-10})
    last = y["time"][y["event"] & (y["time"] <= T0)].max()  # between event times lifelines interpolates
    observed = 1 - cox.predict_survival_function(frame, times=[last]).to_numpy()[0]
    np.testing.assert_allclose(found.observed, observed, atol=1e-6)
    distance = np.abs(observed - risk)
    assert found.ici == pytest.approx(distance.mean(), abs=1e-6)
    assert found.e50 == pytest.approx(np.median(distance), abs=1e-6)
    assert found.e90 == pytest.approx(np.quantile(distance, 0.9), abs=1e-6)
    assert found.emax == pytest.approx(distance.max(), abs=1e-6)
    np.testing.assert_allclose(np.interp(found.predicted, found.grid, found.curve), observed, atol=2e-3)


@pytest.mark.filterwarnings("ignore")
def test_it_is_near_what_lifelines_draws(monkeypatch):
    """lifelines smooths by another model (a parametric baseline, linear in the prediction)."""
    lifelines = pytest.importorskip("lifelines")
    plt = pytest.importorskip("matplotlib.pyplot")
    from lifelines.calibration import survival_probability_calibration

    scale, y = sample(n=1500, seed=3)
    frame = pd.DataFrame({"x": np.log(scale), "time": y["time"] + 1e-9, "event": y["event"]})
    model = lifelines.WeibullAFTFitter().fit(frame[:700], "time", "event")
    _, ici, e50 = survival_probability_calibration(model, frame[700:], T0, ax=plt.figure().subplots())
    plt.close("all")
    rows = frame[700:]
    lam = model.predict_expectation(rows).to_numpy()  # only to have one number per row: its scale, up to Γ(1 + 1/ρ)
    rho = np.exp(model.params_["rho_"].iloc[0])
    from scipy.special import gamma

    found = smooth_calibration(Weibull(lam / gamma(1 + 1 / rho), rho), y[700:], T0, censor_at_time=False)
    assert found.ici == pytest.approx(ici, abs=0.012)
    assert found.e50 == pytest.approx(e50, abs=0.015)


@pytest.mark.parametrize("factor", [1.0, 0.6, 1.7])
def test_the_ici_of_a_known_error_is_found(factor):
    scale, y = sample(n=6000, seed=1)
    d, truth = Weibull(factor * scale, 1.4), Weibull(scale, 1.4).cdf(T0)
    found = smooth_calibration(d, y, T0)
    assert found.ici == pytest.approx(np.abs(d.cdf(T0) - truth).mean(), abs=0.012)
    np.testing.assert_allclose(found.observed, truth, atol=0.06)


def test_one_of_several_causes_is_regressed_by_fine_and_gray():
    rng = np.random.default_rng(2)
    n = 500
    d = CauseMixture(
        np.log(rng.dirichlet([3.0, 3.0], n)), [Weibull(rng.uniform(0.5, 2, n), 1.2), Weibull(np.ones(n), 1.0)]
    )
    time, cause = d.sample(random_state=rng, return_causes=True)
    end = rng.exponential(2.0, n)
    y = Surv.from_arrays(np.where(time <= end, cause, 0), np.minimum(time, end))
    found = smooth_calibration(d, y, T0, cause=2, censor_at_time=False)
    risk = d.cumulative_incidence(T0)[:, 1]
    columns = harrell_spline(np.log(-np.log(1 - risk)), (0.1, 0.5, 0.9))
    expected = FineGray().fit(columns, y).predict_cumulative_incidence(columns, [T0])[:, 0, 1]
    np.testing.assert_allclose(found.observed, expected, atol=1e-6)
    assert found.cause == 2
    assert found.ici < 0.06
    any_cause = smooth_calibration(d, y, T0)
    assert any_cause.predicted == pytest.approx(d.cdf(T0))
    with pytest.raises(ValueError, match=r"cause=1 needs .* 2 causes"):
        smooth_calibration(d.cause(1), y, T0, cause=1)


def test_equal_predictions_are_compared_with_kaplan_meier():
    _, y = sample()
    d = KaplanMeier().fit(np.zeros((400, 1)), y).predict_distribution(np.zeros((400, 1)))
    found = smooth_calibration(d, y, T0)
    assert found.ici == pytest.approx(0.0, abs=1e-12)
    assert found.observed[0] == pytest.approx(1 - kaplan_meier(y).survival(T0)[0])
    two = smooth_calibration(Weibull(np.where(np.arange(400) % 2, 1.0, 2.0), 1.4), y, T0)  # fewer values than knots
    assert len(np.unique(two.observed.round(9))) == 2
    cause = np.where(y["event"], 1 + np.arange(400) % 2, 0)
    flat = CauseMixture(np.zeros((400, 2)), [Weibull(np.ones(400), 1.0)] * 2)
    by_cause = smooth_calibration(flat, Surv.from_arrays(cause, y["time"]), T0, cause=2)
    expected = aalen_johansen(Surv.from_arrays(cause, y["time"])).cumulative_incidence(T0)[0, 1]
    assert by_cause.observed[0] == pytest.approx(expected)


def test_weights_late_entry_and_resamples():
    scale, y = sample(n=200)
    d = Weibull(scale, 1.4)
    weight = np.random.default_rng(0).integers(0, 3, 200)
    again = np.repeat(np.arange(200), weight)
    one, two = smooth_calibration(d, y, T0, sample_weight=weight), smooth_calibration(d[again], y[again], T0)
    assert one.ici == pytest.approx(two.ici, rel=1e-6)
    assert one.e90 == pytest.approx(two.e90, rel=1e-6)
    found = smooth_calibration(d, y, T0, n_bootstrap=40, random_state=0)
    assert found.ici_interval[0] < found.ici_interval[1]
    inside = (found.lower <= found.curve) & (found.curve <= found.upper)
    assert inside.mean() > 0.9
    same = smooth_calibration(d, check_outcome(y, groups=np.arange(200)), T0, n_bootstrap=40, random_state=0)
    assert same.ici_interval == found.ici_interval
    scale, y = sample(n=3000, seed=4)
    entry = np.random.default_rng(5).exponential(0.3, 3000)
    seen = entry < y["time"]
    late = Surv.from_arrays(y["event"][seen], y["time"][seen], entry[seen])
    assert smooth_calibration(Weibull(scale[seen], 1.4), late, T0).ici < 0.03


def test_what_is_refused():
    scale, y = sample()
    d = Weibull(scale, 1.4)
    for options, message in (
        ({"knots": 7}, "knots.*got 7"),
        ({"level": 95}, "level.*got 95"),
        ({"n_bootstrap": 1.5}, "n_bootstrap.*got 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            smooth_calibration(d, y, T0, **options)
    with pytest.raises(ValueError, match=r"time .* positive .*; got 0"):
        smooth_calibration(d, y, 0.0)
    with pytest.raises(ValueError, match=r"400 .* 1e-09 .*group_calibration"):
        smooth_calibration(KaplanMeier().fit(scale[:, None], y).predict_distribution(scale[:, None]), y, 1e-9)
    with pytest.raises(ValueError, match="interval-censored"):
        smooth_calibration(d[:2], Surv.interval([0.0, 1.0], [1.0, 2.0]), T0)
    with pytest.raises(TypeError, match="SurvivalDistribution"):
        smooth_calibration(scale, y, T0)
    with pytest.raises(ValueError, match=r"400.*3 rows"):
        smooth_calibration(d, y[:3], T0)


def test_a_time_that_nobody_reaches_is_refused():
    scale, y = sample()
    last = y["time"].max()
    assert np.isfinite(smooth_calibration(Weibull(scale, 1.4), y, 0.9 * last).ici)
    with pytest.raises(ValueError, match=f"Nobody .* last time is {last:g}"):
        smooth_calibration(Weibull(scale, 1.4), y, 1.1 * last)


def test_the_result_prints_its_numbers_and_not_its_arrays():
    scale, y = sample()
    result = smooth_calibration(Weibull(scale, 1.4), y, T0, n_bootstrap=5, random_state=0)
    assert len(repr(result)) < 200
    for value in (result.ici, *result.ici_interval, result.e50, result.e90, result.emax):
        assert f"{value:.4f}" in repr(result)


@pytest.mark.parametrize("factor", [1.0, 1.4])
def test_the_interval_of_the_ici_counts_noise_once(factor):
    """Intervals cover the mean ICI of samples of this size, for the truth and for a model that is wrong."""
    rng = np.random.default_rng(7)

    def drawn(n_bootstrap=0):
        scale = np.exp(0.7 * rng.normal(size=150))
        time, end = scale * rng.exponential(size=150), 2.0 * rng.exponential(size=150)
        y = Surv.from_arrays(time <= end, np.minimum(time, end))
        return smooth_calibration(Weibull(factor * scale, 1.0), y, T0, n_bootstrap=n_bootstrap, random_state=rng)

    mean = np.mean([drawn().ici for _ in range(150)])
    found = [drawn(40) for _ in range(16)]
    covered = [result.ici_interval[0] <= mean <= result.ici_interval[1] for result in found]
    assert np.mean(covered) > 0.7
    if factor == 1.0:  # with the noise counted twice the middle of the intervals lies a quarter above the mean
        assert np.mean([result.ici_interval for result in found]) < 1.18 * mean
    assert all(result.ici_interval[0] <= result.ici <= result.ici_interval[1] for result in found)
    assert all(((result.lower <= result.curve) & (result.curve <= result.upper)).all() for result in found)


def test_few_events_are_reported_once_and_not_by_resample():
    """Regressions of few events may have no maximum; users do not know the columns of the spline."""
    risk = np.concatenate([np.linspace(0.05, 0.3, 30), np.linspace(0.6, 0.8, 4)])
    d = Weibull(-1.0 / np.log1p(-risk), 1.0)
    apart = Surv.from_arrays(np.arange(34) >= 30, np.where(np.arange(34) >= 30, 0.5, 2.0))
    with pytest.warns(UserWarning, match=r"Too few events .* at time 1") as told:
        smooth_calibration(d, apart, 1.0, n_bootstrap=5, random_state=0)
    assert len(told) == 1
    assert told[0].filename == __file__
    event = np.isin(np.arange(34), [5, 20, 30, 33])
    mixed = Surv.from_arrays(event, np.where(event, 0.5 + 0.01 * np.arange(34), 2.0))
    found = smooth_calibration(d, mixed, 1.0, n_bootstrap=30, random_state=0)  # warnings are errors
    assert found.ici_interval[0] <= found.ici <= found.ici_interval[1]


@pytest.mark.parametrize("cause", [None, 1])
def test_limits_are_those_of_regressions_on_resampled_rows(cause):
    """Each resample is fitted by the public estimator to the rows as often as they were drawn."""
    scale, y = sample(150, seed=1)
    rng = np.random.default_rng(2)
    d = Weibull(0.8 * scale, 1.4)
    if cause is not None:
        y = Surv.from_arrays(np.where(y["event"], rng.integers(1, 3, len(y)), 0), y["time"])
        d = CauseMixture(np.log(np.full((len(y), 2), 0.5)), [d, Weibull(scale, 1.0)])
    found = smooth_calibration(d, y, T0, cause=cause, n_bootstrap=9, random_state=3)
    late, code = y["time"] > T0, y["event"]
    columns = harrell_spline(np.log(-(d if cause is None else d.cause(cause)).log_survival(T0)), (0.1, 0.5, 0.9))
    ends = [np.argmin(found.predicted), np.argmax(found.predicted)]
    draws, rng = [], np.random.default_rng(3)
    for _ in range(9):
        drawn = rng.integers(len(y), size=len(y))
        again = Surv.from_arrays(np.where(late, 0, code)[drawn].astype(code.dtype), np.minimum(y["time"], T0)[drawn])
        if cause is None:
            draws.append(CoxPH().fit(columns[drawn], again).predict_distribution(columns[ends]).cdf(T0))
            continue
        model = FineGray().fit(columns[drawn], again)
        baseline = model.baselines_[0][1][-1]
        draws.append(-np.expm1(-baseline * np.exp(model.log_risk(columns[ends])[:, 0])))
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    curve = found.curve[[0, -1]]  # limits are extended to it
    np.testing.assert_allclose(found.lower[[0, -1]], np.minimum(low, curve), rtol=1e-5)
    np.testing.assert_allclose(found.upper[[0, -1]], np.maximum(high, curve), rtol=1e-5)
