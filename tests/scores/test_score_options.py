"""Every option of every score has an effect, whether it is given to the function or to `evaluate`."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from sumosurv import Surv
from sumosurv.distributions import CauseMixture, Mixture, Weibull
from sumosurv.nonparametric import kaplan_meier
from sumosurv.scores import SCORES, evaluate
from sumosurv.scores._weighting import Weighting

N = 90
RNG = np.random.default_rng(0)
SCALE = np.exp(0.7 * RNG.normal(size=N))
EVENT_TIME, END = np.ceil(8 * SCALE * RNG.exponential(size=N)) / 8, np.ceil(8 * RNG.exponential(2.0, size=N)) / 8
EVENT = EVENT_TIME <= END  # with ties of events and censored rows
Y = Surv.from_arrays(EVENT, np.minimum(EVENT_TIME, END))
CAUSES = Surv.from_arrays(np.where(EVENT, RNG.integers(1, 3, N), 0), Y["time"])
D = Mixture([Weibull(SCALE, 0.8), Weibull(SCALE[::-1], 1.6)], [0.7, 0.3])  # curves cross
TWO = CauseMixture(np.column_stack([SCALE, 1.0 - SCALE]), [Weibull(SCALE, 0.8), Weibull(SCALE, 1.2)])
G = kaplan_meier(Y, censoring=True, sample_weight=1 + np.arange(N) % 3)  # of other rows: weights do not sum to n
FALLS = Weibull(np.linspace(0.3, 3.0, N), 1.0)  # another G for each row

OTHERS = {
    "floor": 0.3, "resolution": 0.125, "until": 0.7, "method": "adj_antolini", "horizon": 0.6, "tau": 0.6,
    "n_times": 4, "rule": "simpson", "levels": [0.2, 0.5], "bins": 4, "groups": 3, "prediction": "restricted_mean",
    "time": 0.4, "cause": 2, "left_limit": False, "max_weight": 1.1, "normalize": True, "min_followed": 0.6,
}  # fmt: skip
PLAIN = {"cause": {"cause": 1}, "prediction": {"horizon": 0.6}}  # what an option is compared with, if not its default
OTHERS_OF = {("concordance_td", "times"): [0.25, 0.5], ("mean_absolute_error", "prediction"): "mean"}
AT = {"single": 0.75, "range": (0.25, 1.5)}
WEIGHTING = [name for name in Weighting.__dataclass_fields__ if name not in ("censoring", "on_zero")]


def options_of(name):
    known = inspect.signature(SCORES[name].function).parameters
    found = [option for option in known if option not in ("distribution", "y", "sample_weight", "censoring", "on_zero")]
    return [*(o for o in found if o != "weighting"), *(WEIGHTING if "weighting" in found else [])]


SAME = {  # a ratio of two sums of weights; cells of time, which the data must have
    ("cumulative_dynamic_auc", "normalize"), ("integrated_auc", "normalize"), ("scaled_brier", "normalize"),
    ("d_calibration", "resolution"),
}  # fmt: skip
CASES = [(name, option) for name in SCORES for option in options_of(name) if (name, option) not in SAME]


def value(name, through, options):
    score = SCORES[name]
    causes = "cause" in options
    d, y = (TWO, CAUSES) if causes else (D, Y)
    at = {} if score.times == "none" or score.times_option in options else {score.times_option: AT[score.times]}
    censoring = FALLS if "min_followed" in options else G
    if through:
        given = {"censoring": censoring} if score.needs_censoring else {}
        found = evaluate(d, None, y, scores={name: at | options}, n_bootstrap=0, **given)
        return found["value"].to_numpy(dtype=float)
    given = {"censoring": censoring} if score.needs_censoring else {}
    found = score.function(d, y, **at, **options, **given)
    return np.atleast_1d(np.asarray(getattr(found, "score", found), dtype=float)).mean(axis=0, keepdims=True).ravel()


@pytest.mark.parametrize(("name", "option"), CASES)
def test_an_option_has_an_effect(name, option):
    score = SCORES[name]
    other = OTHERS_OF.get((name, option), OTHERS.get(option))
    if option == "times":
        other = OTHERS_OF.get((name, option), {"single": [0.5], "range": (0.25, 1.0)}.get(score.times))
    plain = PLAIN.get(option, {})
    plain = plain if set(plain) <= set(options_of(name)) else {}
    if option == "min_followed":
        plain = {"min_followed": 0.0}
    for through in (False, True):
        before, after = value(name, through, plain), value(name, through, plain | {option: other})
        same = before.shape == after.shape and np.abs(before - after).max() < 1e-9
        assert not same, through
