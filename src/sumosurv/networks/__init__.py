"""Networks with a leading member axis: K networks run as one."""

from sumosurv.networks.causes import CausesNetwork
from sumosurv.networks.data import Batch, Inputs, Observed, Rows, Table
from sumosurv.networks.encoders import Encoder, ModuleEncoder, NoEncoder, TableEncoder
from sumosurv.networks.layers import select_members
from sumosurv.networks.monotone import MixedNetwork, MonotoneNetwork
from sumosurv.networks.population import GridNetwork, LikelihoodNetwork, PopulationNetwork, TrainingError
from sumosurv.networks.time import TimeFeatures

__all__ = [
    "Batch",
    "CausesNetwork",
    "Encoder",
    "GridNetwork",
    "Inputs",
    "LikelihoodNetwork",
    "MixedNetwork",
    "ModuleEncoder",
    "MonotoneNetwork",
    "NoEncoder",
    "Observed",
    "PopulationNetwork",
    "Rows",
    "Table",
    "TableEncoder",
    "TimeFeatures",
    "TrainingError",
    "select_members",
]
