"""What is asked of Ray, by a stand-in that runs every task at once in this process."""

from __future__ import annotations

import logging
import sys
import warnings
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import sumosurv
from sumosurv import NetworkSearch, WeibullNet, datasets
from sumosurv.cluster import Cluster, connected, map_blocks, ray_fit
from sumosurv.training import Checkpoints

DATA = datasets.simulate("weibull", 80, random_state=0)
SETTINGS = {"n_members": 1, "max_epochs": 2, "device": "cpu", "random_state": 0}


class TaskError(Exception):
    """As Ray's, it has the error of the task as its cause."""

    def __init__(self, cause):
        self.cause = cause


class LostError(Exception):
    """A worker was lost too often."""


class Reference:
    """The name of a result."""

    def __init__(self, number):
        self.number = number

    def hex(self):
        return str(self.number)


class StandIn(ModuleType):
    """The part of Ray that is used; the error of a task is raised when its result is fetched."""

    def __init__(self, resources=None, connected=False):
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayTaskError=TaskError, RayError=LostError)
        self.resources = {"CPU": 3.0} if resources is None else resources
        self.connected, self.events, self.store, self.remote_options = connected, [], {}, []
        self.waiting, self.most_waiting, self.lost = set(), 0, False

    def is_initialized(self):
        return self.connected

    def init(self, **options):
        self.events.append(("init", options))

    def shutdown(self):
        self.events.append(("shutdown", None))

    def cluster_resources(self):
        return self.resources

    def put(self, value):
        reference = Reference(len(self.store))
        self.store[reference.number] = value
        return reference

    def remote(self, function=None, **options):
        self.remote_options.append(options)
        if function is None:
            return lambda made: self.remote(made)

        def run(*arguments):
            given = [self.store[a.number] if isinstance(a, Reference) else a for a in arguments]
            try:
                made = function(*given)
            except ValueError as error:
                made = TaskError(error)
            reference = self.put(made)
            self.waiting.add(reference.number)
            self.most_waiting = max(self.most_waiting, len(self.waiting))
            return reference

        return SimpleNamespace(remote=run)

    def wait(self, references, num_returns):
        assert num_returns == 1
        return references[-1:], references[:-1]  # the last one is ready first

    def get(self, reference):
        self.waiting.discard(reference.number)
        if self.lost:
            raise LostError("gone")
        made = self.store[reference.number]
        if isinstance(made, TaskError):
            raise made
        return made

    def cancel(self, reference, force):
        self.events.append(("cancel", force))


@pytest.fixture
def ray(monkeypatch):
    made = StandIn()
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    return made


@pytest.mark.parametrize(
    ("given", "environment", "address"),
    [
        (None, None, "auto"),
        (None, "127.0.0.1:7", "127.0.0.1:7"),
        ("local", "127.0.0.1:7", "local"),
        ("auto", None, "auto"),
    ],
)
def test_a_connection_has_an_address_and_is_closed(ray, monkeypatch, given, environment, address):
    if environment:
        monkeypatch.setenv("RAY_ADDRESS", environment)
    with connected(Cluster(given)) as found:
        assert found is ray
        assert [name for name, _ in ray.events] == ["init"]
    options = ray.events[0][1]
    assert options.pop("address") == address
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    assert options == quiet | {"runtime_env": {"env_vars": {"RAY_USAGE_STATS_ENABLED": "0"}}} | (
        {"include_dashboard": False} if address == "local" else {}
    )
    assert [name for name, _ in ray.events] == ["init", "shutdown"]


def test_the_package_is_sent_if_asked(ray):
    with connected(Cluster("local", send_package=True)):
        sent = ray.events[0][1]["runtime_env"]["py_modules"]
    assert [Path(part) for part in sent] == [Path(sumosurv.__file__).parent]


def test_a_connection_that_exists_is_used_and_left_open(ray):
    ray.connected = True
    with connected(Cluster("10.0.0.7:6379")) as found:  # whose address is then of no importance
        assert found is ray
    assert ray.events == []


def test_a_cluster_that_does_not_respond_is_named(ray, monkeypatch):
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(RuntimeError("no head")))
    with pytest.raises(ConnectionError, match=r"at 127.0.0.1:1: no head"), connected(Cluster("127.0.0.1:1")):
        pass


