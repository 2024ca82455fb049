"""The networks of trials: their rows, which of them train together, and training them, here or by other processes."""

from __future__ import annotations

import copy
import math
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.plan import FitPlan
from sumosurv.fitting.prepared import Learned, PreparedRows, RowOptions
from sumosurv.fitting.stack import FittedPopulation, FittedStack
from sumosurv.networks import PopulationNetwork, Rows, Table, TrainingError
from sumosurv.networks.recorded import can_record
from sumosurv.networks.stacking import extract_members, stack_members, unstack_members
from sumosurv.outcome import Outcome
from sumosurv.scores import log_likelihood
from sumosurv.search.study import Layout
from sumosurv.training import Epoch
from sumosurv.training.batches import Member
from sumosurv.training.loop import History, held_out_terms, train
from sumosurv.training.processes import find_device, threads

_MAX_MEMBERS = 4096  # of one population

Advance = Callable[[float], None]  # called after each epoch with the number of networks' trainings that it completes
Parameters = Mapping[str, Any]  # settings of a trial that replace those of the job's estimator
Widths = Mapping[str, tuple[int, ...]]  # widths of padded networks, by the name of the setting; empty: not padded


class Job:
    """The rows of one search and the estimator whose settings it searches.

    Rows are read once for each way of reading them, and everything learned from them is cached.
    """

    def __init__(self, estimator: NetworkEstimator, X: Any, y: Any, validation_data: tuple[Any, ...] | None) -> None:
        self.estimator = estimator
        self._inputs = (X, y, validation_data)
        self.known: dict[str, Any] = {}  # fitted attributes that every estimator has, once rows have been read
        self._settings: dict[Hashable, NetworkEstimator] = {}
        self._rows: dict[RowOptions, PreparedRows] = {}
        self._learned: dict[Hashable, Learned] = {}
        self._networks: dict[Hashable, tuple[Hashable, bool]] = {}

    def without_cache(self) -> Job:
        """A copy in which no rows have been read, to be sent to another process."""
        return Job(self.estimator, *self._inputs)

    @property
    def has_validation_data(self) -> bool:
        """Whether the user passed validation rows."""
        return self._inputs[2] is not None

    def settings(self, parameters: Parameters) -> NetworkEstimator:
        """An unfitted estimator with the settings of a trial. It is shared: copy it before changing it."""
        key = _frozen(parameters)
        if key not in self._settings:
            made = copy.copy(self.estimator).set_params(**parameters)
            made._check_settings()
            self._settings[key] = made._resolved(len(self._inputs[0]))
        return self._settings[key]

    def plan(self, parameters: Parameters) -> FitPlan:
        """How networks with the settings of a trial are fitted."""
        return FitPlan(self.settings(parameters))

    def rows(self, parameters: Parameters) -> PreparedRows:
        """The rows as networks with these settings read them."""
        settings = self.settings(parameters)
        options = settings._row_options()
        if options not in self._rows:
            reader = copy.copy(settings)
            self._rows[options] = reader._read(*self._inputs)
            self.known = reader._known()
        return self._rows[options]

    def learned(self, parameters: Parameters) -> Learned:
        """What networks with these settings learn from the rows before training."""
        key = self.in_common(parameters, self.estimator._padded_settings)
        if key not in self._learned:
            self._learned[key] = self.plan(parameters).learn(self.rows(parameters))
        return self._learned[key]

    def build(self, parameters: Parameters, *seeds: int, dropout: Sequence[float] | None = None) -> PopulationNetwork:
        """Untrained networks, one per seed; each with its own dropout rate if there are several."""
        return self.plan(parameters).build(self.learned(parameters), np.array(seeds), dropout)

    def shapes(self, parameters: Parameters) -> Hashable:
        """The shapes of all tensors of a network with these settings."""
        return self._network(parameters)[0]

    def is_recorded(self, parameters: Parameters) -> bool:
        """Whether networks with these settings train by recorded operations, if they are not padded."""
        on_cpu = find_device(self.settings(parameters).device).type == "cpu"
        return on_cpu and self._network(parameters)[1]

    def _network(self, parameters: Parameters) -> tuple[Hashable, bool]:
        key = self.in_common(parameters)
        if key not in self._networks:
            network = self.build(parameters, 0)
            shapes = tuple((name, tuple(value.shape)) for name, value in network.state_dict().items())
            self._networks[key] = shapes, can_record(network, self.rows(parameters).table, training=True)
        return self._networks[key]

    def in_common(self, parameters: Parameters, without: Sequence[str] = ()) -> Hashable:
        """The settings, as a dictionary key, that members of one population have in common."""
        left_out = {*self.estimator._member_settings, *without}
        return _frozen({name: value for name, value in parameters.items() if name not in left_out})


