"""Random survival forests: grown by scikit-survival, stored and evaluated as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.utils import check_random_state

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.design import Design
from sumosurv.fitting.settings import Constraints, integer, one_of
from sumosurv.model_files import tensor_of
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import Preprocessor

__all__ = ["RandomSurvivalForest"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_ROWS = 1 << 10  # rows predicted at once
_INTEGERS = ("left", "right", "feature", "leaf_start", "fall_time", "roots")
_TYPES: dict[str, type] = {**dict.fromkeys(_INTEGERS, np.int64), "threshold": np.float64, "fall": np.float64}


@dataclass(kw_only=True, eq=False, repr=False)
class RandomSurvivalForest(SurvivalEstimator):
    r"""Random survival forest (Ishwaran et al. 2008): the mean of the Kaplan-Meier curves of the leaves of many trees.

    .. math:: S(t|x) = \frac{1}{B} \sum_b S_b(t), \qquad
        S_b \text{ the product-limit estimate of the rows in the leaf of tree } b \text{ that contains } x.

    The trees are grown by scikit-survival (the log-rank test chooses the splits), which must be installed to fit:
    ``pip install "sumosurv[forest]"``. It is licensed under the GPL and imported only by ``fit``. A fitted forest is
    stored as arrays and is used, saved and loaded without scikit-survival. Curves are step functions, with a density
    interpolated over windows of half-width k or more.

    Parameters
    ----------
    n_estimators : int, default 200
        Number of trees.
    min_samples_split, min_samples_leaf : int, default 20 and 10
        Smallest node that is split, and smallest leaf.
    max_features : {"sqrt", "log2"}, int, float or None
        Number of columns considered for a split.
    max_depth : int, optional
    n_jobs : int, optional
        Number of processes that grow trees.
    half_width : int or "auto"
        Smallest k of the interpolated density; see `Tabulated`. With "auto", a window contains a twentieth of the event
        times. The curve of a subject is flat wherever no row in its leaves has an event; a window in which the curve is
        flat is widened until the curve decreases. The log-likelihood is therefore -inf only for rows censored after
        their curve has reached zero, and for events of subjects whose curve never decreases.
    random_state : int, RandomState or None

    Attributes
    ----------
    event_times_ : ndarray
        Times at which curves may decrease.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sumosurv import RandomSurvivalForest, datasets
    >>> data = datasets.simulate("weibull", 200, random_state=0)
    >>> model = RandomSurvivalForest(n_estimators=5, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    """

    n_estimators: int = 200
    min_samples_split: int = 20
    min_samples_leaf: int = 10
    max_features: Literal["sqrt", "log2"] | float | None = "sqrt"
    max_depth: int | None = None
    n_jobs: int | None = None
    half_width: int | Literal["auto"] = "auto"
    random_state: Any = None

    _parameter_constraints: ClassVar[Constraints] = {"half_width": one_of("auto") | integer(1)}

    def _fit(self, X: Any, y: Any) -> None:
        X, outcome = self._start(X, y)
        self.preprocessor_ = Preprocessor().fit(X)
        matrix = _as_float32(Design(self.preprocessor_).matrix(X))
        self.event_times_ = np.unique(outcome.time[outcome.event])
        self.trees_ = self._grow(matrix, outcome) if len(self.event_times_) else _no_trees()

    def _grow(self, matrix: npt.NDArray[np.float32], outcome: Outcome) -> dict[str, npt.NDArray[Any]]:
        try:
            from sksurv.ensemble import RandomSurvivalForest as Forest
        except ImportError:
            raise ImportError(
                "RandomSurvivalForest grows its trees with scikit-survival, which is not installed: "
                'pip install "sumosurv[forest]".'
            ) from None
        forest = Forest(
            n_estimators=self.n_estimators,
            min_samples_split=self.min_samples_split,
            min_samples_leaf=self.min_samples_leaf,
            max_features=self.max_features,
            max_depth=self.max_depth,
            n_jobs=self.n_jobs,
            low_memory=True,  # no curves in the nodes: sparse curves of the leaves are computed below
            random_state=check_random_state(self.random_state).randint(2**31 - 1),
        ).fit(matrix, outcome.array())
        trees = []
        nodes = falls = 0
        for tree, sample in zip(forest.estimators_, forest.estimators_samples_):
            structure = tree.tree_
            inner = structure.children_left >= 0
            leaf = structure.apply(matrix[sample])
            start, when, fall = leaf_curves(leaf, outcome[sample], self.event_times_, structure.node_count)
            trees.append(
                {
                    "left": np.where(inner, structure.children_left + nodes, -1),
                    "right": np.where(inner, structure.children_right + nodes, -1),
                    "feature": np.where(inner, structure.feature, 0),
                    "threshold": np.where(inner, structure.threshold, 0.0),
                    "leaf_start": start + falls,
                    "fall_time": when,
                    "fall": fall,
                    "roots": np.array([nodes]),
                }
            )
            nodes, falls = nodes + structure.node_count, falls + len(fall)
        trees.append(_no_trees() | {"leaf_start": np.array([falls])})
        return {name: np.concatenate([tree[name] for tree in trees]).astype(kind) for name, kind in _TYPES.items()}

    def _distribution(self, X: Any) -> SurvivalDistribution:
        matrix = _as_float32(Design(self.preprocessor_).matrix(X))
        times, trees = self.event_times_, self.trees_
        if len(times) == 0:  # there were no events in training
            return Tabulated([0.0], np.ones((len(matrix), 1)))
        n_nodes, n_trees = len(trees["left"]), len(trees["roots"])
        falls = sparse.csr_array((trees["fall"], trees["fall_time"], trees["leaf_start"]), shape=(n_nodes, len(times)))
        survival = np.empty((len(matrix), len(times)))
        for i in range(0, len(matrix), _ROWS):
            leaves = self._leaves(matrix[i : i + _ROWS])
            n = len(leaves)
            places = np.arange(n + 1) * n_trees
            holds = sparse.csr_array((np.full(n * n_trees, 1.0 / n_trees), leaves.ravel(), places), shape=(n, n_nodes))
            survival[i : i + n] = 1.0 - np.cumsum((holds @ falls).toarray(), axis=1)
        half_width = max(2, len(times) // 40) if self.half_width == "auto" else int(self.half_width)
        curves = np.minimum.accumulate(survival.clip(0.0, 1.0), axis=1)
        return Tabulated(times, curves, half_width=half_width, widen=True)

    def _leaves(self, matrix: npt.NDArray[np.float32]) -> Integers:
        """Return the leaf of each row in each tree, (rows, trees), sorted by node."""
        trees = self.trees_
        node = np.tile(trees["roots"], (len(matrix), 1))
        rows = np.arange(len(matrix))[:, None]
        while True:
            left = trees["left"][node]
            inner = left >= 0
            if not inner.any():
                return np.sort(node, axis=1)
            goes_left = matrix[rows, trees["feature"][node]] <= trees["threshold"][node]
            node = np.where(inner, np.where(goes_left, left, trees["right"][node]), node)

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        arrays = {f"trees.{name}": torch.from_numpy(array) for name, array in self.trees_.items()}
        arrays["event_times_"] = torch.from_numpy(self.event_times_)
        return fitted | {"preprocessor_": self.preprocessor_.state()}, tensors | arrays

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        self.preprocessor_ = Preprocessor.from_state(fitted["preprocessor_"])
        self._check_columns(self.preprocessor_)
        self.event_times_ = tensor_of(tensors, "event_times_", low=0.0, increasing=True).numpy()
        self.trees_ = _stored_trees(tensors, len(self.event_times_), len(Design(self.preprocessor_).names))


def leaf_curves(leaf: Integers, y: Outcome, times: Floats, n_nodes: int) -> tuple[Integers, Integers, Floats]:
    """Return the Kaplan-Meier curve of the rows in each leaf, as a list of its steps.

    Returns
    -------
    start : ndarray of shape (n_nodes,)
        Index of each node's first step in the other two arrays.
    when : ndarray
        Index of each step in ``times``.
    fall : ndarray
        Size of each step: S just before the time minus S at the time.
    """
    order = np.lexsort((y.time, leaf))
    leaf, time, event = leaf[order], y.time[order], y.event[order]
    first = np.flatnonzero(np.append(True, (np.diff(leaf) != 0) | (np.diff(time) != 0)))  # of each (leaf, time)
    deaths = np.add.reduceat(event.astype(np.float64), first)
    at_risk = np.searchsorted(leaf, leaf[first], side="right") - first
    seen = deaths > 0
    counts = np.bincount(leaf[first][seen], minlength=n_nodes)
    start = np.cumsum(counts) - counts
    stays = 1.0 - deaths[seen] / at_risk[seen]
    survival = np.concatenate([np.cumprod(part) for part in np.split(stays, start[1:])])
    before = np.append(1.0, survival)[:-1]
    before[start[counts > 0]] = 1.0
    return start, np.searchsorted(times, time[first][seen]), before - survival


def _stored_trees(tensors: dict[str, torch.Tensor], n_times: int, n_columns: int) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a model file; raise a ValueError if an index is invalid or a child precedes its parent."""
    if n_times == 0:
        if any(tensors[f"trees.{name}"].numel() for name in _TYPES):
            raise ValueError("it has trees but no event times")
        return _no_trees()
    n, n_falls = len(tensors["trees.left"]), len(tensors["trees.fall"])

    def whole(name: str, length: int | None, low: int, high: int, **order: bool) -> npt.NDArray[Any]:
        return tensor_of(tensors, f"trees.{name}", length, dtype=torch.int64, low=low, high=high, **order).numpy()

    trees = {
        "left": whole("left", n, -1, n - 1),
        "right": whole("right", n, -1, n - 1),
        "feature": whole("feature", n, 0, max(n_columns - 1, 0)),
        "threshold": tensor_of(tensors, "trees.threshold", n).numpy(),
        "leaf_start": whole("leaf_start", n + 1, 0, n_falls, never_falling=True),
        "fall_time": whole("fall_time", n_falls, 0, n_times - 1),
        "fall": tensor_of(tensors, "trees.fall", n_falls, low=0.0, high=1.0).numpy(),
        "roots": whole("roots", None, 0, n - 1, increasing=True),
    }
    left, right, roots, starts = trees["left"], trees["right"], trees["roots"], trees["leaf_start"]
    if len(roots) == 0 or roots[0] != 0 or starts[0] != 0 or starts[-1] != n_falls:
        raise ValueError("a tree does not start at its first node, or its leaves do not cover all steps")
    node = np.arange(n)
    end = np.append(roots[1:], n)[np.searchsorted(roots, node, side="right") - 1]  # end of the node's tree
    inner = left >= 0
    below = (left > node) & (right > node) & (left < end) & (right < end)
    if not np.where(inner, below & (n_columns > 0), right == -1).all():
        raise ValueError("a node has a child that precedes it or belongs to another tree")
    later = np.append(True, np.diff(trees["fall_time"]) > 0)[:n_falls]
    later[starts[:-1][starts[:-1] < n_falls]] = True
    if not later.all():
        raise ValueError("the steps of a leaf are not in order of time")
    return trees


def _as_float32(matrix: Floats) -> npt.NDArray[np.float32]:
    limit = float(np.finfo(np.float32).max)
    return matrix.clip(-limit, limit).astype(np.float32)


def _no_trees() -> dict[str, npt.NDArray[Any]]:
    return {name: np.zeros(0, kind) for name, kind in _TYPES.items()}
