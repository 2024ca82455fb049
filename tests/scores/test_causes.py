"""Scores of one cause of several, against literal formulas and scikit-survival."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import trapezoid

from sumosurv import AalenJohansen, Surv, kaplan_meier
from sumosurv.distributions import CauseMixture, Tabulated, Weibull
from sumosurv.nonparametric import aalen_johansen, confidence_band
from sumosurv.outcome import check_outcome
from sumosurv.scores import (
    SCORES,
    binomial_log_likelihood,
    brier,
    concordance_td,
    cumulative_dynamic_auc,
    evaluate,
    group_calibration,
    integrated_binomial_log_likelihood,
    integrated_brier,
    log_likelihood,
    make_survival_scorer,
)
from sumosurv.scores._resampling import Resamples
from sumosurv.scores.auc import auc_terms
from sumosurv.scores.group_calibration import group_calibration_terms

N = 60


def rows(n=N, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    shares, scales = rng.dirichlet([2.0, 2.0], n), rng.uniform(0.5, 2.0, (n, 2))
    d = CauseMixture(np.log(shares), [Weibull(scales[:, 0], 1.3), Weibull(scales[:, 1], 0.9)])
    time, cause = d.sample(random_state=rng, return_causes=True)
    censored = rng.exponential(2.0, n)
    cause, time = np.where(time <= censored, cause, 0), np.minimum(time, censored)
    if ties:
        time = np.ceil(time * 8) / 8
    return d, Surv.from_arrays(cause, time)


D, Y = rows()
TIME, CAUSE = Y["time"], Y["event"]
G = kaplan_meier(Surv.from_arrays(CAUSE > 0, TIME), censoring=True)


def g_before(t):
    return float(G.survival(np.nextafter(t, 0.0))[0])


def as_steps(d):
    """The same curves on a table of steps: scored from the table."""
    knots = np.linspace(0.0, 6.0, 40)
    return Tabulated(knots, incidence=d.cumulative_incidence(knots))


# ---------------------------------------------------------------------- Brier and its relatives


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("d", [D, as_steps(D)], ids=["smooth", "steps"])
def test_brier_of_a_cause_follows_its_definition(d, k):
    for t in (0.3, 0.9, 1.7):
        incidence = d.cumulative_incidence(t)[:, k - 1]
        expected, logs = np.zeros(N), np.zeros(N)
        for i in range(N):
            if TIME[i] <= t and CAUSE[i] > 0:
                expected[i] = ((CAUSE[i] == k) - incidence[i]) ** 2 / g_before(TIME[i])
                logs[i] = np.log(incidence[i] if CAUSE[i] == k else 1 - incidence[i]) / g_before(TIME[i])
            elif TIME[i] > t:
                expected[i] = incidence[i] ** 2 / float(G.survival(t)[0])
                logs[i] = np.log1p(-incidence[i]) / float(G.survival(t)[0])
        np.testing.assert_allclose(brier(d, Y, t, censoring=G, cause=k), expected, atol=1e-12)
        np.testing.assert_allclose(binomial_log_likelihood(d, Y, t, censoring=G, cause=k), logs, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2])
def test_integrated_scores_average_those_at_times(k):
    grid = np.linspace(0.1, 2.0, 30)
    for whole, at in ((integrated_brier, brier), (integrated_binomial_log_likelihood, binomial_log_likelihood)):
        by_time = at(D, Y, grid, censoring=G, cause=k)
        expected = trapezoid(by_time, grid, axis=1) / (grid[-1] - grid[0])
        np.testing.assert_allclose(whole(D, Y, times=grid, censoring=G, cause=k), expected, rtol=1e-12)


def test_with_one_cause_the_score_is_that_of_the_time():
    y = Surv.from_arrays(CAUSE > 0, TIME)
    one = CauseMixture(np.zeros((N, 1)), [Weibull(np.full(N, 1.0), 1.2)])
    plain = Weibull(np.full(N, 1.0), 1.2)
    np.testing.assert_allclose(brier(one, y, 0.8, censoring=G, cause=1), brier(plain, y, 0.8, censoring=G), rtol=1e-12)


# ---------------------------------------------------------------------- concordance and AUC


def literal_concordance(d, time, cause, k):
    won = total = 0.0
    at = d.cumulative_incidence(np.unique(time))
    column = np.searchsorted(np.unique(time), time)
    for i in np.flatnonzero(cause == k):
        for j in range(len(time)):
            later = time[j] > time[i] or cause[j] not in (0, k)  # another cause: never that of cause k
            if j == i or not (later or (time[j] == time[i] and cause[j] == 0)):
                continue
            mine, theirs = at[i, column[i], k - 1], at[j, column[i], k - 1]
            won += (mine > theirs) + 0.5 * (mine == theirs)
            total += 1.0
    return won / total


@pytest.mark.parametrize("k", [1, 2])
def test_concordance_of_a_cause_follows_its_definition(k):
    assert concordance_td(D, Y, cause=k) == pytest.approx(literal_concordance(D, TIME, CAUSE, k), abs=1e-12)
    steps = as_steps(D)
    assert concordance_td(steps, Y, cause=k) == pytest.approx(literal_concordance(steps, TIME, CAUSE, k), abs=1e-12)


def test_concordance_is_certain_where_the_incidence_tells_the_cause():
    sure = CauseMixture(np.log(np.where(CAUSE[:, None] == [1, 2], 0.99, 0.01)), [Weibull(TIME + 0.01, 2.0)] * 2)
    known = Y[CAUSE > 0]
    assert concordance_td(sure[CAUSE > 0], known, cause=1) > 0.95
    assert concordance_td(sure[CAUSE > 0], known, cause=2) > 0.95


def literal_auc(marker, time, cause, k, t, censoring):
    def before(s):
        return float(censoring.survival(np.nextafter(s, 0.0))[0])

    won = cases = controls = 0.0
    weight = np.zeros(len(time))
    for i in range(len(time)):
        if time[i] <= t and cause[i] > 0:
            weight[i] = 1 / before(time[i])
        elif time[i] > t:
            weight[i] = 1 / float(censoring.survival(t)[0])
    is_case = (time <= t) & (cause == k)
    for i in np.flatnonzero(is_case):
        cases += weight[i]
        for j in np.flatnonzero(~is_case):
            won += weight[i] * weight[j] * ((marker[i] > marker[j]) + 0.5 * (marker[i] == marker[j]))
    controls = weight[~is_case].sum()
    return won / (cases * controls)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 2])
def test_auc_of_a_cause_follows_its_definition(k, ties):
    d, y = rows(seed=4, ties=ties)
    censoring = kaplan_meier(Surv.from_arrays(y["event"] > 0, y["time"]), censoring=True)
    times = np.array([0.4, 1.0])
    found = cumulative_dynamic_auc(d, y, times, censoring=censoring, cause=k)
    for t, value in zip(times, found):
        marker = d.cumulative_incidence(t)[:, k - 1]
        assert value == pytest.approx(literal_auc(marker, y["time"], y["event"], k, t, censoring), abs=1e-12)
        rounded = marker.round(1)  # ties between predictions
        assert cumulative_dynamic_auc(rounded, y, t, censoring=censoring, cause=k) == pytest.approx(
            literal_auc(rounded, y["time"], y["event"], k, t, censoring), abs=1e-12
        )


def test_auc_of_one_cause_equals_scikit_survival():
    sksurv = pytest.importorskip("sksurv.metrics", reason="scikit-survival, this test's oracle, is not installed")
    rng = np.random.default_rng(2)
    time, event = rng.exponential(size=200), rng.random(200) < 0.6
    y, risk = Surv.from_arrays(event, time), rng.normal(size=200) - np.log(time)
    times = np.quantile(time, [0.2, 0.5, 0.7])
    theirs, _ = sksurv.cumulative_dynamic_auc(y, y, risk, times)
    ours = cumulative_dynamic_auc(risk, y, times, censoring=kaplan_meier(y, censoring=True), left_limit=False)
    np.testing.assert_allclose(ours, theirs, atol=1e-10)
    by_time = np.column_stack([risk, risk**2, -risk])
    theirs, _ = sksurv.cumulative_dynamic_auc(y, y, by_time, times)
    ours = cumulative_dynamic_auc(by_time, y, times, censoring=kaplan_meier(y, censoring=True), left_limit=False)
    np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_risks_that_do_not_fit():
    with pytest.raises(ValueError, match=r"one risk score per row of y \(60\)"):
        cumulative_dynamic_auc(np.ones(3), Y, 1.0, censoring=G)
    with pytest.raises(ValueError, match="missing"):
        cumulative_dynamic_auc(np.full(N, np.nan), Y, 1.0, censoring=G)
    assert np.isnan(cumulative_dynamic_auc(D, Y, 1e-9, censoring=G))


# ---------------------------------------------------------------------- calibration


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("ties", [False, True])
def test_calibration_sets_predictions_against_aalen_johansen(k, ties):
    d, y = rows(200, seed=1, ties=ties)
    found = group_calibration(d, y, 0.7, cause=k, groups=4)
    incidence = d.cumulative_incidence(0.7)[:, k - 1]
    order = np.argsort(incidence)
    score = 0.0
    for g, part in enumerate(np.array_split(order, 4)):
        observed = aalen_johansen(y[part], causes=2).cumulative_incidence(0.7)[0, k - 1]
        assert found.observed[g] == pytest.approx(observed, abs=1e-12)
        assert found.predicted[g] == pytest.approx(incidence[part].mean())
        score += 0.25 * (incidence[part].mean() - observed) ** 2
        if not ties:
            band = confidence_band(y[part], of="aalen_johansen", level=0.5, kind="plain")
            band = band[(band["cause"] == k) & (band["time"] <= 0.7)].iloc[-1]
            width = (band["upper"] - band["lower"]) / 2 / 0.6744897501960817
            assert found.std_error[g] == pytest.approx(width, rel=1e-9)
    assert found.score == pytest.approx(score, abs=1e-12)
    assert found.size.tolist() == [50.0] * 4


def test_groups_that_are_not_followed_so_far():
    y = Surv.from_arrays([1, 2, 0, 0], [1.0, 2.0, 0.3, 0.4])
    d = CauseMixture(np.zeros((4, 2)), [Weibull([1.0, 1.0, 5.0, 5.0], 1.0)] * 2)
    found = group_calibration(d, y, 1.5, cause=1, groups=2)
    assert np.isnan(found.observed[0])
    assert np.isnan(found.std_error[0])
    assert found.observed[1] == 0.5
    for wrong in ({"time": -1.0}, {"groups": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            group_calibration(d, y, **wrong, cause=1)


# ---------------------------------------------------------------------- resamples


def drawn(seed):
    rng = np.random.default_rng(seed)
    return np.bincount(rng.integers(400, size=400), minlength=400).astype(float)


def weighted_auc(d, y, t, k, counts, g):
    """The AUC of rows that count as often as given."""
    ended, alive = (y["time"] <= t) & (y["event"] > 0), y["time"] > t
    before = g.survival(np.nextafter(y["time"], 0.0))[0]
    weight = counts * (ended / np.where(ended, before, 1.0) + alive / g.survival(t)[0])
    case = ended if k is None else ended & (y["event"] == k)
    marker = d.cdf(t) if k is None else d.cumulative_incidence(t)[:, k - 1]
    won = (marker[:, None] > marker) + 0.5 * (marker[:, None] == marker)
    one, other = weight * case, weight * ~case
    return one @ won @ other / (one.sum() * other.sum())


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("k", [None, 1, 2])
def test_auc_of_resamples_is_that_of_drawn_rows_to_first_order(own, k):
    d, y = rows(400, seed=7)
    plain, observed = Surv.from_arrays(y["event"] > 0, y["time"]), check_outcome(y)
    whole = kaplan_meier(plain, censoring=True)
    terms = auc_terms(d, y, times=0.6, cause=k, censoring=None if own else whole)
    direct = cumulative_dynamic_auc(d, y, 0.6, cause=k, censoring=whole)
    assert terms.value == pytest.approx(direct, abs=1e-12)

    def exact(counts):
        g = kaplan_meier(plain, censoring=True, sample_weight=counts) if own else whole
        return weighted_auc(d, y, 0.6, k, counts, g)

    drawn_counts = np.stack([drawn(s) for s in range(20)])
    little = 1 + 1e-3 * (drawn_counts - 1)
    found, wanted = terms.resampled(Resamples(observed, little)), np.array([exact(c) for c in little])
    np.testing.assert_allclose(found - direct, wanted - direct, atol=2e-7)
    assert np.abs(wanted - direct).max() > 1e-5
    found, wanted = terms.resampled(Resamples(observed, drawn_counts)), np.array([exact(c) for c in drawn_counts])
    assert (found - wanted).std() < 0.25 * wanted.std()


def test_calibration_of_resamples_is_that_of_drawn_rows():
    d, y = rows(400, seed=7)
    terms = group_calibration_terms(d, y, time=0.6, cause=2, groups=1)
    counts = np.stack([drawn(s) for s in range(5)])
    predicted, observed, size = terms.of_counts(counts)
    for r, count in enumerate(counts):
        chosen = np.repeat(np.arange(400), count.astype(int))
        assert observed[r, 0] == pytest.approx(
            aalen_johansen(y[chosen], causes=2).cumulative_incidence(0.6)[0, 1], abs=1e-12
        )
        assert predicted[r, 0] == pytest.approx(d[chosen].cumulative_incidence(0.6)[:, 1].mean())
        assert size[r, 0] == 400
    assert (terms.resampled(Resamples(check_outcome(y), counts)) >= 0).all()


def test_losses_of_resamples_weigh_the_rows_drawn():
    d, y = rows(400, seed=7)
    terms = SCORES["brier"].terms(d, y, times=0.6, cause=2)
    counts = np.stack([drawn(s) for s in range(3)])
    found = terms.resampled(Resamples(check_outcome(y), counts))
    for count, value in zip(counts, found):
        chosen = np.repeat(np.arange(400), count.astype(int))
        g = kaplan_meier(Surv.from_arrays(y[chosen]["event"] > 0, y[chosen]["time"]), censoring=True)
        assert value == pytest.approx(brier(d[chosen], y[chosen], 0.6, censoring=g, cause=2).mean(), abs=1e-12)


# ---------------------------------------------------------------------- evaluate


def test_evaluate_has_a_row_for_each_cause():
    table = evaluate(D, None, Y, n_bootstrap=20, times=(0.1, 1.5))
    assert list(table.columns)[:4] == ["score", "cause", "times", "value"]
    by_cause = table[table["score"] == "integrated_brier"].set_index("cause")["value"]
    for k in (1, 2):
        expected = integrated_brier(D, Y, times=(0.1, 1.5), censoring=G, cause=k).mean()
        assert by_cause[k] == pytest.approx(expected, rel=1e-12)
    likelihood = table[table["score"] == "log_likelihood"]
    assert likelihood["cause"].tolist() == [""]
    assert likelihood["value"].iloc[0] == pytest.approx(log_likelihood(D, Y).mean())
    text = repr(table)
    assert "cause" in text.splitlines()[0]
    assert max(map(len, text.splitlines())) <= 80
    several = evaluate(D, None, Y, scores=["cumulative_dynamic_auc", "group_calibration"], times=[0.5, 1.0])
    assert several[["score", "cause", "times"]].to_numpy().tolist()[:4] == [
        ["cumulative_dynamic_auc", 1, "0.5"],
        ["cumulative_dynamic_auc", 1, "1"],
        ["cumulative_dynamic_auc", 2, "0.5"],
        ["cumulative_dynamic_auc", 2, "1"],
    ]
    assert (several["low"] <= several["high"]).all()
    one = evaluate(D, None, Y, scores={"integrated_brier": {"cause": 2, "times": (0.1, 1.5)}}, n_bootstrap=0)
    assert one["cause"].tolist() == [2]


def test_evaluate_without_causes_has_no_such_column():
    y = Surv.from_arrays(CAUSE > 0, TIME)
    table = evaluate(Weibull(np.full(N, 1.0), 1.2), None, y, n_bootstrap=0)
    assert "cause" not in table.columns
    assert "cause" not in repr(table)


def test_scorers_take_a_cause():
    X = np.zeros((N, 1))
    model = AalenJohansen().fit(X, Y)
    d = model.predict_distribution(X)
    value = make_survival_scorer("integrated_brier", cause=2, times=(0.1, 1.5))(model, X, Y)
    assert value == pytest.approx(-integrated_brier(d, Y, cause=2, times=(0.1, 1.5), censoring=G).mean())


def test_a_cause_that_cannot_be():
    with pytest.raises(ValueError, match="from 1 to 2; got 3"):
        brier(D, Y, 1.0, censoring=G, cause=3)
    with pytest.raises(ValueError, match=r"cause=1 needs .* 2 causes"):
        brier(Tabulated([1.0], np.full((N, 1), 0.5)), Y, 1.0, censoring=G, cause=1)
    with pytest.raises(ValueError, match="2 causes"):
        concordance_td(D, Surv.from_arrays(CAUSE > 0, TIME), cause=1)
