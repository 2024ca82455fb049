"""Training: one plain function that trains a whole population of networks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sumosurv.networks.streams import random_bits, stream_key
from sumosurv.training.data import Rows, TrainingData, TrainingPlan
from sumosurv.training.step import TrainingStep, captured, row_log_likelihood

__all__ = ["History", "TrainingError", "mean_log_likelihood", "shuffled", "train"]

_SHUFFLE = 0x5EED  # the stream of the shuffles, apart from those of the dropout layers
_STALLED_EPOCHS = 3


class TrainingError(RuntimeError):
    """Training cannot continue: no member has a finite likelihood."""


@dataclass
class History:
    """What happened: mean log-likelihoods per epoch and member, on the scale of the network's time."""

    train: list[npt.NDArray[np.float64]] = field(default_factory=list)
    valid: list[npt.NDArray[np.float64]] = field(default_factory=list)
    best_epoch: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    best_valid: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    failed: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    interrupted: bool = False


def train(
    network: nn.Module, data: TrainingData, train_rows: Rows, valid_rows: Rows | None, plan: TrainingPlan
) -> History:
    """Fit every member of the network by mini-batch AdamW on the right-censored log-likelihood.

    Each member sees all of its training rows once per epoch, in an order of its own. After every epoch
    the validation likelihood is taken, and each member ends with the weights of its best epoch; a
    member whose best epoch is more than ``patience`` epochs back is done. Learning rates fall to zero along a
    cosine if ``decay``. Without validation rows the last weights are kept.

    Parameters
    ----------
    network : module with a leading member axis on every parameter
        Changed in place.
    data : TrainingData
    train_rows, valid_rows : Rows
        Which rows of the table each member trains on and is checked on.
    plan : TrainingPlan

    Returns
    -------
    History

    Raises
    ------
    TrainingError
        If no member ever had a finite likelihood.
    """
    members, device = len(plan.seeds), data.time.device
    seeds = torch.as_tensor(plan.seeds, dtype=torch.int64, device=device).to(torch.int32)
    step = TrainingStep(network, data, train_rows, plan)
    run_step = captured(step) if device.type == "cuda" else step
    last = plan.max_epochs - 1
    stop_after = torch.as_tensor(np.full(members, last) if plan.stop_after is None else plan.stop_after, device=device)
    history = History()
    # what makes a member what it is: its weights, and buffers such as the averages of batch normalisation
    current = [step.optimiser.weights, *(b for b in network.buffers() if b.ndim and b.shape[0] == members)]
    best = [tensor.clone() for tensor in current]
    best_valid = torch.full((members,), -math.inf, dtype=torch.float64, device=device)
    best_epoch = torch.full((members,), -1, dtype=torch.long, device=device)
    stalled = torch.zeros(members, dtype=torch.long, device=device)
    running = torch.ones(members, dtype=torch.bool, device=device)
    with _interruptible(history), _progress_bar(plan, members) as bar:
        for epoch in range(plan.max_epochs):
            network.train()
            order = shuffled(train_rows, seeds, epoch)
            for i in range(step.per_epoch):
                step.load(order, i)
                run_step()
            likelihood, moved = step.end_epoch()
            mean = (likelihood / train_rows.present.sum(1)).cpu().numpy()
            stalled = torch.where(moved, 0, stalled + 1)
            running &= stalled < _STALLED_EPOCHS
            if valid_rows is None:
                due = running & moved & (stop_after >= epoch)
                best = _keep(due, current, best)
                best_epoch = torch.where(due, epoch, best_epoch)
                running &= stop_after > epoch
            else:
                score = mean_log_likelihood(network, data, valid_rows)
                better = running & moved & torch.isfinite(score) & (score > best_valid)
                best = _keep(better, current, best)
                best_valid = torch.where(better, score, best_valid)
                best_epoch = torch.where(better, epoch, best_epoch)
                if plan.patience is not None:
                    running &= epoch - best_epoch <= plan.patience
                history.valid.append(score.cpu().numpy())
            history.train.append(mean)
            bar.update(history.train[-1], None if valid_rows is None else best_valid.cpu().numpy())
            if not bool(running.any()):
                break
    with torch.no_grad():
        for tensor, value in zip(current, best):
            tensor.copy_(value)
    network.eval()
    _finish(history, best_valid, best_epoch)
    return history


