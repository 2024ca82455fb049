"""Conformal recalibration: what is guaranteed, counted; the map against Kaplan-Meier; bounds on simulated times."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from sumosurv import (
    CauseSpecific,
    Conformal,
    CoxPH,
    KaplanMeier,
    RandomSurvivalForest,
    SumoNet,
    Surv,
    SurvivalMixture,
    WeibullNet,
    datasets,
    load,
)
from sumosurv.distributions import Weibull
from sumosurv.estimators import METHODS
from sumosurv.estimators import recalibration as maps
from sumosurv.estimators.recalibration import BoundScores, choose_cutoff, score_rows
from sumosurv.outcome import check_outcome
from sumosurv.scores import concordance_td, d_calibration, log_likelihood

GRID = np.array([0.0, 0.2, 0.5, 0.8, 1.1, 3.0])


def rows(n, seed, censored=True):
    """Times of a Weibull distribution, and a model of them that is wrong: too early and too certain."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(size=n))
    t = scale * rng.weibull(1.3, n)
    c = rng.exponential(2.0, n) if censored else np.full(n, np.inf)
    return Weibull(0.6 * scale, 2.0), Surv.from_arrays(t <= c, np.minimum(t, c))


def recalibration(base, y, bins, shrink=False):
    return maps.recalibration(maps.probabilities(base, y), bins, shrink=shrink)


@pytest.fixture(scope="module")
def data():
    return datasets.simulate("weibull", 400, random_state=1)


@pytest.fixture(scope="module")
def model(data):
    net = WeibullNet(n_members=2, max_epochs=4, random_state=0)
    return Conformal(estimator=net, fraction=0.4, shrink=False, random_state=0).fit(data.X, data.y)


# ---------------------------------------------------------------------- the map


def test_the_default_estimator_is_sumonet(monkeypatch):
    data = datasets.simulate("weibull", 100, random_state=0)
    quick = SumoNet(n_members=1, max_epochs=1, components="networks", random_state=0)
    monkeypatch.setattr("sumosurv.estimators.conformal.SumoNet", lambda: quick)
    assert isinstance(Conformal(random_state=0).fit(data.X, data.y).estimator_, SumoNet)


def test_without_censoring_a_knot_is_an_order_statistic_with_its_rank():
    base, y = rows(173, seed=0, censored=False)
    levels, values = recalibration(base, y, bins=8)
    u = np.sort(base.survival(own_times=y["time"]))
    assert len(levels) == 7
    ranks = 1 + np.abs(u - levels[:, None]).argmin(axis=1)
    np.testing.assert_allclose(u[ranks - 1], levels, atol=1e-15)
    np.testing.assert_allclose(values, ranks / 174, rtol=1e-12)
    assert (np.abs(values - np.arange(1, 8) / 8) <= 1 / 174).all()


def test_without_censoring_coverage_at_the_knots_is_that_promised():
    """Small calibration samples of a wrong model: P(S(T|x) <= g(u)) = g(u) over samples, not only in the limit."""
    hits, promised = [], []
    fresh, later = rows(4000, seed=10**6, censored=False)
    u = fresh.survival(own_times=later["time"])
    for seed in range(300):
        levels, values = recalibration(*rows(30, seed, censored=False), bins=3)
        hits.append([(u <= level).mean() for level in levels])
        promised.append(values)
    error = np.std(hits, axis=0) / np.sqrt(300) + np.sqrt(0.25 / 4000)
    assert (np.abs(np.mean(hits, axis=0) - np.mean(promised, axis=0)) < 3 * error).all()


def test_with_censoring_the_map_is_kaplan_meier_of_the_probabilities():
    lifelines = pytest.importorskip("lifelines")
    base, y = rows(400, seed=2)
    levels, values = recalibration(base, y, bins=10)
    km = lifelines.KaplanMeierFitter().fit(base.cdf(own_times=y["time"]), y["event"])
    curve = km.survival_function_["KM_estimate"]
    for level, value in zip(levels, values):
        assert value == pytest.approx(curve[curve.index < 1 - level - 1e-12].iloc[-1] * 400 / 401, rel=1e-9)


