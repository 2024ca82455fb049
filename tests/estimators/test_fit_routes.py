"""Which rows go where in a fit: on data where the wrong rows give another answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from sumosurv import CoxTime, DeepHit, DeepSurv, SumoNet, Surv, WeibullNet, check_outcome
from sumosurv.distributions import Rescaled
from sumosurv.fitting.plan import FitPlan
from sumosurv.fitting.prepared import time_features
from sumosurv.networks import Rows
from sumosurv.preprocessing import Preprocessor
from sumosurv.scores import log_likelihood
from sumosurv.training.batches import split_rows
from sumosurv.training.loop import mean_terms, train

SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (6,), "device": "cpu", "random_state": 0}
SUMO = SMALL | {"time_layers": (5,), "components": "networks"}


def data(n=120, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "c": rng.choice(["u", "v"], n)})
    return X, Surv.from_arrays(rng.random(n) < 0.7, scale * rng.weibull(1.5, n) * np.exp(-X["a"]))


def far():
    """Validation rows that look like no training row: shifted, with a level of their own, and hundred times later."""
    X, y = data(60, seed=1, scale=100.0)
    return X.assign(a=X["a"] + 50.0, c=np.where(np.arange(60) % 2, "w", "u")), y


UNSEEN = pytest.mark.filterwarnings("ignore::UserWarning")  # the level is meant to be one that training rows lack


# ---------------------------------------------------------------------- what is learned before training


@UNSEEN
@pytest.mark.parametrize("scaling", ["quantile", "standard"])
def test_columns_and_the_unit_of_time_are_learned_from_training_rows_alone(scaling):
    X, y = data()
    fitted = SumoNet(**SUMO, numeric_scaling=scaling).fit(X, y, validation_data=far())
    assert fitted.preprocessor_.state() == Preprocessor(scaling).fit(X).state()
    assert fitted.preprocessor_.columns[1].levels == ("u", "v")
    assert fitted.time_unit_ == y["time"].max()


@UNSEEN
def test_what_a_method_learns_of_the_outcome_it_learns_from_training_rows_alone():
    X, y = data()
    unit = float(y["time"].max())
    sumo = SumoNet(**SUMO).fit(X, y, validation_data=far())
    assert sumo.stack_.learned.start["time_features"] == time_features("marginal", check_outcome(y), unit).state()
    assert DeepHit(**SMALL, n_cuts=8).fit(X, y, validation_data=far()).cuts_.max() == pytest.approx(unit)
    alone, beside = WeibullNet(**SMALL), WeibullNet(**SMALL)
    rows = beside._read(X, y, far())
    assert FitPlan(beside).learn(rows).start == FitPlan(alone).learn(alone._read(X, y)).start


@pytest.mark.parametrize("make", [DeepSurv, CoxTime])
def test_baselines_come_from_training_rows_and_after_a_refit_from_all(make):
    """Every event after the largest training time is a validation row's."""
    X, y = data()
    X_late, y_late = data(60, seed=1)
    y_late["time"] += y["time"].max()
    plain = make(**SMALL).fit(X, y, validation_data=(X_late, y_late))
    again = make(**SMALL, refit=True).fit(X, y, validation_data=(X_late, y_late))
    last = {False: y["time"][y["event"]].max(), True: y_late["time"][y_late["event"]].max()}
    for fitted, everything in ((plain, False), (again, True)):
        times = fitted.stack_.populations[0].network.baseline_times[0].numpy() * fitted.time_unit_
        assert times.max() == pytest.approx(last[everything], rel=1e-6)


# ---------------------------------------------------------------------- who trains on what


def test_a_split_has_the_share_of_events_of_all_rows():
    y = check_outcome(Surv.from_arrays(np.arange(100) < 10, np.arange(100) + 1.0))
    for seed in range(20):
        fit, valid = split_rows(y, seed, 0.2)
        assert (y.event[fit].sum(), y.event[valid].sum()) == (8, 2)
        assert sorted([*fit, *valid]) == list(range(100))


def spied(monkeypatch):
    """The members of each training."""
    calls = []
    monkeypatch.setattr("sumosurv.fitting.plan.train", lambda *given: calls.append(given[2]) or train(*given))
    return calls


