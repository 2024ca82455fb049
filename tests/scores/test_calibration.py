import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest

from scores import direct
from sumosurv import Surv, check_outcome, kaplan_meier
from sumosurv.distributions import Rescaled, Tabulated, Weibull
from sumosurv.scores import calibration, d_calibration, group_calibration


def _sample(rng, n, censoring_mean=np.inf):
    scale = rng.uniform(0.5, 2.0, n)
    t, c = scale * rng.exponential(1.0, n), rng.exponential(min(censoring_mean, 1e9), n)
    return Surv.from_arrays(t <= c, np.minimum(t, c)), Weibull(scale, 1.0)


def test_calibration_is_the_papers_formula():
    y, d = _sample(np.random.default_rng(0), 500, 2.0)
    result = calibration(d, y)
    u = d.cdf(own_times=y["time"])
    shares = [sum(ui <= p for ui in u) / 500 for p in np.arange(1, 10) / 10]
    np.testing.assert_allclose(result.observed, shares)
    assert result.score == pytest.approx(sum((p - s) ** 2 for p, s in zip(np.arange(1, 10) / 10, shares)))


def test_calibration_counts_f_equal_to_the_level():
    d = Tabulated([1.0, 2.0], [[0.75, 0.5]] * 2)
    result = calibration(d, Surv.from_arrays([True, True], [1.0, 2.0]), levels=[0.25, 0.5])
    np.testing.assert_array_equal(result.observed, [0.5, 1.0])


def test_calibration_of_more_rows_than_are_looked_at_together():
    """Exponential times, so that F is known: every row counts once."""
    rng = np.random.default_rng(0)
    time, scale = rng.exponential(1.0, 70_000), rng.uniform(0.5, 2.0, 70_000)
    levels = np.array([0.2, 0.5, 0.9])
    result = calibration(Weibull(scale, 1.0), Surv.from_arrays(np.ones(70_000, bool), time), levels=levels)
    np.testing.assert_allclose(
        result.observed, (1.0 - np.exp(-time / scale)[:, None] <= levels).mean(axis=0), atol=2e-5
    )


def test_calibration_blames_the_truth_under_censoring():
    rng = np.random.default_rng(1)
    assert calibration(*reversed(_sample(rng, 20_000))).score < 1e-3
    y, truth = _sample(rng, 20_000, 1.0)
    faster = Weibull(0.5 * truth.scale[:, 0].numpy(), 1.0)
    assert calibration(faster, y).score < calibration(truth, y).score
    assert d_calibration(faster, y).score > d_calibration(truth, y).score


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30), st.sampled_from([0.0, 0.5, 1.0]), st.integers(2, 12))
def test_d_calibration_against_the_definition(seed, n, share, bins):
    rng = np.random.default_rng(seed)
    y = Surv.from_arrays(rng.random(n) < share, rng.exponential(1.0, n).round(1))
    d = Weibull(rng.uniform(0.5, 2, n), 1.0)
    result = d_calibration(d, y, bins=bins)
    np.testing.assert_allclose(
        result.shares, direct.d_calibration(d.cdf(own_times=y["time"]), y["event"], bins), atol=1e-12
    )
    assert result.shares.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(result.edges, np.arange(bins + 1) / bins, atol=1e-15)
    p = rng.permutation(n)
    again = d_calibration(Rescaled(d, 3.0)[p], Surv.from_arrays(y["event"], 3.0 * y["time"])[p], bins=bins)
    np.testing.assert_allclose(again.shares, result.shares, atol=1e-9)


def test_the_test_of_d_calibration_is_that_of_rao_and_scott():
    """Without censoring it is about Pearson's; one row repeated counts as one subject."""
    y, d = _sample(np.random.default_rng(7), 300)
    free = d_calibration(d, y)
    assert free.statistic == pytest.approx(300 * 10 * free.score, rel=0.1)
    assert free.df == pytest.approx(9, rel=0.1)
    y, d = _sample(np.random.default_rng(8), 300, 0.5)
    found = d_calibration(d, y, bins=5)
    values = direct.d_calibration_rows(d.cdf(own_times=y["time"]), y["event"], 5) - 0.2
    eigenvalues = np.linalg.eigvalsh(values.T @ values / 300)
    first, second = eigenvalues.sum(), np.square(eigenvalues).sum()
    assert found.statistic == pytest.approx(300 * found.score * first / second)
    assert found.df == pytest.approx(first**2 / second)
    assert found.p_value == pytest.approx(chi2.sf(found.statistic, found.df))
    again = check_outcome(np.repeat(y, 3), groups=np.repeat(np.arange(300), 3))
    assert d_calibration(d[np.repeat(np.arange(300), 3)], again, bins=5).p_value == pytest.approx(found.p_value)
    assert d_calibration(d[np.repeat(np.arange(300), 3)], np.repeat(y, 3), bins=5).p_value < found.p_value


