"""Which rows, seeds and settings reach which network of a search: on data where the wrong ones give another answer."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.exceptions import NotFittedError

from sumosurv import DeepSurv, NetworkSearch, SumoNet, SumoNetSearch, Surv, check_outcome, datasets
from sumosurv.scores import log_likelihood
from sumosurv.search import executor, fit_folds, rounds
from sumosurv.search.executor import Job, _fits, group_members
from sumosurv.search.selection import SearchRun, choose_size, mixture_scores, network_seed, rank_trials
from sumosurv.search.space import widest_layers


@pytest.fixture(scope="module")
def data():
    return datasets.simulate("weibull", 200, random_state=1)


@pytest.fixture(scope="module")
def parts(data):
    X, y = data.X, data.y
    return (X[:120], y[:120]), (X[120:160], y[120:160]), (X[160:], y[160:])


def search(space, n_trials, estimator=None, **options):
    made = (
        SumoNet(max_epochs=3, covariate_layers=(8,), time_layers=(6,), device="cpu") if estimator is None else estimator
    )
    return SumoNetSearch(made, space=space, n_trials=n_trials, **({"random_state": 0, "mixture": 1} | options))


def networks(fitted):
    """(population, place) of each network of each trial."""
    return fitted._run.networks


def weights(where, place):
    return np.concatenate([p[place].numpy().ravel() for p in where.network.parameters()])


def curves(estimator, X):
    """The curves of the networks that an estimator mixes."""
    d = estimator.predict_distribution(X).base
    return [part.survival([0.2, 0.5]) for part in getattr(d, "components", [d])]


def spied(monkeypatch):
    """The members of each training."""
    calls, real = [], executor.train
    monkeypatch.setattr(executor, "train", lambda *given: calls.append(given[2]) or real(*given))
    return calls


# ---------------------------------------------------------------------- settings and seeds of a trial


def test_each_trial_has_its_own_weight_decay(parts):
    """A decay that leaves nothing of the weights, beside none."""
    fitted = search({"weight_decay": [0.0, 30.0]}, 4).fit(*parts[0], validation_data=parts[1])
    norms = {0.0: [], 30.0: []}
    for trial, ((where, place),) in networks(fitted).items():
        kept = where.single(place)
        assert kept.weight_decay == fitted.cv_results_["params"][trial]["weight_decay"]
        norms[kept.weight_decay].append(np.linalg.norm(weights(where, place)))
    assert max(norms[30.0]) < 0.5 * min(norms[0.0])


def test_each_trial_has_its_own_learning_rate_and_dropout(parts):
    """A rate at which nothing moves; a dropout under which training rows look worse than they are."""
    space = {"learning_rate": [1e-12, 0.02], "dropout": [0.0, 0.9]}
    fitted = search(space, 16).fit(*parts[0], validation_data=parts[1])
    assert {tuple(p.values()) for p in fitted.cv_results_["params"]} == {
        (r, d) for r in (1e-12, 0.02) for d in (0.0, 0.9)
    }
    for trial, ((where, place),) in networks(fitted).items():
        given = fitted.cv_results_["params"][trial]
        member, history = where.members[place], np.array(where.history.train)[:, place]
        fresh = where.jobs[0].build(member.parameters, member.seed)
        start = np.concatenate([p[0].detach().numpy().ravel() for p in fresh.parameters()])
        assert np.allclose(weights(where, place), start, atol=1e-6) == (given["learning_rate"] == 1e-12)
        if given["learning_rate"] == 1e-12:  # what varies from epoch to epoch is dropout alone
            assert (np.ptp(history) > 1e-5) == (given["dropout"] == 0.9)


@pytest.mark.parametrize("layout", ["padded", "grouped"])
def test_a_trial_scores_the_same_alone_and_beside_others(parts, layout):
    """Every layer has the dropout of its own trial, whatever that of the first trial beside it."""
    space = {"dropout": [0.0, 0.2, 0.5], "learning_rate": [0.01, 0.02], "covariate_layers": [(8,), (12, 12, 12)]}
    together, alone = (
        search(space, 6, layout=layout, trials_per_round=size).fit(*parts[0], validation_data=parts[1])
        for size in (6, 1)
    )
    assert len({point["dropout"] for point in together.cv_results_["params"]}) > 1
    assert together.cv_results_["params"] == alone.cv_results_["params"]
    np.testing.assert_allclose(together.cv_results_["valid_score"], alone.cv_results_["valid_score"], atol=1e-5)


def test_trials_with_the_same_settings_have_seeds_of_their_own(parts):
    fitted = search({"dropout": [0.1]}, 4).fit(*parts[0], validation_data=parts[1])
    assert len(set(fitted.cv_results_["valid_score"])) == 4
    seeds = [network_seed(5, trial, split) for trial in range(20) for split in range(5)]
    assert len(set(seeds)) == 100
    assert network_seed(5, 3, 1) == network_seed(5, 3, 1) != network_seed(6, 3, 1)


def test_networks_of_a_trial_have_seeds_and_rows_of_their_own(data):
    fitted = search({"dropout": [0.1]}, 1, cv=4).fit(data.X, data.y)
    members = [where.members[place] for where, place in networks(fitted)[0]]
    assert len({member.seed for member in members}) == 4
    assert sorted(np.concatenate([member.valid_rows for member in members])) == list(range(200))
    for member in members:
        assert sorted([*member.train_rows, *member.valid_rows]) == list(range(200))


def test_folds_have_the_share_of_events_of_all_rows():
    rng = np.random.default_rng(0)
    y = Surv.from_arrays(np.arange(120) < 12, rng.weibull(1.5, 120))
    fitted = search({"dropout": [0.1]}, 1, cv=4).fit(rng.normal(size=(120, 2)), y)
    assert [y["event"][member.valid_rows].sum() for member in networks(fitted)[0][0][0].members] == [3, 3, 3, 3]


def test_rows_before_the_start_of_the_clock(data):
    """Nothing happens before the first time: an event there is impossible, and to be censored there says nothing."""
    late = Surv.from_arrays(data.y["event"], data.y["time"] + 3.0)
    fitted = search({"time_origin": ["first"]}, 2).fit(data.X[:150], late[:150])
    early = Surv.from_arrays([True, False], [1.0, 2.0])
    np.testing.assert_array_equal(fitted.trial_log_likelihoods(data.X[:2], early), [[-np.inf, 0.0]] * 2)
    values = fitted.trial_log_likelihoods(data.X[150:], late[150:])
    for place in range(2):
        own = log_likelihood(fitted.trial(place).predict_distribution(data.X[150:]), late[150:])
        np.testing.assert_allclose(values[place], own, atol=1e-4)


def test_what_is_asked_of_a_search_that_was_not_fitted(data):
    unfitted = search({"dropout": [0.1]}, 1)
    for ask in (unfitted.trial_log_likelihoods, unfitted.score):
        with pytest.raises(NotFittedError):
            ask(data.X, data.y)


# ---------------------------------------------------------------------- training again


ODD = SumoNet(max_epochs=20, learning_rate=0.02, dropout=0.0, covariate_layers=(8,), time_layers=(6,), device="cpu")


def only_validation_rows_know():
    """Column b is 1 in validation and test rows alone, where times are forty times shorter."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=240), "b": np.repeat([0.0, 1.0], 120)})
    y = Surv.from_arrays(np.ones(240, bool), rng.weibull(2.0, 240) * np.where(X["b"] == 1, 0.025, 1.0))
    return (X[:120], y[:120]), (X[120:180], y[120:180]), (X[180:], y[180:])


