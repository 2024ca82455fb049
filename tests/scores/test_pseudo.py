"""Pseudo-observations by leaving out one row at a time, calibration lines of known truths, optimism by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares

from sumosurv import CoxPH, KaplanMeier, Surv, aalen_johansen, check_outcome, datasets, kaplan_meier
from sumosurv.distributions import Weibull
from sumosurv.scores import (
    brier,
    calibration_intercept,
    calibration_slope,
    cross_evaluate,
    evaluate,
    harrell_c,
    integrated_brier,
    integrated_scaled_brier,
    make_survival_scorer,
    mean_absolute_error,
    scaled_brier,
    validate,
)
from sumosurv.scores.pseudo import pseudo_observations


def sample(n=40, seed=0):
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(size=n))
    time = np.ceil(6 * scale * rng.exponential(size=n)) / 6  # ties
    return Weibull(scale, 1.0), Surv.from_arrays(rng.integers(0, 3, n), time)


def left_out(counts, estimate):
    """n θ - (n - 1) θ of all but one copy of each row."""
    n, made = counts.sum(), []
    for i in range(len(counts)):
        fewer = counts.astype(float)
        fewer[i] -= 1
        made.append(n * estimate(counts) - (n - 1) * estimate(fewer) if counts[i] else 0.0)
    return np.array(made)


@pytest.mark.parametrize("seed", range(4))
def test_pseudo_observations_are_those_of_leaving_out_one_row(seed):
    _, y = sample(seed=seed)
    order = np.lexsort((y["event"] == 0, y["time"]))
    y = y[order]
    outcome = check_outcome(y)
    rng = np.random.default_rng(seed)
    counts = np.stack([np.ones(40), rng.multinomial(40, np.full(40, 1 / 40))])
    at, horizon = 1.0, 2.0

    def incidence(weight):
        return aalen_johansen(y, sample_weight=weight, causes=2).cumulative_incidence(at)[0, 0]

    def mean(weight):
        return kaplan_meier(outcome.any_cause(), sample_weight=weight).restricted_mean(horizon)[0]

    own = ((y["event"] == 1) & (y["time"] <= at)).astype(float)
    until = np.minimum(y["time"], horizon)
    nothing = np.zeros(40)
    incidences = pseudo_observations(counts, outcome, nothing, own, nothing)
    means = pseudo_observations(counts, outcome, np.diff(until, prepend=0.0), nothing, horizon - until)
    for row, weight in enumerate(counts):
        np.testing.assert_allclose(incidences[row], left_out(weight, incidence), atol=1e-10)
        np.testing.assert_allclose(means[row], left_out(weight, mean), atol=1e-10)


def test_without_censoring_the_line_is_least_squares_on_the_events():
    rng = np.random.default_rng(1)
    scale = np.exp(rng.normal(size=500))
    y = Surv.from_arrays(np.ones(500, bool), scale * rng.exponential(size=500))
    d = Weibull(1.3 * scale**1.5, 1.0)
    z, event = np.log(-d.log_survival(1.0)), y["time"] <= 1.0
    found = least_squares(lambda w: 1 - np.exp(-np.exp(w[0] + w[1] * z)) - event, [0.0, 1.0], ftol=None, xtol=1e-14)
    assert calibration_slope(d, y, 1.0) == pytest.approx(found.x[1], abs=1e-6)
    found = least_squares(lambda w: 1 - np.exp(-np.exp(w[0] + z)) - event, [0.0], ftol=None, xtol=1e-14)
    assert calibration_intercept(d, y, 1.0) == pytest.approx(found.x[0], abs=1e-6)


def test_lines_of_known_models():
    """Twice the hazard has the intercept log 2; twice the log-hazard ratio has the slope 1/2."""
    rng = np.random.default_rng(2)
    scale = np.exp(0.6 * rng.normal(size=20_000))
    t, c = scale * rng.exponential(size=20_000), rng.exponential(2.0, 20_000)
    y = Surv.from_arrays(t <= c, np.minimum(t, c))
    assert calibration_intercept(Weibull(scale, 1.0), y, 0.8) == pytest.approx(0.0, abs=0.05)
    assert calibration_intercept(Weibull(2.0 * scale, 1.0), y, 0.8) == pytest.approx(np.log(2.0), abs=0.05)
    assert calibration_slope(Weibull(scale, 1.0), y, 0.8) == pytest.approx(1.0, abs=0.05)
    assert calibration_slope(Weibull(scale**2, 1.0), y, 0.8) == pytest.approx(0.5, abs=0.05)


def test_lines_that_do_not_exist():
    d, y = sample()
    y = Surv.from_arrays(y["event"] > 0, y["time"])
    assert np.isnan(calibration_slope(Weibull(np.full(40, 1.0), 1.0), y, 1.0))
    assert np.isnan(calibration_slope(d, Surv.from_arrays(np.zeros(40, bool), y["time"]), 2 * y["time"].max()))
    with pytest.raises(ValueError, match=r"40 .* at time 0 are 0 or 1"):
        calibration_slope(d, y, 0.0)
    found = evaluate(d, None, y, scores={"calibration_slope": {"time": 0.0}}, n_bootstrap=5)
    assert found["value"].isna().all()
    assert "are 0 or 1" in found.notes[-1]


def test_models_are_compared_by_the_distance_from_the_target():
    rng = np.random.default_rng(3)
    scale = np.exp(rng.normal(size=400))
    y = Surv.from_arrays(np.ones(400, bool), scale * rng.exponential(size=400))
    models = {"wide": Weibull(scale**2, 1.0), "narrow": Weibull(scale**0.5, 1.0), "true": Weibull(scale, 1.0)}
    table = evaluate(models, None, y, scores="calibration_slope", times=1.0, n_bootstrap=100)
    value = table[table["against"] == ""].set_index("model")["value"]
    difference = table[table["against"] != ""].set_index("model")
    assert value["wide"] < value["true"] < value["narrow"]
    for name in ("narrow", "true"):
        assert difference.loc[name, "value"] == pytest.approx(abs(value[name] - 1) - abs(value["wide"] - 1))
    assert repr(table).splitlines()[-1].endswith("better")
    X = pd.DataFrame({"x": np.log(scale)})
    methods = {"Kaplan-Meier": KaplanMeier(), "Cox": CoxPH()}
    won = cross_evaluate(methods, X, y, 3, scores="scaled_brier", times=1.0, verbose=False).table["won"].iloc[-1]
    assert won == 1.0
    scorer = make_survival_scorer("calibration_slope", time=1.0)
    model = CoxPH().fit(X, y)
    assert scorer(model, X, y) == -abs(calibration_slope(model.predict_distribution(X), y, 1.0) - 1.0)


def test_scaled_brier_is_relative_to_kaplan_meier():
    d, y = sample(200)
    y = Surv.from_arrays(y["event"] > 0, y["time"])
    g, null = kaplan_meier(y, censoring=True), kaplan_meier(y)[np.zeros(200, dtype=int)]
    for at in (0.5, 1.5):
        ratio = brier(d, y, at, censoring=g).mean() / brier(null, y, at, censoring=g).mean()
        assert scaled_brier(d, y, at, censoring=g) == pytest.approx(1.0 - ratio, rel=1e-10)
        assert scaled_brier(null, y, at, censoring=g) == pytest.approx(0.0, abs=1e-10)
    span = {"times": (0.3, 2.0), "censoring": g}
    ratio = integrated_brier(d, y, **span).mean() / integrated_brier(null, y, **span).mean()
    assert integrated_scaled_brier(d, y, **span) == pytest.approx(1.0 - ratio, rel=1e-10)
    span["normalize"] = True
    ratio = integrated_brier(d, y, **span).mean() / integrated_brier(null, y, **span).mean()
    assert integrated_scaled_brier(d, y, **span) == pytest.approx(1.0 - ratio, rel=1e-6)
    # with G from the scored rows, evaluate estimates it anew in each resample
    found = evaluate(d, None, y, scores={"integrated_scaled_brier": {"times": (0.3, 2.0)}}, n_bootstrap=0)
    assert found["value"].iloc[0] == pytest.approx(integrated_scaled_brier(d, y, times=(0.3, 2.0), censoring=g))


def test_mean_absolute_error_without_censoring():
    d, y = sample()
    y = Surv.from_arrays(np.ones(40, bool), y["time"])
    last = y["time"].max()
    error = np.abs(np.minimum(d.median(), last) - y["time"]).mean()
    assert mean_absolute_error(d, y) == pytest.approx(error)
    error = np.abs(d.restricted_mean(1.0) - np.minimum(y["time"], 1.0)).mean()
    assert mean_absolute_error(d, y, horizon=1.0, prediction="mean") == pytest.approx(error)
    with pytest.raises(ValueError, match="'median' or 'mean'"):
        mean_absolute_error(d, y, prediction="mode")
    with pytest.raises(ValueError, match="horizon must be a positive number"):
        mean_absolute_error(d, y, horizon=-1.0)


def test_optimism_is_that_of_refitting_to_resamples():
    data = datasets.simulate("weibull", 80, random_state=0)
    X, y = data.X, data.y
    settings = {"scores": "harrell_c", "n_bootstrap": 5, "verbose": False}
    found = validate(CoxPH(), X, y, **settings, random_state=7)
    rng, gaps = np.random.default_rng(7), []
    for _ in range(5):
        rows = rng.integers(80, size=80)
        model = CoxPH().fit(X.iloc[rows], y[rows])
        gaps.append(harrell_c(model.predict(X.iloc[rows]), y[rows]) - harrell_c(model.predict(X), y))
    row = found.table.iloc[0]
    assert row["apparent"] == pytest.approx(harrell_c(CoxPH().fit(X, y).predict(X), y))
    assert row["optimism"] == pytest.approx(np.mean(gaps))
    assert row["std_error"] == pytest.approx(np.std(gaps, ddof=1) / np.sqrt(5))
    assert row["corrected"] == pytest.approx(row["apparent"] - row["optimism"])
    assert not found.notes  # no score is undefined
    assert len(found.resamples) == 5
    pd.testing.assert_frame_equal(found.table, validate(CoxPH(), X, y, **settings, random_state=7).table)
    assert not found.table.equals(validate(CoxPH(), X, y, **settings, random_state=8).table)
    assert "corrected" in repr(found)
    with pytest.raises(ValueError, match="n_bootstrap must be 1 or more"):
        validate(CoxPH(), X, y, n_bootstrap=0)


def test_subjects_are_drawn_with_all_of_their_rows():
    data = datasets.simulate("weibull", 40, random_state=0)
    seen = []

    class Watched(CoxPH):
        def fit(self, X, y, sample_weight=None, groups=None):
            seen.append(check_outcome(y).group)
            return super().fit(X, y)

    subject = np.repeat(np.arange(20), 2)
    validate(Watched(), data.X, data.y, scores="harrell_c", n_bootstrap=3, groups=subject, verbose=False)
    for drawn in seen[1:]:
        assert (np.bincount(drawn) % 2 == 0).all()
    assert any(np.bincount(drawn).max() > 2 for drawn in seen[1:])


def test_many_scores_at_many_times_and_warnings():
    data = datasets.simulate("weibull", 60, random_state=1)
    X = np.column_stack([data.X, data.y["event"]])  # separates events
    with pytest.warns(UserWarning, match="likelihood has no maximum"):
        found = validate(CoxPH(), X, data.y, times=[0.3, 0.6], n_bootstrap=3, verbose=False)
    assert list(found.table["score"].value_counts()[["brier", "log_likelihood"]]) == [2, 1]
    assert "3 of 3 fits to resamples issued warnings" in found.notes[-1]
