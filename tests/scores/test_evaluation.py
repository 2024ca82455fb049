import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import CauseMixture, Rescaled, Tabulated, Weibull
from sumosurv.scores import (
    SCORES,
    brier,
    calibration,
    concordance_td,
    d_calibration,
    evaluate,
    evaluation_table,
    group_calibration,
    harrell_c,
    integrated_brier,
    log_likelihood,
    make_survival_scorer,
    rank_correlation,
    scores_table,
    uno_c,
)


class Exponential(BaseEstimator):
    """Exponential regression with a given slope; the scale is the maximum-likelihood one."""

    def __init__(self, slope=0.0):
        self.slope = slope

    def fit(self, X, y):
        relative = np.exp(self.slope * np.asarray(X)[:, 0])
        self.scale_ = (y["time"] / relative).sum() / y["event"].sum()
        return self

    def predict_distribution(self, X):
        return Weibull(self.scale_ * np.exp(self.slope * np.asarray(X)[:, 0]), 1.0)


def _data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    t, c = np.exp(0.8 * X[:, 0]) * rng.exponential(1.0, n), rng.exponential(2.0, n)
    return X, Surv.from_arrays(t <= c, np.minimum(t, c))


def test_the_table_of_scores():
    assert [name for name, score in SCORES.items() if score.proper] == ["log_likelihood"]
    table = scores_table()
    assert list(table.columns) == [
        "greater_is_better", "target", "proper", "why", "needs", "formula", "reference", "cost",
    ]  # fmt: skip
    assert table.loc["integrated_brier", "needs"] == "G, a range of times"
    assert table.loc["group_calibration", "needs"] == "a time"
    with pytest.raises(TypeError):
        SCORES["log_likelihood"] = None


