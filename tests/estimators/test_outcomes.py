"""Contracts of every method that learns from entry, intervals, weights and causes."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from sumosurv import AalenJohansen, KaplanMeier, SumoNet, Surv, SurvivalMixture, WeibullNet, load
from sumosurv.estimators import METHODS
from sumosurv.fitting.stack import FittedStack
from sumosurv.networks import select_members
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.scores import log_likelihood

pytestmark = pytest.mark.usefixtures("coarse_solutions")

N = 150
SMALL = {"covariate_layers": (4,), "dropout": 0.0, "n_members": 2, "max_epochs": 2, "random_state": 0}
OWN = {"Soden": {"steps": 3}, "SurvNode": {"steps": 3}, "DeepHit": {"n_cuts": 8}, "SumoNet": {"time_layers": (4,)}}
OWN["SumoNet"]["components"] = "networks"
SOLVED = ("Soden", "SurvNode")
NETWORKS = [
    name
    for name, method in METHODS.items()
    if "intervals" in method._supported_outcomes and hasattr(method, "max_epochs") and name != "PaperSumoNet"
]


def make(name, **settings):
    return METHODS[name](**SMALL, **OWN.get(name, {}), **settings)


@pytest.fixture(scope="module")
def rows():
    """Covariates, and the true time and cause of each row with its time of censoring and of entry."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 2))
    each = np.stack([np.exp(0.4 * X[:, 0]) * rng.weibull(1.4, N), 1.5 * rng.weibull(1.0, N)], axis=1)
    last = rng.uniform(0.3, 3.0, N)
    first = each.min(axis=1)
    time = np.minimum(first, last)
    cause = np.where(first <= last, 1 + each.argmin(axis=1), 0)
    entry = np.where(rng.random(N) < 0.5, 0.6 * time * rng.random(N), 0.0)
    return X, time, cause, entry


def outcomes(rows):
    _, time, cause, entry = rows
    low = np.floor(4 * time) / 4
    high = np.where(cause > 0, low + 0.25, np.inf)
    return {
        "entry": Surv.from_arrays(cause > 0, time, entry),
        "intervals": Surv.interval(low, high),
        "causes": Surv.from_arrays(cause, time),
        "all": Surv.interval(low, high, cause, entry=np.minimum(entry, low)),
    }


@pytest.fixture(scope="module")
def fitted(rows):
    """Every method fitted to every kind of outcome, made when first asked for."""
    made = {}

    def get(name, kind):
        if (name, kind) not in made:
            made[name, kind] = make(name).fit(rows[0], outcomes(rows)[kind])
        return made[name, kind]

    return get


