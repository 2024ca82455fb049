"""Pictures of competing risks show what the distribution and Aalen-Johansen say."""

from __future__ import annotations

import numpy as np
import pytest

from sumosurv import AalenJohansen, Surv
from sumosurv.distributions import CauseMixture, Tabulated, Weibull
from sumosurv.nonparametric import aalen_johansen
from sumosurv.plots import plot_calibration, plot_incidences, plot_risk_groups
from sumosurv.scores import group_calibration

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


def rows(n=120):
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([2.0, 2.0], n)
    d = CauseMixture(np.log(shares), [Weibull(rng.uniform(0.5, 2, n), 1.2), Weibull(rng.uniform(1, 3, n), 1.0)])
    time, cause = d.sample(random_state=rng, return_causes=True)
    end = rng.exponential(3.0, n)
    return d, Surv.from_arrays(np.where(time <= end, cause, 0), np.minimum(time, end))


D, Y = rows()


def test_areas_are_the_incidences_of_the_subject():
    ax = plot_incidences(D, subject=3, horizon=4.0, labels=["relapse", "death"], unit="years", last_time=2.0)
    areas = ax.collections
    assert [area.get_label() for area in areas] == ["relapse", "death", "no event yet"]
    stacked = np.cumsum(D[3].cumulative_incidence(4.0)[0])
    tops = []
    for area in areas:
        points = area.get_paths()[0].vertices
        tops.append(points[np.isclose(points[:, 0], 4.0), 1].max())
    np.testing.assert_allclose(tops, [*stacked, 1.0], atol=1e-12)
    assert ax.get_xlabel() == "time (years)"
    assert any("extrapolated" in text.get_text() for text in ax.texts)
    assert ax.get_xlim() == (0.0, 4.0)
    near = plot_incidences(D, horizon=4.0, last_time=3.5)
    assert [text.get_text() for text in near.texts] == ["end of follow-up"]


def test_incidences_past_the_last_training_time_are_shaded_unasked():
    d = AalenJohansen().fit(np.zeros((len(D), 1)), Y).predict_distribution(np.zeros((len(D), 1)))
    last = float(Y["time"].max())
    assert d.last_time == d.cause(1).last_time == d[3:].last_time == d.conditional(0.1).last_time == last
    for ax in (
        plot_incidences(d, horizon=2 * last),
        plot_risk_groups(d, Y, cause=1, groups=2, times=np.linspace(0.0, 2 * last, 50)),
    ):
        (patch,) = ax.patches
        span = patch.get_extents().transformed(ax.transData.inverted())
        assert (span.x0, span.x1) == pytest.approx((last, 2 * last))
        assert [text.get_text() for text in ax.texts] == ["extrapolated"]
    assert not plot_incidences(d, horizon=2 * last, last_time=False).patches


def test_the_horizon_is_where_hardly_anybody_is_left():
    assert plot_incidences(D).get_xlim()[1] == pytest.approx(D[0].quantile(0.98)[0])
    flat = Tabulated([1.0, 2.0], incidence=[[0.1, 0.1], [0.2, 0.2]])
    assert plot_incidences(flat, last_time=7.0).get_xlim()[1] == 7.0
    assert plot_incidences(D, last_time=0.1).get_xlim()[1] == pytest.approx(0.1)


def test_groups_show_predicted_and_observed_incidence():
    grid = np.linspace(0.0, Y["time"].max(), 50)
    ax = plot_risk_groups(D, Y, cause=2, groups=3, times=grid, label="death", unit="years")
    curves = D.cumulative_incidence(grid)[..., 1]
    order = np.argsort(curves.mean(axis=1), kind="stable")
    lines = ax.get_lines()
    for i, part in enumerate(np.array_split(order, 3)):
        observed, predicted = lines[2 * i], lines[2 * i + 1]
        expected = aalen_johansen(Y[part], causes=2).cumulative_incidence(observed.get_xdata())[0, :, 1]
        np.testing.assert_allclose(observed.get_ydata(), expected)
        last = int(np.argmax(Y["time"][part]))
        if Y["event"][part][last]:  # everyone had an event: the curve stays where it is
            assert observed.get_xdata().max() == grid[-1]
        else:
            assert observed.get_xdata().max() <= Y["time"][part].max()
        np.testing.assert_allclose(predicted.get_ydata(), curves[part].mean(axis=0))
    assert ax.get_ylabel() == "cumulative incidence of death"
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0] == "group 1 (lowest risk)"
    assert texts[-2:] == ["Aalen-Johansen", "predicted, mean of the group"]


def test_points_are_the_groups_of_the_calibration():
    result = group_calibration(D, Y, 1.0, cause=1, groups=4)
    ax = plot_calibration(result, label="model")
    points = ax.containers[0].lines[0]
    np.testing.assert_allclose(points.get_xdata(), result.predicted)
    np.testing.assert_allclose(points.get_ydata(), result.observed)
    assert ax.get_title() == "Cause 1 at time 1"
    whole = group_calibration(D, Y, 1.0)
    assert plot_calibration(whole).get_title() == f"At time 1, p = {whole.p_value:.3g}"


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="2 competing causes; got 1"):
        plot_incidences(D, labels=["one"])
    with pytest.raises(ValueError, match="from 1 to 2"):
        plot_risk_groups(D, Y, cause=3)


def test_a_subject_that_is_not_there():
    with pytest.raises(ValueError, match=rf"no subject 999; .* {len(D)}"):
        plot_incidences(D, subject=999)
