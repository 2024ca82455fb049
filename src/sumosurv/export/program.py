"""A fitted model as one torch module: raw columns and times in, S, f and risk out."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sumosurv.distributions.continued import continued_log_terms, with_horizon
from sumosurv.estimators import SurvivalEstimator, SurvivalMixture
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.stack import FittedPopulation
from sumosurv.networks import CausesNetwork, GridNetwork, Inputs, ModuleEncoder
from sumosurv.preprocessing import CategoricalColumn, ColumnReader, Preprocessor

__all__ = ["SurvivalProgram", "check_exportable", "preprocessor_of"]


class Curves(NamedTuple):
    """S and f of each row at each time, (n, m); where causes compete, the incidence of each too, (n, m, causes)."""

    survival: Tensor
    density: Tensor
    incidence: Tensor | None
    cause_density: Tensor | None


class SurvivalProgram(nn.Module):
    """A fitted estimator, preprocessing and mixture included.

    ``forward(numbers, codes, times)`` gives survival (n, m), density (n, m), risk (n,) and, where causes compete, the
    cumulative incidences (n, m, causes). Models of arrays (images, sequences) have ``forward(array, times)``.

    Parameters
    ----------
    model : SurvivalEstimator
        Fitted, of a kind that `check_exportable` lets pass.
    precision : {"double", "single"}
        Of the networks. Columns and clock are in double precision either way.
    """

    risk_times: Tensor

    def __init__(self, model: SurvivalEstimator, precision: str = "double") -> None:
        super().__init__()
        check_exportable(model)
        self.dtype = {"double": torch.float64, "single": torch.float32}[precision]
        self.reads_arrays = preprocessor_of(model).row_shape is not None
        self.register_buffer("risk_times", torch.from_numpy(model.risk_times_))
        self.model = _part(model, self.dtype)
        self.eval()

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Survival, density, risk, and incidences where causes compete."""
        *covariates, times = given
        grid = torch.cat([times, self.risk_times])
        curves = self.model(*covariates, grid.clamp_min(0.0))
        survival = torch.where(grid < 0, 1.0, curves.survival)
        density = torch.where(grid < 0, 0.0, curves.density)
        m = times.shape[0]
        result = survival[:, :m], density[:, :m], (1.0 - survival[:, m:]).mean(dim=1)
        return result if curves.incidence is None else (*result, curves.incidence[:, :m])


class _Networks(nn.Module):
    """The members of one population as their equal mixture, on the user's clock."""

    def __init__(self, population: FittedPopulation, dtype: torch.dtype) -> None:
        super().__init__()
        self.network: Any = copy.deepcopy(population.network).to("cpu").to(dtype)
        self.origin, self.unit, self.dtype = population.learned.time_origin, population.learned.time_unit, dtype
        for part in self.network.modules():
            if isinstance(part, ModuleEncoder):
                part.run_member_by_member()

    def forward(self, inputs: Inputs, times: Tensor) -> Curves:
        """At times in the user's unit."""
        own = ((times - self.origin).clamp_min(0.0) / self.unit).to(self.dtype)
        shared = Inputs(inputs.numeric.to(self.dtype), inputs.codes).shared()
        embedding = self.network.encoder(shared)
        incidence = cause_density = None
        if isinstance(self.network, CausesNetwork):
            causes: Any = self.network.causes
            pairs = [part.log_terms_on_grid(embedding, own) for part in causes]
            shares = torch.exp(self.network.shares(embedding))[:, :, None]
            each = torch.stack([torch.exp(pair[0]) for pair in pairs], dim=3)
            survival, incidence = (shares * each).sum(3), (shares * (1.0 - each)).mean(0).double()
            densities = shares * torch.stack([torch.exp(pair[1]) for pair in pairs], dim=3)
            density, cause_density = densities.sum(3), densities.mean(0).double() / self.unit
        else:
            assert isinstance(self.network, GridNetwork)
            survival, density = (torch.exp(part) for part in self.network.log_terms_on_grid(embedding, own))
        made = Curves(survival.mean(0).double(), density.mean(0).double() / self.unit, incidence, cause_density)
        if self.origin == 0:
            return made
        early = times < self.origin
        return Curves(
            torch.where(early, 1.0, made.survival),
            torch.where(early, 0.0, made.density),
            *(None if part is None else torch.where(early[:, None], 0.0, part) for part in made[2:]),
        )


class _Continued(nn.Module):
    """Another part up to a time T; past it the hazard goes on from its value there, growing exponentially."""

    def __init__(self, part: nn.Module, last: float, growth: float, least: float = 0.0) -> None:
        super().__init__()
        self.part, self.last, self.growth, self.least = part, last, growth, least

    def forward(self, inputs: Inputs, times: Tensor) -> Curves:
        """At times in the user's unit."""
        survival, density, incidence, cause_density = self.part(inputs, with_horizon(times, self.last))
        near = torch.log(survival), torch.log(density)
        terms = continued_log_terms(*near, self.growth, times, self.last, self.least)
        late, made = times > self.last, [torch.exp(part) for part in terms]
        if incidence is None:
            return Curves(made[0], made[1], None, None)
        at_last = cause_density[:, -1:]
        total = at_last.sum(2, keepdim=True)
        # where nobody is left, or nothing happens, the causes share alike
        share = torch.where(total > 0, at_last / total, 1.0 / at_last.shape[2])
        far = incidence[:, -1:] + share * (survival[:, -1:] - made[0])[:, :, None]
        return Curves(
            made[0],
            made[1],
            torch.where(late[:, None], far, incidence[:, :-1]),
            torch.where(late[:, None], share * made[1][:, :, None], cause_density[:, :-1]),
        )


