"""Mutants that no test can see, since the program does the same with and without them; each with the reason."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EQUIVALENT", "Equivalent"]


class Equivalent(NamedTuple):
    """One of them: a file of src/sumosurv, its line without spaces at the ends, what is changed there, and why not.

    Where a file has the line more than once, the line before it comes first.
    """

    path: str
    line: str
    old: str
    new: str
    reason: str


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "estimators/forest.py",
        'left = trees["left"][node]\ninner = left >= 0',
        "left >= 0",
        "(left > 0)",
        "no node has the first one, a root, for its child: children come after their parents",
    ),
    Equivalent(
        "estimators/forest.py",
        'return {name: np.zeros(0, np.float64 if name in floats else np.int64) for name in (*_TREE, *_LEAF, "roots")}',
        "np.zeros(0, np.float64 if name in floats else np.int64)",
        "(np.ones(0, np.float64 if name in floats else np.int64))",
        "an array without elements",
    ),
    Equivalent(
        "preprocessing/preprocessor.py",
        "np.stack(numbers, axis=1) if numbers else np.zeros((n, 0)),",
        "np.zeros((n, 0))",
        "(np.ones((n, 0)))",
        "an array without elements",
    ),
    Equivalent(
        "training/loop.py",
        "failed: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))",
        "np.zeros(0, dtype=bool)",
        "(np.ones(0, dtype=bool))",
        "an array without elements",
    ),
    Equivalent(
        "scores/_losses.py",
        "of_ended, of_alive = np.zeros((n, m if normalize else 1)), np.empty((n, m))",
        "np.zeros((n, m if normalize else 1))",
        "(np.ones((n, m if normalize else 1)))",
        "an array of which every row is overwritten",
    ),
    Equivalent(
        "scores/_resampling.py",
        "self._values = np.where(infinite, 0.0, values) if infinite.any() else values",
        "np.where(infinite, 0.0, values) if infinite.any() else values",
        "(np.where(infinite, 0.0, values))",
        "a copy of the same values",
    ),
    Equivalent(
        "scores/calibration.py",
        "rows = slice(start, min(start + (1 << 15), len(time)))",
        "min(start + (1 << 15), len(time))",
        "(max(start + (1 << 15), len(time)))",
        "the size of a block: slices end with the array",
    ),
    Equivalent(
        "scores/_weighting.py",
        "else:\nstep = max(1, (1 << 17) // len(self.grid))",
        "1",
        "2",
        "the size of a block",
    ),
    Equivalent(
        "search/run.py",
        "return cls(settings, job, number, seed, _folds(rows.outcome, settings.cv, seed % (2**31)))",
        "31",
        "32",
        "the remainder of a seed that is drawn from below 2**31",
    ),
    Equivalent(
        "search/space.py",
        "raise ValueError(f\"space is 'paper', 'recipe' or a mapping; got {space!r}.\")\n"
        "known = estimator.get_params(deep=False)",
        "False",
        "True",
        "network estimators have no estimators among their settings, which deep=True would add",
    ),
    Equivalent(
        "search/space.py",
        "def _those_of(estimator: NetworkEstimator, space: dict[str, Any]) -> dict[str, Any]:\n"
        "known = estimator.get_params(deep=False)",
        "False",
        "True",
        "network estimators have no estimators among their settings, which deep=True would add",
    ),
    Equivalent(
        "training/optimiser.py",
        "gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)",
        "torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)",
        "(torch.autograd.grad(loss, self.parameters, materialize_grads=True))",
        "torch takes materialize_grads=True for allow_unused=True",
    ),
    Equivalent(
        "estimators/network.py",
        "seeds = [int(seed) for seed in check_random_state(self.random_state).randint(0, 2**31 - 1, size=size)]",
        "1",
        "2",
        "the range from which seeds are drawn; one more or less in two billion",
    ),
    Equivalent(
        "estimators/weights.py",
        "if name in weights and weights[name].shape != buffer.shape:  # tables whose size depends on the data",
        "name in weights and weights[name].shape != buffer.shape",
        "(name in weights)",
        "a tensor of the right shape is replaced by an empty one of that shape, which is then filled",
    ),
    Equivalent(
        "estimators/design.py",
        "if left <= _DEPENDENT or k == r.shape[0]:",
        "0",
        "1",
        "the matrix is square",
    ),
    Equivalent(
        "estimators/deephit.py",
        'return {"cuts": cuts.tolist(), "log_shares": np.log(share / share.sum()).tolist()}',
        "share / share.sum()",
        "(share * share.sum())",
        "a constant more in every logit, which the softmax does not see",
    ),
    Equivalent(
        "scores/incidence_calibration.py",
        "before, share = incidence_steps(np.ones((1, len(part))), self.outcome.event[part])",
        "1",
        "2",
        "a second row of ones, of which the first alone is read",
    ),
    Equivalent(
        "scores/group_calibration.py",
        "censoring = product_limit(np.ones((1, len(part))), ~outcome.event)[0]",
        "1",
        "2",
        "a second row of ones, of which the first alone is read",
    ),
    Equivalent(
        "scores/_pairs.py",
        "self.has_ties = bool((self.stop - self.start > 1).any())",
        "self.stop - self.start",
        "(self.stop + self.start)",
        "it only spares work: where there are no ties, the stretches of tied rows are empty",
    ),
    Equivalent(
        "preprocessing/columns.py",
        "several = len(np.unique(present[:1000])) > 2 or len(np.unique(present)) > 2",
        "len(np.unique(present[:1000])) > 2 or len(np.unique(present)) > 2",
        "(len(np.unique(present)) > 2)",
        "it only spares work: the first thousand values are some of all of them",
    ),
    Equivalent(
        "estimators/coxph.py",
        "return Tabulated([0.0], np.ones((len(log_risk), 1)), half_width=self.half_width)",
        "Tabulated([0.0], np.ones((len(log_risk), 1)), half_width=self.half_width)",
        "(Tabulated([0.0], np.ones((len(log_risk), 1))))",
        "a curve of one knot falls in no window, wide or narrow: its density is zero",
    ),
    Equivalent(
        "estimators/deephit.py",
        "cuts = np.unique(np.append(places[(places > 0) & (places < last)], last))",
        "places < last",
        "(places <= last)",
        "the last time is appended anyway, and np.unique keeps it once",
    ),
    Equivalent(
        "scores/_losses.py",
        'ended = ended[np.argsort(time[ended], kind="stable")]',
        'np.argsort(time[ended], kind="stable")',
        "(np.argsort(time[ended]))",
        "sums are read at the ends of ties, and the order within a tie does not change them",
    ),
    Equivalent(
        "scores/crps.py",
        "once = np.where(fall > 1e-12, -np.expm1(-fall) / safe, 1.0) * a * width",
        "fall > 1e-12",
        "(fall >= 1e-12)",
        "no logarithms of two numbers differ by 1e-12 exactly: near one they are 1.1e-16 apart, elsewhere more",
    ),
    Equivalent(
        "search/population.py",
        "near = replace(Observed.of(scaled), time=exact.time.clamp_min(0.0).float())",
        "replace(Observed.of(scaled), time=exact.time.clamp_min(0.0).float())",
        "(replace(Observed.of(scaled)))",
        "the terms of rows before the origin, which alone are other ones, are overwritten below",
    ),
    Equivalent(
        "scores/_resampling.py",
        "row[:] = drawn if subject is None else drawn[subject]",
        "drawn if subject is None else drawn[subject]",
        "(drawn[subject])",
        "an index of None adds an axis of length one, which the assignment drops again",
    ),
    Equivalent(
        "estimators/fine_gray.py",
        "if all(np.isfinite(part).all() for part in new) and new[0] >= value - 1e-12 * abs(value):",
        "new[0] >= value - 1e-12 * abs(value)",
        "(new[0] > value - 1e-12 * abs(value))",
        "equality with a bound a trillionth below is chance, and where the likelihood is zero the search is over",
    ),
    Equivalent(
        "estimators/sumonet.py",
        "if abs(self.weights_.sum() - 1.0) > 1e-9:",
        "abs(self.weights_.sum() - 1.0) > 1e-9",
        "(abs(self.weights_.sum() - 1.0) >= 1e-09)",
        "a sum that is off by the tolerance to the last bit",
    ),
    Equivalent(
        "preprocessing/preprocessor.py",
        'return not isinstance(X, pd.DataFrame) and hasattr(X, "ndim") and hasattr(X, "shape") and X.ndim > 2',
        'not isinstance(X, pd.DataFrame) and hasattr(X, "ndim") and hasattr(X, "shape") and X.ndim > 2',
        "(not isinstance(X, pd.DataFrame) and hasattr(X, 'ndim') and (X.ndim > 2))",
        "what has a number of dimensions has a shape",
    ),
    Equivalent(
        "estimators/reading.py",
        "return replace(outcome, event=outcome.event | short, time=time, upper=np.where(short, time, outcome.upper))",
        "replace(outcome, event=outcome.event | short, time=time, upper=np.where(short, time, outcome.upper))",
        "(replace(outcome, event=outcome.event | short, time=time))",
        "the upper limit of a row whose event is seen is not looked at",
    ),
    Equivalent(
        "training/loop.py",
        "chunk = network.validation_rows or longest",
        "network.validation_rows or longest",
        "(longest)",
        "the size of a block",
    ),
    Equivalent(
        "preprocessing/preprocessor.py",
        "if min(numbers.shape) > _LARGE_SVD:",
        "min(numbers.shape) > _LARGE_SVD",
        "(min(numbers.shape) >= _LARGE_SVD)",
        "from which size on the principal components are approximate",
    ),
    Equivalent(
        "scores/_weighting.py",
        "return np.divide(own.sum(), total, out=np.zeros_like(total), where=total > 0)",
        "np.zeros_like(total)",
        "(np.ones_like(total))",
        "a factor of weights that are all zero",
    ),
    Equivalent(
        "estimators/base.py",
        'survival = tensor_of(tensors, "training_survival", len(times), low=0.0, high=1.0)',
        "1.0",
        "2.0",
        "a curve above one is refused by the curve itself",
    ),
)
