"""The rows that searches work on, and the networks that are to be trained on them."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.estimators.reading import Learned, Prepared, Reading
from sumosurv.networks import PopulationNetwork
from sumosurv.training import Member

__all__ = ["Job", "TrialMember", "frozen"]

Parameters = Mapping[str, Any]  # of a trial: the settings in which it departs from the job's estimator


class Job:
    """The rows of one search and the estimator whose settings it searches; rows are read once for each way to do so."""

    def __init__(self, estimator: NetworkEstimator, X: Any, y: Any, validation_data: tuple[Any, ...] | None) -> None:
        self.estimator = estimator
        self._given = (X, y, validation_data)
        self._settings: dict[Hashable, NetworkEstimator] = {}
        self._rows: dict[Reading, Prepared] = {}
        self._learned: dict[Hashable, Learned] = {}
        self._shapes: dict[Hashable, Hashable] = {}

    def unread(self) -> Job:
        """The same rows and estimator, nothing read yet: what is sent to another process."""
        return Job(self.estimator, *self._given)

    @property
    def has_validation_data(self) -> bool:
        """Whether validation rows were given."""
        return self._given[2] is not None

    def settings(self, parameters: Parameters) -> NetworkEstimator:
        """An estimator, not fitted, with the settings of a trial. It is shared: copy it before changing it."""
        key = frozen(parameters)
        if key not in self._settings:
            made = copy.copy(self.estimator).set_params(**parameters)
            made._check_settings()
            self._settings[key] = made
        return self._settings[key]

    def rows(self, parameters: Parameters) -> Prepared:
        """The rows as networks with these settings read them."""
        settings = self.settings(parameters)
        reading = settings.reading()
        if reading not in self._rows:
            self._rows[reading] = settings.read(*self._given)
        return self._rows[reading]

    def learned(self, parameters: Parameters) -> Learned:
        """What networks with these settings know of the rows before they are trained."""
        key = frozen(parameters)
        if key not in self._learned:
            self._learned[key] = self.settings(parameters).learn(self.rows(parameters))
        return self._learned[key]

    def build(self, parameters: Parameters, seed: int) -> PopulationNetwork:
        """One network, untrained."""
        return self.settings(parameters).build(self.learned(parameters), np.array([seed]))

    def shapes(self, parameters: Parameters) -> Hashable:
        """The shapes of all tensors of a network with these settings."""
        own = self.estimator.member_settings
        key = frozen({name: value for name, value in parameters.items() if name not in own})
        if key not in self._shapes:
            state = self.build(parameters, 0).state_dict()
            self._shapes[key] = tuple((name, tuple(value.shape)) for name, value in state.items())
        return self._shapes[key]


@dataclass(frozen=True)
class TrialMember:
    """One network of a trial: its settings, on some rows of a job, with a seed."""

    trial: int
    parameters: Parameters
    job: int
    seed: int
    train_rows: npt.NDArray[np.int64]
    valid_rows: npt.NDArray[np.int64] | None
    stop_after: int | None = None  # the epoch whose weights are kept where there are no validation rows
    on_all_rows: bool = False  # its rows, or those of its mixture, are all that the job has

    def member(self, job: Job, offset: int) -> Member:
        """As training sees it, in a table where the rows of its job begin at ``offset``."""
        valid = None if self.valid_rows is None else self.valid_rows + offset
        return job.settings(self.parameters).member(self.seed, self.train_rows + offset, valid, self.stop_after)


def frozen(values: Mapping[str, Any]) -> Hashable:
    """Settings as a key."""

    def plain(value: Any) -> Hashable:
        if isinstance(value, (list, tuple)):
            return tuple(plain(part) for part in value)
        return value if isinstance(value, Hashable) else id(value)

    return tuple(sorted((name, plain(value)) for name, value in values.items()))
