"""Training a population of networks."""

from sumosurv.networks import TrainingError
from sumosurv.training.batches import Batches, TableBatches, member_seeds, shuffled, total_weight
from sumosurv.training.data import Epoch, Member, Schedule, batch_rows, fold_rows, split_rows, subjects
from sumosurv.training.loop import History, Shift, held_out_terms, mean_terms, train
from sumosurv.training.machine import explain_memory, find_device, threads

__all__ = [
    "Batches",
    "Epoch",
    "History",
    "Member",
    "Schedule",
    "Shift",
    "TableBatches",
    "TrainingError",
    "batch_rows",
    "explain_memory",
    "find_device",
    "fold_rows",
    "held_out_terms",
    "mean_terms",
    "member_seeds",
    "shuffled",
    "split_rows",
    "subjects",
    "threads",
    "total_weight",
    "train",
]