@pytest.mark.parametrize("refit", [True, "cross"])
def test_training_again_uses_all_rows(refit):
    train, valid, test = only_validation_rows_know()
    fitted = search({"weight_decay": [0.1]}, 1, ODD, refit=refit, refit_members=2).fit(*train, validation_data=valid)
    assert fitted.best_estimator_.score(*test) > fitted.best_single_.score(*test) + 0.5


@pytest.mark.parametrize(("refit", "everything"), [(False, False), (True, True), ("cross", True)])
def test_baselines_are_those_of_the_rows_trained_on(parts, refit, everything):
    """Every event after the largest training time is a validation row's."""
    (X, y), (X_late, late) = parts[0], (parts[1][0], parts[1][1].copy())
    late["time"] += y["time"].max()
    made = NetworkSearch(
        DeepSurv(max_epochs=2, covariate_layers=(6,)), space={"dropout": [0.1]}, n_trials=1, refit=refit,
        refit_members=1, mixture=1, random_state=0,
    ).fit(X, y, validation_data=(X_late, late))  # fmt: skip
    fitted, last = made.best_estimator_, late if everything else y
    times = fitted.stack_.populations[0].network.baseline_times[0].numpy() * fitted.time_unit_
    assert times.max() == pytest.approx(last["time"][last["event"]].max(), rel=1e-6)


