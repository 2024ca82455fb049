"""A member of a population equals the same network alone: evaluated, trained, and beside one that breaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import small_networks
from small_networks import terms, trained
from sumosurv.networks import Inputs, Observed, Rows, Table, select_members
from sumosurv.training.batches import shuffled
from sumosurv.training.loop import mean_terms

SEEDS = (3, 7, 11)
N = 90


def data(n=N, seed=0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    time = rng.weibull(1.4, n) * np.exp(-0.5 * x[:, 0])
    codes = torch.from_numpy(rng.integers(1, 4, (n, 1)))
    observed = Observed(torch.from_numpy(rng.random(n) < 0.7), torch.from_numpy(time / time.max()).to(dtype))
    return Table(Inputs(torch.from_numpy(x).to(dtype), codes), observed)


RATES, DECAYS = np.array([0.02, 0.005, 0.01]), np.array([0.0, 0.1, 0.3])


def train(net, table, fit, valid, places=(0, 1, 2)):
    """Members by their places: with their seeds, learning rates and weight decays."""
    own = list(places)
    options = {"learning_rate": RATES[own], "weight_decay": DECAYS[own], "max_epochs": 6}
    return trained(net, table, fit, valid, seeds=[SEEDS[k] for k in own], **options)


def splits(members, n=N):
    """Each member its own rows, equally many."""
    orders = [np.random.default_rng(100 + k).permutation(n) for k in range(members)]
    return [np.sort(order[:60]) for order in orders], [np.sort(order[60:]) for order in orders]


def all_terms(net, table):
    return terms(net, table.inputs.shared(), table.outcome.time[None], table.outcome.event[None])


def test_evaluated_alone_or_together():
    table = data()
    together = small_networks.network(SEEDS)
    value = all_terms(together, table)
    for k, seed in enumerate(SEEDS):
        alone = small_networks.network((seed,))
        picked = select_members(together, [k])
        for net in (alone, picked):
            one = all_terms(net, table)[0]
            torch.testing.assert_close(one, value[k], rtol=1e-10, atol=1e-12)
    mixture, time = together.distribution(table.inputs), table.outcome.time
    each = [small_networks.network((seed,)).distribution(table.inputs).log_density(own_times=time) for seed in SEEDS]
    torch.testing.assert_close(mixture.log_density(own_times=time), torch.logsumexp(torch.stack(each), 0) - np.log(3))


@pytest.mark.parametrize("kind", ["linear", "marginal"])
def test_trained_alone_or_together(kind):
    """Dropout on, own rates, own decay, own rows, own shuffles: the weights agree to 1e-6 in float64."""
    table, (train_rows, valid_rows) = data(), splits(3)
    options = {"dropout": 0.4, "noise": 0.0, "kind": kind}
    together = small_networks.network(SEEDS, **options)
    history = train(together, table, train_rows, valid_rows)
    for k, seed in enumerate(SEEDS):
        alone = small_networks.network((seed,), **options)
        own = train(alone, table, [train_rows[k]], [valid_rows[k]], places=(k,))
        assert own.best_epoch[0] == history.best_epoch[k]
        np.testing.assert_allclose([v[0] for v in own.valid], [v[k] for v in history.valid], rtol=1e-7)
        for one, many in zip(alone.parameters(), together.parameters()):
            torch.testing.assert_close(one[0], many[k], rtol=1e-6, atol=1e-6)


def test_training_changes_the_weights_and_dropout_matters():
    table, (train_rows, valid_rows) = data(), splits(3)
    results = []
    for dropout in (0.0, 0.4):
        net = small_networks.network(SEEDS, dropout=dropout, noise=0.0)
        start = mean_terms(net, table, Rows.of(valid_rows))
        history = train(net, table, train_rows, valid_rows)
        assert (torch.from_numpy(history.best_valid) > start).all()
        results.append(torch.cat([p.flatten() for p in net.parameters()]))
    assert not torch.allclose(*results)


def test_a_broken_member_does_not_touch_the_others():
    table, (train_rows, valid_rows) = data(), splits(3)
    options = {"dropout": 0.2, "noise": 0.0}
    clean = small_networks.network(SEEDS, **options)
    train(clean, table, train_rows, valid_rows)
    broken = small_networks.network(SEEDS, **options)
    with torch.no_grad():
        for p in broken.parameters():
            p[1] = torch.nan
    with pytest.warns(RuntimeWarning, match=r"Members 1 .*left out.*learning_rate"):
        history = train(broken, table, train_rows, valid_rows)
    assert history.failed.tolist() == [False, True, False]
    for ours, theirs in zip(broken.parameters(), clean.parameters()):
        assert torch.equal(ours[[0, 2]], theirs[[0, 2]])
        assert torch.isfinite(ours[[0, 2]]).all()
    values = all_terms(broken, table)
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
