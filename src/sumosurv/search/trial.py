"""The networks of trials, the rows on which they are trained, and which of them can train together."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.plan import FitPlan
from sumosurv.fitting.rows import Learned, PreparedRows, RowOptions
from sumosurv.networks import PopulationNetwork
from sumosurv.search.study import Layout
from sumosurv.training.batches import Member
from sumosurv.training.machine import find_device

__all__ = ["Job", "TrialMember", "Widths", "choose_layout", "group_members"]

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
        self._shapes: dict[Hashable, Hashable] = {}

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
        key = _frozen(parameters)
        if key not in self._learned:
            self._learned[key] = self.plan(parameters).learn(self.rows(parameters))
        return self._learned[key]

    def build(self, parameters: Parameters, seed: int) -> PopulationNetwork:
        """One untrained network."""
        return self.plan(parameters).build(self.learned(parameters), np.array([seed]))

    def shapes(self, parameters: Parameters) -> Hashable:
        """The shapes of all tensors of a network with these settings."""
        per_member = self.estimator._member_settings
        key = _frozen({name: value for name, value in parameters.items() if name not in per_member})
        if key not in self._shapes:
            state = self.build(parameters, 0).state_dict()
            self._shapes[key] = tuple((name, tuple(value.shape)) for name, value in state.items())
        return self._shapes[key]


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

# Seconds per training step, per weight (the optimiser), and per weight and row. Measured on a laptop-size CPU core and
# on an H200; accurate enough to choose between two layouts.
_SECONDS = {"cpu": (3e-3, 1e-8, 5e-10), "cuda": (8e-4, 5e-12, 1e-12)}


def group_members(members: Sequence[TrialMember], jobs: Sequence[Job], widest: Widths) -> list[Group]:
    """Members that can train together, with the widths to which they are padded.

    ``widest`` are the widths of the largest networks of the space; if empty, only networks of equal shape train
    together.
    """
    groups: dict[Hashable, Group] = {}
    for member in members:
        settings = jobs[member.job].settings(member.parameters)
        widths = widest if _fits(settings, widest) else {}
        groups.setdefault(_in_common(settings, widths), (widths, []))[1].append(member)
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
    device = find_device(job.estimator.device).type
    step, per_weight, per_product = _SECONDS.get(device, _SECONDS["cpu"])
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
