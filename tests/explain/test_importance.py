"""Permutation importance: what is lost, over time, with intervals, for every kind of outcome."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from explain.formulas import Formula, TwoCauses, data
from sumosurv import CoxPH, Surv, WeibullNet, kaplan_meier
from sumosurv.distributions import Tabulated, Weibull
from sumosurv.explain import permutation_importance
from sumosurv.outcome import Cells, check_outcome
from sumosurv.plots import plot_importance
from sumosurv.scores import brier, log_likelihood
from sumosurv.scores.likelihood import known_by


def simulated(n=300, seed=0):
    """The rate is exp(x0); x1 has no say."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    time, end = rng.exponential(np.exp(-X[:, 0])), rng.exponential(2.0, n)
    return X, Surv.from_arrays(time <= end, np.minimum(time, end)), Formula(lambda X: np.exp(X[:, 0]))


def test_the_loss_is_that_of_shuffled_rows():
    X, y, model = simulated()
    found = permutation_importance(model, X, y, n_repeats=200, n_bootstrap=0)
    value = found.table.set_index("column")["value"]
    assert value["x1"] == 0.0
    rate, event, time = np.exp(X[:, 0]), y["event"], y["time"]
    # the mean over all shuffles: every row's log-likelihood d log r - r t with everyone's rate r
    full = (event * np.log(rate) - rate * time).mean()
    shuffled = event.mean() * np.log(rate).mean() - rate.mean() * time.mean()
    assert value["x0"] == pytest.approx(full - shuffled, rel=0.05)
    assert found.full["value"].item() == pytest.approx(full)
    assert list(found.table["column"]) == ["x0", "x1"]


def test_scores_of_which_less_is_better_lose_by_rising_and_come_at_each_time():
    X, y, model = simulated()
    times = [0.3, 1.0]
    found = permutation_importance(model, X, y, scores=["brier", "harrell_c", "log_likelihood"], n_repeats=3)
    assert (found.table.query("column == 'x0'")["value"] > 0).all()
    found = permutation_importance(model, X, y, scores=["brier", "log_likelihood"], times=times, n_repeats=3)
    assert list(found.full["time"]) == [*times, *times]
    full = found.full.set_index(["score", "time"])["value"]
    d = model.predict_distribution(X)
    seen = (np.minimum(y["time"], 0.3), y["event"] & (y["time"] <= 0.3))
    assert full["log_likelihood", 0.3] == pytest.approx(log_likelihood(d, seen).mean())
    g = kaplan_meier(y, censoring=True)
    assert full["brier", 1.0] == pytest.approx(brier(d, y, 1.0, censoring=g).mean())
    later = permutation_importance(model, X, y, times=[1e3], n_repeats=2, n_bootstrap=0)
    whole = permutation_importance(model, X, y, n_repeats=2, n_bootstrap=0)
    np.testing.assert_allclose(later.table["value"], whole.table["value"])


def test_limits_are_for_other_rows_and_other_shuffles():
    """Standard errors against the spread over fresh samples, with few repeats so that both sources matter."""
    values, errors, inside = [], [], []
    for seed in range(60):
        X, y, model = simulated(200, seed)
        found = permutation_importance(model, X, y, columns=["x0"], n_repeats=3, random_state=seed)
        line = found.table.iloc[0]
        values.append(line["value"])
        errors.append(line["std_error"])
        inside.append((line["low"], line["high"]))
    truth = np.mean(values)
    assert np.mean(errors) == pytest.approx(np.std(values, ddof=1), rel=0.3)
    covered = np.mean([low <= truth <= high for low, high in inside])
    assert covered >= 0.85
    X, y, model = simulated(200)
    narrow = permutation_importance(model, X, y, columns=["x0"], level=0.5).table.iloc[0]
    wide = permutation_importance(model, X, y, columns=["x0"], level=0.95).table.iloc[0]
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]


def test_columns_are_shuffled_together():
    rng = np.random.default_rng(0)
    X, y, _ = simulated()
    X = np.column_stack([X[:, 0], X[:, 0], rng.normal(size=len(X))])
    model = Formula(lambda X: np.exp(X[:, 0] - 50 * (X[:, 0] - X[:, 1]) ** 2))  # wild where the two differ
    found = permutation_importance(model, X, y, columns={"both": [0, 1], "last": 2}, n_bootstrap=0)
    direct = permutation_importance(Formula(lambda X: np.exp(X[:, 0])), X, y, columns=[0], n_bootstrap=0)
    value = found.table.set_index("column")["value"]
    assert set(value.index) == {"both", "last"}
    assert value["both"] == pytest.approx(direct.table["value"].item(), rel=0.2)
    with pytest.raises(ValueError, match="Name each column once"):
        permutation_importance(model, X, y, columns={"a": [0, 1], "b": [1]})


