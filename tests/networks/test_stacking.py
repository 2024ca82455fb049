"""Networks of different shapes in one population compute what each computes alone."""

from functools import partial

import numpy as np
import pytest
import torch

from small_networks import terms, trained
from sumosurv import PaperSumoNet, SumoNet, Surv, WeibullNet
from sumosurv.fitting.plan import FitPlan
from sumosurv.networks.stacking import extract_members, stack_members, unstack_members

SHAPES = [((8,), (8,)), ((16, 16), (8, 8, 8)), ((8, 8, 8), (16,)), ((16, 16, 16), (16, 16, 16))]


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3))
    y = Surv.from_arrays(random.random(200) < 0.7, random.weibull(1.5, 200) * np.exp(0.5 * X[:, 0]))
    return X, y


def made(rows, covariate, mixed, seed, make=SumoNet, dropout=0.0, **options):
    estimator = make(covariate_layers=covariate, time_layers=mixed, dropout=dropout, device="cpu", **options)
    return built(estimator, rows, seed)


def built(estimator, rows, seed):
    plan, prepared = FitPlan(estimator), estimator._read(*rows)
    return plan.build(plan.learn(prepared), np.array([seed])), prepared


def stacked(rows, **options):
    parts = [made(rows, *shape, seed, **options)[0] for seed, shape in enumerate(SHAPES)]
    template, prepared = made(rows, (16,) * 3, (16,) * 3, 99, **options)
    return parts, stack_members(parts, template), prepared.table


def log_likelihood(network, data):
    return terms(network.eval(), data.inputs.shared(), data.outcome.time[None], data.outcome.event[None])


MAKERS = [SumoNet, *(partial(PaperSumoNet, positive=positive) for positive in ("square", "softplus", "abs"))]


@pytest.mark.parametrize("make", MAKERS)
def test_stacked_networks_compute_what_they_compute_alone(rows, make):
    parts, population, data = stacked(rows, make=make)
    together = log_likelihood(population, data)
    alone = torch.cat([log_likelihood(part, data) for part in parts])
    assert together.shape == (len(SHAPES), 200)
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
def test_padding_stays_absent_while_training(rows, make):
    """Members of a stack train as they do alone: without dropout their paths agree."""
    parts, population, data = stacked(rows, make=make)
    seeds = np.arange(len(SHAPES))

    def run(network, seeds):
        rows = [np.arange(200)] * len(seeds)
        trained(network, data, rows, None, seeds=seeds, learning_rate=0.01, max_epochs=5, batch_size=50)
        return log_likelihood(network, data).detach()

    together = run(population, seeds)
    alone = torch.cat([run(part, seeds[i : i + 1]) for i, part in enumerate(parts)])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-3)
    weight = population.encoder.layers[0].weight
    assert (weight[0, :, 8:] == 0).all()  # the first member has eight units, and still has
    assert (weight[0, :, :8] != 0).any()


def test_members_leave_the_stack_in_their_own_shape(rows):
    parts, population, data = stacked(rows)
    for place, (shape, part) in enumerate(zip(SHAPES, parts)):
        narrow, _ = made(rows, *shape, 7)
        back = extract_members(population, [place], narrow)
        torch.testing.assert_close(log_likelihood(back, data), log_likelihood(part, data), rtol=1e-6, atol=1e-6)


def test_some_members_of_a_stack(rows):
    parts, population, data = stacked(rows)
    chosen = unstack_members(population, [2, 0])
    expected = torch.cat([log_likelihood(parts[2], data), log_likelihood(parts[0], data)])
    torch.testing.assert_close(log_likelihood(chosen, data), expected, rtol=1e-5, atol=1e-5)


def test_tables_that_differ_get_one_entry_per_member(rows):
    """Two networks fitted to different rows keep their own time features beside each other."""
    X, y = rows
    late = Surv.from_arrays(y["event"], y["time"] ** 2 + 1.0)
    first, prepared = made((X, y), (8,), (8,), 1)
    second, other = made((X, late), (8,), (8,), 2)
    template, _ = made((X, y), (8,), (8,), 3)
    population = stack_members([first, second], template)
    assert population.mixed.features.table.shape[0] == 2
    for network, data, place in ((first, prepared.table, 0), (second, other.table, 1)):
        together = log_likelihood(population, data)[place]
        torch.testing.assert_close(together, log_likelihood(network, data)[0], rtol=1e-5, atol=1e-5)


def test_other_networks_stack_too(rows):
    X, y = rows
    parts = []
    for seed, layers in enumerate([(8,), (16, 16)]):
        estimator = WeibullNet(covariate_layers=layers, dropout=0.0, device="cpu")
        parts.append(built(estimator, (X, y), seed)[0])
    template, prepared = built(WeibullNet(covariate_layers=(16, 16), dropout=0.0, device="cpu"), (X, y), 5)
    population, data = stack_members(parts, template), prepared.table
    expected = torch.cat([log_likelihood(part, data) for part in parts])
    torch.testing.assert_close(log_likelihood(population, data), expected, rtol=1e-5, atol=1e-5)


def test_padding_to_the_width_of_the_inputs_joins_nothing(rows):
    """Three columns and five features of each make the inputs as wide as the padded layers."""
    X, y = rows
    narrow, prepared = made((X, y), (8, 8), (8,), 1, frequencies=4)
    assert narrow.encoder.n_in == 15
    template, _ = made((X, y), (15, 15), (15,), 2, frequencies=4)
    population = stack_members([narrow], template)
    torch.testing.assert_close(
        log_likelihood(population, prepared.table), log_likelihood(narrow, prepared.table), rtol=1e-5, atol=1e-5
    )
