"""Scores at a time, weighted for censoring: Brier, binomial log-likelihood, and their integrals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.integrate import simpson

from sumosurv.distributions import SurvivalDistribution
from sumosurv.scores._inputs import (
    Array,
    CurveMemory,
    check_rows,
    check_subjects,
    check_times,
    curve_blocks,
    of_cause,
    time_grid,
    times_weight,
)
from sumosurv.scores._resampling import Terms, ratio
from sumosurv.scores._weighting import GridWeights, Weighting

Rule = Literal["trapezoid", "simpson"]
Bools = npt.NDArray[np.bool_]


def brier(
    distribution: SurvivalDistribution,
    y: Any,
    times: Any,
    *,
    censoring: SurvivalDistribution,
    cause: int | None = None,
    sample_weight: Any = None,
    **weighting: Any,
) -> Array:
    r"""Brier score at given times, of each subject; lower is better; proper only if G is right given x.

    .. math:: BS^t = \frac{S(t|x)^2 1\{z \le t, d = 1\}}{G(z-)} + \frac{(1 - S(t|x))^2 1\{z > t\}}{G(t)}.

    The mean over subjects (``.mean(axis=0)``) is the score that is plotted against t. The values by subject allow a
    bootstrap or a paired comparison of two models.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    times : float or array of shape (m,)
    censoring : SurvivalDistribution
        G, the distribution of the censoring time: one curve for all, such as ``kaplan_meier(y, censoring=True)`` of the
        training or the test rows, or one curve per row from a model of the censoring (`censoring_given_x`). Use the
        same G for all models that are compared.
    cause : int, optional
        Score the cumulative incidence F_k of one cause, counted from one: S is then 1 - F_k, and a subject with an
        event of another cause at z <= t counts as event-free, with weight 1 / G(z-). The default is any cause.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents. Values are multiplied by the weights, scaled to a mean of one, so that
        their mean is the weighted mean. Pass the same weights to G: ``kaplan_meier(y, censoring=True,
        sample_weight=...)``.
    **weighting
        How rows are weighted.

        - normalize=False. True: divide by the mean weight at each time, as pycox does, so that the weights average to
          one.
        - left_limit=True: weight events by 1 / G(z-) = 1 / P(C >= z), the probability that an event at z is seen. False
          takes G(z), as scikit-survival does: the same unless an event and a censoring share a time.
        - on_zero="raise" or "drop": what to do if a row needs a weight 1/0, because the rows behind G were all censored
          earlier: raise an error that names the time, or give the row the weight 0, as scikit-survival does.
        - max_weight=inf: the largest weight. With a finite value, G = 0 gives this weight and no error is raised
          (pycox).
        - min_followed=0: leave rows out at times t with a smaller G(t|x), and take the mean over the others. If no
          subject with such x is followed up to t, only events are observed there, and a curve that falls to zero would
          gain; weights cannot correct this. The default, 0, keeps all rows.

    Returns
    -------
    ndarray of shape (n,) for a number, (n, m) for an array of times

    Notes
    -----
    ``kaplan_meier(y, censoring=True)`` excludes subjects with an event at t from the risk set of a censoring at t
    (events come first), as scikit-survival does. pycox flips the events and applies Kaplan-Meier, so that its risk set
    is larger at times with events and censorings. That estimate is
    ``kaplan_meier(Surv.from_arrays(~y["event"], y["time"]))``. Without ties between events and censorings all agree.

    References
    ----------
    Graf et al. (1999), Statistics in Medicine 18.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> brier(d, y, [0.5, 2.5], censoring=kaplan_meier(y, censoring=True)).round(4)
    array([[0.1548, 0.0067],
           [0.0489, 0.    ],
           [0.0236, 0.6394]])
    """
    losses = _Losses(distribution, check_rows(y, sample_weight), _squared, cause)
    return times_weight(losses.at_times(times, Weighting(censoring, **weighting)), sample_weight)


def binomial_log_likelihood(
    distribution: SurvivalDistribution,
    y: Any,
    times: Any,
    *,
    censoring: SurvivalDistribution,
    floor: float | None = None,
    cause: int | None = None,
    sample_weight: Any = None,
    **weighting: Any,
) -> Array:
    r"""Binomial log-likelihood at given times, of each subject; higher is better; proper only if G is right given x.

    .. math:: BLL^t = \frac{\log(1 - S(t|x)) 1\{z \le t, d = 1\}}{G(z-)} + \frac{\log S(t|x) 1\{z > t\}}{G(t)}.

    (The paper prints S instead of log S in the second term.) The score is exact: -inf for an event of probability zero.

    Parameters
    ----------
    distribution, y, times, censoring, cause, sample_weight, **weighting
        As in `brier`.
    floor : float, optional
        Move probabilities into [floor, 1 - floor] first (pycox: 1e-7).

    Returns
    -------
    ndarray of shape (n,) for a number, (n, m) for an array of times

    References
    ----------
    Graf et al. (1999), Statistics in Medicine 18.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> binomial_log_likelihood(d, y, 2.5, censoring=kaplan_meier(y, censoring=True)).round(4)
    array([-0.0857, -0.    , -1.6667])
    """
    losses = _Losses(distribution, check_rows(y, sample_weight), _logarithmic(floor), cause)
    return times_weight(losses.at_times(times, Weighting(censoring, **weighting)), sample_weight)


def integrated_brier(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    censoring: SurvivalDistribution,
    times: Any = None,
    n_times: int = 100,
    rule: Rule = "trapezoid",
    cause: int | None = None,
    sample_weight: Any = None,
    **weighting: Any,
) -> Array:
    r"""Integrated Brier score (IBS) of each subject; lower is better; proper only if G is right given x.

    .. math:: IBS = \frac{1}{t_m - t_1} \int_{t_1}^{t_m} BS^t dt.

    Parameters
    ----------
    distribution, y, censoring, cause, sample_weight, **weighting
        As in `brier`.
    times : array of shape (m,), tuple (low, high) or None
        A grid; or a range, or None for that from the smallest positive to just before the largest time of y, filled
        with ``n_times`` evenly spaced times. Nobody is followed beyond the largest time, so that only events would be
        scored there.
    n_times : int
    rule : {"trapezoid", "simpson"}
        How the grid is integrated: as scikit-survival does, or as pycox does.

    Returns
    -------
    ndarray of shape (n,)
        Their mean is the IBS. With ``normalize=True``, ``rule="simpson"``, Kaplan-Meier of the flipped events of the
        test rows and ``times=(time.min(), time.max())`` it is pycox's (the convention of the paper's tables).

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> float(integrated_brier(d, y, censoring=kaplan_meier(y, censoring=True)).mean().round(4))
    0.1898
    """
    losses = _Losses(distribution, check_rows(y, sample_weight), _squared, cause)
    return times_weight(losses.integrated(times, n_times, rule, Weighting(censoring, **weighting)), sample_weight)


def integrated_binomial_log_likelihood(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    censoring: SurvivalDistribution,
    times: Any = None,
    n_times: int = 100,
    rule: Rule = "trapezoid",
    floor: float | None = None,
    cause: int | None = None,
    sample_weight: Any = None,
    **weighting: Any,
) -> Array:
    r"""Integrated binomial log-likelihood (IBLL) of each subject; higher is better; proper only if G is right given x.

    .. math:: IBLL = \frac{1}{t_m - t_1} \int_{t_1}^{t_m} BLL^t dt.

    Parameters
    ----------
    distribution, y, censoring, times, n_times, rule, cause, sample_weight, **weighting
        As in `integrated_brier`.
    floor : float, optional
        As in `binomial_log_likelihood`.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> score = integrated_binomial_log_likelihood(d, y, times=(0.5, 2.5), censoring=kaplan_meier(y, censoring=True))
    >>> float(score.mean().round(4))
    -0.5019
    """
    losses = _Losses(distribution, check_rows(y, sample_weight), _logarithmic(floor), cause)
    return times_weight(losses.integrated(times, n_times, rule, Weighting(censoring, **weighting)), sample_weight)


def scaled_brier(
    distribution: SurvivalDistribution,
    y: Any,
    times: Any,
    *,
    censoring: SurvivalDistribution,
    cause: int | None = None,
    sample_weight: Any = None,
    **weighting: Any,
) -> Any:
    r"""Scaled Brier score (index of prediction accuracy, IPA) at given times; higher is better.

    .. math:: IPA(t) = 1 - \frac{BS(t)}{BS_0(t)}, \qquad BS_0(t) = \min_c BS(t; S(t|x) = c) = \frac{A B}{A + B}

    with A and B the mean weights of subjects with and without an event up to t. It is 0 for the best prediction that is
    the same for all subjects, 1 for perfect predictions, negative for a model that is worse than no model, and nan if
    no event has happened up to t.

    Parameters
    ----------
    distribution, y, times, censoring, cause, sample_weight, **weighting
        As in `brier`.

    Returns
    -------
    float, or ndarray of shape (m,) for an array of times

    Notes
    -----
    With the Kaplan-Meier estimate of the censoring in the same rows as G, the best constant is the Kaplan-Meier (or
    Aalen-Johansen) estimate of these rows, the reference of R's ``riskRegression::Score``.

    References
    ----------
    Kattan, Gerds (2018), Diagnostic and Prognostic Research 2.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> scaled_brier(d, y, [0.5, 2.5], censoring=kaplan_meier(y, censoring=True)).round(4)
    array([   nan, 0.0309])
    """
    outcome, options = check_rows(y, sample_weight), {"censoring": censoring, "cause": cause, **weighting}
    found = [loss_terms("scaled", distribution, outcome, times=float(t), **options).value for t in check_times(times)]
    return found[0] if np.ndim(times) == 0 else np.array(found)


def integrated_scaled_brier(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    censoring: SurvivalDistribution,
    times: Any = None,
    n_times: int = 100,
    rule: Rule = "trapezoid",
    cause: int | None = None,
    sample_weight: Any = None,
    **weighting: Any,
) -> float:
    r"""Scaled integrated Brier score, 1 - IBS / IBS₀; higher is better.

    Parameters
    ----------
    distribution, y, censoring, times, n_times, rule, cause, sample_weight, **weighting
        As in `integrated_brier`.

    Returns
    -------
    float
        0 for the best predictions that are the same for all subjects, see `scaled_brier`; 1 for perfect predictions.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> round(integrated_scaled_brier(d, y, censoring=kaplan_meier(y, censoring=True)), 4)
    0.1459
    """
    options = {"censoring": censoring, "times": times, "n_times": n_times, "rule": rule, "cause": cause}
    return loss_terms("scaled", distribution, check_rows(y, sample_weight), **options, **weighting).value


def loss_terms(
    kind: Literal["squared", "scaled", "logarithmic"],
    distribution: SurvivalDistribution,
    y: Any,
    *,
    times: Any = None,
    n_times: int = 100,
    rule: Rule = "trapezoid",
    floor: float | None = None,
    cause: int | None = None,
    memory: CurveMemory | None = None,
    **weighting: Any,
) -> Terms:
    """Return what each subject contributes to a loss: integrated, or at one time, which is given as a number.

    "scaled" is one minus the ratio of the squared loss to that of the best constant predictions. Without ``censoring``,
    G is the Kaplan-Meier estimate of the rows themselves.
    """
    losses = _Losses(distribution, y, _logarithmic(floor) if kind == "logarithmic" else _squared, cause, memory)
    if isinstance(times, float):
        grid, share = check_times(times), np.ones(1)
    else:
        grid, share = _quadrature(times, losses.outcome.time, n_times, rule)
    return losses.terms(grid, share, kind == "scaled", **weighting)


# ------------------------------------------------------------------ losses

_Loss = Callable[[Array, Bools], Array]  # of S or log S (k, m), and whether rows are still event-free


def _squared(survival: Array, event_free: Bools) -> Array:
    residual = survival - event_free
    return np.multiply(residual, residual, out=residual)


def _logarithmic(floor: float | None) -> _Loss:
    """Log S if event-free and log(1 - S) otherwise, of probabilities moved into [floor, 1 - floor]."""
    if floor is not None and not 0.0 < floor < 0.5:
        raise ValueError(f"floor must lie between 0 and 1/2 (pycox: 1e-7); got {floor}.")

    def loss(log_survival: Array, event_free: Bools) -> Array:
        with np.errstate(divide="ignore"):
            score = np.where(event_free, log_survival, np.log(-np.expm1(log_survival)))
        return score if floor is None else np.clip(score, np.log(floor), np.log1p(-floor))

    return loss


class _Losses:
    """A loss for the curves of one cause, or of any; ``other`` says which rows had an event of another cause."""

    def __init__(
        self,
        distribution: SurvivalDistribution,
        y: Any,
        loss: _Loss,
        cause: int | None,
        memory: CurveMemory | None = None,
    ) -> None:
        self.outcome, self.loss, self.memory = check_subjects(distribution, y), loss, memory
        self.curves, self.other = of_cause(distribution, self.outcome, cause, memory)

    def unweighted(self, grid: Array) -> Iterator[tuple[slice, Array, Bools]]:
        """Yield blocks of rows, their losses at the times of a grid, and whether they are followed past each time."""
        for rows, curve in curve_blocks(self.curves, grid, log=self.loss is not _squared, memory=self.memory):
            alive = self.outcome.time[rows, None] > grid
            yield rows, self.loss(curve, self._event_free(rows, grid)), alive

    def _event_free(self, rows: slice, grid: Array) -> Bools:
        """Return whether rows are free of the event at each time, as are those with an event of another cause."""
        alive = np.asarray(self.outcome.time[rows, None] > grid)
        return alive if self.other is None else alive | self.other[rows, None]

    def weighted(self, weights: GridWeights) -> Iterator[tuple[slice, Array, Array]]:
        """Yield blocks of rows, their weighted losses and their weights."""
        for rows, loss, alive in self.unweighted(weights.grid):
            weight = weights.block(rows, alive)
            if np.isinf(loss).any():  # 0 · inf is no contribution
                loss = np.where(weight > 0, loss, 0.0)
            yield rows, np.multiply(loss, weight, out=loss), weight

    def at_times(self, times: Any, weighting: Weighting) -> Array:
        """Return the weighted losses, of shape (n,) for a number or (n, m) for an array of times."""
        grid = check_times(times)
        weights = GridWeights(weighting, self.outcome, grid)
        score = np.empty((len(self.outcome), len(grid)))
        for rows, loss, _ in self.weighted(weights):
            score[rows] = loss
        score *= weights.scale()
        return score[:, 0] if np.ndim(times) == 0 else score

    def integrated(self, times: Any, n_times: int, rule: Rule, weighting: Weighting) -> Array:
        """Return the weighted losses integrated over a range of times and divided by its length, of shape (n,)."""
        grid, share = _quadrature(times, self.outcome.time, n_times, rule)
        weights = GridWeights(weighting, self.outcome, grid)
        share = share * weights.scale(share)
        score = np.empty(len(self.outcome))
        for rows, loss, _ in self.weighted(weights):
            score[rows] = loss @ share
        return score

    def terms(
        self, grid: Array, share: Array, scaled: bool, censoring: SurvivalDistribution | None = None, **options: Any
    ) -> Terms:
        """Return what each subject contributes to Σₖ shareₖ · (mean weighted loss at tₖ); see `loss_terms`."""
        weights = GridWeights(Weighting.of(self.outcome, censoring, **options), self.outcome, grid)
        normalize, own = weights.weighting.normalize, censoring is None
        blocks = self.unweighted(grid)
        if not (scaled or normalize):
            losses = ((rows, loss[:, None], alive) for rows, loss, alive in blocks)
            return weights.terms(losses, 1, itemgetter((..., 0)), own=own, share=share * weights.scale(share))

        def quantities() -> Iterator[tuple[slice, Array, Bools]]:
            for rows, loss, alive in blocks:
                ended = [~self._event_free(rows, grid)] if scaled else []
                yield rows, np.stack([loss, *ended, np.ones_like(loss)], axis=1), alive

        combine = partial(_scaled, normalize=normalize) if scaled else _mean_loss
        return weights.terms(quantities(), 3 if scaled else 2, partial(combine, share=share), own=own)


def _quadrature(times: Any, time: Array, n_times: int, rule: Rule) -> tuple[Array, Array]:
    """A grid, and weights q with Σ qₖ g(tₖ) ≈ the average of g over it: both rules are linear in g."""
    grid = time_grid(times, time, n_times)
    length = grid[-1] - grid[0]
    if rule == "trapezoid":
        half = 0.5 * np.diff(grid)
        return grid, (np.append(half, 0.0) + np.insert(half, 0, 0.0)) / length
    if rule == "simpson":
        return grid, np.asarray(simpson(np.eye(len(grid)), x=grid, axis=1), dtype=np.float64) / length
    raise ValueError(f"rule must be 'trapezoid' or 'simpson'; got {rule!r}.")


def _mean_loss(loss: Array, weight: Array, share: Array) -> Array:
    """Σₖ shareₖ lossₖ / weightₖ, where a time at which nobody has a weight adds nothing."""
    return np.asarray(np.where(weight == 0, 0.0, ratio(loss, weight)) @ share)


def _scaled(loss: Array, ended: Array, total: Array, share: Array, normalize: bool) -> Array:
    """One minus the ratio of a squared loss to that of the best constant predictions, from means at each time, (r, m).

    Parameters
    ----------
    loss, ended, total : array of shape (r, m)
        Weighted loss, weight of subjects with an event, and weight of all.
    share : array of shape (m,)
    normalize : bool
    """
    null = ended * np.where(total > 0, ratio(total - ended, total), 0.0)
    by = np.where(total > 0, total, np.inf) if normalize else np.ones_like(total)
    return 1.0 - ratio(loss / by @ share, null / by @ share)
