"""A fitted model: a weighted stack of populations of networks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from sumosurv.distributions import Continued, Delayed, Mixture, Rescaled, SurvivalDistribution
from sumosurv.fitting.prepared import Learned, PreparedRows
from sumosurv.fitting.spread import Members
from sumosurv.model_files import as_list, as_number, as_text, as_whole, check_values
from sumosurv.networks import Inputs, Observed, PopulationNetwork, select_members
from sumosurv.networks.population import TailedNetwork
from sumosurv.training.processes import explain_memory, find_device, threads

Build = Callable[[Learned, npt.NDArray[np.int64]], PopulationNetwork]

_LARGE = 1e4  # a stored model with a larger weight is checked on an example row


@dataclass(frozen=True)
class FittedPopulation:
    """The trained networks of one component; its prediction is their equal mixture."""

    name: str  # of the component
    learned: Learned
    network: PopulationNetwork  # in double precision
    weight: float = 1.0  # in the stack
    # growth of the hazard beyond the last training time, in scaled time; None to use the network's own curve
    growth: float | None = None

    @classmethod
    def of(
        cls,
        name: str,
        rows: PreparedRows,
        learned: Learned,
        network: PopulationNetwork,
        *,
        on_all_rows: bool = False,
    ) -> Self:
        """Complete a trained network with baselines from the training rows, or from all rows if trained on all rows."""
        for p in network.parameters():
            p.data = p.data.contiguous()
            p.requires_grad_(False)
        network = network.double().eval()  # prediction is in float64
        n = len(rows.outcome) if on_all_rows else rows.n_train
        outcome = rows.outcome[:n].on_time_scale(learned.time_origin, learned.time_unit)
        with threads(), torch.no_grad():
            p = next(network.parameters())
            inputs = rows.table.inputs[:n].to(p.device, p.dtype)
            network.fit_baseline(inputs, Observed.of(outcome, torch.float64).to(p.device))
        return cls(name, learned, network)

    @property
    def own_growth(self) -> float | None:
        """The growth rate that the network estimated, the smallest over causes; None if it has no tail."""
        return min(
            (float(net.growth) for net in self.network.modules() if isinstance(net, TailedNetwork)), default=None
        )

    @property
    def last_time(self) -> float:
        """The last training time, in the user's time unit."""
        return self.learned.time_origin + self.learned.time_unit

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """Return the distribution of preprocessed rows, on the user's time scale."""
        return self._predict(self.network, inputs)

    def members(self, inputs: Inputs) -> list[SurvivalDistribution]:
        """Return the distribution of preprocessed rows under each member."""
        return [self._predict(network, inputs) for network in self._single]

    @cached_property
    def _single(self) -> list[PopulationNetwork]:
        """Each member as a network that shares the weights of the population."""
        return [select_members(self.network, slice(k, k + 1)) for k in range(self.network.members)]

    def _predict(self, network: PopulationNetwork, inputs: Inputs) -> SurvivalDistribution:
        p = next(network.parameters())
        with explain_memory("Predict fewer rows or times at once, or load the model on the CPU."):
            try:
                scaled = network.distribution(inputs.to(p.device, p.dtype))
                made: SurvivalDistribution = Rescaled(scaled, self.learned.time_unit)
            except ValueError as error:
                raise ValueError(
                    f"The networks predict an invalid distribution for some rows: {error} Check the values of "
                    "these rows, and the origin of the model file."
                ) from error
        if self.learned.time_origin:
            made = Delayed(made, self.learned.time_origin)
        if self.growth is None:
            return made
        return Continued(made, self.last_time, self.growth / self.learned.time_unit)

    def check_curves(self) -> None:
        """Raise a ValueError if the survival function of an example row is not monotone."""
        numeric, p = self.learned.example(), next(self.network.parameters())
        rows = Inputs(numeric, torch.zeros(len(numeric), len(self.learned.preprocessor.levels), dtype=torch.long))
        curve = self.network.distribution(rows.to(p.device, p.dtype)).survival(np.array([0.0, 0.01, 0.1, 0.3, 1.0]))
        if not (np.isfinite(curve).all() and (np.diff(curve, axis=1) <= 1e-9).all()):
            raise ValueError("the predicted survival function is not monotone")


