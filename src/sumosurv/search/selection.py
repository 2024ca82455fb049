"""The state of one search: the networks of its trials, their scores, and the choice of the trials that are mixed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sumosurv.estimators import SurvivalEstimator, SurvivalMixture
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.outcome import Outcome
from sumosurv.search.executor import Job, Population, TrialMember, before_entry
from sumosurv.search.space import Space
from sumosurv.search.study import Layout
from sumosurv.training.batches import fold_rows, split_rows

_ROUNDING = 1e-12

Networks = list[tuple[Population, int]]  # each network as a population and its place in it
Floats = npt.NDArray[np.float64]


@dataclass(eq=False, repr=False)
class SearchSettings:
    """The parameters of a search; see `NetworkSearch` for their meaning."""

    estimator: NetworkEstimator
    _: KW_ONLY
    space: Space | Literal["paper", "recipe"] = "paper"
    n_trials: int = 300
    method: Literal["random", "tpe", "halving"] = "random"
    mixture: int | Literal["auto"] = "auto"
    refit: bool | Literal["cross"] = False
    refit_members: int = 32
    cv: int | None = None
    layout: Literal["auto"] | Layout = "auto"
    storage: str | Path | None = None
    study_name: str = "sumosurv"
    trials_per_round: int | None = None
    random_state: Any = None
    verbose: bool = False
    cluster: Any = None


@dataclass
class SearchRun:
    """One search on the rows of one job."""

    settings: SearchSettings
    job: Job
    number: int  # place of the job among those that run together
    seed: int  # of the study; with a trial's number it determines the seeds of its networks
    splits: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]  # training and validation rows of each network
    parameters: dict[int, dict[str, Any]] = field(default_factory=dict)  # settings of each trial, by number
    networks: dict[int, Networks] = field(default_factory=dict)  # of each trial, one per split

    # set by the choice
    scores: dict[int, float] = field(init=False)  # of all trials, including those of other processes
    order: list[int] = field(init=False)  # numbers of the trials with a finite score, best first
    mixture: list[int] = field(init=False)  # numbers of the trials in the mixture
    mixture_scores: dict[int, float] = field(init=False)  # of the mixtures of the best 1, 2, 4, ... trials
    interrupted: bool = field(init=False)
    best_single: SurvivalEstimator = field(init=False)  # the best trial
    best_estimator: SurvivalEstimator = field(init=False)  # the mixture

    @classmethod
    def open(cls, settings: SearchSettings, job: Job, number: int, seed: int) -> SearchRun:
        """Read the rows and decide on which of them trials are trained and compared."""
        outcome, seed_of_split = job.rows({}).outcome, seed % (2**31)
        if job.has_validation_data:
            splits = [job.rows({}).own_rows()]
        elif settings.cv is not None:
            splits = fold_rows(outcome, seed_of_split, settings.cv)
        else:
            splits = [split_rows(outcome, seed_of_split, settings.estimator.validation_fraction)]
        found = [(train, valid) for train, valid in splits if valid is not None]
        if not found:
            raise ValueError(
                "Trials are compared on validation rows, and there are none (n_samples="
                f"{len(outcome)}): pass validation_data or cv, or use an estimator with validation_fraction > 0 "
                "and more rows."
            )
        return cls(settings, job, number, seed, found)

    def members(self, trial: int, parameters: Mapping[str, Any]) -> list[TrialMember]:
        """The untrained networks of a trial, one per split."""
        return [
            TrialMember(trial, parameters, self.number, network_seed(self.seed, trial, split), train, valid)
            for split, (train, valid) in enumerate(self.splits)
        ]

    def networks_in(self, populations: Sequence[Population]) -> dict[int, Networks]:
        """The networks of this search in some populations, by trial."""
        found: dict[int, Networks] = {}
        for population in populations:
            for place, member in enumerate(population.members):
                if member.job == self.number:
                    found.setdefault(member.trial, []).append((population, place))
        return found

    def add(self, populations: Sequence[Population]) -> None:
        """Keep the networks of this search's trials."""
        for trial, networks in self.networks_in(populations).items():
            population, place = networks[0]
            self.parameters[trial] = dict(population.members[place].parameters)
            self.networks.setdefault(trial, []).extend(networks)

    def remove(self, trials: Sequence[int]) -> dict[int, Networks]:
        """Remove and return the networks of some trials, which will be trained again."""
        return {n: self.networks.pop(n) for n in trials if n in self.networks}

    def finished(self, trial: int) -> bool:
        """Whether the networks of all splits were trained to the end."""
        networks = self.networks.get(trial, [])
        return len(networks) == len(self.splits) and not any(p.history.interrupted for p, _ in networks)

    def score(self, trial: int) -> float:
        """Mean log-likelihood of a trial on its validation rows; minus infinity if one of its networks failed."""
        networks = self.networks.get(trial, [])
        if len(networks) < len(self.splits) or any(p.history.failed[i] for p, i in networks):
            return -np.inf
        value = _mean(self._values(trial), self._valid_weight())
        return value if np.isfinite(value) else -np.inf

    def _values(self, trial: int) -> Floats:
        """Log-likelihood of each validation row under a trial."""
        return np.concatenate([population.scores[place] for population, place in self.networks[trial]])

    def _valid_weight(self) -> Floats | None:
        """Weights of the validation rows, in the order of `_values`."""
        weight = self.job.rows({}).outcome.weight
        return None if weight is None else np.concatenate([weight[valid] for _, valid in self.splits])

    def choose(self, scores: dict[int, float], order: list[int], most: int) -> None:
        """Choose the mixture among the first ``most`` trials of an order, and assemble the estimators."""
        best, weight, at_entry = order[:most], self._valid_weight(), None
        if self.job.rows({}).outcome.entry is not None:
            at_entry = np.stack([np.concatenate([p.at_entry[i] for p, i in self.networks[n]]) for n in best])
        values = np.stack([self._values(n) for n in best])
        size = choose_size(values, weight, at_entry) if self.settings.mixture == "auto" else len(values)
        self.scores, self.order, self.mixture = scores, order, order[:size]
        self.mixture_scores = mixture_scores(values, weight, at_entry)
        self.best_single, self.best_estimator = self.assemble(order[:1]), self.assemble(self.mixture)

    def best_epoch(self, trial: int) -> float:
        """Mean best epoch of a trial's networks; nan if another process trained them."""
        found = [population.history.best_epoch[place] for population, place in self.networks.get(trial, [])]
        return float(np.mean(found)) if found else np.nan

    def log_likelihoods(self, X: Any, y: Outcome) -> dict[int, Floats]:
        """Log-likelihood of new rows under each trial that did not fail; several networks of a trial are mixed."""
        populations = {id(p): p for networks in self.networks.values() for p, _ in networks}
        values = {key: p.log_likelihood(self.number, X, y) for key, p in populations.items()}
        late = y.entry is not None and len(self.splits) > 1
        at_entry = {key: p.log_likelihood(self.number, X, before_entry(y)) for key, p in populations.items() if late}
        return {
            trial: log_mixture(
                np.stack([values[id(p)][i] for p, i in networks]),
                np.stack([at_entry[id(p)][i] for p, i in networks]) if late else None,
            )
            for trial, networks in self.networks.items()
            if all(i in values[id(p)] for p, i in networks)
        }

    def assemble(self, trials: Sequence[int]) -> SurvivalEstimator:
        """One fitted estimator of all networks of some trials."""
        return assemble([network for trial in trials for network in self.networks[trial]])

    def members_on_all_rows(self) -> list[TrialMember]:
        """The networks that are trained again after the choice, on training and validation rows."""
        if self.settings.refit == "cross":
            return self._cross_members(self.mixture)
        members = []
        for trial in self.mixture:
            every = np.arange(len(self.job.rows(self.parameters[trial]).outcome))
            for population, place in self.networks[trial]:
                member, last = population.members[place], int(population.history.best_epoch[place])
                members.append(TrialMember(trial, member.parameters, self.number, member.seed, every, None, last, True))
        return members

    def _cross_members(self, trials: Sequence[int]) -> list[TrialMember]:
        """Networks with the settings of each chosen trial in turn, each with its own held-out rows."""
        members = []
        for i in range(max(self.settings.refit_members, len(trials))):
            trial = trials[i % len(trials)]
            seed = network_seed(self.seed, trial, len(self.splits) + 1 + i // len(trials))
            parameters = self.parameters[trial]
            fraction = self.job.settings(parameters).validation_fraction
            train, valid = split_rows(self.job.rows(parameters).outcome, seed, fraction)
            members.append(TrialMember(trial, parameters, self.number, seed, train, valid, on_all_rows=True))
        return members


def assemble(networks: Networks) -> SurvivalEstimator:
    """One fitted estimator of several networks: a single one in its own shape, others by population."""
    if len(networks) == 1:
        population, place = networks[0]
        return population.single(place)
    by_population: dict[int, tuple[Population, list[int]]] = {}
    for population, place in networks:
        by_population.setdefault(id(population), (population, []))[1].append(place)
    parts = [population.mixture(places) for population, places in by_population.values()]
    return parts[0] if len(parts) == 1 else SurvivalMixture.of(parts, weights=[part.n_members_ for part in parts])


def network_seed(base: int, trial: int, split: int) -> int:
    """The seed of a network, from the study's seed, the trial's number and the split."""
    return int(np.random.SeedSequence([base, trial, split]).generate_state(1)[0] >> 1)


# ---------------------------------------------------------------------- choosing


def log_mixture(values: Floats, at_entry: Floats | None = None) -> Floats:
    """Log-likelihood of each row under the equally weighted mixture of trials, from that under each, (trials, rows).

    ``at_entry`` is log S(entry) for rows with delayed entry. Their likelihood is conditional on survival until entry;
    trials under which a row is likely to reach its entry have a larger weight.
    """
    if at_entry is None:
        return np.asarray(np.logaddexp.reduce(values, axis=0) - math.log(len(values)))
    return np.asarray(np.logaddexp.reduce(values + at_entry, axis=0) - np.logaddexp.reduce(at_entry, axis=0))


def _mean(values: Floats, weight: Floats | None) -> float:
    """Mean over rows, weighted if there are weights."""
    return float(values.mean() if weight is None else np.average(values, weights=weight))


def rank_trials(scores: Mapping[int, float]) -> list[int]:
    """Numbers of the trials with a finite score, best first."""
    order = sorted((n for n, score in scores.items() if math.isfinite(score)), key=lambda n: (-scores[n], n))
    if not order:
        raise ValueError("No trial had a finite likelihood on the validation rows.")
    return order


def _mixtures(values: Floats, at_entry: Floats | None) -> dict[int, Floats]:
    """Log-likelihoods of rows under the mixtures of the best 1, 2, 4, ... and of all trials."""
    sizes = sorted({min(2**i, len(values)) for i in range(len(values).bit_length() + 1)})
    return {n: log_mixture(values[:n], None if at_entry is None else at_entry[:n]) for n in sizes}


def mixture_scores(values: Floats, weight: Floats | None = None, at_entry: Floats | None = None) -> dict[int, float]:
    """Mean log-likelihood of the mixtures of the best 1, 2, 4, ... trials; arguments as in `log_mixture`."""
    with np.errstate(invalid="ignore"):
        return {size: _mean(row, weight) for size, row in _mixtures(values, at_entry).items()}


def choose_size(values: Floats, weight: Floats | None = None, at_entry: Floats | None = None) -> int:
    """The largest mixture within one standard error (of the paired difference) of the best one.

    The best few trials owe part of their rank to chance, which the same rows cannot reveal; a larger mixture that is
    as good within the noise is the safer choice.
    """
    rows = _mixtures(values, at_entry)
    best = max(rows, key=lambda size: _mean(rows[size], weight))
    chosen = best
    for size, row in rows.items():
        if size > chosen and len(row) > 1:
            gap = rows[best] - row
            if _mean(gap, weight) <= _standard_error(gap, weight) + _ROUNDING:
                chosen = size
    return chosen


def _standard_error(values: Floats, weight: Floats | None) -> float:
    """Standard error of the mean over rows."""
    if weight is None:
        return float(values.std(ddof=1) / math.sqrt(len(values)))
    share = weight / weight.sum()
    return float(np.sqrt(np.sum((share * (values - share @ values)) ** 2) * len(values) / (len(values) - 1)))
