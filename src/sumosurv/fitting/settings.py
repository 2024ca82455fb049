"""The allowed values of parameters, and the settings and hooks of all network methods."""

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

Generators = Sequence[torch.Generator]  # one per member
Start = Mapping[str, Any]  # start values of a network, learned from the training outcome, as JSON values

_PRINCIPAL_COMPONENTS = 64  # network inputs for a wide table


# ------------------------------------------------------------------ allowed values, one declaration per parameter


@dataclass(frozen=True)
class Allowed:
    """The allowed values of a parameter, as words and as a predicate; ``|`` joins alternatives."""

    words: str
    accepts: Callable[[Any], bool]

    def __or__(self, other: Allowed) -> Allowed:
        return Allowed(f"{self.words} or {other.words}", lambda value: self.accepts(value) or other.accepts(value))


Constraints = dict[str, Allowed]  # by parameter name

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

    def accepts(value: Any) -> bool:
        real = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        return real and math.isfinite(value) and low <= value <= high and above < value < below

    return Allowed(f"a number {words}", accepts)


def one_of(*names: str) -> Allowed:
    """One of several strings."""
    return Allowed(" or ".join(map(repr, names)), lambda value: isinstance(value, str) and value in names)


def instance_of(kind: type | tuple[type, ...], words: str) -> Allowed:
    """Instances of a class."""
    return Allowed(words, lambda value: isinstance(value, kind))


def widths(least: int = 0) -> Allowed:
    """Sequences of at least ``least`` positive layer widths."""

    def accepts(value: Any) -> bool:
        listed = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)
        return listed and len(value) >= least and all(_is_integer(width) and width >= 1 for width in value)

    return Allowed(f"a sequence of {'one or more ' if least else ''}positive integers", accepts)


FRACTION = number(low=0, below=1)


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


N_JOBS = NONE | Allowed("an integer other than 0", lambda value: _is_integer(value) and value != 0)


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError that names an invalid parameter and its allowed values.

    Constraints are collected from ``_parameter_constraints`` of the estimator's class and all its base classes.
    """
    constraints: Constraints = {}
    for cls in reversed(type(estimator).__mro__):
        constraints |= vars(cls).get("_parameter_constraints", {})
    for name, allowed in constraints.items():
        value = getattr(estimator, name)
        if not allowed.accepts(value):
            raise ValueError(f"{name} of {type(estimator).__name__} must be {allowed.words}; got {value!r}.")


# ------------------------------------------------------------------ network methods


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkMethod(ABC):
    """Settings of the covariate network and its training, and the hooks of a method.

    A method defines ``_build_network`` and, if the network depends on the training outcome, ``_learn_start``. The
    constructor arguments of its estimator are the fields of its dataclass; `SumoNet` documents the fields below.
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

    # settings that may differ between members; layer widths that can be padded to a common shape
    _member_settings: ClassVar[tuple[str, ...]] = ("learning_rate", "weight_decay", "dropout")
    _padded_settings: ClassVar[tuple[str, ...]] = ("covariate_layers",)
    _supported_outcomes: ClassVar[frozenset[str]] = frozenset({"entry", "intervals", "causes", "weights"})
    _activation: ClassVar[Activation] = "silu"  # of the covariate network
    _residual: ClassVar[bool] = True  # connections between layers of equal width
    # whether components without a tail are extrapolated like the monotone networks
    _shares_tail: ClassVar[bool] = False

    @abstractmethod
    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> PopulationNetwork:
        """Build the network around a covariate network, from the values that `_learn_start` returned."""

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        """Learn the start values of the network from the training outcome, which is in the user's time unit."""
        return {}

    def _learn_causes(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        """Learn the start values for competing risks; "causes" has the values of each cause."""
        return {
            "log_shares": np.log(cause_shares(outcome)).tolist(),
            "causes": [self._learn_start(rows_of_cause(outcome, k + 1), unit) for k in range(outcome.n_causes)],
        }

    def _build_causes(self, start: Start, encoder: Encoder, generators: Generators) -> PopulationNetwork:
        """Build the network for competing risks: a softmax for the causes, and a network of this method per cause."""
        read = NoEncoder(encoder.width)
        parts = [self._build_network(own, read, generators) for own in as_list(start["causes"], "the causes")]
        likelihoods = [part for part in parts if isinstance(part, LikelihoodNetwork)]
        assert len(likelihoods) == len(parts), "causes are for methods with likelihoods"
        return CausesNetwork(generators, encoder, likelihoods, start["log_shares"])

    def _check_rows(self, outcome: Outcome) -> None:
        check_learns_from(type(self).__name__, self._supported_outcomes, outcome)

    def _row_options(self) -> RowOptions:
        own = self.encoder is not None
        return RowOptions(self.numeric_scaling, one_hot=own, max_components=None if own else _PRINCIPAL_COMPONENTS)

    def _resolved(self, n_rows: int) -> Self:
        """Return a copy in which None is replaced by the default for this number of training rows."""
        return self

    def _components(self, n_rows: int) -> dict[str, NetworkMethod]:
        """Return the methods to train and stack for this number of rows, by component name."""
        return {"network": self._resolved(n_rows)}

    def _components_on_disk(self, n_rows: int) -> dict[str, NetworkMethod]:
        return self._components(n_rows)

    def _minimum_hazard(self, outcome: Outcome) -> float:
        """Return the lower bound of the hazard beyond the last training time."""
        return 0.0

    def _with(self, **settings: Any) -> Self:
        made = copy.copy(self)
        for name, value in settings.items():
            setattr(made, name, value)
        return made


# ------------------------------------------------------------------ competing risks, one cause at a time


def rows_of_cause(outcome: Outcome, k: int) -> Outcome:
    """Return the rows with an event of cause k, weighted by 1 / P(not censored before the event).

    Their weighted distribution function is the Aalen-Johansen estimate of the incidence, up to its last value.
    """
    rows = np.flatnonzero(outcome.cause == k) if outcome.cause is not None else np.zeros(0, dtype=np.intp)
    weight = _inverse_probability(outcome)[rows]
    own = outcome[rows]
    weight = weight * (own.total / weight.sum()) if len(rows) else weight
    return replace(own, entry=None, cause=None, group=None, weight=weight)


def cause_shares(outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the proportion of each cause among events, had no row been censored; none is zero."""
    assert outcome.cause is not None
    sums = np.bincount(outcome.cause, weights=_inverse_probability(outcome), minlength=outcome.n_causes + 1)[1:]
    sums = np.maximum(sums, 0.5)
    return np.asarray(sums / sums.sum(), dtype=np.float64)


def _inverse_probability(outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return each row's weight divided by G(t-), with G the Kaplan-Meier estimate for censoring."""
    known = replace(outcome.at_midpoints(), cause=None, entry=None, group=None)
    left = kaplan_meier(known, censoring=True).survival(np.nextafter(known.time, 0.0))[0]
    return np.asarray(known.weights / np.maximum(left, 1.0 / known.total), dtype=np.float64)
