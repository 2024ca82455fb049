"""Settings: the values that parameters may have, and the settings and hooks that all network methods share."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumosurv.fitting.prepared import RowOptions, check_learns_from
from sumosurv.model_files import as_list
from sumosurv.networks import CausesNetwork, Encoder, LikelihoodNetwork, NoEncoder, PopulationNetwork
from sumosurv.networks.layers import Activation
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import NumericScaling
from sumosurv.training import Epoch

Generators = Sequence[torch.Generator]  # of the members, by their seeds
Start = Mapping[str, Any]  # what a network must know of the training outcome, as plain values that JSON can hold

_PRINCIPAL_COMPONENTS = 64  # inputs of networks for a wide table


# ------------------------------------------------------------------ allowed values, one declaration per parameter


@dataclass(frozen=True)
class Allowed:
    """Values that a parameter may have, in words and as a function; alternatives are joined by ``|``."""

    words: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Allowed) -> Allowed:
        return Allowed(f"{self.words} or {other.words}", lambda value: self.holds(value) or other.holds(value))


Constraints = dict[str, Allowed]  # by the names of the parameters

NONE = Allowed("None", lambda value: value is None)
BOOLEAN = Allowed("True or False", lambda value: isinstance(value, (bool, np.bool_)))


def integer(low: int) -> Allowed:
    """Integers of at least ``low``."""
    return Allowed(f"an integer of at least {low}", lambda value: _is_integer(value) and value >= low)


def number(
    *, low: float = -math.inf, above: float = -math.inf, below: float = math.inf, high: float = math.inf
) -> Allowed:
    """Finite numbers in a range: ``low`` and ``high`` are included, ``above`` and ``below`` are not."""
    bounds = ((low, "at least"), (above, "above"), (high, "at most"), (below, "below"))
    words = " and ".join(f"{relation} {bound:g}" for bound, relation in bounds if math.isfinite(bound))

    def holds(value: Any) -> bool:
        real = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        return real and math.isfinite(value) and low <= value <= high and above < value < below

    return Allowed(f"a number {words}", holds)


def one_of(*names: str) -> Allowed:
    """One of several words."""
    return Allowed(" or ".join(map(repr, names)), lambda value: isinstance(value, str) and value in names)


def instance_of(kind: type | tuple[type, ...], words: str) -> Allowed:
    """Instances of a class."""
    return Allowed(words, lambda value: isinstance(value, kind))


def widths(least: int = 0) -> Allowed:
    """Sequences of at least ``least`` positive widths of layers."""

    def holds(value: Any) -> bool:
        listed = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)
        return listed and len(value) >= least and all(_is_integer(width) and width >= 1 for width in value)

    return Allowed(f"a sequence of {'one or more ' if least else ''}positive integers", holds)


FRACTION = number(low=0, below=1)


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


N_JOBS = NONE | Allowed("an integer other than 0", lambda value: _is_integer(value) and value != 0)


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError that names an invalid parameter and the values that it may have.

    The constraints are those of all classes from which the estimator is derived (``_parameter_constraints``).
    """
    constraints: Constraints = {}
    for cls in reversed(type(estimator).__mro__):
        constraints |= vars(cls).get("_parameter_constraints", {})
    for name, allowed in constraints.items():
        value = getattr(estimator, name)
        if not allowed.holds(value):
            raise ValueError(f"{name} of {type(estimator).__name__} must be {allowed.words}; got {value!r}.")


