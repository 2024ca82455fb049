"""What happened in a training, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.training.data import Epoch

__all__ = ["History", "Shift"]


@dataclass
class History:
    """What happened: mean log-likelihoods per epoch and member, on the scale of the network's time."""

    train: list[npt.NDArray[np.float64]] = field(default_factory=list)
    valid: list[npt.NDArray[np.float64]] = field(default_factory=list)
    best_epoch: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    best_valid: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    failed: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    interrupted: bool = False

    def note(self, train: npt.NDArray[np.float64], valid: npt.NDArray[np.float64] | None) -> None:
        """One more epoch."""
        if valid is not None:
            self.valid.append(valid)
        self.train.append(train)

    def frame(self) -> pd.DataFrame:
        """One row per epoch and member."""
        epochs, members = len(self.train), len(self.failed)
        valid = np.array(self.valid) if self.valid else np.full((epochs, members), np.nan)
        return pd.DataFrame(
            {
                "epoch": np.repeat(np.arange(epochs), members),
                "member": np.tile(np.arange(members), epochs),
                "train": np.array(self.train).ravel(),
                "valid": valid.ravel(),
            }
        )


@dataclass(frozen=True)
class Shift:
    """From log-likelihoods in scaled time to those in the user's unit: what is taken off each member's means."""

    train: npt.NDArray[np.float64]
    valid: npt.NDArray[np.float64]

    def epoch(self, epoch: Epoch) -> Epoch:
        """One epoch."""
        valid = None if epoch.valid is None else epoch.valid - self.valid
        return replace(epoch, train=epoch.train - self.train, valid=valid)

    def history(self, history: History) -> History:
        """All of them."""
        return replace(
            history,
            train=[values - self.train for values in history.train],
            valid=[values - self.valid for values in history.valid],
            best_valid=history.best_valid - self.valid,
        )