@pytest.mark.parametrize("address", ["localhost:6379", "127.0.0.1:6379", "ray://127.0.0.2:10001", "[::1]:6379"])
def test_clusters_on_this_machine_need_no_tokens(ray, address):
    with connected(Cluster(address)):
        pass


def test_remote_clusters_are_used_with_tokens(ray, monkeypatch):
    for mode in (None, "other"):
        if mode:
            monkeypatch.setenv("RAY_AUTH_MODE", mode)
        with pytest.raises(ValueError, match="RAY_AUTH_MODE=token"), connected(Cluster("10.0.0.7:6379")):
            pass
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with connected(Cluster("10.0.0.7:6379")):
        assert ray.events[0][1]["address"] == "10.0.0.7:6379"


@pytest.mark.parametrize(
    ("resources", "gpu", "workers"),
    [({"CPU": 8.0}, False, 7), ({"CPU": 1.0}, False, 1), ({}, False, 1), ({"CPU": 8.0, "GPU": 2.0}, True, 2),
     ({"CPU": 8.0, "GPU": 2.0}, False, 7), ({"CPU": 8.0}, True, 1)],
)  # fmt: skip
def test_number_of_workers(resources, gpu, workers):
    assert Cluster().workers_of(StandIn(resources), gpu=gpu) == workers
    assert Cluster(workers=5).workers_of(StandIn(resources), gpu=gpu) == 5


def square(offset, block):
    if block < 0:
        warnings.warn("not heard here", stacklevel=1)
        raise ValueError(f"block {block}")
    return block**2 + offset


def test_blocks_are_mapped_in_their_order_and_few_at_a_time(ray):
    seen = []

    def blocks():
        for number in range(7):
            seen.append(number)
            yield number

    results = map_blocks(Cluster(workers=2), partial(square, 10), blocks())
    assert next(results) == 10
    assert seen == [0, 1, 2]  # the third is read as the first is returned
    assert list(results) == [11, 14, 19, 26, 35, 46]
    assert ray.most_waiting == 2
    assert ray.events[-1][0] == "shutdown"


def test_an_error_in_a_block_is_raised_as_it_was(ray):
    with pytest.raises(ValueError, match="block -1") as caught:
        list(map_blocks(Cluster(workers=2), partial(square, 0), [1, -1]))
    assert caught.value.__suppress_context__


def search(**options):
    chosen = {"space": {"dropout": [0.0, 0.2]}, "n_trials": 4, "trials_per_round": 2, "layout": "grouped"} | options
    return NetworkSearch(WeibullNet(max_epochs=2, device="cpu"), random_state=0, **chosen)


def test_a_search_on_a_cluster_finds_the_same(ray):
    here = search().fit(DATA.X, DATA.y)
    there = search(cluster=Cluster("local", workers=2, min_work=0)).fit(DATA.X, DATA.y)
    for name in ("trial", "valid_score"):
        assert list(there.cv_results_[name]) == list(here.cv_results_[name])
    np.testing.assert_array_equal(there.predict(DATA.X), here.predict(DATA.X))
    assert {"max_retries": 5, "num_cpus": 1} in ray.remote_options
    assert ray.events[-1][0] == "shutdown"


def test_a_search_on_gpus_gives_each_task_one(ray, monkeypatch):
    ray.resources = {"CPU": 8.0, "GPU": 2.0}
    chosen = {"space": {"dropout": [0.0]}, "n_trials": 1, "cluster": Cluster("local", min_work=0)}
    NetworkSearch(WeibullNet(max_epochs=1, device="auto"), random_state=0, **chosen).fit(DATA.X, DATA.y)
    assert {"max_retries": 5, "num_gpus": 1} in ray.remote_options
    ray.remote_options.clear()
    NetworkSearch(WeibullNet(max_epochs=1, device="cpu"), random_state=0, **chosen).fit(DATA.X, DATA.y)
    assert {"max_retries": 5, "num_cpus": 1} in ray.remote_options


def test_errors_of_trials_are_raised_and_the_connection_is_closed(ray, monkeypatch):
    def fails(*_):
        raise ValueError("no such network")

    monkeypatch.setattr("sumosurv.cluster.connect.train_members", fails)
    with pytest.raises(ValueError, match="no such network"):
        search(cluster=Cluster("local", workers=1, min_work=0)).fit(DATA.X, DATA.y)
    assert ray.events[-1][0] == "shutdown"
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ray", ray)
    ray.lost = True
    with pytest.raises(RuntimeError, match=r"lost 6 times .*\(gone\)"):
        search(cluster=Cluster("local", workers=1, min_work=0)).fit(DATA.X, DATA.y)
    assert ray.events[-1][0] == "shutdown"


