"""What holds for every score: rows in any order, any unit of time, ties, all or none censored, a single row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import LogNormal, Rescaled, Tabulated, Weibull
from sumosurv.scores import SCORES


def score(name, d, y, unit=1.0):
    """The score as one number, with its times in the given unit."""
    record, options = SCORES[name], {}
    if record.needs_censoring:
        options["censoring"] = kaplan_meier(y, censoring=True)
    if record.times != "none":
        options[record.times_option] = unit * (1.5 if record.times == "single" else np.linspace(0.25, 3.0, 12))
    result = record.function(d, y, **options)
    return float(result.mean()) if isinstance(result, np.ndarray) else float(getattr(result, "score", result))


@st.composite
def data(draw):
    n = draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    event = rng.random(n) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    time = rng.exponential(1.5, n) + 0.01
    if draw(st.booleans()):
        time = np.ceil(2 * time) / 2  # ties
    kind = draw(st.sampled_from(["weibull", "lognormal", "table"]))
    if kind == "weibull":
        d = Weibull(rng.uniform(0.5, 2, n), rng.uniform(0.5, 2, n))
    elif kind == "lognormal":
        d = LogNormal(rng.normal(0, 0.5, n), rng.uniform(0.5, 1.5, n))
    else:
        table = np.sort(rng.uniform(0.05, 0.95, (n, 6)), axis=1)[:, ::-1]
        d = Tabulated([0.1, 0.5, 1.0, 1.5, 2.0, 20.0], np.column_stack([table[:, :5], np.zeros(n)]), between="density")
    return d, Surv.from_arrays(event, time), rng.permutation(n)


@pytest.mark.parametrize("name", list(SCORES))
@settings(max_examples=10, deadline=None)
@given(data())
def test_row_order_does_not_matter(name, drawn):
    d, y, order = drawn
    np.testing.assert_allclose(score(name, d[order], y[order]), score(name, d, y), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", list(SCORES))
@settings(max_examples=10, deadline=None)
@given(data(), st.sampled_from([0.25, 4.0, 64.0]))
def test_unit_of_time(name, drawn, unit):
    """A density is per unit of time, the CRPS and errors are times; nothing else depends on the unit."""
    d, y, _ = drawn
    scaled = score(name, Rescaled(d, unit), Surv.from_arrays(y["event"], unit * y["time"]), unit)
    expected = score(name, d, y)
    if name == "log_likelihood":
        expected -= y["event"].mean() * np.log(unit)
    if name in ("survival_crps", "mean_absolute_error"):
        expected *= unit
    np.testing.assert_allclose(scaled, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", list(SCORES))
@pytest.mark.parametrize("event", [True, False])
def test_a_single_row_and_all_or_none_censored(name, event):
    for n in (1, 5):
        y, d = Surv.from_arrays([event] * n, np.linspace(1.0, 2.0, n)), Weibull(np.linspace(1, 2, n), 1.0)
        value = score(name, d, y)
        comparable = n > 1 and event
        if name in ("concordance_td", "harrell_c", "uno_c", "cumulative_dynamic_auc", "integrated_auc"):
            assert np.isnan(value) != comparable
        elif name == "group_calibration":
            assert np.isfinite(value) or not event  # nobody is followed to t = 1.5
        elif name == "calibration_intercept":
            assert np.isfinite(value) == comparable  # infinite if all have had the event
        elif name == "calibration_slope":
            assert np.isnan(value)  # of risks that separate events from the others it is infinite
        elif name in ("scaled_brier", "integrated_scaled_brier"):
            assert np.isfinite(value) or not comparable  # nothing to predict if all or none have had the event
        else:
            assert np.isfinite(value)
