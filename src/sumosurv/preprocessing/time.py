"""The unit of time, and the time features that are fitted to training rows."""

from __future__ import annotations

import numpy as np
import torch
from scipy.interpolate import PchipInterpolator
from scipy.special import logit

from sumosurv.networks.time import LOG_OFFSET, TimeFeatureKind, TimeFeatures
from sumosurv.nonparametric import marginal_curve
from sumosurv.outcome import Outcome
from sumosurv.quantiles import quantiles

__all__ = ["time_features", "time_unit"]

_TIME_KNOTS, _EVENTS_PER_KNOT = 10, 8  # of the marginal feature of time
_CLOSEST = 1e-2  # least distance of two knots in log time


def time_unit(outcome: Outcome) -> float:
    """The largest training time, which becomes 1 in scaled time (1 if all times are zero).

    In scaled time t' = t / unit, the density is f(t) = f'(t') / unit.
    """
    return outcome.last_time or 1.0


def time_features(kind: TimeFeatureKind, y: Outcome, unit: float, n_knots: int | None = None) -> TimeFeatures:
    """Time features fitted to the outcome of the training rows; see `TimeFeatures`.

    "marginal" has ``n_knots`` knots, by default one for every eight events and ten at most. It needs two distinct
    event times; with fewer it falls back to "log".
    """
    y = y.on_clock(unit=unit)
    if kind == "linear":
        low, high = float(y.time.min()), y.last_time
        return TimeFeatures("linear", torch.tensor([[[low], [high - low if high > low else 1.0]]]))
    if kind == "log":
        return TimeFeatures("log")
    middle = y.at_midpoints()
    events, weight = middle.time[middle.event], None if y.weight is None else y.weight[middle.event]
    count = float(weight.sum()) if weight is not None else len(events)
    if n_knots is None:
        n_knots = int(np.clip(count // _EVENTS_PER_KNOT, 2, _TIME_KNOTS))
    levels = (np.arange(n_knots) + 0.5) / n_knots
    places = quantiles(events, levels, weight) if len(events) else np.zeros(0)
    places = places[np.diff(np.log(places + LOG_OFFSET), prepend=-np.inf) > _CLOSEST]
    if len(places) < 2:
        return TimeFeatures("log")
    curve = marginal_curve(y)
    before = curve.cdf(np.nextafter(places, -np.inf).clip(0))[0]
    least = 0.5 / max(y.total, 2.0)
    share = np.clip(0.5 * (before + curve.cdf(places)[0]), least, 1 - least)
    x, odds = np.log(places + LOG_OFFSET), 0.5 * logit(share)
    slopes = PchipInterpolator(x, odds).derivative()(x)
    return TimeFeatures("marginal", torch.from_numpy(np.stack([x, odds, np.maximum(slopes, 1e-3)]))[None])