@dataclass(frozen=True)
class TrialMember:
    """One network of a trial: settings, seed, and rows of a job (given by its place in a list of jobs)."""

    trial: int
    parameters: Parameters
    job: int
    seed: int
    train_rows: npt.NDArray[np.int64]
    valid_rows: npt.NDArray[np.int64] | None
    stop_after: int | None = None  # the epoch whose weights are kept if there are no validation rows
    on_all_rows: bool = False  # whether it, or the mixture it belongs to, is trained on all rows of the job

    def member(self, job: Job, offset: int) -> Member:
        """The member as training sees it, in a table in which the rows of its job begin at ``offset``."""
        valid = None if self.valid_rows is None else self.valid_rows + offset
        return job.plan(self.parameters).member(self.seed, self.train_rows + offset, valid, self.stop_after)


# ---------------------------------------------------------------------- which networks train together

Group = tuple[Widths, list[TrialMember]]

# Seconds per training step, per weight (the optimiser), and per weight and row. Measured on one core of an EPYC and
# on an H200; accurate enough to choose between two layouts.
_SECONDS = {"recorded": (4e-4, 1.5e-9, 1e-10), "cpu": (2e-3, 2.5e-9, 1.6e-10), "cuda": (8e-4, 5e-12, 1e-12)}


def group_members(members: Sequence[TrialMember], jobs: Sequence[Job], widest: Widths) -> list[Group]:
    """Members that can train together, with the widths to which they are padded.

    ``widest`` are the widths of the largest networks of the space; if empty, only networks of equal shape train
    together. Jobs train apart if that lets their steps be recorded, which requires the same time features.
    """
    groups: dict[Hashable, Group] = {}
    for member in members:
        job = jobs[member.job]
        settings = job.settings(member.parameters)
        widths = widest if _fits(settings, widest) else {}
        apart = member.job if not widths and job.is_recorded(member.parameters) else None
        groups.setdefault((_in_common(settings, widths), apart), (widths, []))[1].append(member)
    return list(groups.values())


def choose_layout(members: Sequence[TrialMember], jobs: Sequence[Job], widest: Widths) -> Layout:
    """The faster layout: each group has a cost per step, and padding multiplies by zeros."""
    padded, grouped = (
        sum(_seconds(group, jobs) for group in group_members(members, jobs, widths)) for widths in (widest, {})
    )
    return "padded" if padded <= grouped else "grouped"


def _seconds(group: Group, jobs: Sequence[Job]) -> float:
    """Approximate seconds per epoch of a group."""
    widths, members = group
    job, first = jobs[members[0].job], members[0]
    kind = find_device(job.estimator.device).type
    if not widths and job.is_recorded(first.parameters):
        kind = "recorded"
    step, per_weight, per_product = _SECONDS.get(kind, _SECONDS["cpu"])
    rows = len(first.train_rows)
    batch = min(rows, job.plan(first.parameters).schedule(rows).batch_size)
    shapes: Any = job.shapes({**first.parameters, **widths})
    weights = float(sum(math.prod(shape) for _, shape in shapes))
    return math.ceil(rows / batch) * (step + len(members) * weights * (per_weight + per_product * batch))


def _fits(settings: NetworkEstimator, widest: Widths) -> bool:
    """Whether a network can be padded to the widest one: layers of one width, no custom encoder."""
    if settings.encoder is not None:
        return False
    for name, limit in widest.items():
        widths = tuple(getattr(settings, name))
        if len(set(widths)) != 1 or len(widths) > len(limit) or widths[0] > min(limit):
            return False
    return True


def _in_common(settings: NetworkEstimator, widths: Widths) -> Hashable:
    """The settings that members of one population share."""
    own = {*settings._member_settings, "random_state", "n_members", *(settings._padded_settings if widths else ())}
    return _frozen({k: v for k, v in settings.get_params(deep=False).items() if k not in own}), bool(widths)


