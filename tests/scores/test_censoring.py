"""Censoring that depends on x: found where it is, not where it is not; and the score that it misleads."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from sumosurv import CoxPH, FormulaTransformer, Surv, kaplan_meier, make_survival_pipeline
from sumosurv.distributions import Tabulated, Weibull
from sumosurv.outcome import check_outcome
from sumosurv.scores import (
    SCORES,
    CensoringCheck,
    brier,
    censoring_given_x,
    cumulative_dynamic_auc,
    evaluate,
    integrated_brier,
    uno_c,
)
from sumosurv.scores.censoring import check_censoring, large_weights

sys.path.append(str(Path(__file__).parents[2] / "examples"))


def rows(n=600, slope=1.0, seed=0):
    """Exponential censoring times with a rate that depends on the second covariate."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    t, c = np.exp(0.7 * x[:, 0]) * rng.exponential(1.0, n), 1.5 * np.exp(slope * x[:, 1]) * rng.exponential(1.0, n)
    X = pd.DataFrame(x, columns=["risk", "visits"])
    return X, Surv.from_arrays(t <= c, np.minimum(t, c)), Weibull(np.exp(0.7 * x[:, 0]), 1.0)


def test_dependence_is_found_where_it_is():
    X, y, d = rows()
    table = evaluate(d, X, y, scores=["log_likelihood", "brier", "uno_c"], n_bootstrap=0)
    assert list(table["censoring"]) == ["", "marginal", "given x", ""]
    assert table.notes[0].startswith("Censoring depends on the covariates")
    assert "a Cox model" in table.notes[0]
    assert "weights above 10" in table.notes[1]
    assert max(map(len, repr(table).splitlines())) <= 80


def test_columns_that_the_model_ignores_do_not_change_its_scores():
    X, y, _ = rows(n=200, slope=0.0)
    data = X.assign(time=y["time"], event=y["event"])
    columns = FormulaTransformer("risk")
    models = {
        "regression": CoxPH.from_formula("Surv(time, event) ~ risk", data),
        "pipeline": make_survival_pipeline(columns, CoxPH()).fit(data, y),
    }
    scores = ["log_likelihood", "brier"]
    with_outcome = evaluate(models, data, y, scores=scores, n_bootstrap=0)
    pd.testing.assert_frame_equal(
        pd.DataFrame(with_outcome), pd.DataFrame(evaluate(models, X[["risk"]], y, scores=scores, n_bootstrap=0))
    )
    assert "censoring" not in with_outcome.columns
    given = evaluate(models, data, y, scores=scores, n_bootstrap=0, censoring=CoxPH(formula="visits"))
    assert "given x" in set(given["censoring"])


def test_dependence_is_seldom_found_where_it_is_not():
    found = 0
    for seed in range(40):
        X, y, _ = rows(200, 0.0, seed)
        found += check_censoring("auto", X, check_outcome(y)).depends
    assert found <= 4  # one in forty is expected of two standard errors


def test_cross_fitted_curves_are_near_the_true_ones_and_have_not_seen_their_row():
    X, y, _ = rows(3000)
    g = censoring_given_x(CoxPH(), X, y, n_folds=3)
    true = Weibull(1.5 * np.exp(X["visits"].to_numpy()), 1.0)
    assert np.abs(g.survival([0.5, 1.0]) - true.survival([0.5, 1.0])).max() < 0.08
    seen = []

    class Noting(CoxPH):
        def fit(self, X, y):
            seen.append(set(X.index))
            assert y["event"].mean() == pytest.approx(1 - rows(3000)[1]["event"].mean(), abs=0.05)
            return super().fit(X, y)

        def predict_distribution(self, X):
            assert not seen[-1] & set(X.index)
            return super().predict_distribution(X)

    censoring_given_x(Noting(), X, y)
    assert len(seen) == 5


