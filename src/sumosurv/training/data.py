"""What training is handed: who trains on which rows, and how long."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

from sumosurv.outcome import Outcome
from sumosurv.training.checkpoint import Checkpoint
from sumosurv.training.parallel import ALONE, Workers

__all__ = ["Epoch", "Member", "Schedule", "batch_rows", "fold_rows", "split_rows", "subjects"]

RowNumbers = npt.NDArray[np.int64]

_SMALLEST_SPLIT = 10  # rows below which none are held out


@dataclass(frozen=True)
class Member:
    """One network of a population: its rows of the table and what is its own in training.

    ``stop_after`` is the epoch whose weights it keeps where it has no validation rows: the last by default, none if
    negative. Members with the same ``stops_with`` keep the weights of one epoch, the best on all of their validation
    rows together.
    """

    seed: int
    train_rows: RowNumbers
    valid_rows: RowNumbers | None
    learning_rate: float
    weight_decay: float
    stop_after: int | None = None
    stops_with: int | None = None


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
    train: npt.NDArray[np.float64]
    valid: npt.NDArray[np.float64] | None
    component: str = ""


@dataclass(frozen=True)
class Schedule:
    """How all members of a population train: AdamW in batches, its learning rates falling along a cosine if ``decay``.

    A member is done when its best validation likelihood is more than ``patience`` epochs back. Several ``workers``
    share each batch. A ``checkpoint`` stores the state after an epoch, and training resumes from it.
    """

    max_epochs: int
    batch_size: int
    patience: int | None = None
    decay: bool = True
    max_norm: float = math.inf
    show_progress: bool = False
    on_epoch: Callable[[Epoch], None] | None = None
    workers: Workers = ALONE
    checkpoint: Checkpoint | None = None


def batch_rows(batch_size: int | Literal["auto", "full"], n: int) -> int:
    """Rows of a batch out of n: the number itself, all, or ("auto") the power of two nearest to 4 √n."""
    if batch_size == "full":
        return n
    if batch_size == "auto":
        return int(2 ** round(math.log2(max(8.0, 4.0 * math.sqrt(n)))))
    return int(batch_size)


def split_rows(outcome: Outcome, seed: int, fraction: float) -> tuple[RowNumbers, RowNumbers | None]:
    """Training and validation rows drawn by a seed, with the same share of events; no validation rows of very few.

    The rows of one subject stay together.
    """
    subject, kind = subjects(outcome)
    n = len(kind)
    if fraction == 0 or n < _SMALLEST_SPLIT:
        return np.arange(len(outcome)), None
    stratify = next((labels for labels in (kind, kind > 0) if _can_stratify(labels, fraction)), None)
    train, valid = train_test_split(np.arange(n), test_size=fraction, random_state=seed, stratify=stratify)
    if outcome.group is None:
        return np.sort(train), np.sort(valid)
    held_out = np.isin(subject, valid)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def fold_rows(outcome: Outcome, seed: int, n_folds: int) -> list[tuple[RowNumbers, RowNumbers | None]]:
    """Training and validation rows of each fold of a cross-validation, drawn by a seed, with the same share of events.

    Of very few subjects none are held out. The rows of one subject stay together.
    """
    subject, kind = subjects(outcome)
    n = len(kind)
    if n < _SMALLEST_SPLIT:
        return [(np.arange(len(outcome)), None)] * n_folds
    labels = next((part for part in (kind, kind > 0) if np.unique(part, return_counts=True)[1].min() >= n_folds), None)
    folds = (
        KFold(n_folds, shuffle=True, random_state=seed).split(kind)
        if labels is None
        else StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(kind, labels)
    )
    held_out = [np.isin(subject, valid) for _, valid in folds]
    return [(np.flatnonzero(~rows), np.flatnonzero(rows)) for rows in held_out]


def _can_stratify(labels: npt.NDArray[Any], fraction: float) -> bool:
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts) > 1 and counts.min() >= 2 and math.ceil(fraction * len(labels)) >= len(counts)


def subjects(outcome: Outcome) -> tuple[RowNumbers, RowNumbers]:
    """The subject that each row belongs to, from 0, and of each subject which event it had, 0 for none."""
    kind = outcome.had_event.astype(np.int64) if outcome.cause is None else outcome.cause
    if outcome.group is None:
        return np.arange(len(outcome)), kind
    _, subject = np.unique(outcome.group, return_inverse=True)
    largest = np.zeros(int(subject.max()) + 1, dtype=np.int64)
    np.maximum.at(largest, subject, kind)
    return subject, largest