def test_likelihoods_that_networks_train_on_are_not_computed_anew(parts, monkeypatch):
    """Of a distribution they are asked only where the objective is another one."""
    asked = []
    real = executor._distribution_scores
    monkeypatch.setattr(executor, "_distribution_scores", lambda *given: asked.append(given) or real(*given))
    search({"dropout": [0.1]}, 2).fit(*parts[0], validation_data=parts[1])
    assert asked == []
    NetworkSearch(
        DeepSurv(max_epochs=2), space={"dropout": [0.1]}, n_trials=2, mixture=1, random_state=0
    ).fit(*parts[0], validation_data=parts[1])  # fmt: skip
    assert len(asked) == 2


def test_training_again_goes_to_the_best_epoch_of_each_network(parts, monkeypatch):
    calls = spied(monkeypatch)
    estimator = SumoNet(max_epochs=8, learning_rate=0.1, covariate_layers=(8,), time_layers=(6,), device="cpu")
    fitted = search({"dropout": [0.0, 0.2]}, 4, estimator, refit=True, mixture=3, layout="grouped")
    fitted.fit(*parts[0], validation_data=parts[1])
    again = calls[-1]
    assert len(again) == 3
    best = fitted.cv_results_["best_epoch"][fitted.mixture_]
    assert len(set(best)) > 1
    assert [member.stop_after for member in again] == list(best)
    first = [networks(fitted)[trial][0] for trial in fitted.mixture_]
    assert [member.seed for member in again] == [where.members[place].seed for where, place in first]
    for member in again:
        assert member.valid_rows is None
        np.testing.assert_array_equal(member.train_rows, np.arange(160))


def test_networks_of_a_cross_training_have_seeds_and_held_out_rows_of_their_own(parts, monkeypatch):
    calls = spied(monkeypatch)
    fitted = search({"dropout": [0.1]}, 2, refit="cross", refit_members=6, mixture=2).fit(
        *parts[0], validation_data=parts[1]
    )
    again = calls[-1]
    assert len(again) == 6
    assert len({member.seed for member in again}) == 6
    assert len({tuple(member.valid_rows) for member in again}) == 6
    assert set(np.concatenate([member.train_rows for member in again])) == set(range(160))
    shown = curves(fitted.best_estimator_, parts[2][0])
    assert len({tuple(np.round(curve, 12).ravel()) for curve in shown}) == 6


def test_rounds_are_of_the_size_that_was_asked_for(parts, monkeypatch):
    calls = spied(monkeypatch)
    fitted = search({"dropout": [0.1]}, 5, trials_per_round=2).fit(*parts[0], validation_data=parts[1])
    assert [len(members) for members in calls] == [2, 2, 1]
    assert len(fitted.cv_results_["trial"]) == 5


def test_a_search_never_trains_on_its_validation_rows(parts, monkeypatch):
    calls = spied(monkeypatch)
    search({"dropout": [0.1]}, 2).fit(*parts[0], validation_data=parts[1])
    for member in calls[0]:
        np.testing.assert_array_equal(member.train_rows, np.arange(120))
        np.testing.assert_array_equal(member.valid_rows, np.arange(120, 160))


