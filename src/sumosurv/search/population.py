"""Trials of searches as members of populations: trained side by side, scored on their validation rows."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.networks import Observed, PopulationNetwork, Rows, Table, TrainingError
from sumosurv.networks.stacking import extract_members, stack_members, unstack_members
from sumosurv.outcome import Outcome
from sumosurv.scores import log_likelihood
from sumosurv.search.grouping import Way, Widths, group_members
from sumosurv.search.jobs import Job, TrialMember
from sumosurv.training import Epoch, History, Member, find_device, threads, train

__all__ = ["Population", "before_entry", "train_members"]

_LARGEST = 4096  # members of one population
_ROWS = 4096  # rows scored at once


@dataclass
class Population:
    """Trained members, all in one network."""

    members: list[TrialMember]
    network: PopulationNetwork
    history: History
    jobs: Sequence[Job]
    widths: Widths  # to which its networks were padded, if they were
    scores: list[npt.NDArray[np.float64]] = field(default_factory=list)  # of each member's validation rows
    reach: list[npt.NDArray[np.float64]] = field(default_factory=list)  # log S(entry) of these, if some enter late

    def own(self, place: int) -> NetworkEstimator:
        """The fitted estimator of one member, in its own shape."""
        member = self.members[place]
        narrow = self.jobs[member.job].build(member.parameters, member.seed)
        narrow = narrow.to(next(self.network.parameters()).device)
        return self._fitted([place], extract_members(self.network, [place], narrow), {})

    def mixture(self, places: Sequence[int]) -> NetworkEstimator:
        """One fitted estimator of several members of one job, in the shapes in which they were trained."""
        return self._fitted(places, unstack_members(self.network, list(places)), self.widths)

    def _fitted(self, places: Sequence[int], network: PopulationNetwork, widths: Widths) -> NetworkEstimator:
        first = self.members[places[0]]
        job, parameters = self.jobs[first.job], {**first.parameters, **widths}
        settings = copy.copy(job.settings(parameters))
        settings.n_members = len(places)
        worked = np.zeros(len(places), dtype=bool)
        rows, learned = job.rows(parameters), job.learned(parameters)
        return settings.fitted(rows, learned, network, worked, on_all_rows=first.on_all_rows)

    @torch.no_grad()
    def log_likelihood(self, job: int, X: Any, y: Outcome) -> dict[int, npt.NDArray[np.float64]]:
        """The log-likelihood of new rows under each member of a job that worked, all at once, by its place."""
        places = [i for i, m in enumerate(self.members) if m.job == job and not self.history.failed[i]]
        if not places:
            return {}
        learned = self.jobs[job].learned(self.members[places[0]].parameters)
        cells = learned.cells if y.upper is None else None
        if not self.network.terms_are_likelihoods or y.upper is not None or cells is not None:
            # terms are something else, or in single precision: ask the distribution itself
            curves = {i: self.own(i).predict_distribution(X) for i in places}
            return {i: np.asarray(log_likelihood(d, y, resolution=cells)) for i, d in curves.items()}
        device = next(self.network.parameters()).device
        scaled = y.on_clock(learned.time_origin, learned.time_unit)
        exact = Observed.of(scaled, torch.float64)
        near = replace(Observed.of(scaled), time=exact.time.clamp_min(0.0).float())
        table = Table(learned.preprocessor.transform(X), near).to(device)
        network = unstack_members(self.network, places).eval()
        every = Rows.of([np.arange(len(y))]).to(device)  # the same for all members
        values = _terms(network, table, every).cpu() - exact.event * math.log(learned.time_unit)
        values = torch.where(exact.time < 0, torch.where(exact.event, -math.inf, 0.0), values)
        return dict(zip(places, values.numpy()))


def train_members(
    members: Sequence[TrialMember],
    jobs: Sequence[Job],
    *,
    way: Way,
    widest: Widths,
    max_epochs: int | None = None,
    after_epoch: Callable[[int, int], None] | None = None,
) -> tuple[list[Population], bool]:
    """Train members side by side, those that can share a batch in one population each.

    Parameters
    ----------
    members, jobs
        What to train, and on which rows.
    way : {"padded", "grouped"}
        How networks of different widths and depths run side by side; see `group_members`.
    widest : mapping
        Widths of padded networks, by the name of the setting.
    max_epochs : int, optional
        In place of the estimator's.
    after_epoch : callable, optional
        Called with the members of a population and its number of epochs after each epoch.

    Returns
    -------
    list of Population, and whether Ctrl-C ended the training early
    """
    done: list[Population] = []
    for widths, group in group_members(members, jobs, way, widest):
        # jobs whose networks differ in shape are parted
        parts: dict[Hashable, list[TrialMember]] = {}
        for member in group:
            key = jobs[member.job].shapes({**member.parameters, **widths}), member.valid_rows is None
            parts.setdefault(key, []).append(member)
        for part in parts.values():
            for start in range(0, len(part), _LARGEST):
                try:
                    made = _train_population(part[start : start + _LARGEST], jobs, widths, max_epochs, after_epoch)
                except TrainingError:
                    continue  # not one member with a finite likelihood: these trials have failed
                except KeyboardInterrupt:
                    return done, True
                done.append(made)
                if made.history.interrupted:
                    return done, True
    return done, False


def _train_population(
    members: list[TrialMember],
    jobs: Sequence[Job],
    widths: Widths,
    max_epochs: int | None,
    after_epoch: Callable[[int, int], None] | None,
) -> Population:
    first = members[0]
    settings = jobs[first.job].settings(first.parameters)
    device = find_device(settings.device)
    parts = [jobs[member.job].build(member.parameters, member.seed) for member in members]
    template = jobs[first.job].build({**first.parameters, **widths}, first.seed)
    network = stack_members(parts, template).to(device)
    table, offsets = _one_table(members, jobs)
    table = table.to(device)
    own = [member.member(jobs[member.job], offsets[member.job]) for member in members]
    schedule = settings.schedule(len(first.train_rows))
    epochs = schedule.max_epochs if max_epochs is None else max_epochs

    def on_epoch(epoch: Epoch) -> None:
        if after_epoch is not None:
            after_epoch(len(members), epochs)

    with warnings.catch_warnings():
        # of members that fail and of Ctrl-C: the search has its own way to tell
        warnings.simplefilter("ignore", RuntimeWarning)
        history = train(network, table, own, replace(schedule, max_epochs=epochs, on_epoch=on_epoch))
    population = Population(members, network.requires_grad_(False), history, jobs, widths)
    if first.valid_rows is not None:
        with threads(schedule.n_threads):
            population.scores = _validation_scores(population, table, own)
            population.reach = _validation_reach(population, table, own)
    return population


def _one_table(members: Sequence[TrialMember], jobs: Sequence[Job]) -> tuple[Table, dict[int, int]]:
    """The rows of all jobs, one below the other, and where those of each begin."""
    first = {member.job: member for member in reversed(members)}
    tables = {j: jobs[j].rows(first[j].parameters).table for j in sorted(first)}
    ends = np.cumsum([0, *(len(table) for table in tables.values())])
    return Table.join(list(tables.values())), {j: int(end) for j, end in zip(tables, ends)}


@torch.no_grad()
def _validation_scores(
    population: Population, table: Table, members: Sequence[Member]
) -> list[npt.NDArray[np.float64]]:
    """The log-likelihood of each validation row under its member, in the user's unit of time."""
    if not population.network.terms_are_likelihoods:  # trained on something else: ask the distribution itself
        return [_own_scores(population, place) for place in range(len(members))]
    rows = Rows.of([member.valid_rows for member in members if member.valid_rows is not None]).to(table.device)
    population.network.eval()
    values = _terms(population.network, table, rows)
    units = [population.jobs[m.job].learned(m.parameters).time_unit for m in population.members]
    logs = torch.tensor([[math.log(unit)] for unit in units], device=values.device)
    values = values - table.outcome.event[rows.index] * logs
    return [row[keep].cpu().numpy() for row, keep in zip(values, rows.present)]


