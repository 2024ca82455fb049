"""Predictions and scores on a cluster: blocks of rows, mapped by workers that have loaded the model once."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from sumosurv.cluster.connect import Cluster, connected
from sumosurv.io import load

__all__ = ["map_blocks", "map_rows"]

Block = TypeVar("Block")
Result = TypeVar("Result")
Work = Callable[[Any, pd.DataFrame], pd.DataFrame]


class _Worker:
    """A worker: the model is loaded when it starts, and rows come block by block."""

    def __init__(self, model: bytes, work: Work) -> None:
        with tempfile.NamedTemporaryFile(suffix=".sumo") as file:
            file.write(model)
            file.flush()
            self._model = load(file.name)
        self._work = work

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._work(self._model, rows)


def map_rows(
    cluster: Cluster, model: Path, rows: pd.DataFrame | Path, work: Work, *, block: int = 20_000
) -> Iterator[pd.DataFrame]:
    """What a function makes of all rows, block by block and in their order.

    A block whose worker was lost is made again by another one, and comes once.

    Parameters
    ----------
    cluster : Cluster
    model : path
        Of the model file; it is sent to the workers, which need not see the path.
    rows : DataFrame, or path of a Parquet file or folder
        A path is read by the workers, which must all see it.
    work : callable
        (model, rows) to one row for each, a function of an importable module.
    block : int
        Rows that a worker gets at a time.

    Yields
    ------
    DataFrame
    """
    with connected(cluster) as ray:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.WARNING)
        context = ray.data.DataContext.get_current()
        before = context.execution_options.preserve_order, context.enable_progress_bars
        context.execution_options.preserve_order, context.enable_progress_bars = True, False
        try:
            count = cluster.workers_of(ray, gpu=False)
            if isinstance(rows, Path):
                data = ray.data.read_parquet(str(rows))
            else:
                blocks = [rows.iloc[i : i + block] for i in range(0, len(rows), block)]
                data, count = ray.data.from_pandas(blocks), min(count, len(blocks))
            # reading, and handing on, is work too: where the workers would take every core, they take half of each
            spare = ray.cluster_resources().get("CPU", 1) > count
            made = data.map_batches(
                _Worker,
                fn_constructor_args=(model.read_bytes(), work),
                batch_format="pandas",
                batch_size=block,
                compute=ray.data.ActorPoolStrategy(size=count),
                num_cpus=1 if spare else 0.5,
            )
            yield from made.iter_batches(batch_size=None, batch_format="pandas")
        finally:
            context.execution_options.preserve_order, context.enable_progress_bars = before


def map_blocks(cluster: Cluster, task: Callable[[Block], Result], blocks: Iterable[Block]) -> Iterator[Result]:
    """Apply a function to blocks of rows on the workers of a cluster; results come in the order of the blocks.

    A block whose worker was lost is computed again. An error in a worker is raised here as it was raised there.

    Parameters
    ----------
    cluster : Cluster
    task : callable
        An object that can be pickled, such as `sumosurv.scores.blocks.BlockTask`.
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
