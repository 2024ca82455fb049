"""Contracts that every method keeps, beside SuMo-net: scikit-learn's checks, files, hard data."""

from __future__ import annotations

import signal
import warnings
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import sumosurv
from sumosurv import Surv, TrainingError, WeibullNet, estimators, load
from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.stack import FittedPopulation
from sumosurv.networks import Inputs, Observed, Table
from sumosurv.scores import log_likelihood

pytestmark = pytest.mark.usefixtures("coarse_solutions")

SMALL = {"n_members": 2, "max_epochs": 2, "covariate_layers": (8,), "random_state": 0}
OWN = {  # settings that make a method small and quick, beside those of all networks
    "CoxPH": {"alpha": 0.1, "missing": "indicator"},
    "CoxPHCV": {"missing": "indicator", "n_alphas": 10, "cv": 3, "random_state": 0},
    "FineGray": {"alpha": 0.1, "missing": "indicator"},
    "ParametricRegression": {"alpha": 0.1, "missing": "indicator"},
    "RandomSurvivalForest": {"n_estimators": 5, "random_state": 0},
    "Soden": {"steps": 2, "hazard_layers": (6,)},
    "SurvNode": {"steps": 2, "hazard_layers": (6,)},
}
APART = ("CauseSpecific", "Conformal", "PaperSumoNet", "SumoNet", "SurvivalMixture")  # they have tests of their own
NETWORKS = {
    name: SMALL | OWN.get(name, {})
    for name, method in estimators.METHODS.items()
    if issubclass(method, NetworkEstimator) and name not in APART
}
METHODS = {name: OWN.get(name, {}) for name in estimators.METHODS if name not in APART} | NETWORKS


def make(name, **options):
    if name == "RandomSurvivalForest":
        pytest.importorskip("sksurv")
    return getattr(sumosurv, name)(**(METHODS[name] | options))


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "c": rng.choice(["u", "v", "w"], n)})
    X.loc[::17, "b"] = np.nan
    time = rng.weibull(1.5, n) * np.exp(-1.2 * X["a"])
    return X, Surv.from_arrays(rng.random(n) < 0.8, time)


X, Y = data()
GRID = np.array([0.0, 0.1, 0.5, 1.0, 3.0])


@cache
def fitted(name):
    """The model of a method, which tests share: they leave it as it is."""
    return make(name).fit(X, Y)


def own(name):
    """A copy of it, for a test that changes it."""
    return deepcopy(fitted(name))


@pytest.fixture(scope="module", params=list(METHODS))
def model(request):
    return fitted(request.param)


def _for_checks():
    """They fit several hundred times, and none of them asks how well."""
    names = [name for name in METHODS if name != "RandomSurvivalForest"]
    least = {name: {"max_epochs": 1, "covariate_layers": (4,)} for name in NETWORKS}
    least["CoxPHCV"] = {"n_alphas": 3, "cv": 2}
    least["ParametricRegression"] = {"family": "exponential"}  # others have no maximum with more columns than rows
    return [getattr(sumosurv, name)(**METHODS[name] | least.get(name, {})) for name in names]