def test_the_recalibrated_model_is_d_calibrated_on_its_calibration_rows():
    base, y = rows(600, seed=3)
    made = Conformal.of(fitted_weibull(base), *as_rows(base, y), shrink=False)
    d = made.predict_distribution(as_rows(base, y)[0])
    assert d_calibration(base, y).p_value < 1e-6
    after = d_calibration(d, y)
    np.testing.assert_allclose(after.shares, 0.1, atol=0.012)  # rows and their knots are whole numbers
    assert log_likelihood(d, y).mean() > log_likelihood(base, y).mean() + 0.05


def test_a_wrong_model_is_calibrated_for_fresh_rows():
    base, y = rows(3000, seed=11)
    X = as_rows(base, y)[0]
    made = Conformal.of(fitted_weibull(base), X[:1000], y[:1000])
    d = made.predict_distribution(X[1000:])
    assert d_calibration(base[1000:], y[1000:]).score > 0.02
    assert d_calibration(d, y[1000:]).score < 0.003
    assert log_likelihood(d, y[1000:]).mean() > log_likelihood(base[1000:], y[1000:]).mean() + 0.05
    assert concordance_td(d, y[1000:]) == concordance_td(base[1000:], y[1000:])


def test_shrinkage_leaves_a_right_model_alone_and_moves_a_wrong_one():
    base, y = rows(500, seed=12)
    right = Weibull(base.scale[:, 0] / 0.6, 1.3)
    levels, values = recalibration(right, y, bins=10, shrink=True)
    counted = recalibration(right, y, bins=10)
    assert len(levels) == 0 or np.abs(values - levels).max() < 0.6 * np.abs(counted[1] - counted[0]).max()
    levels, values = recalibration(base, y, bins=10, shrink=True)
    whole = recalibration(base, y, bins=10)
    np.testing.assert_array_equal(levels, whole[0])
    kept = (values - levels) / (whole[1] - whole[0])
    np.testing.assert_allclose(kept, kept[0])
    assert 0.85 < kept[0] < 1.0
    # by the definition: falls of log g and log u between knots, over Greenwood's variance of lifelines
    lifelines = pytest.importorskip("lifelines")
    km = lifelines.KaplanMeierFitter().fit(base.cdf(own_times=y["time"]), y["event"])
    table = km.event_table[km.event_table["observed"] > 0]
    steps = table["observed"] / (table["at_risk"] * (table["at_risk"] - table["observed"]))
    edges = np.append(0.0, 1 - whole[0][::-1]) - 1e-12
    variance = [steps[(steps.index >= a) & (steps.index < b)].sum() for a, b in pairwise(edges)]
    falls = [np.diff(np.log(np.append(1.0, part[::-1]))) for part in whole]
    excess = (np.square(falls[1] - falls[0]) / variance).sum()
    assert kept[0] == pytest.approx(1 - len(whole[0]) / excess, rel=1e-6)


def test_shrinkage_costs_a_right_model_little_where_most_rows_are_censored():
    distance = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        t, c = rng.weibull(1.3, 400), rng.uniform(0.0, 0.8, 400)
        y = Surv.from_arrays(t <= c, np.minimum(t, c))
        levels, values = recalibration(Weibull(np.ones(400), 1.3), y, bins=10, shrink=True)
        counted = recalibration(Weibull(np.ones(400), 1.3), y, bins=10)
        distance.append([np.abs(values - levels).max(initial=0.0), np.abs(counted[1] - counted[0]).max()])
    shrunk, plain = np.mean(distance, axis=0)
    assert shrunk < 0.5 * plain


