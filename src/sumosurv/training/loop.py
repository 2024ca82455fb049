"""Training: one function that trains a whole population of networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sumosurv.networks import ModuleEncoder, PopulationNetwork, Rows, Table, TrainingError, select_members
from sumosurv.networks.recorded import RecordedNetwork, can_record
from sumosurv.training.batches import Batches, Member, TableBatches, total_weight
from sumosurv.training.checkpoint import Checkpoint, training_digest
from sumosurv.training.forked import Forked, can_fork
from sumosurv.training.processes import ALONE, Workers, check_shareable, explain_memory, threads
from sumosurv.training.step import TrainingStep, as_cuda_graph
from sumosurv.warn import warn_user

Floats = npt.NDArray[np.float64]

_WHOLE_VECTORS = 32  # rows in these multiples: no vector of torch's loops then holds numbers of two members
LEAST_MEMBERS = 2  # per process: torch multiplies the matrices of a single network in another order
_ROWS_ON_CPU = 512  # per member, evaluated at once
_STALLED_EPOCHS = 3  # a member that takes no step for so many epochs has failed


@dataclass(frozen=True)
class Epoch:
    """Passed to callbacks after each epoch: the mean log-likelihood (or objective) of each member.

    Attributes
    ----------
    number : int
        Number of the epoch, from 0.
    n_epochs : int
        Largest number of epochs.
    train : ndarray of shape (members,)
        Means over training rows, with dropout.
    valid : ndarray of shape (members,) or None
        Means over validation rows; None if there are none.
    component : str
        Name of the component that is being trained.
    """

    number: int
    n_epochs: int
    train: Floats
    valid: Floats | None
    component: str = ""


@dataclass(frozen=True)
class Schedule:
    """How all members of a population train.

    A member stops when its best validation likelihood is more than ``patience`` epochs old. Several ``workers``
    share each batch; ``n_jobs`` processes share the members. A ``checkpoint`` stores the state after an epoch, and
    training resumes from it. ``component`` is the name under which epochs are reported. ``shift`` is subtracted from
    each member's reported means on training and validation rows, to convert them from scaled time to the user's unit.
    """

    max_epochs: int
    batch_size: int
    patience: int | None = None
    show_progress: bool = False
    on_epoch: Callable[[Epoch], None] | None = None
    workers: Workers = ALONE
    checkpoint: Checkpoint | None = None
    component: str = ""
    shift: tuple[Floats | float, Floats | float] = (0.0, 0.0)
    n_jobs: int | None = None

    @property
    def row_multiple(self) -> int:
        """Batches are padded to a multiple of this number, so that results do not depend on the number of processes."""
        return 1 if self.n_jobs is None else _WHOLE_VECTORS


@dataclass
class History:
    """Mean log-likelihoods per epoch and member, and the best epoch of each member."""

    train: list[Floats] = field(default_factory=list)
    valid: list[Floats] = field(default_factory=list)
    best_epoch: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    best_valid: Floats = field(default_factory=lambda: np.zeros(0))
    failed: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    interrupted: bool = False

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


def train(
    network: PopulationNetwork,
    table: Table,
    members: Sequence[Member],
    schedule: Schedule,
    batches: Batches | None = None,
) -> History:
    """Train every member of a population by mini-batch AdamW on its objective; all networks are trained here.

    Each member sees all of its training rows once per epoch, in its own order. After every epoch, its objective is
    averaged over its validation rows; the member keeps the weights of its best epoch, and stops when that epoch is more
    than ``patience`` epochs old. Without validation rows, a member keeps the weights of its epoch ``stop_after``.
    Ctrl-C ends training, keeps the best weights so far and is recorded in the history, so that the caller can raise it
    again. If there are no weights to keep yet, KeyboardInterrupt is raised immediately.

    Parameters
    ----------
    network : PopulationNetwork
        On the device of the table; changed in place.
    table : Table
        Training and validation rows.
    members : sequence of Member
        One per network of the population; either all have validation rows or none has.
    schedule : Schedule
    batches : Batches, optional
        Batches of rows on disk. By default, batches are drawn from the members' training rows in the table.

    Returns
    -------
    History

    Raises
    ------
    TrainingError
        If no member ever had a finite likelihood.
    """
    remedy = "Lower n_members, batch_size or the widths of the layers, or use device='cpu'."
    work = schedule.batch_size * sum(p.numel() for p in network.parameters())
    on_device = [table.device] if table.device.type == "cuda" else []
    with threads(work), torch.random.fork_rng(devices=on_device), explain_memory(remedy):
        train_rows = Rows.of(network.start_training(table, [member.train_rows for member in members]))
        if batches is None:
            batches = TableBatches(table, train_rows.to(table.device), members, schedule.batch_size)
        held_out = [member.valid_rows for member in members if member.valid_rows is not None]
        valid_rows = Rows.of(held_out).padded(schedule.row_multiple).to(table.device) if held_out else None
        check_shareable(network, schedule.workers)
        digest = ""
        if schedule.checkpoint is not None or schedule.workers.size > 1:
            own = [(m.seed, m.learning_rate, m.weight_decay, m.stop_after, m.stops_together) for m in members]
            settings = [own, schedule.max_epochs, schedule.batch_size, schedule.patience, batches.signature]
            digest = training_digest(network, table, (train_rows, valid_rows), settings)
        task = _Task(network, batches, table, valid_rows, members, schedule)
        blocks = _blocks(task)
        if len(blocks) == 1:
            return _train(task, _Part(task), blocks, digest)
        with Forked([partial(_forked_part, task, block) for block in blocks]) as parts:
            history = _train(task, parts, blocks, digest)
            for p, values in zip(network.parameters(), zip(*parts.ask("weights"))):
                p.data.copy_(torch.from_numpy(np.concatenate(values)))
        return history


@dataclass(frozen=True)
class _Task:
    """A population, its rows and its schedule."""

    network: PopulationNetwork
    batches: Batches
    table: Table
    valid_rows: Rows | None
    members: Sequence[Member]
    schedule: Schedule


def _train(task: _Task, parts: _Part | Forked, blocks: Sequence[slice], digest: str) -> History:
    """Train the parts of a population; each part has the members of one block."""
    schedule, workers, checkpoint = task.schedule, task.schedule.workers, task.schedule.checkpoint
    history = History()
    begin = 0
    if checkpoint is not None and isinstance(parts, _Part):
        begin = checkpoint.load(digest, parts.state(), (history.train, history.valid))
    workers.check_agreement(f"{digest} {begin}")
    try:
        with _progress_bar(schedule, len(task.members)) as bar:
            for epoch in range(begin, schedule.max_epochs):
                number = [epoch] * len(blocks)
                means, scores = zip(*parts.ask("run", number))
                train, valid = np.concatenate(means) - schedule.shift[0], None
                if task.valid_rows is not None:
                    valid = np.concatenate(scores) - schedule.shift[1]
                    if task.members[0].stops_together:
                        pooled = _pooled(np.concatenate(scores), total_weight(task.table, task.valid_rows))
                        scores = tuple(pooled[block] for block in blocks)
                    history.valid.append(valid)
                best, running = zip(*parts.ask("update_best", number, scores))
                history.train.append(train)
                if bar is not None:
                    _show(bar, train, None if valid is None else np.concatenate(best) - schedule.shift[1])
                if schedule.on_epoch is not None:
                    schedule.on_epoch(Epoch(epoch, schedule.max_epochs, train, valid, schedule.component))
                done = epoch == schedule.max_epochs - 1 or not any(running)
                if checkpoint is not None and isinstance(parts, _Part) and workers.first:
                    checkpoint.save(digest, parts.state(), (history.train, history.valid), done=done)
                if done:
                    break
    except KeyboardInterrupt:
        if workers.size > 1:
            raise
        history.interrupted = True
        del history.valid[len(history.train) :]  # the interrupted epoch
    best_epoch, best_valid = (np.concatenate(values) for values in zip(*parts.ask("end")))
    task.network.eval()
    history.best_epoch, history.best_valid = best_epoch, best_valid - schedule.shift[1]
    history.failed = history.best_epoch < 0
    _report_failures(history)
    return history


class _Part:
    """The members that one process trains; `ask` has the signature of `Forked.ask` but runs in this process."""

    def __init__(self, task: _Task) -> None:
        self.task, schedule = task, task.schedule
        self.step = TrainingStep(
            task.network, task.batches, task.members, schedule.max_epochs, schedule.workers, schedule.row_multiple
        )
        self.run_step = as_cuda_graph(self.step) if task.table.device.type == "cuda" else self.step
        self.recorded = None if task.valid_rows is None else _record(task.network, task.table, task.valid_rows)
        self.best = _BestWeights(self.step, task.members, schedule)
        self.moved = self.step.moved.clone()  # in the last epoch

    def ask(self, method: str, *arguments: Sequence[Any]) -> list[Any]:
        """Call a method; each argument is a sequence of length one."""
        return [getattr(self, method)(*(own for (own,) in arguments))]

    def state(self) -> list[Tensor]:
        """Return all tensors that an epoch changes."""
        return [*self.step.state(), *self.best.state()]

    def run(self, epoch: int) -> tuple[Floats, Floats | None]:
        """Train for an epoch; return the mean terms of training rows, and of validation rows if there are any."""
        task, workers = self.task, self.task.schedule.workers
        # for dropout in custom encoders: each epoch and each worker has its own seed
        _seed(task.members[0].seed + 1 + epoch * workers.size + workers.rank, task.table.device)
        if not task.network.training:
            task.network.train()
        for batch in task.batches.epoch(epoch):
            self.step.load(batch)
            self.run_step()
        likelihood, self.moved = self.step.end_epoch()
        mean = (likelihood / task.batches.totals).cpu().numpy()
        if task.valid_rows is None:
            return mean, None
        held_out = mean_terms(task.network, task.table, task.valid_rows, workers, self.recorded)
        return mean, held_out.cpu().numpy()

    def update_best(self, epoch: int, score: Floats | None) -> tuple[Floats, bool]:
        """Keep the weights of members with a better score; return the best scores, and whether any member continues."""
        given = None if score is None else torch.from_numpy(score).to(self.moved.device)
        self.best.after_epoch(epoch, self.moved, given)
        return self.best.valid.cpu().numpy(), bool(self.best.running.any())

    def end(self) -> tuple[npt.NDArray[np.int64], Floats]:
        """Restore the best weights; return their epochs and scores."""
        self.best.restore()
        return self.best.epoch.cpu().numpy(), self.best.valid.cpu().numpy()

    def weights(self) -> list[npt.NDArray[Any]]:
        """Return the parameters of the members."""
        return [p.detach().numpy() for p in self.task.network.parameters()]


def _blocks(task: _Task) -> list[slice]:
    """Divide the members among ``n_jobs`` processes; one process trains all if they cannot be separated."""
    schedule, count = task.schedule, len(task.members)
    alone = (
        schedule.n_jobs is None
        or schedule.checkpoint is not None
        or schedule.workers.size > 1
        or task.table.device.type != "cpu"
        or not isinstance(task.batches, TableBatches)
        or not task.network.rows_are_separate
        # the random numbers of custom encoders are drawn for all members together
        or any(isinstance(module, ModuleEncoder) for module in task.network.modules())
        or not can_fork()
    )
    n = 1 if alone else max(1, min(schedule.n_jobs or 1, count // LEAST_MEMBERS))
    return [slice(count * i // n, count * (i + 1) // n) for i in range(n)]


def _forked_part(task: _Task, block: slice) -> _Part:
    """Return the part with the members of one block."""
    network = select_members(task.network, block)
    for own, p in zip(network.parameters(), task.network.parameters()):
        own.requires_grad_(p.requires_grad)
    assert isinstance(task.batches, TableBatches)
    members, valid_rows = task.members[block], task.valid_rows
    batches = TableBatches(task.table, task.batches.rows.members(block), members, task.schedule.batch_size)
    held_out = None if valid_rows is None else valid_rows.members(block)
    return _Part(_Task(network, batches, task.table, held_out, members, task.schedule))


class _BestWeights:
    """The best weights of each member so far, their epochs and scores, and which members still train.

    All tensors stay in place. Weights include buffers with one entry per member, such as the averages of batch
    normalisation.
    """

    def __init__(self, step: TrainingStep, members: Sequence[Member], schedule: Schedule) -> None:
        count, last = len(members), schedule.max_epochs - 1
        own = [buffer for buffer in step.network.buffers() if buffer.ndim and buffer.shape[0] == count]
        self._current, self._patience = [step.optimiser.weights, *own], schedule.patience
        device = self._current[0].device
        stop_after = [last if m.stop_after is None else m.stop_after for m in members]
        self._stop_after = torch.tensor(stop_after, device=device)
        self._best = [tensor.clone() for tensor in self._current]
        self.valid = torch.full((count,), -math.inf, dtype=torch.float64, device=device)
        self.epoch = torch.full((count,), -1, dtype=torch.long, device=device)
        self._stalled = torch.zeros(count, dtype=torch.long, device=device)
        self.running = torch.ones(count, dtype=torch.bool, device=device)

    def after_epoch(self, epoch: int, moved: Tensor, score: Tensor | None) -> None:
        """Record the validation scores (None without validation rows); ``moved`` marks members that took a step."""
        self._stalled.copy_(torch.where(moved, 0, self._stalled + 1))
        self.running &= self._stalled < _STALLED_EPOCHS
        if score is None:
            better = self.running & moved & (self._stop_after >= epoch)
            self.running &= self._stop_after > epoch
        else:
            better = self.running & moved & torch.isfinite(score) & (score > self.valid)
            self.valid.copy_(torch.where(better, score, self.valid))
        for now, old in zip(self._current, self._best):
            old.copy_(torch.where(better.reshape(-1, *[1] * (now.ndim - 1)), now, old))
        self.epoch.copy_(torch.where(better, epoch, self.epoch))
        if score is not None and self._patience is not None:
            self.running &= epoch - self.epoch <= self._patience

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the best weights."""
        for tensor, value in zip(self._current, self._best):
            tensor.copy_(value)

    def state(self) -> list[Tensor]:
        """Return all tensors that an epoch changes."""
        return [self.valid, self.epoch, self._stalled, self.running, *self._best]


