"""Members that are trained in several threads have the same bits for every number of threads."""

import threading

import numpy as np
import pytest

from sumosurv import SumoNet, datasets
from sumosurv.networks import PopulationNetwork


@pytest.fixture(scope="module")
def rows():
    data = datasets.simulate("weibull", 157, random_state=0)
    return data.X, data.y


def fit(rows, n_jobs, **settings):
    return SumoNet(n_members=5, max_epochs=3, batch_size=45, random_state=0, n_jobs=n_jobs, **settings).fit(*rows)


@pytest.mark.parametrize("components", ["auto", "networks"])
def test_the_number_of_threads_does_not_change_the_bits(rows, components):
    one, two, many = (fit(rows, n_jobs, components=components) for n_jobs in (1, 2, 7))
    for other in (two, many):
        np.testing.assert_array_equal(one.history_["train"], other.history_["train"])
        np.testing.assert_array_equal(one.history_["valid"], other.history_["valid"])
        times = [0.2, 1.0]
        np.testing.assert_array_equal(
            one.predict_survival_function(rows[0], times), other.predict_survival_function(rows[0], times)
        )


def test_without_a_number_the_result_is_the_same_up_to_rounding(rows):
    one, none = fit(rows, 1), fit(rows, None)
    np.testing.assert_allclose(one.history_["valid"], none.history_["valid"], rtol=1e-4)


def test_each_thread_trains_some_of_the_networks(rows, monkeypatch):
    seen = set()
    plain = PopulationNetwork.train  # called by every part when its validation rows have been evaluated

    def train(network, mode=True):
        seen.add((threading.current_thread().name.startswith("sumosurv-step"), network.members))
        return plain(network, mode)

    monkeypatch.setattr(PopulationNetwork, "train", train)
    fit(rows, 2, components="networks")
    assert {(False, 2), (True, 3)} <= seen


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, "all"])
def test_other_numbers_of_threads_are_refused(rows, n_jobs):
    with pytest.raises(ValueError, match="n_jobs"):
        fit(rows, n_jobs)