def _frozen(values: Mapping[str, Any]) -> Hashable:
    """Settings as a dictionary key."""

    def plain(value: Any) -> Hashable:
        if isinstance(value, (list, tuple)):
            return tuple(plain(part) for part in value)
        return value if isinstance(value, Hashable) else id(value)

    return tuple(sorted((name, plain(value)) for name, value in values.items()))


# ---------------------------------------------------------------------- trained networks


@dataclass
class Population:
    """Trained members of one network, and their log-likelihoods on validation rows."""

    members: list[TrialMember]
    network: PopulationNetwork
    history: History
    jobs: Sequence[Job]
    widths: Widths  # to which its networks were padded; empty if they were not
    scores: list[npt.NDArray[np.float64]] = field(default_factory=list)  # log-likelihood per validation row
    at_entry: list[npt.NDArray[np.float64]] = field(default_factory=list)  # log S(entry) per row, if entry is delayed

    def single(self, place: int) -> NetworkEstimator:
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
        rows, learned = job.rows(parameters), job.learned(parameters)
        fitted = job.settings(parameters)._with(n_members=len(places), **job.known)
        population = FittedPopulation.of("network", rows, learned, network, on_all_rows=first.on_all_rows)
        fitted._set_stack(FittedStack((population,)))
        return fitted

    def log_likelihood(self, job: int, X: Any, y: Outcome) -> dict[int, npt.NDArray[np.float64]]:
        """Log-likelihood of new rows under each member of a job that did not fail, by its place."""
        places = [i for i, m in enumerate(self.members) if m.job == job and not self.history.failed[i]]
        if not places:
            return {}
        fitted = self.mixture(places)
        cells = fitted.cells_ if y.upper is None else None
        each = fitted.predict_members(X).distributions
        return {i: np.asarray(log_likelihood(d, y, resolution=cells)) for i, d in zip(places, each)}


# ---------------------------------------------------------------------- training


def train_members(
    members: Sequence[TrialMember],
    jobs: Sequence[Job],
    widest: Widths,
    max_epochs: int | None = None,
    advance: Advance | None = None,
) -> tuple[list[Population], bool]:
    """Train members side by side, those that can share a batch in one population each.

    Return the populations, and whether Ctrl-C ended training early. ``max_epochs`` replaces the estimator's setting.
    """
    done: list[Population] = []
    for widths, group in group_members(members, jobs, widest):
        # jobs whose networks differ in shape, because their columns do, train apart
        parts: dict[Hashable, list[TrialMember]] = {}
        for member in group:
            key = jobs[member.job].shapes({**member.parameters, **widths}), member.valid_rows is None
            parts.setdefault(key, []).append(member)
        for part in parts.values():
            for start in range(0, len(part), _MAX_MEMBERS):
                try:
                    made = _train_population(part[start : start + _MAX_MEMBERS], jobs, widths, max_epochs, advance)
                except TrainingError:
                    continue  # no member had a finite likelihood: these trials have failed
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
    advance: Advance | None,
) -> Population:
    alike: dict[Hashable, list[TrialMember]] = {}  # those of one shape and job are built at once
    for member in members:
        alike.setdefault((member.job, jobs[member.job].in_common(member.parameters)), []).append(member)
    members = [member for part in alike.values() for member in part]
    first = members[0]
    device = find_device(jobs[first.job].settings(first.parameters).device)
    networks = []
    for part in alike.values():  # their settings differ in nothing but those of single members
        job = jobs[part[0].job]
        rates = [float(job.settings(member.parameters).dropout) for member in part]
        networks.append(job.build(part[0].parameters, *(member.seed for member in part), dropout=rates))
    template = jobs[first.job].build({**first.parameters, **widths}, first.seed)
    network = stack_members(networks, template).to(device)
    table, offsets = _join_tables(members, jobs)
    table = table.to(device)
    own = [member.member(jobs[member.job], offsets[member.job]) for member in members]
    schedule = jobs[first.job].plan(first.parameters).schedule(len(first.train_rows))
    epochs = schedule.max_epochs if max_epochs is None else max_epochs

    def on_epoch(epoch: Epoch) -> None:
        if advance is not None:
            advance(len(members) / epochs)

    with warnings.catch_warnings():
        # about failed members and Ctrl-C, which the search reports itself
        warnings.simplefilter("ignore", RuntimeWarning)
        history = train(network, table, own, replace(schedule, max_epochs=epochs, on_epoch=on_epoch))
    population = Population(members, network.requires_grad_(False), history, jobs, widths)
    if first.valid_rows is not None:
        with threads():
            population.scores = _validation_scores(population, table, own)
            if table.outcome.entry is not None:
                population.at_entry = [_distribution_scores(population, i, at_entry=True) for i in range(len(members))]
    return population


