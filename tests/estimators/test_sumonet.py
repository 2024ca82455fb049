"""SuMo-net: what it predicts, how it ends, and that it repeats itself."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp

from pandas_modes import pandas_copy_on_write
from sumosurv import PaperSumoNet, SumoNet, Surv, TrainingError, check_outcome, datasets, kaplan_meier
from sumosurv.distributions import Mixture, Rescaled
from sumosurv.fitting.plan import FitPlan
from sumosurv.scores import harrell_c, log_likelihood
from sumosurv.training import loop
from sumosurv.training.batches import split_rows

SMALL = {"n_members": 3, "max_epochs": 6, "covariate_layers": (8, 8), "time_layers": (6, 6), "random_state": 0}
SMALL |= {"components": "networks"}
GRID = np.array([0.0, 0.1, 0.5, 1.0, 3.0])


def data(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "c": rng.choice(["u", "v", "w"], n)})
    X.loc[::17, "b"] = np.nan
    time = rng.weibull(1.5, n) * np.exp(-1.2 * X["a"])
    return X, Surv.from_arrays(rng.random(n) < 0.8, time)


X, Y = data()


@pytest.fixture(scope="module")
def model():
    return SumoNet(**SMALL).fit(X, Y)


# ---------------------------------------------------------------------- predictions


def test_predictions_are_those_of_the_distribution(model):
    d = model.predict_distribution(X)
    assert len(d) == 150
    for method, quantity in (
        ("predict_survival_function", "survival"),
        ("predict_cumulative_hazard_function", "cumulative_hazard"),
        ("predict_density", "density"),
        ("predict_hazard", "hazard"),
    ):
        got = getattr(model, method)(X, GRID)
        assert got.shape == (150, 5)
        np.testing.assert_array_equal(got, getattr(d, quantity)(GRID))
        assert getattr(model, method)(X, 1.0).shape == (150, 1)
        np.testing.assert_allclose(getattr(model, method)(X.head(5), GRID), got[:5], rtol=1e-10)
    np.testing.assert_allclose(model.predict_quantile(X, [0.1, 0.9]), d.quantile([0.1, 0.9]), rtol=1e-12)
    np.testing.assert_allclose(model.predict_median(X), d.median(), rtol=1e-12)
    np.testing.assert_allclose(model.predict_mean(X), d.mean(), rtol=1e-12)
    np.testing.assert_allclose(model.predict_restricted_mean(X, 2.0), d.restricted_mean(2.0), rtol=1e-12)
    np.testing.assert_allclose(model.predict(X), d.cdf(model.risk_times_).mean(1))
    with pytest.raises(ValueError, match=r"one-dimensional .*\(2, 2\)"):
        model.predict_density(X, np.ones((2, 2)))
    with pytest.raises(ValueError, match="zero or more"):
        model.predict_density(X, [-1.0])


def test_the_distribution_is_proper(model):
    s = model.predict_survival_function(X, [0.0, 1e-9, 0.5, 10.0, 1e3, 1e9])
    assert (s[:, 0] == 1.0).all()
    assert (np.diff(s, axis=1) <= 0).all()
    assert (s[:, -1] < 1e-12).all()
    assert np.isfinite(model.predict_mean(X)).all()
    assert np.isfinite(model.predict_quantile(X, 1 - 1e-9)).all()


def test_score_is_the_mean_log_likelihood(model):
    d = model.predict_distribution(X)
    by_hand = np.where(Y["event"], d.log_density(own_times=Y["time"]), d.log_survival(own_times=Y["time"]))
    assert model.score(X, Y) == pytest.approx(by_hand.mean(), rel=1e-12)
    assert model.score(X, Y) == pytest.approx(log_likelihood(d, Y).mean(), rel=1e-12)


def test_the_ensemble_is_the_equal_mixture_of_its_members(model):
    d = model.predict_distribution(X)
    assert isinstance(d, Rescaled)
    assert isinstance(d.base, Mixture)
    assert len(d.base.components) == model.n_members_ == 3
    parts = [Rescaled(part, model.time_unit_) for part in d.base.components]
    for quantity in ("log_survival", "log_density"):
        each = np.stack([getattr(part, quantity)(own_times=Y["time"]) for part in parts])
        whole = getattr(d, quantity)(own_times=Y["time"])
        np.testing.assert_allclose(whole, logsumexp(each, axis=0) - np.log(3), rtol=1e-9, atol=1e-12)
    assert not np.allclose(parts[0].survival(GRID), parts[1].survival(GRID))


def test_risk_scores_rank_early_events_first():
    sample = datasets.simulate("weibull", 600, random_state=0)
    fitted = SumoNet(**(SMALL | {"max_epochs": 20})).fit(sample.X[:400], sample.y[:400])
    risk = fitted.predict(sample.X[400:])
    assert ((risk >= 0) & (risk <= 1)).all()
    assert harrell_c(risk, sample.y[400:]) > 0.55
    assert np.corrcoef(fitted.predict_median(sample.X[400:]), risk)[0, 1] < 0


# ---------------------------------------------------------------------- repeatability


def test_a_seed_repeats_a_fit_bit_for_bit(model):
    again = SumoNet(**SMALL).fit(X, Y)
    np.testing.assert_array_equal(again.predict_density(X, GRID), model.predict_density(X, GRID))
    pd.testing.assert_frame_equal(again.history_, model.history_)
    same = SumoNet(**(SMALL | {"random_state": np.random.RandomState(0)})).fit(X, Y)
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    other = SumoNet(**(SMALL | {"random_state": 1})).fit(X, Y)
    assert not np.array_equal(other.predict(X), model.predict(X))


def test_refitting_starts_anew(model):
    fitted = SumoNet(**SMALL).fit(X.head(50), Y[:50])
    np.testing.assert_array_equal(fitted.fit(X, Y).predict(X), model.predict(X))


def test_fitting_leaves_the_global_generators_and_threads_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    state = np.random.get_state()[1].copy()  # noqa: NPY002 (the global one is what must not change)
    SumoNet(**SMALL).fit(X, Y)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_a_member_does_not_depend_on_the_size_of_the_ensemble():
    """Seeds are drawn one after the other: the first of three is the only one of one."""
    one = SumoNet(**(SMALL | {"n_members": 1})).fit(X, Y)
    three = SumoNet(**SMALL).fit(X, Y)
    for single, many in zip(
        one.stack_.populations[0].network.parameters(), three.stack_.populations[0].network.parameters()
    ):
        torch.testing.assert_close(single[0], many[0], rtol=2e-3, atol=2e-4)


def test_inputs_are_not_changed():
    frame, y = data(60)
    before, y_before = frame.copy(deep=True), y.copy()
    with pandas_copy_on_write():
        SumoNet(**SMALL).fit(frame, y).predict(frame)
    pd.testing.assert_frame_equal(frame, before)
    np.testing.assert_array_equal(y, y_before)


# ---------------------------------------------------------------------- validation, refit, history


def test_history_and_best_values_are_on_the_scale_of_the_user(model):
    assert list(model.history_.columns) == ["epoch", "member", "train", "valid", "component"]
    assert len(model.history_) == 3 * 6
    best = model.history_.groupby("member")["valid"].max().to_numpy()
    np.testing.assert_allclose(best, model.best_valid_)
    fitted = SumoNet(**(SMALL | {"n_members": 1}))
    days = Y.copy()
    days["time"] *= 100.0
    fitted.fit(X[:100], days[:100], validation_data=(X[100:], days[100:]))
    fitted.stack_.populations[
        0
    ].network.growth.zero_()  # it is learned after training: until then the hazard is constant
    assert fitted.best_valid_[0] == pytest.approx(fitted.score(X[100:], days[100:]), abs=1e-5)


def test_members_hold_out_their_own_rows_and_their_scores_are_exact():
    """Also where the shares of events differ between the members' validation rows."""
    y = Surv.from_arrays(np.arange(150) < 1, 50 * Y["time"])  # one event: the split cannot be stratified
    fitted = SumoNet(**SMALL).fit(X, y)
    seeds = np.random.RandomState(0).randint(0, 2**31 - 1, size=3)
    for k, part in enumerate(fitted.predict_distribution(X).base.components):
        train, rows = split_rows(check_outcome(y), int(seeds[k]), 0.2)
        assert not set(train) & set(rows)
        assert len(rows) == 30
        d = Rescaled(part, fitted.time_unit_)
        value = log_likelihood(d, y)[rows].mean()
        assert value == pytest.approx(fitted.best_valid_[k], abs=1e-5)


