"""Searches: what is chosen, on which rows, and that it predicts what it says."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sumosurv import (
    CoxCC,
    CoxPH,
    CoxTime,
    DeepHit,
    DeepSurv,
    GompertzNet,
    LogLogisticNet,
    LogNormalNet,
    NetworkSearch,
    Soden,
    SumoNet,
    SumoNetSearch,
    Surv,
    SurvivalMixture,
    SurvNode,
    WeibullNet,
    datasets,
    load,
)
from sumosurv.scores import log_likelihood
from sumosurv.search import fit_folds, paper_space, recipe_space
from sumosurv.search.selection import mixture_scores
from sumosurv.search.space import decode, default_space, draw

SPACE = {
    "covariate_layers": [(8,), (16, 16)],
    "time_layers": [(8,), (16, 16)],
    "dropout": [0.0, 0.3],
    "learning_rate": stats.loguniform(0.005, 0.03),
}
OTHERS = [
    WeibullNet(),
    LogNormalNet(),
    LogLogisticNet(),
    GompertzNet(),
    DeepHit(n_cuts=5),
    DeepSurv(),
    CoxCC(),
    CoxTime(time_layers=(8,)),
    Soden(hazard_layers=(8,), steps=4),
    SurvNode(hazard_layers=(8,), steps=4),
]


@pytest.fixture(scope="module")
def data():
    return datasets.simulate("weibull", 360, random_state=1)


@pytest.fixture(scope="module")
def parts(data):
    X, y = data.X, data.y
    return (X[:200], y[:200]), (X[200:280], y[200:280]), (X[280:], y[280:])


def quick(**options):
    given = {"space": SPACE, "n_trials": 6, "random_state": 0}
    return SumoNetSearch(SumoNet(max_epochs=4, device="cpu"), **(given | options))


@pytest.fixture(scope="module")
def fitted(parts):
    train, valid, _ = parts
    return quick().fit(*train, validation_data=valid)


@pytest.mark.parametrize("layout", ["padded", "grouped"])
def test_scores_are_those_of_the_estimators(parts, layout):
    """A trial's validation score is the mean log-likelihood of its own estimator on the validation rows."""
    train, valid, _ = parts
    search = quick(layout=layout).fit(*train, validation_data=valid)
    scores = search.cv_results_["valid_score"]
    assert scores.shape == (6,)
    for place in range(6):
        trial = search.trial(place)
        assert trial.score(*valid) == pytest.approx(scores[place], abs=1e-5)
        for name, value in search.cv_results_["params"][place].items():
            assert getattr(trial, name) == value
    assert search.best_index_ == int(np.argmax(scores))
    assert search.best_params_ == search.cv_results_["params"][search.best_index_]
    assert search.best_single_.score(*valid) == pytest.approx(scores.max(), abs=1e-5)


@pytest.mark.parametrize(("name", "values"), [("dropout", [0.0, 0.6]), ("time_origin", ["zero", "first"])])
def test_a_trial_depends_on_its_own_settings_alone(parts, name, values):
    train, valid, _ = parts
    mixed, *pure = (
        quick(space={name: some}, n_trials=4).fit(*train, validation_data=valid).cv_results_
        for some in (values, *([value] for value in values))
    )
    own = [values.index(params[name]) for params in mixed["params"]]
    assert set(own) == {0, 1}
    expected = [pure[which]["valid_score"][trial] for trial, which in enumerate(own)]
    np.testing.assert_allclose(mixed["valid_score"], expected, atol=1e-5)


def test_the_mixture_is_that_of_the_best_trials(fitted, parts):
    valid, test = parts[1], parts[2]
    order = np.argsort(-fitted.cv_results_["valid_score"])
    size = len(fitted.mixture_)
    assert fitted.mixture_ == list(order[:size])
    values = np.stack([log_likelihood(fitted.trial(i).predict_distribution(test[0]), test[1]) for i in fitted.mixture_])
    expected = np.logaddexp.reduce(values, axis=0) - np.log(size)
    np.testing.assert_allclose(log_likelihood(fitted.predict_distribution(test[0]), test[1]), expected, atol=1e-6)
    assert fitted.mixture_score_ == pytest.approx(fitted.score(*valid), abs=1e-5)


def test_trial_log_likelihoods_are_those_of_each_trial(fitted, parts):
    X, y = parts[2]
    table = fitted.trial_log_likelihoods(X, y)
    for place in range(6):
        own = log_likelihood(fitted.trial(place).predict_distribution(X), y)
        np.testing.assert_allclose(table[place], own, atol=1e-4)


