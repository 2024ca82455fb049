"""Networks of several capacities as one model: each kind weighted by the likelihood of rows that it did not see."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.estimators.reading import Prepared
from sumosurv.networks import PopulationNetwork, Rows
from sumosurv.training import Member, TrainingError, fold_rows, held_out_terms, subjects, threads

__all__ = ["Kind", "enough_epochs", "fit_kinds", "stacking_weights"]

_PRIOR_ROWS = 2.0  # rows' worth of belief that all kinds are equally good
_ITERATIONS, _CONVERGED = 5000, 1e-7

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """Networks of one capacity, trained, and what they say of rows that they did not see.

    Attributes
    ----------
    name : str
    estimator : NetworkEstimator
        Fitted.
    held_out : ndarray of shape (rows,)
        The log-likelihood of each row, in the user's unit of time, under the equal mixture of the networks that had it
        among their validation rows; NaN where none had.
    """

    name: str
    estimator: NetworkEstimator
    held_out: Array


def enough_epochs(n_rows: int, steps: int, least: int) -> int:
    """Epochs of so many steps for so many training rows: 0.6 √rows, 45 at most, but ``least`` steps in all."""
    return max(min(45, round(0.6 * math.sqrt(n_rows))), math.ceil(least / steps))


def fit_kinds(
    kinds: Mapping[str, NetworkEstimator], rows: Prepared, random: np.random.RandomState, *, own_validation: bool
) -> tuple[list[Kind], bool]:
    """Train one population after the other on the same rows.

    Parameters
    ----------
    kinds : mapping
        Estimators by name, each with its ``n_members``.
    rows : Prepared
    random : RandomState
        Seeds are drawn from it.
    own_validation : bool
        The rows have validation rows of their own. Otherwise each network holds out one fold of a cross-validation,
        the same for all kinds, and all networks of a kind stop at the epoch that is best for all folds together.

    Returns
    -------
    kinds : list of Kind
        Without those that could not be trained, or were still to come when Ctrl-C ended the fit.
    interrupted : bool
        Whether Ctrl-C did.

    Raises
    ------
    TrainingError
        If no kind could be trained.
    """
    first = next(iter(kinds.values()))
    largest = max(kind.setting("n_members") for kind in kinds.values())
    splits = [rows.own_rows()] * largest if own_validation else _held_out_folds(first, rows, largest, random)
    together = None if own_validation else 0
    fitted: list[Kind] = []
    failures: list[TrainingError] = []
    interrupted = False
    for name, kind in kinds.items():
        seeds = random.randint(0, 2**31 - 1, size=kind.setting("n_members"))
        members = [replace(kind.member(int(s), *split), stops_with=together) for s, split in zip(seeds, splits)]
        learned = kind.learn(rows)
        try:
            network, history = kind.train(learned, rows, members)
        except TrainingError as error:
            failures.append(error)
            continue
        except KeyboardInterrupt:
            if not fitted:
                raise
            interrupted = True
            break
        terms = _held_out(network, rows, members, history.failed, kind.n_threads)
        fitted.append(Kind(name, kind.finished(rows, learned, members, network, history), terms))
        interrupted = fitted[-1].estimator.interrupted_
        if interrupted:
            break
    if not fitted:
        raise failures[0]
    if failures:
        warnings.warn(f"{len(failures)} of {len(kinds)} kinds of networks are left out: {failures[0]}", stacklevel=5)
    return fitted, interrupted


def _held_out_folds(
    first: NetworkEstimator, rows: Prepared, count: int, random: np.random.RandomState
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]]:
    """Rows of so many members: the folds of one cross-validation after the other."""
    if first.validation_fraction == 0:
        return [(np.arange(len(rows.outcome)), None)] * count
    n_folds = min(max(2, round(1 / first.validation_fraction)), len(subjects(rows.outcome)[1]))
    seeds = random.randint(0, 2**31 - 1, size=math.ceil(count / n_folds))
    return [split for seed in seeds for split in fold_rows(rows.outcome, int(seed), n_folds)][:count]


def _held_out(
    network: PopulationNetwork,
    rows: Prepared,
    members: Sequence[Member],
    failed: npt.NDArray[np.bool_],
    n_threads: int | None,
) -> Array:
    """The log of the mean likelihood of each row over the members that held it out."""
    log_sum, count = np.full(len(rows.outcome), -np.inf), np.zeros(len(rows.outcome))
    held_out = [member.valid_rows for member in members if member.valid_rows is not None]
    if not held_out:
        return np.full(len(rows.outcome), np.nan)
    table = rows.table.to(next(network.parameters()).device)
    with threads(n_threads):
        terms = held_out_terms(network, table, Rows.of(held_out).to(table.device)).cpu().numpy()
    for own, values, bad in zip(held_out, terms, failed):
        if not bad:
            log_sum[own] = np.logaddexp(log_sum[own], values[: len(own)])
            count[own] += 1
    log_sum -= rows.outcome.event * rows.log_unit
    return np.where(count > 0, log_sum - np.log(np.maximum(count, 1)), np.nan)


def stacking_weights(log_likelihood: Array, weight: Array | None = None) -> Array:
    r"""The weights of a mixture that make rows which its parts did not see most likely (stacking), by EM.

    .. math:: \max_w \; \sum_i \log \sum_k w_k e^{\ell_{ik}} + \frac{2}{K} \sum_k \log w_k,

    a prior worth two rows that all parts are equally good.

    Parameters
    ----------
    log_likelihood : array of shape (rows, parts)
        NaN in rows that were not held out: they are not looked at.
    weight : array of shape (rows,), optional
        Of the rows.

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
