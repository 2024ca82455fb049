"""Scores of rows with weights, late entry, events between two times, and several rows of one subject."""

from __future__ import annotations

import numpy as np
import pytest

from scores import direct
from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import CauseMixture, Tabulated, Weibull
from sumosurv.outcome import check_outcome
from sumosurv.scores import SCORES, cumulative_dynamic_auc, d_calibration, evaluate, log_likelihood
from sumosurv.scores._inputs import check_rows, median_time

N = 50
TAKES_INTERVALS = ("log_likelihood", "d_calibration")


def rows(seed=0):
    """Curves of two causes, and true times under them that were censored."""
    rng = np.random.default_rng(seed)
    shares, scales = rng.dirichlet([3.0, 2.0], N), rng.uniform(0.5, 2.0, (N, 2))
    curves = CauseMixture(np.log(shares), [Weibull(scales[:, 0], 1.3), Weibull(scales[:, 1], 0.9)])
    time, cause = curves.sample(random_state=rng, return_causes=True)
    last = rng.exponential(2.0, N)
    return curves, np.minimum(time, last), np.where(time <= last, cause, 0)


CURVES, TIME, CAUSE = rows()
ONE = Weibull(np.random.default_rng(1).uniform(0.5, 2.0, N), 1.2)
Y = Surv.from_arrays(CAUSE > 0, TIME)
Y_CAUSES = Surv.from_arrays(CAUSE, TIME)
WHOLE = np.random.default_rng(2).integers(0, 4, N)
AGAIN = np.repeat(np.arange(N), WHOLE)
WEIGHT = np.random.default_rng(3).uniform(0.1, 3.0, N)
ENTRY = np.where(np.random.default_rng(4).random(N) < 0.6, 0.7 * TIME, 0.0)
SUBJECT = np.arange(N) // 3


def options_of(name):
    """Fixed times, and no comparison of events at one time: copies of a row are not compared with one another."""
    made = {"concordance_td": {"method": "antolini"}}.get(name, {})
    score = SCORES[name]
    at = {"none": {}, "single": {score.times_option: 0.8}, "range": {score.times_option: (0.1, 2.0)}}[score.times]
    return made | at | ({"groups": 4} if name.endswith("_calibration") and score.times == "single" else {})


def number(found):
    return float(np.mean(getattr(found, "score", found)))


def one_cause(name):
    return {"cause": 1} if SCORES[name].of_causes else {}


@pytest.mark.parametrize("of_causes", [False, True], ids=["one event", "causes"])
@pytest.mark.parametrize("name", SCORES)
def test_whole_weights_are_repeated_rows(name, of_causes):
    score, options = SCORES[name], options_of(name)
    curves, y = (CURVES, Y_CAUSES) if of_causes else (ONE, Y)
    if of_causes:
        options |= one_cause(name)
    found = evaluate(curves, None, y, scores={name: options}, sample_weight=WHOLE, n_bootstrap=0)["value"]
    repeated = evaluate(curves[AGAIN], None, y[AGAIN], scores={name: options}, n_bootstrap=0)["value"]
    np.testing.assert_allclose(found, repeated, rtol=1e-9)
    plain = evaluate(curves, None, y, scores={name: options}, n_bootstrap=0)["value"]
    assert abs(found[0] - plain[0]) > 1e-5
    if score.needs_censoring:
        options["censoring"] = kaplan_meier(Surv.from_arrays(CAUSE > 0, TIME)[AGAIN], censoring=True)
    weighted = number(score.function(curves, y, sample_weight=WHOLE, **options))
    np.testing.assert_allclose(weighted, number(score.function(curves[AGAIN], y[AGAIN], **options)), rtol=1e-9)
    np.testing.assert_allclose(weighted, repeated[0], rtol=1e-9)


@pytest.mark.parametrize("name", SCORES)
def test_times_that_are_not_given_are_those_of_the_repeated_rows(name):
    options = {"method": "antolini"} if name == "concordance_td" else {}
    weight = np.where(TIME.max() == TIME, 0, WHOLE)
    weight[np.argmin(TIME)] = 0
    again = np.repeat(np.arange(N), weight)
    found = evaluate(ONE, None, Y, scores={name: options}, sample_weight=weight, n_bootstrap=0)
    repeated = evaluate(ONE[again], None, Y[again], scores={name: options}, n_bootstrap=0)
    assert found["times"][0] == repeated["times"][0]
    np.testing.assert_allclose(found["value"], repeated["value"], rtol=1e-9)


