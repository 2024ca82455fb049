"""A fit whose populations are trained by the workers of a cluster, with Ray Train.

Every worker has all rows and its share of each batch (`sumosurv.training.parallel`). The state is kept in a folder that
all of them see: when a worker or a node is lost, Ray Train starts those that there is room for, and they go on from the
last checkpoint, whatever their number. When the driver is lost, the same fit with the same folder goes on.
"""

from __future__ import annotations

import os
import uuid
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from sumosurv.cluster.connect import Cluster, connected
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.training import Checkpoints, Workers, work_as

__all__ = ["ray_fit"]

_FAILURES = 10  # of workers, and of what watches over them, before the fit is given up
_RAY = "ray"  # the folder of Ray Train's own notes


def _train(config: dict[str, Any]) -> None:
    """What each worker does: the whole fit, as one of several."""
    import ray.train

    context = ray.train.get_context()
    model, given = ray.get(config["rows"])
    with warnings.catch_warnings(), work_as(Workers(context.get_world_rank(), context.get_world_size())):
        warnings.simplefilter("ignore")  # the driver tells
        model.fit(*given, checkpoint=Checkpoints(config["folder"], config["seconds"]))


def ray_fit(
    cluster: Cluster,
    model: NetworkEstimator,
    X: Any,
    y: Any,
    validation_data: tuple[Any, ...] | None = None,
    *,
    checkpoint: Checkpoints | str | Path,
) -> NetworkEstimator:
    """Fit a network estimator on a cluster; equals ``model.fit`` up to the order of summation.

    Parameters
    ----------
    cluster : Cluster
    model : NetworkEstimator
        With a ``random_state``. It is fitted in place.
    X, y, validation_data
        As of its ``fit``. Weights and groups are fields of an outcome.
    checkpoint : path or Checkpoints
        A folder that this process and all workers see under the same path.

    Returns
    -------
    NetworkEstimator
        The same.
    """
    kept = checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
    folder = Path(kept.folder).resolve()
    if not isinstance(model.random_state, int):
        raise ValueError(f"A fit by several processes needs a number as random_state; got {model.random_state!r}.")
    model._check_settings()
    passes = len(X) * model.setting("n_members") * model.setting("max_epochs")
    if not cluster.too_small(passes=passes):
        (folder / _RAY).mkdir(parents=True, exist_ok=True)
        _fit_by_workers(cluster, model, (X, y, validation_data), folder, kept.seconds)
    # after a cluster all trainings are done: they are read, and what is made of them is made here
    return model.fit(X, y, validation_data, checkpoint=Checkpoints(folder, kept.seconds))


def _fit_by_workers(
    cluster: Cluster, model: NetworkEstimator, given: tuple[Any, ...], folder: Path, seconds: float
) -> None:
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "120")
    with connected(cluster) as ray:
        train, torch_train = import_module("ray.train"), import_module("ray.train.torch")
        gpu = model.device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0
        count = cluster.workers_of(ray, gpu=gpu)
        sent = type(model)(**{**model.get_params(deep=False), "verbose": False, "on_epoch": None})
        trainer = torch_train.TorchTrainer(
            _train,
            train_loop_config={"rows": ray.put((sent, given)), "folder": str(folder), "seconds": seconds},
            # fewer workers go on where there is no room for all, after a node was lost
            scaling_config=train.ScalingConfig(num_workers=(1, count) if count > 1 else 1, use_gpu=gpu),
            torch_config=torch_train.TorchConfig(backend="nccl" if gpu else "gloo", timeout_s=600),
            run_config=train.RunConfig(
                name=f"sumosurv-{uuid.uuid4().hex}",  # a name of its own: one that was used goes on with the old run
                storage_path=str(folder / _RAY),
                failure_config=train.FailureConfig(max_failures=_FAILURES, controller_failure_limit=_FAILURES),
            ),
        )
        trainer.fit()
