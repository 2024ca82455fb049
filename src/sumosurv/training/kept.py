"""What is kept of each member while a population trains: its best weights, and whether it still trains."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sumosurv.training.data import Member, Schedule

__all__ = ["Kept"]

_STALLED_EPOCHS = 3


class Kept:
    """Best weights so far, their epochs and scores, and who still trains. Its tensors stay in place.

    Parameters
    ----------
    current : list of Tensor
        What makes a member what it is, its leading axis that of the members: weights, and buffers such as the averages
        of batch normalisation. They change as training goes on.
    members : sequence of Member
    schedule : Schedule
    """

    def __init__(self, current: list[Tensor], members: Sequence[Member], schedule: Schedule) -> None:
        device, count, last = current[0].device, len(members), schedule.max_epochs - 1
        self._current, self._patience = current, schedule.patience
        self._stop_after = torch.tensor(
            [last if m.stop_after is None else m.stop_after for m in members], device=device
        )
        self.best = [tensor.clone() for tensor in current]
        self.best_valid = torch.full((count,), -math.inf, dtype=torch.float64, device=device)
        self.best_epoch = torch.full((count,), -1, dtype=torch.long, device=device)
        self.stalled = torch.zeros(count, dtype=torch.long, device=device)
        self.running = torch.ones(count, dtype=torch.bool, device=device)

    def after_epoch(self, epoch: int, moved: Tensor, score: Tensor | None) -> None:
        """Note the scores of validation rows, or None without any; ``moved`` are the members that took a step."""
        self.stalled.copy_(torch.where(moved, 0, self.stalled + 1))
        self.running &= self.stalled < _STALLED_EPOCHS
        if score is None:
            self._keep(self.running & moved & (self._stop_after >= epoch), epoch)
            self.running &= self._stop_after > epoch
            return
        better = self.running & moved & torch.isfinite(score) & (score > self.best_valid)
        self._keep(better, epoch)
        self.best_valid.copy_(torch.where(better, score, self.best_valid))
        if self._patience is not None:
            self.running &= epoch - self.best_epoch <= self._patience

    def _keep(self, who: Tensor, epoch: int) -> None:
        """Keep the current tensors of some members."""
        for now, old in zip(self._current, self.best):
            old.copy_(torch.where(who.reshape(-1, *[1] * (now.ndim - 1)), now, old))
        self.best_epoch.copy_(torch.where(who, epoch, self.best_epoch))

    @torch.no_grad()
    def take_best(self) -> None:
        """Make the best weights the current ones."""
        for tensor, value in zip(self._current, self.best):
            tensor.copy_(value)

    def state(self) -> list[Tensor]:
        """All tensors that an epoch changes."""
        return [self.best_valid, self.best_epoch, self.stalled, self.running, *self.best]
