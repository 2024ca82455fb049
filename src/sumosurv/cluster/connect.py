"""A Ray cluster: connecting to it, when it is used, and running trials of a search and blocks of rows on it."""

from __future__ import annotations

import ipaddress
import logging
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sumosurv.search.executor import Advance, Executor, Job, Population, Result, Task, Widths, train_members
from sumosurv.warn import warn_user

_RETRIES = 5  # of a task whose worker or node was lost

# Less work than this is done locally. At about this amount, two workers took as long as one process, including the time
# to connect and to start workers (benchmarks/cluster.py; results in docs/large_data_evidence.md).
SMALLEST_PASSES = 5_000_000  # rows × networks (or trials) × epochs of a fit or a search
SMALLEST_ROWS = 500_000  # rows of a prediction


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and how it is used (extra ``ray``).

    Parameters
    ----------
    address : str, optional
        ``HOST:PORT`` of the head node, "auto" for the cluster that runs on this machine, or "local" for a temporary
        cluster on this machine. By default $RAY_ADDRESS if set, otherwise "auto".
    workers : int, optional
        Number of worker processes. By default one per GPU, or one fewer than CPUs if there are no GPUs.
    min_work : int, optional
        Work below which the cluster is not used: passes over rows (rows × networks × epochs) of fits and searches, or
        rows of predictions. By default 5 million and 500,000; 0 always uses the cluster.
    send_package : bool, default False
        Whether to send this package to the workers. Otherwise it must be installed there in the same version.
    """

    address: str | None = None
    workers: int | None = None
    min_work: int | None = None
    send_package: bool = False

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be an integer of at least 1; got {self.workers!r}.")

    def too_small(self, *, passes: int = 0, rows: int = 0) -> bool:
        """Whether this work is faster without the cluster; issues a warning if so."""
        least = (SMALLEST_PASSES if passes else SMALLEST_ROWS) if self.min_work is None else self.min_work
        if (passes or rows) >= least:
            return False
        what = f"{passes:,} passes over rows (rows x networks x epochs)" if passes else f"{rows:,} rows"
        warn_user(
            f"The cluster is not used: {what} are fewer than {least:,}, below which a cluster costs more time than it "
            "saves."
        )
        return True

    def workers_of(self, ray: Any, *, gpu: bool) -> int:
        """The number of worker processes: the setting, or what the cluster has resources for."""
        if self.workers is not None:
            return self.workers
        resources = ray.cluster_resources()
        return max(1, int(resources.get("GPU", 0)) if gpu else int(resources.get("CPU", 1)) - 1)

    def executor(self, jobs: Sequence[Job], widest: Widths, advance: Advance, passes: int) -> Executor | None:
        """An executor for the trials of a search; None if the search is too small."""
        return None if self.too_small(passes=passes) else RayExecutor(self, jobs, widest, advance)


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """Connect to a cluster and yield the module ``ray``; disconnect at the end unless already connected before."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no usage statistics
    try:
        import ray
    except ModuleNotFoundError:
        raise ModuleNotFoundError("A cluster requires Ray: pip install 'sumosurv[ray]'.") from None
    if ray.is_initialized():
        yield ray
        return
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "auto"
    _check_safe(address)
    runtime: dict[str, Any] = {"env_vars": {"RAY_USAGE_STATS_ENABLED": "0"}}
    if cluster.send_package:
        runtime["py_modules"] = [str(Path(__file__).parents[1])]
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, runtime_env=runtime, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConnectionError(f"No Ray cluster responds at {address}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_safe(address: str) -> None:
    """Raise ValueError for a remote cluster without Ray's tokens: anyone who can reach it could run code on it."""
    host = address.removeprefix("ray://").rpartition(":")[0].strip("[]")
    if address in ("auto", "local") or host == "localhost":
        return
    try:
        near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = False
    if not near and os.environ.get("RAY_AUTH_MODE") != "token":
        raise ValueError(
            f"The cluster at {address} is not on this machine and RAY_AUTH_MODE is not 'token': anyone who can reach "
            "it could run code on it; start it, and this program, with RAY_AUTH_MODE=token (docs/distributed.md)."
        )


# ---------------------------------------------------------------------- trials of a search

_jobs: dict[str, list[Job]] = {}  # the jobs of the last search that this worker has seen


def _train(key: str, jobs: list[Job], task: Task, widest: Widths) -> list[Population]:
    """Run one task in a worker, which reads the rows once per search."""
    if key not in _jobs:
        _jobs.clear()
        _jobs[key] = jobs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the process that started the search issues them
        populations, _ = train_members(task.members, _jobs[key], widest, task.max_epochs)
    return [replace(made, network=made.network.cpu(), jobs=()) for made in populations]


class RayExecutor(Executor):
    """The workers of a cluster, each with one task at a time; connected until the executor is closed.

    If a worker is lost, Ray gives its task to another one. Only the process that started the search reads and writes
    the storage, so each trial is stored once. Each task gets a GPU if the cluster has GPUs and the estimator's
    ``device`` is not "cpu".
    """

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], widest: Widths, advance: Advance) -> None:
        self._connection = ExitStack()
        self._ray: Any = self._connection.enter_context(connected(cluster))
        try:
            gpu = jobs[0].estimator.device != "cpu" and self._ray.cluster_resources().get("GPU", 0) > 0
            self.capacity = cluster.workers_of(self._ray, gpu=gpu)
            options = {"num_gpus": 1} if gpu else {"num_cpus": 1}
            self._train = self._ray.remote(max_retries=_RETRIES, **options)(_train)
            self._sent = self._ray.put([job.without_cache() for job in jobs])
        except BaseException:
            self._connection.close()
            raise
        super().__init__(jobs, widest, advance)
        self._pending: dict[Any, Task] = {}

    def submit(self, task: Task) -> None:
        """Send a task to the cluster."""
        self._pending[self._train.remote(self._sent.hex(), self._sent, task, self._widest)] = task

    @property
    def pending(self) -> int:
        """Number of tasks on the cluster."""
        return len(self._pending)

    def next_result(self) -> Result:
        """Wait for one of the tasks."""
        try:
            (reference,), _ = self._ray.wait(list(self._pending), num_returns=1)
        except KeyboardInterrupt:
            return Result(next(iter(self._pending.values())), [], interrupted=True)  # `close` cancels the others
        task = self._pending.pop(reference)
        try:
            populations = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error  # an error in training, as this process would raise it
        except self._ray.exceptions.RayError as error:
            raise RuntimeError(
                f"A task was lost {_RETRIES + 1} times with its worker ({error}); check the cluster and run the search "
                "again. With a storage it resumes."
            ) from error
        self._advance(task.share * len(task.members))
        return Result(task, [replace(made, jobs=self._jobs) for made in populations], interrupted=False)

    def close(self) -> None:
        """Cancel pending tasks and disconnect."""
        for reference in self._pending:
            self._ray.cancel(reference, force=True)
        self._pending.clear()
        self._connection.close()


# ---------------------------------------------------------------------- blocks of rows

Block = TypeVar("Block")
Made = TypeVar("Made")


def map_blocks(cluster: Cluster, task: Callable[[Block], Made], blocks: Iterable[Block]) -> Iterator[Made]:
    """Apply a function to blocks of rows on the workers of a cluster; results come in the order of the blocks.

    A block whose worker was lost is computed again. An error in a worker is raised here as it was raised there.

    Parameters
    ----------
    cluster : Cluster
    task : callable
        An object that can be pickled, with the model in it: ``partial(function, model)``, or
        `sumosurv.scores.blocks.BlockTask`. It is sent to each worker once.
    blocks : iterable
        Read as workers become free, so that few blocks are in memory at a time.
    """
    with connected(cluster) as ray:
        run, shared = ray.remote(_apply), ray.put(task)
        running: deque[Any] = deque()
        for block in blocks:
            if len(running) == cluster.workers_of(ray, gpu=False):
                yield _result(ray, running.popleft())
            running.append(run.remote(shared, block))
        while running:
            yield _result(ray, running.popleft())


def _apply(task: Callable[[Block], Made], block: Block) -> Made:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return task(block)


def _result(ray: Any, running: Any) -> Any:
    try:
        return ray.get(running)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