@dataclass(frozen=True)
class FittedStack:
    """One or more populations, mixed by their weights."""

    populations: tuple[FittedPopulation, ...]  # with the same preprocessor
    minimum_hazard: float = 0.0  # lower bound of the hazard beyond the last training time; zero if there were events

    @property
    def learned(self) -> Learned:
        """The values that the first population learned from the rows."""
        return self.populations[0].learned

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weights of the populations, which sum to one."""
        return np.array([population.weight for population in self.populations])

    @property
    def n_members(self) -> int:
        """The number of networks."""
        return sum(population.network.members for population in self.populations)

    def components(self) -> pd.DataFrame:
        """Return a table of the components; held-out likelihoods are NaN, because only a fit knows them."""
        rows = [
            {"component": part.name, "weight": part.weight, "members": part.network.members, "held_out": np.nan}
            for part in self.populations
        ]
        return pd.DataFrame(rows)

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return next(self.populations[0].network.parameters()).device

    def on_cpu(self) -> Self:
        """Return a copy on the CPU, or the stack itself if it is on the CPU."""
        if self.device.type == "cpu":
            return self
        moved = [replace(part, network=copy.deepcopy(part.network).to("cpu")) for part in self.populations]
        return replace(self, populations=tuple(moved))

    def with_shared_tail(self) -> Self:
        """Extrapolate populations without a tail like the first population with one, or else with a constant hazard."""
        found = [part.own_growth for part in self.populations]
        growth = next((value for value in found if value is not None), 0.0)
        pairs = zip(self.populations, found)
        return replace(
            self, populations=tuple(part if own is not None else replace(part, growth=growth) for part, own in pairs)
        )

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """Return the distribution of preprocessed rows."""
        made = [population.distribution(inputs) for population in self.populations]
        return self._with_minimum_hazard(made[0] if len(made) == 1 else Mixture.of(made, self.weights))

    def members(self, inputs: Inputs) -> Members:
        """Return the distributions under each member of all populations, one population after the other."""
        each = [[self._with_minimum_hazard(made) for made in part.members(inputs)] for part in self.populations]
        return Members.join([Members.equal(part) for part in each], self.weights)

    def _with_minimum_hazard(self, made: SurvivalDistribution) -> SurvivalDistribution:
        if self.minimum_hazard == 0:
            return made
        return Continued(made, self.populations[0].last_time, 0.0, self.minimum_hazard)

    # ------------------------------------------------------------------ model files

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the contents of a model file: learned values and weights."""
        fitted = {
            "learned": self.learned.state(),
            "minimum_hazard": self.minimum_hazard,
            "components": [
                {
                    "name": part.name,
                    "weight": part.weight,
                    "n_members": part.network.members,
                    "start": dict(part.learned.start),
                }
                for part in self.populations
            ],
        }
        tensors = self.learned.tensors()
        for part in self.populations:
            tensors |= {f"{part.name}.{name}": value for name, value in part.network.state_dict().items()}
            # weights were trained in float32; tables such as baselines keep their precision
            tensors |= {f"{part.name}.{name}": value.float() for name, value in part.network.named_parameters()}
        return fitted, tensors

    @classmethod
    def from_state(
        cls,
        learned: Learned,
        fitted: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        builders: Mapping[str, Build],
        device: str,
    ) -> Self:
        """Restore a stack from `state`; ``builders`` has a function per component that builds its networks."""
        described = as_list(fitted["components"], "the components")
        names = [as_text(own["name"], "the name of a component") for own in described]
        if not names or len(set(names)) < len(names) or not set(names) <= set(builders):
            raise ValueError("it has unknown components, or one component twice")
        populations = tuple(
            _stored_population(own, learned.with_start(own["start"]), tensors, builders[own["name"]], device)
            for own in described
        )
        made = cls(populations, as_number(fitted["minimum_hazard"], "the minimum hazard", low=0.0))
        if abs(made.weights.sum() - 1.0) > 1e-9:
            raise ValueError("the weights of the components do not sum to one")
        return made


def _stored_population(
    described: Mapping[str, Any], learned: Learned, tensors: Mapping[str, Tensor], build: Build, device: str
) -> FittedPopulation:
    """Restore the networks of one component from a model file."""
    prefix = f"{described['name']}."
    weight = as_number(described["weight"], "a weight", above=0.0)
    members = as_whole(described["n_members"], "n_members", low=1)
    weights = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if len(learned.preprocessor.levels) > len(weights):
        raise ValueError("it has fewer tensors than categories")
    # a population without members has all shapes but takes no memory, however wide the stored layers are
    check_weights(build(learned, np.zeros(0, dtype=np.int64)), members, weights)
    network = _load_tensors(build(learned, np.zeros(members, dtype=np.int64)).double(), weights)
    network.requires_grad_(False).eval().to(find_device(device))
    population = FittedPopulation(described["name"], learned, network, weight)
    if any(value.numel() and value.abs().max() > _LARGE for value in weights.values() if value.is_floating_point()):
        population.check_curves()
    return population


def check_weights(sketch: nn.Module, members: int, weights: Mapping[str, Tensor]) -> None:
    """Raise a ValueError unless the tensors match a population of such networks and are finite.

    Parameters
    ----------
    sketch : nn.Module
        The network with any number of members; its weights are not read.
    members : int
        K: parameters have a leading axis of K, buffers one of K or of 1.
    weights : mapping
        Tensors by their names in the network's state. Buffer axes of length zero before a fit may have any length.
    """
    expected, parameters = sketch.state_dict(), dict(sketch.named_parameters())
    odd = sorted(expected.keys() ^ weights.keys())
    if odd:
        raise ValueError(f"these tensors are missing or unexpected: {', '.join(odd[:5])[:200]}")
    for name, like in expected.items():
        value, own = weights[name], name in parameters
        dtype = like.dtype if not like.is_floating_point() else torch.float32 if own else torch.float64
        first = value.ndim > 0 and value.shape[0] in ({members} if own else {members, 1})
        rest = value.ndim == like.ndim and all(
            a == b or (a == 0 and not own) for a, b in zip(like.shape[1:], value.shape[1:])
        )
        if value.dtype != dtype or not (first and rest):
            wanted = f"{dtype} of shape {(members, *like.shape[1:])}"
            raise ValueError(f"{name} is {value.dtype} of shape {tuple(value.shape)} and not {wanted}")
        check_values(value, name)


def _load_tensors(network: PopulationNetwork, weights: Mapping[str, Tensor]) -> PopulationNetwork:
    """Load tensors into a network and check them."""
    for name, buffer in list(network.named_buffers()):
        if name in weights and weights[name].shape != buffer.shape:  # tables whose size depends on the data
            owner, _, leaf = name.rpartition(".")
            setattr(network.get_submodule(owner), leaf, torch.empty_like(weights[name]))
    network.load_state_dict(dict(weights), strict=True)
    members = int(next(network.parameters()).shape[0])
    for module in network.modules():
        if (check := getattr(module, "check_stored", None)) is not None:
            check(members)
    return network