# ------------------------------------------------------------------ network methods


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkMethod(ABC):
    """Settings of the covariate network and of its training, and what a method defines.

    A method defines ``_build_network`` and, if the network must know something of the outcome, ``_learn_start``. The
    constructor arguments of its estimator are the fields of its (data)class; `SumoNet` describes those that follow.
    """

    n_members: int = 16
    covariate_layers: Sequence[int] = (64, 64)
    dropout: float = 0.5
    frequencies: int = 4
    numeric_scaling: NumericScaling = "quantile"
    encoder: nn.Module | Callable[[], nn.Module] | None = None
    learning_rate: float = 0.01
    weight_decay: float = 0.1
    max_epochs: int = 80
    batch_size: int | Literal["auto", "full"] = "auto"
    patience: int | None = 20
    validation_fraction: float = 0.2
    refit: bool = False
    device: str = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: bool | Callable[[Epoch], None] = False

    _parameter_constraints: ClassVar[Constraints] = {
        "n_members": integer(1),
        "covariate_layers": widths(),
        "dropout": FRACTION,
        "frequencies": integer(0),
        "numeric_scaling": one_of("quantile", "standard"),
        "encoder": NONE | Allowed("a torch.nn.Module, or a function that makes one", callable),
        "learning_rate": number(above=0),
        "weight_decay": number(low=0),
        "max_epochs": integer(1),
        "batch_size": one_of("auto", "full") | integer(1),
        "patience": integer(0) | NONE,
        "validation_fraction": FRACTION,
        "refit": BOOLEAN,
        "device": instance_of(str, "a string"),
        "n_jobs": N_JOBS,
        "verbose": instance_of((bool, np.bool_, int), "True or False") | Allowed("a function", callable),
    }

    # settings that each member of a population can have of its own; layers that can be padded to a common shape
    _member_settings: ClassVar[tuple[str, ...]] = ("learning_rate", "weight_decay", "dropout")
    _padded_settings: ClassVar[tuple[str, ...]] = ("covariate_layers",)
    _learns_from: ClassVar[frozenset[str]] = frozenset({"entry", "intervals", "causes", "weights"})
    _activation: ClassVar[Activation] = "silu"  # of the covariate network
    _residual: ClassVar[bool] = True  # connections between its layers of equal width
    # past the last training time, components without a tail of their own continue as the monotone networks do
    _shares_tail: ClassVar[bool] = False

    @abstractmethod
    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> PopulationNetwork:
        """The whole network around a covariate network, from what `_learn_start` returned."""

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        """Learn what the network needs from the training outcome, which is in the user's unit of time."""
        return {}

    def _learn_causes(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        """Learn what the network needs for competing risks; the values of each cause are under "causes"."""
        return {
            "log_shares": np.log(cause_shares(outcome)).tolist(),
            "causes": [self._learn_start(rows_of_cause(outcome, k + 1), unit) for k in range(outcome.n_causes)],
        }

    def _build_causes(self, start: Start, encoder: Encoder, generators: Generators) -> PopulationNetwork:
        """The whole network for competing risks: shares by a softmax, and a network of this method for each cause."""
        read = NoEncoder(encoder.width)
        parts = [self._build_network(own, read, generators) for own in as_list(start["causes"], "the causes")]
        likelihoods = [part for part in parts if isinstance(part, LikelihoodNetwork)]
        assert len(likelihoods) == len(parts), "causes are for methods with likelihoods"
        return CausesNetwork(generators, encoder, likelihoods, start["log_shares"])

    def _check_rows(self, outcome: Outcome) -> None:
        """Raise a ValueError if the method cannot learn from such an outcome."""
        check_learns_from(type(self).__name__, self._learns_from, outcome)

    def _row_options(self) -> RowOptions:
        """The settings that decide how rows are read."""
        own = self.encoder is not None
        return RowOptions(self.numeric_scaling, one_hot=own, max_components=None if own else _PRINCIPAL_COMPONENTS)

    def _resolved(self, n_rows: int) -> Self:
        """A copy for a given number of training rows, in which None is replaced by the default."""
        return self

    def _components(self, n_rows: int) -> dict[str, NetworkMethod]:
        """The methods that are trained on this number of rows and stacked, by the names of the components."""
        return {"network": self._resolved(n_rows)}

    def _components_on_disk(self, n_rows: int) -> dict[str, NetworkMethod]:
        """The same as `_components`, for rows on disk."""
        return self._components(n_rows)

    def _minimum_hazard(self, outcome: Outcome) -> float:
        """The smallest hazard past the last training time."""
        return 0.0

    def _with(self, **settings: Any) -> Self:
        """A copy with other settings."""
        made = copy.copy(self)
        for name, value in settings.items():
            setattr(made, name, value)
        return made


# ------------------------------------------------------------------ competing risks, one cause at a time


def rows_of_cause(outcome: Outcome, k: int) -> Outcome:
    """The rows with an event of cause k, weighted by 1 / P(not censored before it).

    Their weighted distribution function is the Aalen-Johansen estimate of the incidence, up to its last value.
    """
    rows = np.flatnonzero(outcome.cause == k) if outcome.cause is not None else np.zeros(0, dtype=np.intp)
    weight = _inverse_probability(outcome)[rows]
    own = outcome[rows]
    weight = weight * (own.total / weight.sum()) if len(rows) else weight
    return replace(own, entry=None, cause=None, group=None, weight=weight)


def cause_shares(outcome: Outcome) -> npt.NDArray[np.float64]:
    """The share of each cause among events, had no row been censored; none is zero."""
    assert outcome.cause is not None
    sums = np.bincount(outcome.cause, weights=_inverse_probability(outcome), minlength=outcome.n_causes + 1)[1:]
    sums = np.maximum(sums, 0.5)
    return np.asarray(sums / sums.sum(), dtype=np.float64)


def _inverse_probability(outcome: Outcome) -> npt.NDArray[np.float64]:
    """Weights of events: 1 / G just before each, with G the Kaplan-Meier curve of censoring."""
    known = replace(outcome.at_midpoints(), cause=None, entry=None, group=None)
    left = kaplan_meier(known, censoring=True).survival(np.nextafter(known.time, 0.0))[0]
    return np.asarray(known.weights / np.maximum(left, 1.0 / known.total), dtype=np.float64)
