"""Training a population of networks."""

from sumosurv.networks import TrainingError
from sumosurv.training.batches import Batches, TableBatches, member_seeds, shuffled, total_weight
from sumosurv.training.checkpoint import Checkpoints, keeping, next_checkpoint
from sumosurv.training.data import Epoch, Member, Schedule, batch_rows, fold_rows, split_rows, subjects
from sumosurv.training.history import History, Shift
from sumosurv.training.loop import held_out_terms, mean_terms, train
from sumosurv.training.machine import explain_memory, find_device, threads
from sumosurv.training.parallel import Workers, current_workers, launched_by_torchrun, torchrun_workers, work_as

__all__ = [
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
    "current_workers",
    "explain_memory",
    "find_device",
    "fold_rows",
    "held_out_terms",
    "keeping",
    "launched_by_torchrun",
    "mean_terms",
    "member_seeds",
    "next_checkpoint",
    "shuffled",
    "split_rows",
    "subjects",
    "threads",
    "torchrun_workers",
    "total_weight",
    "train",
    "work_as",
]
