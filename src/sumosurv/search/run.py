"""A search while it runs: its trials, where their networks are, and what they scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedKFold

from sumosurv.estimators import SurvivalEstimator, SurvivalMixture
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.outcome import Outcome
from sumosurv.search.choice import Choice, mean_of_rows
from sumosurv.search.grouping import Shapes
from sumosurv.search.jobs import Job, TrialMember
from sumosurv.search.population import Population
from sumosurv.search.space import Space
from sumosurv.training import split_rows, subjects

__all__ = ["SearchRun", "SearchSettings"]

_NO_VALIDATION_ROWS = 10**9  # "cross" on very few rows: the last epoch


@dataclass(frozen=True)
class SearchSettings:
    """What was asked for; see `NetworkSearch` for what each means."""

    estimator: NetworkEstimator
    space: Space | Literal["paper", "recipe"]
    n_trials: int
    method: Literal["random", "tpe", "halving"]
    mixture: int | Literal["auto"]
    refit: bool | Literal["cross"]
    refit_members: int
    cv: int | None
    shapes: Shapes
    storage: str | Path | None
    study_name: str
    trials_per_round: int | None
    random_state: Any
    verbose: bool
    backend: Any


@dataclass
class SearchRun:
    """One search on the rows of one job.

    Attributes
    ----------
    number : int
        Of the job among those that run together.
    seed : int
        Of the study: with a trial's number it makes the seeds of its networks.
    parameters : dict
        Settings of each trial, by its number.
    places : dict
        Where the networks of each trial are: (population, place) for each split.
    """

    settings: SearchSettings
    job: Job
    number: int
    seed: int
    splits: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
    parameters: dict[int, dict[str, Any]] = field(default_factory=dict)
    places: dict[int, list[tuple[Population, int]]] = field(default_factory=dict)

    @classmethod
    def open(cls, settings: SearchSettings, job: Job, number: int, seed: int) -> SearchRun:
        """Read the rows and lay down on which of them trials are trained and compared."""
        rows = job.rows({})
        if job.has_validation_data:
            train, valid = rows.own_rows()
        elif settings.cv is not None:
            return cls(settings, job, number, seed, _folds(rows.outcome, settings.cv, seed % (2**31)))
        else:
            train, valid = split_rows(rows.outcome, seed % (2**31), settings.estimator.validation_fraction)
        if valid is None:
            raise ValueError(
                "Trials are compared on validation rows and there are none (n_samples="
                f"{len(rows.outcome)}): give validation_data or cv, or an estimator with validation_fraction > 0 and "
                "more rows."
            )
        return cls(settings, job, number, seed, [(train, valid)])

    def members(self, trial: int, parameters: Mapping[str, Any]) -> list[TrialMember]:
        """The networks of a trial: one for each split."""
        return [
            TrialMember(trial, parameters, self.number, network_seed(self.seed, trial, split), train, valid)
            for split, (train, valid) in enumerate(self.splits)
        ]

    def note(self, populations: Sequence[Population]) -> None:
        """Remember where the networks of this search's trials are."""
        for population in populations:
            for place, member in enumerate(population.members):
                if member.job == self.number:
                    self.parameters[member.trial] = dict(member.parameters)
                    self.places.setdefault(member.trial, []).append((population, place))

    def forget(self, trials: Sequence[int]) -> dict[int, list[tuple[Population, int]]]:
        """Let go of the networks of some trials, which are to be trained anew, and hand them over."""
        return {n: self.places.pop(n) for n in trials if n in self.places}

    def take_back(self, places: Mapping[int, list[tuple[Population, int]]]) -> None:
        """Keep the old networks of trials whose new ones were not all trained to the end."""
        self.places |= {n: old for n, old in places.items() if not self.finished(n)}

    def finished(self, trial: int) -> bool:
        """Whether the networks of all splits were trained to the end."""
        places = self.places.get(trial, [])
        return len(places) == len(self.splits) and not any(p.history.interrupted for p, _ in places)

    def score(self, trial: int) -> float:
        """Mean log-likelihood of a trial on its validation rows; minus infinity if one of its networks failed."""
        places = self.places.get(trial, [])
        if len(places) < len(self.splits) or any(p.history.failed[i] for p, i in places):
            return -np.inf
        value = mean_of_rows(self.values(trial), self.valid_weight)
        return value if np.isfinite(value) else -np.inf

    def values(self, trial: int) -> npt.NDArray[np.float64]:
        """The log-likelihood of each validation row under a trial."""
        return np.concatenate([population.scores[place] for population, place in self.places[trial]])

    def reach(self, trial: int) -> npt.NDArray[np.float64] | None:
        """log S(entry) of each validation row under a trial; None where no row enters late."""
        if self.job.rows({}).outcome.entry is None:
            return None
        return np.concatenate([population.reach[place] for population, place in self.places[trial]])

    @property
    def valid_weight(self) -> npt.NDArray[np.float64] | None:
        """The weights of the validation rows, in the order of `values`."""
        weight = self.job.rows({}).outcome.weight
        return None if weight is None else np.concatenate([weight[valid] for _, valid in self.splits])

    def best_epoch(self, trial: int) -> float:
        """Of a trial's networks, on average; nan where another process trained them."""
        found = [population.history.best_epoch[place] for population, place in self.places.get(trial, [])]
        return float(np.mean(found)) if found else np.nan

    def assemble(self, trials: Sequence[int]) -> SurvivalEstimator:
        """One fitted estimator of all networks of some trials."""
        return assemble([pair for trial in trials for pair in self.places[trial]])

    def members_on_all_rows(self, choice: Choice) -> list[TrialMember]:
        """The networks that train again once the choice is made, validation rows included."""
        if self.settings.refit == "cross":
            return self._cross_members(choice.mixture)
        members = []
        for trial in choice.mixture:
            every = np.arange(len(self.job.rows(self.parameters[trial]).outcome))
            for population, place in self.places[trial]:
                member, last = population.members[place], int(population.history.best_epoch[place])
                parts = (trial, member.parameters, self.number, member.seed, every, None, last, True)
                members.append(TrialMember(*parts))
        return members

    def _cross_members(self, trials: Sequence[int]) -> list[TrialMember]:
        """Networks with the chosen settings in turn, each holding out rows of its own."""
        members = []
        for i in range(max(self.settings.refit_members, len(trials))):
            trial = trials[i % len(trials)]
            seed = network_seed(self.seed, trial, len(self.splits) + 1 + i // len(trials))
            parameters = self.parameters[trial]
            fraction = self.job.settings(parameters).validation_fraction
            train, valid = split_rows(self.job.rows(parameters).outcome, seed, fraction)
            members.append(
                TrialMember(trial, parameters, self.number, seed, train, valid, _NO_VALIDATION_ROWS, on_all_rows=True)
            )
        return members


def _folds(outcome: Outcome, n: int, seed: int) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Training and validation rows of n folds with about the same share of events, the rows of a subject together."""
    subject, kind = subjects(outcome)
    splits = StratifiedKFold(n, shuffle=True, random_state=seed).split(np.arange(len(kind)), kind)
    if outcome.group is None:
        return list(splits)
    held_out = [np.isin(subject, valid) for _, valid in splits]
    return [(np.flatnonzero(~rows), np.flatnonzero(rows)) for rows in held_out]


def assemble(places: Sequence[tuple[Population, int]]) -> SurvivalEstimator:
    """One fitted estimator of several networks: a single one in its own shape, others by population."""
    if len(places) == 1:
        population, place = places[0]
        return population.own(place)
    by_population: dict[int, tuple[Population, list[int]]] = {}
    for population, place in places:
        by_population.setdefault(id(population), (population, []))[1].append(place)
    parts = [population.mixture(own) for population, own in by_population.values()]
    return parts[0] if len(parts) == 1 else SurvivalMixture.of(parts, weights=[part.n_members_ for part in parts])


def network_seed(base: int, trial: int, split: int) -> int:
    """The seed of a network, from the study's, the trial's number and its split alone."""
    return int(np.random.SeedSequence([base, trial, split]).generate_state(1)[0] >> 1)