@pytest.mark.parametrize("censoring", [np.inf, 1.0, 0.3])
def test_d_calibration_p_values_of_the_truth_are_uniform(censoring):
    """Pearson's test rejected the truth in fewer than one of a hundred samples with half of the rows censored."""
    rng = np.random.default_rng(2)
    p = [d_calibration(*reversed(_sample(rng, 400, censoring))).p_value for _ in range(200)]
    assert kstest(p, "uniform").pvalue > 0.01
    assert 0.02 <= np.mean(np.array(p) < 0.05) <= 0.09


def test_d_calibration_where_the_curve_says_it_is_over():
    """F(z) = 1: an event, or a censoring that the model called impossible, belongs to the last bin."""
    d = Tabulated([1.0], [[0.0]] * 2)
    np.testing.assert_array_equal(
        d_calibration(d, Surv.from_arrays([True, False], [1.0, 2.0]), bins=2).shares, [0.0, 1.0]
    )


def test_kaplan_meier_itself_is_d_calibrated():
    """On average over x it is right, though it says nothing of x."""
    y, _ = _sample(np.random.default_rng(3), 2000, 3.0)
    km = kaplan_meier(y)
    smooth = Tabulated(km.times, km.table, between="density").repeat(2000)
    assert d_calibration(smooth, y).p_value > 0.5


def test_group_calibration_against_lifelines(lifelines):
    y, d = _sample(np.random.default_rng(4), 400, 2.0)
    result = group_calibration(d, y, 0.9, groups=5)
    s = d.cdf(0.9)
    for group, rows in enumerate(np.array_split(np.argsort(s, kind="stable"), 5)):
        km = lifelines.KaplanMeierFitter().fit(y["time"][rows], y["event"][rows])
        assert result.predicted[group] == pytest.approx(s[rows].mean())
        assert result.observed[group] == pytest.approx(1.0 - float(km.predict(0.9)), abs=1e-12)
        # lifelines keeps Greenwood's sum to itself; its variance of log(-log S) is that sum over (log S)²
        greenwood = float(km._cumulative_sq_.loc[:0.9].iloc[-1])
        assert result.std_error[group] == pytest.approx((1.0 - result.observed[group]) * np.sqrt(greenwood), rel=1e-9)
    assert result.score == pytest.approx(np.average((result.predicted - result.observed) ** 2, weights=result.size))


def test_group_calibration_p_values_of_the_truth_are_about_uniform():
    rng = np.random.default_rng(5)
    p = np.array([group_calibration(*reversed(_sample(rng, 1000, 2.0)), 0.7, groups=5).p_value for _ in range(150)])
    assert kstest(p, "uniform").pvalue > 0.005
    wrong = _sample(rng, 1000, 2.0)
    assert group_calibration(Rescaled(wrong[1], 1.5), wrong[0], 0.7).p_value < 1e-3


def test_group_calibration_rejects_the_truth_no_more_often_than_it_says():
    """Ten groups of 50 with few events: with Greenwood's variance of the observed survival it is 20 %."""
    rng = np.random.default_rng(6)
    p = []
    for _ in range(250):
        scale = 8.0 * np.exp(0.5 * rng.normal(size=500))
        t, c = scale * rng.exponential(1.0, 500), rng.exponential(2.0, 500)
        p.append(group_calibration(Weibull(scale, 1.0), Surv.from_arrays(t <= c, np.minimum(t, c)), 1.0).p_value)
    assert 0.015 <= np.mean(np.array(p) < 0.05) <= 0.09


