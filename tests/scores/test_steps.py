"""Step curves are scored from their tables, also on another time scale, with the same results as without tables."""

import numpy as np
import pytest
import torch

from sumosurv import DeepSurv, Surv, datasets, kaplan_meier
from sumosurv.distributions import Delayed, Mixture, Remaining, Rescaled, SurvivalDistribution, Tabulated
from sumosurv.scores import (
    brier,
    concordance,
    concordance_td,
    group_calibration,
    integrated_binomial_log_likelihood,
    integrated_brier,
    survival_crps,
)
from sumosurv.scores._inputs import curve_blocks

N, UNIT = 120, 1 / 7


@pytest.fixture(scope="module")
def y():
    """Weeks of whole days, with ties among events and censorings."""
    rng = np.random.default_rng(0)
    return Surv.from_arrays(rng.random(N) < 0.7, (np.floor(rng.exponential(40.0, N)) + 1.0) / 7.0)


@pytest.fixture(scope="module")
def plain(y):
    """A curve for each row with knots at the very times that are scored."""
    knots = np.unique(y["time"])
    falls = np.random.default_rng(1).uniform(0.9, 1.0, size=(N, len(knots)))
    return Tabulated(knots, np.cumprod(falls, axis=1))


def scores(d, y):
    censoring = kaplan_meier(y, censoring=True)
    grid = np.unique(np.quantile(y["time"], [0.1, 0.3, 0.5, 0.7, 0.8]))
    return {
        "concordance": concordance_td(d, y),
        "antolini": concordance_td(d, y, method="antolini"),
        "on a grid": concordance_td(d, y, times=grid),
        "brier": brier(d, y, grid, censoring=censoring),
        "ibs": integrated_brier(d, y, times=grid, censoring=censoring),
        "ibll": integrated_binomial_log_likelihood(d, y, times=grid, censoring=censoring),
        "calibration": group_calibration(d, y).score,
    }


def test_another_unit_changes_no_score(plain, y):
    rescaled = Rescaled(Tabulated(plain.times / UNIT, plain.table), UNIT)
    expected = scores(plain, y)
    for name, value in scores(rescaled, y).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    np.testing.assert_allclose(survival_crps(rescaled, y), survival_crps(plain, y), rtol=1e-12)


def others(plain):
    rescaled = Rescaled(Tabulated(plain.times / UNIT, plain.table), UNIT)
    return {
        "rescaled": rescaled,
        "delayed": Delayed(rescaled, 0.3),
        "shifted": Remaining(rescaled, 2 / 7),
        "mixture": Mixture([rescaled, Rescaled(Tabulated(plain.times / UNIT, plain.table.flip(0)), UNIT)]),
    }


@pytest.mark.parametrize("name", ["rescaled", "delayed", "shifted", "mixture"])
def test_tables_give_what_the_curves_give(plain, y, name, monkeypatch):
    d = others(plain)[name]
    by_table, crps = scores(d, y), survival_crps(d, y)
    monkeypatch.setattr(type(d), "step_table", lambda self: None)
    for score, value in scores(d, y).items():
        np.testing.assert_allclose(value, by_table[score], rtol=1e-12, err_msg=score)
    if name == "rescaled":
        np.testing.assert_array_equal(survival_crps(d, y), crps)


@pytest.mark.parametrize("name", ["rescaled", "delayed", "shifted", "mixture"])
def test_the_survival_crps_of_tables_is_exact(plain, y, name):
    ended = plain.table.clone()
    ended[:, -1] = 0.0
    d = others(Tabulated(plain.times, ended))[name]
    knots, table = (part.numpy() for part in d.step_table())
    low, high, z = knots[:-1], knots[1:], y["time"][:, None]
    below = ((1 - table[:, :-1]) ** 2 * np.clip(np.minimum(high, z) - low, 0.0, None)).sum(1)
    below += np.maximum(z[:, 0] - knots[-1], 0.0)
    above = (table[:, :-1] ** 2 * np.clip(high - np.maximum(low, z), 0.0, None)).sum(1)
    np.testing.assert_allclose(survival_crps(d, y), below + np.where(y["event"], above, 0.0), rtol=1e-12)


@pytest.mark.parametrize("name", ["rescaled", "delayed", "shifted", "mixture"])
def test_tables_are_read_and_no_curve_is_evaluated(plain, y, name, monkeypatch):
    d = others(plain)[name]
    d.step_table()

    def refuse(self, *arguments):
        raise AssertionError("a curve was evaluated")

    for method in ("survival", "log_survival", "_exact_cells"):
        owner = concordance if method == "_exact_cells" else SurvivalDistribution
        monkeypatch.setattr(owner, method, refuse)
    concordance_td(d, y)
    concordance_td(d, y, times=[1.0, 2.0, 5.0])
    for log in (False, True):
        assert sum(len(block) for _, block in curve_blocks(d, np.array([1.0, 2.0]), log=log)) == N


def test_a_cox_network_is_scored_from_its_table(monkeypatch):
    data = datasets.simulate("weibull", 150, random_state=0)
    days = Surv.from_arrays(data.y["event"], np.ceil(30 * data.y["time"]))  # training times, with ties, are the knots
    model = DeepSurv(n_members=2, max_epochs=2, random_state=0).fit(data.X, days)
    d = model.predict_distribution(data.X)
    assert isinstance(d, Rescaled)
    fast = concordance_td(d, days)
    monkeypatch.setattr(Rescaled, "step_table", lambda self: None)
    calls, slow = [], concordance._exact_cells
    monkeypatch.setattr(concordance, "_exact_cells", lambda *rest: calls.append(1) or slow(*rest))
    assert concordance_td(d, days) == fast
    assert calls


def test_times_are_compared_in_the_precision_of_the_knots(y):
    """In single precision 0.1 is a little more than 0.1: it still is the knot that it was."""
    times = np.unique(y["time"])
    table = torch.linspace(0.99, 0.01, len(times)).repeat(N, 1)
    d = Tabulated(torch.from_numpy(times).float(), table)
    assert (d.times.double().numpy()[1:] > times).any()
    (_, block), *_ = curve_blocks(d, times)
    np.testing.assert_allclose(block, d.survival(times), rtol=1e-6)