def _join_tables(members: Sequence[TrialMember], jobs: Sequence[Job]) -> tuple[Table, dict[int, int]]:
    """The rows of all jobs in one table, and where the rows of each job begin."""
    first = {member.job: member for member in reversed(members)}
    tables = {j: jobs[j].rows(first[j].parameters).table for j in sorted(first)}
    ends = np.cumsum([0, *(len(table) for table in tables.values())])
    return Table.join(list(tables.values())), {j: int(end) for j, end in zip(tables, ends)}


def _validation_scores(
    population: Population, table: Table, members: Sequence[Member]
) -> list[npt.NDArray[np.float64]]:
    """Log-likelihood of each validation row under its member, in the user's time unit."""
    if not population.network.terms_are_likelihoods:  # trained on another objective: ask the distribution
        return [_distribution_scores(population, place) for place in range(len(members))]
    rows = Rows.of([member.valid_rows for member in members if member.valid_rows is not None]).to(table.device)
    values = held_out_terms(population.network, table, rows)
    units = [population.jobs[m.job].learned(m.parameters).time_unit for m in population.members]
    logs = torch.tensor([[math.log(unit)] for unit in units], device=values.device)
    values = values - table.outcome.event[rows.index] * logs
    return [row[keep].cpu().numpy() for row, keep in zip(values, rows.present)]


@torch.no_grad()
def _distribution_scores(population: Population, place: int, at_entry: bool = False) -> npt.NDArray[np.float64]:
    """Log-likelihood of the validation rows of one member under its predicted distribution; or log S(entry)."""
    member = population.members[place]
    assert member.valid_rows is not None
    if population.history.failed[place]:
        return np.full(len(member.valid_rows), -np.inf)
    rows = population.jobs[member.job].rows(member.parameters)
    distribution = population.single(place).stack_.distribution(rows.table.inputs[torch.from_numpy(member.valid_rows)])
    outcome = rows.outcome[member.valid_rows]
    return np.asarray(log_likelihood(distribution, before_entry(outcome) if at_entry else outcome), dtype=np.float64)


def before_entry(outcome: Outcome) -> Outcome:
    """Rows observed from time zero until their entry, without an event."""
    none = np.zeros(len(outcome), dtype=np.int64)
    return Outcome(none > 0, outcome.entries, cause=None if outcome.cause is None else none)


# ---------------------------------------------------------------------- executors


@dataclass(frozen=True)
class Task:
    """Members that are trained side by side."""

    members: Sequence[TrialMember]  # all networks of some trials
    max_epochs: int | None = None  # replaces the estimator's setting
    share: float = 1.0  # of the work on a trial that this training is, for the progress bar


@dataclass(frozen=True)
class Result:
    """The trained populations of a task, and whether Ctrl-C ended it early."""

    task: Task
    populations: list[Population]
    interrupted: bool


class Executor:
    """Runs tasks and returns their results in any order; this one trains a task when its result is requested."""

    capacity = 1  # tasks that run at a time

    def __init__(self, jobs: Sequence[Job], widest: Widths, advance: Advance) -> None:
        self._jobs, self._widest, self._advance = jobs, widest, advance
        self._tasks: deque[Task] = deque()

    def submit(self, task: Task) -> None:
        """Start a task."""
        self._tasks.append(task)

    @property
    def pending(self) -> int:
        """Number of tasks whose results have not been returned."""
        return len(self._tasks)

    def next_result(self) -> Result:
        """Wait for the next result and return it."""
        task = self._tasks.popleft()

        def advance(networks: float) -> None:
            self._advance(task.share * networks)

        return Result(task, *train_members(task.members, self._jobs, self._widest, task.max_epochs, advance))

    def close(self) -> None:
        """Cancel pending tasks."""
