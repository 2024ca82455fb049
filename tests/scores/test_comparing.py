"""Several models side by side: paired intervals, horizons, cross-validation; concordance and CRPS of many rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sumosurv import CoxPH, KaplanMeier, Surv, kaplan_meier
from sumosurv.distributions import Gompertz, LogLogistic, LogNormal, Mixture, Rescaled, Tabulated, Weibull
from sumosurv.models import final_estimator
from sumosurv.scores import (
    HORIZON_SCORES,
    SCORES,
    brier,
    censoring_given_x,
    concordance_td,
    cross_evaluate,
    cumulative_dynamic_auc,
    evaluate,
    integrated_auc,
    log_likelihood,
    survival_crps,
)
from sumosurv.scores.auc import auc_terms

sksurv = pytest.importorskip("sksurv.metrics")


def rows(n=300, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    t, c = np.exp(0.8 * x[:, 0]) * rng.weibull(1.4, n), rng.exponential(2.0, n)
    time = np.minimum(t, c)
    if ties:
        time = np.ceil(8 * time) / 8
    return x, Surv.from_arrays(t <= c, time)


X, Y = rows()
TRUTH = Weibull(np.exp(0.8 * X[:, 0]), 1.4)
OTHER = Weibull(np.exp(0.2 * X[:, 0]), 1.0)


def test_differences_are_paired():
    """The interval of a difference of mean log-likelihoods is that of the mean difference, not of two samples."""
    table = evaluate({"truth": TRUTH, "other": OTHER}, None, Y, scores="log_likelihood", n_bootstrap=4000)
    assert list(table["model"]) == ["truth", "other", "other"]
    assert list(table["against"]) == ["", "", "truth"]
    gap = log_likelihood(OTHER, Y) - log_likelihood(TRUTH, Y)
    row = table.iloc[2]
    assert row["value"] == pytest.approx(gap.mean(), rel=1e-12)
    assert row["std_error"] == pytest.approx(gap.std() / np.sqrt(len(gap)), rel=0.05)
    assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * gap.std() / np.sqrt(len(gap)), rel=0.08)
    alone = evaluate(OTHER, None, Y, scores="log_likelihood", n_bootstrap=4000).iloc[0]
    assert table.loc[1, ["value", "low", "high"]].tolist() == alone[["value", "low", "high"]].tolist()


@pytest.mark.parametrize("name", SCORES)
def test_a_model_does_not_differ_from_itself(name):
    table = evaluate({"a": TRUTH, "b": TRUTH}, None, Y, scores=[name], n_bootstrap=20)
    assert table.iloc[-1][["value", "low", "high"]].tolist() == [0.0, 0.0, 0.0]


def test_horizons_in_one_table_within_80_columns():
    models = {"Weibull regression": TRUTH, "something else": OTHER}
    table = evaluate(models, None, Y, times=[0.5, 1.0], n_bootstrap=20)
    for name in HORIZON_SCORES:
        assert list(table["times"][table["score"] == name]) == ["0.5"] * 3 + ["1"] * 3
    assert (table["times"][table["score"] == "integrated_brier"].str.contains("–")).all()
    lines = repr(table).splitlines()
    assert max(map(len, lines)) <= 80
    assert "brier at 0.5" in lines
    assert sum("something else - Weibull regression" in line for line in lines) == len(table) / 3
    g = kaplan_meier(Y, censoring=True)
    at = table[(table["score"] == "brier") & (table["times"] == "1") & (table["model"] == "something else")]
    assert at["value"].iloc[0] == pytest.approx(brier(OTHER, Y, 1.0, censoring=g).mean())
    assert "worse" in next(line for line in lines if line.startswith("  something else - "))


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="mapping is empty"):
        evaluate({}, None, Y)
    with pytest.raises(ValueError, match="10 subjects and y has 300"):
        evaluate({"a": TRUTH, "b": TRUTH[:10]}, None, Y)
    with pytest.raises(ValueError, match="estimators must be a mapping"):
        cross_evaluate([CoxPH()], X, Y)
    with pytest.raises(ValueError, match="cv must be"):
        cross_evaluate({"a": CoxPH()}, X, Y, 1)


# ------------------------------------------------------------------ AUC


@pytest.mark.parametrize("ties", [False, True])
def test_auc_and_its_average_equal_scikit_survival(ties):
    _, train = rows(200, 1, ties)
    x, y = rows(250, 2, ties)
    y = y[y["time"] < train["time"].max()]
    x = x[: len(y)]
    risk, times = np.round(x[:, 0], 1), np.quantile(y["time"], [0.1, 0.3, 0.5, 0.7])
    theirs, mean = sksurv.cumulative_dynamic_auc(train, y, -risk, times)
    options = {"censoring": kaplan_meier(train, censoring=True), "left_limit": False, "on_zero": "drop"}
    np.testing.assert_allclose(cumulative_dynamic_auc(-risk, y, times, **options), theirs, atol=1e-10)
    assert integrated_auc(-risk, y, times=times, **options) == pytest.approx(mean, abs=1e-10)


@pytest.mark.parametrize("own", [True, False])
def test_resampled_integrated_auc_is_that_of_drawn_rows(own):
    """To first order: a few rows are drawn once more, and the change is that of the score of these rows."""
    from sumosurv.outcome import check_outcome
    from sumosurv.scores._resampling import Resamples

    last = float(np.sort(Y["time"][Y["event"]])[-10])  # an event at the last time counts
    outcome, times = check_outcome(Y), np.array([0.3, 0.6, last])
    fixed = kaplan_meier(Y, censoring=True)
    terms = auc_terms(TRUTH, Y, times=times, censoring=None if own else fixed)
    assert terms.value == pytest.approx(integrated_auc(TRUTH, Y, times=times, censoring=fixed), abs=1e-12)
    share = np.diff(1 - kaplan_meier(Y).survival(times)[0], prepend=0.0)
    step = 1e-4
    for row in (int(np.argmin(Y["time"])), 5, 17, int(np.flatnonzero(Y["time"] == last)[0])):
        counts = np.ones(len(Y))
        counts[row] += step
        g = kaplan_meier(Y, censoring=True, sample_weight=counts) if own else fixed
        direct = cumulative_dynamic_auc(TRUTH, Y, times, censoring=g, sample_weight=counts) @ share / share.sum()
        assert terms.resampled(Resamples(outcome, counts[None]))[0] == pytest.approx(direct, abs=20 * step**2)


def test_auc_with_a_censoring_curve_of_each_row():
    """Weights by hand: cases 1/G(z|x) of their own, controls 1/G(t|x)."""
    g, t = Weibull(2.0 * np.exp(0.3 * X[:, 1]), 1.0), 0.8
    case, control = Y["event"] & (Y["time"] <= t), Y["time"] > t
    w, v = case / g.survival(own_times=Y["time"]), control / g.survival(t)
    risk = TRUTH.cdf(t)
    above = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    assert cumulative_dynamic_auc(TRUTH, Y, t, censoring=g) == pytest.approx(w @ above @ v / w.sum() / v.sum())


# ------------------------------------------------------------------ many rows


def exact(d, y, **options):
    """The concordance by curves that may cross, whatever the distribution knows of their order."""

    class Hidden(Mixture):
        def ranking(self):
            return None

        def step_table(self):
            return None

    return concordance_td(Hidden([d]), y, times="exact", **options)


@pytest.mark.parametrize("method", ["adj_antolini", "antolini"])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: Weibull(np.exp(x), 1.3),
        lambda x: LogNormal(x, 0.7),
        lambda x: LogLogistic(np.exp(x), 2.0),
        lambda x: Gompertz(np.exp(-x), 0.5),
        lambda x: Rescaled(Weibull(np.exp(x), 1.3), 2.0),
        lambda x: Tabulated.proportional([0.2, 0.5, 0.9, 1.7], [0.1, 0.3, 0.5, 1.0], np.exp(-x)),
        lambda x: kaplan_meier(Y).repeat(len(x)),
    ],
)
def test_one_ranking_for_all_times_gives_the_exact_concordance(make, ties, method):
    x, y = rows(120, 3, ties)
    d = make(np.round(x[:, 0], 1))
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    assert d.ranking() is not None
    for options in ({}, {"sample_weight": weight}):
        assert concordance_td(d, y, method=method, **options) == pytest.approx(
            exact(d, y, method=method, **options), abs=1e-12
        )


def test_curves_that_may_cross_have_no_ranking():
    assert Weibull([1.0, 2.0], [1.0, 2.0]).ranking() is None
    assert Tabulated([1.0], [[0.5], [0.4]]).ranking() is None
    assert Mixture([Weibull([1.0, 2.0], 1.0)]).ranking() is None
    assert Weibull([1.0, 2.0], 1.0).remaining([0.1, 0.5]).ranking() is None


@pytest.mark.parametrize("seed", range(4))
def test_concordance_of_many_rows_is_within_the_error_that_is_told(seed):
    x, y = rows(2100, seed)
    d = Weibull(np.exp(0.8 * x[:, 0]), np.exp(0.4 * x[:, 1]))  # curves that cross
    truth = concordance_td(d, y, times="exact")
    found = evaluate(d, None, y, scores="concordance_td", n_bootstrap=50)
    assert found["value"].item() == pytest.approx(concordance_td(d, y), rel=1e-12)
    assert found["times"].item() == "99 times"
    error, told = abs(found["value"].item() - truth), float(found.notes[0].split("below ")[1].removesuffix("."))
    assert error < told < 0.01
    assert error < 0.1 * found["std_error"].item()


def test_concordance_of_few_rows_is_exact():
    x, y = rows(400, 4)
    d = Weibull(np.exp(0.8 * x[:, 0]), np.exp(0.4 * x[:, 1]))
    assert concordance_td(d, y) == concordance_td(d, y, times="exact")
    assert evaluate(d, None, y, scores="concordance_td", n_bootstrap=0).notes == []
    with pytest.raises(ValueError, match='times must be "auto", "exact"'):
        concordance_td(d, y, times="all")


def test_curves_of_proportional_hazards_are_never_a_table_of_all_rows(monkeypatch):
    model = CoxPH().fit(X, Y)
    d = model.predict_distribution(X)
    asked, table = [], Tabulated.table.fget

    def watched(self):
        if not self.is_stored:
            asked.append(len(self))
        return table(self)

    monkeypatch.setattr(Tabulated, "table", property(watched))
    evaluate(d, None, Y, scores=["log_likelihood", "concordance_td", "integrated_brier", "d_calibration", "brier"])
    assert not asked


def test_crps_of_a_network_mixture_is_that_of_a_fine_table():
    """Panels that all subjects share, the tail past them, and rows past the last break, against a table."""
    from distribution_kinds import frozen

    d = frozen((0, 1, 2))
    d = d[[0, 1, 2, 0, 1, 2]]
    y = Surv.from_arrays([True, False, True, True, False, True], [0.3, 0.9, 1e-3, 1.7, 1.2, 1.0])
    knots = np.unique(
        np.concatenate([[0.0], np.geomspace(1e-7, 1.0, 20_000), np.linspace(1.0, 60.0, 60_000), y["time"]])
    )
    fine = Tabulated(knots, d.survival(knots), between="density")
    assert d.survival(60.0).max() < 1e-6
    np.testing.assert_allclose(survival_crps(d, y), survival_crps(fine, y), rtol=2e-5, atol=1e-7)


# ------------------------------------------------------------------ cross-validation


class Fixed(BaseEstimator):
    """Remembers which rows it was fitted on, and predicts worse for these: a wrong route cannot score well."""

    def __init__(self, slope=0.8):
        self.slope = slope

    def fit(self, X, y):
        self.seen_ = {tuple(row) for row in np.asarray(X)}
        return self

    def predict_distribution(self, X):
        rows = np.asarray(X)
        seen = np.array([tuple(row) in self.seen_ for row in rows])
        return Weibull(np.where(seen, 1e-3, np.exp(self.slope * rows[:, 0])), 1.4)


def test_cross_evaluation_scores_rows_that_were_not_fitted():
    models = {"flat": Fixed(0.0), "good": Fixed(0.8), "bad": Fixed(-0.8)}
    result = cross_evaluate(models, X, Y, 4, scores=["log_likelihood", "brier"], n_repeats=2, verbose=False)
    table = result.table
    assert result.folds["fold"].nunique() == 8
    likelihood = table[table["score"] == "log_likelihood"].reset_index(drop=True)
    assert list(likelihood["model"]) == ["flat", "good", "bad", "good", "bad"]
    assert likelihood["won"].tolist()[3:] == [1.0, 0.0]
    by_fold = result.folds[result.folds["score"] == "log_likelihood"].pivot(
        index="fold", columns="model", values="value"
    )
    gap = (by_fold["good"] - by_fold["flat"]).to_numpy()
    assert likelihood["value"][3] == pytest.approx(gap.mean())
    assert likelihood["std_error"][3] == pytest.approx(gap.std(ddof=1) * np.sqrt(1 / 8 + 1 / 3), rel=1e-3)
    assert likelihood["value"][1] == pytest.approx(log_likelihood(TRUTH, Y).mean(), abs=0.02)
    assert max(map(len, repr(result).splitlines())) <= 80
    assert "folds won" in repr(result)


def test_the_range_of_integrated_scores_starts_at_the_first_positive_time():
    later = Y.copy()
    later["time"][later["time"].argmin()] = 0.0
    result = cross_evaluate({"good": Fixed(0.8)}, X, later, 2, scores=["integrated_brier"], verbose=False)
    first = later["time"][later["time"] > 0].min()
    assert float(result.table["times"].iloc[0].split("–")[0]) == pytest.approx(first, rel=0.01)


def test_a_pipeline_predicts_by_its_last_step():
    last = KaplanMeier()
    assert final_estimator(make_pipeline(StandardScaler(), StandardScaler(), last)) is last


def test_cross_evaluation_takes_splitters_groups_weights_and_frames(capsys):
    subject = np.arange(len(Y)) // 3
    frame = pd.DataFrame(X, columns=["a", "b"])
    held_out = []

    class Noting(CoxPH):
        def predict_distribution(self, X):
            held_out.append(set(X.index // 3))
            return super().predict_distribution(X)

    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(Y))
    cross_evaluate(
        {"cox": Noting()}, frame, Y, 3, scores="harrell_c", groups=subject, sample_weight=weight, verbose=False
    )
    assert len(held_out) == 3
    assert not held_out[0] & held_out[1]
    assert set.union(*held_out) == set(subject)
    models = {"km": KaplanMeier(), "cox": CoxPH()}
    result = cross_evaluate(models, frame, Y, KFold(3), scores="integrated_brier")
    assert result.table["times"].nunique() == 1
    assert "6/6" in capsys.readouterr().err


def test_cross_evaluation_asks_once_for_all_folds_whether_censoring_depends_on_x():
    """In small folds the answer would differ from fold to fold, and scores with one G and the other would be mixed."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(240, 2))
    t, c = np.exp(0.7 * x[:, 0]) * rng.exponential(1.0, 240), 1.5 * np.exp(0.7 * x[:, 1]) * rng.exponential(1.0, 240)
    y = Surv.from_arrays(t <= c, np.minimum(t, c))
    models = {"km": KaplanMeier(), "cox": CoxPH()}
    scores = ["log_likelihood", "brier", "uno_c"]
    result = cross_evaluate(models, x, y, 6, scores=scores, censoring="auto", times=0.7, verbose=False)
    assert result.table["censoring"].tolist() == [""] * 3 + ["marginal"] * 3 + ["given x"] * 3 + [""] * 3
    assert result.table.notes[1].startswith("Censoring depends on the covariates")
    assert max(map(len, repr(result).splitlines())) <= 80
    marginal = cross_evaluate(models, x, y, 6, scores=scores, times=0.7, verbose=False).table
    rest = result.table[result.table["censoring"] != "given x"]
    assert rest["value"].to_numpy() == pytest.approx(marginal["value"].to_numpy(), rel=1e-12)
    g = censoring_given_x(CoxPH(alpha=1.0), x, y)  # the same curves, a distribution for each row
    scores = {"brier": {"times": 0.7, "min_followed": 0.05}}
    given = cross_evaluate(models, x, y, 6, scores=scores, censoring=g, verbose=False).table
    found = result.table.loc[result.table["censoring"] == "given x", "value"]
    assert given["value"].to_numpy() == pytest.approx(found.to_numpy(), rel=1e-12)