def test_validation_rows_decide_and_are_not_trained_on():
    """They change nothing on the way; they decide which epoch is kept, and that one is the best of them."""
    options = SMALL | {"max_epochs": 8, "learning_rate": 0.05, "n_members": 1, "dropout": 0.0}
    alike = X[:75], Y[:75]
    early = X[:75], Surv.from_arrays(Y["event"][:75], 1e-3 * Y["time"][:75][::-1])  # the less is learned the better
    right, wrong = (SumoNet(**options).fit(X[75:], Y[75:], validation_data=rows) for rows in (alike, early))
    np.testing.assert_array_equal(right.history_["train"], wrong.history_["train"])
    assert right.best_epoch_[0] > wrong.best_epoch_[0]
    for fitted, rows in ((right, alike), (wrong, early)):
        valid = fitted.history_["valid"].to_numpy()
        assert fitted.best_epoch_[0] == valid.argmax()
        assert fitted.score(*rows) == pytest.approx(valid.max(), abs=1e-4)
    with pytest.raises(ValueError, match="X has 50 rows and y has 10"):
        SumoNet(**SMALL).fit(X[:100], Y[:100], validation_data=(X[100:], Y[100:110]))


def test_refit_uses_all_rows_for_each_member_s_best_number_of_epochs():
    plain = SumoNet(**SMALL).fit(X, Y)
    again = SumoNet(**SMALL, refit=True).fit(X, Y)
    np.testing.assert_array_equal(again.best_epoch_, plain.best_epoch_)
    assert not np.array_equal(again.predict(X), plain.predict(X))
    assert again.score(X, Y) != plain.score(X, Y)
    assert np.isfinite(again.score(X, Y))


