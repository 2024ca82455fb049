"""The walk of a fit: learn from the rows, build the networks, train them, and make a fitted population."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.fitting.method import NetworkMethod
from sumosurv.fitting.rows import Learned, PreparedRows, event_share
from sumosurv.fitting.stack import FittedPopulation
from sumosurv.networks import Encoder, ModuleEncoder, PopulationNetwork, Rows, TableEncoder
from sumosurv.training import (
    ALONE,
    Checkpoints,
    Epoch,
    History,
    Member,
    Schedule,
    Shift,
    Workers,
    batch_rows,
    find_device,
    held_out_terms,
    threads,
    train,
)

__all__ = ["FitPlan", "TrainedComponent"]


@dataclass(frozen=True)
class TrainedComponent:
    """The networks of one component after training.

    Attributes
    ----------
    population : FittedPopulation
        The members that could be trained.
    history : History
        Of all members, in the user's unit of time.
    failed : ndarray of shape (members,)
        The members that could not be trained.
    has_validation : bool
        Whether the members held out rows.
    interrupted : bool
        Whether Ctrl-C ended the training early.
    held_out : ndarray of shape (rows,), optional
        The log-likelihood of each row under the equal mixture of the members that held it out; NaN if none did.
    """

    population: FittedPopulation
    history: History
    failed: npt.NDArray[np.bool_]
    has_validation: bool
    interrupted: bool
    held_out: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True)
class FitPlan:
    """How the networks of one method are fitted; each step is a function of its arguments and of the plan.

    Parameters
    ----------
    method : NetworkMethod
        With every rule resolved: see `NetworkMethod._alone`.
    name : str
        Of the component.
    checkpoints : Checkpoints, optional
        Where the state of training is kept.
    workers : Workers
        The processes that train together.
    """

    method: NetworkMethod
    name: str = ""
    checkpoints: Checkpoints | None = None
    workers: Workers = ALONE

    def learn(self, rows: PreparedRows) -> Learned:
        """What the networks must know of the rows."""
        outcome, unit = rows.training.on_clock(rows.learned.time_origin), rows.learned.time_unit
        learn = self.method._learn_start if outcome.cause is None else self.method._learn_causes
        return replace(rows.learned, start=learn(outcome, unit))

    def build(self, learned: Learned, seeds: npt.NDArray[np.int64]) -> PopulationNetwork:
        """A population with one member per seed; the same for a fit, a trial of a search and a model file."""
        method, columns = self.method, learned.preprocessor
        generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        encoder: Encoder
        if method.encoder is not None:
            own, said = [int(seed) for seed in seeds], columns.inputs_in_words()
            encoder = ModuleEncoder(method.encoder, own, learned.example(), said)
        elif columns.row_shape is not None:
            raise ValueError("Arrays of more than two dimensions need an encoder= that reads them.")
        else:
            encoder = TableEncoder(
                generators,
                torch.as_tensor(seeds),
                torch.full((len(seeds),), float(method.dropout)),
                n_numeric=columns.n_numeric,
                levels=columns.levels,
                widths=method.covariate_layers,
                activation=method._activation,
                residual=method._residual,
                frequencies=method.frequencies,
            )
        build = method._build_causes if "causes" in learned.start else method._build_network
        return build(learned.start, encoder, generators, seeds)

    def member(
        self,
        seed: int,
        train_rows: npt.NDArray[np.int64],
        valid_rows: npt.NDArray[np.int64] | None,
        stop_after: int | None = None,
    ) -> Member:
        """One network with these settings, on some of the rows."""
        rate, decay = float(self.method.learning_rate), float(self.method.weight_decay)
        return Member(seed, train_rows, valid_rows, rate, decay, stop_after)

    def schedule(self, n_rows: int) -> Schedule:
        """How a population with these settings trains on so many rows."""
        return Schedule(self.method.max_epochs, batch_rows(self.method.batch_size, n_rows), self.method.patience)

    def train(
        self, learned: Learned, rows: PreparedRows, members: Sequence[Member]
    ) -> tuple[PopulationNetwork, History]:
        """Build and train a population, one network for each member."""
        device, verbose = find_device(self.method.device), self.method.verbose
        network = self.build(learned, np.array([member.seed for member in members])).to(device)
        # from mean log-likelihoods in scaled time to the user's unit, member by member
        unit = rows.log_unit if network.terms_are_likelihoods else 0.0
        held_out = [m.valid_rows for m in members if m.valid_rows is not None]
        shift = Shift(
            unit * rows.event_shares(members),
            unit * np.array([event_share(rows.outcome[part]) for part in held_out]) if held_out else np.zeros(1),
        )
        schedule = replace(
            self.schedule(rows.n_training(members)),
            show_progress=bool(verbose) and not callable(verbose) and self.workers.first,
            on_epoch=self._reporter(verbose, shift) if callable(verbose) else None,
            workers=self.workers,
            checkpoint=None if self.checkpoints is None else self.checkpoints.next(),
        )
        batches = rows.batches(members, schedule.batch_size, device)
        history = train(network, rows.table.to(device), members, schedule, batches)
        return network, shift.history(history)

    def _reporter(self, tell: Callable[[Epoch], None], shift: Shift) -> Callable[[Epoch], None]:
        return lambda epoch: tell(replace(shift.epoch(epoch), component=self.name))

    def fit(self, rows: PreparedRows, members: Sequence[Member], *, score_held_out: bool = False) -> TrainedComponent:
        """Learn, train, train again on all rows if ``refit`` asks for it, and make a fitted population."""
        learned = self.learn(rows)
        network, history = self.train(learned, rows, members)
        held_out = _held_out_likelihood(network, rows, members, history.failed) if score_held_out else None
        failed, interrupted, again = history.failed, history.interrupted, False
        has_validation = members[0].valid_rows is not None
        if self.method.refit and has_validation and not interrupted:
            second = self._train_on_all_rows(learned, rows, members, history)
            again, interrupted = second is not None, second is None
            network, failed = (network, failed) if second is None else second
        population = FittedPopulation.of(self.name, rows, learned, network, failed, on_all_rows=again)
        return TrainedComponent(population, history, failed, has_validation, interrupted, held_out)

    def _train_on_all_rows(
        self, learned: Learned, rows: PreparedRows, members: Sequence[Member], history: History
    ) -> tuple[PopulationNetwork, npt.NDArray[np.bool_]] | None:
        """Train again, each member for its best number of epochs; None if Ctrl-C ended it."""
        every = np.arange(len(rows.outcome))
        again = [
            replace(member, train_rows=every, valid_rows=None, stop_after=int(epoch))
            for member, epoch in zip(members, np.where(history.failed, -1, history.best_epoch))
        ]
        try:
            network, second = self.train(learned, rows, again)
        except KeyboardInterrupt:
            return None
        return None if second.interrupted else (network, second.failed)


def _held_out_likelihood(
    network: PopulationNetwork, rows: PreparedRows, members: Sequence[Member], failed: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """The log of the mean likelihood of each row over the members that held it out, in the user's unit of time."""
    log_sum, count = np.full(len(rows.outcome), -np.inf), np.zeros(len(rows.outcome))
    held_out = [member.valid_rows for member in members if member.valid_rows is not None]
    if not held_out:
        return np.full(len(rows.outcome), np.nan)
    table = rows.table.to(next(network.parameters()).device)
    with threads():
        terms = held_out_terms(network, table, Rows.of(held_out).to(table.device)).cpu().numpy()
    for own, values, bad in zip(held_out, terms, failed):
        if not bad:
            log_sum[own] = np.logaddexp(log_sum[own], values[: len(own)])
            count[own] += 1
    log_sum -= rows.outcome.event * rows.log_unit
    return np.where(count > 0, log_sum - np.log(np.maximum(count, 1)), np.nan)