def test_folds_without_a_score_and_infinite_ones():
    """A score that some folds do not have is said to be missing; two infinite ones are a tie, and nothing warns."""

    class Sure(Fixed):
        def predict_distribution(self, X):
            return Weibull(np.full(len(X), 1e-3), 200.0)  # S is zero early on: every censored row is impossible

    models = {"a": Sure(), "b": Sure(), "c": Fixed(0.8)}
    table = cross_evaluate(models, X, Y, 4, scores="binomial_log_likelihood", times=0.5, verbose=False).table
    assert np.isneginf(table["value"][:2]).all()
    assert table["won"].tolist()[3:] == [0.5, 1.0]
    few = cross_evaluate({"c": Fixed(0.8)}, X[:30], Y[:30], 15, scores="harrell_c", verbose=False).table
    assert np.isnan(few["value"][0])
    assert "undefined in" in few.notes[1]


@pytest.mark.parametrize("models", [{"": TRUTH, "b": TRUTH}, {1: TRUTH, "1": TRUTH}])
def test_every_model_has_a_name_of_its_own(models):
    with pytest.raises(ValueError, match="must be distinct"):
        evaluate(models, None, Y)


def test_mistakes_in_what_is_compared_are_named():
    with pytest.raises(ValueError, match=r"n_repeats.*got 0"):
        cross_evaluate({"cox": CoxPH()}, X, Y, n_repeats=0)
    with pytest.raises(TypeError, match=r"CoxPH is a class; .* CoxPH\(\)"):
        evaluate({"cox": CoxPH}, X, Y)
    with pytest.raises(ValueError, match="requires X"):
        evaluate(CoxPH().fit(X, Y), None, Y)
    with pytest.raises(TypeError, match="several models"):
        evaluate([TRUTH, TRUTH], X, Y)


