"""Training: one plain function that trains a whole population of networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sumosurv.grouped_sum import add_by_group
from sumosurv.networks import Batch, PopulationNetwork, Rows, Table, TrainingError
from sumosurv.training.batches import Batches, TableBatches, total_weight
from sumosurv.training.data import Epoch, Member, Schedule
from sumosurv.training.history import History
from sumosurv.training.kept import Kept
from sumosurv.training.machine import explain_memory, threads
from sumosurv.training.parallel import ALONE, Workers, check_shareable
from sumosurv.training.resume import SavedTraining
from sumosurv.training.step import TrainingStep, captured, weighted
from sumosurv.warn import warn_user

__all__ = ["held_out_terms", "mean_terms", "train"]


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
    remedy = "Lower n_members, batch_size or the widths of the layers, or use device='cpu'."
    work = schedule.batch_size * sum(p.numel() for p in network.parameters())
    on_device = [table.device] if table.device.type == "cuda" else []
    with threads(work), torch.random.fork_rng(devices=on_device), explain_memory(remedy):
        train_rows = Rows.of(network.start_training(table, [member.train_rows for member in members]))
        if batches is None:
            batches = TableBatches(table, train_rows.to(table.device), members, schedule.batch_size)
        held_out = [member.valid_rows for member in members if member.valid_rows is not None]
        valid_rows = Rows.of(held_out).to(table.device) if held_out else None
        check_shareable(network, schedule.workers)
        saved = SavedTraining.of(network, table, (train_rows, valid_rows), members, schedule, batches.signature)
        return _train(network, batches, table, valid_rows, members, schedule, saved)


def _train(
    network: PopulationNetwork,
    batches: Batches,
    table: Table,
    valid_rows: Rows | None,
    members: Sequence[Member],
    schedule: Schedule,
    saved: SavedTraining,
) -> History:
    count, device, workers = len(members), table.device, schedule.workers
    step = TrainingStep(network, batches, members, schedule)
    run_step = captured(step) if device.type == "cuda" else step
    together = _stopping_groups(members, device)
    history = History()
    # what makes a member what it is: its weights, and buffers such as the averages of batch normalisation
    current = [step.optimiser.weights, *(b for b in network.buffers() if b.ndim and b.shape[0] == count)]
    kept = Kept(current, members, schedule)
    begun = saved.load(step, kept, history)
    with _interruptible(history, workers), _progress_bar(schedule, count) as show:
        for epoch in range(begun, schedule.max_epochs):
            # for dropout inside encoders of the user's own: each epoch, and each share of a batch, has its own seed
            _seed(members[0].seed + 1 + epoch * workers.size + workers.rank, device)
            network.train()
            for batch in batches.epoch(epoch):
                step.load(batch)
                run_step()
            likelihood, moved = step.end_epoch()
            mean = (likelihood / batches.totals).cpu().numpy()
            own = score = None
            if valid_rows is not None:
                own = score = mean_terms(network, table, valid_rows, workers)
                if together is not None:
                    score = _pooled(own, total_weight(table, valid_rows), together)
            kept.after_epoch(epoch, moved, score)
            valid = None if own is None else own.cpu().numpy()
            history.note(mean, valid)
            show(mean, None if valid is None else kept.best_valid.cpu().numpy())
            if schedule.on_epoch is not None:
                schedule.on_epoch(Epoch(epoch, schedule.max_epochs, mean, valid))
            done = epoch == schedule.max_epochs - 1 or not bool(kept.running.any())
            saved.save(step, kept, history, done=done)
            if done:
                break
    kept.take_best()
    network.eval()
    _finish(history, kept.best_valid, kept.best_epoch)
    return history


def _seed(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of the device, and no other's."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


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
    total, count = (add_by_group(sums, group, part) for part in (own * torch.where(finite, score, 0.0), own))
    return torch.where(finite, (total / count)[group], score)


@torch.no_grad()
def mean_terms(network: PopulationNetwork, table: Table, rows: Rows, workers: Workers = ALONE) -> Tensor:
    """Each member's mean log-likelihood (or what it trains on) on its rows, dropout off, (K,) in float64."""
    total = torch.zeros(len(rows.index), dtype=torch.float64, device=rows.index.device)
    for batch, terms in _evaluated(network, table, rows.columns(workers.share(rows.index.shape[1]))):
        total += weighted(torch.where(batch.present, terms, 0.0), batch).double().sum(1)
    return workers.sum(total) / total_weight(table, rows)


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
    warn_user(f"Members {who} had no finite likelihood and are left out. {remedy}", RuntimeWarning)


@contextmanager
def _interruptible(history: History, workers: Workers) -> Iterator[None]:
    """Ctrl-C ends training and keeps the best weights so far; of several workers it ends each where it is."""
    try:
        yield
    except KeyboardInterrupt:
        if workers.size > 1:
            raise
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