def _keep(who: Tensor, current: list[Tensor], best: list[Tensor]) -> list[Tensor]:
    """The current tensors of some members, the best so far of the others."""
    return [torch.where(who.reshape(-1, *[1] * (now.ndim - 1)), now, old) for now, old in zip(current, best)]


@torch.no_grad()
def mean_log_likelihood(network: nn.Module, data: TrainingData, rows: Rows, chunk: int = 8192) -> Tensor:
    """Each member's mean log-likelihood (or what it trains on) on its rows, dropout off, (K,) in float64."""
    was_training = network.training
    network.eval()
    longest = rows.index.shape[1]
    if hasattr(network, "validation_rows"):
        chunk = int(network.validation_rows or longest)  # type: ignore[arg-type]
    total = torch.zeros(len(rows.index), dtype=torch.float64, device=rows.index.device)
    for start in range(0, longest, chunk):
        part = slice(start, start + chunk)
        values = row_log_likelihood(network, data, rows.index[:, part], rows.present[:, part])
        total += torch.where(rows.present[:, part], values, 0.0).double().sum(1)
    network.train(was_training)
    return total / rows.present.sum(1)


def shuffled(rows: Rows, seeds: Tensor, epoch: int) -> Rows:
    """Each member's rows in the order of its epoch; padding goes last."""
    bits = random_bits(stream_key(seeds, _SHUFFLE, epoch), rows.index.shape[1]).to(torch.int64)
    bits = torch.where(rows.present, bits, torch.iinfo(torch.int64).max)
    order = torch.argsort(bits, dim=1, stable=True)
    return Rows(rows.index.gather(1, order), rows.present.gather(1, order))


def _finish(history: History, best_valid: Tensor, best_epoch: Tensor) -> None:
    """Note the best epochs, and speak up where members have none."""
    history.best_epoch = best_epoch.cpu().numpy()
    history.best_valid = best_valid.cpu().numpy()
    history.failed = history.best_epoch < 0
    if history.interrupted and history.failed.all():
        raise KeyboardInterrupt  # before there was anything to keep
    if not history.failed.any():
        return
    who = ", ".join(map(str, np.flatnonzero(history.failed)))
    remedy = (
        "Try a smaller learning_rate, look for extreme values in the numeric columns, "
        "and check that validation times are not all beyond the training times."
    )
    if history.failed.all():
        raise TrainingError(f"The likelihood was not finite for any member ({who}). {remedy}")
    warnings.warn(f"Members {who} had no finite likelihood and are left out. {remedy}", RuntimeWarning, stacklevel=4)


@contextmanager
def _interruptible(history: History) -> Iterator[None]:
    """Ctrl-C ends training and keeps the best weights so far."""
    try:
        yield
    except KeyboardInterrupt:
        history.interrupted = True
        if history.train:
            warnings.warn(
                f"Training was interrupted after {len(history.train)} epochs; the best weights so far are kept.",
                RuntimeWarning,
                stacklevel=4,
            )


class _Bar:
    """Epochs done, and the mean log-likelihood of the members on training and validation rows."""

    def __init__(self, bar: object | None, after_epoch: Callable[[], None] | None = None) -> None:
        self._bar, self._after_epoch = bar, after_epoch

    def update(self, train: npt.NDArray[np.float64], best_valid: npt.NDArray[np.float64] | None) -> None:
        if self._after_epoch is not None:
            self._after_epoch()
        if self._bar is None:
            return
        text = f"train {np.nanmean(train):.4f}"
        if best_valid is not None:
            text += f", best valid {np.nanmean(best_valid):.4f}"
        text += " (nats, time scaled to 1)"
        self._bar.set_postfix_str(text, refresh=False)  # type: ignore[attr-defined]
        self._bar.update(1)  # type: ignore[attr-defined]


@contextmanager
def _progress_bar(plan: TrainingPlan, members: int) -> Iterator[_Bar]:
    if not isinstance(plan.progress, bool):
        yield _Bar(None, plan.progress)
        return
    if not plan.progress:
        yield _Bar(None)
        return
    from tqdm.auto import tqdm

    label = "training" if members == 1 else f"training {members} networks"
    with tqdm(total=plan.max_epochs, desc=label, unit="epoch") as bar:
        yield _Bar(bar)