def test_cross_validation_loses_no_row(data):
    model = Conformal(estimator=CoxPH(), cv=4, shrink=False, random_state=0).fit(data.X, data.y)
    assert model.n_calibration_ == 400
    np.testing.assert_array_equal(model.estimator_.coef_, CoxPH().fit(data.X, data.y).coef_)
    d = model.predict_distribution(data.X)
    np.testing.assert_allclose(d_calibration(d, data.y).shares, 0.1, atol=0.02)
    with pytest.raises(ValueError, match="fit with cv=None"):
        model.lower_bound(data.X)


class _Known(KaplanMeier):
    """A model that is handed its distribution by the row number in X."""

    def _distribution(self, X):
        return self.known_[np.asarray(X)[:, 0].astype(int)]


def fitted_weibull(base):
    model = _Known().fit(np.zeros((3, 1)), Surv.from_arrays([1, 1, 1], [1.0, 2.0, 3.0]))
    model.known_ = base
    return model


def as_rows(base, y):
    return np.arange(len(base), dtype=float)[:, None], y


def test_weights_count_rows():
    base, y = rows(120, seed=4)
    weight = np.random.default_rng(0).integers(0, 3, 120)
    again = np.repeat(np.arange(120), weight)
    levels, values = recalibration(base, check_outcome(y, sample_weight=weight), bins=4)
    expected = recalibration(base[again], y[again], bins=4)
    np.testing.assert_allclose(levels, expected[0], rtol=1e-12)
    np.testing.assert_allclose(values, expected[1], rtol=1e-9)


def test_late_entry_and_intervals_recover_the_same_map():
    rng = np.random.default_rng(5)
    n = 6000
    base, y = rows(n, seed=5, censored=False)
    truth = 1 - np.exp(-((0.6 * (-np.log(np.array([0.2, 0.5, 0.8]))) ** (1 / 2.0)) ** 1.3))  # P(S(T) > u)
    entry = rng.exponential(0.3, n)
    seen = entry < y["time"]
    late = Surv.from_arrays(y["event"][seen], y["time"][seen], entry[seen])
    edges = np.sort(rng.exponential(1.0, (n, 4)), axis=1)
    place = (edges < y["time"][:, None]).sum(axis=1)
    ends = np.column_stack([np.zeros(n), edges, np.full(n, np.inf)])
    visits = Surv.interval(ends[np.arange(n), place], ends[np.arange(n), place + 1])
    for d, outcome in ((base[seen], late), (base[:1500], visits[:1500])):
        levels, values = recalibration(d, outcome, bins=10)
        found = np.interp([0.2, 0.5, 0.8], np.append(levels, 1.0), np.append(values, 1.0))
        np.testing.assert_allclose(found, 1 - truth, atol=0.05)


def test_few_events_leave_the_model_as_it_is():
    base, y = rows(15, seed=6)
    levels, values = recalibration(base, y, bins=10)
    assert len(levels) == len(values) == 0
    never = Surv.from_arrays(np.zeros(100, bool), np.ones(100))
    assert len(recalibration(Weibull(np.ones(100), 1.0), never, bins=10)[0]) == 0


# ---------------------------------------------------------------------- the estimator


def test_order_and_concordance_stay(model, data):
    test = datasets.simulate("weibull", 300, random_state=2)
    before = model.estimator_.predict_distribution(test.X)
    after = model.predict_distribution(test.X)
    np.testing.assert_allclose(
        after.survival(GRID),
        np.interp(before.survival(GRID), np.r_[0.0, model.levels_, 1.0], np.r_[0.0, model.values_, 1.0]),
        atol=1e-12,
    )
    assert concordance_td(after, test.y) == concordance_td(before, test.y)
    assert after.last_time == model.estimator_.last_time_


def test_the_calibration_rows_are_not_fitted_to(data):
    """Rows in two groups whose times differ: a model that saw the held-out rows would know of group b."""
    model = Conformal(estimator=CoxPH(), fraction=0.25, random_state=3).fit(data.X, data.y)
    assert model.n_calibration_ == 100
    alone = model.estimator_
    twin = Conformal(estimator=CoxPH(), fraction=0.25, random_state=3).fit(data.X, data.y)
    np.testing.assert_array_equal(twin.predict(data.X), model.predict(data.X))
    assert CoxPH().fit(data.X, data.y).coef_ != pytest.approx(alone.coef_)
    other = Conformal(estimator=CoxPH(), fraction=0.25, random_state=4).fit(data.X, data.y)
    assert other.estimator_.coef_ != pytest.approx(alone.coef_)