def test_subjects_are_held_out_with_all_of_their_rows():
    X, y, _ = rows(90)
    subject = np.arange(90) // 3

    class Noting(CoxPH):
        def fit(self, X, y):
            self.subjects_ = set(X.index // 3)
            return super().fit(X, y)

        def predict_distribution(self, X):
            assert len(X) % 3 == 0
            return super().predict_distribution(X)

    censoring_given_x(Noting(), X, y, groups=subject)
    with pytest.raises(ValueError, match=r"n_folds.*30"):
        censoring_given_x(CoxPH(), X, y, groups=subject, n_folds=31)


def test_an_estimator_is_used_whatever_the_test_says():
    X, y, d = rows(slope=0.0)
    table = evaluate(d, X, y, scores="brier", times=1.0, censoring=CoxPH(alpha=2.0), n_bootstrap=0)
    assert list(table["censoring"]) == ["marginal", "given x"]
    assert "CoxPH" in table.notes[0]
    g = censoring_given_x(CoxPH(alpha=2.0), X, y)
    assert table["value"].iloc[1] == pytest.approx(brier(d, y, 1.0, censoring=g).mean(), rel=1e-12)
    assert table["value"].iloc[0] == pytest.approx(brier(d, y, 1.0, censoring=kaplan_meier(y, censoring=True)).mean())


def test_when_nothing_is_tested():
    X, y, d = rows(80)
    few = Surv.from_arrays(np.arange(80) > 4, y["time"])
    assert "Too few rows are censored (5)" in evaluate(d, X, few, scores="brier", n_bootstrap=0).notes[0]
    wide = np.zeros((80, 201))
    assert "201 columns" in evaluate(d, wide, y, scores="brier", n_bootstrap=0).notes[0]
    images = np.zeros((80, 1, 4, 4))
    assert "X is not a table" in evaluate(d, images, y, scores="brier", n_bootstrap=0).notes[0]
    for none in (
        evaluate(d, None, y, scores="brier", n_bootstrap=0),
        evaluate(d, X, y, scores="brier", censoring="marginal", n_bootstrap=0),
        evaluate(d, X, y, scores="brier", censoring=kaplan_meier(y, censoring=True), n_bootstrap=0),
        evaluate(d, X, y, scores="log_likelihood", n_bootstrap=0),
    ):
        assert none.notes == []
        assert "censoring" not in none
    with pytest.raises(ValueError, match="estimator, which needs X"):
        evaluate(d, None, y, scores="brier", censoring=CoxPH())
    with pytest.raises(ValueError, match='"auto", "marginal"'):
        evaluate(d, X, y, scores="brier", censoring="cox")
    with pytest.raises(TypeError, match=r"censoring .* an estimator"):
        evaluate(d, X, y, scores="brier", censoring=3)


def test_late_entry_and_weights():
    """The censoring model is of the time since entry; rows of weight zero are not looked at."""
    X, y, d = rows(400)
    entry = np.minimum(0.3, 0.5 * y["time"])
    late = Surv.from_arrays(y["event"], y["time"], entry)
    weight = np.where(np.arange(400) < 300, 1.0, 0.0)
    found = evaluate(d, X, late, scores="brier", times=0.5, sample_weight=weight, n_bootstrap=0)
    some = slice(0, 300)
    since = Surv.from_arrays(y["event"][some], (y["time"] - entry)[some])
    expected = evaluate(d[some].remaining(entry[some]), X[some], since, scores="brier", times=0.5, n_bootstrap=0)
    np.testing.assert_allclose(found["value"], expected["value"], rtol=2e-3)
    assert list(found["censoring"]) == ["marginal", "given x"]


def test_share_of_large_weights():
    y = check_outcome(Surv.from_arrays([True, True, False, False], [1.0, 3.0, 2.0, 4.0]))
    g = Weibull([1.0, 1.0, 1.0, 10.0], 1.0)  # 1/G is e, e³, e², e^0.4
    assert large_weights(g, y, 10.0) == 0.25
    assert large_weights(g, y, 2.0) == 0.0
    for share, expected in ((0.1, 0.0), (0.0999, 1.0)):  # a weight of ten is not above ten
        assert large_weights(Tabulated([0.5], np.full((4, 1), share)), y, 10.0) == expected


def test_the_example_of_the_page():
    """One G for all prefers the false model; G given x and the likelihood prefer the truth."""
    comparing = pytest.importorskip("comparing")
    X, y, truth, false = comparing.study(4000)
    options = {"log_likelihood": {}, "integrated_brier": {"times": (0.1, 3.9)}}
    table = evaluate({"truth": truth, "false": false}, X, y, scores=options)
    gap = table[table["against"] == "truth"].set_index(["score", "censoring"])
    assert gap.loc[("integrated_brier", "marginal"), "high"] < 0
    assert gap.loc[("integrated_brier", "given x"), "low"] > 0
    assert gap.loc[("log_likelihood", ""), "high"] < 0


def test_the_true_g_makes_the_truth_best():
    """With G(t|x) itself the expected Brier score of the truth is that without censoring."""
    rng = np.random.default_rng(1)
    n, x = 40_000, rng.normal(size=40_000)
    t, scale = np.exp(0.7 * x) * rng.exponential(1.0, n), 1.5 * np.exp(0.8 * x)
    c = scale * rng.exponential(1.0, n)
    y, d = Surv.from_arrays(t <= c, np.minimum(t, c)), Weibull(np.exp(0.7 * x), 1.0)
    span = (0.1, 1.5)
    uncensored = integrated_brier(d, Surv.from_arrays(t > 0, t), times=span, censoring=Weibull(1e9, 1.0)).mean()
    weighted = integrated_brier(d, y, times=span, censoring=Weibull(scale, 1.0)).mean()
    marginal = integrated_brier(d, y, times=span, censoring=kaplan_meier(y, censoring=True)).mean()
    assert weighted == pytest.approx(uncensored, abs=0.0015)
    assert abs(marginal - uncensored) > 0.003
    assert uno_c(d, y, censoring=Weibull(2.0, 1.0)) > 0.5


def test_weights_given_x_are_used_up_to_where_somebody_is_followed():
    """A horizon that nobody reaches, by G given x, does not take it from the earlier ones."""

    class UpToTwo(BaseEstimator):
        def fit(self, X, y):
            return self

        def predict_distribution(self, X):
            return Tabulated([1.0, 2.0], np.tile([0.5, 0.0], (len(X), 1)))

    X, y, d = rows()
    table = evaluate(d, X, y, scores="brier", times=[0.5, 1.5, 3.0], censoring=UpToTwo(), n_bootstrap=0)
    assert list(zip(table["times"], table["censoring"])) == [
        ("0.5", "marginal"), ("0.5", "given x"), ("1.5", "marginal"), ("1.5", "given x"), ("3", "marginal"),
    ]  # fmt: skip
    assert "(100.0% at time 3)" in table.notes[1]


def short_follow_up(n=2000, seed=0):
    """One hazard for all; every other row is followed for a year at most. A model whose curves fall to zero there."""
    rng = np.random.default_rng(seed)
    x = np.arange(n) % 2
    t, c = rng.exponential(5.0, n), np.where(x == 1, rng.uniform(0.5, 1.0, n), rng.uniform(1.0, 6.0, n))
    truth, steep = Weibull(np.full(n, 5.0), 1.0), Weibull(np.where(x == 1, 1.0, 5.0), np.where(x == 1, 12.0, 1.0))
    return pd.DataFrame({"x": x}), Surv.from_arrays(t <= c, np.minimum(t, c)), truth, steep


def test_rows_whose_like_are_not_followed_are_left_out():
    """Past the end of their follow-up only events are seen: a curve that falls to zero there would gain."""
    X, y, truth, steep = short_follow_up()
    x, time, event = X["x"].to_numpy(), y["time"], y["event"]
    edges = np.linspace(0.01, 6.0, 600)
    g = Tabulated(edges, np.where(x[:, None] == 1, np.clip(2 - 2 * edges, 0, 1), np.clip((6 - edges) / 5, 0, 1)))
    at = 2.0
    kept = x == 0  # G(2|x) is zero for the others
    for d in (truth, steep):
        s = d.survival([at])[:, 0]
        weight = np.where(time > at, 1 / g.survival([at])[:, 0].clip(1e-9), 0.0)
        before = g.survival(own_times=np.nextafter(time, 0.0))
        weight = np.where((time <= at) & event, 1 / before.clip(1e-9), weight)
        expected = (weight * np.where(time > at, (1 - s) ** 2, s**2))[kept].mean()
        assert brier(d, y, at, censoring=g, min_followed=0.05).mean() == pytest.approx(expected)
        terms = SCORES["brier"].terms(d, y, times=at, censoring=g, min_followed=0.05)
        assert terms.value == pytest.approx(expected)
        for name in ("integrated_brier", "integrated_binomial_log_likelihood"):
            options = {"times": (0.1, 4.0), "censoring": g, "min_followed": 0.05}
            found = SCORES[name].function(d, y, **options).mean()
            assert SCORES[name].terms(d, y, **options).value == pytest.approx(found)
    wins = {least: [integrated_brier(d, y, times=(0.1, 5.0), censoring=g, min_followed=least, on_zero="drop").mean()
                    for d in (truth, steep)] for least in (0.0, 0.05)}  # fmt: skip
    assert wins[0.0][0] > wins[0.0][1]  # the wrong one, though G given x is known
    assert wins[0.05][0] < wins[0.05][1]
    risk = -np.arange(len(x), dtype=float)
    auc = cumulative_dynamic_auc(risk, y, at, censoring=g, min_followed=0.05)
    own = cumulative_dynamic_auc(risk[kept], y[kept], at, censoring=g[np.flatnonzero(kept)])
    assert auc == pytest.approx(own)
    with pytest.raises(ValueError, match="min_followed"):
        brier(truth, y, at, censoring=g, min_followed=1.5)


def test_evaluate_leaves_out_rows_whose_like_are_not_followed():
    X, y, truth, steep = short_follow_up()
    table = evaluate({"truth": truth, "steep": steep}, X, y, scores="integrated_brier", n_bootstrap=0)
    gain = table[table["against"] != ""].set_index("censoring")["value"]
    assert gain["marginal"] < 0 < gain["given x"]
    assert "fewer than 5% of comparable subjects" in table.notes[1]


def test_a_model_of_the_censoring_that_gains_nothing_is_said_to_gain_nothing():
    for gain, error, depends in ((-0.008, 0.005, False), (0.004, 0.005, False), (0.7, 0.05, True)):
        text = str(CensoringCheck("a Cox model", gain, error, Weibull([1.0], 1.0)))
        assert f"{gain:+.3f} nats per row" in text
        assert text.startswith("Censoring depends" if depends else "No evidence")
        assert ("not more than two standard errors" in text) != depends
        assert "higher" not in text


def test_weighted_scores_of_intervals_are_refused_in_their_own_words():
    """Not by the model of the censoring times, which nobody asked for."""
    X, y, d = rows(200)
    lies = Surv.interval(y["time"], np.where(y["event"], y["time"] + 0.1, np.inf))
    with pytest.raises(ValueError, match="interval-censored"):
        evaluate(d, X, lies, scores="brier", times=0.5)


def test_a_likelihood_that_is_not_finite_is_not_called_a_finding():
    check = CensoringCheck("a Cox model", np.inf, np.nan, Weibull(np.ones(3), 1.0))
    assert not check.depends
    assert "could not be tested" in str(check)
    assert "inf" not in str(check)


def test_levels_that_are_in_one_fold_alone_are_no_matter_of_the_user():
    X, y, d = rows(300)
    X["clinic"] = pd.Categorical(["rare"] + ["a", "b"] * 149 + ["a"])
    evaluate(d, X, y, scores="brier", n_bootstrap=0)  # warnings are errors