def _not_for_networks(estimator):
    """A check that does not apply where rows are shuffled, batched and held out at random."""
    reason = "repeated rows are drawn one by one; tests/estimators/test_outcomes.py has the check with full batches"
    drawn = hasattr(estimator, "max_epochs") or hasattr(estimator, "cv")
    dense, sparse = (f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse"))
    return {dense: reason} | ({sparse: reason} if hasattr(estimator, "cv") else {}) if drawn else {}


@pytest.mark.filterwarnings("ignore:y contains only times")
@pytest.mark.filterwarnings("ignore:Newton's method has not converged")
@parametrize_with_checks(_for_checks(), expected_failed_checks=_not_for_networks)
def test_scikit_learn_s_own_checks(estimator, check, request):
    if (known := request.node.get_closest_marker("xfail")) is not None:
        pytest.skip(known.kwargs["reason"])
    check(estimator)


@pytest.mark.parametrize("scaling", ["quantile", "standard"])
@pytest.mark.parametrize("name", METHODS)
def test_rows_far_from_all_others_have_a_distribution_or_an_error(name, scaling):
    """A number a million times too large, say: never a curve of missing values."""
    options = {} if scaling == "quantile" else {"numeric_scaling": scaling}
    if options and "numeric_scaling" not in make(name).get_params():
        pytest.skip("its columns have one way to be scaled")
    model = make(name, **options).fit(X, Y) if options else fitted(name)
    for size in (-1e30, -1e6, -1e3, 1e3, 1e5, 1e8, 1e30):
        try:
            d = model.predict_distribution(X[:2].assign(a=[size, -size]))
        except ValueError as error:
            if "invalid distribution" not in str(error):
                raise
            continue
        survival = d.survival(GRID)
        assert ((survival >= 0) & (survival <= 1)).all(), size
        assert (np.diff(survival) <= 0).all(), size
        assert (d.density(GRID[1:]) >= 0).all(), size


def test_predictions_are_those_of_a_proper_distribution(model):
    d = model.predict_distribution(X)
    assert isinstance(d, SurvivalDistribution)
    assert len(d) == len(X)
    survival = model.predict_survival_function(X, GRID)
    assert survival.shape == (len(X), len(GRID))
    np.testing.assert_allclose(survival[:, 0], 1.0, atol=1e-12)
    assert (np.diff(survival, axis=1) <= 1e-12).all()
    np.testing.assert_array_equal(survival, d.survival(GRID))
    assert (model.predict_density(X, GRID) >= 0).all()
    assert model.predict(X).shape == (len(X),)
    assert ((model.predict(X) >= 0) & (model.predict(X) <= 1)).all()
    assert model.predict_restricted_mean(X, 1.0).shape == (len(X),)
    assert model.score(X, Y) == pytest.approx(log_likelihood(d, Y).mean())
    one = model.predict_survival_function(X.iloc[[7]], GRID)
    np.testing.assert_allclose(one[0], survival[7], atol=1e-10)


def test_a_file_gives_back_the_same_model_without_training_data(model, tmp_path):
    path = tmp_path / "model"
    model.save(path)
    again = load(path)
    assert type(again) is type(model)
    for ask in ("predict", "predict_median", "predict_mean"):
        np.testing.assert_array_equal(getattr(again, ask)(X), getattr(model, ask)(X))
    np.testing.assert_array_equal(
        again.predict_survival_function(X, Y["time"]), model.predict_survival_function(X, Y["time"])
    )
    assert again.get_params() == model.get_params()
    assert again.score(X, Y) == model.score(X, Y)


def test_a_model_keeps_no_training_rows(model):
    held = [value for value in vars(model).values() if isinstance(value, (np.ndarray, pd.DataFrame, torch.Tensor))]
    for module in model.stack_.populations[0].network.modules() if hasattr(model, "stack_") else ():
        held += [value for value in vars(module).values() if isinstance(value, (np.ndarray, torch.Tensor, tuple))]
    for value in held:
        if isinstance(value, tuple):
            assert not any(isinstance(part, torch.Tensor) for part in value)
        elif not isinstance(value, pd.DataFrame):  # the history of training
            assert len(value) != len(X)


def test_clone_and_repeat(model):
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "risk_times_")
    np.testing.assert_array_equal(twin.fit(X, Y).predict(X), model.predict(X))


@pytest.mark.parametrize("name", METHODS)
def test_pipelines(name):
    numbers = X[["a"]]
    assert make_pipeline(StandardScaler(), make(name)).fit(numbers, Y).predict(numbers).shape == (len(X),)


def hard(kind, n=60):
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    time, event = rng.exponential(size=n) * np.exp(-table["a"]), rng.random(n) < 0.7
    if kind == "ties":
        time = np.ceil(2 * time)
    elif kind == "zero times":
        time[:6] = 0.0
        event[:3], event[3:6] = True, False
    elif kind == "all censored":
        event[:] = False
    elif kind == "one feature":
        table = table[["a"]]
    elif kind == "constant feature":
        table["b"] = 4.0
    elif kind == "all at one time":
        time[:] = 2.0
    elif kind == "one event":
        event[:] = np.arange(n) == 5
    elif kind == "three rows":
        table, time, event = table[:3], time[:3], np.array([True, False, True])
    elif kind == "columns of all kinds":
        table["c"] = pd.Categorical(rng.choice(["u", "v"], n))
        table["d"] = rng.random(n) < 0.5
        table["e"] = np.where(rng.random(n) < 0.2, None, "x")
        table.loc[::9, "a"] = np.nan
        table.loc[0, "b"] = 1e15
    return table, Surv.from_arrays(event, time)


HARD = ("ties", "zero times", "all censored", "one feature", "constant feature", "all at one time", "one event")
HARD += ("three rows", "columns of all kinds")


