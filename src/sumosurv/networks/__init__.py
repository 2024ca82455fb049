"""Networks with a leading member axis: K networks run as one."""

from sumosurv.networks.causes import CausesNetwork
from sumosurv.networks.encoders import (
    Batch,
    Encoder,
    Inputs,
    ModuleEncoder,
    NoEncoder,
    Observed,
    Rows,
    Table,
    TableEncoder,
)
from sumosurv.networks.layers import TimeFeatures, select_members
from sumosurv.networks.monotone import MixedNetwork, MonotoneNetwork
from sumosurv.networks.population import LikelihoodNetwork, PopulationNetwork, TrainingError

__all__ = [
    "Batch",
    "CausesNetwork",
    "Encoder",
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
