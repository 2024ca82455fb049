"""Decision curves against their definition, and where nothing is censored against plain counting."""

from __future__ import annotations

import numpy as np
import pytest

from sumosurv import Surv, check_outcome, kaplan_meier
from sumosurv.distributions import CauseMixture, Weibull
from sumosurv.nonparametric import aalen_johansen
from sumosurv.scores import decision_curve
from sumosurv.scores._resampling import Bootstrap

P = np.array([0.05, 0.2, 0.35, 0.5, 0.8])


def sample(n=300, seed=0, censored=True):
    rng = np.random.default_rng(seed)
    scale = np.exp(0.8 * rng.normal(size=n))
    t = scale * rng.weibull(1.2, n)
    c = rng.exponential(1.5, n) if censored else np.full(n, np.inf)
    return Weibull(1.2 * scale, 1.2), Surv.from_arrays(t <= c, np.minimum(t, c))


def test_without_censoring_it_is_true_less_weighed_false_positives():
    d, y = sample(censored=False)
    table = decision_curve(d, y, 0.7, thresholds=P, n_bootstrap=0).table
    risk, had = d.cdf(0.7), y["time"] <= 0.7
    for p, row in table.iterrows():
        treat = risk >= p
        assert row["net_benefit"] == pytest.approx((treat & had).mean() - (treat & ~had).mean() * p / (1 - p))
        assert row["treat_all"] == pytest.approx(had.mean() - (~had).mean() * p / (1 - p))
        assert row["treated"] == pytest.approx(treat.mean())
        assert row["advantage"] == pytest.approx(row["net_benefit"] - max(row["treat_all"], 0.0))
    assert table.filter(like="_lower").isna().all().all()


def test_with_censoring_events_are_counted_by_kaplan_meier():
    d, y = sample()
    found = decision_curve(d, y, 0.7, thresholds=P, n_bootstrap=0)
    risk = d.cdf(0.7)
    for p, row in found.table.iterrows():
        treat = risk >= p
        incidence = 1 - kaplan_meier(y[treat]).survival(0.7)[0]
        expected = treat.mean() * (incidence - (1 - incidence) * p / (1 - p))
        assert row["net_benefit"] == pytest.approx(expected, rel=1e-10)
    assert (found.time, found.cause) == (0.7, None)


def test_one_cause_is_counted_by_aalen_johansen():
    rng = np.random.default_rng(1)
    n = 250
    d = CauseMixture(
        np.log(rng.dirichlet([2.0, 2.0], n)), [Weibull(rng.uniform(0.5, 2, n), 1.2), Weibull(np.ones(n), 1.0)]
    )
    time, cause = d.sample(random_state=rng, return_causes=True)
    end = rng.exponential(2.0, n)
    y = Surv.from_arrays(np.where(time <= end, cause, 0), np.minimum(time, end))
    table = decision_curve(d, y, 0.8, thresholds=[0.1, 0.3], cause=2, n_bootstrap=0).table
    risk = d.cumulative_incidence(0.8)[:, 1]
    for p, row in table.iterrows():
        treat = risk >= p
        incidence = aalen_johansen(y[treat], causes=2).cumulative_incidence(0.8)[0, 1]
        assert row["net_benefit"] == pytest.approx(treat.mean() * (incidence - (1 - incidence) * p / (1 - p)))


def test_limits_are_quantiles_over_resamples_of_the_subjects():
    d, y = sample(n=120)
    found = decision_curve(d, y, 0.7, thresholds=P, n_bootstrap=20, level=0.8, random_state=5)
    values = []
    for resamples in Bootstrap(check_outcome(y), 20, np.random.default_rng(5)):
        for counts in resamples.counts:
            again = np.repeat(np.arange(120), counts.astype(int))
            values.append(decision_curve(d[again], y[again], 0.7, thresholds=P, n_bootstrap=0).table)
    for name in ("net_benefit", "treat_all", "advantage"):
        lower, upper = np.quantile([table[name] for table in values], [0.1, 0.9], axis=0)
        np.testing.assert_allclose(found.table[f"{name}_lower"], lower, atol=1e-12)
        np.testing.assert_allclose(found.table[f"{name}_upper"], upper, atol=1e-12)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """The truth is known: with the true distribution, P(T <= t | F >= p) is the mean of F."""
    inside, p = [], 0.4
    big = np.exp(0.8 * np.random.default_rng(0).normal(size=200_000))
    risk = Weibull(big, 1.2).cdf(0.7)
    truth = ((risk >= p) * (risk - (1 - risk) * p / (1 - p))).mean()
    for seed in range(60):
        d, y = sample(n=200, seed=seed)
        row = decision_curve(
            Weibull(d.scale[:, 0] / 1.2, 1.2), y, 0.7, thresholds=[p], n_bootstrap=100, random_state=0
        ).table.iloc[0]
        inside.append(row["net_benefit_lower"] <= truth <= row["net_benefit_upper"])
    assert 0.88 <= np.mean(inside) <= 1.0


def test_weights_count_subjects_and_groups_are_drawn_together():
    d, y = sample(n=100)
    weight = np.random.default_rng(0).integers(0, 3, 100)
    again = np.repeat(np.arange(100), weight)
    one = decision_curve(d, y, 0.7, thresholds=P, n_bootstrap=0, sample_weight=weight).table
    two = decision_curve(d[again], y[again], 0.7, thresholds=P, n_bootstrap=0).table
    np.testing.assert_allclose(one, two, rtol=1e-9)
    twice = check_outcome(y[np.repeat(np.arange(50), 2)], groups=np.repeat(np.arange(50), 2))
    alone = decision_curve(d[:50], y[:50], 0.7, thresholds=P, random_state=1).table
    both = decision_curve(d[np.repeat(np.arange(50), 2)], twice, 0.7, thresholds=P, random_state=1).table
    np.testing.assert_allclose(both, alone, atol=1e-12)


def test_edges():
    d, y = sample()
    table = decision_curve(d, y, n_bootstrap=0).table
    assert len(table) == 99
    top = decision_curve(d, y, 0.01, thresholds=[0.99], n_bootstrap=5, random_state=0).table.iloc[0]
    assert top["net_benefit"] == top["treated"] == 0.0  # nobody is treated
    short = Surv.from_arrays(y["event"] & (y["time"] < 0.3), np.minimum(y["time"], 0.3))
    assert decision_curve(d, short, 0.7, thresholds=[0.1], n_bootstrap=0).table["net_benefit"].isna().all()
    for options, message in (
        ({"thresholds": [0.0]}, "above 0 and below 1"),
        ({"time": -1.0}, "time must be a number"),
        ({"level": 2}, "level.*2"),
        ({"n_bootstrap": -1}, "n_bootstrap.*-1"),
    ):
        with pytest.raises(ValueError, match=message):
            decision_curve(d, y, **options)
    with pytest.raises(ValueError, match="delayed entry"):
        decision_curve(d, Surv.from_arrays(y["event"], y["time"] + 1, np.full(300, 0.5)), 0.7)
