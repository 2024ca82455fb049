"""Training a population of networks."""

from sumosurv.networks import TrainingError
from sumosurv.training.batches import (
    Batches,
    Member,
    StreamBatches,
    TableBatches,
    batch_rows,
    fold_rows,
    shuffled,
    split_rows,
    subjects,
)
from sumosurv.training.checkpoint import Checkpoints
from sumosurv.training.loop import Epoch, History, Schedule, held_out_terms, mean_terms, train
from sumosurv.training.machine import (
    ALONE,
    Workers,
    explain_memory,
    find_device,
    launched_by_torchrun,
    threads,
    torchrun_workers,
)

__all__ = [
    "ALONE",
    "Batches",
    "Checkpoints",
    "Epoch",
    "History",
    "Member",
    "Schedule",
    "StreamBatches",
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
    "shuffled",
    "split_rows",
    "subjects",
    "threads",
    "torchrun_workers",
    "train",
]