def test_the_same_seed_gives_the_same_search(fitted, parts):
    train, valid, _ = parts
    again = quick().fit(*train, validation_data=valid)
    np.testing.assert_array_equal(again.cv_results_["valid_score"], fitted.cv_results_["valid_score"])
    other = quick(random_state=1).fit(*train, validation_data=valid)
    assert not np.array_equal(other.cv_results_["valid_score"], fitted.cv_results_["valid_score"])


def test_folds_side_by_side_are_folds_one_by_one(data):
    """Five folds in one population give what each fold gives alone; no fold sees another's rows."""
    X, y = data.X, data.y
    folds = [(X[i : i + 200], y[i : i + 200], (X[i + 200 : i + 260], y[i + 200 : i + 260])) for i in (0, 50, 100)]
    search = quick(layout="padded")
    together = fit_folds(search, folds)
    for made, (X_train, y_train, valid) in zip(together, folds):
        alone = clone(search).fit(X_train, y_train, validation_data=valid)
        np.testing.assert_allclose(
            made.cv_results_["valid_score"], alone.cv_results_["valid_score"], rtol=1e-4, atol=1e-4
        )
        assert made.mixture_ == alone.mixture_


# the controls that CoxCC draws depend on the number of rows in the population's table
@pytest.mark.usefixtures("coarse_solutions")
@pytest.mark.parametrize("estimator", [e for e in OTHERS if not isinstance(e, CoxCC)], ids=lambda e: type(e).__name__)
def test_folds_of_every_method_have_their_own_scale_of_time(data, estimator):
    """What is learned from a fold's outcome, such as the rounding of its times, is that fold's own in a population."""
    X, time = data.X, np.ceil(20 * data.y["time"])
    y = Surv.from_arrays(data.y["event"], time)
    order = np.argsort(time)
    late = np.unique(np.concatenate([order[::3], order[-60:]]))  # another last time and another centre
    early = np.unique(np.concatenate([order[1::3], order[:60]]))
    folds = []
    for rows in (early, late):
        train, valid = rows[:140], rows[140:]
        folds.append((X.iloc[train], y[train], (X.iloc[valid], y[valid])))
    small = clone(estimator).set_params(max_epochs=2, frequencies=0, device="cpu")
    search = NetworkSearch(small, space={"dropout": [0.0, 0.2]}, n_trials=2, random_state=0, layout="padded")
    for made, (X_train, y_train, valid) in zip(fit_folds(search, folds), folds):
        alone = clone(search).fit(X_train, y_train, validation_data=valid)
        np.testing.assert_allclose(
            made.cv_results_["valid_score"], alone.cv_results_["valid_score"], rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(made.score(*valid), alone.score(*valid), atol=1e-4)


def test_cross_validation_without_validation_rows(parts):
    train, _, test = parts
    search = quick(cv=3, n_trials=3).fit(*train)
    single = search.best_single_
    members = getattr(single, "n_members_", 0) or sum(part.n_members_ for part in single.estimators_)
    assert members == 3  # a network for each fold
    assert np.isfinite(search.score(*test))
    assert np.isfinite(quick(n_trials=3).fit(*train).score(*test))  # one share held out


@pytest.mark.parametrize("estimator", OTHERS, ids=lambda e: type(e).__name__)
def test_every_network_method_can_be_searched(parts, estimator, tmp_path):
    train, valid, test = parts
    estimator.set_params(max_epochs=2, device="cpu")
    space = {"covariate_layers": [(8,), (8, 8)], "dropout": [0.0, 0.2]}
    search = NetworkSearch(
        estimator, space=space, n_trials=3, mixture=2, refit="cross", refit_members=3, random_state=0, layout="padded"
    ).fit(*train, validation_data=valid)
    # networks that solve equations train with coarser steps than they predict with
    assert search.best_single_.score(*valid) == pytest.approx(search.best_score_, abs=2e-4)
    survival = search.predict_survival_function(test[0], np.linspace(0, 2, 5))
    assert (np.diff(survival, axis=1) <= 1e-12).all()
    assert (survival[:, 0] == 1).all()
    assert "dropout" in search.best_params_
    search.save(tmp_path / "search.sumo")
    again = load(tmp_path / "search.sumo").predict_survival_function(test[0], np.linspace(0, 2, 5))
    np.testing.assert_array_equal(again, survival)


def test_a_saved_search_predicts_the_same(fitted, parts, tmp_path):
    X, _ = parts[2]
    fitted.save(tmp_path / "search.sumo")
    np.testing.assert_array_equal(
        load(tmp_path / "search.sumo").predict_survival_function(X, [0.5, 1.0]),
        fitted.predict_survival_function(X, [0.5, 1.0]),
    )


def test_rounded_times_are_scored_as_by_the_estimator_it_found(data, tmp_path):
    y = Surv.from_arrays(data.y["event"], np.ceil(10 * data.y["time"]) / 10)
    search = SumoNetSearch(SumoNet(max_epochs=2, resolution=0.1), space={"dropout": [0.1]}, n_trials=1, random_state=0)
    search.fit(data.X, y).save(tmp_path / "search.sumo")
    expected = search.best_estimator_.score(data.X, y)
    assert expected != pytest.approx(log_likelihood(search.predict_distribution(data.X), y).mean(), abs=1e-4)
    for model in (search, load(tmp_path / "search.sumo"), SurvivalMixture.of([search])):
        assert model.score(data.X, y) == pytest.approx(expected, rel=1e-12)


def test_a_padded_mixture_is_saved_with_its_shapes(parts, tmp_path):
    train, valid, test = parts
    search = quick(layout="padded", mixture=6).fit(*train, validation_data=valid)
    assert search.best_estimator_.stack_.populations[0].network.mixed.active.numel()
    search.save(tmp_path / "padded.sumo")
    np.testing.assert_array_equal(
        load(tmp_path / "padded.sumo").predict_density(test[0], [0.5, 1.0]), search.predict_density(test[0], [0.5, 1.0])
    )


def test_a_padded_population_of_one_shape_is_saved(parts, tmp_path):
    """Groups by frequencies: one of them may hold a single shape, and is padded all the same."""
    train, valid, test = parts
    space = {"covariate_layers": [(8,), (8, 8)], "frequencies": [0, 2]}
    search = quick(space=space, layout="padded", n_trials=4, mixture=4).fit(*train, validation_data=valid)
    search.save(tmp_path / "mixture.sumo")
    np.testing.assert_array_equal(
        load(tmp_path / "mixture.sumo").predict_median(test[0]), search.predict_median(test[0])
    )


def test_layers_may_be_lists(parts):
    search = quick(space={"covariate_layers": [[8], [8, 8]]}, n_trials=2).fit(*parts[0], validation_data=parts[1])
    assert search.best_params_["covariate_layers"] in ((8,), (8, 8))


def test_one_validation_row_is_enough(parts):
    X, y = parts[1]
    assert np.isfinite(quick().fit(*parts[0], validation_data=(X[:1], y[:1])).mixture_score_)


def test_results_as_a_table(fitted):
    table = pd.DataFrame(fitted.cv_results_)
    assert list(table["rank_valid_score"].sort_values()) == [1, 2, 3, 4, 5, 6]
    assert set(table.columns) >= {"params", "valid_score", "param_dropout", "best_epoch"}


# ---------------------------------------------------------------------- how many to mix


def test_mixture_scores_by_hand():
    values = np.log(np.array([[0.5, 0.1], [0.3, 0.3]]))
    scores = mixture_scores(values)
    assert scores[1] == pytest.approx(values[0].mean())
    assert scores[2] == pytest.approx(np.log([0.4, 0.2]).mean())


# ---------------------------------------------------------------------- spaces


def test_the_papers_space(data):
    space = paper_space(SumoNet(), data.y)
    assert sorted({len(layers) for layers in space["covariate_layers"]}) == [1, 2, 4, 5]
    assert sorted({layers[0] for layers in space["time_layers"]}) == [8, 16, 32]
    assert space["batch_size"] == [5, 10, 25, 50, 100, 250]
    assert space["dropout"] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert space["weight_decay"] == [0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0]
    large = paper_space(SumoNet(), np.repeat(data.y, 400))
    assert large["batch_size"] == [1000, 2500, 5000]
    assert large["covariate_layers"] == [(width,) * depth for depth in (4, 6, 8) for width in (128, 256, 512)]
    assert large["time_layers"] == [(width,) * depth for depth in (1, 2, 4) for width in (8, 16, 32, 64)]
    assert large["dropout"].support() == (0.0, 0.7)
    assert large["weight_decay"] == space["weight_decay"]
    assert "time_layers" not in paper_space(WeibullNet(), data.y)


def test_the_space_around_the_defaults(data):
    space = recipe_space(SumoNet(), data.y)
    assert space["covariate_layers"] == [(width,) * depth for depth in (1, 2, 3) for width in (32, 64, 96)]
    assert space["time_layers"] == [(width,) * depth for depth in (1, 2, 3) for width in (16, 32)]
    assert space["dropout"].support() == pytest.approx((0.3, 0.65))
    assert space["weight_decay"].support() == pytest.approx((0.02, 0.5))
    assert space["learning_rate"].support() == pytest.approx((0.006, 0.03))
    assert space["frequencies"] == [4, 12]
    assert "alpha" not in space
    assert recipe_space(DeepHit(), data.y)["alpha"] == [0.2, 0.6, 1.0]


def test_the_start_of_the_clock_is_searched_where_many_share_the_first_time(data):
    assert "time_origin" not in recipe_space(SumoNet(), data.y)
    late = data.y.copy()
    late["time"] = np.ceil(late["time"] * 5) + 3
    assert recipe_space(SumoNet(), late)["time_origin"] == ["zero", "first"]


def test_draws_lie_in_the_space():
    points = [decode(SPACE, draw(SPACE, 0, number)) for number in range(50)]
    assert {point["dropout"] for point in points} == {0.0, 0.3}
    assert all(0.005 <= point["learning_rate"] <= 0.03 for point in points)
    assert len({point["learning_rate"] for point in points}) == 50


def test_a_draw_depends_on_seed_and_number_alone():
    assert draw(SPACE, 3, 7) == draw(dict(reversed(SPACE.items())), 3, 7)
    assert draw(SPACE, 3, 7) != draw(SPACE, 4, 7)
    assert list(decode(SPACE, draw(SPACE, 3, 7))) == list(SPACE)
    mixed = {"dropout": [False, 0, 0.0]}  # equal to each other, and yet not the same
    assert {type(decode(mixed, draw(mixed, 0, number))["dropout"]) for number in range(20)} == {bool, int, float}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"no_such": [1]}, "no parameter 'no_such'"),
        ({"dropout": []}, "list of choices"),
        ({"dropout": 0.5}, "list of choices"),
        ({"n_members": [1, 2]}, "not searched over"),
        ({}, "empty"),
        ("papers", "'paper', 'recipe' or a mapping"),
        (None, "'paper', 'recipe' or a mapping"),
    ],
)
def test_wrong_spaces_are_named(space, message, data):
    with pytest.raises(ValueError, match=message):
        default_space(space, SumoNet(), data.y)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_trials": 0}, ValueError, "n_trials"),
        ({"method": "grid"}, ValueError, "method .*'halving'.* got 'grid'"),
        ({"mixture": 0}, ValueError, "mixture .*at least 1; got 0"),
        ({"refit": "yes"}, ValueError, "refit .* got 'yes'"),
        ({"cv": 1}, ValueError, "cv .*None.* at least 2; got 1"),
        ({"layout": "big"}, ValueError, "layout .* got 'big'"),
        ({"trials_per_round": 1.5}, ValueError, "trials_per_round .* got 1.5"),
        ({"method": "halving", "storage": "x.db"}, ValueError, "halving"),
        ({"estimator": CoxPH()}, TypeError, "GridSearchCV"),
    ],
)
def test_wrong_settings_are_named(parts, options, error, message):
    with pytest.raises(error, match=message):
        quick().set_params(**options).fit(*parts[0])