@pytest.mark.filterwarnings("ignore:All .* rows are censored")
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore:.*events are at time 0")
@pytest.mark.filterwarnings("ignore:Newton's method has not converged")
def test_hard_data(name, kind):
    table, y = hard(kind)
    model = make(name).fit(table, y)
    survival = model.predict_survival_function(table, [0.0, 0.5, 2.0, 50.0])
    assert np.isfinite(survival).all()
    assert (np.diff(survival, axis=1) <= 1e-12).all()
    if name in NETWORKS:
        assert all(torch.isfinite(p).all() for p in model.stack_.populations[0].network.parameters())
        held_out = [] if kind == "three rows" else ["valid"]  # too few to hold any out
        assert np.isfinite(model.history_[["train", *held_out]].to_numpy()).all()
        assert model.n_members_ == 2


@pytest.mark.filterwarnings("ignore:Column .c.. 1 of 4 values were not seen")
@pytest.mark.parametrize("name", METHODS)
def test_subjects_unlike_any_in_training(name):
    """A new level, a value that was never missing, numbers far from the data: a curve all the same."""
    model = fitted(name)
    new = X[:4].copy()
    new.loc[0, "c"] = "never seen"
    new.loc[1, "a"] = np.nan
    new.loc[2, "a"], new.loc[3, "a"] = 1e12, -1e300
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        survival = model.predict_survival_function(new, GRID)
        assert np.isfinite(survival).all()
        assert (np.diff(survival, axis=1) <= 1e-12).all()
        assert not np.isnan(model.predict_density(new, GRID)).any()
        assert not np.isnan(model.predict_mean(new)).any()
    caught = [warning for warning in caught if "extrapolated" not in str(warning.message)]
    reads = name not in ("AalenJohansen", "KaplanMeier")
    told = [str(warning.message) for warning in caught if "beyond the last training time" not in str(warning.message)]
    for facts in (("Column 'c': 1 of 4 ", "'never seen'"), ("missing values", "'a'")):
        assert sum(all(fact in message for fact in facts) for message in told) == 3 * reads
    assert len(told) == 6 * reads