def test_folds_keep_to_their_own_rows(data):
    """The rows of the second fold are spoilt; the first does not notice, its training again included."""
    X, y = data.X, data.y
    spoilt = Surv.from_arrays(y["event"], 1e3 * y["time"][::-1])
    one = (X[:80], y[:80], (X[80:100], y[80:100]))
    made = [
        fit_folds(
            search({"dropout": [0.0, 0.2]}, 3, refit="cross", refit_members=2, mixture="auto"),
            [one, (X[100:180], other[100:180], (X[180:], other[180:]))],
        )[0]
        for other in (y, spoilt)
    ]
    np.testing.assert_allclose(made[0].cv_results_["valid_score"], made[1].cv_results_["valid_score"], atol=1e-5)
    np.testing.assert_allclose(made[0].predict_median(X[:9]), made[1].predict_median(X[:9]), rtol=1e-4)


# ---------------------------------------------------------------------- mixtures


def test_every_network_of_a_mixture_counts_once_whatever_population_it_is_in(parts):
    """Two trials of one shape, one of another: thirds, and not a half for each shape."""
    train, valid, (X, _) = parts
    fitted = search({"covariate_layers": [(4,), (12,)]}, 3, layout="grouped", mixture=3, random_state=0)
    fitted.fit(*train, validation_data=valid)
    shapes = [tuple(point["covariate_layers"]) for point in fitted.cv_results_["params"]]
    assert sorted(shapes.count(shape) for shape in set(shapes)) == [1, 2]
    times = [0.2, 0.5, 1.0]
    own = [fitted.trial(place).predict_survival_function(X, times) for place in range(3)]
    assert np.abs(own[0] - own[1]).max() > 1e-3
    np.testing.assert_allclose(fitted.predict_survival_function(X, times), np.mean(own, axis=0), atol=1e-9)


# ---------------------------------------------------------------------- halving


def test_halving_trains_the_best_third_longer(parts):
    """Those that go on are the best of searches that train no longer than the rung; scores of all stay known."""

    def fit(epochs, **options):
        made = SumoNet(max_epochs=epochs, covariate_layers=(8,), time_layers=(6,), dropout=0.0, device="cpu")
        return search({"learning_rate": [0.001, 0.02]}, 9, made, **options).fit(*parts[0], validation_data=parts[1])

    fitted = fit(9, method="halving")
    epochs = np.array([len(networks(fitted)[trial][0][0].history.train) for trial in range(9)])
    assert sorted(epochs) == [1, 1, 1, 1, 1, 1, 3, 3, 9]
    first, second = fit(1).cv_results_["valid_score"], fit(3).cv_results_["valid_score"]
    going = np.argsort(-first)[:3]
    assert set(np.flatnonzero(epochs > 1)) == set(going)
    assert epochs.argmax() == going[np.argmax(second[going])]
    np.testing.assert_allclose(fitted.cv_results_["valid_score"][epochs == 1], first[epochs == 1], atol=1e-5)
    np.testing.assert_allclose(fitted.cv_results_["valid_score"][epochs == 3], second[epochs == 3], atol=1e-5)


# ---------------------------------------------------------------------- how many to mix


def values(gaps):
    """Trials such that the mixture of the best two is worse than the best alone by the gaps, row by row."""
    return np.stack([np.zeros(len(gaps)), np.log(2 * np.exp(-np.asarray(gaps)) - 1)])


@pytest.mark.parametrize(("share", "size"), [(0.5, 2), (0.999, 2), (1.001, 1), (2.0, 1)])
def test_size_is_the_largest_within_a_standard_error(share, size):
    spread = 0.3 * np.tile([-1.0, 1.0], 50)
    error = spread.std(ddof=1) / 10
    made = values(share * error + spread)
    scores = mixture_scores(made)
    assert scores[1] - scores[2] == pytest.approx(share * error)
    assert choose_size(made) == size


def test_a_larger_mixture_is_taken_past_one_that_is_too_poor():
    """Of sizes 1, 2, 4 the second is far below the first, the third as good as it."""
    good = np.zeros(50)
    made = np.stack([good, good - 9.0, np.full(50, np.log(1.5)), np.full(50, np.log(1.5 - np.exp(-9.0)))])
    scores = mixture_scores(made)
    assert scores[2] < -0.6 < scores[4] == pytest.approx(0.0, abs=1e-12)
    assert choose_size(made) == 4


