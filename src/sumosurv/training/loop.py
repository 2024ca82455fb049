"""Training: one plain function that trains a whole population of networks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sumosurv.networks import Batch, PopulationNetwork, Rows, Table, TrainingError
from sumosurv.training.batches import Batches, TableBatches, total_weight
from sumosurv.training.data import Epoch, Member, Schedule
from sumosurv.training.machine import explain_memory, threads
from sumosurv.training.step import TrainingStep, captured, weighted

__all__ = ["History", "Shift", "held_out_terms", "mean_terms", "train"]

_STALLED_EPOCHS = 3


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


def train(
    network: PopulationNetwork,
    table: Table,
    members: Sequence[Member],
    schedule: Schedule,
    batches: Batches | None = None,
) -> History:
    """Fit every member of a population by mini-batch AdamW on its terms: the one way in which networks are trained.

    Each member sees all of its training rows once per epoch, in an order of its own. After every epoch
    the terms of its validation rows are averaged, and it ends with the weights of its best epoch; a
    member whose best epoch is more than ``patience`` epochs back is done. Without validation rows a member keeps the
    weights of its epoch ``stop_after``. Ctrl-C ends training, keeps the best weights so far and is noted in the
    history; it is for the caller to let it through. Before there are any weights to keep it goes through at once.

    Parameters
    ----------
    network : PopulationNetwork
        On the device of the table; changed in place.
    table : Table
        Training and validation rows.
    members : sequence of Member
        One for each network of the population; all with validation rows, or none.
    schedule : Schedule
    batches : Batches, optional
        Where the batches come from, if not from the members' training rows of the table: from rows on disk.

    Returns
    -------
    History

    Raises
    ------
    TrainingError
        If no member ever had a finite likelihood.
    """
    remedy = "Lower ensemble_size, batch_size or the widths of the layers, or use device='cpu'."
    work = schedule.batch_size * sum(p.numel() for p in network.parameters())
    with threads(schedule.n_threads, work), torch.random.fork_rng(devices=[]), explain_memory(remedy):
        torch.manual_seed(members[0].seed)  # for dropout inside encoders of the user's own
        train_rows = Rows.of(network.start_training(table, [member.train_rows for member in members]))
        if batches is None:
            batches = TableBatches(table, train_rows.to(table.device), members, schedule.batch_size)
        held_out = [member.valid_rows for member in members if member.valid_rows is not None]
        valid_rows = Rows.of(held_out).to(table.device) if held_out else None
        return _train(network, batches, table, valid_rows, members, schedule)


def _train(
    network: PopulationNetwork,
    batches: Batches,
    table: Table,
    valid_rows: Rows | None,
    members: Sequence[Member],
    schedule: Schedule,
) -> History:
    count, device, last = len(members), table.device, schedule.max_epochs - 1
    step = TrainingStep(network, batches, members, schedule)
    run_step = captured(step) if device.type == "cuda" else step
    stop_after = torch.tensor([last if m.stop_after is None else m.stop_after for m in members], device=device)
    together = _stopping_groups(members, device)
    history = History()
    # what makes a member what it is: its weights, and buffers such as the averages of batch normalisation
    current = [step.optimiser.weights, *(b for b in network.buffers() if b.ndim and b.shape[0] == count)]
    best = [tensor.clone() for tensor in current]
    best_valid = torch.full((count,), -math.inf, dtype=torch.float64, device=device)
    best_epoch = torch.full((count,), -1, dtype=torch.long, device=device)
    stalled = torch.zeros(count, dtype=torch.long, device=device)
    running = torch.ones(count, dtype=torch.bool, device=device)
    with _interruptible(history), _progress_bar(schedule, count) as show:
        for epoch in range(schedule.max_epochs):
            network.train()
            for batch in batches.epoch(epoch):
                step.load(batch)
                run_step()
            likelihood, moved = step.end_epoch()
            mean = (likelihood / batches.totals).cpu().numpy()
            stalled = torch.where(moved, 0, stalled + 1)
            running &= stalled < _STALLED_EPOCHS
            valid = None
            if valid_rows is None:
                due = running & moved & (stop_after >= epoch)
                best = _keep(due, current, best)
                best_epoch = torch.where(due, epoch, best_epoch)
                running &= stop_after > epoch
            else:
                own = mean_terms(network, table, valid_rows)
                score = own if together is None else _pooled(own, total_weight(table, valid_rows), together)
                better = running & moved & torch.isfinite(score) & (score > best_valid)
                best = _keep(better, current, best)
                best_valid = torch.where(better, score, best_valid)
                best_epoch = torch.where(better, epoch, best_epoch)
                if schedule.patience is not None:
                    running &= epoch - best_epoch <= schedule.patience
                valid = own.cpu().numpy()
            history.note(mean, valid)
            show(mean, None if valid is None else best_valid.cpu().numpy())
            if schedule.on_epoch is not None:
                schedule.on_epoch(Epoch(epoch, schedule.max_epochs, mean, valid))
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


def _stopping_groups(members: Sequence[Member], device: torch.device) -> Tensor | None:
    """The number of each member's stopping group, from 0; None where each stops on its own."""
    if all(member.stops_with is None for member in members):
        return None
    names = [("alone", k) if m.stops_with is None else ("with", m.stops_with) for k, m in enumerate(members)]
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([order[name] for name in names], device=device)


