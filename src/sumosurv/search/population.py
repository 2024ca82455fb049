"""Trials of a search as members of populations: what can share a batch trains together."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from torch import Tensor, nn

from sumosurv.estimators.network import NetworkEstimator, Prepared
from sumosurv.networks import Inputs
from sumosurv.networks.stacking import extract_members, stack_members, unstack_members
from sumosurv.outcome import Outcome
from sumosurv.scores import log_likelihood
from sumosurv.training import History, Rows, TrainingData, TrainingError, TrainingPlan, train
from sumosurv.training.step import row_log_likelihood

__all__ = ["Job", "Member", "Population", "Shapes", "Train", "train_members"]

_PER_MEMBER = ("learning_rate", "weight_decay", "dropout")
_WIDTHS = ("covariate_layers", "mixed_layers")
_READING = ("numeric_scaling", "time_origin", "variant")  # settings on which the reading of the rows depends
_LARGEST = 4096  # members of one population
_ROWS = 4096  # validation rows scored at once

# of a training step whatever its size, per weight (the optimiser), and per weight and row: measured on a laptop-size
# CPU core and on an H200, good enough to choose between two ways of grouping
_SECONDS = {"cpu": (3e-3, 1e-8, 5e-10), "cuda": (8e-4, 5e-12, 1e-12)}

Shapes = Literal["auto", "padded", "grouped"]


class Train(Protocol):
    """Trains members and notes where they are; True if Ctrl-C ended it."""

    def __call__(self, members: Sequence[Member], max_epochs: int | None = None, share: float = 1.0) -> bool:
        """Train."""


class Job:
    """The rows of one fit, read once for each way in which trials read them."""

    def __init__(self, estimator: NetworkEstimator, X: Any, y: Any, validation_data: tuple[Any, Any] | None) -> None:
        self.estimator = estimator
        self._rows = (X, y, validation_data)
        self._read: dict[Hashable, tuple[NetworkEstimator, Prepared]] = {}
        self._made: dict[Hashable, NetworkEstimator] = {}
        self._shapes: dict[Hashable, Hashable] = {}

    def read(self, parameters: Mapping[str, Any]) -> tuple[NetworkEstimator, Prepared]:
        """An estimator with these settings that has seen the rows, and the rows as its networks see them.

        The same settings give the same estimator again: copy it before changing it.
        """
        key = _frozen({name: parameters[name] for name in _READING if name in parameters})
        if key not in self._read:
            made: NetworkEstimator = clone(self.estimator).set_params(**parameters)
            made._check_parameters()
            self._read[key] = (made, made._read(*self._rows))
        first, prepared = self._read[key]
        settings = _frozen(parameters)
        if settings not in self._made:
            made = copy.copy(first).set_params(**clone(self.estimator).get_params(deep=False) | dict(parameters))
            made._check_parameters()
            self._made[settings] = made
        return self._made[settings], prepared

    def shapes(self, parameters: Mapping[str, Any]) -> Hashable:
        """The shapes of all tensors of a network with these settings."""
        key = _frozen({name: value for name, value in parameters.items() if name not in _PER_MEMBER})
        if key not in self._shapes:
            estimator, prepared = self.read(parameters)
            network = estimator._make_network(np.array([0]), prepared.training, _example(prepared.data))
            self._shapes[key] = tuple((name, tuple(value.shape)) for name, value in network.state_dict().items())
        return self._shapes[key]


@dataclass(frozen=True)
class Member:
    """One network to train: the settings of a trial, on some rows of a job, with a seed."""

    trial: int
    parameters: Mapping[str, Any]
    job: int
    seed: int
    train_rows: npt.NDArray[np.int64]
    valid_rows: npt.NDArray[np.int64] | None
    stop_after: int = -1  # the epoch whose weights are kept where there are no validation rows
    on_all_rows: bool = False  # its rows, or those of its mixture, are all that the job has


@dataclass
class Population:
    """Trained members, all in one network."""

    members: list[Member]
    network: nn.Module
    history: History
    jobs: Sequence[Job]
    data: TrainingData
    offsets: list[int]  # where the rows of each job begin in the table
    widest: Mapping[str, Any]  # the widths to which its networks were padded, if they were
    scores: list[npt.NDArray[np.float64]] = field(default_factory=list)  # of each member's validation rows

    def own(self, place: int) -> NetworkEstimator:
        """The fitted estimator of one member, in its own shape."""
        member = self.members[place]
        estimator, prepared = self.jobs[member.job].read(member.parameters)
        estimator = copy.copy(estimator)
        estimator.ensemble_size = 1
        narrow = estimator._make_network(np.array([member.seed]), prepared.training, _example(prepared.data))
        narrow = narrow.to(next(self.network.parameters()).device)
        rows = prepared.all_for_training() if member.on_all_rows else prepared
        estimator._adopt(extract_members(self.network, [place], narrow), np.zeros(1, dtype=bool), rows)
        return estimator

    def mixture(self, places: Sequence[int]) -> NetworkEstimator:
        """One fitted estimator of several members of one job, in the shapes in which they were trained."""
        first = self.members[places[0]]
        estimator, prepared = self.jobs[first.job].read({**first.parameters, **self.widest})
        estimator = copy.copy(estimator)
        estimator.ensemble_size = len(places)
        # for what making a network notes down, such as the time features in use
        estimator._make_network(np.array([first.seed]), prepared.training, _example(prepared.data))
        rows = prepared.all_for_training() if first.on_all_rows else prepared
        estimator._adopt(unstack_members(self.network, list(places)), np.zeros(len(places), dtype=bool), rows)
        return estimator

    @torch.no_grad()
    def log_likelihood(self, job: int, X: Any, y: Outcome) -> dict[int, npt.NDArray[np.float64]]:
        """The log-likelihood of new rows under each member of a job that worked, all at once, by its place."""
        places = [i for i, m in enumerate(self.members) if m.job == job and not self.history.failed[i]]
        if not places:
            return {}
        estimator, _ = self.jobs[job].read(self.members[places[0]].parameters)
        if not estimator._objective_has_density:
            return {i: np.asarray(log_likelihood(self.own(i).predict_distribution(X), y)) for i in places}
        network = unstack_members(self.network, places).eval()
        device = self.data.time.device
        inputs = estimator.preprocessor_.transform(X).to(device, torch.float32).shared()
        event = torch.from_numpy(y.event.copy()).to(device)[None]
        time = torch.from_numpy((y.time - estimator.time_origin_) / estimator.time_unit_).to(device)[None]
        values = [
            network.log_likelihood(  # type: ignore[operator]
                Inputs(inputs.numeric[:, i : i + _ROWS], inputs.codes[:, i : i + _ROWS]),
                time[:, i : i + _ROWS].clamp_min(0.0).float(),
                event[:, i : i + _ROWS],
            )
            for i in range(0, len(y), _ROWS)
        ]
        values_of = torch.cat(values, dim=1).double() - event * math.log(estimator.time_unit_)
        values_of = torch.where(time < 0, torch.where(event, -math.inf, 0.0), values_of)
        return dict(zip(places, values_of.cpu().numpy()))


def train_members(
    members: Sequence[Member],
    jobs: Sequence[Job],
    *,
    shapes: Shapes,
    widest: Mapping[str, Any],
    max_epochs: int | None = None,
    after_epoch: Callable[[int, int], None] | None = None,
) -> tuple[list[Population], bool]:
    """Train members side by side: those whose tensors have one shape, or can be padded to it, in one batch each.

    Parameters
    ----------
    members, jobs
        What to train, and on which rows.
    shapes : {"auto", "padded", "grouped"}
        Pad networks of different widths and depths to ``widest``, or give each shape a population of its own; "auto"
        takes what costs less: a step has a price of its own, and padding multiplies with zeros.
    widest : mapping
        Widths of the padded networks, by the name of the parameter.
    max_epochs : int, optional
        In place of the estimator's.
    after_epoch : callable, optional
        Called with the members of a population and its number of epochs after each epoch.

    Returns
    -------
    list of Population, and whether Ctrl-C ended the training early
    """
    if not members:
        return [], False
    done: list[Population] = []
    for paddable, group in _groups(members, jobs, shapes, widest):
        for start in range(0, len(group), _LARGEST):
            part = group[start : start + _LARGEST]
            try:
                made = _train_group(part, jobs, widest if paddable else {}, max_epochs, after_epoch)
            except KeyboardInterrupt:
                if not done:
                    raise
                return done, True
            done += made
            if any(population.history.interrupted for population in made):
                return done, True
    return done, False


def _groups(
    members: Sequence[Member], jobs: Sequence[Job], shapes: Shapes, widest: Mapping[str, Any]
) -> list[tuple[bool, list[Member]]]:
    """Members that can train together, and whether they are padded."""
    on = jobs[0].estimator._device().type
    ways = {"padded": (True,), "grouped": (False,), "auto": (True, False)}[shapes]
    found = []
    for pad in ways:
        groups: dict[tuple[Hashable, bool], list[Member]] = {}
        for member in members:
            estimator, _ = jobs[member.job].read(member.parameters)
            groups.setdefault(_group(estimator, pad and _paddable(estimator, widest)), []).append(member)
        parts = [(paddable, group) for (_, paddable), group in groups.items()]
        price = 0.0 if len(ways) == 1 else sum(_price(g, jobs, widest if paddable else {}, on) for paddable, g in parts)
        found.append((price, parts))
    return min(found, key=lambda priced: priced[0])[1]


def _price(group: Sequence[Member], jobs: Sequence[Job], widest: Mapping[str, Any], on: str) -> float:
    """About how many seconds an epoch of a group takes."""
    step, per_weight, per_product = _SECONDS.get(on, _SECONDS["cpu"])
    first = group[0]
    estimator, _ = jobs[first.job].read(first.parameters)
    rows = len(first.train_rows)
    batch = min(rows, estimator._batch_size(rows))
    shapes: Any = jobs[first.job].shapes({**first.parameters, **widest})
    weights = float(sum(math.prod(shape) for _, shape in shapes))
    return math.ceil(rows / batch) * (step + len(group) * weights * (per_weight + per_product * batch))


def _train_group(
    members: Sequence[Member],
    jobs: Sequence[Job],
    widest: Mapping[str, Any],
    max_epochs: int | None,
    after_epoch: Callable[[int, int], None] | None,
) -> list[Population]:
    """Members that agree in all that is not per member; jobs whose networks differ in shape are parted."""
    populations = []
    parts: dict[Hashable, list[Member]] = {}
    for member in members:
        shapes = jobs[member.job].shapes({**member.parameters, **widest})
        parts.setdefault((shapes, member.valid_rows is None), []).append(member)
    for part in parts.values():
        try:
            populations.append(_train_population(part, jobs, widest, max_epochs, after_epoch))
        except TrainingError:
            continue  # not one member with a finite likelihood: these trials have failed
    return populations


def _train_population(
    members: list[Member],
    jobs: Sequence[Job],
    widest: Mapping[str, Any],
    max_epochs: int | None,
    after_epoch: Callable[[int, int], None] | None,
) -> Population:
    estimator, _ = jobs[members[0].job].read(members[0].parameters)
    device = estimator._device()
    network = _build(members, jobs, widest).to(device)
    data, offsets = _one_table(members, jobs)
    data = data.to(device)
    epochs = estimator.max_epochs if max_epochs is None else max_epochs
    batch = estimator._batch_size(len(members[0].train_rows))
    stop_after = None
    if members[0].valid_rows is None:
        stop_after = np.array([member.stop_after for member in members])
    plan = TrainingPlan(
        seeds=np.array([member.seed for member in members]),
        learning_rate=np.array([_rate(member, jobs) for member in members]),
        weight_decay=np.array(
            [float(member.parameters.get("weight_decay", estimator.weight_decay)) for member in members]
        ),
        max_epochs=epochs,
        batch_size=batch,
        patience=estimator.patience,
        stop_after=stop_after,
        progress=False if after_epoch is None else lambda: after_epoch(len(members), epochs),
    )
    train_rows = [member.train_rows + offsets[member.job] for member in members]
    valid_rows = [member.valid_rows + offsets[member.job] for member in members if member.valid_rows is not None]
    event = data.event.cpu().numpy()
    work = batch * sum(p.numel() for p in network.parameters())
    with estimator._threads(work), torch.random.fork_rng(devices=[]):
        torch.manual_seed(members[0].seed)
        estimator._prepare(network, data, Rows.of(train_rows).to(device))
        rows = Rows.of([estimator._cases(part, event) for part in train_rows]).to(device)
        with warnings.catch_warnings():
            # of members that fail and of Ctrl-C: the search has its own way to tell
            warnings.simplefilter("ignore", RuntimeWarning)
            history = train(network, data, rows, Rows.of(valid_rows).to(device) if valid_rows else None, plan)
        population = Population(members, network.requires_grad_(False), history, jobs, data, offsets, widest)
        if valid_rows:
            population.scores = _validation_scores(population, estimator._objective_has_density)
    return population


def _build(members: Sequence[Member], jobs: Sequence[Job], widest: Mapping[str, Any]) -> nn.Module:
    """The population's network: each trial's own, stacked."""
    parts = []
    for member in members:
        estimator, prepared = jobs[member.job].read(member.parameters)
        parts.append(estimator._make_network(np.array([member.seed]), prepared.training, _example(prepared.data)))
    first = members[0]
    estimator, prepared = jobs[first.job].read({**first.parameters, **widest})
    template = estimator._make_network(np.array([first.seed]), prepared.training, _example(prepared.data))
    return stack_members(parts, template)


def _one_table(members: Sequence[Member], jobs: Sequence[Job]) -> tuple[TrainingData, list[int]]:
    """The rows of all jobs, one below the other."""
    needed = sorted({member.job for member in members})
    first = {member.job: member for member in reversed(members)}
    tables = {j: jobs[j].read(first[j].parameters)[1].data for j in needed}
    offsets, place = [0] * len(jobs), 0
    for j in needed:
        offsets[j] = place
        place += len(tables[j].time)
    parts = list(tables.values())
    inputs = Inputs(
        torch.cat([part.inputs.numeric for part in parts]), torch.cat([part.inputs.codes for part in parts])
    )
    return TrainingData(inputs, torch.cat([p.time for p in parts]), torch.cat([p.event for p in parts])), offsets


@torch.no_grad()
def _validation_scores(population: Population, exact: bool) -> list[npt.NDArray[np.float64]]:
    """The log-likelihood of each validation row under its member, in the user's unit of time."""
    members, offsets = population.members, population.offsets
    if not exact:  # trained on something else: ask the distribution itself
        return [_own_scores(population, place) for place in range(len(members))]
    rows = Rows.of([member.valid_rows + offsets[member.job] for member in members if member.valid_rows is not None])
    rows = rows.to(population.data.time.device)
    population.network.eval()
    values = torch.cat([_values(population, rows, start) for start in range(0, rows.index.shape[1], _ROWS)], dim=1)
    event = population.data.event[rows.index]
    units = [population.jobs[m.job].read(m.parameters)[0].time_unit_ for m in members]
    values = values.double() - event * torch.tensor([[math.log(unit)] for unit in units], device=values.device)
    return [row[keep].cpu().numpy() for row, keep in zip(values, rows.present)]


