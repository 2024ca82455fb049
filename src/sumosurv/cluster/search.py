"""Trials of a search on a cluster: a population per worker, the study kept by the process that began the search.

A worker that is lost takes its population with it, which Ray hands to another one; the study hears of a population
once, from the process that asked for it. That process alone touches the storage: what was told survives it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from sumosurv.cluster.connect import Cluster, connected
from sumosurv.search.crew import Crew, Order, Trained
from sumosurv.search.grouping import Way, Widths
from sumosurv.search.jobs import Job
from sumosurv.search.population import Population, train_members

__all__ = ["ray_crew"]

_RETRIES = 5  # of a population whose worker or node was lost

_jobs: dict[str, list[Job]] = {}  # rows that this worker has read; of the last search alone


def _train(key: str, jobs: list[Job], order: Order, way: Way, widest: Widths) -> list[Population]:
    """One order, in a worker. Rows are read once for each search."""
    if key not in _jobs:
        _jobs.clear()
        _jobs[key] = jobs
    own = _jobs[key]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the process that began the search has told
        populations, _ = train_members(order.members, own, way=way, widest=widest, max_epochs=order.max_epochs)
    return [replace(made, network=made.network.cpu(), jobs=()) for made in populations]


class RayCrew(Crew):
    """The workers of a cluster. Use `ray_crew`."""

    def __init__(
        self,
        ray: Any,
        cluster: Cluster,
        jobs: Sequence[Job],
        way: Way,
        widest: Widths,
        after_epoch: Callable[[float], Callable[[int, int], None]],
        device: str,
        held: ExitStack,
    ) -> None:
        self._ray, self._jobs, self._way, self._widest = ray, jobs, way, widest
        self._after_epoch, self._held = after_epoch, held
        gpu = device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0
        self.room = cluster.workers_of(ray, gpu=gpu)
        options = {"num_gpus": 1} if gpu else {"num_cpus": 1}
        self._train = ray.remote(max_retries=_RETRIES, **options)(_train)
        self._sent = ray.put([job.unread() for job in jobs])
        self._in_work: dict[Any, Order] = {}

    def start(self, order: Order) -> None:
        """Hand it to the cluster."""
        reference = self._train.remote(self._sent.hex(), self._sent, order, self._way, self._widest)
        self._in_work[reference] = order

    @property
    def in_work(self) -> int:
        """Orders that the cluster has."""
        return len(self._in_work)

    def next(self) -> Trained:
        """Wait for one of them."""
        try:
            (reference,), _ = self._ray.wait(list(self._in_work), num_returns=1)
        except KeyboardInterrupt:
            return Trained(next(iter(self._in_work.values())), [], stopped=True)  # the others are given up at the end
        order = self._in_work.pop(reference)
        try:
            populations = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error  # what went wrong in training is told as it would be here
        except self._ray.exceptions.RayError as error:
            raise RuntimeError(
                f"A population was lost {_RETRIES + 1} times with its worker ({error}); look at the cluster, and run "
                "the search again: with a storage it goes on where it was."
            ) from error
        self._after_epoch(order.share)(len(order.members), 1)
        return Trained(order, [replace(made, jobs=self._jobs) for made in populations], stopped=False)

    def close(self) -> None:
        """Give up what is in work and leave the cluster."""
        for reference in self._in_work:
            self._ray.cancel(reference, force=True)
        self._in_work.clear()
        self._held.close()


def ray_crew(
    cluster: Cluster,
    jobs: Sequence[Job],
    way: Way,
    widest: Widths,
    after_epoch: Callable[[float], Callable[[int, int], None]],
    device: str,
) -> Crew:
    """The workers of a cluster, which is left when the crew is closed.

    Parameters
    ----------
    cluster : Cluster
    jobs, way, widest, after_epoch
        As of `LocalCrew`.
    device : str
        Of the estimator: where the cluster has GPUs, a population gets one unless this is "cpu".
    """
    with ExitStack() as stack:
        ray = stack.enter_context(connected(cluster))
        return RayCrew(ray, cluster, jobs, way, widest, after_epoch, device, stack.pop_all())
