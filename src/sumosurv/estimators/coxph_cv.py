"""Cox regression along a path of elastic-net penalties, with the penalty chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import check_random_state

from sumosurv.estimators.basis import centred_product, column_means, standardise
from sumosurv.estimators.coxph import CoxRegression
from sumosurv.estimators.elastic_net import Columns, PenaltyPath, elastic_net_in_words, fit_path, largest_penalty
from sumosurv.estimators.linear import TrainingRows
from sumosurv.estimators.partial_likelihood import PartialLikelihood
from sumosurv.estimators.regression import Fit
from sumosurv.fitting.settings import NONE, Allowed, Constraints, integer, number, one_of
from sumosurv.model_files import as_number, tensor_of
from sumosurv.outcome import Outcome

__all__ = ["CoxPHCV"]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

_LEAST = -1e100  # in place of a log-likelihood beyond the range of numbers


def _decreasing(value: Any) -> bool:
    if not isinstance(value, (Sequence, np.ndarray)) or isinstance(value, str) or len(value) == 0:
        return False
    positive = all(number(above=0).accepts(alpha) for alpha in value)
    return positive and all(after < before for before, after in pairwise(value))


def _fold_numbers(value: Any) -> bool:
    listed = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)
    return listed and all(integer(0).accepts(fold) for fold in value) and len(set(np.asarray(value).tolist())) > 1


@dataclass(kw_only=True, eq=False, repr=False)
class CoxPHCV(CoxRegression):
    r"""Cox regression with an elastic-net penalty that is chosen by cross-validation, like R's ``cv.glmnet``.

    The coefficients minimise, for each penalty α of a decreasing sequence,

    .. math:: -\ell(β) + α \sum_j \Big( r |b_j| + \tfrac{1 - r}{2} b_j^2 \Big),

    with the partial log-likelihood ℓ of `CoxPH`, the coefficients b of the standardised columns (weighted variance one,
    with the number of rows as the denominator) and r = ``l1_ratio``. glmnet divides ℓ by the sum W of the weights, so
    that its ``lambda`` is α / W; its ``alpha`` is ``l1_ratio``. With ``ties="breslow"``, coefficients agree with
    glmnet's.

    The score of a penalty is the cross-validated partial log-likelihood per event (Verweij and van Houwelingen 1993):
    the log-likelihood of all rows minus that of the training rows, both with the coefficients fitted to the training
    rows, divided by the number of events in the held-out fold. Folds are weighted by their numbers of events. Columns
    are standardised, and penalties λ = α / W defined, on the training rows. Apart from a constant for tied events, the
    score is -½ times the deviance of ``cv.glmnet(..., grouped = TRUE)``.

    Standard errors and tests are not available, because they would ignore the selection of columns. If ``l1_ratio`` is
    above 0, X may be a SciPy sparse matrix, which is not converted to an array.

    Parameters
    ----------
    l1_ratio : float, default 1.0
        Mixture of the penalties: 1 is the lasso, 0 ridge.
    n_alphas : int, default 100
        Length of the sequence of penalties, from the smallest penalty at which all coefficients are zero (for ridge,
        computed with ``l1_ratio=0.001``) downwards in equal steps of log α. The sequence ends early if the explained
        deviance exceeds 99.9 % or hardly increases, as in glmnet.
    min_ratio : float, optional
        Smallest penalty, relative to the largest one. None: 0.01 if there are fewer rows than columns, else 0.0001.
    alphas : sequence of float, optional
        The penalties, in decreasing order, instead of ``n_alphas`` and ``min_ratio``.
    cv : int or sequence of int, default 10
        Number of random folds, which have equal shares of events and do not divide groups (``fit(..., groups=)``); or
        the fold of each fitted row.
    rule : {"min", "one_standard_error"}
        The penalty with the highest score, or the largest penalty whose score is at most one standard error lower.
    formula, ties, strata, missing, half_width
        As in `CoxPH`.
    max_iter : int, default 100
        Maximum number of steps per penalty.
    random_state : int, RandomState or None
        Seed for drawing the folds.

    Attributes
    ----------
    alphas_ : ndarray of shape (m,)
        The penalties.
    coef_path_ : ndarray of shape (m, p)
        Coefficients for each penalty, in the units of the columns.
    cv_score_, cv_error_ : ndarray of shape (m,)
        Scores of the penalties (higher is better), and their standard errors over folds.
    alpha_ : float
        The chosen penalty: ``CoxPH(alpha=alpha_, l1_ratio=l1_ratio)`` has the same coefficients.
    coef_ : ndarray of shape (p,)
        Coefficients for the chosen penalty.
    terms_, strata_, log_likelihood_, n_iter_, n_features_in_, feature_names_in_
        As in `CoxPH`.

    References
    ----------
    Simon, Friedman, Hastie, Tibshirani (2011), Journal of Statistical Software 39 (5). Tibshirani et al. (2012),
    Journal of the Royal Statistical Society B 74, 245-266. Verweij, van Houwelingen (1993), Statistics in Medicine 12.

    Examples
    --------
    >>> from sumosurv import CoxPHCV, datasets
    >>> X, y = datasets.load("gbsg2")
    >>> model = CoxPHCV(cv=5, rule="one_standard_error", random_state=0).fit(X, y)
    >>> selected = [name for name, coef in zip(model.terms_, model.coef_) if coef != 0]
    >>> "positive_nodes" in selected, "age" in selected
    (True, False)
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "l1_ratio": number(low=0, high=1),
        "n_alphas": integer(1),
        "min_ratio": NONE | number(above=0, below=1),
        "alphas": NONE | Allowed("a decreasing sequence of numbers above 0", _decreasing),
        "cv": integer(2) | Allowed("a sequence of at least two different fold numbers", _fold_numbers),
        "rule": one_of("min", "one_standard_error"),
        "max_iter": integer(1),
    }

    l1_ratio: float = 1.0
    n_alphas: int = 100
    min_ratio: float | None = None
    alphas: Sequence[float] | None = None
    cv: int | Sequence[int] = 10
    rule: Literal["min", "one_standard_error"] = "min"
    max_iter: int = 100
    random_state: Any = None

    def _fit_coefficients(self, rows: TrainingRows) -> Fit:
        raw, outcome = rows.matrix, rows.outcome
        folds = self._folds(outcome)
        total = float(outcome.weights.sum())
        likelihood = self._likelihood(rows)
        z, scale = standardise(raw, self.centre_, outcome.weight)
        path = self._path(z, likelihood)
        self.alphas_, self.coef_path_ = path.alphas, path.coef / scale
        scores, events = np.empty((len(folds), len(path.alphas))), np.empty(len(folds))
        for i, held_out in enumerate(folds):
            kept = np.setdiff1d(np.arange(len(outcome)), held_out)
            own = rows[kept]
            training, weights = self._likelihood(own), own.outcome.weights
            centre = column_means(own.matrix, weights)
            columns, widths = standardise(own.matrix, centre, own.outcome.weight)
            share = float(weights.sum()) / total
            found = fit_path(columns, training, self.l1_ratio, share * path.alphas, self.max_iter)
            log_risk = centred_product(raw, centre, (found.coef / widths).T).T
            gain = [likelihood.residuals(risk)[0] - training.residuals(risk[kept])[0] for risk in log_risk]
            events[i] = float(outcome.weights[held_out] @ outcome.event[held_out])
            # risks of nearly separated events may be too far apart for sums
            scores[i] = np.nan_to_num(np.array(gain), nan=_LEAST, neginf=_LEAST, posinf=_LEAST) / max(events[i], 1.0)
        self._choose(scores, events)
        return path.fit_at(int(np.flatnonzero(self.alphas_ == self.alpha_)[0]), scale)

    def _path(self, z: Columns, likelihood: PartialLikelihood) -> PenaltyPath:
        if self.alphas is not None:
            return fit_path(z, likelihood, self.l1_ratio, np.array(self.alphas, dtype=np.float64), self.max_iter)
        largest = largest_penalty(z, likelihood, self.l1_ratio) or 1.0  # 1: without events, any penalty will do
        ratio = self.min_ratio or (1e-2 if z.shape[0] < z.shape[1] else 1e-4)
        alphas = largest * np.exp(np.linspace(0.0, np.log(ratio), self.n_alphas))
        return fit_path(z, likelihood, self.l1_ratio, alphas, self.max_iter, stop=True)

    def _folds(self, outcome: Outcome) -> list[Whole]:
        """The held-out rows of each fold."""
        if not isinstance(self.cv, (int, np.integer)):
            numbers = np.asarray(self.cv)
            if len(numbers) != len(outcome):
                raise ValueError(
                    f"cv has the folds of {len(numbers)} rows, and {len(outcome)} rows are fitted: leave out rows with "
                    "missing values and with a weight of zero."
                )
            return [np.flatnonzero(numbers == fold) for fold in np.unique(numbers)]
        n = len(outcome.subject_event)
        if n < 2:
            raise ValueError("Cross-validation needs two subjects or more; got 1 sample. Use CoxPH(alpha=...).")
        seed = int(check_random_state(self.random_state).randint(0, 2**31 - 1))
        return outcome.folds(min(int(self.cv), n), seed)

    def _choose(self, scores: Array, events: Array) -> None:
        """Choose the penalty from the scores of each fold."""
        used = events > 0
        weights = events[used] if used.any() else np.ones(1)
        scores = scores[used] if used.any() else scores[:1]
        self.cv_score_ = np.average(scores, axis=0, weights=weights)
        spread = np.average((scores - self.cv_score_) ** 2, axis=0, weights=weights)
        self.cv_error_ = np.sqrt(spread / max(len(scores) - 1, 1))
        best = int(self.cv_score_.argmax())
        least = self.cv_score_[best] - (self.cv_error_[best] if self.rule == "one_standard_error" else 0.0)
        self.alpha_ = float(self.alphas_[int(np.flatnonzero(self.cv_score_ >= least)[0])])

    def _penalty(self) -> str:
        return elastic_net_in_words(self.alpha_, self.l1_ratio)

    @property
    def _inference(self) -> bool:
        return False

    @property
    def _reads_sparse(self) -> bool:
        return self.l1_ratio > 0

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        arrays = {name: getattr(self, name).reshape(-1) for name in ("alphas_", "coef_path_", "cv_score_", "cv_error_")}
        return fitted | {"alpha_": self.alpha_}, tensors | {name: torch.from_numpy(a) for name, a in arrays.items()}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        self.alphas_ = tensor_of(tensors, "alphas_", low=0.0).numpy()
        m, p = len(self.alphas_), len(self.terms_)
        self.coef_path_ = tensor_of(tensors, "coef_path_", m * p).numpy().reshape(m, p)
        self.cv_score_ = tensor_of(tensors, "cv_score_", m).numpy()
        self.cv_error_ = tensor_of(tensors, "cv_error_", m, low=0.0).numpy()
        self.alpha_ = as_number(fitted["alpha_"], "alpha_", low=0.0)
