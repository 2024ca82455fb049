"""Predictions and scores on a cluster: blocks of rows, mapped by its workers."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from sumosurv.cluster.connect import Cluster, connected

__all__ = ["map_blocks"]

Block = TypeVar("Block")
Result = TypeVar("Result")


def map_blocks(cluster: Cluster, task: Callable[[Block], Result], blocks: Iterable[Block]) -> Iterator[Result]:
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


def _apply(task: Callable[[Block], Result], block: Block) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return task(block)


def _result(ray: Any, running: Any) -> Any:
    try:
        return ray.get(running)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
