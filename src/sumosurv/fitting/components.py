"""Fitting several components to the same rows, and stacking them by the likelihood of held-out rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.fitting.method import NetworkMethod
from sumosurv.fitting.plan import FitPlan, TrainedComponent
from sumosurv.fitting.rows import PreparedRows
from sumosurv.fitting.stack import FittedStack
from sumosurv.training import TrainingError, fold_rows, split_rows, subjects
from sumosurv.warn import warn_user

__all__ = ["FittedComponents", "fit_components", "stack_components", "stacking_weights"]

_PRIOR_ROWS = 2.0  # rows' worth of belief that all components are equally good
_ITERATIONS, _CONVERGED = 5000, 1e-7
_LEAST_WEIGHT = 0.01  # a component below it is left out of the mixture

Array = npt.NDArray[np.float64]
Split = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]


@dataclass(frozen=True)
class FittedComponents:
    """The result of a fit: the stack that predicts, and tables about its training."""

    stack: FittedStack
    trained: Sequence[TrainedComponent]
    weights: Array  # of all trained components; zero for those that are left out
    interrupted: bool

    def attributes(self) -> dict[str, Any]:
        """The fitted attributes of an estimator."""
        return {
            "stack_": self.stack,
            "n_members_": self.stack.n_members,
            "components_": self._components(),
            "members_": self._members(),
            "history_": self._history(),
            "best_epoch_": np.concatenate([part.history.best_epoch for part in self.trained]),
            "best_valid_": np.concatenate([part.history.best_valid for part in self.trained]),
            "interrupted_": self.interrupted,
        }

    def _components(self) -> pd.DataFrame:
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

    def _members(self) -> pd.DataFrame:
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

    def _history(self) -> pd.DataFrame:
        parts, first = [], 0
        for part in self.trained:
            own = part.history.frame()
            parts.append(own.assign(component=part.population.name, member=own["member"] + first))
            first += len(part.failed)
        return pd.concat(parts, ignore_index=True)


def _held_out_means(part: TrainedComponent) -> Array:
    """Mean held-out log-likelihood: of each member by itself, or of the component if rows were stacked by it."""
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
    own_validation: bool,
) -> FittedComponents:
    """Train one population per component on the same rows and stack them.

    A single component trains as it would in any method: each network holds out its own share of the rows and stops by
    itself. The networks of several components hold out the folds of one cross-validation, the same for all components,
    and all networks of a component stop at the epoch that is best for all folds together.

    Parameters
    ----------
    model : NetworkMethod
        The method that is fitted.
    plans : sequence of FitPlan
        One for each component.
    rows : PreparedRows
    random : RandomState
        Seeds are drawn from it.
    own_validation : bool
        Whether the rows have validation rows of their own, which then take the place of held-out rows.

    Raises
    ------
    TrainingError
        If no component could be trained.
    """
    several = len(plans) > 1
    largest = max(plan.method.n_members for plan in plans)
    splits: list[Split] = []
    if own_validation:
        splits = [rows.own_rows()] * largest
    elif several:
        splits = _folds(rows, plans[0].method.validation_fraction, largest, random)
    trained: list[TrainedComponent] = []
    failures: list[TrainingError] = []
    interrupted = False
    for plan in plans:
        seeds = random.randint(0, 2**31 - 1, size=plan.method.n_members)
        own = splits or [split_rows(rows.outcome, int(s), plan.method.validation_fraction) for s in seeds]
        members = [plan.member(int(seed), *split) for seed, split in zip(seeds, own)]
        if several and not own_validation:
            members = [replace(member, stops_with=0) for member in members]
        try:
            trained.append(plan.fit(rows, members, score_held_out=several))
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


def stack_components(
    model: NetworkMethod, trained: Sequence[TrainedComponent], rows: PreparedRows, *, interrupted: bool
) -> FittedComponents:
    """The weighted stack of trained components, without those whose weight is negligible."""
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
    """Rows of so many members: the folds of one cross-validation after the other."""
    if fraction == 0:
        return [(np.arange(len(rows.outcome)), None)] * count
    n_folds = min(max(2, round(1 / fraction)), len(subjects(rows.outcome)[1]))
    seeds = random.randint(0, 2**31 - 1, size=math.ceil(count / n_folds))
    return [split for seed in seeds for split in fold_rows(rows.outcome, int(seed), n_folds)][:count]


def stacking_weights(log_likelihood: Array, weight: Array | None = None) -> Array:
    r"""The mixture weights under which held-out rows are most likely (stacking), by EM.

    .. math:: \max_w \; \sum_i \log \sum_k w_k e^{\ell_{ik}} + \frac{2}{K} \sum_k \log w_k,

    a prior worth two rows that all components are equally good.

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
    shares = np.full(parts, 1.0 / parts)
    for _ in range(_ITERATIONS):
        joint = likelihood * shares
        counts = own @ (joint / joint.sum(axis=1, keepdims=True))
        new = (counts + _PRIOR_ROWS / parts) / (own.sum() + _PRIOR_ROWS)
        done = np.abs(new - shares).max() < _CONVERGED
        shares = new
        if done:
            break
    return shares