def _pooled(score: Tensor, weight: Tensor, group: Tensor) -> Tensor:
    """The mean over the validation rows of all members of a group, for each of them; of those whose own is finite."""
    finite = torch.isfinite(score)
    own = torch.where(finite, weight.to(score), 0.0)
    sums = torch.zeros(int(group.max()) + 1, dtype=score.dtype, device=score.device)
    total, count = sums.index_add(0, group, own * torch.where(finite, score, 0.0)), sums.index_add(0, group, own)
    return torch.where(finite, (total / count)[group], score)


@torch.no_grad()
def mean_terms(network: PopulationNetwork, table: Table, rows: Rows) -> Tensor:
    """Each member's mean log-likelihood (or what it trains on) on its rows, dropout off, (K,) in float64."""
    total = torch.zeros(len(rows.index), dtype=torch.float64, device=rows.index.device)
    for batch, terms in _evaluated(network, table, rows):
        total += weighted(torch.where(batch.present, terms, 0.0), batch).double().sum(1)
    return total / total_weight(table, rows)


@torch.no_grad()
def held_out_terms(network: PopulationNetwork, table: Table, rows: Rows) -> Tensor:
    """Each member's log-likelihood of each of its rows, dropout off, (K, n) in float64; anything where it has none."""
    return torch.cat([terms.double() for _, terms in _evaluated(network, table, rows)], dim=1)


def _evaluated(network: PopulationNetwork, table: Table, rows: Rows) -> Iterator[tuple[Batch, Tensor]]:
    """The terms of some rows at a time, dropout off."""
    was_training = network.training
    network.eval()
    longest = rows.index.shape[1]
    chunk = network.validation_rows or longest
    for start in range(0, longest, chunk):
        part = rows.columns(slice(start, start + chunk))
        batch = table.batch(part.index, part.present)
        yield batch, network.terms(batch)
    network.train(was_training)


def _finish(history: History, best_valid: Tensor, best_epoch: Tensor) -> None:
    """Note the best epochs, and speak up where members have none."""
    history.best_epoch = best_epoch.cpu().numpy()
    history.best_valid = best_valid.cpu().numpy()
    history.failed = history.best_epoch < 0
    if history.interrupted and (history.failed.all() or not history.train):
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
        del history.valid[len(history.train) :]  # of an epoch that was half noted


@contextmanager
def _progress_bar(
    schedule: Schedule, members: int
) -> Iterator[Callable[[npt.NDArray[np.float64], npt.NDArray[np.float64] | None], None]]:
    """A function that shows the members' mean likelihood on training rows, and their best on validation rows."""
    if not schedule.show_progress:
        yield lambda train, best_valid: None
        return
    from tqdm.auto import tqdm

    label = "training" if members == 1 else f"training {members} networks"
    with tqdm(total=schedule.max_epochs, desc=label, unit="epoch") as bar:

        def show(train: npt.NDArray[np.float64], best_valid: npt.NDArray[np.float64] | None) -> None:
            text = f"train {np.nanmean(train):.4f}"
            if best_valid is not None:
                text += f", best valid {np.nanmean(best_valid):.4f}"
            bar.set_postfix_str(f"{text} (nats, time scaled to 1)", refresh=False)
            bar.update(1)

        yield show
