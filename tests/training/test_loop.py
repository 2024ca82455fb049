"""The training function: best weights, patience, interruption, failures, odd batches, repeatability."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import small_networks
from small_networks import trained
from sumosurv.networks import Inputs, Observed, Rows, Table
from sumosurv.training import TrainingError, loop
from sumosurv.training.batches import Member, TableBatches
from sumosurv.training.loop import mean_terms

SEEDS = (0, 1, 2)


def data(n=80, seed=0, event_share=0.7, dtype=torch.float32):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    time = rng.weibull(1.4, n) * np.exp(-0.5 * x[:, 0])
    codes = torch.from_numpy(rng.integers(0, 4, (n, 1)))
    observed = Observed(torch.from_numpy(rng.random(n) < event_share), torch.from_numpy(time / time.max()).to(dtype))
    return Table(Inputs(torch.from_numpy(x).to(dtype), codes), observed)


def network(seeds=SEEDS, **options):
    return small_networks.network(seeds, **({"noise": 0.0} | options)).float()


def train(net, table, fit, valid, *, members=3, **options):
    return trained(net, table, fit, valid, **({"seeds": range(members)} | options))


def rows(members=3, train_rows=range(60), valid_rows=range(60, 80)):
    return [np.array(train_rows)] * members, [np.array(valid_rows)] * members


def weights(net):
    return torch.cat([p.detach().reshape(len(p), -1) for p in net.parameters()], dim=1)


def test_each_member_ends_with_its_best_epoch():
    table, (fit, valid) = data(), rows()
    net = network(dropout=0.2)
    history = train(net, table, fit, valid, learning_rate=np.array([0.3, 0.003, 0.1]))
    scores = np.array(history.valid)
    np.testing.assert_array_equal(history.best_epoch, scores.argmax(0))
    np.testing.assert_array_equal(history.best_valid, scores.max(0))
    assert len(set(history.best_epoch.tolist())) > 1
    np.testing.assert_allclose(mean_terms(net, table, Rows.of(valid)).numpy(), history.best_valid, rtol=1e-6)
    assert not net.training


def test_members_that_stop_together_keep_the_epoch_that_is_best_for_all_their_rows():
    table, fit, valid = data(), [np.arange(50)] * 2, [np.arange(50, 55), np.arange(55, 80)]
    rates = np.array([0.3, 0.005])
    net = network((0, 1), dropout=0.2)
    history = train(net, table, fit, valid, members=2, learning_rate=rates, stops_together=True)
    scores = np.array(history.valid)
    pooled = (5 * scores[:, 0] + 25 * scores[:, 1]) / 30
    assert history.best_epoch.tolist() == [pooled.argmax()] * 2
    assert history.best_valid == pytest.approx(pooled.max(), rel=1e-9)
    assert len(set(scores.argmax(0))) == 2  # or the test could not tell


def test_mean_terms_are_the_mean_over_each_member_s_rows(monkeypatch):
    table = data(dtype=torch.float64)
    net = small_networks.network(SEEDS)
    own = [np.arange(10), np.arange(5, 80), np.array([3])]
    monkeypatch.setattr(type(net), "validation_rows", 7)
    got = mean_terms(net, table, Rows.of(own))
    for k, part in enumerate(own):
        seen = table.outcome[part]
        value = small_networks.terms(net, table.inputs[part].shared(), seen.time[None], seen.event[None])
        assert float(got[k]) == pytest.approx(float(value[k].detach().mean()), rel=1e-12)


def test_bit_for_bit_repeatable():
    table, (fit, valid) = data(), rows()
    results = []
    for _ in range(2):
        net = network(dropout=0.3)
        history = train(net, table, fit, valid)
        results.append((weights(net), np.array(history.train), np.array(history.valid)))
    assert torch.equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    np.testing.assert_array_equal(results[0][2], results[1][2])


def test_the_global_generator_plays_no_part():
    table, (fit, valid) = data(), rows()
    results = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (the point is that it does not matter)
        net = network(dropout=0.3)
        train(net, table, fit, valid, max_epochs=2)
        results.append(weights(net))
    assert torch.equal(*results)


def test_learning_rate_and_decay_are_each_member_s_own():
    table, (fit, _) = data(), rows()
    net = network((5, 5, 5))
    start = weights(net)
    rates = np.array([1e-9, 0.01, 0.05])
    train(net, table, fit, None, seeds=[5, 5, 5], learning_rate=rates, max_epochs=2)
    moved = (weights(net) - start).norm(dim=1)
    assert moved[0] < 1e-4 < moved[1] < moved[2]
    heavy = network((5, 5))
    decays = np.array([0.0, 30.0])
    train(heavy, table, rows(2)[0], None, seeds=[5, 5], weight_decay=decays)
    assert weights(heavy)[1].norm() < 0.5 * weights(heavy)[0].norm()


@pytest.mark.parametrize("patience", [0, 2, 4])
def test_patience_counts_epochs_since_the_best(patience, monkeypatch):
    """Scores by script: member 0 peaks at epoch 1, member 1 at epoch 3; a later record comes too late."""
    script = [
        [0.0, 0.0],
        [5.0, 1.0],
        [4.0, 2.0],
        [4.0, 3.0],
        [4.0, 2.0],
        [4.0, 2.0],
        [4.0, 2.0],
        [9.0, 9.0],
        [0.0, 0.0],
    ]
    calls = iter(script)
    monkeypatch.setattr(loop, "mean_terms", lambda *_: torch.tensor(next(calls), dtype=torch.float64))
    history = train(network((0, 1)), data(), *rows(2), members=2, max_epochs=9, patience=patience)
    if patience < 4:
        assert history.best_epoch.tolist() == [1, 3]
        assert len(history.valid) == 3 + patience + 2
    else:
        assert history.best_epoch.tolist() == [1, 7]  # six epochs are too many for one, four are not for the other
    assert len(history.train) == len(history.valid)


def test_without_patience_all_epochs_are_trained():
    history = train(network(), data(), *rows(), max_epochs=12, learning_rate=np.full(3, 0.5))
    assert len(history.train) == 12


def test_without_validation_the_last_weights_are_kept_or_those_of_stop_after():
    table, (fit, _) = data(), rows()
    snapshots = {}
    for epochs in (1, 3, 8):
        net = network()
        history = train(net, table, fit, None, max_epochs=8, stop_after=np.full(3, epochs - 1))
        assert len(history.train) == epochs
        assert history.valid == []
        snapshots[epochs] = weights(net)
    mixed = network()
    history = train(mixed, table, fit, None, max_epochs=8, stop_after=np.array([0, 2, 7]))
    assert history.best_epoch.tolist() == [0, 2, 7]
    for k, epochs in enumerate((1, 3, 8)):
        assert torch.equal(weights(mixed)[k], snapshots[epochs][k])
    last = network()
    train(last, table, fit, None, max_epochs=8)
    assert torch.equal(weights(last), snapshots[8])


# ---------------------------------------------------------------------- Ctrl-C


def interrupt_at(monkeypatch, epoch):
    calls, real = iter(range(100)), mean_terms

    def scripted(*arguments):
        if next(calls) == epoch:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(loop, "mean_terms", scripted)


def test_ctrl_c_keeps_the_best_weights(monkeypatch):
    table, (fit, valid) = data(), rows()
    interrupt_at(monkeypatch, 3)
    net = network()
    history = train(net, table, fit, valid)
    assert history.interrupted
    assert len(history.train) == len(history.valid) == 3
    monkeypatch.undo()
    np.testing.assert_allclose(
        mean_terms(net, table, Rows.of(valid)).numpy(), np.array(history.valid).max(0), rtol=1e-6
    )
    np.testing.assert_array_equal(history.best_epoch, np.array(history.valid).argmax(0))


def test_ctrl_c_keeps_those_that_work_beside_one_that_failed(monkeypatch):
    table, (fit, valid) = data(), rows()
    interrupt_at(monkeypatch, 2)
    with pytest.warns(RuntimeWarning, match="Members 1 had no finite likelihood"):
        history = train(network(), table, fit, valid, learning_rate=np.array([0.02, 1e30, 0.02]))
    assert history.interrupted
    assert history.failed.tolist() == [False, True, False]


def test_ctrl_c_before_there_is_anything_to_keep(monkeypatch):
    interrupt_at(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        train(network(), data(), *rows())


# ---------------------------------------------------------------------- trouble


def test_no_finite_likelihood_names_the_members_and_a_remedy():
    table = data()
    table.outcome.time[:] = torch.nan
    with pytest.raises(TrainingError, match=r"\(0, 1, 2\).*learning_rate.*extreme"):
        train(network(), table, *rows())
    with pytest.raises(TrainingError, match=r"any member \(0, 1, 2\)"):
        train(network(), table, rows()[0], None)


def test_a_rate_that_throws_one_member_out_leaves_the_others():
    table = data()
    net = network()
    with pytest.warns(RuntimeWarning, match="Members 1 had no finite"):
        history = train(net, table, *rows(), learning_rate=np.array([0.02, 1e30, 0.02]))
    assert history.failed.tolist() == [False, True, False]
    assert torch.isfinite(weights(net)[[0, 2]]).all()


def test_one_bad_row_does_not_stop_the_members_that_do_not_see_it():
    table = data()
    table.inputs.numeric[5] = torch.nan
    fit = [np.arange(60), np.setdiff1d(np.arange(60), [5])]
    valid = [np.arange(60, 80)] * 2
    with pytest.warns(RuntimeWarning, match="Members 0"):
        history = train(network((0, 1)), table, fit, valid, members=2, batch_size=1000)
    assert history.failed.tolist() == [True, False]


def test_a_member_is_given_up_after_three_epochs_in_a_row_without_a_step(monkeypatch):
    """Two such epochs, again and again, are not enough."""
    moves = iter([True, False, False, True, False, False, True, False, False, False, True, True])
    real = loop.TrainingStep.end_epoch

    def scripted(step):
        likelihood, moved = real(step)
        return likelihood, torch.full_like(moved, next(moves))

    monkeypatch.setattr(loop.TrainingStep, "end_epoch", scripted)
    history = train(network((0,)), data(), *rows(1), members=1, max_epochs=12)
    assert len(history.train) == 10


@pytest.mark.parametrize("event_share", [-1.0, 0.05, 2.0])
@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_batches_without_events_and_of_one(event_share, batch_size):
    table, (fit, valid) = data(event_share=event_share), rows()
    history = train(network(), table, fit, valid, batch_size=batch_size, max_epochs=2)
    assert np.isfinite(history.train).all()
    assert np.isfinite(history.valid).all()


def test_one_row():
    history = train(network(), data(), [np.array([4])] * 3, None)
    assert np.isfinite(history.train).all()


def test_members_with_different_numbers_of_rows():
    """Each trains as it does alone: the rows with which it is padded (row 0, and an odd one) have no part in it."""
    table = data(dtype=torch.float64)
    table.inputs.numeric[0] = 6.0
    fit, valid = (
        [np.arange(60), np.arange(20, 53), np.arange(4, 5)],
        [np.arange(60, 80), np.arange(60, 65), np.arange(3)],
    )
    together = small_networks.network(SEEDS, noise=0.0)
    history = train(together, table, fit, valid, batch_size=1000)
    for k in range(3):
        alone = small_networks.network((k,), noise=0.0)
        own = train(alone, table, [fit[k]], [valid[k]], seeds=[k], batch_size=1000)
        torch.testing.assert_close(weights(together)[k], weights(alone)[0], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose([v[k] for v in history.train], [v[0] for v in own.train], rtol=1e-9)
        np.testing.assert_allclose([v[k] for v in history.valid], [v[0] for v in own.valid], rtol=1e-9)


def test_batches_are_of_equal_size_and_cover_every_row():
    table, own = data(), rows()[0]
    fit, members = Rows.of(own), [Member(0, part, None, 0.02, 0.1) for part in own]
    batches = TableBatches(table, fit, members, 25)
    assert (batches.per_epoch, batches.size) == (3, 20)
    step = loop.TrainingStep(network(), batches, members, max_epochs=8)
    seen = []
    for batch in batches.epoch(0):
        step.load(batch)
        seen += step.index[0][step.present[0]].tolist()
    assert sorted(seen) == list(range(60))


def test_the_learning_rate_falls_along_a_cosine(monkeypatch):
    factors = []
    real = loop.TrainingStep.__call__

    def spy(step):
        take = step.optimiser.step
        step.optimiser.step = lambda loss, factor: factors.append(float(factor)) or take(loss, factor)
        real(step)
        step.optimiser.step = take

    monkeypatch.setattr(loop.TrainingStep, "__call__", spy)
    train(network(), data(), rows()[0], None, max_epochs=5, batch_size=30)
    np.testing.assert_allclose(factors, 0.5 * (1 + np.cos(np.pi * np.arange(10) / 10)), rtol=1e-5)


def test_the_progress_bar_writes_to_stderr_and_only_if_asked(capsys):
    train(network(), data(), *rows(), max_epochs=2)
    silent = capsys.readouterr()
    assert (silent.out, silent.err) == ("", "")
    train(network(), data(), *rows(), max_epochs=2, show_progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "training 3 networks" in shown.err
    assert "best valid" in shown.err
