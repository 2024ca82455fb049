"""Tests between groups against lifelines, Cox models, the definition and simulated truths."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom, norm

from sumosurv import CoxPH, Surv, check_outcome, kaplan_meier, logrank_test, restricted_mean_test

WEIGHTINGS = {
    "logrank": (None, {}),
    "gehan-breslow": ("wilcoxon", {}),
    "tarone-ware": ("tarone-ware", {}),
    "peto": ("peto", {}),
    "fleming-harrington": ("fleming-harrington", {"p": 0.5, "q": 1.5}),
}


def sample(n=150, seed=0, groups=3, effect=0.5):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    t, c = rng.weibull(1.3, n) * np.exp(-effect * group), rng.exponential(1.5, n)
    time = np.ceil(20 * np.minimum(t, c)) / 20  # ties
    return Surv.from_arrays(t <= c, time), np.array(["a", "b", "c", "d"])[group]


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_log_rank_tests_are_those_of_lifelines(weighting, groups):
    statistics = pytest.importorskip("lifelines.statistics")
    y, by = sample(groups=groups, seed=groups)
    theirs, options = WEIGHTINGS[weighting]
    expected = statistics.multivariate_logrank_test(y["time"], by, y["event"], weightings=theirs, **options)
    ours = {"rho": 0.5, "gamma": 1.5} if options else {}
    found = logrank_test(y, by, weighting=weighting, **ours)
    assert found.statistic == pytest.approx(expected.test_statistic, rel=1e-10)
    assert found.p_value == pytest.approx(expected.p_value, rel=1e-9)
    assert found.df == groups - 1
    assert found.groups["events"].sum() == pytest.approx(found.groups["expected"].sum())


@pytest.mark.parametrize(
    ("weighting", "options"), [(w, {}) for w in WEIGHTINGS] + [("fleming-harrington", {"gamma": 1})]
)
def test_the_variance_with_tied_events_is_hypergeometric(weighting, options):
    """Five and three events of two groups at one time, after an event that fixes the weight of that time."""
    time, event = (
        np.append(0.5, np.repeat([1.0, 2.0, 1.0, 2.0], [5, 7, 3, 9])),
        [1] + [1] * 5 + [0] * 7 + [1] * 3 + [0] * 9,
    )
    by = np.repeat(["a", "b"], [13, 12])
    found = logrank_test(Surv.from_arrays(event, time), by, weighting=weighting, **options)
    w = {
        "logrank": (1, 1),
        "gehan-breslow": (25, 24),
        "tarone-ware": (5, np.sqrt(24)),
        "peto": (25 / 26, 25 / 26 * 17 / 25),
    }
    w = np.array(w.get(weighting, (0, 1) if options else (1, 1)))
    draws = hypergeom(25, 13, 1), hypergeom(24, 12, 8)  # events of a among all at risk
    u = w @ [1 - draws[0].mean(), 5 - draws[1].mean()]
    assert found.statistic == pytest.approx(u**2 / (w**2 @ [draw.var() for draw in draws]), rel=1e-12)


def test_whole_weights_repeat_rows_and_labels_may_be_anything():
    y, by = sample()
    weight = np.random.default_rng(1).integers(0, 4, len(by))
    again = np.repeat(np.arange(len(by)), weight)
    for ask in (logrank_test, lambda *rows, **more: restricted_mean_test(*rows, 0.8, **more)):
        one, two = ask(y, by, sample_weight=weight), ask(y[again], by[again])
        assert one.statistic == pytest.approx(two.statistic, rel=1e-10)
        pd.testing.assert_frame_equal(one.groups, two.groups)
    numbers = {"a": 3, "b": 1, "c": 2}
    assert logrank_test(y, [numbers[g] for g in by]).statistic == pytest.approx(logrank_test(y, by).statistic)
    assert logrank_test(y, pd.Series(by, dtype="category")).groups.index.tolist() == ["a", "b", "c"]


def test_strata_are_added_up():
    y, by = sample(n=300, groups=2)
    stratum = np.arange(300) % 3
    parts = [logrank_test(y[stratum == s], by[stratum == s]) for s in range(3)]
    gap = sum(part.groups["events"] - part.groups["expected"] for part in parts)
    variance = sum((part.groups["events"] - part.groups["expected"]).iloc[0] ** 2 / part.statistic for part in parts)
    assert logrank_test(y, by, strata=stratum).statistic == pytest.approx(gap.iloc[0] ** 2 / variance, rel=1e-10)


def test_late_entry_is_the_score_test_of_a_cox_model():
    """With distinct times the log-rank test is the score test; numbers at risk counted one by one here."""
    rng = np.random.default_rng(3)
    n = 120
    t, entry, group = rng.exponential(1.0, n), rng.exponential(0.4, n), rng.integers(0, 2, n)
    seen = entry < t
    t, entry, group = t[seen], entry[seen], group[seen]
    event = rng.random(len(t)) < 0.7
    u = v = 0.0
    for i in np.flatnonzero(event):
        at_risk = (entry < t[i]) & (t >= t[i])
        share = group[at_risk].mean()
        u, v = u + group[i] - share, v + share * (1 - share)
    found = logrank_test(Surv.from_arrays(event, t, entry), group)
    assert found.statistic == pytest.approx(u**2 / v, rel=1e-10)


def test_weights_that_are_no_counts_have_a_robust_variance():
    """The score of a Cox model at zero, whose robust variance is the sum of squares of its residuals."""
    rng = np.random.default_rng(4)
    n = 200
    t, group, weight = rng.exponential(1.0, n), rng.integers(0, 2, n), rng.uniform(0.5, 2.0, n)
    event = rng.random(n) < 0.7
    found = logrank_test(Surv.from_arrays(event, t), group, sample_weight=weight)
    w = check_outcome((t, event), sample_weight=weight).weight
    score = np.zeros(n)
    for i in np.flatnonzero(event):
        at_risk = t >= t[i]
        share, total = np.average(group[at_risk], weights=w[at_risk]), w[at_risk].sum()
        score[i] += w[i] * (group[i] - share)
        score[at_risk] -= w[at_risk] * (group[at_risk] - share) * w[i] / total
    assert found.statistic == pytest.approx(score.sum() ** 2 / (score**2).sum(), rel=1e-9)
    subject = np.arange(n) // 2
    together = np.bincount(subject, weights=score)
    grouped = check_outcome((t, event), sample_weight=weight, groups=subject)
    assert logrank_test(grouped, group).statistic == pytest.approx(score.sum() ** 2 / (together**2).sum(), rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_levels_are_those_that_are_nominal(weighted):
    rng = np.random.default_rng(5)
    rejected = np.zeros(2)
    for _ in range(250):
        t, c, by = rng.weibull(1.5, 100), rng.exponential(1.5, 100), np.arange(100) % 2
        weight = rng.uniform(0.3, 3.0, 100) if weighted else None
        y = Surv.from_arrays(t <= c, np.minimum(t, c))
        tests = logrank_test(y, by, sample_weight=weight), restricted_mean_test(y, by, 0.9, sample_weight=weight)
        rejected += [test.p_value < 0.05 for test in tests]
    assert (np.abs(rejected / 250 - 0.05) < 0.04).all()


# ---------------------------------------------------------------------- restricted means


def test_restricted_means_are_those_of_lifelines():
    utils = pytest.importorskip("lifelines.utils")
    from lifelines import KaplanMeierFitter

    y, by = sample()
    found = restricted_mean_test(y, by, 0.77)
    for name, row in found.groups.iterrows():
        own = y[by == name]
        km = KaplanMeierFitter().fit(own["time"], own["event"])
        expected = utils.restricted_mean_survival_time(km, t=0.77)
        assert row["restricted_mean"] == pytest.approx(expected, rel=1e-10)
        assert row["restricted_mean"] == pytest.approx(kaplan_meier(own).restricted_mean(0.77)[0], rel=1e-10)
        times, d, n = (km.event_table.iloc[1:].reset_index()[c].to_numpy() for c in ("event_at", "observed", "at_risk"))
        used = (d > 0) & (times <= 0.77)
        rest = [km_area(km, t, 0.77) for t in times[used]]
        greenwood = (np.square(rest) * d[used] / (n[used] * (n[used] - d[used]))).sum()
        assert row["standard_error"] == pytest.approx(np.sqrt(greenwood), rel=1e-9)


def km_area(km, start, end):
    edges = np.unique([start, end, *[t for t in km.survival_function_.index if start < t < end]])
    return (np.diff(edges) * np.atleast_1d(km.predict(edges[:-1]))).sum()


def test_differences_follow_from_the_groups():
    y, by = sample()
    found = restricted_mean_test(y, by, 0.8, level=0.9)
    means, errors = found.groups["restricted_mean"], found.groups["standard_error"]
    row = found.differences.loc[("a", "c")]
    error = np.hypot(errors["a"], errors["c"])
    assert row["difference"] == pytest.approx(means["a"] - means["c"])
    assert row["upper"] - row["difference"] == pytest.approx(1.6448536 * error)
    assert row["ratio"] == pytest.approx(means["a"] / means["c"])
    on_log_scale = 1.6448536 * np.hypot(errors["a"] / means["a"], errors["c"] / means["c"])
    limits = row["ratio"] * np.exp([-on_log_scale, on_log_scale])
    assert row[["ratio_lower", "ratio_upper"]].to_numpy() == pytest.approx(limits)
    assert row["lower"] == pytest.approx(row["difference"] - 1.6448536 * error)
    assert row["p"] == pytest.approx(2 * norm.sf(abs(row["difference"]) / error))
    two = restricted_mean_test(y[by != "b"], by[by != "b"], 0.8)
    assert two.p_value == pytest.approx(two.differences["p"].iloc[0])
    assert two.statistic == pytest.approx((row["difference"] / error) ** 2)
    assert found.df == 2


def test_the_jackknife_agrees_with_greenwood_and_with_leaving_out():
    y, by = sample(n=400, groups=2)
    own = y[by == "a"]
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(by))
    found = restricted_mean_test(y, by, 0.8, sample_weight=weight).groups.loc["a"]
    w = weight[by == "a"]

    def mean(weights):
        return kaplan_meier(own, sample_weight=weights).restricted_mean(0.8)[0]

    assert found["restricted_mean"] == pytest.approx(mean(w), rel=1e-10)
    left_out = [mean(np.where(np.arange(len(w)) == i, 0.0, w)) - mean(w) for i in range(len(w))]
    assert found["standard_error"] == pytest.approx(np.sqrt(np.square(left_out).sum()), rel=0.03)
    each = check_outcome(y, groups=np.arange(len(by)))
    greenwood, jackknife = (restricted_mean_test(rows, by, 0.8).groups["standard_error"] for rows in (y, each))
    np.testing.assert_allclose(jackknife, greenwood, rtol=0.02)


def test_late_entry_enters_the_risk_sets():
    rng = np.random.default_rng(6)
    t, entry = rng.exponential(1.0, 4000), rng.exponential(0.5, 4000) * (rng.random(4000) < 0.5)
    seen = entry < t
    y = Surv.from_arrays(np.ones(seen.sum(), bool), t[seen], entry[seen])
    found = restricted_mean_test(y, np.arange(seen.sum()) % 2, 1.5)
    assert found.groups["restricted_mean"].to_numpy() == pytest.approx(1 - np.exp(-1.5), abs=0.04)
    assert (found.groups["standard_error"] < 0.02).all()


def test_the_hazard_ratio_agrees_in_direction():
    y, by = sample(groups=2, n=300)
    worse = by == "b"
    assert CoxPH().fit(worse[:, None].astype(float), y).coef_[0] > 0
    found = logrank_test(y, by).groups
    assert found.loc["b", "events"] > found.loc["b", "expected"]
    assert restricted_mean_test(y, by, 0.8).differences.loc[("a", "b"), "lower"] > 0


def test_what_is_refused():
    y, by = sample()
    for options, message in (
        ({"weighting": "wilcoxon"}, "wilcoxon"),
        ({"rho": 1.0}, "require weighting='fleming-harrington'"),
        ({"weighting": "fleming-harrington", "rho": -1.0}, "zero or more"),
        ({"strata": [1, 2]}, "one group for each of the 150 rows"),
    ):
        with pytest.raises(ValueError, match=message):
            logrank_test(y, by, **options)
    with pytest.raises(ValueError, match=r"one group for each of the 150 rows; got shape \(150, 1\)"):
        logrank_test(y, pd.DataFrame({"by": by}))
    with pytest.raises(ValueError, match="nothing to compare"):
        logrank_test(y, np.zeros(150))
    with pytest.raises(ValueError, match="missing in row 3"):
        logrank_test(y, [None if i == 3 else g for i, g in enumerate(by)])
    with pytest.raises(ValueError, match="interval-censored"):
        logrank_test(Surv.interval([0.0, 1.0], [1.0, 2.0]), [0, 1])
    with pytest.raises(ValueError, match=r"Group 1 .* up to 2, .* horizon"):
        restricted_mean_test(Surv.from_arrays([1, 1, 0, 0], [1.0, 5.0, 1.0, 2.0]), [0, 0, 1, 1], 3.0)
    with pytest.raises(ValueError, match=r"horizon .*positive"):
        restricted_mean_test(y, by, 0.0)
    with pytest.raises(ValueError, match="level must be a probability"):
        restricted_mean_test(y, by, 0.5, level=95)


def test_groups_that_are_never_at_risk_do_not_count():
    """As without their rows: those that weigh nothing, and those that left before the first event."""
    y, by = sample()
    without = logrank_test(y[by != "c"], by[by != "c"])
    found = logrank_test(y, by, sample_weight=(by != "c").astype(float))
    assert (found.df, found.p_value) == (1, pytest.approx(without.p_value))
    early = Surv.from_arrays(np.append(y["event"], [False, False]), np.append(y["time"], [0.01, 0.02]))
    found, plain = logrank_test(early, np.append(by, ["a0", "a0"])), logrank_test(y, by)
    assert (found.df, found.p_value) == (plain.df, pytest.approx(plain.p_value))
    with pytest.raises(ValueError, match=r"no event .* two or more groups"):
        logrank_test(Surv.from_arrays([0, 0, 0], [1.0, 2.0, 3.0]), ["a", "b", "b"])


def test_a_masked_group_is_missing():
    y = Surv.from_arrays(np.ones(20), np.arange(1.0, 21.0))
    with pytest.raises(ValueError, match="by is missing in row 2"):
        logrank_test(y, np.ma.masked_array(np.arange(20) % 2, mask=np.arange(20) == 2))