@pytest.mark.parametrize("censoring", [None, CoxPH(alpha=0.1)])
def test_a_file_gives_back_the_same_model(data, tmp_path, censoring):
    model = Conformal(estimator=CoxPH(), censoring=censoring, random_state=0).fit(data.X, data.y)
    model.save(tmp_path / "model.sumo")
    again = load(tmp_path / "model.sumo")
    for ask in ("predict", "predict_median", "lower_bound", "predict_mean"):
        np.testing.assert_array_equal(getattr(again, ask)(data.X), getattr(model, ask)(data.X))
    assert again.score(data.X, data.y) == model.score(data.X, data.y)
    assert (again.n_calibration_, again.cutoff_) == (model.n_calibration_, model.cutoff_)
    again.fit(data.X, data.y)  # its settings came back too
    np.testing.assert_array_equal(again.predict(data.X), model.predict(data.X))


@pytest.mark.filterwarnings("ignore:All .* rows are censored")
def test_a_file_of_a_model_that_was_left_as_it_is(data, tmp_path):
    never = Surv.from_arrays(np.zeros(60, bool), data.y["time"][:60])
    for y in (data.y[:60], never):
        model = Conformal(estimator=CoxPH(alpha=0.1), random_state=0).fit(data.X[:60], y)
        assert len(model.levels_) == 0
        model.save(tmp_path / "model.sumo")
        again = load(tmp_path / "model.sumo")
        np.testing.assert_array_equal(again.predict(data.X), model.predict(data.X))
        np.testing.assert_array_equal(again.lower_bound(data.X), model.lower_bound(data.X))


def test_it_goes_into_other_models_and_they_into_it(model, data, tmp_path):
    both = SurvivalMixture.of([model, KaplanMeier().fit(data.X, data.y)])
    both.save(tmp_path / "both.sumo")
    np.testing.assert_array_equal(load(tmp_path / "both.sumo").predict(data.X), both.predict(data.X))
    cause = np.where(data.y["event"], 1 + (np.arange(400) % 2), 0)
    risks = CauseSpecific(Conformal(estimator=CoxPH(), random_state=0)).fit(
        data.X, Surv.from_arrays(cause, data.y["time"])
    )
    assert risks.predict_cumulative_incidence(data.X[:3], GRID).shape == (3, 6, 2)
    lower, upper = model.predict_survival_band(data.X[:9], GRID)
    assert (lower <= upper).all()
    twin = clone(model)
    assert twin.get_params()["estimator__n_members"] == 2
    assert not hasattr(twin, "levels_")
    assert METHODS["Conformal"] is Conformal


def test_it_takes_what_its_estimator_takes(data):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": data.X["x"], "c": rng.choice(["u", "v"], 400)})
    entry = 0.3 * data.y["time"] * rng.random(400)
    late = Surv.from_arrays(data.y["event"], data.y["time"], entry)
    subject = np.arange(400) // 2
    model = Conformal(estimator=CoxPH(), random_state=0).fit(X, late, sample_weight=rng.uniform(1, 2, 400))
    assert np.isfinite(model.score(X, late))
    with pytest.raises(ValueError, match="left truncation"):
        model.lower_bound(X)
    grouped = Conformal(estimator=CoxPH(), random_state=0).fit(X, data.y, groups=subject)
    assert grouped.n_calibration_ == 80
    forest = pytest.importorskip("sksurv") and Conformal(
        estimator=RandomSurvivalForest(n_estimators=5, random_state=0), random_state=0
    )
    assert forest.fit(X, data.y).predict_survival_function(X[:2], GRID).shape == (2, 6)


