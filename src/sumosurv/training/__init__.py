"""Training a population of networks."""

from sumosurv.training.data import Rows, TrainingData, TrainingPlan
from sumosurv.training.loop import History, TrainingError, mean_log_likelihood, train

__all__ = ["History", "Rows", "TrainingData", "TrainingError", "TrainingPlan", "mean_log_likelihood", "train"]
