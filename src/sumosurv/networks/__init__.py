"""Networks with a leading member axis: K networks run as one."""

from sumosurv.networks.data import Batch, Inputs, Observed, Rows, Table
from sumosurv.networks.encoders import Encoder, ModuleEncoder, TableEncoder
from sumosurv.networks.layers import select_members
from sumosurv.networks.monotone import MixedNetwork, MonotoneNetwork
from sumosurv.networks.population import PopulationNetwork, TrainingError
from sumosurv.networks.time import TimeFeatures

__all__ = [
    "Batch",
    "Encoder",
    "Inputs",
    "MixedNetwork",
    "ModuleEncoder",
    "MonotoneNetwork",
    "Observed",
    "PopulationNetwork",
    "Rows",
    "Table",
    "TableEncoder",
    "TimeFeatures",
    "TrainingError",
    "select_members",
]