def _values(population: Population, rows: Rows, start: int) -> Tensor:
    part = slice(start, start + _ROWS)
    return row_log_likelihood(population.network, population.data, rows.index[:, part], rows.present[:, part])


def _own_scores(population: Population, place: int) -> npt.NDArray[np.float64]:
    member = population.members[place]
    if population.history.failed[place] or member.valid_rows is None:
        return np.full(0 if member.valid_rows is None else len(member.valid_rows), -np.inf)
    estimator = population.own(place)
    _, prepared = population.jobs[member.job].read(member.parameters)
    distribution = estimator._distribution_of(prepared.data.inputs[torch.from_numpy(member.valid_rows)])
    outcome = prepared.outcome[member.valid_rows].on_clock(-estimator.time_origin_)
    return np.asarray(log_likelihood(distribution, outcome), dtype=np.float64)


def _example(data: TrainingData) -> Inputs:
    return Inputs(data.inputs.numeric[:2].cpu().float(), data.inputs.codes[:2].cpu())


def _rate(member: Member, jobs: Sequence[Job]) -> float:
    return jobs[member.job].read(member.parameters)[0]._learning_rate()


def _widths(estimator: NetworkEstimator, name: str) -> tuple[int, ...]:
    value = getattr(estimator, name)
    if value is None:
        value = estimator._choice(name)
    return tuple(int(width) for width in value)


def _paddable(estimator: NetworkEstimator, widest: Mapping[str, Any]) -> bool:
    """Whether this network can be a corner of the widest one: all its layers of one width, no encoder of its own."""
    if getattr(estimator, "encoder", None) is not None:
        return False
    for name in widest:
        widths = _widths(estimator, name)
        if len(set(widths)) != 1 or len(widths) > len(widest[name]) or widths[0] > min(widest[name]):
            return False
    return True


def _group(estimator: NetworkEstimator, paddable: bool) -> tuple[Hashable, bool]:
    """What members of one population must have in common."""
    leave = (*_PER_MEMBER, "random_state", "ensemble_size", *(_WIDTHS if paddable else ()))
    return _frozen({k: v for k, v in estimator.get_params(deep=False).items() if k not in leave}), paddable


def _frozen(values: Mapping[str, Any]) -> Hashable:
    def plain(value: Any) -> Hashable:
        if isinstance(value, (list, tuple)):
            return tuple(plain(part) for part in value)
        return value if isinstance(value, Hashable) else id(value)

    return tuple(sorted((name, plain(value)) for name, value in values.items()))
