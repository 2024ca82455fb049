"""Several populations in work at once, which come back in any order: the same trials, each told once."""

from __future__ import annotations

import numpy as np
import pytest

from sumosurv import NetworkSearch, WeibullNet, datasets
from sumosurv.search import rounds
from sumosurv.search.executor import Executor, TrialMember

SPACE = {"dropout": [0.0, 0.2, 0.4], "covariate_layers": [(4,), (8,)]}


class LastFirst(Executor):
    """An executor with a capacity of three tasks that returns the last one first."""

    capacity = 3
    most = 0

    def next_result(self):
        type(self).most = max(self.most, self.pending)
        self._tasks.rotate(1)
        return super().next_result()


def fitted(**options):
    data = datasets.simulate("weibull", 120, random_state=0)
    settings = {"space": SPACE, "n_trials": 7, "layout": "grouped", "random_state": 0} | options
    return NetworkSearch(WeibullNet(max_epochs=3), **settings).fit(data.X, data.y)


class ThreeAtOnce:
    """A cluster whose executor is `LastFirst`."""

    def __init__(self):
        self.executor_class = type("Executor", (LastFirst,), {})

    def executor(self, jobs, widest, advance, passes):
        assert passes > 0
        return self.executor_class(jobs, widest, advance)


@pytest.fixture
def cluster():
    return ThreeAtOnce()


@pytest.mark.parametrize("options", [{}, {"trials_per_round": 2}, {"method": "halving"}, {"refit": True}, {"cv": 2}])
def test_any_order_gives_the_same_search(cluster, options):
    many = fitted(cluster=cluster, **options)
    assert cluster.executor_class.most > 1
    alone = fitted(**options)
    np.testing.assert_array_equal(many.cv_results_["trial"], alone.cv_results_["trial"])
    np.testing.assert_allclose(many.cv_results_["valid_score"], alone.cv_results_["valid_score"], atol=1e-6)
    X = datasets.simulate("weibull", 20, random_state=1).X
    np.testing.assert_allclose(many.predict_median(X), alone.predict_median(X), rtol=1e-4)


def test_each_trial_is_told_once(cluster, tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="stored studies need Optuna")
    from sumosurv.search.study import OptunaStudy

    told, tell = [], OptunaStudy.tell
    monkeypatch.setattr(
        OptunaStudy, "tell", lambda self, number, score: told.append(number) or tell(self, number, score)
    )
    search = fitted(storage=tmp_path / "study.db", trials_per_round=2, cluster=cluster)
    assert sorted(told) == list(range(7))
    assert told != sorted(told)  # they came in another order
    assert search.cv_results_["trial"].tolist() == list(range(7))


def test_parts_keep_the_networks_of_a_trial_together():
    rows = np.arange(3)
    members = [TrialMember(trial, {}, 0, 0, rows, rows) for trial in (4, 5, 6, 7, 8) for _ in range(2)]
    for count in (1, 2, 5, 9):
        parts = rounds._split_by_trial(members, count)
        assert len(parts) == min(count, 5)
        assert [member.trial for part in parts for member in part] == [member.trial for member in members]
        sizes = [len({member.trial for member in part}) for part in parts]
        assert max(sizes) - min(sizes) <= 1