def test_the_median_time_is_that_of_the_repeated_rows():
    rng = np.random.default_rng(6)
    for n in (1, 2, 3, 6, 7) * 6:
        time, weight = rng.integers(1, 9, n) * 1.0, rng.integers(0, 4, n) * 1.0
        weight[0] += 1
        outcome = check_outcome((time, np.ones(n)), sample_weight=weight)
        assert median_time(check_rows(outcome)) == np.median(np.repeat(time, weight.astype(int)))


@pytest.mark.parametrize("name", SCORES)
def test_rows_of_weight_zero_are_not_looked_at(name):
    """Nor is their time, after which nobody is followed: there the censoring distribution is zero."""
    options = options_of(name)
    options.pop(SCORES[name].times_option, None)
    time, cause, weight = TIME.copy(), CAUSE.copy(), 1 + WHOLE
    order = np.argsort(time)
    cause[order[-1]], weight[order[-1]], cause[order[-2]] = 1, 0, 0
    found = evaluate(ONE, None, (time, cause > 0), scores={name: options}, sample_weight=weight, n_bootstrap=3)
    kept = np.sort(order[:-1])
    y = Surv.from_arrays(cause > 0, time)
    without = evaluate(ONE[kept], None, y[kept], scores={name: options}, sample_weight=weight[kept], n_bootstrap=3)
    for column in ("value", "low", "high"):
        np.testing.assert_allclose(found[column], without[column], rtol=1e-9)
    if SCORES[name].needs_censoring:  # one that is given for each row
        g = Weibull(np.linspace(2.0, 4.0, N), 1.0)
        found = evaluate(ONE, None, y, scores=name, censoring=g, sample_weight=weight, n_bootstrap=0)
        without = evaluate(
            ONE[kept], None, y[kept], scores=name, censoring=g[kept], sample_weight=weight[kept], n_bootstrap=0
        )
        np.testing.assert_allclose(found["value"], without["value"], rtol=1e-9)


@pytest.mark.parametrize("g", ["one", "each"])
@pytest.mark.parametrize("name", ["brier", "binomial_log_likelihood", "integrated_brier"])
def test_weights_of_censoring_that_are_normalized_count_repeated_rows(name, g):
    g = Weibull([3.0] if g == "one" else np.linspace(2.0, 4.0, N), 1.0)
    times = {"times": (0.1, 2.0)} if name == "integrated_brier" else {"times": 0.8}
    function = SCORES[name].function
    weighted = function(ONE, Y, censoring=g, normalize=True, sample_weight=WHOLE, **times)
    own = g if len(g) == 1 else g[AGAIN]
    repeated = function(ONE[AGAIN], Y[AGAIN], censoring=own, normalize=True, **times)
    np.testing.assert_allclose(weighted.mean(), repeated.mean(), rtol=1e-9)
    by_terms = evaluate(ONE, None, Y, scores={name: {"normalize": True, "censoring": g, **times}}, sample_weight=WHOLE)
    np.testing.assert_allclose(by_terms["value"][0], repeated.mean(), rtol=1e-9)


# ---------------------------------------------------------------------- weights that are no whole numbers


def pairs(better, comparable):
    """Σ of the pairs that are won over Σ of those compared: (weight, credit) of each ordered pair i, j."""
    top = bottom = 0.0
    for i in range(N):
        for j in range(N):
            weight = comparable(i, j)
            top, bottom = top + weight * better(i, j), bottom + weight
    return top / bottom


def credit(a, b):
    return (a > b) + 0.5 * (a == b)


def test_harrell_c_with_weights_by_pairs():
    risk = np.round(4 * np.random.default_rng(5).random(N)) / 4  # many ties
    earlier = (Y["time"][:, None] < Y["time"]) & Y["event"][:, None]
    expected = pairs(lambda i, j: credit(risk[i], risk[j]), lambda i, j: earlier[i, j] * WEIGHT[i] * WEIGHT[j])
    assert SCORES["harrell_c"].function(risk, Y, sample_weight=WEIGHT) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("steps", [False, True], ids=["smooth", "steps"])
