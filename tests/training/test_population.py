"""A member of a population equals the same network alone: evaluated, trained, and beside one that breaks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import small_networks
from sumosurv.networks import Inputs, select_members
from sumosurv.training import Rows, TrainingData, TrainingPlan, mean_log_likelihood, train
from sumosurv.training.loop import shuffled

SEEDS = (3, 7, 11)
N = 90


def data(n=N, seed=0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    time = rng.weibull(1.4, n) * np.exp(-0.5 * x[:, 0])
    return TrainingData(
        Inputs(torch.from_numpy(x).to(dtype), torch.from_numpy(rng.integers(1, 4, (n, 1)))),
        torch.from_numpy(time / time.max()).to(dtype),
        torch.from_numpy(rng.random(n) < 0.7),
    )


def plan(seeds=SEEDS, **options):
    settings = {
        "seeds": np.array(seeds),
        "learning_rate": np.array([0.02, 0.005, 0.01])[: len(seeds)],
        "weight_decay": np.array([0.0, 0.1, 0.3])[: len(seeds)],
        "max_epochs": 6,
        "batch_size": 16,
    }
    return TrainingPlan(**(settings | options))


def splits(members, n=N):
    """Each member its own rows, equally many."""
    orders = [np.random.default_rng(100 + k).permutation(n) for k in range(members)]
    return [np.sort(order[:60]) for order in orders], [np.sort(order[60:]) for order in orders]


def member(part: TrainingPlan, k: int) -> TrainingPlan:
    return dataclasses.replace(
        part,
        seeds=part.seeds[k : k + 1],
        learning_rate=part.learning_rate[k : k + 1],
        weight_decay=part.weight_decay[k : k + 1],
    )


def test_evaluated_alone_or_together():
    table = data()
    together = small_networks.network(SEEDS)
    value = together.log_likelihood(table.inputs.shared(), table.time[None], table.event[None])
    for k, seed in enumerate(SEEDS):
        alone = small_networks.network((seed,))
        picked = select_members(together, [k])
        for net in (alone, picked):
            one = net.log_likelihood(table.inputs.shared(), table.time[None], table.event[None])[0]
            torch.testing.assert_close(one, value[k], rtol=1e-10, atol=1e-12)
    mixture = together.distribution(table.inputs)
    alone = [small_networks.network((seed,)).distribution(table.inputs) for seed in SEEDS]
    each = torch.stack([d.log_density(own_times=table.time) for d in alone])
    torch.testing.assert_close(mixture.log_density(own_times=table.time), torch.logsumexp(each, 0) - np.log(3))


@pytest.mark.parametrize("kind", ["linear", "marginal"])
def test_trained_alone_or_together(kind):
    """Dropout on, own rates, own decay, own rows, own shuffles: the weights agree to 1e-6 in float64."""
    table, (train_rows, valid_rows) = data(), splits(3)
    options = {"dropout": 0.4, "noise": 0.0, "kind": kind}
    together = small_networks.network(SEEDS, **options)
    history = train(together, table, Rows.of(train_rows), Rows.of(valid_rows), plan())
    for k, seed in enumerate(SEEDS):
        alone = small_networks.network((seed,), **options)
        own = train(alone, table, Rows.of([train_rows[k]]), Rows.of([valid_rows[k]]), member(plan(), k))
        assert own.best_epoch[0] == history.best_epoch[k]
        np.testing.assert_allclose([v[0] for v in own.valid], [v[k] for v in history.valid], rtol=1e-7)
        for one, many in zip(alone.parameters(), together.parameters()):
            torch.testing.assert_close(one[0], many[k], rtol=1e-6, atol=1e-6)


def test_training_changes_the_weights_and_dropout_matters():
    table, (train_rows, valid_rows) = data(), splits(3)
    results = []
    for dropout in (0.0, 0.4):
        net = small_networks.network(SEEDS, dropout=dropout, noise=0.0)
        start = mean_log_likelihood(net, table, Rows.of(valid_rows))
        history = train(net, table, Rows.of(train_rows), Rows.of(valid_rows), plan())
        assert (torch.from_numpy(history.best_valid) > start).all()
        results.append(torch.cat([p.flatten() for p in net.parameters()]))
    assert not torch.allclose(*results)


def test_a_broken_member_does_not_touch_the_others():
    table, (train_rows, valid_rows) = data(), splits(3)
    options = {"dropout": 0.2, "noise": 0.0}
    clean = small_networks.network(SEEDS, **options)
    train(clean, table, Rows.of(train_rows), Rows.of(valid_rows), plan())
    broken = small_networks.network(SEEDS, **options)
    with torch.no_grad():
        for p in broken.parameters():
            p[1] = torch.nan
    with pytest.warns(RuntimeWarning, match=r"Members 1 had no finite likelihood and are left out.*learning_rate"):
        history = train(broken, table, Rows.of(train_rows), Rows.of(valid_rows), plan())
    assert history.failed.tolist() == [False, True, False]
    for ours, theirs in zip(broken.parameters(), clean.parameters()):
        assert torch.equal(ours[[0, 2]], theirs[[0, 2]])
        assert torch.isfinite(ours[[0, 2]]).all()
    values = broken.log_likelihood(table.inputs.shared(), table.time[None], table.event[None])
    assert torch.isfinite(values[[0, 2]]).all()
    assert torch.isnan(values[1]).all()


def test_shuffles_are_permutations_of_each_member_s_rows():
    rows = Rows.of([np.arange(50), np.arange(100, 130), np.arange(7)])
    seeds = torch.tensor(SEEDS)
    first, second = shuffled(rows, seeds, 0), shuffled(rows, seeds, 1)
    for k, expected in enumerate([range(50), range(100, 130), range(7)]):
        for order in (first, second):
            assert sorted(order.index[k][order.present[k]].tolist()) == list(expected)
            assert order.present[k, : len(expected)].all()  # padding goes last
        assert not torch.equal(first.index[k], second.index[k])
    assert torch.equal(first.index, shuffled(rows, seeds, 0).index)
    same = shuffled(Rows.of([np.arange(50)] * 3), seeds, 0).index
    assert not torch.equal(same[0], same[1])
    alone = shuffled(Rows.of([np.arange(50)]), seeds[1:2], 0).index
    assert torch.equal(alone[0], same[1])