def test_weights_count_rows_and_zero_leaves_them_out():
    X, y, model = simulated(80)
    weight = np.arange(80) % 3
    ours = permutation_importance(model, X, y, sample_weight=weight, n_repeats=1, n_bootstrap=0)
    rows = np.repeat(np.arange(80), weight)
    repeated = permutation_importance(model, X[rows], y[rows], n_repeats=1, n_bootstrap=0)
    assert ours.full["value"].item() == pytest.approx(repeated.full["value"].item())
    full = permutation_importance(model, X[weight > 0], y[weight > 0], n_repeats=5, n_bootstrap=20)
    same = permutation_importance(model, X, y, sample_weight=weight > 0, n_repeats=5, n_bootstrap=20)
    np.testing.assert_allclose(full.table["value"], same.table["value"])


def test_causes():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    model = TwoCauses(lambda X: np.exp(X[:, 1]))
    time, cause = model.predict_distribution(X).sample(random_state=0, return_causes=True)
    y = Surv.from_arrays(np.where(time < 3, cause, 0), np.minimum(time, 3.0))
    found = permutation_importance(model, X, y, scores=["brier", "log_likelihood"], times=[0.5], n_repeats=3)
    assert set(found.table["cause"].dropna()) == {1, 2}
    one = permutation_importance(model, X, y, scores="brier", cause=2, times=[0.5], n_repeats=3)
    assert set(one.table["cause"]) == {2}
    with pytest.raises(ValueError, match=r"log_likelihood.*cause=1"):
        permutation_importance(model, X, y, cause=1)


def test_late_entry_intervals_and_several_rows_of_a_subject():
    X, y, model = simulated(200)
    entry = 0.5 * y["time"]
    late = Surv.from_arrays(y["event"], y["time"], entry)
    found = permutation_importance(model, X, late, scores=["log_likelihood", "brier"], times=[0.4], n_repeats=3)
    d = model.predict_distribution(X)
    full = found.full.set_index("score")["value"]
    seen = known_by(check_outcome(late), 0.4)
    assert full["log_likelihood"] == pytest.approx(log_likelihood(d, seen).mean())
    assert np.isfinite(full["brier"])
    upper = np.where(y["event"], y["time"] + 0.1, np.inf)
    between = Surv.interval(y["time"], upper)
    found = permutation_importance(model, X, between, n_repeats=3)
    assert found.table.iloc[0]["column"] == "x0"
    subject = np.arange(200) // 4
    one, four = (permutation_importance(model, X, y, groups=g, n_repeats=3).table for g in (None, subject))
    np.testing.assert_allclose(one["value"], four["value"])
    assert not np.allclose(one["std_error"], four["std_error"])


def test_what_was_known_by_a_horizon():
    y = check_outcome(Surv.interval([0.5, 1.0, 2.0, 0.5], [0.8, 3.0, 2.0, np.inf]))
    seen = known_by(y, 1.5)
    np.testing.assert_array_equal(seen.time, [0.5, 1.0, 1.5, 0.5])
    np.testing.assert_array_equal(seen.upper, [0.8, np.inf, np.inf, np.inf])
    np.testing.assert_array_equal(seen.event, [False, False, False, False])
    late = check_outcome(Surv.from_arrays([1, 2, 0], [1.0, 2.0, 3.0], [0.5, 1.8, 0.0]))
    seen = known_by(late, 1.5)
    np.testing.assert_array_equal(seen.cause, [1, 0, 0])
    np.testing.assert_array_equal(seen.entry, [0.5, 1.5, 0.0])
    model = TwoCauses(lambda X: np.exp(X[:, 1]))
    assert log_likelihood(model.predict_distribution(np.zeros((3, 2))), seen)[1] == 0.0  # it entered later
    with pytest.raises(ValueError, match="By time 0 nothing is known"):
        known_by(late, 0.0)


def test_the_likelihood_is_that_of_the_model_s_cells():
    X, y, _ = simulated(150)
    y["time"] = np.ceil(5 * y["time"]) / 5

    class InCells(Formula):
        cells_ = Cells.found(check_outcome(y))

    assert InCells.cells_ is not None
    model = InCells(lambda X: np.exp(X[:, 0]))
    found = permutation_importance(model, X, y, n_repeats=2, n_bootstrap=0)
    expected = log_likelihood(model.predict_distribution(X), y, resolution=InCells.cells_).mean()
    assert found.full["value"].item() == pytest.approx(expected)


