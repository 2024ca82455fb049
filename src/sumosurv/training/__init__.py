"""Training a population of networks."""

from sumosurv.networks import TrainingError
from sumosurv.training.checkpoint import Checkpoints
from sumosurv.training.loop import Epoch
from sumosurv.training.processes import ALONE, Workers, torchrun_workers

__all__ = ["ALONE", "Checkpoints", "Epoch", "TrainingError", "Workers", "torchrun_workers"]