@pytest.fixture
def ray_train(ray, monkeypatch):
    """Ray Train, which runs the function of a trainer once, in this process."""
    made = []

    class Trainer:
        def __init__(self, function, **options):
            made.append(options)
            self.run = partial(function, options["train_loop_config"])

        def fit(self):
            self.run()

    ray.train = ModuleType("ray.train")
    ray.train.get_context = lambda: SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1)
    ray.train.ScalingConfig = ray.train.RunConfig = ray.train.FailureConfig = lambda **options: options
    ray.train.torch = ModuleType("ray.train.torch")
    ray.train.torch.TorchTrainer, ray.train.torch.TorchConfig = Trainer, lambda **options: options
    ray.get = lambda reference: ray.store[reference.number]
    monkeypatch.setitem(sys.modules, "ray.train", ray.train)
    monkeypatch.setitem(sys.modules, "ray.train.torch", ray.train.torch)
    return made


@pytest.mark.parametrize(("workers", "asked"), [(1, 1), (3, (1, 3))])
def test_a_fit_on_a_cluster_is_that_of_this_machine(ray_train, ray, tmp_path, monkeypatch, workers, asked):
    trained = []
    fit = WeibullNet.fit
    monkeypatch.setattr(WeibullNet, "fit", lambda self, *a, **o: trained.append((self, o)) or fit(self, *a, **o))
    model = WeibullNet(**SETTINGS, verbose=True)
    folder = tmp_path / "new" / "kept"
    ray_fit(Cluster("local", workers=workers, min_work=0), model, DATA.X, DATA.y, checkpoint=Checkpoints(folder, 7.0))
    (options,) = ray_train
    assert options["scaling_config"] == {"num_workers": asked, "use_gpu": False}
    assert options["torch_config"] == {"backend": "gloo", "timeout_s": 600}
    run = options["run_config"]
    assert Path(run["storage_path"]).parent == folder
    assert Path(run["storage_path"]).is_dir()
    assert run["failure_config"] == {"max_failures": 10, "controller_failure_limit": 10}
    (there, its_options), (here, own_options) = trained
    assert (there.verbose, here) == (False, model)
    for given in (its_options, own_options):
        assert (Path(given["checkpoint"].folder), given["checkpoint"].seconds) == (folder, 7.0)
    monkeypatch.undo()
    alone = WeibullNet(**SETTINGS).fit(DATA.X, DATA.y)
    np.testing.assert_array_equal(model.predict(DATA.X), alone.predict(DATA.X))
    assert [name for name, _ in ray.events] == ["init", "shutdown"]


def test_the_smallest_fit_for_a_cluster_counts_rows_networks_and_epochs(ray_train, tmp_path):
    model = WeibullNet(**SETTINGS | {"n_members": 3})
    passes = 3 * 2 * len(DATA.X)
    with pytest.warns(UserWarning, match=f"{passes:,} passes .*fewer than {passes + 1:,}"):
        ray_fit(Cluster("local", min_work=passes + 1), model, DATA.X, DATA.y, checkpoint=tmp_path / "a")
    assert not ray_train
    ray_fit(Cluster("local", min_work=passes), model, DATA.X, DATA.y, checkpoint=str(tmp_path / "b"))
    assert len(ray_train) == 1


def test_a_fit_uses_the_gpus_of_a_cluster(ray_train, ray, tmp_path):
    ray.resources = {"CPU": 8.0, "GPU": 2.0}
    model = WeibullNet(**SETTINGS | {"device": "auto"})
    ray_fit(Cluster("local", min_work=0), model, DATA.X, DATA.y, checkpoint=tmp_path)
    assert ray_train[0]["scaling_config"] == {"num_workers": (1, 2), "use_gpu": True}
    assert ray_train[0]["torch_config"]["backend"] == "nccl"


def test_ctrl_c_cancels_the_tasks_of_a_search(ray, monkeypatch):
    monkeypatch.setattr(ray, "wait", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        search(cluster=Cluster("local", workers=2, min_work=0)).fit(DATA.X, DATA.y)
    assert ray.events[1:] == [("cancel", True)] * 2 + [("shutdown", None)]