def test_what_is_asked_too_early_or_wrongly(parts):
    with pytest.raises(NotFittedError):
        quick().trial(0)
    with pytest.raises(ValueError, match="pair"):
        quick().fit(*parts[0], validation_data=parts[0][0])


def test_folds_that_learn_from_each_other_are_refused(data):
    with pytest.raises(ValueError, match="test rows of another"):
        fit_folds(quick(method="tpe"), [(data.X, data.y, (data.X, data.y))])


def test_ctrl_c_returns_what_is_finished(parts, monkeypatch):
    from sumosurv.search import executor

    train, valid, _ = parts
    real, calls = executor._train_population, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(executor, "_train_population", interrupted)
    search = quick(layout="grouped")
    with pytest.warns(RuntimeWarning, match="interrupted; it is fitted"), pytest.raises(KeyboardInterrupt):
        search.fit(*train, validation_data=valid)
    assert search.interrupted_
    assert 0 < len(search.cv_results_["trial"]) < 6
    assert np.isfinite(search.score(*valid))


def stop_after(monkeypatch, epochs):
    """Ctrl-C after so many epochs of all populations together."""
    from sumosurv.search.rounds import SearchProgress

    left = [epochs]

    def advance(self, networks):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(SearchProgress, "advance", advance)
    monkeypatch.setattr(SearchProgress, "resume", lambda self, trials: None)


