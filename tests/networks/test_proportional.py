"""Networks of proportional hazards: the baseline of all rows, a factor for each subject, the exact likelihood."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import special

import small_networks
from distribution_kinds import quadrature
from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import ProportionalHazards
from sumosurv.estimators.parametric import ProportionalHazardsNet
from sumosurv.networks import Batch, Observed, Table
from sumosurv.outcome import check_outcome
from sumosurv.scores import log_likelihood

GRID = torch.cat([torch.zeros(1), torch.logspace(-7, 1, 200)]).double()[None, None]


@pytest.mark.parametrize("kind", ["marginal", "log"])
def test_slope_is_that_of_autograd(kind):
    baseline = small_networks.proportional(kind=kind).baseline
    t = GRID.clone().requires_grad_(True)
    value, log_slope = baseline(t)
    (expected,) = torch.autograd.grad(value.sum(), t)
    torch.testing.assert_close(torch.exp(log_slope), expected, rtol=1e-9, atol=0.0)


def test_baseline_is_the_cumulative_hazard_of_all_rows():
    baseline = small_networks.proportional().baseline
    log_odds = 2.0 * baseline.features(GRID)[0][0, 0, :, 2].numpy()
    expected = np.log(-np.log(special.expit(-log_odds)))  # 1 - F loses its digits where F is tiny: not there
    sure = log_odds > -10
    np.testing.assert_allclose(baseline(GRID)[0][0, 0].numpy()[sure], expected[sure], atol=1e-10)
    np.testing.assert_allclose(baseline(GRID)[0][0, 0].numpy()[~sure], log_odds[~sure], atol=1e-4)
    knots = small_networks.marginal_knots()
    curve = kaplan_meier(small_networks.outcome())
    unit = small_networks.outcome().last_time
    survival = torch.exp(-torch.exp(baseline(torch.tensor([[knots]], dtype=torch.float64))[0]))[0, 0].numpy()
    np.testing.assert_allclose(survival, curve.survival(unit * np.array(knots))[0], atol=0.01)


def test_hazards_are_proportional_and_the_curves_theirs():
    made = small_networks.proportional((0, 1))
    inputs = small_networks.inputs(4)
    for part in made.member_distributions(made.encoder(inputs.shared())):
        ratio = part.hazard([0.01, 0.2, 0.9, 3.0])
        np.testing.assert_allclose(ratio / ratio[:1], np.repeat(ratio[:, :1] / ratio[0, 0], 4, axis=1), rtol=1e-9)
        assert np.ptp(ratio[:, 0]) > 0.05
        total = quadrature(part.hazard, small_networks.marginal_knots(), 0.7)
        np.testing.assert_allclose(part.cumulative_hazard(0.7), total, rtol=1e-8)


def test_terms_are_those_of_the_distribution():
    """Seen, censored, in an interval, entered late."""
    made = small_networks.proportional()
    inputs = small_networks.inputs(4)
    event, time = torch.tensor([True, False, False, True]), torch.tensor([0.3, 0.5, 0.1, 0.9], dtype=torch.float64)
    outcome = Observed(
        event,
        time,
        entry=torch.tensor([0.0, 0.2, 0.0, 0.4], dtype=torch.float64),
        upper=torch.tensor([0.3, np.inf, 0.6, 0.9], dtype=torch.float64),
    )
    index = torch.arange(4)[None]
    batch = Batch(inputs[index], outcome[index], torch.ones(1, 4, dtype=torch.bool), index, Table(inputs, outcome))
    with torch.no_grad():
        terms = made.terms(batch)[0].numpy()
    d = made.distribution(inputs)
    log_s, log_f = d.log_survival([0.1, 0.2, 0.4, 0.5, 0.6]), d.log_density(own_times=time.numpy())
    expected = [
        log_f[0],
        log_s[1, 3] - log_s[1, 1],
        np.log(np.exp(log_s[2, 0]) - np.exp(log_s[2, 4])),
        log_f[3] - log_s[3, 2],
    ]
    np.testing.assert_allclose(terms, expected, rtol=1e-9)


def test_log_hazard_ratio_is_that_of_cox():
    """One binary covariate, many rows: the coefficient of Cox's partial likelihood, without its knowing the other."""
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(0)
    n = 4000
    x = rng.integers(0, 2, n)
    time = (rng.exponential(size=n) * np.exp(-0.8 * x)) ** 0.7
    stop = rng.uniform(0.2, 2.0, n)
    frame = pd.DataFrame({"x": x.astype(float)})
    y = Surv.from_arrays(time <= stop, np.minimum(time, stop))
    made = ProportionalHazardsNet(
        n_members=1,
        covariate_layers=(),
        frequencies=0,
        weight_decay=0.0,
        numeric_scaling="standard",
        max_epochs=60,
        learning_rate=0.02,
        random_state=0,
    ).fit(frame, y)
    hazard = made.predict_distribution(pd.DataFrame({"x": [0.0, 1.0]})).hazard(0.5)
    cox = lifelines.CoxPHFitter().fit(frame.assign(t=y["time"], e=y["event"]), "t", "e")
    assert np.log(hazard[1] / hazard[0]) == pytest.approx(cox.params_["x"], abs=0.05)
    assert made.score(frame, y) == pytest.approx(
        log_likelihood(made.predict_distribution(frame), check_outcome(y)).mean(), abs=1e-12
    )


def test_risks_beyond_all_numbers_are_still_distributions():
    made = small_networks.proportional()
    d = ProportionalHazards(made._log_baseline, torch.tensor([-1e30, 700.0, 1e4, 1e30]).double(), torch.zeros(()))
    times = [0.0, 1e-3, 0.5, 10.0]
    np.testing.assert_array_equal(d.survival(times), [[1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(d.density(times)[:, 1:], 0.0)
    with pytest.raises(ValueError, match="finite"):
        ProportionalHazards(made._log_baseline, torch.tensor([0.0, np.nan]), torch.zeros(()))