@pytest.mark.parametrize("cause", [None, 1, 2])
def test_concordance_td_with_weights_by_pairs(cause, steps):
    curves, y = (ONE, Y) if cause is None else (CURVES, Y_CAUSES)
    if steps and cause is None:
        knots = np.linspace(0.0, 6.0, 40)
        curves = Tabulated(knots, ONE.survival(knots))
    event = CAUSE > 0 if cause is None else cause == CAUSE
    until = TIME if cause is None else np.where((CAUSE > 0) & ~event, np.inf, TIME)
    own = curves if cause is None else curves.cause(cause)
    risk = -own.survival(TIME)  # (row, at the time of row i)
    expected = pairs(
        lambda i, j: credit(risk[i, i], risk[j, i]),
        lambda i, j: (event[i] and until[i] < until[j]) * WEIGHT[i] * WEIGHT[j],
    )
    found = SCORES["concordance_td"].function(curves, y, cause=cause, sample_weight=WEIGHT)
    assert found == pytest.approx(expected, rel=1e-12)
    by_evaluate = evaluate(
        curves, None, y, scores={"concordance_td": {"cause": cause}}, sample_weight=WEIGHT, n_bootstrap=0
    )
    assert by_evaluate["value"][0] == pytest.approx(expected, rel=1e-12)


def test_uno_c_with_weights_by_pairs():
    risk, g = np.random.default_rng(5).random(N), Weibull([3.0], 1.0)
    of_event = np.where(Y["event"], 1 / np.square(g.survival(TIME)[0]), 0.0)
    expected = pairs(
        lambda i, j: credit(risk[i], risk[j]), lambda i, j: (TIME[i] < TIME[j]) * of_event[i] * WEIGHT[i] * WEIGHT[j]
    )
    found = SCORES["uno_c"].function(risk, Y, censoring=g, sample_weight=WEIGHT)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("cause", [None, 1, 2])
def test_auc_with_weights_by_pairs(cause):
    curves, y = (ONE, Y) if cause is None else (CURVES, Y_CAUSES)
    g, at = Weibull([3.0], 1.0), 0.8
    inverse = 1 / g.survival(np.minimum(TIME, at))[0]
    ended = (CAUSE > 0) & (at >= TIME)
    case = ended if cause is None else ended & (cause == CAUSE)
    control = (at < TIME) | (ended & ~case)
    risk = 1 - (curves if cause is None else curves.cause(cause)).survival(at)
    expected = pairs(
        lambda i, j: credit(risk[i], risk[j]),
        lambda i, j: case[i] * control[j] * inverse[i] * inverse[j] * WEIGHT[i] * WEIGHT[j],
    )
    found = cumulative_dynamic_auc(curves, y, at, censoring=g, cause=cause, sample_weight=WEIGHT)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_the_scale_of_weights_does_not_matter(name):
    options = options_of(name)
    one, two = (
        evaluate(ONE, None, Y, scores={name: options}, sample_weight=w, n_bootstrap=5) for w in (WEIGHT, 7 * WEIGHT)
    )
    np.testing.assert_allclose(one[["value", "low", "high"]], two[["value", "low", "high"]], rtol=1e-9)


# ---------------------------------------------------------------------- late entry

AT_RISK = ("concordance_td", "harrell_c")


@pytest.mark.parametrize("of_causes", [False, True], ids=["one event", "causes"])
@pytest.mark.parametrize("name", [name for name in SCORES if name not in AT_RISK])
def test_scores_of_late_entry_are_those_since_entry(name, of_causes):
    """Value and bootstrap: of the time since entry, under what remains; the likelihood is that given entry."""
    curves, event = (CURVES, CAUSE) if of_causes else (ONE, CAUSE > 0)
    options = options_of(name) | (one_cause(name) if of_causes else {})
    late, since = Surv.from_arrays(event, TIME, ENTRY), Surv.from_arrays(event, TIME - ENTRY)
    found = evaluate(curves, None, late, scores={name: options}, n_bootstrap=20)
    expected = evaluate(curves.remaining(ENTRY), None, since, scores={name: options}, n_bootstrap=20)
    columns = ["value", "low", "high"]
    np.testing.assert_allclose(found[columns].astype(float), expected[columns].astype(float), rtol=1e-7)
    naive = evaluate(curves, None, Surv.from_arrays(event, TIME), scores={name: options}, n_bootstrap=0)
    assert abs(naive["value"][0] - found["value"][0]) > 1e-5


