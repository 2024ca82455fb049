"""A training that can go on where it was ended: its state to and from a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from sumosurv.networks import PopulationNetwork, Rows, Table
from sumosurv.training.checkpoint import Checkpoint, training_digest
from sumosurv.training.data import Member, Schedule
from sumosurv.training.history import History
from sumosurv.training.kept import Kept
from sumosurv.training.parallel import ALONE, Workers
from sumosurv.training.step import TrainingStep

__all__ = ["SavedTraining"]


@dataclass(frozen=True)
class SavedTraining:
    """The checkpoint of a training; nothing where there is none."""

    checkpoint: Checkpoint | None
    workers: Workers
    digest: str

    @classmethod
    def of(
        cls,
        network: PopulationNetwork,
        table: Table,
        rows: tuple[Rows, Rows | None],
        members: Sequence[Member],
        schedule: Schedule,
        signature: str = "",
    ) -> SavedTraining:
        """To be called before the first step; one process that keeps nothing takes no digest.

        ``signature`` stands for rows that are not in the table.
        """
        needed = schedule.checkpoint is not None or schedule.workers.size > 1
        # what changes nothing is left out
        what = replace(schedule, show_progress=False, on_epoch=None, workers=ALONE, checkpoint=None)
        digest = training_digest(network, table, rows, [*members, what, signature]) if needed else ""
        return cls(schedule.checkpoint, schedule.workers, digest)

    def load(self, step: TrainingStep, kept: Kept, history: History) -> int:
        """Go on from the file: the epoch to begin with."""
        epochs = 0
        if self.checkpoint is not None:
            epochs, done, noted = self.checkpoint.load(self.digest, [*step.state(), *kept.state()])
            for values, tensor in zip((history.train, history.valid), noted):
                values.extend(tensor.numpy())
            epochs = sys.maxsize if done else epochs
        self.workers.check_agreement(f"{self.digest} {epochs}")
        return epochs

    def save(self, step: TrainingStep, kept: Kept, history: History, *, done: bool) -> None:
        """Write the file, if it is time, by the first worker."""
        if self.checkpoint is None or not self.workers.first or not (done or self.checkpoint.due()):
            return
        noted = [torch.from_numpy(np.array(values)) for values in (history.train, history.valid) if values]
        state = [*step.state(), *kept.state()]
        self.checkpoint.save(self.digest, state, noted, epochs=len(history.train), done=done)
