import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sksurv.metrics import concordance_index_censored, concordance_index_ipcw

from scores import direct
from sumosurv import AalenJohansen, Surv, check_outcome, kaplan_meier
from sumosurv.distributions import Rescaled, Tabulated, Weibull
from sumosurv.scores import concordance, concordance_td, harrell_c, uno_c
from sumosurv.scores.pairs import count_below

METHODS = ("harrell", "adj_antolini", "antolini")


def _table(rng, n, m, levels=None):
    survival = np.sort(rng.random((n, m)), axis=1)[:, ::-1]
    return survival.copy() if levels is None else np.round(survival * levels) / levels


@st.composite
def tied_data(draw):
    """Few distinct times and few distinct predictions: every kind of tie."""
    n = draw(st.integers(1, 14))
    time = np.array(draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), dtype=float)
    event = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    table = _table(np.random.default_rng(draw(st.integers(0, 1000))), n, 4, draw(st.sampled_from([2, 5, 1000])))
    return Surv.from_arrays(event, time), table


@settings(max_examples=150, deadline=None)
@given(tied_data(), st.sampled_from(METHODS), st.sampled_from([[0.0, 1.0, 3.0, 4.0], [0.5, 1.5, 2.0, 9.0]]))
def test_step_curves_against_the_definition(data, method, knots):
    y, table = data
    d = Tabulated(knots, table)
    expected = direct.concordance_td(lambda t: d.survival(t), y["event"], y["time"], method)
    np.testing.assert_allclose(concordance_td(d, y, method=method), expected, rtol=1e-13)


