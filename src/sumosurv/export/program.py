"""A fitted model as one torch module, from raw columns and times to S, f and risk; and a description of its columns."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sumosurv._version import __version__
from sumosurv.distributions import Mixture, SurvivalDistribution
from sumosurv.estimators import SurvivalEstimator
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.stack import FittedPopulation
from sumosurv.models import preprocessor_of
from sumosurv.networks import CausesNetwork, Inputs, LikelihoodNetwork, ModuleEncoder
from sumosurv.networks.monotone import MonotoneNetwork
from sumosurv.networks.parametric import ParametricNetwork, ProportionalHazardsNetwork
from sumosurv.networks.population import Curves
from sumosurv.preprocessing import CategoricalColumn, ColumnReader, Preprocessor, ways_to_write


class SurvivalProgram(nn.Module):
    """A fitted estimator with its preprocessing, which evaluates the predicted distribution.

    ``forward(numbers, codes, times)`` returns survival (n, m), density (n, m), risk (n,) and, with competing risks,
    cumulative incidences (n, m, causes). Models of images or sequences have ``forward(array, times)``. ``precision`` is
    that of the networks; columns, mixtures and the time scale are always in double precision.
    """

    risk_times: Tensor

    def __init__(self, model: SurvivalEstimator, precision: str = "double") -> None:
        super().__init__()
        self.register_buffer("risk_times", torch.from_numpy(model.risk_times_))
        dtype = {"double": torch.float64, "single": torch.float32}[precision]
        parts: Any = [part for part, _ in model._mixed()]
        self.parts = nn.ModuleList(_Networks(part, dtype) for part in parts)
        self.weights = [weight for _, weight in model._mixed()]
        self.eval()

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Return survival, density, risk and, with competing risks, incidences."""
        *covariates, times = given
        grid = torch.cat([times, self.risk_times])
        with _ComputeOnce():
            made = [part(*covariates) for part in self.parts]
            distribution: SurvivalDistribution = made[0] if len(made) == 1 else Mixture.of(made, self.weights)
            t = grid.clamp_min(0.0)
            survival = torch.where(grid < 0, 1.0, distribution.survival(t))
            density = torch.where(grid < 0, 0.0, distribution.density(t))
            incidence = None if distribution.n_causes == 1 else distribution.cumulative_incidence(t)
        m = times.shape[0]
        result = survival[:, :m], density[:, :m], (1.0 - survival[:, m:]).mean(dim=1)
        return result if incidence is None else (*result, incidence[:, :m])


