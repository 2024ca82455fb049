"""The steps of a fit: learn from the rows, build the networks, train them, and stack the components."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from joblib import effective_n_jobs

from sumosurv.fitting.prepared import Learned, PreparedRows, event_share
from sumosurv.fitting.settings import NetworkMethod
from sumosurv.fitting.stack import FittedPopulation, FittedStack
from sumosurv.networks import Encoder, ModuleEncoder, PopulationNetwork, Rows, TableEncoder, select_members
from sumosurv.training import ALONE, Checkpoints, TrainingError, Workers
from sumosurv.training.batches import Member, RowNumbers, batch_rows, fold_rows, split_rows
from sumosurv.training.forked import Forked, can_fork
from sumosurv.training.loop import LEAST_MEMBERS, History, Schedule, held_out_terms, train
from sumosurv.training.processes import find_device, threads
from sumosurv.warn import warn_user

_PRIOR_ROWS = 2.0  # weight, in rows, of the prior that all components are equally good
_ITERATIONS, _CONVERGED = 100, 1e-9
_LEAST_WEIGHT = 0.01  # components with a smaller weight are dropped

Array = npt.NDArray[np.float64]
Split = tuple[RowNumbers, RowNumbers | None]


@dataclass(frozen=True)
class TrainedComponent:
    """The networks of one component after training."""

    population: FittedPopulation  # the members that were trained successfully
    history: History  # of all members, in the user's time unit
    failed: npt.NDArray[np.bool_]  # members whose training failed
    has_validation: bool  # whether the members have validation rows
    interrupted: bool  # whether Ctrl-C ended the training early
    # the log-likelihood of each row under the equal mixture of the members that held it out; NaN if none did
    held_out: Array | None = None


@dataclass(frozen=True)
class FitPlan:
    """The steps that fit the networks of one method; each is a function of its arguments and the plan."""

    method: NetworkMethod  # with None replaced by defaults: see `NetworkMethod._resolved`
    name: str = ""  # of the component
    checkpoints: Checkpoints | None = None  # where the state of training is stored
    workers: Workers = ALONE  # the processes that train together

    def learn(self, rows: PreparedRows) -> Learned:
        """Learn the start values of the networks from the training outcome."""
        outcome, unit = rows.training.on_time_scale(rows.learned.time_origin), rows.learned.time_unit
        learn = self.method._learn_start if outcome.cause is None else self.method._learn_causes
        return replace(rows.learned, start=learn(outcome, unit))

    def build(
        self, learned: Learned, seeds: npt.NDArray[np.int64], dropout: Sequence[float] | None = None
    ) -> PopulationNetwork:
        """Build a population with one member per seed; fits, trials of a search and model files all use this method.

        ``dropout`` has one rate per member; by default, all members have the rate of the plan.
        """
        method, columns = self.method, learned.preprocessor
        generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        encoder: Encoder
        if method.encoder is not None:
            own, said = [int(seed) for seed in seeds], columns.inputs_description()
            encoder = ModuleEncoder(method.encoder, own, learned.example(), said)
        elif columns.row_shape is not None:
            raise ValueError("Arrays with more than two dimensions require an encoder=.")
        else:
            encoder = TableEncoder(
                generators,
                torch.as_tensor(seeds),
                torch.tensor([float(method.dropout)] * len(seeds) if dropout is None else dropout),
                n_numeric=columns.n_numeric,
                levels=columns.levels,
                widths=method.covariate_layers,
                activation=method._activation,
                residual=method._residual,
                frequencies=method.frequencies,
            )
        build = method._build_causes if "causes" in learned.start else method._build_network
        return build(learned.start, encoder, generators)

    def member(self, seed: int, train: RowNumbers, valid: RowNumbers | None, stop_after: int | None = None) -> Member:
        """Return a member with the settings of the plan and these rows."""
        return Member(seed, train, valid, float(self.method.learning_rate), float(self.method.weight_decay), stop_after)

    def schedule(self, n_rows: int) -> Schedule:
        """Return the training schedule for a number of rows."""
        size = batch_rows(self.method.batch_size, n_rows)
        n_jobs = None if self.method.n_jobs is None else effective_n_jobs(self.method.n_jobs)
        return Schedule(self.method.max_epochs, size, self.method.patience, n_jobs=n_jobs)

    def train(
        self, learned: Learned, rows: PreparedRows, members: Sequence[Member]
    ) -> tuple[PopulationNetwork, History]:
        """Build and train a population with one network per member."""
        device, verbose = find_device(self.method.device), self.method.verbose
        network = self.build(learned, np.array([member.seed for member in members])).to(device)
        # converts each member's mean log-likelihoods from scaled time to the user's time unit
        unit = rows.log_unit if network.terms_are_likelihoods else 0.0
        held_out = [m.valid_rows for m in members if m.valid_rows is not None]
        shift = (
            unit * rows.event_shares(members),
            unit * np.array([event_share(rows.outcome[part]) for part in held_out]) if held_out else np.zeros(1),
        )
        schedule = replace(
            self.schedule(rows.n_training(members)),
            show_progress=bool(verbose) and not callable(verbose) and self.workers.first,
            on_epoch=verbose if callable(verbose) else None,
            workers=self.workers,
            checkpoint=None if self.checkpoints is None else self.checkpoints.next(),
            component=self.name,
            shift=shift,
        )
        batches = rows.batches(members, schedule.batch_size, device)
        return network, train(network, rows.table.to(device), members, schedule, batches)

    def fit(self, rows: PreparedRows, members: Sequence[Member], *, score_held_out: bool = False) -> TrainedComponent:
        """Learn, build and train a population; if ``refit`` is set, train it again on all rows."""
        learned = self.learn(rows)
        network, history = self.train(learned, rows, members)
        held_out = _held_out_likelihood(network, rows, members, history.failed) if score_held_out else None
        failed, interrupted, again = history.failed, history.interrupted, False
        has_validation = members[0].valid_rows is not None
        if self.method.refit and has_validation and not interrupted:
            second = self._train_on_all_rows(learned, rows, members, history)
            again, interrupted = second is not None, second is None
            network, failed = (network, failed) if second is None else second
        if failed.any():
            network = select_members(network, np.flatnonzero(~failed).tolist())
        population = FittedPopulation.of(self.name, rows, learned, network, on_all_rows=again)
        return TrainedComponent(population, history, failed, has_validation, interrupted, held_out)

    def _train_on_all_rows(
        self, learned: Learned, rows: PreparedRows, members: Sequence[Member], history: History
    ) -> tuple[PopulationNetwork, npt.NDArray[np.bool_]] | None:
        """Train on all rows, each member for its best number of epochs; return None if Ctrl-C ended the training."""
        every = np.arange(len(rows.outcome))
        again = [
            replace(member, train_rows=every, valid_rows=None, stop_after=int(epoch))
            for member, epoch in zip(members, np.where(history.failed, -1, history.best_epoch))
        ]
        try:
            network, second = self.train(learned, rows, again)
        except KeyboardInterrupt:
            return None
        return None if second.interrupted else (network, second.failed)


def _held_out_likelihood(
    network: PopulationNetwork, rows: PreparedRows, members: Sequence[Member], failed: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """Return the log of each row's mean likelihood over the members that held it out, in the user's time unit."""
    log_sum, count = np.full(len(rows.outcome), -np.inf), np.zeros(len(rows.outcome))
    held_out = [member.valid_rows for member in members if member.valid_rows is not None]
    if not held_out:
        return np.full(len(rows.outcome), np.nan)
    table = rows.table.to(next(network.parameters()).device)
    with threads():
        terms = held_out_terms(network, table, Rows.of(held_out).to(table.device)).cpu().numpy()
    for own, values, bad in zip(held_out, terms, failed):
        if not bad:
            log_sum[own] = np.logaddexp(log_sum[own], values[: len(own)])
            count[own] += 1
    log_sum -= rows.outcome.event * rows.log_unit
    return np.where(count > 0, log_sum - np.log(np.maximum(count, 1)), np.nan)


# ------------------------------------------------------------------ several components


@dataclass(frozen=True)
class FittedComponents:
    """The result of a fit: the stack that predicts, and tables about its training."""

    stack: FittedStack
    trained: Sequence[TrainedComponent]
    weights: Array  # of all trained components; zero for dropped components
    interrupted: bool

    def components(self) -> pd.DataFrame:
        """Return a table of the components: weight, number of members, held-out likelihood."""
        rows = [
            {
                "component": part.population.name,
                "weight": weight,
                "members": part.population.network.members,
                "held_out": float(np.mean(_held_out_means(part)[~part.failed])),
            }
            for part, weight in zip(self.trained, self.weights)
        ]
        return pd.DataFrame(rows)

    def members(self) -> pd.DataFrame:
        """Return a table of the networks: component, weight, number of parameters, best epoch, held-out likelihood."""
        parts = [
            pd.DataFrame(
                {
                    "component": part.population.name,
                    "weight": weight * (~part.failed / (~part.failed).sum()),
                    "parameters": sum(p[0].numel() for p in part.population.network.parameters()),
                    "best_epoch": part.history.best_epoch,
                    "held_out": _held_out_means(part),
                }
            )
            for part, weight in zip(self.trained, self.weights)
        ]
        return pd.concat(parts, ignore_index=True)

    def history(self) -> pd.DataFrame:
        """Return a table of the log-likelihoods of each network in each epoch."""
        parts, first = [], 0
        for part in self.trained:
            own = part.history.frame()
            parts.append(own.assign(component=part.population.name, member=own["member"] + first))
            first += len(part.failed)
        return pd.concat(parts, ignore_index=True)


def _held_out_means(part: TrainedComponent) -> Array:
    """Mean held-out log-likelihood of each member; of the whole component if components were stacked."""
    if part.held_out is None:
        return part.history.best_valid if part.has_validation else np.full(len(part.failed), np.nan)
    known = part.held_out[np.isfinite(part.held_out)]
    return np.full(len(part.failed), known.mean() if len(known) else np.nan)


def fit_components(
    model: NetworkMethod,
    plans: Sequence[FitPlan],
    rows: PreparedRows,
    random: np.random.RandomState,
    *,
    has_validation_data: bool,
) -> FittedComponents:
    """Train one population per component on the same rows and stack them.

    With a single component, each network holds out its own random rows and stops by itself. The networks of several
    components hold out the folds of a cross-validation, the same for all components, and all networks of a component
    stop at the epoch that is best for all folds together.

    With ``has_validation_data``, the user's validation rows replace held-out rows. Seeds are drawn from ``random``.

    Raises
    ------
    TrainingError
        If no component could be trained.
    """
    several = len(plans) > 1
    largest = max(plan.method.n_members for plan in plans)
    splits: list[Split] = []
    if has_validation_data:
        splits = [rows.own_rows()] * largest
    elif several:
        splits = _folds(rows, plans[0].method.validation_fraction, largest, random)
    trained: list[TrainedComponent] = []
    failures: list[TrainingError] = []
    interrupted = False
    tasks: list[Any] = []  # functions without arguments that return a TrainedComponent
    for plan in plans:
        seeds = random.randint(0, 2**31 - 1, size=plan.method.n_members)
        own = splits or [split_rows(rows.outcome, int(s), plan.method.validation_fraction) for s in seeds]
        members = [plan.member(int(seed), *split) for seed, split in zip(seeds, own)]
        if several and not has_validation_data:
            members = [replace(member, stops_together=True) for member in members]
        tasks.append(partial(plan.fit, rows, members, score_held_out=several))
    with ExitStack() as processes:
        if _spare_processes(plans):
            tasks[1:] = [processes.enter_context(_InProcess(plan, task)) for plan, task in zip(plans[1:], tasks[1:])]
        for task in tasks:
            try:
                trained.append(task())
            except TrainingError as error:
                failures.append(error)
                continue
            except KeyboardInterrupt:
                if not trained:
                    raise
                interrupted = True
                break
            interrupted = trained[-1].interrupted
            if interrupted:
                break
    if not trained:
        raise failures[0]
    if failures:
        warn_user(f"{len(failures)} of {len(plans)} components could not be trained: {failures[0]}", UserWarning)
    return stack_components(model, trained, rows, interrupted=interrupted)


def _spare_processes(plans: Sequence[FitPlan]) -> bool:
    """Whether ``n_jobs`` processes are more than the first component can use, so that each other one gets its own."""
    method = plans[0].method
    if method.n_jobs is None or method.verbose or plans[0].checkpoints is not None or plans[0].workers.size > 1:
        return False
    spare = effective_n_jobs(method.n_jobs) - max(1, method.n_members // LEAST_MEMBERS)
    return spare >= len(plans) - 1 and can_fork() and find_device(method.device).type == "cpu"


class _InProcess:
    """A component that is fitted in a process of its own while others are; calling it waits for the result."""

    def __init__(self, plan: FitPlan, task: partial[TrainedComponent]) -> None:
        alone = replace(plan, method=plan.method._with(n_jobs=1))
        self._process = Forked([lambda: _Recorded(partial(alone.fit, *task.args, **task.keywords))])

    def __enter__(self) -> Self:
        self._process.__enter__()
        self._process.begin("run")
        return self

    def __exit__(self, *error: Any) -> None:
        self._process.__exit__(*error)

    def __call__(self) -> TrainedComponent:
        ((result, warned),) = self._process.end()
        for message, category in warned:
            warn_user(message, category)
        made: TrainedComponent = result
        return made


@dataclass(frozen=True)
class _Recorded:
    """A task and the warnings that it issues."""

    task: Callable[[], Any]

    def run(self) -> tuple[Any, list[tuple[str, type[Warning]]]]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = self.task()
        return result, [(str(warning.message), warning.category) for warning in seen]


def stack_components(
    model: NetworkMethod, trained: Sequence[TrainedComponent], rows: PreparedRows, *, interrupted: bool
) -> FittedComponents:
    """Return the weighted stack of trained components, without components of negligible weight."""
    weights = np.ones(1)
    if len(trained) > 1:
        held_out = [part.held_out for part in trained if part.held_out is not None]
        weights = stacking_weights(np.stack(held_out, axis=1), rows.outcome.weight)
        kept = weights >= _LEAST_WEIGHT
        weights = np.where(kept, weights, 0.0) / weights[kept].sum()
    pairs = [(part.population, float(weight)) for part, weight in zip(trained, weights) if weight > 0]
    stack = FittedStack(
        tuple(replace(population, weight=weight) for population, weight in pairs), model._minimum_hazard(rows.training)
    )
    return FittedComponents(stack.with_shared_tail() if model._shares_tail else stack, trained, weights, interrupted)


def _folds(rows: PreparedRows, fraction: float, count: int, random: np.random.RandomState) -> list[Split]:
    """Return the splits of ``count`` members: the folds of as many cross-validations as are needed."""
    if fraction == 0:
        return [(np.arange(len(rows.outcome)), None)] * count
    n_folds = min(max(2, round(1 / fraction)), len(rows.outcome.subject_event))
    seeds = random.randint(0, 2**31 - 1, size=math.ceil(count / n_folds))
    return [split for seed in seeds for split in fold_rows(rows.outcome, int(seed), n_folds)][:count]


def stacking_weights(log_likelihood: Array, weight: Array | None = None) -> Array:
    r"""Stacking: return the mixture weights that maximise the likelihood of held-out rows, by Newton's method.

    .. math:: \max_w \; \sum_i \log \sum_k w_k e^{\ell_{ik}} + \frac{2}{K} \sum_k \log w_k,

    with a prior, worth two rows, that all components are equally good.

    Parameters
    ----------
    log_likelihood : array of shape (rows, components)
        NaN in rows that were not held out, which are ignored.
    weight : array of shape (rows,), optional
        Sample weights.

    Examples
    --------
    >>> stacking_weights(np.log([[0.9, 0.1], [0.8, 0.1], [0.7, 0.2]] * 20)).round(2)
    array([0.98, 0.02])
    """
    best = log_likelihood.max(axis=1)
    known = np.isfinite(best)
    parts = log_likelihood.shape[1]
    own = np.ones(int(known.sum())) if weight is None else weight[known]
    likelihood = np.exp(log_likelihood[known] - best[known, None])
    prior = _PRIOR_ROWS / parts

    def objective(shares: Array) -> float:
        return float(own @ np.log(likelihood @ shares) + prior * np.log(shares).sum())

    shares = np.full(parts, 1.0 / parts)
    value = objective(shares)
    for _ in range(_ITERATIONS):
        ratio = likelihood / (likelihood @ shares)[:, None]
        slope = own @ ratio + prior / shares
        curvature = (ratio * own[:, None]).T @ ratio + np.diag(prior / shares**2)
        free, along = np.linalg.solve(curvature, np.stack([slope, np.ones(parts)], axis=1)).T
        step = free - free.sum() / along.sum() * along  # the weights still sum to one
        step *= min(1.0, 0.9 / max(-(step / shares).min(), 1e-300))  # and stay positive
        while (after := objective(shares + step)) < value and np.abs(step).max() > _CONVERGED:
            step *= 0.5
        shares, value = shares + step, after
        if np.abs(step).max() <= _CONVERGED:
            break
    return shares