def test_without_validation_rows():
    fitted = SumoNet(**SMALL, validation_fraction=0.0).fit(X, Y)
    assert fitted.history_["valid"].isna().all()
    assert (fitted.best_epoch_ == 5).all()


def test_ctrl_c_gives_a_model_and_no_refit(monkeypatch):
    calls, real = iter(range(100)), loop.mean_terms

    def interrupted(*arguments):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(loop, "mean_terms", interrupted)
    fitted = SumoNet(**SMALL, refit=True)
    with pytest.warns(RuntimeWarning, match="interrupted after 3 epochs"), pytest.raises(KeyboardInterrupt):
        fitted.fit(X, Y)
    assert fitted.interrupted_
    assert fitted.history_["epoch"].max() == 2
    assert np.isfinite(fitted.score(X, Y))


def test_verbose_writes_to_stderr(capsys):
    SumoNet(**SMALL).fit(X, Y)
    assert capsys.readouterr() == ("", "")
    SumoNet(**SMALL, verbose=True).fit(X, Y)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "training 3 networks" in shown.err


# ---------------------------------------------------------------------- odd data


@pytest.mark.parametrize("make", [partial(SumoNet, components="networks"), PaperSumoNet])
@pytest.mark.parametrize(
    ("frame", "y"),
    [
        (pd.DataFrame({"x": [1.0]}), Surv.from_arrays([1], [2.0])),
        (pd.DataFrame({"x": [1.0]}), Surv.from_arrays([0], [2.0])),
        (pd.DataFrame({"x": [1.0]}), Surv.from_arrays([1], [0.0])),
        (pd.DataFrame({"x": np.arange(30.0)}), Surv.from_arrays(np.zeros(30), np.arange(30) + 1.0)),
        (pd.DataFrame({"x": np.arange(30.0)}), Surv.from_arrays(np.ones(30), np.arange(30.0))),
        (pd.DataFrame({"x": np.ones(30)}), Surv.from_arrays(np.ones(30), np.arange(30) + 1.0)),
        (pd.DataFrame({"x": np.arange(30.0)}), Surv.from_arrays(np.ones(30), np.full(30, 4.0))),
        (pd.DataFrame({"x": ["a", "b"] * 15}), Surv.from_arrays([1, 0] * 15, np.arange(30) % 3 + 0.0)),
        (pd.DataFrame({"x": np.arange(12.0)}), Surv.from_arrays([1] + [0] * 11, np.arange(12) + 1.0)),
        (pd.DataFrame({"x": np.full(15, np.nan)}), Surv.from_arrays([1, 0, 1] * 5, np.arange(15) * 1e9)),
        (pd.DataFrame({"x": np.arange(15) * 1e200}), Surv.from_arrays([1, 0, 1] * 5, np.arange(15) * 1e-9)),
    ],
    ids=[
        "one event",
        "one censored",
        "one at zero",
        "all censored",
        "all events",
        "constant",
        "one time",
        "categories",
        "one seen",
        "all missing",
        "huge numbers",
    ],
)
@pytest.mark.filterwarnings("ignore:All .* rows are censored")
def test_small_and_degenerate_data(frame, y, make):
    fitted = make(**{k: v for k, v in SMALL.items() if k != "components"}).fit(frame, y)
    assert np.isfinite(fitted.predict(frame)).all()
    assert not np.isnan(fitted.predict_survival_function(frame, [0.0, 1.0, 1e12])).any()
    assert not np.isnan(fitted.predict_mean(frame)).any()
    assert not np.isnan(fitted.score(frame, y))