@pytest.mark.parametrize("name", AT_RISK)
def test_concordances_compare_an_event_with_those_at_risk(name):
    late = Surv.from_arrays(CAUSE > 0, TIME, ENTRY)
    found = evaluate(ONE, None, late, scores=name, n_bootstrap=20)
    assert found["value"][0] == pytest.approx(SCORES[name].function(ONE, late), rel=1e-12)
    assert found["low"][0] < found["value"][0] < found["high"][0]
    assert abs(found["value"][0] - SCORES[name].function(ONE, Surv.from_arrays(CAUSE > 0, TIME))) > 1e-5


def test_a_scorer_takes_late_entry_as_evaluate_does():
    from sumosurv.scores import make_survival_scorer

    class Model:
        def predict_distribution(self, X):
            return ONE

    late = Surv.from_arrays(CAUSE > 0, TIME, ENTRY)
    for name, sign in (("log_likelihood", 1), ("harrell_c", 1), ("brier", -1), ("d_calibration", -1)):
        expected = evaluate(ONE, None, late, scores=name, n_bootstrap=0, sample_weight=WHOLE)["value"][0]
        found = make_survival_scorer(name)(Model(), None, late, sample_weight=WHOLE)
        assert found == pytest.approx(sign * expected, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in SCORES if "entry" not in SCORES[name].takes])
def test_functions_refuse_late_entry_with_the_remedy(name):
    options = options_of(name) | ({"censoring": Weibull([3.0], 1.0)} if SCORES[name].needs_censoring else {})
    with pytest.raises(ValueError, match=r"remaining\(entry\) .*time - entry"):
        SCORES[name].function(ONE, Surv.from_arrays(CAUSE > 0, TIME, ENTRY), **options)


# ---------------------------------------------------------------------- events between two times

LOWER = np.floor(4 * TIME) / 4
UPPER = np.where(CAUSE > 0, LOWER + 0.25, np.inf)
UPPER[3] = LOWER[3] = 0.4  # one that was seen


@pytest.mark.parametrize("name", [name for name in SCORES if name not in TAKES_INTERVALS])
def test_other_scores_refuse_intervals(name):
    options = options_of(name) | ({"censoring": Weibull([3.0], 1.0)} if SCORES[name].needs_censoring else {})
    y = Surv.interval(LOWER, UPPER)
    message = "interval-censored"
    with pytest.raises(ValueError, match=message):
        SCORES[name].function(ONE, y, **options)
    with pytest.raises(ValueError, match=message):
        evaluate(ONE, None, y, scores={name: options_of(name)})


def test_evaluate_takes_the_scores_that_know_intervals():
    found = evaluate(ONE, None, Surv.interval(LOWER, UPPER), n_bootstrap=5)
    assert tuple(found["score"]) == TAKES_INTERVALS
    assert np.isfinite(found["low"]).all()


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "late"])
def test_d_calibration_of_intervals_by_hand(late):
    bins, entry = 5, 0.9 * np.minimum(ENTRY, LOWER) if late else np.zeros(N)
    y = Surv.interval(LOWER, UPPER, entry=entry)
    start, low, high = (
        np.array([1.0 if np.isinf(t) else float(ONE[i : i + 1].cdf(t)[0]) for i, t in enumerate(times)])
        for times in (entry, LOWER, UPPER)
    )
    low, high = ((f - start) / (1 - start) for f in (low, high))  # given that the event comes after entry
    spread = np.zeros((N, bins))
    for i in range(N):
        for b in range(bins):
            left, right = b / bins, (b + 1) / bins
            if low[i] == high[i]:
                spread[i, b] = left <= low[i] < right
            else:
                spread[i, b] = max(0.0, min(right, high[i]) - max(left, low[i])) / (high[i] - low[i])
    shares = WEIGHT @ spread / WEIGHT.sum()
    found = d_calibration(ONE, y, bins=bins, sample_weight=WEIGHT)
    np.testing.assert_allclose(found.shares, shares, atol=1e-12)
    assert found.score == pytest.approx(np.square(shares - 1 / bins).sum())
    deviation = WEIGHT[:, None] * (spread - 1 / bins) / WEIGHT.sum()
    covariance = deviation.T @ deviation
    assert found.statistic == pytest.approx(found.score * np.trace(covariance) / np.square(covariance).sum())