def _seed(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of this device only."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _pooled(scores: Floats, weight: Tensor) -> Floats:
    """Replace the finite scores by their mean, weighted by the validation rows of the members."""
    score = torch.from_numpy(scores)
    finite = torch.isfinite(score)
    own = torch.where(finite, weight.to(score), 0.0)
    return torch.where(finite, (own * torch.where(finite, score, 0.0)).sum() / own.sum(), score).numpy()


@torch.no_grad()
def mean_terms(
    network: PopulationNetwork,
    table: Table,
    rows: Rows,
    workers: Workers = ALONE,
    recorded: RecordedNetwork | None = None,
) -> Tensor:
    """Return each member's mean log-likelihood (or objective) on its rows, without dropout, (K,) in float64."""
    total = torch.zeros(len(rows.index), dtype=torch.float64, device=rows.index.device)
    for part, terms in _evaluated(network, table, rows.columns(workers.share(rows.index.shape[1])), recorded):
        total += torch.where(part.present, terms, 0.0).mul(table.row_weights(part.index)).double().sum(1)
    return workers.sum(total) / total_weight(table, rows)


@torch.no_grad()
def held_out_terms(network: PopulationNetwork, table: Table, rows: Rows) -> Tensor:
    """Return each member's log-likelihood of each of its rows, without dropout, (K, n); padding is arbitrary."""
    terms = torch.cat([terms.double() for _, terms in _evaluated(network, table, rows)], dim=1)
    return terms[:, : rows.index.shape[1]]


def _record(network: PopulationNetwork, table: Table, rows: Rows) -> RecordedNetwork | None:
    """Return the recorded likelihood of so many rows at a time, if the network and the table are supported."""
    if not can_record(network, table, training=False):
        return None
    chunk = max(1, min(_ROWS_ON_CPU, rows.index.shape[1]))
    return RecordedNetwork(network, table, torch.zeros(len(rows.index), chunk, dtype=torch.long))


def _evaluated(
    network: PopulationNetwork, table: Table, rows: Rows, recorded: RecordedNetwork | None = None
) -> Iterator[tuple[Rows, Tensor]]:
    """Yield the terms of some rows at a time, without dropout; padding may follow the last rows."""
    was_training, recorded = network.training, recorded or _record(network, table, rows)
    if recorded is None:
        network.eval()
    chunk = network.validation_rows or rows.index.shape[1]
    if recorded is not None:
        chunk = recorded.index.shape[1]
        rows = rows.padded(chunk)
    elif rows.index.device.type == "cpu" and network.validation_rows is not None:
        chunk = min(chunk, _ROWS_ON_CPU)
    for start in range(0, rows.index.shape[1], chunk):
        part = rows.columns(slice(start, start + chunk))
        if recorded is None:
            yield part, network.terms(table.batch(part.index, part.present))
        else:
            recorded.index.copy_(part.index)
            yield part, recorded.terms()
    if network.training != was_training:
        network.train(was_training)


def _report_failures(history: History) -> None:
    if history.interrupted and (history.failed.all() or not history.train):
        raise KeyboardInterrupt  # there are no weights to keep
    if not history.failed.any():
        return
    who = ", ".join(map(str, np.flatnonzero(history.failed)))
    remedy = (
        "Try a smaller learning_rate, look for extreme values in the numeric columns, "
        "and check that validation times are not all beyond the training times."
    )
    if history.failed.all():
        raise TrainingError(f"The likelihood was not finite for any member ({who}). {remedy}")
    warn_user(f"Members {who} had no finite likelihood and are left out. {remedy}", RuntimeWarning)


def _progress_bar(schedule: Schedule, members: int) -> Any:
    if not schedule.show_progress:
        return nullcontext()
    from tqdm.auto import tqdm

    label = "training" if members == 1 else f"training {members} networks"
    return tqdm(total=schedule.max_epochs, desc=label, unit="epoch")


def _show(bar: Any, train: Floats, best_valid: Floats | None) -> None:
    """Show the mean likelihood on training rows, and the best so far on validation rows."""
    text = f"train {np.nanmean(train):.4f}"
    if best_valid is not None:
        text += f", best valid {np.nanmean(best_valid):.4f}"
    bar.set_postfix_str(f"{text} (nats)", refresh=False)
    bar.update(1)
