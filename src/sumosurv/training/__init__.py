"""Training a population of networks."""

from sumosurv.networks import TrainingError
from sumosurv.training.batches import Batches, TableBatches, member_seeds, shuffled, total_weight
from sumosurv.training.checkpoint import Checkpoints
from sumosurv.training.data import Epoch, Member, Schedule, batch_rows, fold_rows, split_rows, subjects
from sumosurv.training.history import History, Shift
from sumosurv.training.loop import held_out_terms, mean_terms, train
from sumosurv.training.machine import explain_memory, find_device, threads
from sumosurv.training.parallel import ALONE, Workers, launched_by_torchrun, torchrun_workers

__all__ = [
    "ALONE",
    "Batches",
    "Checkpoints",
    "Epoch",
    "History",
    "Member",
    "Schedule",
    "Shift",
    "TableBatches",
    "TrainingError",
    "Workers",
    "batch_rows",
    "explain_memory",
    "find_device",
    "fold_rows",
    "held_out_terms",
    "launched_by_torchrun",
    "mean_terms",
    "member_seeds",
    "shuffled",
    "split_rows",
    "subjects",
    "threads",
    "torchrun_workers",
    "total_weight",
    "train",
]
