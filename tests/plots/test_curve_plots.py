import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from sumosurv import CoxPH, KaplanMeier, Surv, WeibullNet
from sumosurv.distributions import Rescaled, Weibull
from sumosurv.plots import plot_risk_groups, plot_survival, plot_training

mpl.use("Agg")


def test_survival_curves_with_median_and_life_expectancy():
    scale = np.array([1.0, 2.0])
    ax = plot_survival(Weibull(scale, 1.0), horizon=1.5, labels=["short", "long"], last_time=1.2, unit="years")
    curves = [line for line in ax.lines if len(line.get_xdata()) > 1]
    grid = curves[0].get_xdata()
    assert grid[0] == 0.0
    assert grid[-1] == 1.5
    for curve, s in zip(curves, scale):
        np.testing.assert_allclose(curve.get_ydata(), np.exp(-grid / s), rtol=1e-12)
    marks = {
        (line.get_marker(), round(float(line.get_xdata()[0]), 6)): line
        for line in ax.lines
        if line.get_marker() != "None"
    }
    # medians at s log 2 and means at s; those past 1.5 are left out
    assert set(marks) == {("o", round(np.log(2), 6)), ("o", round(2 * np.log(2), 6)), ("^", 1.0)}
    assert marks["^", 1.0].get_ydata()[0] == pytest.approx(np.exp(-1.0))
    shaded = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    assert (shaded.x0, shaded.x1) == pytest.approx((1.2, 1.5))
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["short", "long", "median", "life expectancy"]
    assert ax.get_xlabel() == "time (years)"


def test_survival_curves_end_where_they_are_low():
    ax = plot_survival(Weibull([1.0, 2.0], 1.0))
    assert ax.get_xlim()[1] == pytest.approx(-2.0 * np.log(0.02))
    assert plot_survival(Weibull([1.0, 2.0], 1.0), last_time=2.5).get_xlim()[1] == pytest.approx(2.5)


def shaded(ax):
    """Where what lies beyond the data begins and ends; nothing where nothing is shaded."""
    spans = [patch.get_extents().transformed(ax.transData.inverted()) for patch in ax.patches]
    return [(round(float(span.x0), 9), round(float(span.x1), 9)) for span in spans]


def test_what_a_model_predicts_past_its_last_training_time_is_shaded_unasked():
    rng = np.random.default_rng(0)
    X, time = rng.normal(size=(60, 1)), rng.exponential(1.0, 60)
    y = Surv.from_arrays(time < 1.5, np.minimum(time, 1.5))
    for model in (CoxPH(), KaplanMeier(), WeibullNet(n_members=1, max_epochs=1, random_state=0)):
        d = model.fit(X, y).predict_distribution(X)
        assert model.last_time_ == d.last_time == d[:2].last_time == 1.5
        assert shaded(plot_survival(d[:2], horizon=4.0)) == [(1.5, 4.0)]
        assert shaded(plot_survival(d[:2], horizon=4.0, last_time=3.0)) == [(3.0, 4.0)]
        assert shaded(plot_survival(d[:2], horizon=4.0, last_time=False)) == []
        assert shaded(plot_survival(d[:2], horizon=1.4)) == []
        assert shaded(plot_survival(Rescaled(d[:2], 12.0), horizon=48.0)) == [(18.0, 48.0)]
        assert shaded(plot_survival(d[:2].conditional(1.0), horizon=4.0)) == [(1.5, 4.0)]
        assert shaded(plot_survival(d[:2].remaining(1.0), horizon=4.0)) == [(0.5, 4.0)]
        later = Surv.from_arrays(np.ones(60, bool), 2 * time / time.max())
        assert shaded(plot_risk_groups(d, later, groups=2)) == [(1.5, 2.0)]
        assert shaded(plot_risk_groups(d, later, groups=2, last_time=False)) == []
        plt.close("all")
    assert d.remaining([1.0] + 59 * [0.5]).last_time is None  # each subject has its own time origin
    assert Weibull([1.0], 1.0).last_time is None
    assert shaded(plot_survival(Weibull([1.0], 1.0), horizon=4.0)) == []
    with pytest.raises(ValueError, match=r"last_time.*False.*got True"):
        plot_survival(d[:2], last_time=True)


def test_risk_groups_against_kaplan_meier(lifelines):
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 3.0, 90)
    t, c = scale * rng.exponential(1.0, 90), rng.exponential(2.0, 90)
    event, time = t <= c, np.minimum(t, c)
    grid = np.array([0.0, 0.3, 0.8, 1.5])
    ax = plot_risk_groups(Weibull(scale, 1.0), Surv.from_arrays(event, time), groups=3, times=grid)
    observed, predicted = ax.lines[0::2], ax.lines[1::2]
    assert len(observed) == len(predicted) == 3
    for g, rows in enumerate(np.array_split(np.argsort(-scale), 3)):  # the longest scale is the lowest risk
        km = lifelines.KaplanMeierFitter().fit(time[rows], event[rows]).survival_function_at_times(grid)
        np.testing.assert_allclose(observed[g].get_ydata(), km, atol=1e-12)
        np.testing.assert_allclose(predicted[g].get_ydata(), np.exp(-grid[:, None] / scale[rows]).mean(axis=1))
    assert predicted[0].get_label() == "group 1 (lowest risk)"
    assert predicted[2].get_label() == "group 3 (highest risk)"


def test_training_history():
    history = pd.DataFrame(
        {
            "epoch": [0, 1, 0, 1],
            "member": [0, 0, 1, 1],
            "train": [-2.0, -1.5, -2.2, -1.7],
            "valid": [-2.1, -1.8, -2.3, -1.6],
            "component": "network",
        }
    )
    ax = plot_training(history, baseline=-1.9)
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(lines["training rows (dropout on)"].get_ydata(), [-2.1, -1.6])
    np.testing.assert_allclose(lines["validation rows"].get_ydata(), [-2.2, -1.7])
    np.testing.assert_array_equal(lines["validation rows"].get_xdata(), [1, 2])
    members = [line for line in ax.lines if line.get_linewidth() < 1]
    np.testing.assert_allclose(members[1].get_ydata(), [-2.2, -1.7])
    assert lines["Kaplan-Meier on validation rows"].get_ydata()[0] == -1.9
    low, high = ax.get_ylim()
    assert low < -1.9
    assert high > -1.5
    several = plot_training(pd.concat([history.assign(component="a"), history.assign(component="b", valid=-1.0)]))
    thick = [line for line in several.lines if line.get_linewidth() > 2]
    assert len(thick) == 4  # a mean of each kind, on training and on validation rows
    np.testing.assert_allclose(thick[3].get_ydata(), -1.0)
    assert [text.get_text() for text in several.texts] == ["a", "b"]
    for text, line in zip(several.texts, thick[2:]):  # beside the end of its curve
        gap = text.get_window_extent().p0 - several.transData.transform(line.get_xydata()[-1])
        assert 0 < gap[0] < 10
        assert abs(gap[1]) < 10
    without = plot_training(history.assign(valid=np.nan))
    assert "validation rows" not in {line.get_label() for line in without.lines}


def test_training_of_a_model():
    X = np.linspace(0, 1, 40)[:, None]
    model = WeibullNet(n_members=2, max_epochs=3, random_state=0).fit(
        X, Surv.from_arrays(np.ones(40, bool), 1 + X[:, 0])
    )
    drawn = [line.get_ydata() for line in plot_training(model.history_).lines]
    for line, expected in zip(plot_training(model).lines, drawn, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), expected)
    with pytest.raises(TypeError, match="CoxPH has no history"):
        plot_training(CoxPH())
