"""Fits, searches and scores on a Ray cluster (extra ``ray``). Ray is imported when a cluster is used, not before."""

from sumosurv.cluster.connect import Cluster, connected
from sumosurv.cluster.fit import ray_fit
from sumosurv.cluster.scoring import map_rows
from sumosurv.cluster.search import ray_crew

__all__ = ["Cluster", "connected", "map_rows", "ray_crew", "ray_fit"]
