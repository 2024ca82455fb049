"""Several workers train what one process trains: shares of a batch, padding, dropout, early stopping."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
import torch

import small_networks
from small_networks import trained
from sumosurv import CoxCC, SumoNet, TrainingError, WeibullNet, datasets
from sumosurv.networks import Inputs, Observed, Rows, Table
from sumosurv.networks.recorded import RecordedNetwork
from sumosurv.training import Workers
from sumosurv.training.loop import mean_terms

SEEDS = (3, 7)


@dataclass(frozen=True)
class Threads(Workers):
    """Workers that are threads of one process, who sum in turn and in the order of their ranks."""

    values: dict = field(default_factory=dict, compare=False, repr=False)
    barrier: threading.Barrier = field(default=None, compare=False, repr=False)

    def start_sum(self, like):
        return lambda value: self._all(value, lambda values: torch.stack(values).sum(0))

    def check_agreement(self, text):
        if len(self._all(text, set)) > 1:
            raise TrainingError("different rows")

    def _all(self, value, combine):
        self.values[self.rank] = value
        self.barrier.wait(timeout=60)
        result = combine([self.values[rank] for rank in range(self.size)])
        self.barrier.wait(timeout=60)
        return result


def together(size, work):
    """What ``work(workers)`` gives in each of so many threads."""
    values, barrier, results, errors = {}, threading.Barrier(size), [None] * size, []

    def run(rank):
        try:
            results[rank] = work(Threads(rank, size, values, barrier))
        except Exception as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if own:
        raise own[0]
    return results


def table(n=70, weighted=True):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(n, 3)))
    time = torch.from_numpy(rng.weibull(1.4, n) * np.exp(-0.5 * x[:, 0].numpy()))
    weight = torch.from_numpy(rng.uniform(0.5, 2.0, n)) if weighted else None
    codes = torch.from_numpy(rng.integers(0, 4, (n, 1)))
    return Table(Inputs(x, codes), Observed(torch.from_numpy(rng.random(n) < 0.7), time / time.max(), weight=weight))


def weights(net):
    return torch.cat([p.detach().reshape(len(p), -1) for p in net.parameters()], dim=1).numpy()


@pytest.mark.parametrize("size", [2, 3])
def test_workers_train_what_one_process_trains(size):
    """In double precision, with padding (members of different numbers of rows), weights and dropout."""
    fit, valid = [np.arange(50), np.arange(20, 57)], [np.arange(50, 70), np.arange(57, 70)]
    options = {"seeds": SEEDS, "max_epochs": 5, "batch_size": 17, "learning_rate": 0.03}
    alone = small_networks.network(SEEDS, dropout=0.3)
    one = trained(alone, table(), fit, valid, **options)

    def work(workers):
        own = small_networks.network(SEEDS, dropout=0.3)
        return own, trained(own, table(), fit, valid, workers=workers, **options)

    for net, history in together(size, work):
        np.testing.assert_allclose(weights(net), weights(alone), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(np.array(history.train), np.array(one.train), rtol=1e-9)
        np.testing.assert_allclose(np.array(history.valid), np.array(one.valid), rtol=1e-9)
        np.testing.assert_array_equal(history.best_epoch, one.best_epoch)


def test_more_workers_than_rows_of_a_batch():
    fit = [np.arange(7)]
    options = {"seeds": [0], "max_epochs": 2, "batch_size": 2, "valid": [np.arange(7, 9)]}
    alone = small_networks.network((0,))
    trained(alone, table(9), fit, **options)

    def work(workers):
        own = small_networks.network((0,))
        trained(own, table(9), fit, workers=workers, **options)
        return own

    for net in together(3, work):
        np.testing.assert_allclose(weights(net), weights(alone), rtol=1e-7, atol=1e-9)


def test_validation_rows_are_shared_out(monkeypatch):
    net, data, rows = small_networks.network(SEEDS), table(), Rows.of([np.arange(61), np.arange(5)])
    expected = mean_terms(net, data, rows)
    seen = []
    counted = RecordedNetwork.terms
    monkeypatch.setattr(RecordedNetwork, "terms", lambda self: seen.append(self.index.shape[1]) or counted(self))
    for got in together(2, lambda workers: mean_terms(net, data, rows, workers)):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=0.0)
    assert sorted(seen) == [30, 31]


def test_a_fit_of_several_components_by_two_workers_is_that_of_one():
    data = datasets.simulate("weibull", 120, random_state=0)
    alone = SumoNet(max_epochs=3, random_state=0).fit(data.X, data.y)

    def work(workers):
        return SumoNet(max_epochs=3, random_state=0).fit(data.X, data.y, workers=workers)

    expected = alone.score(data.X, data.y)
    first, second = together(2, work)
    assert first.score(data.X, data.y) == pytest.approx(expected, abs=1e-5)
    pd.testing.assert_frame_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.predict_median(data.X), second.predict_median(data.X))


def test_workers_with_different_seeds_are_told():
    data = datasets.simulate("weibull", 60, random_state=0)

    def work(workers):
        WeibullNet(n_members=1, max_epochs=2, random_state=workers.rank).fit(data.X, data.y, workers=workers)

    with pytest.raises(TrainingError, match="different rows"):
        together(2, work)


def test_what_cannot_be_shared_is_refused():
    data = datasets.simulate("weibull", 60, random_state=0)

    def encoder():
        return torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.BatchNorm1d(4))

    with pytest.raises(ValueError, match="in one process"):
        CoxCC(n_members=1, max_epochs=2).fit(data.X, data.y, workers=Workers(0, 2))
    with pytest.raises(ValueError, match="layer normalisation"):
        WeibullNet(n_members=1, max_epochs=2, encoder=encoder).fit(data.X, data.y, workers=Workers(0, 2))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shares_make_the_whole(size):
    for n in (0, 1, 5, 23):
        parts = [range(n)[Workers(rank, size).share(n)] for rank in range(size)]
        assert [place for part in parts for place in part] == list(range(n))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
