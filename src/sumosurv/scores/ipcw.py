"""Scores at single times, weighted for censoring: Brier score, binomial log-likelihood, and their integrals."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.integrate import simpson

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Outcome
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

Kind = Literal["squared", "scaled", "logarithmic"]
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

    The mean over subjects (``.mean(axis=0)``) is the score that is plotted against t. The values of single subjects can
    be bootstrapped, or compared between two models in pairs.

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
        - left_limit=True: weight events by 1 / G(z-) = 1 / P(C >= z), one over the probability that an event at z is
          observed. False uses G(z), as scikit-survival does; the two agree unless an event and a censoring occur at the
          same time.
        - on_zero="raise" or "drop": what to do if a row needs a weight of 1/0, because all rows behind G were censored
          earlier: raise an error that names the time, or give the row a weight of 0, as scikit-survival does.
        - max_weight=inf: the largest weight. If it is finite, it replaces the weight 1/0, and no error is raised (as in
          pycox).
        - min_followed=0: leave out a row at times t at which its G(t|x) is below this value. If no subject with
          similar x is followed up to t, only events are observed there, which rewards curves that fall to zero;
          weights cannot correct this. The default, 0, keeps all rows.

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
    return _by_subject("squared", distribution, y, times, cause, sample_weight, Weighting(censoring, **weighting))


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
        Clip probabilities to [floor, 1 - floor] first (pycox: 1e-7). By default they are not clipped.

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
    array([-0.0857,  0.    , -1.6667])
    """
    weigh = Weighting(censoring, **weighting)
    return _by_subject("logarithmic", distribution, y, times, cause, sample_weight, weigh, floor)


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
        A grid of times, or a range that is filled with ``n_times`` evenly spaced times. None, the default, is the range
        from the smallest positive time of y to just before the largest. At the largest time itself nobody is followed
        any longer, so that only events would be scored.
    n_times : int, default 100
    rule : {"trapezoid", "simpson"}
        The quadrature rule: "trapezoid" as in scikit-survival, "simpson" as in pycox.

    Returns
    -------
    ndarray of shape (n,)
        Their mean is the IBS. It equals pycox's (the convention of the paper's tables) with ``normalize=True``,
        ``rule="simpson"``, ``times=(time.min(), time.max())`` and, as G, Kaplan-Meier of the flipped events of the test
        rows.

    Examples
    --------
    >>> from sumosurv import Surv, kaplan_meier
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True], time=[1.0, 2.0, 3.0])
    >>> d = Weibull([1.0, 2.0, 3.0], 1.0)
    >>> float(integrated_brier(d, y, censoring=kaplan_meier(y, censoring=True)).mean().round(4))
    0.1898
    """
    weigh = Weighting(censoring, **weighting)
    return _by_subject("squared", distribution, y, times, cause, sample_weight, weigh, integral=(n_times, rule))


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
    weigh = Weighting(censoring, **weighting)
    return _by_subject("logarithmic", distribution, y, times, cause, sample_weight, weigh, floor, (n_times, rule))


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
    the same for all subjects, 1 for perfect predictions, negative for a model that predicts worse than that constant,
    and nan if there is no event up to t.

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


# ------------------------------------------------------------------ losses


def loss_terms(
    kind: Kind,
    distribution: SurvivalDistribution,
    y: Any,
    *,
    times: Any = None,
    n_times: int = 100,
    rule: Rule = "trapezoid",
    censoring: SurvivalDistribution | None = None,
    floor: float | None = None,
    cause: int | None = None,
    memory: CurveMemory | None = None,
    each: bool = False,
    **weighting: Any,
) -> Terms:
    """Return what each subject contributes to a loss: integrated, at one time, given as a number, or at ``each`` time.

    "scaled" is one minus the ratio of the squared loss to that of the best constant predictions. Without ``censoring``,
    G is the Kaplan-Meier estimate of the rows themselves.
    """
    outcome = check_subjects(distribution, y)
    if each or isinstance(times, float):
        grid = check_times(times)
        share = np.eye(len(grid)) if each else np.ones(1)
    else:
        grid, share = _quadrature(times, outcome.time, n_times, rule)
    weights = GridWeights(Weighting.of(outcome, censoring, **weighting), outcome, grid)
    losses, own = _losses(kind, distribution, outcome, grid, cause, floor, memory), censoring is None
    normalize = weights.weighting.normalize
    if kind != "scaled" and not normalize:
        alone = ((rows, loss[:, None], alive) for rows, loss, _, alive in losses)
        if each:
            return weights.terms(alone, 1, partial(np.multiply, weights.scale()), own=own)
        return weights.terms(alone, 1, itemgetter((..., 0)), own=own, share=share * weights.scale(share))
    all_three = (
        (rows, np.stack([loss, ~event_free, np.ones_like(loss)], axis=1), alive)
        for rows, loss, event_free, alive in losses
    )
    combine = partial(_scaled, normalize=normalize) if kind == "scaled" else _mean_loss
    return weights.terms(all_three, 3, partial(combine, share=share), own=own)


def _by_subject(
    kind: Kind,
    distribution: SurvivalDistribution,
    y: Any,
    times: Any,
    cause: int | None,
    sample_weight: Any,
    weighting: Weighting,
    floor: float | None = None,
    integral: tuple[int, Rule] | None = None,
) -> Array:
    """Return the weighted losses of each subject: at given times, or the ``integral`` by a number of times and a rule.

    The shape is (n, m) for an array of times, otherwise (n,).
    """
    outcome = check_subjects(distribution, y, sample_weight)
    grid, share = (check_times(times), None) if integral is None else _quadrature(times, outcome.time, *integral)
    weights = GridWeights(weighting, outcome, grid)
    losses = _losses(kind, distribution, outcome, grid, cause, floor)
    blocks, scale = ((rows, loss[:, None], alive) for rows, loss, _, alive in losses), weights.scale(share)
    if share is not None:
        return times_weight(weights.weighted(blocks, 1, share * scale)[:, 0, 0], sample_weight)
    values = times_weight(weights.weighted(blocks, 1)[:, 0] * scale, sample_weight)
    return values[:, 0] if np.ndim(times) == 0 else values


def _losses(
    kind: Kind,
    distribution: SurvivalDistribution,
    outcome: Outcome,
    grid: Array,
    cause: int | None,
    floor: float | None,
    memory: CurveMemory | None = None,
) -> Iterator[tuple[slice, Array, Bools, Bools]]:
    """Yield blocks of rows: their losses at each time, whether they are event-free and whether they are followed.

    A row with an event of another cause remains free of the event. Logarithmic losses are log S if event-free and
    log(1 - S) otherwise, of probabilities moved into [floor, 1 - floor].
    """
    if floor is not None and not 0.0 < floor < 0.5:
        raise ValueError(f"floor must lie between 0 and 1/2 (pycox: 1e-7); got {floor}.")
    logarithmic = kind == "logarithmic"
    curves, other = of_cause(distribution, outcome, cause)
    for rows, curve in curve_blocks(curves, grid, log=logarithmic, memory=memory):
        alive = outcome.time[rows, None] > grid
        event_free = alive | other[rows, None]
        if logarithmic:
            with np.errstate(divide="ignore"):
                loss = np.where(event_free, curve, np.log(-np.expm1(curve)))
            loss = loss if floor is None else np.clip(loss, np.log(floor), np.log1p(-floor))
        else:
            loss = np.square(curve - event_free)
        yield rows, loss, event_free, alive


def _quadrature(times: Any, time: Array, n_times: int, rule: Rule) -> tuple[Array, Array]:
    """Return a grid, and weights q with Σ qₖ g(tₖ) ≈ the average of g over it: both rules are linear in g."""
    grid = time_grid(times, time, n_times)
    length = grid[-1] - grid[0]
    if rule == "trapezoid":
        half = 0.5 * np.diff(grid)
        return grid, (np.append(half, 0.0) + np.insert(half, 0, 0.0)) / length
    if rule == "simpson":
        return grid, np.asarray(simpson(np.eye(len(grid)), x=grid, axis=1), dtype=np.float64) / length
    raise ValueError(f"rule must be 'trapezoid' or 'simpson'; got {rule!r}.")


def _mean_loss(loss: Array, ended: Array, total: Array, share: Array) -> Array:
    """Return Σₖ shareₖ lossₖ / totalₖ; a time at which nobody has a weight adds nothing."""
    return np.asarray(np.where(total == 0, 0.0, ratio(loss, total)) @ share)


def _scaled(loss: Array, ended: Array, total: Array, share: Array, normalize: bool) -> Array:
    """Return one minus the ratio of a squared loss to that of the best constant predictions.

    ``loss``, ``ended`` and ``total``, (r, m), are the weighted loss at each time, the weight of subjects with an event,
    and the weight of all.
    """
    null = ended * np.where(total > 0, ratio(total - ended, total), 0.0)
    by = np.where(total > 0, total, np.inf) if normalize else np.ones_like(total)
    return 1.0 - ratio(loss / by @ share, null / by @ share)