def test_frames_with_categories_and_missing_values():
    X, y = data()
    model = WeibullNet(n_members=2, max_epochs=8, covariate_layers=(8,), random_state=0).fit(X, y)
    found = permutation_importance(model, X, y, n_repeats=3, n_bootstrap=20)
    assert set(found.table["column"]) == set(X)
    assert found.table.iloc[0]["column"] == "a"
    assert found.full["value"].item() == pytest.approx(model.score(X, y))
    assert list(found.to_frame().columns) == ["column", "score", "value", "low", "high", "std_error"]
    assert "Loss by shuffling a column: mean of 3 repeats, 95% limits" in repr(found)
    assert (found.table["low"] <= found.table["value"]).all()
    none = permutation_importance(model, X, y, n_repeats=2, n_bootstrap=0)
    assert none.table["low"].isna().all()
    pd.testing.assert_frame_equal(none.table, permutation_importance(model, X, y, n_repeats=2, n_bootstrap=0).table)


class Ended(Formula):
    """Nobody lives longer than 0.2."""

    def predict_distribution(self, X):
        return Tabulated([0.1, 0.2], np.tile([0.5, 0.0], (len(X), 1)), between="density")


def test_what_cannot_be_is_named():
    X, y, model = simulated(40)
    for options, message in (
        ({"scores": "accuracy"}, "There is no score 'accuracy'"),
        ({"scores": "harrell_c", "times": [1.0]}, "harrell_c.*times="),
        ({"n_repeats": 0}, "n_repeats.*1 or more"),
        ({"columns": ["z"]}, "X has no column 'z'"),
    ):
        with pytest.raises(ValueError, match=message):
            permutation_importance(model, X, y, **options)
    with pytest.raises(ValueError, match=r"-inf.*integrated_brier"):
        permutation_importance(Ended(lambda X: np.ones(len(X))), X, y)
    cox = CoxPH(alpha=0.1, missing="indicator").fit(X, y)
    assert len(permutation_importance(cox, X, y, scores="integrated_brier", n_repeats=2).table) == 2


def test_a_horizon_before_anybody_is_observed_is_refused():
    X, y, model = simulated()
    late = Surv.from_arrays(y["event"], 10.0 + y["time"], np.full(len(X), 10.0))
    with pytest.raises(ValueError, match="By time 5 nothing is known"):
        permutation_importance(model, X, late, times=[5.0, 11.0], n_repeats=1, n_bootstrap=0)


def test_infinite_losses_have_no_limits_and_no_bar():
    """A column decides which times are possible: if it is shuffled, some observed times have probability zero."""
    late = np.arange(40) % 2

    class Steps:
        def predict_distribution(self, X):
            survival = np.array([[0.5, 0.0, 0.0], [1.0, 0.5, 0.0]])[np.asarray(X)[:, 0].astype(int)]
            return Tabulated([1.0, 2.0, 3.0], survival, between="density")

    X, y = np.column_stack([late, np.arange(40) % 3]), Surv.from_arrays(np.ones(40), np.where(late == 1, 2.5, 0.5))
    found = permutation_importance(Steps(), X, y, scores="log_likelihood", n_bootstrap=20)
    assert np.isposinf(found.table["value"][0])
    assert np.isnan(found.table["std_error"][0])
    assert found.table["value"][1] == 0.0
    assert [text.get_text() for text in plot_importance(found).texts] == ["∞"]


def test_rows_of_weight_zero_are_left_out_with_their_censoring_distributions():
    X, y = data()
    X = X[["a", "d"]]
    weight = np.arange(len(X)) % 2
    G = Weibull(np.linspace(1.0, 9.0, len(X)), 1.0)
    model = Formula(lambda X: np.exp(np.asarray(X)[:, 0]))
    asked = {"scores": "brier", "times": [0.5], "n_repeats": 2, "n_bootstrap": 0}
    found = permutation_importance(model, X, y, sample_weight=weight, censoring=G, **asked)
    kept = np.flatnonzero(weight)
    alone = permutation_importance(model, X.iloc[kept], y[kept], censoring=G[kept], **asked)
    np.testing.assert_allclose(found.table["value"], alone.table["value"], rtol=1e-12)
    np.testing.assert_allclose(found.full["value"], alone.full["value"], rtol=1e-12)