def test_members_hold_out_different_rows_and_together_see_them_all(monkeypatch):
    X, y = data()
    calls = spied(monkeypatch)
    SumoNet(**(SUMO | {"n_members": 12, "max_epochs": 1})).fit(X, y)
    (members,) = calls
    held_out = {tuple(member.valid_rows) for member in members}
    assert len(held_out) == len({member.seed for member in members}) == 12
    assert set(np.concatenate([member.train_rows for member in members])) == set(range(120))
    for member in members:
        assert sorted([*member.train_rows, *member.valid_rows]) == list(range(120))


def test_members_with_the_same_start_and_rows_part_by_their_shuffles():
    """Dropout off, one start for both, the same rows in batches: only the order of rows can tell them apart."""
    X, y = data()
    model = SumoNet(**(SUMO | {"dropout": 0.0, "batch_size": 10}))
    plan, rows = FitPlan(model), model._read(X, y)
    network = plan.build(plan.learn(rows), np.array([5, 5]))
    own, _ = rows.own_rows()
    start = torch.cat([p.detach().flatten(1) for p in network.parameters()], dim=1)
    assert torch.equal(start[0], start[1])
    train(network, rows.table, [plan.member(seed, own, None) for seed in (1, 2)], plan.schedule(len(own)))
    end = torch.cat([p.detach().flatten(1) for p in network.parameters()], dim=1)
    assert not torch.allclose(end[0], end[1])


def test_a_refit_is_the_training_of_all_rows_up_to_the_best_epoch():
    """By hand, from the steps of a fit: the same seeds, every row, the weights of that epoch."""
    X, y = data()
    options = SUMO | {"max_epochs": 8, "learning_rate": 0.1, "n_members": 3}
    again = SumoNet(**options, refit=True).fit(X, y)
    assert len(set(again.best_epoch_)) > 1  # members stop at different epochs
    assert again.best_epoch_.max() < 7
    model = SumoNet(**options)
    by_hand, rows = FitPlan(model._resolved(96)), model._read(X, y)
    seeds = np.random.RandomState(0).randint(0, 2**31 - 1, size=3)
    network = by_hand.build(by_hand.learn(rows), seeds)
    every = np.arange(120)
    members = [by_hand.member(int(s), every, None, int(e)) for s, e in zip(seeds, again.best_epoch_)]
    train(network, rows.table, members, by_hand.schedule(96))
    for ours, theirs in zip(again.stack_.populations[0].network.parameters(), network.parameters()):
        torch.testing.assert_close(ours, theirs.double())


