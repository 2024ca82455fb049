"""Fits, searches and scores on a Ray cluster (extra ``ray``). Ray is imported only when a cluster is used."""

from sumosurv.cluster.connect import Cluster, connected
from sumosurv.cluster.fit import ray_fit
from sumosurv.cluster.scoring import map_blocks

__all__ = ["Cluster", "connected", "map_blocks", "ray_fit"]
