"""What training is given and what it returns: who trains on which rows, for how long, and the history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.training.checkpoint import Checkpoint
from sumosurv.training.machine import ALONE, Workers

__all__ = ["Epoch", "History", "Member", "RowNumbers", "Schedule"]

RowNumbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Member:
    """One network of a population: its rows of the table and its own settings.

    Attributes
    ----------
    seed : int
    train_rows, valid_rows : ndarray of int
        ``valid_rows`` is None if no rows are held out.
    learning_rate, weight_decay : float
    stop_after : int, optional
        Without validation rows, the epoch whose weights the member keeps: the last by default, none if negative.
    stops_together : bool
        All members of the population keep the weights of one epoch, the best on all of their validation rows.
    """

    seed: int
    train_rows: RowNumbers
    valid_rows: RowNumbers | None
    learning_rate: float
    weight_decay: float
    stop_after: int | None = None
    stops_together: bool = False


@dataclass(frozen=True)
class Epoch:
    """What a callback is passed after each epoch: mean log-likelihoods (or the objective) of each member.

    Attributes
    ----------
    number : int
        From 0.
    n_epochs : int
        How many there will be at most.
    train : ndarray of shape (members,)
        On training rows, dropout on.
    valid : ndarray of shape (members,) or None
        On validation rows; None without any.
    component : str
        The component that is being trained, by name.
    """

    number: int
    n_epochs: int
    train: Floats
    valid: Floats | None
    component: str = ""

    def minus(self, train: Floats, valid: Floats) -> Epoch:
        """Return the epoch with these values subtracted from the means of each member."""
        return replace(self, train=self.train - train, valid=None if self.valid is None else self.valid - valid)


@dataclass(frozen=True)
class Schedule:
    """How all members of a population train.

    A member is done when its best validation likelihood is more than ``patience`` epochs back. Several ``workers``
    share each batch. A ``checkpoint`` stores the state after an epoch, and training resumes from it.
    """

    max_epochs: int
    batch_size: int
    patience: int | None = None
    show_progress: bool = False
    on_epoch: Callable[[Epoch], None] | None = None
    workers: Workers = ALONE
    checkpoint: Checkpoint | None = None


@dataclass
class History:
    """Mean log-likelihoods per epoch and member, on the scale of the network's time, and how each member ended."""

    train: list[Floats] = field(default_factory=list)
    valid: list[Floats] = field(default_factory=list)
    best_epoch: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    best_valid: Floats = field(default_factory=lambda: np.zeros(0))
    failed: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    interrupted: bool = False

    def minus(self, train: Floats, valid: Floats) -> History:
        """Return the history with these values subtracted from the means of each member."""
        return replace(
            self,
            train=[values - train for values in self.train],
            valid=[values - valid for values in self.valid],
            best_valid=self.best_valid - valid,
        )

    def frame(self) -> pd.DataFrame:
        """Return a table with one row per epoch and member."""
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