def test_a_refit_learns_what_only_validation_rows_tell():
    """Column b is 1 in validation rows alone, where times are forty times shorter."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=240), "b": np.repeat([0.0, 1.0], 120)})
    y = Surv.from_arrays(np.ones(240, bool), rng.weibull(2.0, 240) * np.where(X["b"] == 1, 0.025, 1.0))
    options = SUMO | {"max_epochs": 25, "learning_rate": 0.02, "dropout": 0.0}
    parts = (X[:120], y[:120]), (X[120:180], y[120:180]), (X[180:], y[180:])
    plain, again = (SumoNet(**options, refit=refit).fit(*parts[0], validation_data=parts[1]) for refit in (False, True))
    assert again.score(*parts[2]) > plain.score(*parts[2]) + 0.5


# ---------------------------------------------------------------------- rows that are padding


@pytest.mark.parametrize("make", [SumoNet, WeibullNet, DeepHit, DeepSurv])
def test_padding_rows_count_nowhere(make):
    """A member with few rows beside one with many trains as it does alone; row 0, which pads the others, is odd."""
    X, y = data()
    X.loc[0, "a"], y["time"][0] = 4.0, y["time"].max()
    options = SMALL | {"dropout": 0.0, "batch_size": 1000, "numeric_scaling": "standard"}
    model = make(**options, **({"time_layers": (5,), "components": "networks"} if make is SumoNet else {}))
    plan, rows = FitPlan(model), model._read(X, y)
    table = replace(rows.table, inputs=rows.table.inputs.to(torch.device("cpu"), torch.float64))
    table = replace(table, outcome=replace(table.outcome, time=table.outcome.time.double()))
    learned, own = plan.learn(rows), [np.arange(1, 80), np.arange(90, 105)]
    valid = [np.arange(80, 90), np.arange(110, 120)]
    ends = []
    for who in ([0, 1], [1]):
        network = plan.build(learned, np.array([7, 8])[who]).double()
        members = [plan.member(7 + k, own[k], valid[k]) for k in who]
        history = train(network, table, members, plan.schedule(80))
        ends.append(([p.detach()[-1] for p in network.parameters()], np.array(history.train)[:, -1]))
    for together, alone in zip(ends[0][0], ends[1][0]):
        torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=1e-9)


# ---------------------------------------------------------------------- likelihoods in the user's unit


@pytest.mark.parametrize("unit", [100.0, 0.01])
def test_history_is_in_the_unit_of_the_user(unit):
    """A network that does not move: its training likelihood is that of its own distribution on its own rows."""
    X, y = data(scale=unit)
    seen = []
    options = SUMO | {"learning_rate": 1e-12, "dropout": 0.0, "weight_decay": 0.0}
    fitted = SumoNet(**options, verbose=seen.append).fit(X, y)
    seeds = np.random.RandomState(0).randint(0, 2**31 - 1, size=2)
    for k, part in enumerate(fitted.predict_distribution(X).base.components):
        own = log_likelihood(Rescaled(part, fitted.time_unit_), y)
        for rows, name in zip(split_rows(check_outcome(y), int(seeds[k]), 0.2), ("train", "valid")):
            told = fitted.history_.query("member == @k")[name]
            np.testing.assert_allclose(told, own[rows].mean(), atol=1e-4)
            np.testing.assert_allclose([getattr(epoch, name)[k] for epoch in seen], told)
        assert fitted.best_valid_[k] == fitted.history_.query("member == @k")["valid"].max()


def test_validation_rows_are_scored_by_the_cause_of_their_event():
    (X, y), (X_valid, y_valid), rng = data(), data(60, seed=1), np.random.default_rng(2)
    causes = [Surv.from_arrays(z["event"] * rng.integers(1, 3, len(z)), z["time"]) for z in (y, y_valid)]
    options = SUMO | {"learning_rate": 1e-12, "dropout": 0.0, "weight_decay": 0.0, "n_members": 1}
    model = SumoNet(**options).fit(X, causes[0], validation_data=(X_valid, causes[1]))
    assert model.best_valid_[0] == pytest.approx(model.score(X_valid, causes[1]), abs=1e-4)


def test_objectives_that_are_no_likelihoods_have_no_unit():
    X, y = data(scale=1000.0)
    fitted = DeepSurv(**(SMALL | {"learning_rate": 1e-12, "dropout": 0.0})).fit(X, y, validation_data=(X, y))
    rows = fitted._read(X, y)
    own = mean_terms(fitted.stack_.populations[0].network.float(), rows.table, Rows.of([np.arange(120)] * 2))
    np.testing.assert_allclose(fitted.best_valid_, own.numpy(), atol=1e-5)


# ---------------------------------------------------------------------- levels that were never seen


def test_an_unseen_level_has_the_zero_embedding_before_and_after_training():
    X, y = data()
    fitted = SumoNet(**SUMO).fit(X, y)
    fresh = FitPlan(fitted._resolved(96)).build(fitted.stack_.learned, np.array([1, 2]))
    for network in (fresh, fitted.stack_.populations[0].network):
        table = network.encoder.embeddings[0].detach()
        assert (table[:, 0] == 0).all()
        assert (table[:, 2:].abs().sum(2) > 0).all()


def test_validation_data_is_an_outcome_with_or_without_weights():
    """A plain array of times would be followed by events, not by weights."""
    X, y = data(40)
    model = WeibullNet(**SMALL)
    for given in ((X, y["time"], y["event"]), (X,), (X, y, np.ones(40), 1.0), X, "rows"):
        with pytest.raises(ValueError, match="validation_data"):
            model.fit(X, y, validation_data=given)
    for given in ((X, y), [X, y], (X, y, np.ones(40)), (X, check_outcome(y), np.ones(40))):
        model.fit(X, y, validation_data=given)