def test_d_calibration_of_late_entry_by_hand():
    late = Surv.from_arrays(CAUSE > 0, TIME, ENTRY)
    start, end = (ONE.cdf(own_times=t) for t in (ENTRY, TIME))
    expected = direct.d_calibration((end - start) / (1 - start), CAUSE > 0, 5)
    np.testing.assert_allclose(d_calibration(ONE, late, bins=5).shares, expected, atol=1e-12)


def test_the_likelihood_of_an_interval_after_entry_by_hand():
    entry = 0.9 * np.minimum(ENTRY, LOWER)
    y = Surv.interval(LOWER, UPPER, np.where(np.isinf(UPPER), 0, np.maximum(CAUSE, 1)), entry=entry)
    found = log_likelihood(CURVES, y)
    for i in range(N):
        one = CURVES[i : i + 1]
        k = max(int(CAUSE[i]), 1) - 1
        if np.isinf(UPPER[i]):
            chance = one.survival(LOWER[i])[0]
        elif LOWER[i] == UPPER[i]:
            chance = np.exp(one.cause(k + 1).log_density(LOWER[i])[0])
        else:
            chance = (one.cumulative_incidence(UPPER[i]) - one.cumulative_incidence(LOWER[i]))[0, k]
        assert found[i] == pytest.approx(np.log(chance / one.survival(entry[i])[0]), abs=1e-9)


# ---------------------------------------------------------------------- several rows of one subject


def test_subjects_are_resampled_whole():
    from sumosurv.scores._resampling import Bootstrap

    outcome = check_outcome(Y, groups=SUBJECT)
    (resamples,) = Bootstrap(outcome, 30, np.random.default_rng(0))
    assert resamples.counts.sum(axis=1) == pytest.approx(np.full(30, N))
    for one in np.unique(SUBJECT):
        own = resamples.counts[:, one == SUBJECT]
        np.testing.assert_array_equal(own, own[:, :1].repeat(own.shape[1], axis=1))
    assert len(np.unique(resamples.counts[0])) > 2


def test_intervals_are_wider_where_rows_of_a_subject_are_alike():
    """Each row three times: with the subject named, the standard error is that of the rows once."""
    again = np.repeat(np.arange(N), 3)
    once = evaluate(ONE, None, Y, scores="log_likelihood", n_bootstrap=400)["std_error"][0]
    thrice = evaluate(ONE[again], None, Y[again], scores="log_likelihood", n_bootstrap=400, groups=again)
    unnamed = evaluate(ONE[again], None, Y[again], scores="log_likelihood", n_bootstrap=400)["std_error"][0]
    assert thrice["std_error"][0] == pytest.approx(once, rel=0.1)
    assert unnamed == pytest.approx(once / np.sqrt(3), rel=0.1)


def test_weights_and_subjects_are_resampled_together():
    """The mean of each resample, from the subjects that are drawn and the weights of their rows."""
    from sumosurv.scores._resampling import Bootstrap

    outcome = check_outcome(Y, sample_weight=WEIGHT, groups=SUBJECT)
    (resamples,) = Bootstrap(outcome, 5, np.random.default_rng(0))
    seeds = np.random.default_rng(0).integers(1 << 62, size=5)
    n_subjects = SUBJECT.max() + 1
    for counts, seed in zip(resamples.counts, seeds):
        drawn = np.bincount(np.random.default_rng(seed).integers(n_subjects, size=n_subjects), minlength=n_subjects)
        expected = WEIGHT * drawn[SUBJECT]
        np.testing.assert_allclose(counts, N * expected / expected.sum())