@pytest.mark.parametrize("name", METHODS)
def test_a_grid_search(name):
    ridge, widths = {"alpha": [0.1, 10.0]}, {"half_width": [1, 3]}
    choices = {"AalenJohansen": widths, "KaplanMeier": widths, "CoxPH": ridge, "FineGray": ridge}
    choices |= {"ParametricRegression": ridge, "CoxPHCV": {"l1_ratio": [0.5, 1.0]}}
    choices["RandomSurvivalForest"] = {"min_samples_leaf": [15, 25]}
    search = GridSearchCV(make(name), choices.get(name, {"learning_rate": [1e-3, 0.03]}), cv=KFold(2)).fit(X, Y)
    assert search.cv_results_["mean_test_score"].shape == (2,)
    assert np.isfinite(search.best_score_)
    assert search.predict(X).shape == (len(X),)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_member_is_the_same_alone_and_in_company(name):
    both = make(name, n_members=2, validation_fraction=0.0).fit(X, Y)
    alone = make(name, n_members=1, validation_fraction=0.0).fit(X, Y)
    for mine, theirs in zip(
        alone.stack_.populations[0].network.parameters(), both.stack_.populations[0].network.parameters()
    ):
        torch.testing.assert_close(mine[0], theirs[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_members_are_mixed_equally(name):
    model = fitted(name)
    whole = model.predict_survival_function(X, GRID)
    parts = []
    for k in range(2):
        network = sumosurv.networks.select_members(model.stack_.populations[0].network, [k])
        part = replace(model.stack_.populations[0], network=network)
        parts.append(part.distribution(model.preprocessor_.transform(X)).survival(GRID))
    np.testing.assert_allclose(np.mean(parts, axis=0), whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_validation_rows_refit_and_encoders_of_ones_own(name):
    settings = {"refit": True, "batch_size": "full"}
    model = make(name, **settings).fit(X, Y, validation_data=data(40, seed=1))
    assert model.best_epoch_.shape == (2,)
    encoded = make(name, encoder=torch.nn.Linear(8, 5)).fit(X, Y)
    assert encoded.predict(X).shape == (len(X),)
    with pytest.raises(ValueError, match=r"batch_size .*'auto' or 'full' or"):
        make(name, batch_size="all").fit(X, Y)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_objective_asks_the_device_for_a_value(name):
    """Shapes must not depend on values either: a CUDA graph holds the step."""
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
    model = own(name)
    network = model.stack_.populations[0].network.float().train().requires_grad_(True)
    inputs = model.preprocessor_.transform(X)
    time, event = torch.from_numpy(Y["time"] / model.time_unit_).float(), torch.from_numpy(Y["event"].copy())
    index = torch.arange(40).repeat(2, 1)
    network.start_training(Table(inputs, Observed(event, time)), [np.arange(len(X))] * 2)
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor
        for module in network.modules():
            for kept in (module._parameters, module._buffers):
                kept.update({key: fake(value) for key, value in kept.items() if value is not None})
        table = Table(Inputs(fake(inputs.numeric), fake(inputs.codes)), Observed(fake(event), fake(time)))
        with pytest.raises(fake_tensor.DataDependentOutputException):
            table.outcome.time.sum().item()  # what is looked for
        terms = network.terms(table.batch(fake(index), fake(torch.ones_like(index, dtype=torch.bool))))
        torch.autograd.grad(terms.sum(), list(network.parameters()), allow_unused=True)
    assert terms.shape == (2, 40)


def test_every_method_is_exported_and_documented():
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    for name, method in estimators.METHODS.items():
        assert getattr(sumosurv, name) is method
        assert name in sumosurv.__all__
        assert f"`{name}`" in page, f"docs/methods.md does not speak of {name}"


# ---------------------------------------------------------------------- a fit replaces everything, or nothing


def everything(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


@pytest.mark.parametrize("name", METHODS)
def test_a_fit_that_fails_leaves_the_model_as_it_was(name):
    model = own(name)
    before, told = everything(model), model.predict_median(X)
    broken = Y.copy()
    broken["time"][3] = np.nan
    with pytest.raises(ValueError, match="missing"):
        model.fit(X[["a"]], broken)  # by then the new columns are known
    assert everything(model) == before
    np.testing.assert_array_equal(model.predict_median(X), told)


@pytest.mark.parametrize("name", NETWORKS)
def test_training_that_fails_leaves_the_model_as_it_was(name):
    model = own(name)
    before, told = everything(model), model.predict_median(X)
    months = Surv.from_arrays(Y["event"], 1000.0 * Y["time"])
    model.set_params(learning_rate=1e38)
    with pytest.raises(TrainingError):
        model.fit(X[["a"]], months)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.set_params(learning_rate=0.01).fit(X[["a"]], months, validation_data=(X[["a"]], months[:5]))
    assert everything(model) == before
    np.testing.assert_array_equal(model.predict_median(X), told)


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_interrupted_fit_leaves_a_whole_model(epoch):
    def stop(report):
        if report.number == epoch:
            raise KeyboardInterrupt

    model = own("WeibullNet")
    told = model.predict_median(X)
    months = Surv.from_arrays(Y["event"], 1000.0 * Y["time"])
    with (
        pytest.warns(RuntimeWarning, match=f"after {epoch + 1} epochs.* is fitted"),
        pytest.raises(KeyboardInterrupt, match=r"interrupted; .* fitted"),
    ):
        model.set_params(verbose=stop).fit(X, months)
    assert model.interrupted_
    assert not model.set_params(verbose=False).fit(X, months).interrupted_
    assert 100 < np.median(model.predict_median(X) / told) < 10_000  # the new rows' model, and nothing of the old one
    fresh = make("WeibullNet", verbose=stop)

    def at_once(*arguments):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sumosurv.training.batches.shuffled", at_once)
        with pytest.raises(KeyboardInterrupt):
            fresh.fit(X, Y)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_a_second_ctrl_c_leaves_the_model_as_it_was(monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    model = own("WeibullNet")
    before = everything(model)
    monkeypatch.setattr(FittedPopulation, "of", stop)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(verbose=stop).fit(X[["a"]], Y)
    assert everything(model) == before


def test_ctrl_c_in_the_second_training_keeps_the_first():
    heard = []

    def stop(report):
        heard.append(report.valid)
        if report.valid is None:
            raise KeyboardInterrupt

    model, once = make("WeibullNet", refit=True, verbose=stop), fitted("WeibullNet")
    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert heard[-1] is None
    np.testing.assert_array_equal(model.predict_median(X), once.predict_median(X))


@pytest.mark.parametrize("name", ["CauseSpecific", "Conformal", "SurvivalMixture"])
def test_ctrl_c_in_a_part_leaves_the_whole_as_it_was(name):
    def stop(report):
        raise KeyboardInterrupt

    part = make("WeibullNet")
    given = {"estimators": [part]} if name == "SurvivalMixture" else {"estimator": part}
    model = getattr(sumosurv, name)(**given).fit(X, Y)
    before, told = everything(model), model.predict_median(X)
    part.set_params(verbose=stop)
    for one in (model, clone(model)):
        with pytest.raises(KeyboardInterrupt, match=f"interrupted; {name} is unchanged"):
            one.fit(X[["a"]], Y)  # without a warning, an error here, that says that the model can be used
    assert everything(model) == before
    np.testing.assert_array_equal(model.predict_median(X), told)
    with pytest.raises(NotFittedError):
        one.predict(X)


@pytest.mark.filterwarnings("ignore:.*interrupted after 1 epochs")
def test_ctrl_c_stops_a_grid_search():
    epochs = []

    def tell(epoch):
        epochs.append(epoch)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it otherwise
    try:
        model = WeibullNet(n_members=1, max_epochs=50, patience=None, verbose=tell)
        with pytest.raises(KeyboardInterrupt):
            GridSearchCV(model, {"dropout": [0.1, 0.2]}, cv=3, error_score="raise").fit(X, Y)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(epochs) == 1


@pytest.mark.filterwarnings("ignore:Members .* had no finite likelihood")
@pytest.mark.parametrize("times", ["one huge", "all tiny", "both ends"])
@pytest.mark.parametrize("name", METHODS)
def test_curves_fall_however_far_times_are_apart(name, times):
    rng = np.random.default_rng(0)
    x, time = rng.normal(size=(40, 2)), rng.exponential(size=40)
    if times == "all tiny":
        time *= 1e-308
    else:
        time[3] = 1.7e308
    if times == "both ends":
        time[:13] *= 1e-308
        time[20:30] *= 1e307
    model = make(name).fit(x, Surv.from_arrays(rng.random(40) < 0.7, time))
    asked = np.unique([0.0, 5e-324, *time, *(time / 2), *np.nextafter(time, np.inf), *10.0 ** np.arange(-300, 301, 50)])
    survival = model.predict_survival_function(x, asked)
    assert not np.isnan(survival).any()
    assert (np.diff(survival, axis=1) <= 1e-12).all()


# ---------------------------------------------------------------------- what is told on the way


@pytest.mark.parametrize("name", [*METHODS, "SumoNet"])
def test_rows_that_are_all_censored_are_named(name):
    y = Surv.from_arrays(np.zeros(len(Y)), Y["time"])
    with pytest.warns(UserWarning, match="All 120 rows are censored") as caught:
        model = (sumosurv.SumoNet(**SMALL) if name == "SumoNet" else make(name)).fit(X, y)
    assert len(caught) == 1
    assert np.isfinite(model.predict(X)).all()


def test_a_column_of_identifiers_is_named():
    labelled = X.assign(patient=[f"p{i}" for i in range(len(X))])
    with pytest.warns(UserWarning, match=r"'patient' .* category .* 120 rows"):
        make("WeibullNet").fit(labelled, Y)


@pytest.mark.parametrize("name", ["WeibullNet", "DeepSurv"])
def test_a_callback_is_passed_what_history_keeps(name):
    heard = []
    model = make(name, verbose=heard.append, max_epochs=3).fit(X, Y)
    assert [epoch.number for epoch in heard] == [0, 1, 2]
    assert {epoch.n_epochs for epoch in heard} == {3}
    np.testing.assert_array_equal(np.concatenate([epoch.train for epoch in heard]), model.history_["train"])
    np.testing.assert_array_equal(np.concatenate([epoch.valid for epoch in heard]), model.history_["valid"])
    make(name, verbose=heard.append, validation_fraction=0.0).fit(X, Y)
    assert heard[-1].valid is None


def test_verbose_may_be_a_number(capsys):
    make("WeibullNet", verbose=1).fit(X, Y)
    assert "training 2 networks" in capsys.readouterr().err
    make("WeibullNet", verbose=0).fit(X, Y)
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match=r"verbose .* got 'print'"):
        make("WeibullNet", verbose="print").fit(X, Y)


def test_a_model_file_keeps_no_callback(tmp_path):
    model = make("WeibullNet", verbose=print).fit(X, Y)
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").verbose is False


def test_exhausted_memory_says_what_to_lower(monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr("sumosurv.training.loop.TrainingStep.__call__", full)
    with pytest.raises(torch.OutOfMemoryError, match=r"n_members, batch_size.*allocate"):
        make("WeibullNet").fit(X, Y)