def test_trials_that_failed_have_no_rank():
    assert rank_trials({3: -1.0, 1: -np.inf, 0: 2.0, 2: -1.0, 4: np.nan}) == [0, 2, 3]
    with pytest.raises(ValueError, match="No trial had a finite likelihood"):
        rank_trials({0: -np.inf})


# ---------------------------------------------------------------------- stored studies


def test_a_stored_study_is_of_its_outcome_too(parts, tmp_path):
    pytest.importorskip("optuna", reason="stored studies need Optuna (the extra 'search')")
    (X, y), valid, _ = parts
    space = {"learning_rate": stats.loguniform(0.005, 0.03)}
    stored = {"storage": tmp_path / "study.db", "trials_per_round": 1}
    search(space, 1, **stored).fit(X, y, validation_data=valid)
    later, seen, late = y.copy(), y.copy(), valid[1].copy()
    later["time"][5] += 0.5
    seen["event"][5] = ~seen["event"][5]
    late["time"][5] += 0.5
    other = (X, later, valid), (X, seen, valid), (X + 1.0, y, valid), (X, y, (valid[0], late)), (X, y, None)
    for rows in other:
        with pytest.raises(ValueError, match="another set of rows"):
            search(space, 2, **stored).fit(*rows)
    again = search(space, 2, **stored).fit(X.copy(), y.copy(), validation_data=valid)
    assert len(again.cv_results_["trial"]) == 2


def test_a_network_is_padded_only_into_one_that_holds_it():
    """Of as many layers or more, each as wide or wider; layers of different widths are no corner of any."""
    widest = {"covariate_layers": (16, 16), "time_layers": (8,)}

    def fits(covariate, mixed=(8,)):
        return _fits(SumoNet(covariate_layers=covariate, time_layers=mixed), widest)

    assert fits((16, 16))
    assert fits((4,))
    assert not fits((16, 16, 16))
    assert not fits((17,))
    assert not fits((16, 8))
    assert not fits((16, 16), (8, 8))
    assert not fits(())


def test_shapes_are_those_of_each_trial_s_network(parts):
    """Made once for trials that differ in rates alone, anew for other widths."""
    job = Job(SumoNet(device="cpu"), *parts[0], None)
    for widths in ((4,), (9, 9)):
        for rate in (0.01, 0.02):
            given = {"covariate_layers": widths, "learning_rate": rate}
            state = job.build(given, 3).state_dict()
            assert dict(job.shapes(given)) == {name: tuple(value.shape) for name, value in state.items()}
    assert job.shapes({"covariate_layers": (4,), "learning_rate": 0.1}) is job.shapes({"covariate_layers": (4,)})


def test_a_trial_with_one_network_that_failed_has_no_score():
    """Its other networks say nothing of it, though the weights it started from have a likelihood too."""
    job = SimpleNamespace(rows=lambda _: SimpleNamespace(outcome=SimpleNamespace(weight=None)))
    splits = [(np.arange(4, 8), np.arange(4)), (np.arange(4), np.arange(4, 8))]
    run = SearchRun(None, job, 0, 0, splits)
    scores = [np.full(4, -1.0), np.full(4, -3.0)]
    for trial, failed in enumerate([[False, False], [False, True], [True, False], [True, True]]):
        made = SimpleNamespace(history=SimpleNamespace(failed=np.array(failed)), scores=scores)
        run.networks[trial] = [(made, 0), (made, 1)]
    run.networks[4] = run.networks[0][:1]  # of one split alone
    assert [run.score(trial) for trial in range(6)] == [-2.0, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf]


@pytest.mark.parametrize("others", [[-0.2] * 8, [-5.0, 0.6]])
def test_rows_with_negligible_weight_do_not_decide_the_size(others):
    """The rows that count favour one trial; the others favour two, or make the standard error large."""
    counted = [0.1] * 4
    made, weight = values([*counted, *others]), np.repeat([1.0, 1e-9], [4, len(others)])
    assert choose_size(values(counted)) == 1
    assert choose_size(made) == 2
    assert choose_size(made, weight) == 1