def test_what_it_refuses(data):
    with pytest.raises(ValueError, match=r"Conformal .* competing risks"):
        Conformal().fit(data.X, Surv.from_arrays(np.arange(400) % 3, data.y["time"]))
    with pytest.raises(ValueError, match="Too few rows to hold out"):
        Conformal(estimator=CoxPH()).fit(data.X[:5], data.y[:5])
    for settings, message in (
        ({"fraction": 1.0}, "fraction of Conformal .*; got 1.0"),
        ({"cv": 1}, "cv of Conformal .* None .*; got 1"),
        ({"bins": 1}, "bins of Conformal .*at least 2; got 1"),
        ({"cutoff": -1.0}, "cutoff of Conformal .*; got -1.0"),
        ({"estimator": "CoxPH"}, "estimator of Conformal .*; got 'CoxPH'"),
    ):
        with pytest.raises(ValueError, match=message):
            Conformal(**settings).fit(data.X, data.y)
    causes = CauseSpecific(CoxPH()).fit(data.X, Surv.from_arrays(np.arange(400) % 3, data.y["time"]))
    with pytest.raises(ValueError, match="CauseSpecific"):
        Conformal.of(causes, data.X, data.y)
    with pytest.raises(ValueError, match="level must be a probability"):
        Conformal(estimator=CoxPH(), random_state=0).fit(data.X, data.y).lower_bound(data.X, level=90)


def _not_for_split_rows(estimator):
    return {
        "check_sample_weight_equivalence_on_dense_data": "repeated rows are held out one by one",
        "check_sample_weight_equivalence_on_sparse_data": "scikit-learn 1.6 sets cv to splits of its own",
    }


@pytest.mark.filterwarnings("ignore:y contains only times")
@parametrize_with_checks(
    [Conformal(estimator=CoxPH(alpha=0.1), random_state=0)], expected_failed_checks=_not_for_split_rows
)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


# ---------------------------------------------------------------------- lower bounds


def test_thresholds_are_weighted_quantiles():
    rng = np.random.default_rng(0)
    scores, weights = rng.random(40), rng.uniform(1, 3, 40)
    made = BoundScores.of(2.0, scores, weights)
    for own in (1.0, 2.5, 30.0, 1e9):
        for level in (0.05, 0.5, 0.9, 0.999):
            possible = [q for q in np.sort(scores) if weights[scores <= q].sum() >= level * (weights.sum() + own)]
            found = made.thresholds(level, np.array([own]))[0]
            assert found == (possible[0] if possible else np.inf)


def test_fewer_scores_are_never_less_careful():
    rng = np.random.default_rng(1)
    scores, weights = rng.random(5000), rng.uniform(1, 3, 5000)
    few = BoundScores.of(1.0, scores, weights)
    assert len(few.scores) <= 256
    order = np.argsort(scores)
    all_of_them = BoundScores(1.0, scores[order], np.cumsum(weights[order]))
    levels = np.linspace(0.01, 0.99, 99)
    exact, kept = (np.array([s.thresholds(level, np.ones(1))[0] for level in levels]) for s in (all_of_them, few))
    assert (kept >= exact).all()
    assert (kept - exact).max() < 0.01


@pytest.mark.parametrize("cutoff", [0.5, 1.5])
def test_bounds_hold_in_small_samples_with_known_censoring_that_depends_on_x(cutoff):
    """40 calibration rows, a wrong model, half of the rows censored, more where x is large."""
    rng, held, level = np.random.default_rng(7), [], 0.8

    def draw(n):
        x = rng.normal(size=n)
        t, c = np.exp(0.7 * x) * rng.weibull(1.3, n), np.exp(0.5 - 0.8 * x) * rng.exponential(1.0, n)
        return x, t, c

    def model(x):
        return Weibull(0.5 * np.exp(0.2 * x), 2.0)

    def followed(x, times):
        return np.exp(-times / np.exp(0.5 - 0.8 * x))

    for _ in range(300):
        x, t, c = draw(40)
        scores = score_rows(model(x), check_outcome((np.minimum(t, c), t <= c)), x, followed, cutoff)
        new, later, _ = draw(50)
        bound = scores.bound(model(new), level, 1 / followed(new, np.full(50, cutoff)))
        assert (bound <= cutoff).all()
        held.append((later >= bound).mean())
    error = np.std(held) / np.sqrt(len(held))
    assert np.mean(held) > level - 3 * error
    # treating all rows alike, censored times as if they were event times, or dropping them, would not do
    assert np.mean(held) < 0.97


