"""Components of SumoNet, stacked by the likelihood of held-out rows."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize

from sumosurv import LogNormalNet, ModelFileError, SumoNet, Surv, load
from sumosurv.estimators import sumonet
from sumosurv.estimators.parametric import ProportionalHazardsNet
from sumosurv.fitting import plan
from sumosurv.fitting.plan import stacking_weights
from sumosurv.outcome import check_outcome
from sumosurv.scores import log_likelihood
from sumosurv.training import TrainingError
from sumosurv.training.batches import fold_rows

COMPONENTS = ["network", "small_network", "proportional_hazards", "lognormal"]


def rows(n=120, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns))
    time, stop = np.exp(0.6 * X[:, 0]) * rng.weibull(1.5, n), rng.uniform(0.3, 3.0, n)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(columns)])
    return frame, Surv.from_arrays(time <= stop, np.minimum(time, stop))


X, Y = rows()


def curves(model, population, rows=X):
    """The distribution of rows under one component."""
    return population.distribution(model.preprocessor_.transform(rows))


@pytest.fixture(scope="module")
def model():
    return SumoNet(max_epochs=4, random_state=0).fit(X, Y)


# ------------------------------------------------------------------ weights


def test_weights_are_those_of_the_most_likely_mixture():
    rng = np.random.default_rng(1)
    logs = rng.normal(size=(60, 3)) + np.array([0.0, 0.2, -0.5])
    logs[7] = np.nan
    known = np.delete(logs, 7, axis=0)

    def objective(free):
        w = np.exp(np.append(free, 0.0))
        w /= w.sum()
        return -(np.log(np.exp(known) @ w).sum() + 2 / 3 * np.log(w).sum())

    free = optimize.minimize(objective, np.zeros(2), method="BFGS", options={"gtol": 1e-9}).x
    expected = np.exp(np.append(free, 0.0)) / np.exp(np.append(free, 0.0)).sum()
    np.testing.assert_allclose(stacking_weights(logs), expected, atol=2e-5)


def test_rows_that_count_twice_are_two_rows():
    logs = np.random.default_rng(2).normal(size=(30, 2))
    count = np.arange(30) % 3
    np.testing.assert_allclose(
        stacking_weights(logs, count.astype(float)), stacking_weights(np.repeat(logs, count, axis=0)), atol=1e-6
    )


def test_a_kind_that_makes_a_row_impossible_is_not_the_whole_mixture():
    logs = np.zeros((50, 2))
    logs[0, 0] = -np.inf
    weights = stacking_weights(logs)
    assert 0 < weights[0] < weights[1]
    assert stacking_weights(np.full((4, 2), np.nan)).tolist() == [0.5, 0.5]


# ------------------------------------------------------------------ what a default fit is


def test_members_are_told(model):
    told = model.members_
    assert list(told["component"].unique()) == COMPONENTS
    assert told["component"].value_counts().to_dict() == {
        "network": 15,
        "small_network": 5,
        "proportional_hazards": 5,
        "lognormal": 5,
    }
    assert told["weight"].sum() == pytest.approx(1.0)
    assert model.n_members_ == (told["weight"] > 0).sum()
    assert told.groupby("component")["best_epoch"].nunique().max() == 1  # one epoch for all networks of a kind
    assert told["parameters"].groupby(told["component"]).first()["network"] > 5000
    assert sorted(model.history_["component"].unique()) == sorted(COMPONENTS)
    assert model.history_["member"].nunique() == len(told)
    for table in (told, model.history_, model.components_):
        assert table.index.equals(pd.RangeIndex(len(table)))


@pytest.mark.parametrize(("n", "components"), [(999, COMPONENTS), (1000, ["network", "proportional_hazards"])])
def test_a_thousand_rows_need_no_small_networks(n, components):
    """A fifth is held out: 799 and 800 training rows."""
    made = SumoNet(max_epochs=1, random_state=0).fit(*rows(n))
    assert list(made.members_["component"].unique()) == components


def test_prediction_is_the_weighted_mixture(model):
    times = [0.2, 0.9, 1.5]
    parts = [curves(model, part).survival(times) for part in model.stack_.populations]
    weights = model.components_["weight"]
    np.testing.assert_allclose(
        model.predict_survival_function(X, times), np.tensordot(weights[weights > 0], parts, 1), atol=1e-12
    )


def test_past_the_last_time_regressions_go_on_as_the_networks_do(model):
    parts = {part.name: part for part in model.stack_.populations}
    growth = float(parts["network"].network.growth) / model.time_unit_
    last = model.last_time_
    own = curves(model, replace(parts["lognormal"], growth=None))
    part = model.predict_distribution(X).components[list(parts).index("lognormal")]
    np.testing.assert_allclose(part.hazard(2 * last), own.hazard(last) * np.exp(growth * last), rtol=1e-9)
    np.testing.assert_allclose(part.survival(0.7 * last), own.survival(0.7 * last), rtol=1e-12)


def test_held_out_rows_decide_the_weights(monkeypatch):
    """Given validation rows: told likelihoods and weights are those of the fitted parts on these rows."""
    inside = Y["time"] < 1.9
    train = np.r_[np.argmax(Y["time"]), np.flatnonzero(inside)[:80]]
    valid = np.flatnonzero(inside)[80:]
    made = SumoNet(max_epochs=3, random_state=1).fit(X.iloc[train], Y[train], validation_data=(X.iloc[valid], Y[valid]))
    logs = {part.name: log_likelihood(curves(made, part, X.iloc[valid]), Y[valid]) for part in made.stack_.populations}
    told = made.members_.groupby("component")["held_out"].first()
    for name, values in logs.items():
        assert told[name] == pytest.approx(values.mean(), abs=1e-4)
    np.testing.assert_allclose(made.components_["held_out"], told[made.components_["component"]], rtol=1e-12)
    expected = stacking_weights(np.stack(list(logs.values()), axis=1))
    np.testing.assert_allclose(made.stack_.weights, expected, atol=1e-3)


def test_rows_are_scored_by_networks_that_did_not_train_on_them(monkeypatch):
    seen = {}
    held_out = plan._held_out_likelihood

    def spy(network, prepared, members, failed):
        seen[len(seen)] = members
        return held_out(network, prepared, members, failed)

    monkeypatch.setattr(plan, "_held_out_likelihood", spy)
    SumoNet(max_epochs=1, random_state=0).fit(X, Y)
    assert [len(members) for members in seen.values()] == [15, 5, 5, 5]
    for members in seen.values():
        for member in members:
            assert not np.intersect1d(member.train_rows, member.valid_rows).size
            assert abs(Y["event"][member.valid_rows].mean() - Y["event"].mean()) < 0.05
        for first in range(0, len(members), 5):  # each row once in each repeat of the folds
            assert sorted(np.concatenate([m.valid_rows for m in members[first : first + 5]])) == list(range(len(X)))
    assert all(np.array_equal(seen[0][j].valid_rows, seen[1][j].valid_rows) for j in range(5))
    assert len({member.seed for members in seen.values() for member in members}) == 30


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        ("networks", ["network"]),
        (("network",), ["network"]),
        (["lognormal", "network"], ["network", "lognormal"]),
        (("proportional_hazards",), ["proportional_hazards"]),
    ],
)
def test_components_are_those_that_were_named(components, expected):
    made = SumoNet(components=components, n_members=2, max_epochs=1, random_state=0).fit(X, Y)
    assert list(made.components_["component"]) == expected
    assert made.components_["weight"].sum() == pytest.approx(1.0)
    assert made.components_["members"].tolist() == [2] * len(expected)


def test_settings_describe_the_networks_and_leave_stacking_on():
    given = {"n_members": 2, "covariate_layers": (8,), "time_layers": (4,), "frequencies": 0, "dropout": 0.2}
    made = SumoNet(max_epochs=1, random_state=0, learning_rate=0.01, weight_decay=0.2, **given).fit(X, Y)
    assert list(made.components_["component"]) == COMPONENTS
    small, other = SumoNet(**given)._components(100), SumoNet()._components(100)
    assert small["network"].get_params().items() >= given.items()
    for name in COMPONENTS[1:]:
        mine, theirs = small[name].get_params(), other[name].get_params()
        assert mine | {"n_members": 5} == theirs


def test_an_encoder_is_for_networks_alone():
    encoder = torch.nn.Linear(2, 3)
    made = SumoNet(encoder=encoder, n_members=2, max_epochs=1, random_state=0).fit(X[["x0", "x1"]], Y)
    assert list(made.components_["component"]) == ["network"]
    with pytest.raises(ValueError, match=r"encoder.*components='networks'"):
        SumoNet(encoder=encoder, components=("network", "lognormal")).fit(X, Y)


def test_same_seed_same_model(model):
    again = SumoNet(max_epochs=4, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(again.predict_median(X), model.predict_median(X))
    other = SumoNet(max_epochs=4, random_state=1).fit(X, Y)
    assert not np.array_equal(other.predict_median(X), model.predict_median(X))


def test_few_rows_have_equal_weights():
    made = SumoNet(max_epochs=2, random_state=0).fit(X[:8], Y[:8])
    np.testing.assert_allclose(made.stack_.weights, 0.25)
    assert made.members_["held_out"].isna().all()


@pytest.mark.parametrize("kind", ["entry", "intervals", "causes", "weights", "groups"])
def test_every_outcome_is_learned_from(kind):
    rng = np.random.default_rng(3)
    n, more = len(X), {}
    y = {
        "entry": Surv.from_arrays(Y["event"], Y["time"], 0.5 * Y["time"] * (rng.random(n) < 0.5)),
        "intervals": Surv.interval(0.9 * Y["time"], np.where(Y["event"], 1.1 * Y["time"], np.inf)),
        "causes": Surv.from_arrays(np.where(Y["event"], rng.integers(1, 3, n), 0), Y["time"]),
    }.get(kind, Y)
    if kind == "weights":
        more = {"sample_weight": rng.integers(1, 4, n)}
    if kind == "groups":
        more = {"groups": np.arange(n) // 2}
    made = SumoNet(max_epochs=3, random_state=0).fit(X, y, **more)
    assert np.isfinite(made.score(X, y))
    assert made.n_causes_ == (2 if kind == "causes" else 1)


def test_folds_keep_subjects_together_and_shares_of_events():
    outcome = check_outcome(Y, groups=np.arange(len(X)) // 3)
    folds = fold_rows(outcome, seed=4, n_folds=5)
    assert sorted(np.concatenate([valid for _, valid in folds])) == list(range(len(X)))
    for train, valid in folds:
        assert not set(train // 3) & set(valid // 3)
    rare = check_outcome(Surv.from_arrays(np.arange(50) < 3, np.ones(50)))  # too few events to stratify
    assert [len(valid) for _, valid in fold_rows(rare, 0, 5)] == [10] * 5


def test_of_censored_rows_alone_medians_and_means_stay_sensible(tmp_path):
    y = Surv.from_arrays(np.zeros(len(X), dtype=bool), Y["time"])
    with pytest.warns(UserWarning, match="All 120 rows are censored"):
        made = SumoNet(max_epochs=10, n_members=4, random_state=0).fit(X, y)
    rate = 0.5 / Y["time"].sum()
    assert made.stack_.minimum_hazard == pytest.approx(rate)
    last = made.last_time_
    hazard = made.predict_hazard(X, [1.5 * last, 4.0 * last])
    assert (hazard >= rate * (1 - 1e-9)).all()
    np.testing.assert_allclose(hazard[:, 1], hazard[:, 0], rtol=1e-6)  # constant: no event says that it grows
    assert (made.predict_mean(X) <= last + 1 / rate).all()
    assert (made.predict_survival_function(X, [last]) > 0.8).all()
    made.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict_mean(X), made.predict_mean(X))
    assert SumoNet(max_epochs=1, random_state=0).fit(X, Y).stack_.minimum_hazard == 0


# ------------------------------------------------------------------ a fit that does not go to its end


def test_ctrl_c_keeps_the_kinds_that_were_trained():
    heard = []

    def stop(epoch):
        heard.append(epoch.component)
        if epoch.component == "proportional_hazards":
            raise KeyboardInterrupt

    made = SumoNet(max_epochs=2, random_state=0, verbose=stop)
    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        made.fit(X, Y)
    assert heard == ["network"] * 2 + ["small_network"] * 2 + ["proportional_hazards"]
    assert made.interrupted_
    assert set(made.members_["component"]) == {"network", "small_network", "proportional_hazards"}
    assert np.isfinite(made.predict_median(X)).all()


def test_ctrl_c_before_the_first_epoch_of_a_later_kind_is_not_swallowed(monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(LogNormalNet, "_build_network", stop)
    made = SumoNet(max_epochs=1, random_state=0)
    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        made.fit(X, Y)
    assert made.interrupted_
    assert list(made.components_["component"]) == COMPONENTS[:3]


@pytest.mark.parametrize("fraction", [0.0, 0.02, 0.5])
def test_any_share_of_rows_can_be_held_out(fraction):
    made = SumoNet(max_epochs=1, random_state=0, validation_fraction=fraction).fit(X[:30], Y[:30])
    assert len(made.members_) == 30
    assert np.isfinite(made.predict_median(X)).all()


def test_a_kind_that_cannot_be_trained_is_left_out(monkeypatch):
    def fail(*arguments):
        raise TrainingError("no finite likelihood")

    monkeypatch.setattr(LogNormalNet, "_build_network", fail)
    with pytest.warns(UserWarning, match=r"1 of 4 components .* likelihood"):
        made = SumoNet(max_epochs=1, random_state=0).fit(X, Y)
    assert list(made.components_["component"]) == COMPONENTS[:3]
    monkeypatch.setattr(SumoNet, "_build_network", fail)
    monkeypatch.setattr(ProportionalHazardsNet, "_build_network", fail)
    with pytest.raises(TrainingError):
        SumoNet(max_epochs=1, random_state=0).fit(X, Y)


# ------------------------------------------------------------------ model files


def test_a_file_keeps_every_kind(model, tmp_path):
    model.save(tmp_path / "m")
    read = load(tmp_path / "m")
    np.testing.assert_array_equal(read.predict_median(X), model.predict_median(X))
    np.testing.assert_array_equal(read.stack_.weights, model.stack_.weights)
    assert read.score(X, Y) == model.score(X, Y)


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts[0].update(weight=0.9),
        lambda parts: parts[0].update(weight=-1.0),
        lambda parts: parts[0].update(name="large"),
        lambda parts: parts[1].update(name="network"),
        lambda parts: parts[0].update(n_members=3),
        lambda parts: parts[0].update(start=[]),
        lambda parts: parts.clear(),
    ],
)
def test_a_file_whose_kinds_do_not_fit_is_refused(model, tmp_path, monkeypatch, change):
    state = SumoNet._state

    def forged(self):
        fitted, tensors = state(self)
        change(fitted["components"])
        return fitted, tensors

    monkeypatch.setattr(SumoNet, "_state", forged)
    model.save(tmp_path / "m")
    with pytest.raises(ModelFileError):
        load(tmp_path / "m")


# ------------------------------------------------------------------ wide tables


def test_of_a_wide_table_networks_read_principal_components(tmp_path):
    wide, y = rows(60, 90)
    made = SumoNet(max_epochs=2, random_state=0).fit(wide, y)
    columns = made.preprocessor_
    assert columns.projection.shape == (90, 59)  # columns are centred: one direction less than rows
    numbers, _ = columns.table(wide)
    components = numbers @ columns.projection
    np.testing.assert_allclose(made.preprocessor_.transform(wide).numeric.numpy(), components, rtol=1e-4, atol=1e-5)
    products = components.T @ components / len(wide)
    sizes = np.linalg.svd(numbers, compute_uv=False)
    np.testing.assert_allclose(products, np.diag((sizes[:59] / sizes[0]) ** 2), atol=1e-10)
    made.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(wide), made.predict(wide))


def test_other_tables_are_read_as_they_are():
    for table in (rows(400, 90), rows(40, 30)):
        made = SumoNet(max_epochs=1, random_state=0).fit(*table)
        assert made.preprocessor_.projection is None


def test_where_causes_compete_regressions_go_on_too(model):
    """Past the last time all hazards grow by one factor: means are finite, and shares of causes stay as they are."""
    cause = np.where(Y["event"], 1 + (np.arange(len(Y)) % 3 == 0), 0)
    made = SumoNet(max_epochs=3, n_members=4, random_state=0).fit(X, Surv.from_arrays(cause, Y["time"]))
    last = made.last_time_
    parts = {part.name: part for part in made.stack_.populations}
    part = made.predict_distribution(X).components[list(parts).index("lognormal")]
    own = curves(made, replace(parts["lognormal"], growth=None))
    factor = np.exp(parts["lognormal"].growth * 0.5)
    np.testing.assert_allclose(
        part.cause_specific_hazard(1.5 * last), factor * own.cause_specific_hazard(last), rtol=1e-9
    )
    assert np.isfinite(made.predict_mean(X)).all()
    assert np.isinf(own.mean()).any() or own.mean().max() > part.mean().max()


def test_large_tables_have_less_dropout(monkeypatch):
    assert SumoNet()._resolved(99_999).dropout == 0.5
    assert SumoNet()._resolved(100_000).dropout == 0.1
    assert SumoNet(dropout=0.3)._components_on_disk(100_000)["network"].dropout == 0.3
    monkeypatch.setattr(sumonet, "_MANY_FOR_DROPOUT", 90)  # of 120 rows 96 are trained on
    made = SumoNet(max_epochs=1, random_state=0).fit(X, Y)
    rates = {part.name: float(part.network.encoder.dropouts[0].rates[0]) for part in made.stack_.populations[:3]}
    assert rates == pytest.approx({"network": 0.1, "small_network": 0.5, "proportional_hazards": 0.5})


@pytest.mark.parametrize("n", [4, 50, 300, 799, 800, 2_999, 3_000, 5_624, 5_626, 19_999, 20_000, 200_000])
def test_settings_follow_the_rules_of_the_docstring(n):
    """Components, numbers of networks, epochs and dropout by the number of training rows."""
    found = SumoNet()._components(n)
    assert list(found) == (COMPONENTS if n < 800 else ["network", "proportional_hazards"])
    batch = min(n, 2 ** round(math.log2(4 * math.sqrt(n))))
    steps = math.ceil(n / batch)
    epochs = min(45, round(0.6 * math.sqrt(n)))
    network, companions = found.pop("network"), found.values()
    members = 15 if n < 3_000 else 10 if n < 20_000 else 6
    assert (network.n_members, network.dropout) == (members, 0.5 if n < 100_000 else 0.1)
    assert network.max_epochs == max(epochs, math.ceil(75 / steps))
    assert (network.learning_rate, network.weight_decay) == (0.02, 0.1)
    for other in companions:
        assert (other.n_members, other.dropout, other.learning_rate, other.weight_decay) == (5, 0.5, 0.01, 1.0)
        assert other.max_epochs == max(min(epochs, round(800 / steps)), math.ceil(150 / steps))
    if n < 800:
        small, lognormal = found["small_network"], found["lognormal"]
        assert (small.covariate_layers, small.time_layers, small.frequencies) == ((16,), (16,), 0)
        assert (lognormal.covariate_layers, lognormal.frequencies) == ((), 0)
    alone = SumoNet(components="networks")._components(n)
    assert [part.max_epochs for part in alone.values()] == [80]
    (on_disk,) = SumoNet()._components_on_disk(n).values()
    assert (on_disk.n_members, on_disk.max_epochs) == (4, min(45, round(2e7 / n)))


def test_given_settings_hold_for_all_components():
    given = {"n_members": 3, "max_epochs": 7, "dropout": 0.25, "batch_size": 10, "patience": 4, "refit": True}
    for n in (300, 1_000):
        network, *others = SumoNet(**given)._components(n).values()
        assert {name: getattr(network, name) for name in given} == given
        for other in others:  # their dropout is their own
            assert {name: getattr(other, name) for name in given} == given | {"dropout": 0.5}
    for given, expected in (("network", 1), ("networks", 1), ("auto", 4)):
        names = SumoNet(components=[given] if given == "network" else given)._components(300)
        assert len(names) == expected
    assert list(SumoNet(components=["lognormal", "network"])._components(5_000)) == ["network", "lognormal"]