@settings(max_examples=100, deadline=None)
@given(tied_data(), st.sampled_from(METHODS), st.sampled_from([1, 7, 1 << 20]))
def test_exact_version_against_the_definition(data, method, cells):
    """Curves that are not steps take the blockwise way; any size of block gives the same."""
    y, table = data
    d = Tabulated([0.0, 1.0, 3.0, 4.0], table, between="density")
    before, concordance._CELLS = concordance._CELLS, cells
    try:
        value = concordance_td(d, y, method=method)
    finally:
        concordance._CELLS = before
    expected = direct.concordance_td(lambda t: d.log_survival(t), y["event"], y["time"], method)
    np.testing.assert_allclose(value, expected, rtol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_continuous_curves_against_the_definition(method):
    rng = np.random.default_rng(1)
    y = Surv.from_arrays(rng.random(60) < 0.6, rng.exponential(1.0, 60).round(1))
    d = Weibull(rng.uniform(0.5, 2, 60).round(1), rng.uniform(0.5, 2, 60).round(1))
    expected = direct.concordance_td(lambda t: d.survival(t), y["event"], y["time"], method)
    assert concordance_td(d, y, method=method) == pytest.approx(expected, abs=1e-13)


def test_a_grid_makes_a_step_surface():
    rng = np.random.default_rng(2)
    y = Surv.from_arrays(rng.random(80) < 0.6, rng.exponential(1.0, 80))
    d, times = Weibull(rng.uniform(0.5, 2, 80), rng.uniform(0.5, 2, 80)), np.linspace(0.1, 2, 7)
    surface = Tabulated(times, d.survival(times))
    assert concordance_td(d, y, times=times) == concordance_td(surface, y)
    fine = np.unique(np.concatenate([[0.0], y["time"][y["event"]]]))
    assert concordance_td(d, y, times=fine) == pytest.approx(concordance_td(d, y), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(tied_data())
def test_risk_scores_against_the_definition(data):
    y, table = data
    risk = table[:, 0]
    np.testing.assert_allclose(harrell_c(risk, y), direct.concordance_risk(risk, y["event"], y["time"]), rtol=1e-12)
    g = kaplan_meier(y, censoring=True)
    before = np.where(y["time"] > 0, g.survival(np.maximum(y["time"] - 0.5, 0))[0], 1.0)
    expected = direct.concordance_risk(risk, y["event"], y["time"], 1 / before**2)
    np.testing.assert_allclose(uno_c(risk, y, censoring=g), expected, rtol=1e-12)


@pytest.mark.parametrize("rounding", [0, 8])
def test_harrell_against_scikit_survival_and_lifelines(rounding):
    rng = np.random.default_rng(3)
    time, event = rng.exponential(5.0, 300).round(rounding) + 1, rng.random(300) < 0.5
    risk = rng.normal(size=300).round(1)
    value = harrell_c(risk, Surv.from_arrays(event, time))
    assert value == pytest.approx(concordance_index_censored(event, time, risk)[0], abs=1e-12)
    utils = pytest.importorskip("lifelines.utils", reason="lifelines is not installed; scikit-survival agrees")
    assert value == pytest.approx(utils.concordance_index(time, -risk, event), abs=1e-12)


@pytest.mark.parametrize(("rounding", "left_limit"), [(8, True), (8, False), (0, False)])
def test_uno_against_scikit_survival(rounding, left_limit):
    """Where events and censorings share times, scikit-survival takes G(z), not G(z-)."""
    rng = np.random.default_rng(4)
    time, event = rng.exponential(5.0, 400).round(rounding) + 1, rng.random(400) < 0.5
    train = Surv.from_arrays(event[:200], time[:200])
    tau = np.quantile(train["time"], 0.8)
    test, risk = Surv.from_arrays(event[200:], time[200:]), rng.normal(size=200).round(1)
    g = kaplan_meier(train, censoring=True)
    expected = concordance_index_ipcw(train, test, risk, tau=tau)[0]
    assert uno_c(risk, test, censoring=g, tau=tau, left_limit=left_limit) == pytest.approx(expected, abs=1e-10)


def test_uno_counts_events_before_tau_only():
    """Not the one at tau, which is the only discordant one."""
    y = Surv.from_arrays([True, True, False], [1.0, 2.0, 3.0])
    risk, g = [3.0, 1.0, 2.0], Weibull(10.0, 1.0)
    assert uno_c(risk, y, censoring=g, tau=2.0) == 1.0
    assert uno_c(risk, y, censoring=g, tau=2.1) < 1.0
    assert np.isnan(uno_c(risk, y, censoring=g, tau=1.0))


def test_distributions_are_summed_up_by_their_restricted_mean():
    rng = np.random.default_rng(5)
    y = Surv.from_arrays(rng.random(50) < 0.7, rng.exponential(1.0, 50))
    d = Weibull(rng.uniform(0.5, 2, 50), 1.0)
    assert harrell_c(d, y) == harrell_c(-d.restricted_mean(y["time"].max()), y) == harrell_c(-d.median(), y)


def test_row_order_and_time_unit_do_not_matter():
    rng = np.random.default_rng(6)
    y = Surv.from_arrays(rng.random(50) < 0.7, rng.exponential(1.0, 50).round(1))
    d, p = Weibull(rng.uniform(0.5, 2, 50), rng.uniform(0.5, 2, 50)), rng.permutation(50)
    value = concordance_td(d, y)
    assert concordance_td(d[p], y[p]) == value
    assert concordance_td(Rescaled(d, 4.0), Surv.from_arrays(y["event"], 4.0 * y["time"])) == value


def test_nothing_to_compare_is_nan():
    one, censored = Surv.from_arrays([True], [1.0]), Surv.from_arrays([False] * 3, [1.0, 2.0, 3.0])
    assert np.isnan(concordance_td(Weibull([1.0], 1.0), one))
    assert np.isnan(concordance_td(Weibull([1.0, 2.0, 3.0], 1.0), censored))
    assert np.isnan(concordance_td(Tabulated([1.0], [[0.5]] * 3), censored))
    assert np.isnan(harrell_c([1.0, 2.0, 3.0], censored))


@pytest.mark.parametrize("method", METHODS)
def test_delayed_entry_against_the_definition(method):
    """An event is compared with those at risk at its time, whatever kind of curves; and by subject."""
    rng = np.random.default_rng(4)
    n = 60
    time = np.ceil(rng.exponential(5.0, n))
    entry = np.where(rng.random(n) < 0.6, np.floor(time * rng.random(n)), 0.0)
    weight, y = rng.uniform(0.5, 2.0, n), Surv.from_arrays(rng.random(n) < 0.6, time, entry)
    d = Weibull(rng.uniform(2, 9, n).round(), rng.uniform(0.5, 2, n).round(1))
    knots = np.array([0.0, 2.0, 4.0, 7.0])
    for curves in (d, Tabulated(knots, d.survival(knots)), Weibull(rng.uniform(2, 9, n).round(), 1.0)):
        expected = direct.concordance_td(
            lambda t, c=curves: c.log_survival(t), y["event"], time, method, entry=entry, weight=weight
        )
        found = concordance_td(curves, y, method=method, sample_weight=weight)
        assert found == pytest.approx(expected, rel=1e-12)
        terms = concordance.concordance_td_terms(curves, check_outcome(y, sample_weight=weight), method=method)
        assert terms.value == pytest.approx(expected, rel=1e-12)
        assert len(terms.values) == n


def test_curves_without_covariates_have_one_half_for_each_cause():
    rng = np.random.default_rng(8)
    X, cause = pd.DataFrame({"x": rng.normal(size=200)}), rng.integers(0, 3, 200)
    y = Surv.from_arrays(cause, np.ceil(rng.exponential(5.0, 200)))
    d = AalenJohansen().fit(X, y).predict_distribution(X)
    assert [concordance_td(d, y, cause=k) for k in (1, 2)] == [0.5, 0.5]


def test_constant_prediction_is_one_half():
    rng = np.random.default_rng(7)
    y = Surv.from_arrays(rng.random(50) < 0.7, rng.exponential(1.0, 50))
    assert concordance_td(kaplan_meier(y).repeat(50), y) == 0.5
    assert concordance_td(Weibull(np.ones(50), 1.0), y) == 0.5
    assert concordance_td(Weibull(np.ones(50), 1.0), y, method="antolini") == 0.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(0, 1000))
def test_count_below(values, seed):
    rng, values = np.random.default_rng(seed), np.array(values)
    left = rng.integers(0, len(values) + 1, 20)
    right = rng.integers(left, len(values) + 1)
    threshold, weights = rng.integers(0, values.max() + 9, 20), rng.random(len(values))
    inside = [values[a:b] for a, b in zip(left, right)]
    below, equal = count_below(values, left, right, threshold)
    np.testing.assert_array_equal(below, [(part < x).sum() for part, x in zip(inside, threshold)])
    np.testing.assert_array_equal(equal, [(part == x).sum() for part, x in zip(inside, threshold)])
    below, equal = count_below(values, left, right, threshold, weights)
    expected = [weights[a:b][values[a:b] < x].sum() for a, b, x in zip(left, right, threshold)]
    np.testing.assert_allclose(below, expected, atol=1e-12)


def test_mistakes_are_named():
    y = Surv.from_arrays([True, False], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"'harrell', .*; got 'other'"):
        concordance_td(Weibull([1.0, 2.0], 1.0), y, method="other")
    with pytest.raises(ValueError, match="one risk score per row"):
        harrell_c([1.0], y)
    with pytest.raises(ValueError, match="NaN"):
        harrell_c([1.0, np.nan], y)
    for censoring in (np.ones(2), None):
        with pytest.raises(TypeError, match="kaplan_meier"):
            uno_c([1.0, 2.0], y, censoring=censoring)