def test_bounds_of_a_fitted_model_hold_for_fresh_rows():
    rng = np.random.default_rng(8)

    def draw(n):
        x = rng.normal(size=(n, 2))
        t, c = np.exp(x[:, 0]) * rng.weibull(1.5, n), rng.exponential(2.0, n)
        return x, t, Surv.from_arrays(t <= c, np.minimum(t, c))

    held = []
    for seed in range(25):
        x, _, y = draw(300)
        made = Conformal(estimator=CoxPH(), fraction=0.5, random_state=seed).fit(x, y)
        new, t, _ = draw(400)
        held.append([(t >= made.lower_bound(new, level)).mean() for level in (0.8, 0.9)])
    means, errors = np.mean(held, axis=0), np.std(held, axis=0) / 5
    assert (means > np.array([0.8, 0.9]) - 3 * errors).all()
    assert (means < np.array([0.9, 0.97])).all()


def test_the_cut_off_that_is_chosen_gives_the_largest_mean_bound():
    base, y = rows(400, seed=9)
    outcome = check_outcome(y)

    def followed(_, times):
        return np.exp(-times / 2.0)

    chosen = choose_cutoff(base, outcome, np.arange(400), followed)

    def mean(cutoff):
        scores = score_rows(base, outcome, np.arange(400), followed, cutoff)
        return scores.bound(base, 0.9, np.full(400, 1 / followed(None, cutoff))).mean()

    candidates = [c for c in np.quantile(y["time"], np.linspace(0.1, 0.9, 9)) if followed(None, c) >= 0.1]
    assert chosen in candidates
    assert mean(chosen) == pytest.approx(max(map(mean, candidates)))


def test_a_cut_off_that_nobody_reaches_is_refused(data):
    last = float(data.y["time"].max())
    with pytest.raises(ValueError, match=r"nobody .* earlier cutoff"):
        Conformal(estimator=CoxPH(), cutoff=2 * last, random_state=0).fit(data.X, data.y)
    ends = Surv.from_arrays(data.y["event"] & (data.y["time"] < 1.0), np.minimum(data.y["time"], 1.0))
    made = Conformal(estimator=CoxPH(), cutoff=1.0, random_state=0).fit(data.X, ends)  # all are followed up to it
    assert made.cutoff_ == 1.0
    assert (made.lower_bound(data.X) <= 1.0).all()


def test_shrinkage_of_intervals_divides_by_the_variance_of_a_share():
    """Of n events, (1 - S) / (n S) at a knot; close to what Greenwood's variance gives for exact times."""
    F = np.random.default_rng(5).random(150) ** 2.0  # of a model that is wrong
    exact = check_outcome(Surv.from_arrays(np.ones(150), F))
    narrow = check_outcome(Surv.interval(np.maximum(F - 1e-9, 0.0), F))
    u, g = maps.recalibration(exact, 6, shrink=False)
    apart = np.diff(np.log(np.append(1.0, g[::-1]))) - np.diff(np.log(np.append(1.0, u[::-1])))
    variance = np.diff(np.append(0.0, (1.0 - u[::-1]) / (150 * u[::-1])))
    kept = maps._shrinkage(narrow, u, g)
    assert kept == pytest.approx(1.0 - len(u) / (apart**2 / variance).sum())
    assert kept == pytest.approx(maps._shrinkage(exact, u, g), abs=0.2)