@pytest.mark.parametrize("censoring_mean", [0.7, 1e9])
def test_group_calibration_allows_for_predictions_that_differ_within_a_group(censoring_mean):
    """One group: given x the observed survival varies less than that of a sample from the mixture."""
    rng = np.random.default_rng(7)
    statistic = []
    for _ in range(200):
        scale = np.exp(1.2 * rng.normal(size=200))
        t, c = scale * rng.exponential(1.0, 200), rng.exponential(censoring_mean, 200)
        y = Surv.from_arrays(t <= c, np.minimum(t, c))
        statistic.append(group_calibration(Weibull(scale, 1.0), y, 0.7, groups=1).statistic)
    assert np.mean(statistic) == pytest.approx(1.0, abs=0.2)  # of χ² with one degree of freedom


def test_group_calibration_of_impossible_events():
    y = Surv.from_arrays([True, True, False], [1.0, 2.0, 3.0])
    sure = Tabulated([4.0], [[0.5]] * 3)  # S = 1 before 4
    assert group_calibration(sure, y, 2.5, groups=1).p_value == 0.0
    assert np.isnan(group_calibration(sure, y, 0.5, groups=1).p_value)  # nothing happened, as predicted


def test_group_calibration_where_follow_up_ends():
    d = Weibull([1.0, 2.0, 3.0], 1.0)
    result = group_calibration(d, Surv.from_arrays([True, False, True], [1.0, 2.0, 0.5]), 5.0, groups=3)
    np.testing.assert_array_equal(result.observed, [1.0, np.nan, 1.0])
    np.testing.assert_array_equal(result.std_error, [0.0, np.nan, 0.0])
    # without censoring the variance is S (1 - S) / n
    assert result.statistic == pytest.approx(1 / np.expm1(5.0) + 1 / np.expm1(5.0 / 3.0))
    assert result.p_value == pytest.approx(chi2.sf(result.statistic, 2))
    one = group_calibration(d[0], Surv.from_arrays([False], [1.0]), 2.0)
    assert np.isnan(one.score)


def test_mistakes_are_named():
    y, d = _sample(np.random.default_rng(6), 5)
    with pytest.raises(ValueError, match="levels"):
        calibration(d, y, levels=[10, 20])
    with pytest.raises(ValueError, match="bins"):
        d_calibration(d, y, bins=1)
    with pytest.raises(ValueError, match="groups"):
        group_calibration(d, y, groups=0)
    with pytest.raises(ValueError, match=r"time.*-1"):
        group_calibration(d, y, -1.0)


def test_group_calibration_has_the_variance_of_the_model_within_a_group():
    """Without censoring the observed share is a mean of n coins with chances S_i: Σ S_i (1 - S_i) / n²."""
    rng = np.random.default_rng(7)
    d = Weibull(np.exp(rng.normal(size=300)), 1.3)
    y = Surv.from_arrays(np.ones(300, bool), d.sample(random_state=0))
    result = group_calibration(d, y, 0.8, groups=2)
    s = d.survival(0.8)
    expected = 0.0
    for rows in np.array_split(np.argsort(s, kind="stable"), 2):
        assert s[rows].var() > 0.1 * (s[rows] * (1 - s[rows])).mean()  # the spread within a group matters
        deviation = s[rows].mean() - (y["time"][rows] > 0.8).mean()
        expected += deviation**2 / ((s[rows] * (1 - s[rows])).sum() / len(rows) ** 2)
    assert result.statistic == pytest.approx(expected, rel=1e-9)


def test_group_calibration_follows_a_group_whose_last_time_is_the_time():
    y = Surv.from_arrays([True, False], [1.0, 2.0])
    d = Weibull([1.0, 1.0], 1.0)
    np.testing.assert_array_equal(group_calibration(d, y, 2.0, groups=1).observed, [0.5])
    assert np.isnan(group_calibration(d, y, np.nextafter(2.0, 3.0), groups=1).observed).all()


def test_group_calibration_leaves_out_a_group_that_nothing_can_happen_to():
    """S = 1 and no event: there is nothing to test. With an event there it is impossible."""
    d = Weibull([1e300, 1e300, 1.0, 1.0], 1.0)
    y = Surv.from_arrays([False, False, True, True], [2.0, 2.0, 0.5, 2.0])
    result = group_calibration(d, y, 1.0, groups=2)
    s = np.exp(-1.0)
    assert result.statistic == pytest.approx((s - 0.5) ** 2 / (s * (1 - s) / 2))
    assert result.p_value == pytest.approx(chi2.sf(result.statistic, 1))
    y["event"][0], y["time"][0] = True, 0.5
    assert group_calibration(d, y, 1.0, groups=2).p_value == 0.0
