"""Times recorded to a resolution: which cells they stand for, and what is trained on and scored."""

import numpy as np
import pytest

from sumosurv import SumoNet, Surv
from sumosurv.distributions import Weibull
from sumosurv.outcome import Cells, check_outcome
from sumosurv.scores import evaluate, log_likelihood

TINY = {"n_members": 2, "max_epochs": 3, "covariate_layers": (8,), "time_layers": (4,), "random_state": 0}


def outcome(times, event=True, **more):
    times = np.asarray(times, dtype=float)
    return check_outcome(Surv.from_arrays(np.broadcast_to(event, times.shape), times, **more))


def simulated(n, seed, cells=20, top=8.0):
    """Weibull times with proportional hazards, censored, and rounded up to so many cells; X, scale, y."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    scale = np.exp(1.0 + 0.5 * X[:, 0])
    time, stop = scale * rng.weibull(1.5, n), rng.uniform(1.0, top, n)
    width = top / cells
    return X, scale, Surv.from_arrays(time <= stop, np.ceil(np.minimum(time, stop) / width) * width)


# ------------------------------------------------------------------ finding them


@pytest.mark.parametrize(
    ("times", "cells"),
    [
        (np.repeat([1.0, 2.0, 3.0, 7.0], 10), Cells(1.0, 0.0)),
        (np.repeat([0.0, 1.0, 2.0, 3.0], 10), Cells(1.0, 0.5)),
        (np.repeat([0.25, 0.75, 1.25], 10), Cells(0.5, 0.25)),
        (np.repeat(np.arange(1, 21) * 0.1, 5), Cells(0.1, 0.0)),
        (np.repeat(np.float32([7.3, 14.6, 21.9]).astype(float), 6), Cells(7.3, 0.0)),
        (np.repeat([1.0, 2.0, 3.0, 7.0], 4), None),  # too few at each time
        (np.repeat([1.0, 2.0, 3.17, 7.0], 10), None),  # no even grid
        (np.random.default_rng(0).exponential(size=100), None),
        (np.full(20, 3.0), None),  # one time tells no step
        (np.zeros(20), None),
    ],
)
def test_an_even_grid_with_many_ties_is_found(times, cells):
    found = Cells.found(outcome(times))
    if cells is None:
        assert found is None
    else:
        assert (found.width, found.ahead) == pytest.approx((cells.width, cells.ahead), rel=1e-6)


def test_censored_times_are_part_of_the_grid_but_not_of_the_ties():
    times, event = np.r_[np.repeat([2.0, 4.0], 6), 3.0, 5.0], np.r_[np.ones(12, bool), False, False]
    assert Cells.found(outcome(times, event)) == Cells(1.0, 0.0)
    assert Cells.found(outcome(np.repeat([1.0, 2.0], 50), False)) is None
    off_grid = np.r_[np.repeat([2.0, 4.0], 6), 3.3]
    assert Cells.found(outcome(off_grid, np.r_[np.ones(12, bool), False])) is None


def test_events_lie_in_their_cells_no_earlier_than_their_entry():
    y = outcome([2.0, 2.0, 0.5], [True, False, True], entry=[1.5, 0.0, 0.0])
    made = Cells(1.0, 0.0).of(y)
    assert made.event.tolist() == [False, False, False]
    assert made.time.tolist() == [1.5, 2.0, 0.0]
    assert made.upper.tolist() == [2.0, np.inf, 0.5]
    assert Cells(1.0, 0.0).widths(y).tolist() == [0.5, 1.0, 0.5]


# ------------------------------------------------------------------ scoring


def test_the_likelihood_of_a_cell_is_its_mean_density():
    y = Surv.from_arrays([True, False, True], [2.0, 2.0, 0.5])
    d = Weibull([2.0, 3.0, 2.0], [1.5, 1.0, 1.5])
    s = d.survival([1.0, 2.0, 0.5])
    expected = [np.log(s[0, 0] - s[0, 1]), np.log(s[1, 1]), np.log((1 - s[2, 2]) / 0.5)]
    np.testing.assert_allclose(log_likelihood(d, y, resolution=Cells(1.0, 0.0)), expected, rtol=1e-12)


def test_evaluate_takes_the_cells_of_the_model_and_says_so():
    X, _, y = simulated(300, 0)
    model = SumoNet(**TINY).fit(X, y)
    assert model.resolution_ == pytest.approx(0.4)
    table = evaluate(model, X, y, scores=["log_likelihood", "d_calibration", "integrated_brier"], n_bootstrap=0)
    assert table["times"].tolist()[:2] == ["cells of 0.4"] * 2
    assert table["value"][0] == pytest.approx(model.score(X, y))
    inside = evaluate(model.predict_distribution(X), None, model.cells_.of(check_outcome(y)), n_bootstrap=0)
    assert table["value"][1] == inside.set_index("score")["value"]["d_calibration"]
    exact = evaluate(model, X, y, scores="log_likelihood", n_bootstrap=0, resolution=None)
    assert exact["times"].tolist() == [""]
    assert exact["value"][0] == pytest.approx(log_likelihood(model.predict_distribution(X), y).mean())


# ------------------------------------------------------------------ training


def test_continuous_times_are_left_alone():
    X, _, y = simulated(120, 1)
    y["time"] += np.random.default_rng(0).uniform(-0.1, 0.1, len(y))
    auto, exact = (SumoNet(resolution=width, **TINY).fit(X, y) for width in ("auto", None))
    assert auto.resolution_ is None
    np.testing.assert_array_equal(auto.predict_median(X), exact.predict_median(X))


def test_training_maximises_the_probability_of_cells(tmp_path):
    X, _, y = simulated(300, 2)
    alone = TINY | {"components": "networks"}
    found, given = SumoNet(**alone).fit(X, y), SumoNet(resolution=0.4, **alone).fit(X, y)
    np.testing.assert_allclose(found.predict_median(X), given.predict_median(X), rtol=1e-4)
    by_interval = SumoNet(**alone).fit(X, given.cells_.of(check_outcome(y)).array())
    # the same terms, but for time features, which are learned from the recorded times
    np.testing.assert_allclose(found.predict_median(X), by_interval.predict_median(X), rtol=0.2)
    best = found.history_.groupby("member")["valid"].max()
    assert np.abs(best - found.best_valid_).max() < 1e-12
    assert abs(found.best_valid_.mean() - found.score(X, y)) < 0.2  # told in the same unit
    found.save(tmp_path / "m")
    from sumosurv import load

    assert load(tmp_path / "m").cells_ == found.cells_


def test_of_rounded_times_the_curve_stays_smooth_and_near_the_truth():
    X, _, y = simulated(1000, 3, cells=8)
    X_test, scale, y_test = simulated(1000, 4, cells=8)
    options = {"n_members": 2, "max_epochs": 60, "covariate_layers": (16,), "frequencies": 0, "random_state": 0}
    options["components"] = "networks"
    cells = Cells(1.0, 0.0)
    truth = Weibull(scale, 1.5)
    true = log_likelihood(truth, y_test, resolution=cells).mean()
    gap, ratio = {}, {}
    for width in ("auto", None):
        d = SumoNet(resolution=width, **options).fit(X, y).predict_distribution(X_test)
        gap[width] = true - log_likelihood(d, y_test, resolution=cells).mean()
        grid = np.linspace(0.5, 2.5, 41)
        share = d.density(grid) / truth.density(grid)
        ratio[width] = np.quantile(share, 0.95) / np.quantile(share, 0.05)
    assert gap["auto"] < 0.02 < gap[None]
    assert ratio["auto"] < 3 < ratio[None]


@pytest.mark.parametrize("width", [0, -1.0, np.inf, True, "day", np.nan])
def test_a_resolution_that_is_none_is_refused(width):
    with pytest.raises(ValueError, match=r"resolution .*'auto' .*None; got"):
        SumoNet(resolution=width).fit(np.zeros((2, 1)), Surv.from_arrays([True, True], [1.0, 2.0]))


def test_a_clock_that_starts_at_the_first_time_starts_with_its_cell():
    X, _, y = simulated(400, seed=3, cells=20)
    later = Surv.from_arrays(y["event"], y["time"] + 4.0)
    model = SumoNet(time_origin="first", **TINY).fit(X, later)
    width = 0.4
    assert model.time_origin_ == pytest.approx(later["time"].min() - width)
    assert np.isfinite(log_likelihood(model.predict_distribution(X), later, resolution=model.cells_)).all()
