"""Fits, searches and scores on a Ray cluster (extra ``ray``). Ray is imported only when a cluster is used."""

from sumosurv.cluster.connect import Cluster, connected, map_blocks
from sumosurv.cluster.distributed_fit import ray_fit

__all__ = ["Cluster", "connected", "map_blocks", "ray_fit"]
