"""The cluster that the options --ray name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sumosurv.cluster import Cluster

__all__ = ["cluster_of"]


def cluster_of(arguments: argparse.Namespace) -> Cluster | None:
    """The cluster of --ray; None without it."""
    if arguments.ray is None:
        for name in ("ray_workers", "ray_smallest"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} is for a cluster; name it with --ray ADDRESS.")
        return None
    from sumosurv.cluster import Cluster

    return Cluster(arguments.ray, arguments.ray_workers, arguments.ray_smallest, arguments.ray_ship)