class _Mixture(nn.Module):
    """The weighted mixture of several parts."""

    def __init__(self, parts: list[nn.Module], weights: list[float]) -> None:
        super().__init__()
        self.parts, self.weights = nn.ModuleList(parts), weights

    def forward(self, *given: Any) -> Curves:
        """At times in the user's unit."""
        made = [part(*given) for part in self.parts]
        return Curves(*(None if column[0] is None else self._weigh(column) for column in zip(*made)))  # type: ignore[arg-type]

    def _weigh(self, values: tuple[Tensor, ...]) -> Tensor:
        total, whole = self.weights[0] * values[0], self.weights[0]
        for weight, part in zip(self.weights[1:], values[1:]):
            total, whole = total + weight * part, whole + weight
        return total / whole  # where all are one, so is the sum to the last bit


class _Reading(nn.Module):
    """A part behind what turns raw columns into its inputs."""

    def __init__(self, columns: Preprocessor, part: nn.Module) -> None:
        super().__init__()
        self.columns = None
        if columns.row_shape is None:
            projection = None if columns.projection is None else torch.from_numpy(columns.projection)
            self.columns = ColumnReader(columns.columns, one_hot=columns.one_hot, projection=projection)
        self.part = part

    def forward(self, *given: Tensor) -> Curves:
        """Of numbers, codes and times, or of an array and times."""
        *covariates, times = given
        if self.columns is not None:
            inputs = self.columns(*covariates)
        else:
            codes = torch.zeros(1, 0, dtype=torch.long)  # an encoder of arrays reads none
            inputs = Inputs(covariates[0].to(torch.float32), codes)
        made: Curves = self.part(inputs, times)
        return made


def _part(model: SurvivalEstimator, dtype: torch.dtype) -> nn.Module:
    if isinstance(model, SurvivalMixture):
        shares = [1.0] * len(model.estimators_) if model.weights is None else [float(w) for w in model.weights]
        weights = [share / sum(shares) for share in shares]
        return _Mixture([_part(part, dtype) for part in model.estimators_], weights)
    assert isinstance(model, NetworkEstimator)
    return _Reading(model.preprocessor_, _networks(model, dtype))


def _networks(model: NetworkEstimator, dtype: torch.dtype) -> nn.Module:
    """The stack of populations of one estimator."""
    stack, parts = model.stack_, list[nn.Module]()
    for part in stack.populations:
        made = _Networks(part, dtype)
        growth = None if part.growth is None else part.growth / model.time_unit_
        parts.append(made if growth is None else _Continued(made, part.last_time, growth))
    mixed = parts[0] if len(parts) == 1 else _Mixture(parts, stack.weights.tolist())
    least = stack.minimum_hazard
    return mixed if least == 0 else _Continued(mixed, stack.populations[0].last_time, 0.0, least)


def preprocessor_of(model: SurvivalEstimator) -> Preprocessor:
    """What a model learned of its columns; of a mixture, its first part."""
    if isinstance(model, SurvivalMixture):
        return preprocessor_of(model.estimators_[0])
    assert isinstance(model, NetworkEstimator)
    return model.preprocessor_


def _categories(columns: Preprocessor) -> tuple[Any, ...]:
    """Which columns are categories, and their codes."""
    return tuple(
        (c.name, c.levels, c.missing_seen) if isinstance(c, CategoricalColumn) else c.name for c in columns.columns
    )


def check_exportable(model: SurvivalEstimator) -> None:
    """Raise a TypeError if the curves of a fitted estimator are no fixed sequence of operations."""
    if isinstance(model, SurvivalMixture):
        for part in model.estimators_:
            check_exportable(part)
        if len({_categories(preprocessor_of(part)) for part in model.estimators_}) > 1:
            raise TypeError(
                "A mixture whose parts were fitted on columns of different types or levels cannot be exported, "
                "since a file has one way to read them; export each part by itself."
            )
        return
    networks: list[Any] = []
    if isinstance(model, NetworkEstimator):
        networks = [part.network for part in model.stack_.populations]
    each = [
        part for network in networks for part in (network.causes if isinstance(network, CausesNetwork) else [network])
    ]
    if not each or not all(isinstance(network, GridNetwork) for network in each):
        raise TypeError(
            f"{type(model).__name__} cannot be exported: its curves are steps or the solution of an equation. SumoNet, "
            "WeibullNet, LogNormalNet, LogLogisticNet, GompertzNet and mixtures of them can; for others, save(path) "
            "writes a file that sumosurv reads."
        )
