"""Fitting on the workers of a cluster, with Ray Train.

Every worker has all rows and trains on its share of each batch (`sumosurv.training.processes`). Checkpoints are in a
folder that all workers can access. If a worker or a node is lost, Ray Train starts as many workers as the cluster has
resources for, and they resume from the last checkpoint. If the driver is lost, run the same fit with the same folder to
resume.
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
from sumosurv.training import Checkpoints, Workers

_FAILURES = 10  # of workers, and of their controller, after which the fit fails
_RAY = "ray"  # subfolder for the files of Ray Train


def _train(config: dict[str, Any]) -> None:
    """Run the whole fit as one of several workers."""
    import ray.train

    context = ray.train.get_context()
    model, given = ray.get(config["rows"])
    workers = Workers(context.get_world_rank(), context.get_world_size())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the driver issues them
        model.fit(*given, checkpoint=Checkpoints(config["folder"], config["seconds"]), workers=workers)


def ray_fit(
    cluster: Cluster,
    model: NetworkEstimator,
    X: Any,
    y: Any,
    validation_data: tuple[Any, ...] | None = None,
    *,
    checkpoint: Checkpoints | str | Path,
) -> NetworkEstimator:
    """Fit a network estimator on a cluster; the result equals that of ``model.fit`` up to rounding.

    Parameters
    ----------
    cluster : Cluster
    model : NetworkEstimator
        Estimator with an integer ``random_state``; it is fitted in place.
    X, y, validation_data
        As in its ``fit``. Weights and groups are fields of an `Outcome`.
    checkpoint : path or Checkpoints
        Folder with the same path on this machine and on all workers.

    Returns
    -------
    NetworkEstimator
        The fitted ``model``.
    """
    kept = checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
    folder = Path(kept.folder).resolve()
    if not isinstance(model.random_state, int):
        raise ValueError(f"A fit on a cluster needs an integer random_state; got {model.random_state!r}.")
    model._check_settings()
    passes = len(X) * sum(part.n_members * part.max_epochs for part in model._components(len(X)).values())
    if not cluster.too_small(passes=passes):
        (folder / _RAY).mkdir(parents=True, exist_ok=True)
        _fit_by_workers(cluster, model, (X, y, validation_data), folder, kept.seconds)
    # trainings that the cluster finished are read from their checkpoints
    return model.fit(X, y, validation_data, checkpoint=Checkpoints(folder, kept.seconds))


def _fit_by_workers(
    cluster: Cluster, model: NetworkEstimator, given: tuple[Any, ...], folder: Path, seconds: float
) -> None:
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "120")
    with connected(cluster) as ray:
        train, torch_train = import_module("ray.train"), import_module("ray.train.torch")
        gpu = model.device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0
        count = cluster.workers_of(ray, gpu=gpu)
        sent = type(model)(**{**model.get_params(deep=False), "verbose": False})
        trainer = torch_train.TorchTrainer(
            _train,
            train_loop_config={"rows": ray.put((sent, given)), "folder": str(folder), "seconds": seconds},
            # fewer workers if a node is lost
            scaling_config=train.ScalingConfig(num_workers=(1, count) if count > 1 else 1, use_gpu=gpu),
            torch_config=torch_train.TorchConfig(backend="nccl" if gpu else "gloo", timeout_s=600),
            run_config=train.RunConfig(
                name=f"sumosurv-{uuid.uuid4().hex}",  # a new name: Ray Train would resume an old run
                storage_path=str(folder / _RAY),
                failure_config=train.FailureConfig(max_failures=_FAILURES, controller_failure_limit=_FAILURES),
            ),
        )
        trainer.fit()