def test_times_past_the_follow_up_are_pointed_out():
    last = float(Y["time"].max())
    table = evaluate(TRUTH, None, Y, scores=["brier"], times=[0.5, last, 2 * last], n_bootstrap=0)
    assert f"No row is followed beyond time {last:g}" in table.notes[0]
    assert evaluate(TRUTH, None, Y, scores=["brier"], times=[0.5], n_bootstrap=0).notes == []


def test_long_names_are_cut_to_fit_and_stay_apart():
    names = ["a gradient boosted proportional hazards model", "a gradient boosted accelerated failure time model"]
    models = {name: Weibull(np.exp(s * X[:, 0]), 1.4) for name, s in zip(names, (0.8, 0.5))}
    table = evaluate(models, None, Y, scores=["brier", "log_likelihood"], times=0.5, n_bootstrap=20)
    lines = repr(table).splitlines()
    assert max(map(len, lines)) <= 80
    first, second, difference = (line.strip().split("  ")[0] for line in lines[2:5])
    assert first != second
    assert first[:7] == second[:7] == names[0][:7]
    assert difference.startswith(f"{second} - {first}")
    assert table["model"].unique().tolist() == names


@pytest.mark.parametrize("score", ["calibration_slope", "calibration_intercept", "brier", "harrell_c"])
def test_differences_of_folds_are_positive_if_the_value_is_larger_or_the_target_further_away(score):
    """A score with a target is compared by its distance from it."""
    models = {"flat": Fixed(-0.3), "good": Fixed(0.8)}
    result = cross_evaluate(models, X, Y, 3, scores=[score], times=0.8, verbose=False)
    folds = result.folds.pivot(index="fold", columns="model", values="value")
    gap = folds["good"] - folds["flat"]
    better = gap > 0 if SCORES[score].greater_is_better else gap < 0
    if SCORES[score].target is not None:
        distance = (folds - SCORES[score].target).abs()
        gap = distance["good"] - distance["flat"]
        better = gap < 0
    row = result.table[result.table["against"] == "flat"].iloc[0]
    assert row["value"] == pytest.approx(gap.mean())
    assert row["won"] == pytest.approx(better.mean())
    alone = result.table[result.table["against"] == ""].set_index("model")["value"]
    assert alone.to_dict() == pytest.approx(folds.mean().to_dict())