@pytest.mark.parametrize("name", SCORES)
def test_every_score_points_the_way_it_says(name):
    """Towards the truth, beside a distribution that has everything wrong: order, level and spread."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=800)
    t, c = np.exp(x) * rng.exponential(1.0, 800), rng.exponential(20.0, 800)
    y = Surv.from_arrays(t <= c, np.minimum(t, c))
    truth, wrong = (
        evaluate(d, None, y, scores=[name], n_bootstrap=0)["value"][0]
        for d in (Weibull(np.exp(x), 1.0), Weibull(0.1 * np.exp(-x), 3.0))
    )
    assert SCORES[name].gain(truth) > SCORES[name].gain(wrong)
    if SCORES[name].target is None:
        assert (truth > wrong) == SCORES[name].greater_is_better


def test_what_each_score_needs():
    single = {
        "cumulative_dynamic_auc": "times",
        "brier": "times",
        "binomial_log_likelihood": "times",
        "scaled_brier": "times",
        "group_calibration": "time",
        "calibration_intercept": "time",
        "calibration_slope": "time",
    }
    assert {s.name: s.times_option for s in SCORES.values() if s.times == "single"} == single
    integrated = [
        "integrated_auc",
        "integrated_brier",
        "integrated_binomial_log_likelihood",
        "integrated_scaled_brier",
    ]
    assert [s.name for s in SCORES.values() if s.times == "range"] == integrated
    weighted = [s.name for s in SCORES.values() if s.needs_censoring]
    at_times = ["cumulative_dynamic_auc", "integrated_auc", "brier", "binomial_log_likelihood"]
    assert weighted == ["uno_c", *at_times, *integrated[1:3], "scaled_brier", "integrated_scaled_brier"]
    by_cause = {s.name for s in SCORES.values() if s.of_causes}
    assert by_cause == {"concordance_td", *single, *integrated}
    assert SCORES["log_likelihood"].options == ("floor", "resolution", "until")
    assert SCORES["survival_crps"].options == ()


def test_values_are_those_of_the_functions():
    X, y = _data()
    d = Exponential(0.8).fit(X, y).predict_distribution(X)
    table = evaluate(Exponential(0.8).fit(X, y), X, y, scores=list(SCORES), n_bootstrap=50).set_index("score")
    g = kaplan_meier(y, censoring=True)
    assert list(table.index) == list(SCORES)
    for name, score in SCORES.items():
        options = {"censoring": g} if score.needs_censoring else {}
        options |= {score.times_option: np.median(y["time"])} if score.times == "single" else {}
        result = score.function(d, y, **options)
        expected = result.mean() if isinstance(result, np.ndarray) else getattr(result, "score", result)
        assert table.loc[name, "value"] == pytest.approx(expected, rel=1e-12)
        assert make_survival_scorer(name)(Exponential(0.8).fit(X, y), X, y) == pytest.approx(
            score.gain(expected), rel=1e-12
        )
    assert (table["low"] <= table["high"]).all()
    assert table["std_error"].gt(0).all()
    assert table.loc["log_likelihood", ["greater_is_better", "proper"]].all()
    for name in ("log_likelihood", "concordance_td", "integrated_brier", "survival_crps", "brier"):
        assert table.loc[name, "low"] < table.loc[name, "value"] < table.loc[name, "high"]


def test_seed_makes_it_repeatable():
    X, y = _data()
    model = Exponential(0.8).fit(X, y)
    first, second, other = (evaluate(model, X, y, n_bootstrap=30, random_state=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first, second)
    assert not first.equals(other)


def test_intervals_shrink_with_the_number_of_subjects_and_agree_with_theory():
    X, y = _data(1000)
    d = Exponential(0.8).fit(X, y).predict_distribution(X)
    row = evaluate(d, None, y, scores="log_likelihood", n_bootstrap=2000).iloc[0]
    expected = log_likelihood(d, y).std() / np.sqrt(1000)
    assert row["std_error"] == pytest.approx(expected, rel=0.06)
    assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * expected, rel=0.1)


@pytest.mark.parametrize("name", ["concordance_td", "harrell_c", "uno_c"])
def test_pairwise_standard_errors_are_those_of_fresh_samples(name):
    """The first-order bootstrap against the spread of the score over independent samples of the truth."""
    model = Exponential(0.8)
    model.scale_ = 1.0
    function = {
        "concordance_td": lambda d, y: concordance_td(d, y),
        "harrell_c": lambda d, y: harrell_c(-d.scale[:, 0].numpy(), y),
        "uno_c": lambda d, y: uno_c(-d.scale[:, 0].numpy(), y, censoring=Weibull(2.0, 1.0), tau=3.0),
    }[name]
    fresh = []
    for seed in range(150):
        X, y = _data(150, seed + 1)
        fresh.append(function(model.predict_distribution(X), y))
    errors = []
    options = {"uno_c": {"censoring": Weibull(2.0, 1.0), "tau": 3.0, "horizon": 1.0}, "harrell_c": {"horizon": 1.0}}
    for seed in range(10):
        X, y = _data(150, seed + 1000)
        table = evaluate(model, X, y, scores={name: options.get(name, {})}, n_bootstrap=200)
        errors.append(table["std_error"].iloc[0])
    assert np.mean(errors) == pytest.approx(np.std(fresh), rel=0.2)


def test_infinite_scores_stay_infinite():
    y = Surv.from_arrays([True] * 4, [1.5, 0.5, 0.5, 0.5])
    d = Tabulated([1.0, 2.0, 3.0], [[0.5, 0.5, 0.0]] * 4, between="density")
    row = evaluate(d, None, y, scores="log_likelihood", n_bootstrap=100).iloc[0]
    assert row["value"] == row["low"] == -np.inf
    assert row["high"] == pytest.approx(np.log(0.5))
    assert np.isnan(row["std_error"])


def test_options_reach_their_score():
    X, y = _data()
    d = Exponential(0.8).fit(X, y).predict_distribution(X)
    g = Weibull(2.0, 1.0)
    table = evaluate(
        d,
        None,
        y,
        scores={
            "log_likelihood": {"resolution": 0.1},
            "concordance_td": {"method": "antolini", "times": [0.5, 1.0]},
            "harrell_c": {"horizon": 0.3},
            "uno_c": {"tau": 1.0, "horizon": 0.3},
            "integrated_brier": {"times": (0.1, 2.0), "n_times": 7, "rule": "simpson", "normalize": True},
            "calibration": {"levels": [0.3]},
            "d_calibration": {"bins": 4},
            "group_calibration": {"time": 0.4, "groups": 3},
        },
        censoring=g,
        n_bootstrap=0,
    )
    assert table["low"].isna().all()
    expected = [
        log_likelihood(d, y, resolution=0.1).mean(),
        concordance_td(d, y, method="antolini", times=[0.5, 1.0]),
        harrell_c(d, y, horizon=0.3),
        uno_c(d, y, censoring=g, tau=1.0, horizon=0.3),
        integrated_brier(d, y, times=(0.1, 2.0), censoring=g, n_times=7, rule="simpson", normalize=True).mean(),
        calibration(d, y, levels=[0.3]).score,
        d_calibration(d, y, bins=4).score,
        group_calibration(d, y, 0.4, groups=3).score,
    ]
    np.testing.assert_allclose(table["value"], expected, rtol=1e-12)


def test_times_reach_every_score_that_takes_them():
    X, y = _data()
    d, g = Exponential(0.8).fit(X, y).predict_distribution(X), kaplan_meier(y, censoring=True)
    names = ["log_likelihood", "brier", "group_calibration", "integrated_brier"]
    table = evaluate(d, None, y, scores=names, times=[0.5, 1.0], n_bootstrap=0)
    assert list(table["score"]) == [
        "log_likelihood",
        "brier",
        "brier",
        "group_calibration",
        "group_calibration",
        names[-1],
    ]
    assert list(table["times"]) == ["", "0.5", "1", "0.5", "1", "0.5–1"]
    expected = [*brier(d, y, [0.5, 1.0], censoring=g).mean(axis=0)]
    expected += [group_calibration(d, y, t).score for t in (0.5, 1.0)]
    expected += [integrated_brier(d, y, times=[0.5, 1.0], censoring=g).mean()]
    np.testing.assert_allclose(table["value"][1:], expected, rtol=1e-12)
    for at in (0.5, np.float64(0.5), [0.5], np.array([0.5])):
        one = evaluate(d, None, y, scores=["brier"], times=at, n_bootstrap=0)
        assert one["value"].item() == pytest.approx(expected[0])
    span = evaluate(d, None, y, scores="integrated_brier", times=(0.25, 2.0), n_bootstrap=0)
    assert span["times"].item() == "0.25–2"
    assert span["value"].item() == pytest.approx(integrated_brier(d, y, times=(0.25, 2.0), censoring=g).mean())
    own = evaluate(d, None, y, scores={"brier": {"times": 0.5}, "group_calibration": {}}, times=1.0, n_bootstrap=0)
    assert list(own["times"]) == ["0.5", "1"]


def test_times_without_being_asked_for():
    y = Surv.from_arrays([True, True, False, True], [0.0, 0.12345678, 2.0, 3.0])
    table = evaluate(
        Weibull(np.ones(4), 1.0), None, y, scores=["brier", "integrated_brier", "harrell_c"], n_bootstrap=0
    )
    assert list(table["times"]) == ["1.06173", "0.1235–3", ""]


def test_options_that_cannot_be_honoured_are_refused():
    X, y = _data(50)
    d = Weibull(np.ones(50), 1.0)

    def refused(match, **arguments):
        with pytest.raises(ValueError, match=match):
            evaluate(d, None, y, **arguments)

    takers = "cumulative_dynamic_auc, integrated_auc, brier, binomial_log_likelihood, integrated_brier, "
    takers += "integrated_binomial_log_likelihood, scaled_brier, integrated_scaled_brier, group_calibration"
    refused(rf"times= is for {takers}, .*; .*\(log_likelihood\)", scores="log_likelihood", times=1.0)
    refused("times= is for", scores={"brier": {"times": 1.0}}, times=2.0)
    refused(
        "censoring= is for uno_c, cumulative_dynamic_auc, int", scores=["log_likelihood"], censoring=Weibull(1.0, 1.0)
    )
    refused(
        "integrated_brier is an average over a range of times.*not as the one time 365",
        scores="integrated_brier",
        times=365,
    )
    refused(r"brier is taken at single times, but \(0.5, 1.0\) is a range", scores="brier", times=(0.5, 1.0))
    refused("brier needs at least one time", scores="brier", times=[])
    refused("brier has no option 'time'; its options are times, censoring", scores={"brier": {"time": 1.0}})
    refused("survival_crps has no option 'floor'; it has none", scores={"survival_crps": {"floor": 0.1}})
    for match, name, options in (
        ("has no option 'tau'", "harrell_c", {"tau": 1.0}),
        ("range of times", "integrated_brier", {"times": 1.0}),
        ("one number.*got 2 times", "brier", {"times": [0.5, 1.0]}),
        ("is a range", "group_calibration", {"time": (0.5, 1.0)}),
    ):
        with pytest.raises(ValueError, match=match):
            make_survival_scorer(name, **options)
    scorer = make_survival_scorer("brier", times=0.5)
    expected = brier(
        Exponential(0.8).fit(X, y).predict_distribution(X), y, 0.5, censoring=kaplan_meier(y, censoring=True)
    )
    assert scorer(Exponential(0.8).fit(X, y), X, y) == pytest.approx(-expected.mean())


@pytest.mark.parametrize("n_bootstrap", [0, 20])
@pytest.mark.parametrize("unit", [1.0, 1e-4, 3650.0])
def test_printed_within_80_columns(unit, n_bootstrap):
    X, y = _data()
    d = Rescaled(Exponential(0.8).fit(X, y).predict_distribution(X), unit)
    y = Surv.from_arrays(y["event"], unit * y["time"])
    table = evaluate(d, None, y, scores=list(SCORES), n_bootstrap=n_bootstrap)
    lines = repr(table).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 1 + len(SCORES)
    assert lines[0].split() == (
        ["score", "value", "low", "high", "times"] if n_bootstrap else ["score", "value", "times"]
    )
    for line, (_, row) in zip(lines[1:], table.iterrows()):
        parts = line.split()
        assert parts[0] == row["score"]
        columns = ["value", "low", "high"] if n_bootstrap else ["value"]
        np.testing.assert_allclose(
            [float(p) for p in parts[1 : 1 + len(columns)]], row[columns].astype(float), rtol=6e-3
        )
        assert parts[1 + len(columns) :] == ([row["times"]] if row["times"] else [])
    assert type(table[["score", "value"]]) is pd.DataFrame
    table["model"] = "a"
    assert "model" in repr(table)


def test_half_a_page_of_scores_is_printed_with_four_digits():
    X, y = _data()
    model = Exponential(0.8).fit(X, y)
    printed = str(evaluate(model, X, y, scores="log_likelihood"))
    assert f"{log_likelihood(model.predict_distribution(X), y).mean():.3f}" in printed


def test_one_row_and_all_censored():
    for y in (Surv.from_arrays([True], [1.0]), Surv.from_arrays([False, False], [1.0, 2.0])):
        d = Weibull(np.ones(len(y)), 1.0)
        names = ["log_likelihood", "concordance_td", "survival_crps", "calibration", "d_calibration", "brier"]
        table = evaluate(d, None, y, scores=names, n_bootstrap=10).set_index("score")
        assert np.isnan(table.loc["concordance_td", "value"])
        assert table.drop(index="concordance_td")["value"].notna().all()


@pytest.mark.parametrize("name", list(SCORES))
def test_scorers_in_cross_validation(name):
    X, y = _data(150)
    scorer = pickle.loads(pickle.dumps(make_survival_scorer(name)))
    right, wrong = (cross_val_score(Exponential(slope), X, y, cv=3, scoring=scorer).mean() for slope in (0.8, -0.8))
    assert np.isfinite([right, wrong]).all()
    if name not in ("calibration", "d_calibration", "group_calibration"):
        assert right > wrong  # more is better for every scorer


def test_grid_search_and_pipeline():
    X, y = _data()
    search = GridSearchCV(
        Exponential(), {"slope": [-0.8, 0.0, 0.8]}, scoring=make_survival_scorer("log_likelihood"), cv=3
    ).fit(X, y)
    assert search.best_params_ == {"slope": 0.8}
    pipeline = make_pipeline(StandardScaler(), Exponential(0.8)).fit(X, y)
    alone = (
        Exponential(0.8)
        .fit(StandardScaler().fit_transform(X), y)
        .predict_distribution(StandardScaler().fit_transform(X))
    )
    expected = log_likelihood(alone, y).mean()
    for model in (
        pipeline,
        GridSearchCV(pipeline, {"exponential__slope": [0.8]}, scoring=make_survival_scorer("brier")).fit(X, y),
    ):
        value = evaluate(model, X, y, scores="log_likelihood", n_bootstrap=0)["value"].iloc[0]
        assert value == pytest.approx(expected, rel=1e-12)
    assert cross_val_score(pipeline, X, y, scoring=make_survival_scorer("concordance_td")).mean() > 0.6


def test_mistakes_are_named():
    X, y = _data(20)
    with pytest.raises(ValueError, match=r"'ibs'; .* log_likelihood"):
        make_survival_scorer("ibs")
    with pytest.raises(TypeError, match="no predict_distribution"):
        evaluate(StandardScaler(), X, y)
    with pytest.raises(ValueError, match=r"n_bootstrap.*-1"):
        evaluate(Weibull(np.ones(20), 1.0), None, y, n_bootstrap=-1)


def test_rank_correlation():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"dataset": np.repeat(["a", "b"], 50), "log_likelihood": rng.normal(size=100)})
    frame["integrated_brier"] = -np.exp(frame["log_likelihood"])  # less is better: agrees in full
    frame["mine"] = np.where(frame["dataset"] == "a", frame["log_likelihood"], -frame["log_likelihood"])
    names = ["log_likelihood", "integrated_brier", "mine"]
    matrix = rank_correlation(frame, names, by="dataset", greater_is_better={"mine": True})
    np.testing.assert_allclose(matrix, [[1, 1, 0], [1, 1, 0], [0, 0, 1]], atol=1e-12)
    assert rank_correlation(frame).shape == (2, 2)
    with pytest.raises(ValueError, match=r"mine.*greater_is_better"):
        rank_correlation(frame, ["mine"])
    frame["concordance_td"] = 0.5
    assert rank_correlation(frame, by="dataset").loc["concordance_td"].isna().all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"confidence": 0.0},
        {"confidence": 1.0},
        {"confidence": 1.5},
        {"n_bootstrap": -1},
        {"n_bootstrap": 1.5},
        {"n_bootstrap": None},
    ],
)
def test_levels_and_numbers_of_resamples_that_cannot_be(wrong):
    y = Surv.from_arrays([True, False, True], [1.0, 2.0, 3.0])
    expected = "n_bootstrap" if "n_bootstrap" in wrong else "confidence"
    with pytest.raises(ValueError, match=expected):
        evaluate(Weibull([1.0, 2.0, 3.0], 1.0), None, y, scores="log_likelihood", **({"n_bootstrap": 5} | wrong))


LATE = ["integrated_brier", "brier", "uno_c", "cumulative_dynamic_auc", "group_calibration"]


def test_intervals_of_late_rows_are_those_of_the_time_since_entry():
    """Resamples estimate G on the time scale of the score: values lie inside their intervals, which are the same."""
    rng = np.random.default_rng(0)
    n = 150
    entry, spent = rng.uniform(0.0, 5.0, n), rng.exponential(1.0, n) + 0.01
    d, event = Weibull(rng.uniform(2.0, 4.0, n), 1.5), rng.random(n) < 0.6
    late = evaluate(d, None, Surv.from_arrays(event, entry + spent, entry), scores=LATE, n_bootstrap=50)
    plain = evaluate(d.remaining(entry), None, Surv.from_arrays(event, spent), scores=LATE, n_bootstrap=50)
    for column in ("value", "low", "high"):
        np.testing.assert_allclose(late[column], plain[column], rtol=1e-6)


def test_rows_of_weight_zero_are_left_out():
    """Also from the range of times, where nobody else may be followed so far."""
    y = Surv.from_arrays([1, 0, 1, 1, 0, 1], [1.0, 2.0, 3.0, 4.0, 5.0, 9.0])
    weight = np.array([1.0, 1.0, 1.0, 2.0, 1.0, 0.0])
    d = Weibull([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1.0)
    whole = evaluate(d, None, y, sample_weight=weight, n_bootstrap=10)
    part = evaluate(d[:5], None, y[:5], sample_weight=weight[:5], n_bootstrap=10)
    pd.testing.assert_frame_equal(whole, part)
    scorer = make_survival_scorer("integrated_brier")
    model = type("Model", (), {"predict_distribution": lambda self, X: d[X]})()
    rows = np.arange(6)
    assert scorer(model, rows, y, sample_weight=weight) == scorer(model, rows[:5], y[:5], sample_weight=weight[:5])


def test_a_row_that_enters_where_nobody_is_left_is_impossible():
    d = Tabulated([1.0, 2.0], [0.5, 0.0]).repeat(2)
    assert log_likelihood(d, Surv.from_arrays([0, 1], [4.0, 4.0], [3.0, 3.0])).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("options", [{}, {"normalize": True}, {"max_weight": 1.5}])
@pytest.mark.parametrize("name", ["brier", "scaled_brier", "binomial_log_likelihood", "cumulative_dynamic_auc"])
def test_scores_at_several_times_are_those_at_each_time(name, options):
    """Times in any order, one of them twice, and for every cause; resamples too."""
    rng = np.random.default_rng(5)
    scale, n = rng.uniform(0.5, 2.0, 80), 80
    cause, time = rng.integers(0, 3, n), scale * rng.weibull(1.2, n)
    y = Surv.from_arrays(cause, time)
    d = CauseMixture(np.log(np.full((n, 2), 0.5)), [Weibull(scale, 1.0), Weibull(2 * scale, 1.5)])
    times = [0.9, 0.3, 0.6, 0.3]
    together = evaluate(d, None, y, scores={name: {"times": times, **options}}, n_bootstrap=10)
    alone = [evaluate(d, None, y, scores={name: {"times": [t], **options}}, n_bootstrap=10) for t in times]
    expected = pd.concat([table[table["cause"] == k] for k in (1, 2) for table in alone])
    assert len(together) == 8
    for column in ("value", "low", "high"):
        np.testing.assert_allclose(together[column], expected[column], rtol=1e-12)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.123456, 4, "0.1235"), (0.5, 2, "0.50"), (-12.3456, 3, "-12.3"), (1234.4, 4, "1234"), (12345.6, 4, "12346"),
     (100.0, 2, "100"), (99.4, 2, "99"), (999_999_999.0, 4, "999999999"), (1e9, 4, "1.000e+09"), (np.nan, 4, "nan")],
)  # fmt: skip
def test_numbers_of_a_printed_table(value, digits, text):
    """So many digits, but whole numbers are written out up to a billion."""
    assert evaluation_table._number(value, digits) == text
