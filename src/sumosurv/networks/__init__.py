"""Networks with a leading member axis: K networks run as one."""

from sumosurv.networks.encoders import Inputs, ModuleEncoder, TableEncoder
from sumosurv.networks.layers import select_members
from sumosurv.networks.monotone import MixedNetwork, MonotoneNetwork
from sumosurv.networks.time import TimeFeatures

__all__ = [
    "Inputs",
    "MixedNetwork",
    "ModuleEncoder",
    "MonotoneNetwork",
    "TableEncoder",
    "TimeFeatures",
    "select_members",
]