@pytest.mark.parametrize("kind", ["entry", "intervals", "causes", "all"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_training_objective_is_the_likelihood_of_the_distribution(name, kind, rows, fitted):
    """The terms of the network, in single precision, against the score of the distribution, in double."""
    model = fitted(name, kind)
    if not model.stack_.populations[0].network.terms_are_likelihoods:
        pytest.skip("trained on intervals of its own and a ranking")
    X, y = rows[0], check_outcome(outcomes(rows)[kind])
    prepared = model._read(X, y)
    every = torch.arange(N)[None].expand(2, N)
    with torch.no_grad():
        network = model.stack_.populations[0].network.float()
        terms = network.terms(prepared.table.batch(every, torch.ones(2, N, dtype=torch.bool)))
        network.double()
    # the mixture's likelihood where there is no entry; with entry the members' parts differ in what they divide by
    of_members = np.stack([log_likelihood(one_member(model, k).predict_distribution(X), y) for k in (0, 1)])
    shift = np.log(model.time_unit_) * y.event
    tolerance = 0.03 if name in SOLVED else 5e-4  # a few steps of a solver, against its limit
    np.testing.assert_allclose(terms.numpy() - shift, of_members, atol=tolerance)


def one_member(model, k):
    made, (population,) = copy(model), model.stack_.populations
    made.stack_ = FittedStack((replace(population, network=select_members(population.network, [k])),))
    return made


@pytest.mark.parametrize("name", NETWORKS)
def test_cutting_rows_into_spells_changes_no_likelihood(name, rows, fitted):
    X, time, cause, entry = rows
    model, rng = fitted(name, "causes"), np.random.default_rng(0)
    cut = entry + (time - entry) * rng.uniform(0.2, 0.8, N)
    whole = Surv.from_arrays(cause, time, entry)
    first = Surv.from_arrays(np.zeros(N), cut, entry, causes=2)
    second = Surv.from_arrays(cause, time, cut)
    curves = model.predict_distribution(X)
    together = log_likelihood(curves, first) + log_likelihood(curves, second)
    np.testing.assert_allclose(together, log_likelihood(curves, whole), atol=1e-8)


@pytest.mark.parametrize("kind", ["entry", "causes"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_short_interval_tends_to_the_density(name, kind, rows, fitted, monkeypatch):
    monkeypatch.setattr("sumosurv.distributions.ode._MIN_STEPS", 64)  # as it is outside of these tests
    X, time, cause, _ = rows
    time = 1.003 * time  # not a cut between intervals of DeepHit, where its density jumps
    curves = fitted(name, kind).predict_distribution(X)
    event = cause if kind == "causes" else cause > 0
    exact = log_likelihood(curves, Surv.from_arrays(event, time))
    width = 1e-5 * time
    low, high = time - 0.5 * width, np.where(cause > 0, time + 0.5 * width, np.inf)
    short = log_likelihood(curves, Surv.interval(low, high, cause if kind == "causes" else None))
    seen = cause > 0
    np.testing.assert_allclose((short - np.log(width))[seen], exact[seen], atol=2e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_entry_at_zero_is_no_entry(name, rows):
    X, time, cause, _ = rows
    one = make(name).fit(X, Surv.from_arrays(cause > 0, time))
    two = make(name).fit(X, Surv.from_arrays(cause > 0, time, np.zeros(N)))
    three = make(name).fit(X, Surv.interval(time, np.where(cause > 0, time, np.inf)))
    for other in (two, three):
        np.testing.assert_array_equal(one.predict(X), other.predict(X))


@pytest.mark.parametrize("name", NETWORKS)
def test_permuting_causes_permutes_incidences(name, rows, fitted):
    X, time, cause, _ = rows
    one = fitted(name, "causes")
    two = make(name).fit(X, Surv.from_arrays(np.array([0, 2, 1])[cause], time))
    grid = np.array([0.3, 1.0, 2.0])
    total = one.predict_cumulative_incidence(X, grid).sum(-1) + one.predict_survival_function(X, grid)
    np.testing.assert_allclose(total, 1.0, atol=1e-12)
    # other start weights for each cause: incidences agree on average, not row by row
    mean, other = (m.predict_cumulative_incidence(X, grid).mean(0) for m in (one, two))
    np.testing.assert_allclose(mean, other[:, ::-1], atol=0.06)
    assert np.abs(mean - other).max() > 0.08


@pytest.mark.parametrize(
    ("name", "kind"),
    # one kind of outcome has it all; apart they are tried where terms are likelihoods, and where they are not
    [(n, "all") for n in NETWORKS]
    + [(n, k) for n in ("WeibullNet", "DeepHit") for k in ("entry", "intervals", "causes")],
)
def test_whole_weights_are_repeated_rows(name, kind, rows):
    full = {"batch_size": "full", "validation_fraction": 0.0, "max_epochs": 5 if name in SOLVED else 12}
    if name == "DeepHit":
        full["alpha"] = 1.0  # the ranking counts pairs of rows of the batch
    X, y = rows[0], outcomes(rows)[kind]
    weight = np.random.default_rng(1).integers(0, 4, N)
    again = np.repeat(np.arange(N), weight)
    settings = {**SMALL, **OWN.get(name, {}), **full}
    one = METHODS[name](**settings).fit(X, y, sample_weight=weight)
    two = METHODS[name](**settings).fit(X[again], y[again])
    np.testing.assert_allclose(one.score(X, y, sample_weight=weight), two.score(X[again], y[again]), atol=2e-3)
    np.testing.assert_allclose(one.predict(X), two.predict(X), atol=1e-3)
    unweighted = METHODS[name](**settings).fit(X[weight > 0], y[weight > 0])
    assert np.abs(unweighted.predict(X) - two.predict(X)).max() > 2e-3


@pytest.mark.parametrize("kind", ["causes", "all"])
@pytest.mark.parametrize("name", NETWORKS)
def test_models_of_causes_are_saved(name, kind, fitted, rows, tmp_path):
    model = fitted(name, kind)
    model.save(tmp_path / "m.sumo")
    again = load(tmp_path / "m.sumo")
    assert again.n_causes_ == 2
    np.testing.assert_allclose(
        again.predict_cumulative_incidence(rows[0], [0.5, 1.0]),
        model.predict_cumulative_incidence(rows[0], [0.5, 1.0]),
        atol=1e-7,
    )


def test_subjects_are_held_out_whole(rows):
    X, time, cause, _ = rows
    subject = np.arange(N) // 3
    prepared = make("WeibullNet")._read(X, check_outcome(Surv.from_arrays(cause > 0, time), groups=subject))
    from sumosurv.training.batches import split_rows

    for seed in range(5):
        train, valid = split_rows(prepared.outcome, seed, 0.2)
        assert not set(subject[train]) & set(subject[valid])
        assert len(train) + len(valid) == N
        assert 0.15 < len(valid) / N < 0.25


def test_weights_of_any_scale_are_the_same(rows):
    X, time, cause, _ = rows
    weight = np.random.default_rng(2).uniform(0.2, 2.0, N)
    one, two = (
        make("WeibullNet").fit(X, Surv.from_arrays(cause > 0, time), sample_weight=w) for w in (weight, 8 * weight)
    )
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_rows_of_weight_zero_are_not_looked_at(rows):
    X, time, cause, _ = rows
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["c"] = ["rare" if i == 7 else "common" for i in range(N)]
    y, weight = Surv.from_arrays(cause > 0, time), np.ones(N)
    weight[7] = 0
    one = make("SumoNet").fit(frame, y, sample_weight=weight)
    two = make("SumoNet").fit(frame.drop(index=7), np.delete(y, 7))
    np.testing.assert_array_equal(one.predict(frame[:5]), two.predict(frame[:5]))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("CoxPH", "intervals", "CoxPH .*interval-censored.*SumoNet"),
        ("DeepSurv", "intervals", "DeepSurv .*interval-censored.*SumoNet"),
        ("CoxPH", "causes", r"competing risks.*CauseSpecific\(CoxPH"),
        ("RandomSurvivalForest", "entry", "Forest .*delayed entry.*SumoNet"),
    ],
)
def test_what_a_method_cannot_learn_from_is_said(name, kind, message, rows):
    if name not in METHODS:
        pytest.skip(f"{name} is not there")
    with pytest.raises(ValueError, match=message):
        METHODS[name]().fit(rows[0], outcomes(rows)[kind])


def test_causes_and_models_must_fit(rows, fitted):
    X, time, cause, _ = rows
    with pytest.raises(ValueError, match="distribution has 2 causes"):
        fitted("WeibullNet", "causes").score(X, Surv.from_arrays(cause > 0, time))
    with pytest.raises(ValueError, match="y has 2 causes"):
        fitted("WeibullNet", "entry").score(X, Surv.from_arrays(cause, time))
    third = np.where(cause == 2, 3, cause)
    with pytest.raises(ValueError, match=r"Row \d+ has cause 3, .* has 2"):
        fitted("WeibullNet", "causes").score(X, Surv.from_arrays(third, time, causes=3))


def test_one_cause_numbered_is_the_model_of_today(rows):
    X, time, cause, _ = rows
    one = make("SumoNet").fit(X, Surv.from_arrays(cause > 0, time))
    two = make("SumoNet").fit(X, Surv.from_arrays((cause > 0).astype(int), time, causes=1))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    assert two.n_causes_ == 1


def test_a_mixture_of_models_keeps_causes(rows):
    X, y = rows[0], outcomes(rows)["causes"]
    both = SurvivalMixture([make("WeibullNet"), make("SumoNet")]).fit(X, y)
    parts = [part.predict_cumulative_incidence(X, [1.0]) for part in both.estimators_]
    np.testing.assert_allclose(both.predict_cumulative_incidence(X, [1.0]), np.mean(parts, axis=0), atol=1e-12)


def test_a_path_is_the_product_of_its_spells(rows, fitted):
    X = rows[0]
    model = fitted("WeibullNet", "entry")
    path = model.predict_path(X[:4], start=[0.0, 0.7, 0.2, 0.0], groups=["b", "b", "b", "a"])
    assert len(path) == 2
    log_s = [model.predict_distribution(X[i : i + 1]).log_survival for i in range(4)]

    def spell(i, start, end):
        return log_s[i](end)[0] - log_s[i](start)[0]

    at = path.log_survival([0.1, 0.5, 1.5])
    np.testing.assert_allclose(at[1], log_s[3]([0.1, 0.5, 1.5])[0])
    expected = [
        spell(0, 0.0, 0.1),
        spell(0, 0.0, 0.2) + spell(2, 0.2, 0.5),
        spell(0, 0.0, 0.2) + spell(2, 0.2, 0.7) + spell(1, 0.7, 1.5),
    ]
    np.testing.assert_allclose(at[0], expected)
    # a subject's spells have the likelihood of its path
    y = Surv.from_arrays([0, 0, 1], [0.2, 1.5, 0.7], [0.0, 0.7, 0.2])[[0, 2, 1]]
    y = Surv.from_arrays([False, False, True], [0.2, 0.7, 1.5], [0.0, 0.2, 0.7])
    parts = log_likelihood(model.predict_distribution(X[[0, 2, 1]]), y)
    np.testing.assert_allclose(parts.sum(), path.log_density(1.5)[0])


def test_a_path_stays_at_zero_and_leaves_other_subjects_alone():
    """A curve that ends: later spells of that subject are never reached, and no sum may become undefined by it."""
    X, spells = np.zeros((4, 1)), ([0.0, 5.0, 0.0, 1.0], ["a", "a", "b", "b"])
    times = [0.5, 1.0, 2.5, 6.0]
    model = KaplanMeier().fit(X, Surv.from_arrays([1, 1, 1, 1], [1.0, 2.0, 3.0, 3.0]))
    path = model.predict_path(X, *spells)
    np.testing.assert_allclose(path.survival(times), [[1.0, 0.75, 0.5, 0.0]] * 2)
    density = path.log_density(times)
    assert not np.isnan(density).any()
    assert np.isneginf(density[0, -1])
    causes = AalenJohansen().fit(X, Surv.from_arrays([1, 2, 1, 2], [1.0, 2.0, 3.0, 3.0], causes=2))
    risks = causes.predict_path(X, *spells)
    np.testing.assert_allclose(risks.survival(times) + risks.cumulative_incidence(times).sum(-1), 1.0)
    np.testing.assert_allclose(risks.cumulative_incidence(times)[0], [[0, 0], [0.25, 0], [0.25, 0.25], [0.5, 0.5]])
    with pytest.raises(ValueError, match=r"Subject 0 .*zero at 5"):
        model.predict_path(X[:1], [5.0], ["a"])


@pytest.mark.parametrize(
    ("start", "groups", "message"),
    [
        ([0.0, np.nan], ["a", "a"], "'start' is missing .*spell begins"),
        (["x", "y"], ["a", "a"], "'start' must hold numbers"),
        ([0.0, 1.0], None, "groups .*each of the 2 rows"),
        ([0.0, 1.0], [["a"], ["a"]], "groups .*each of the 2 rows"),
        ([0.0, 1.0], ["a", None], "groups is missing in 1 rows"),
    ],
)
def test_wrong_spells_are_named(start, groups, message):
    model = KaplanMeier().fit(np.zeros((2, 1)), Surv.from_arrays([1, 1], [1.0, 2.0]))
    with pytest.raises(ValueError, match=message):
        model.predict_path(np.zeros((2, 1)), start, groups)


def test_metadata_is_routed(rows):
    import sklearn
    from sklearn.model_selection import cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, time, cause, _ = rows
    y, weight = Surv.from_arrays(cause > 0, time), np.arange(N) % 3 + 1.0
    with sklearn.config_context(enable_metadata_routing=True):
        model = make("WeibullNet").set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        chain = make_pipeline(scaler, model)
        chain.fit(X, y, sample_weight=weight)
        found = cross_validate(model, X, y, params={"sample_weight": weight}, cv=2)["test_score"]
        plain = cross_validate(make("WeibullNet"), X, y, cv=2)["test_score"]
    own = make("WeibullNet").fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    np.testing.assert_allclose(chain[-1].predict(chain[:-1].transform(X)), own.predict(chain[:-1].transform(X)))
    assert np.abs(found - plain).max() > 1e-3


def test_interval_rows_shorter_than_single_precision_resolves(rows):
    """They are learned from as densities; the fit equals that to the exact times."""
    X, time, cause, _ = rows
    high = np.where(cause > 0, time * (1 + 1e-9), np.inf)
    one = WeibullNet(**SMALL).fit(X, Surv.interval(time, high))
    two = WeibullNet(**SMALL).fit(X, Surv.from_arrays(cause > 0, time))
    np.testing.assert_allclose(one.predict(X), two.predict(X), atol=1e-3)


def test_the_record_of_validation_rows_may_have_weights(rows):
    X, time, cause, _ = rows
    y, weight = Surv.from_arrays(cause > 0, time), np.arange(N) % 4 * 1.0
    again = np.repeat(np.arange(N), weight.astype(int))
    one = make("WeibullNet").fit(X, y, (X, y, weight))
    two = make("WeibullNet").fit(X, y, (X[again], y[again]))
    np.testing.assert_allclose(one.best_valid_, two.best_valid_, atol=1e-5)


def test_outcomes_of_spells_are_records():
    assert isinstance(check_outcome(Surv.from_arrays([1], [2.0], [1.0])), Outcome)
    assert SumoNet._supported_outcomes == {"entry", "intervals", "causes", "weights"}


@pytest.mark.parametrize("name", [*NETWORKS, "AalenJohansen", "CauseSpecific"])
def test_a_cause_that_nobody_had(name, rows):
    """It is possible, but hardly; survival and incidences sum to one."""
    X, time, cause, _ = rows
    y = Surv.from_arrays(np.where(cause == 2, 3, cause), time, causes=3)
    model = (make(name) if name in NETWORKS else METHODS[name]()).fit(X, y)
    d = model.predict_distribution(X)
    incidence = d.cumulative_incidence([0.5, 1.0])
    assert (incidence[..., 1] < 0.3 * incidence[..., [0, 2]].min(axis=-1)).all()
    np.testing.assert_allclose(incidence.sum(axis=-1) + d.survival([0.5, 1.0]), 1.0, rtol=1e-9)