@pytest.mark.parametrize("batch_size", [1, 4, 10**6])
def test_any_batch_size(batch_size):
    fitted = SumoNet(**(SMALL | {"max_epochs": 2, "batch_size": batch_size})).fit(X[:40], Y[:40])
    assert np.isfinite(fitted.score(X, Y))


def test_most_rows_held_out():
    fitted = SumoNet(**(SMALL | {"max_epochs": 2, "validation_fraction": 0.9})).fit(X[:12], Y[:12])
    assert np.isfinite(fitted.score(X, Y))


def test_events_far_past_the_training_times_are_scored():
    fitted = SumoNet(**SMALL).fit(X, Y)
    late = Y.copy()
    late["time"] += 1000.0 * Y["time"].max()
    assert np.isfinite(fitted.score(X, late))


def test_training_that_cannot_work_says_so():
    with pytest.raises(TrainingError, match=r"\(0, 1, 2\).* smaller learning_rate"):
        SumoNet(**(SMALL | {"learning_rate": 1e38})).fit(X, Y)


def test_a_failed_member_is_left_out_of_the_mixture(monkeypatch):
    make = FitPlan.build

    def spoiled(self, *arguments):
        network = make(self, *arguments)
        with torch.no_grad():
            for p in network.parameters():
                p[1] = torch.nan
        return network

    monkeypatch.setattr(FitPlan, "build", spoiled)
    with pytest.warns(RuntimeWarning, match=r"Members 1 .* left out"):
        fitted = SumoNet(**SMALL).fit(X, Y)
    monkeypatch.undo()
    assert fitted.n_members_ == 2
    assert len(fitted.predict_distribution(X).base.components) == 2
    whole = SumoNet(**SMALL).fit(X, Y)
    parts = whole.predict_distribution(X).base.components
    expected = 0.5 * (parts[0].survival(0.2) + parts[2].survival(0.2))
    np.testing.assert_allclose(fitted.predict_distribution(X).base.survival(0.2), expected, rtol=1e-6)


@pytest.mark.real_data
def test_an_untuned_model_beats_kaplan_meier_on_real_data(real_data):
    sample = datasets.load("gbsg")
    part = datasets.fold("gbsg", 0)
    fitted = SumoNet(**(SMALL | {"max_epochs": 15})).fit(sample.X.iloc[part.train], sample.y[part.train])
    y = sample.y[part.test]
    marginal = kaplan_meier(sample.y[part.train]).with_half_width(8).repeat(len(y))
    gain = log_likelihood(fitted.predict_distribution(sample.X.iloc[part.test]), y).mean()
    with np.errstate(divide="ignore"):
        base = np.maximum(log_likelihood(marginal, y), -30.0).mean()
    assert gain > base + 0.05