def test_layers_that_may_be_absent_are_not_padded(parts):
    """A network without hidden layers has no width."""
    estimator = DeepSurv(max_epochs=2, device="cpu")
    assert widest_layers({"covariate_layers": [(4,), [8, 8]]}, estimator) == {"covariate_layers": (8, 8)}
    assert widest_layers({"covariate_layers": [(), (4,)]}, estimator) == {}
    assert widest_layers({"covariate_layers": stats.randint(1, 3)}, estimator) == {}
    assert widest_layers({"dropout": [0.1]}, estimator) == {}
    made = search({"covariate_layers": [(), (4,)]}, 4, estimator).fit(*parts[0], validation_data=parts[1])
    assert {params["covariate_layers"] for params in made.cv_results_["params"]} == {(), (4,)}


def test_members_with_equal_settings_train_together():
    """Settings are compared by value, whichever objects hold them."""
    jobs = [SimpleNamespace(settings=lambda given: DeepSurv(**given), is_recorded=lambda given: False)]

    def groups(*settings):
        members = [SimpleNamespace(job=0, parameters=given) for given in settings]
        return [len(own) for _, own in group_members(members, jobs, {})]

    assert groups(*({"frequencies": int(text)} for text in ("1000", "1000", "7"))) == [2, 1]
    assert groups({"covariate_layers": [4, 4]}, {"covariate_layers": (4, 4)}) == [2]
    encoder = object.__new__(type("Unhashable", (), {"__hash__": None}))
    assert groups({"encoder": encoder}, {"encoder": encoder}, {"encoder": None}) == [2, 1]


@pytest.mark.parametrize("recorded", [True, False])
def test_folds_train_apart_if_their_steps_can_be_recorded(data, recorded):
    X, y = data.X[:40], data.y[:40]
    if not recorded:
        y = Surv.interval(0.9 * y["time"], np.where(y["event"], y["time"], np.inf))
    jobs = [Job(SumoNet(device="cpu", components="networks"), X[i : i + 30], y[i : i + 30], None) for i in (0, 10)]
    members = [SimpleNamespace(job=j, parameters={}) for j in (0, 1, 1)]
    assert [len(own) for _, own in group_members(members, jobs, {})] == ([1, 2] if recorded else [3])
    widths = {"covariate_layers": (64, 64), "time_layers": (32, 32)}
    assert [len(own) for _, own in group_members(members, jobs, widths)] == [3]


def test_the_digest_of_rows_changes_with_everything_that_a_search_reads(data):
    """A stored study is resumed on the same rows only."""
    X, y = data.X[:20], data.y[:20]
    other, weight, group = X.assign(x=X["x"] + 1e-9), np.arange(1.0, 21.0), np.arange(20) // 2
    later = Surv.from_arrays(y["event"], y["time"] + 1e-9)
    flipped = Surv.from_arrays(~y["event"], y["time"])
    given = [
        (X, y, None), (other, y, None), (X.rename(columns={"x": "z"}), y, None), (X, later, None), (X, flipped, None),
        (X, check_outcome(y, sample_weight=weight), None), (X, check_outcome(y, groups=group), None), (X, y, (X, y)),
        (X, y, (other, y)), (X, y, (X, later)), (X, y, (X, y, weight)), (X[::-1], y, None),
    ]  # fmt: skip
    made = [rounds._fingerprint(rows) for rows in given]
    assert len(set(made)) == len(given)
    assert rounds._fingerprint((X.copy(), y.copy(), None)) == made[0]
    array = X.to_numpy()
    assert rounds._fingerprint((array, y, None)) == rounds._fingerprint((array.copy(), y, None))
    assert rounds._fingerprint((array.reshape(20, 1, 1), y, None)) == rounds._fingerprint((array, y, None))


@pytest.mark.parametrize(
    ("options", "capacity", "expected"),
    [({}, 1, 50), ({"n_trials": 200, "storage": "s"}, 1, 100), ({"n_trials": 200, "storage": "s"}, 4, 50),
     ({"n_trials": 200, "method": "tpe"}, 1, 32), ({"trials_per_round": 7}, 3, 7)],
)  # fmt: skip
def test_trials_per_round(options, capacity, expected):
    settings = SimpleNamespace(
        **{"n_trials": 50, "method": "random", "storage": None, "trials_per_round": None} | options
    )
    assert rounds._trials_per_round(settings, capacity) == expected
