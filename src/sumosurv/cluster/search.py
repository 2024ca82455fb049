"""Trials of a search on a cluster: one task per worker; the process that started the search keeps the study.

If a worker is lost, Ray gives its task to another one. Only the process that started the search reads and writes the
storage, so each trial is stored once, and stored scores survive a crash of that process.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from sumosurv.cluster.connect import Cluster, connected
from sumosurv.search.executor import Advance, Executor, Population, Result, Task, train_members
from sumosurv.search.trial import Job, Widths

__all__ = ["RayExecutor"]

_RETRIES = 5  # of a task whose worker or node was lost

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
    """The workers of a cluster; connected until the executor is closed.

    Each task gets a GPU if the cluster has GPUs and the estimator's ``device`` is not "cpu".
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
        self._jobs, self._widest, self._advance = jobs, widest, advance
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