class _ComputeOnce(TorchFunctionMode):
    """Caches the results of torch functions by their arguments.

    S, f and incidences share most of their operations, and tracing an operation is slow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, tuple[Any, Any]] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = args, sorted((kwargs or {}).items())
        key = function, _key(given)
        if key not in self.known:
            self.known[key] = function(*args, **(kwargs or {})), given  # arguments stay alive, so that ids are unique
        return self.known[key][0]


def _key(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    return id(value) if isinstance(value, Tensor) else repr(value)


class _Networks(nn.Module):
    """The networks of one estimator, with the preprocessing of its columns."""

    def __init__(self, model: NetworkEstimator, dtype: torch.dtype) -> None:
        super().__init__()
        columns, self.columns = model.preprocessor_, None
        if columns.row_shape is None:
            projection = None if columns.projection is None else torch.from_numpy(columns.projection)
            self.columns = ColumnReader(columns.columns, one_hot=columns.one_hot, projection=projection)
        populations = [replace(part, network=_traceable(part, dtype)) for part in model.stack_.populations]
        self.networks = nn.ModuleList(part.network for part in populations)
        self.stack = replace(model.stack_, populations=tuple(populations))

    def forward(self, *covariates: Tensor) -> SurvivalDistribution:
        """Return the distribution of rows, given as numbers and codes or as an array."""
        if self.columns is not None:
            return self.stack.distribution(self.columns(*covariates))
        codes = torch.zeros(1, 0, dtype=torch.long)  # an encoder of arrays has no categories
        return self.stack.distribution(Inputs(covariates[0].to(torch.float32), codes))


def _traceable(population: FittedPopulation, dtype: torch.dtype) -> Any:
    """A copy of the network of a population that evaluates all members together, by the curves of training."""
    network = copy.deepcopy(population.network).to("cpu").to(dtype)
    for part in network.modules():
        if isinstance(part, ModuleEncoder):
            part.run_member_by_member()
        if isinstance(part, MonotoneNetwork):
            part.derivative = "forward"  # the others cannot be traced
        if isinstance(part, LikelihoodNetwork):
            vars(part)["member_distributions"] = partial(_members, part, dtype)
    return network


def _members(network: LikelihoodNetwork, dtype: torch.dtype, embedding: Tensor) -> list[SurvivalDistribution]:
    terms, n = _Terms(network.curves(embedding), dtype), embedding.shape[1]
    return [_Member(terms, k, n if isinstance(n, int) else 1) for k in range(network.members)]


class _Terms:
    """log S and log f of all members, (K, n, m), for times (1, m); evaluated once for all members."""

    def __init__(self, curves: Curves, dtype: torch.dtype) -> None:
        self.curves, self.dtype = curves, dtype
        self.found: tuple[Tensor | None, list[Tensor]] = None, []

    def __call__(self, t: Tensor) -> list[Tensor]:
        if self.found[0] is not t:
            self.found = t, [part.double() for part in self.curves.log_terms(t.to(self.dtype)[None])]
        return self.found[1]


class _Member(SurvivalDistribution):
    """The distribution of one member; its length is 1 if the number of rows is open."""

    def __init__(self, terms: _Terms, member: int, n: int) -> None:
        self.terms, self.member, self.n = terms, member, n

    def __len__(self) -> int:
        return self.n

    @property
    def _like(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64)

    def _take(self, rows: Tensor) -> SurvivalDistribution:
        raise NotImplementedError

    def _log_survival(self, t: Tensor) -> Tensor:
        return self.terms(t)[0][self.member]

    def _log_density(self, t: Tensor) -> Tensor:
        return self.terms(t)[1][self.member]


def _categories(columns: Preprocessor) -> tuple[Any, ...]:
    """The names of the columns, with the levels of categories."""
    return tuple(
        (c.name, c.levels, c.missing_seen) if isinstance(c, CategoricalColumn) else c.name for c in columns.columns
    )


def check_exportable(model: SurvivalEstimator) -> None:
    """Raise a TypeError if a fitted estimator cannot be written as a fixed sequence of operations."""
    parts: list[Any] = [part for part, _ in model._mixed()]
    unsupported = [type(part).__name__ for part in parts if not _has_supported_networks(part)]
    if unsupported:
        raise TypeError(
            f"{unsupported[0]} cannot be exported. SumoNet, PaperSumoNet, WeibullNet, LogNormalNet, "
            "LogLogisticNet, GompertzNet and mixtures of these can; for other models, save(path) writes a file for "
            "sumosurv."
        )
    if len({_categories(part.preprocessor_) for part in parts}) > 1:
        raise TypeError(
            "A mixture of models that were fitted to columns of different types or levels cannot be "
            "exported; export each model separately."
        )


def _has_supported_networks(model: SurvivalEstimator) -> bool:
    if not isinstance(model, NetworkEstimator):
        return False
    networks: list[Any] = [population.network for population in model.stack_.populations]
    each = [own for net in networks for own in (net.causes if isinstance(net, CausesNetwork) else [net])]
    return all(isinstance(net, (MonotoneNetwork, ParametricNetwork, ProportionalHazardsNetwork)) for net in each)


def described(model: SurvivalEstimator) -> dict[str, Any]:
    """The columns in their order, the levels of categories with their codes, and the last training time."""
    columns = preprocessor_of(model)
    return {
        "version": __version__,
        "method": type(model).__name__,
        "last_time": model.last_time_,
        "causes": model.n_causes_,
        "row_shape": columns.row_shape,
        "numbers": [c.name for c in columns.columns if not isinstance(c, CategoricalColumn)],
        "categories": [
            {"name": c.name, "codes": spellings(c)} for c in columns.columns if isinstance(c, CategoricalColumn)
        ],
    }


def spellings(column: CategoricalColumn) -> dict[str, int]:
    """The code of each level, by every accepted spelling of the level.

    The exact text of a level takes precedence over other spellings of other levels. Empty text is a missing value.
    Raises ValueError if two levels have the same text.
    """
    first = column.n_codes - len(column.levels)
    texts = Counter(["", *map(str, column.levels)])
    if texts.total() > len(texts):
        shared = next(text for text, count in texts.items() if count > 1)
        what = f"more than one level {shared!r}, of different types" if shared else "an empty text as a level"
        raise ValueError(
            f"Column {column.name!r} has {what}. In an exported model, levels are text, and an empty text is a missing "
            "value: rename the level and fit again."
        )
    found = {str(level): code for code, level in enumerate(column.levels, start=first)}
    other: dict[str, set[int]] = {}
    for code, level in enumerate(column.levels, start=first):
        for text in ways_to_write(level):
            other.setdefault(text, set()).add(code)
    found |= {text: codes.pop() for text, codes in other.items() if text not in found and len(codes) == 1}
    found[""] = column.missing_code
    return found
