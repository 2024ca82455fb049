"""Conformal recalibration: the distribution of any estimator, recalibrated on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sumosurv.confidence import check_level
from sumosurv.distributions import Recalibrated, SurvivalDistribution
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.recalibration import (
    BoundScores,
    choose_cutoff,
    just_before,
    probabilities,
    recalibration,
    score_rows,
)
from sumosurv.estimators.sumonet import SumoNet
from sumosurv.fitting.settings import NONE, Constraints, instance_of, integer, number
from sumosurv.fitting.spread import Members
from sumosurv.model_files import as_number, as_whole, tensor_of
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.sources import take_rows
from sumosurv.training.batches import fold_rows, split_rows

__all__ = ["Conformal"]

Array = npt.NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class Conformal(SurvivalEstimator):
    r"""Recalibrate another estimator on held-out rows, S(t|x) = g(S₀(t|x)), and give lower bounds on event times.

    If the model is right, S₀(T|x) is uniform on [0, 1]. g is the distribution function of S₀(T|x) among calibration
    rows, so that g(S₀(T|x)) is uniform for any model (D-calibrated). g is increasing and the same for all subjects, so
    their order at each time and `concordance_td` do not change (`harrell_c` and `uno_c`, which rank restricted means,
    may change). g is piecewise linear, so the recalibrated distribution has a density and a likelihood. Below the
    smallest S₀(T|x) of the calibration rows, g is linear through the origin.

    For a row censored at z, S₀(T|x) is known to lie below S₀(z|x), so g is estimated by Kaplan-Meier: one minus the
    estimate for F₀(z|x). With delayed entry it is the Nelson-Aalen estimate, with interval censoring Turnbull's.

    Parameters
    ----------
    estimator : SurvivalEstimator, optional
        Estimator of which a clone is fitted; ``SumoNet()`` by default. To recalibrate a fitted model, see ``of``.
    fraction : float, default 0.2
        Fraction of the subjects that are held out for calibration.
    cv : int, optional
        Number of folds. The estimator is then fitted to all rows, and g is estimated from out-of-fold predictions. All
        rows are used and g is less noisy, at the cost of ``cv`` further fits; the guarantee below holds only
        asymptotically, and ``lower_bound`` is not available.
    bins : int, default 10
        Number of intervals between the knots of g, of equal probability. It is reduced so that each interval has at
        least ten events; with fewer than twenty events, g is the identity.
    shrink : bool, default True
        Shrink g towards the identity by the proportion of its deviation that is expected by chance; entirely if the
        calibration rows show no evidence against the model. The guarantee below holds for False.
    censoring : SurvivalEstimator, optional
        Model of the censoring time given x, for ``lower_bound``. By default Kaplan-Meier, the same for all x.
    cutoff : float, optional
        c₀ of ``lower_bound``; by default chosen on the rows to which the estimator was fitted.
    random_state : int, RandomState or None
        Seed for the choice of held-out rows.

    Attributes
    ----------
    estimator_ : fitted estimator
    levels_, values_ : ndarray
        The knots u of g, and g(u).
    n_calibration_ : int
        Number of rows from which g was estimated.
    cutoff_ : float or None
        c₀ of ``lower_bound``; None with left truncation or interval censoring.

    Notes
    -----
    **Guarantee.** With ``shrink=False``, without censoring, with continuous S₀(T|x) and for at least 20 calibration
    rows drawn independently from one population, P(S(T|x) <= g(u)) = g(u) at every knot u, for any model: at a knot
    that is the k-th smallest of n calibration values, g(u) is k / (n + 1). This holds on average over subjects and over
    samples of calibration rows, not for each x. With censoring it holds asymptotically if the censoring time is
    independent of S₀(T|x), for example if censoring is independent of x; otherwise only approximately, depending on the
    model.

    **Cost.** The held-out rows are not used for fitting, and g has a standard error of the order of one over the square
    root of the number of calibration rows: without shrinkage, recalibration makes a calibrated model worse. Let χ² be
    the squared distance of g from the identity at its k knots in units of Greenwood's variance, with mean k if the
    model is right. Shrinkage multiplies the deviation by max(0, 1 - k/χ²), after James and Stein. See
    docs/uncertainty_evidence.md.

    Qi, Yu and Greiner (2024) draw S₀(T|x) of censored rows at random between 0 and S₀(z|x). Drawing from g itself
    instead of from the model leads to Kaplan-Meier.

    References
    ----------
    Qi, Yu, Greiner (2024), Conformalized Survival Distributions, ICML; Qi et al. (2024), Toward Conditional
    Distribution Calibration in Survival Prediction, NeurIPS; Candès, Lei, Ren (2023), Conformalized survival analysis,
    JRSS B 85; Lei, Candès (2021), Conformal inference of counterfactuals and individual treatment effects, JRSS B 83.

    Examples
    --------
    >>> from sumosurv import Conformal, CoxPH, datasets
    >>> data = datasets.simulate("weibull", 400, random_state=0)
    >>> model = Conformal(estimator=CoxPH(), random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    >>> bool((model.lower_bound(data.X, level=0.9) < model.predict_median(data.X)).all())
    True
    """

    # as far as the estimator supports them
    _supported_outcomes: ClassVar[frozenset[str]] = frozenset({"entry", "intervals", "weights"})

    _parameter_constraints: ClassVar[Constraints] = {
        "estimator": NONE | instance_of(SurvivalEstimator, "a survival estimator of this library, such as CoxPH()"),
        "fraction": number(above=0, below=1),
        "cv": NONE | integer(2),
        "bins": integer(2),
        "censoring": NONE | instance_of(SurvivalEstimator, "a survival estimator of this library, such as CoxPH()"),
        "cutoff": NONE | number(above=0),
    }

    estimator: SurvivalEstimator | None = None
    fraction: float = 0.2
    cv: int | None = None
    bins: int = 10
    shrink: bool = True
    censoring: SurvivalEstimator | None = None
    cutoff: float | None = None
    random_state: Any = None

    estimator_: SurvivalEstimator = field(init=False)
    censoring_: SurvivalEstimator | None = field(init=False)
    scores_: BoundScores | None = field(init=False)
    cutoff_: float | None = field(init=False)

    @classmethod
    def of(cls, fitted: SurvivalEstimator, X: Any, y: Any, *, sample_weight: Any = None, **settings: Any) -> Conformal:
        """Recalibrate a fitted model on rows that it was not fitted to.

        Parameters
        ----------
        fitted : SurvivalEstimator
        X, y
            The calibration rows. The censoring distribution and the cut-off of ``lower_bound`` are estimated from the
            same rows, so its guarantee holds only asymptotically.
        sample_weight : array of shape (rows,), optional
        **settings
            ``bins``, ``shrink``, ``censoring`` and ``cutoff`` of the estimator.

        Examples
        --------
        >>> from sumosurv import Conformal, KaplanMeier, datasets
        >>> data = datasets.simulate("weibull", 400, random_state=0)
        >>> model = KaplanMeier().fit(data.X[:200], data.y[:200])
        >>> Conformal.of(model, data.X[200:], data.y[200:]).n_calibration_
        200
        """
        made = cls(estimator=fitted, **settings)
        made._check_settings()
        check_is_fitted(fitted)
        made.__dict__.update(fitted._known())
        made.estimator_ = fitted
        X = made._check_covariates(X, reset=False)
        outcome = check_outcome(y, n_rows=len(X), sample_weight=sample_weight)
        made._calibrate(X, outcome.any_cause() if outcome.n_causes == 1 else outcome, (X, outcome))
        return made

    def _fit(self, X: Any, y: Any) -> None:
        X, outcome = self._start(X, y)
        seed = int(check_random_state(self.random_state).randint(0, 2**31 - 1))
        estimator = SumoNet() if self.estimator is None else self.estimator
        if self.cv is not None:
            self.estimator_ = estimator._fitted_part(X, outcome)
            parts = []
            for rows, drawn in fold_rows(outcome, seed, self.cv):
                held_out = _check_held_out(drawn, outcome)
                other = estimator._fitted_part(take_rows(X, rows), outcome[rows])
                parts.append(probabilities(other._predict(take_rows(X, held_out)), outcome[held_out]))
            self._learn_map(Outcome.join(parts))
            return
        rows, drawn = split_rows(outcome, seed, self.fraction)
        held_out = _check_held_out(drawn, outcome)
        own = take_rows(X, rows), outcome[rows]
        self.estimator_ = estimator._fitted_part(*own)
        self.last_time_ = self.estimator_.last_time_
        self._calibrate(take_rows(X, held_out), outcome[held_out], own)

    def _learn_map(self, known: Outcome) -> None:
        """Estimate g from the probabilities F(t|x) of held-out rows."""
        self.n_calibration_, self.cells_ = len(known), self.estimator_.cells_
        self.levels_, self.values_ = recalibration(known, self.bins, shrink=self.shrink)
        self.scores_, self.censoring_, self.cutoff_ = None, None, None

    def _calibrate(self, X: Any, outcome: Outcome, own: tuple[Any, Outcome]) -> None:
        """Estimate g and the scores of ``lower_bound`` from calibration rows; ``own`` are the rows of the fit."""
        base = self.estimator_._predict(X)
        self._learn_map(probabilities(base, outcome))
        if outcome.entry is None and outcome.upper is None:
            self._learn_bound(base, X, outcome, own)

    # ------------------------------------------------------------------ prediction

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return Recalibrated.of(self.estimator_._distribution(X), self.levels_, self.values_)

    def _members(self, X: Any) -> Members:
        found = self.estimator_._members(X)
        each = tuple(Recalibrated.of(member, self.levels_, self.values_) for member in found.distributions)
        return replace(found, distributions=each)

    # ------------------------------------------------------------------ lower bounds

    def lower_bound(self, X: Any, level: float = 0.9) -> Array:
        r"""A time L(x) that a new subject outlives with a probability of at least ``level``.

        .. math:: P(T \ge L(X)) \ge level

        for any model and any number of calibration rows, if subjects are drawn independently from one population,
        censoring is independent of the event time given x, and P(C >= t | x) is known and positive up to the cut-off c₀
        below. The guarantee holds on average over new subjects and calibration rows, not for each x. In practice the
        censoring distribution is estimated from the rows to which the model was fitted, by Kaplan-Meier or by the
        estimator ``censoring``. The probability can then be lower by at most

        .. math:: \tfrac{1}{2} E \left| \hat w / E\hat w - w / E w \right|,

        half the mean error of the weights w among the weighted rows. This is the total variation distance between the
        population and the reweighted population, for which the guarantee holds (Lei and Candès 2021).

        min(T, c₀) is observed for rows with an event before the cut-off c₀ and for rows followed up to c₀. Their scores
        S(min(T, c₀)|x) are weighted by w = 1 / P(C >= min(T, c₀) | x), which corrects for rows censored earlier, and a
        new subject has the largest possible weight, 1 / P(C >= c₀ | x). L(x) is the time at which S(t|x) falls to the
        weighted quantile of the scores, but at most c₀; it is 0 if there are too few calibration rows for the level.

        Parameters
        ----------
        X : covariates
        level : float, default 0.9

        Returns
        -------
        ndarray of shape (rows,)

        Notes
        -----
        Candès, Lei and Ren (2023) require the censoring time of every subject and use the subjects with C >= c₀, which
        shifts the distribution of the covariates; the weights 1 / P(C >= c₀ | x) correct for the shift. Here the
        censoring time of subjects with an event need not be known, and all events before c₀ are used. The weights
        correct for the shift in the joint distribution of x and min(T, c₀).
        """
        check_is_fitted(self)
        check_level(level)
        scores = self.scores_
        if self.cv is not None:
            raise ValueError("Lower bounds require held-out calibration rows; fit with cv=None.")
        if scores is None:
            raise ValueError(
                "Lower bounds support neither left truncation nor interval censoring, and this model was "
                "calibrated on such rows."
            )
        X = self._check_covariates(X, reset=False)
        return scores.bound(self.estimator_.predict_distribution(X), level, self._largest_weight(X, scores.cutoff))

    def _learn_bound(self, base: SurvivalDistribution, X: Any, outcome: Outcome, own: tuple[Any, Outcome]) -> None:
        """Score the calibration rows; the censoring distribution and cut-off come from the rows of the fit."""
        X_fit, fitted_to = own
        curve = kaplan_meier(fitted_to, censoring=True)
        if self.censoring is not None:
            self.censoring_ = self.censoring._fitted_part(X_fit, replace(fitted_to, event=~fitted_to.event))

        def followed(rows: Any, times: Array) -> Array:
            return just_before(curve if self.censoring_ is None else self.censoring_._predict(rows), times)

        cutoff = self.cutoff
        if cutoff is None:
            cutoff = choose_cutoff(self.estimator_._predict(X_fit), fitted_to, X_fit, followed)
        self.scores_, self.cutoff_ = score_rows(base, outcome, X, followed, cutoff), cutoff
        self.followed_ = float(just_before(curve, np.array([cutoff]))[0])

    def _largest_weight(self, X: Any, cutoff: float) -> Array:
        """1 / P(C >= c₀ | x)."""
        if self.censoring_ is None:
            return np.full(len(X), 1.0 / self.followed_)
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / just_before(self.censoring_._predict(X), np.full(len(X), cutoff)))

    # ------------------------------------------------------------------ model files

    def _parts(self) -> list[SurvivalEstimator]:
        return [self.estimator_] + ([] if self.censoring_ is None else [self.censoring_])

    @classmethod
    def _settings_with(cls, parts: Sequence[SurvivalEstimator], default: bool) -> dict[str, Any]:
        names = ("estimator", "censoring")
        return {name: clone(part) for name, part in zip(names, parts) if not (default and name == "estimator")}

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        fitted["n_calibration_"] = self.n_calibration_
        tensors |= {name: torch.from_numpy(getattr(self, name)) for name in ("levels_", "values_")}
        if self.scores_ is not None:
            fitted |= {"cutoff_": self.cutoff_, "followed_": self.followed_}
            tensors |= {f"bound_{name}": torch.from_numpy(getattr(self.scores_, name)) for name in ("scores", "mass")}
        return fitted, tensors

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        self.n_calibration_ = as_whole(fitted["n_calibration_"], "n_calibration_", low=1)
        inside = {"low": np.nextafter(0.0, 1.0), "high": np.nextafter(1.0, 0.0)}
        self.levels_ = tensor_of(tensors, "levels_", increasing=True, **inside).numpy()
        self.values_ = tensor_of(tensors, "values_", len(self.levels_), increasing=True, **inside).numpy()
        self.scores_, self.cutoff_, self.cells_ = None, None, self.estimator_.cells_
        if "cutoff_" in fitted:
            self.cutoff_ = as_number(fitted["cutoff_"], "cutoff_", low=0.0)
            self.followed_ = as_number(fitted["followed_"], "followed_", above=0.0)
            scores = tensor_of(tensors, "bound_scores", low=0.0, high=1.0, never_falling=True).numpy()
            mass = tensor_of(tensors, "bound_mass", len(scores), low=0.0, never_falling=True).numpy()
            self.scores_ = BoundScores(self.cutoff_, scores, mass)

    def _restore_parts(self, parts: Sequence[SurvivalEstimator]) -> None:
        if len(parts) != 1 + (self.censoring is not None):
            raise ValueError(f"it has an unexpected number of parts ({len(parts)})")
        self.estimator_, self.censoring_ = parts[0], parts[1] if len(parts) > 1 else None


def _check_held_out(rows: npt.NDArray[np.int64] | None, outcome: Outcome) -> npt.NDArray[np.int64]:
    if rows is None:
        raise ValueError(
            f"Too few rows to hold out a calibration set: n_samples = {len(outcome)}; at least ten "
            "subjects are required."
        )
    return rows