@pytest.mark.parametrize("epochs", [1, 6])
def test_ctrl_c_in_successive_halving_loses_no_trial(parts, monkeypatch, epochs):
    stop_after(monkeypatch, epochs)
    search = quick(method="halving", layout="padded").set_params(estimator__max_epochs=36)  # 4, 12 and 36 epochs
    with pytest.warns(RuntimeWarning, match="interrupted; it is fitted"), pytest.raises(KeyboardInterrupt):
        search.fit(*parts[0], validation_data=parts[1])
    assert len(search.cv_results_["trial"]) == 6
    assert np.isfinite(search.cv_results_["valid_score"]).all()
    assert np.isfinite(search.score(*parts[1]))


def test_ctrl_c_before_any_trial_can_predict_leaves_a_search_as_it_was(parts, monkeypatch):
    from sumosurv.search import executor

    search = quick()
    with monkeypatch.context() as patch:
        patch.setattr(executor, "_train_population", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            search.fit(*parts[0], validation_data=parts[1])
        with pytest.raises(KeyboardInterrupt):
            fit_folds(search, [(*parts[0], parts[1])] * 2)
    with pytest.raises(NotFittedError):
        search.predict(parts[0][0])


def test_progress_counts_trials(parts, capsys):
    quick(verbose=True).fit(*parts[0], validation_data=parts[1])
    shown = capsys.readouterr().err
    assert "6/6 trials" in shown
    assert "best" in shown


def test_progress_counts_trials_also_where_each_has_several_networks(data, monkeypatch):
    """After the first of two trials, of which each trains two networks, the bar stands at one."""
    from sumosurv.search.rounds import SearchProgress

    places, real = [], SearchProgress.show_best

    def noted(progress, score):
        places.append(progress._bar.n)
        real(progress, score)

    monkeypatch.setattr(SearchProgress, "show_best", noted)
    X, y = data.X[:120], data.y[:120]
    SumoNetSearch(
        SumoNet(max_epochs=2), space={"dropout": [0.1]}, n_trials=2, cv=2, trials_per_round=1, random_state=0,
        verbose=True, mixture=1,
    ).fit(X, y)  # fmt: skip
    assert places == pytest.approx([1.0, 2.0])


def test_one_network_may_train_again_on_its_own(parts):
    fitted = quick(refit="cross", refit_members=1, mixture=1, n_trials=2).fit(*parts[0], validation_data=parts[1])
    assert fitted.best_estimator_.n_members_ == 1


def test_folds_whose_columns_differ_train_apart(data):
    """A level, or a missing value, that one fold alone has makes its networks another shape."""
    random = np.random.default_rng(0)
    X = pd.DataFrame({"x": np.asarray(data.X["x"]), "kind": random.choice(["a", "b"], 360)})
    X.loc[:150, "kind"] = random.choice(["a", "b", "c", "d", "e"], 151)
    X.loc[300:310, "x"] = np.nan
    folds = [(X[i : i + 150], data.y[i : i + 150], (X[i + 150 : i + 200], data.y[i + 150 : i + 200])) for i in (0, 160)]
    for search in fit_folds(quick(layout="padded", n_trials=3), folds):
        assert np.isfinite(search.cv_results_["valid_score"]).all()
        assert np.isfinite(search.predict_median(X[200:210])).all()


def test_ctrl_c_in_the_second_training_keeps_the_search(parts, monkeypatch):
    from sumosurv.search import executor

    real, calls = executor.train_members, []

    def interrupted(*arguments, **options):
        calls.append(1)
        return ([], True) if len(calls) > 1 else real(*arguments, **options)

    monkeypatch.setattr(executor, "train_members", interrupted)
    search = quick(refit="cross", refit_members=3)
    with pytest.warns(RuntimeWarning, match="networks of the search are kept"), pytest.raises(KeyboardInterrupt):
        search.fit(*parts[0], validation_data=parts[1])
    assert search.interrupted_
    assert search.score(*parts[1]) == pytest.approx(search.mixture_score_, abs=1e-5)


def test_folds_whose_spaces_differ_are_refused(data):
    late = data.y.copy()
    late["time"] = np.ceil(late["time"] * 5) + 3
    folds = [(data.X, y, (data.X, y)) for y in (data.y, late)]
    with pytest.raises(ValueError, match="differs from fold to fold"):
        fit_folds(quick(space="recipe"), folds)


def test_one_row_is_refused_as_scikit_learn_wants_it():
    from sklearn.utils.estimator_checks import check_fit2d_1sample

    for options in ({}, {"cv": 2}):
        search = SumoNetSearch(SumoNet(max_epochs=1), n_trials=2, random_state=0, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_fit2d_1sample("SumoNetSearch", search)
            with pytest.raises(ValueError, match="n_samples=1"):
                search.fit(np.ones((1, 2)), [3.0])
