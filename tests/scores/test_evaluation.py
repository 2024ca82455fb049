import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import Tabulated, Weibull
from sumosurv.scores import (
    SCORES,
    concordance_td,
    d_calibration,
    evaluate,
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
    assert list(scores_table().columns) == ["greater_is_better", "proper", "why", "formula", "reference", "cost"]
    with pytest.raises(TypeError):
        SCORES["log_likelihood"] = None


def test_values_are_those_of_the_functions():
    X, y = _data()
    d = Exponential(0.8).fit(X, y).predict_distribution(X)
    table = evaluate(Exponential(0.8).fit(X, y), X, y, scores=list(SCORES), n_bootstrap=20).set_index("score")
    g = kaplan_meier(y, censoring=True)
    assert list(table.index) == list(SCORES)
    assert table.loc["log_likelihood", "value"] == pytest.approx(log_likelihood(d, y).mean(), rel=1e-12)
    assert table.loc["concordance_td", "value"] == pytest.approx(concordance_td(d, y), rel=1e-12)
    assert table.loc["uno_c", "value"] == pytest.approx(uno_c(d, y, censoring=g), rel=1e-12)
    assert table.loc["integrated_brier", "value"] == pytest.approx(
        integrated_brier(d, y, censoring=g).mean(), rel=1e-12
    )
    assert table.loc["d_calibration", "value"] == pytest.approx(d_calibration(d, y).score, rel=1e-9)
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
    table = evaluate(d, None, y, scores={"brier": {"times": 0.5}, "log_likelihood": {"resolution": 0.1}}, n_bootstrap=0)
    assert table["value"].iloc[1] == pytest.approx(log_likelihood(d, y, resolution=0.1).mean())
    assert table["low"].isna().all()
    g = Weibull(2.0, 1.0)
    value = evaluate(d, None, y, scores="integrated_brier", censoring=g, times=(0.1, 2.0), n_bootstrap=0)["value"].iloc[
        0
    ]
    assert value == pytest.approx(integrated_brier(d, y, times=(0.1, 2.0), censoring=g).mean())


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
    if name not in ("calibration", "d_calibration", "km_calibration"):
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
    with pytest.raises(ValueError, match="no score 'ibs'; the scores are log_likelihood"):
        make_survival_scorer("ibs")
    with pytest.raises(TypeError, match="no predict_distribution"):
        evaluate(StandardScaler(), X, y)
    with pytest.raises(ValueError, match="evaluated at one time"):
        evaluate(Weibull(np.ones(20), 1.0), None, y, scores={"brier": {"times": [0.5, 1.0]}})


def test_rank_correlation():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"dataset": np.repeat(["a", "b"], 50), "log_likelihood": rng.normal(size=100)})
    frame["integrated_brier"] = -np.exp(frame["log_likelihood"])  # less is better: agrees in full
    frame["mine"] = np.where(frame["dataset"] == "a", frame["log_likelihood"], -frame["log_likelihood"])
    names = ["log_likelihood", "integrated_brier", "mine"]
    matrix = rank_correlation(frame, names, by="dataset", greater_is_better={"mine": True})
    np.testing.assert_allclose(matrix, [[1, 1, 0], [1, 1, 0], [0, 0, 1]], atol=1e-12)
    assert rank_correlation(frame).shape == (2, 2)
    with pytest.raises(ValueError, match="which way"):
        rank_correlation(frame, ["mine"])
    frame["concordance_td"] = 0.5
    assert rank_correlation(frame, by="dataset").loc["concordance_td"].isna().all()