@torch.no_grad()
def _validation_reach(population: Population, table: Table, members: Sequence[Member]) -> list[npt.NDArray[np.float64]]:
    """log S(entry) of each validation row under its member; nothing where all rows are seen from the start."""
    entry = table.outcome.entry
    if entry is None:
        return []
    if not population.network.terms_are_likelihoods:
        return [_own_scores(population, place, until_entry=True) for place in range(len(members))]
    rows = Rows.of([member.valid_rows for member in members if member.valid_rows is not None]).to(table.device)
    cause = None if table.outcome.cause is None else torch.zeros_like(table.outcome.cause)
    until = Observed(torch.zeros_like(table.outcome.event), entry, cause=cause)
    values = _terms(population.network, Table(table.inputs, until), rows)
    return [row[keep].cpu().numpy() for row, keep in zip(values, rows.present)]


def _terms(network: PopulationNetwork, table: Table, rows: Rows) -> Tensor:
    """The terms of rows (K or 1, n) in float64, some columns at a time."""
    parts = [rows.columns(slice(start, start + _ROWS)) for start in range(0, rows.index.shape[1], _ROWS)]
    return torch.cat([network.terms(table.batch(p.index, p.present)) for p in parts], dim=1).double()


def _own_scores(population: Population, place: int, *, until_entry: bool = False) -> npt.NDArray[np.float64]:
    """The same from a member's distribution; or log S(entry) of each row."""
    member = population.members[place]
    if population.history.failed[place] or member.valid_rows is None:
        return np.full(0 if member.valid_rows is None else len(member.valid_rows), -np.inf)
    rows = population.jobs[member.job].rows(member.parameters)
    distribution = population.own(place).distribution_of(rows.table.inputs[torch.from_numpy(member.valid_rows)])
    outcome = rows.outcome[member.valid_rows]
    return np.asarray(log_likelihood(distribution, before_entry(outcome) if until_entry else outcome), dtype=np.float64)


def before_entry(outcome: Outcome) -> Outcome:
    """Rows that were seen from the start until their entry, without an event."""
    none = np.zeros(len(outcome), dtype=np.int64)
    entry = np.zeros(len(outcome)) if outcome.entry is None else outcome.entry
    return Outcome(none > 0, entry, cause=None if outcome.cause is None else none)
