"""Pictures that judge a model or compare groups show the figures that they are made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sumosurv import CoxPH, CoxPHCV, KaplanMeier, Surv, WeibullNet, confidence_band, datasets, kaplan_meier
from sumosurv.calibrate import smooth_calibration
from sumosurv.distributions import Weibull
from sumosurv.nonparametric import turnbull_intervals
from sumosurv.plots import (
    plot_calibration,
    plot_decision_curve,
    plot_hazard_ratios,
    plot_kaplan_meier,
    plot_penalty_path,
    plot_score,
    plot_survival,
)
from sumosurv.scores import decision_curve, group_calibration

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
to_rgba = pytest.importorskip("matplotlib.colors").to_rgba


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    scale = np.exp(0.7 * rng.normal(size=n))
    t, c = scale * rng.weibull(1.4, n), rng.exponential(1.5, n)
    return Weibull(scale, 1.4), Surv.from_arrays(t <= c, np.minimum(t, c))


D, Y = rows()
BY = pd.Series(np.where(np.arange(200) % 3, "new", "old"), name="drug")


def test_decision_curves_of_several_models():
    curves = {"a": decision_curve(D, Y, 0.8, n_bootstrap=20, random_state=0)}
    curves["b"] = decision_curve(Weibull(np.ones(200), 1.4), Y, 0.8, n_bootstrap=0)
    ax = plot_decision_curve(curves, thresholds=(0.1, 0.5))
    for line, name in zip(ax.lines, ("a", "b")):
        table = curves[name].table.loc[0.1:0.5]
        np.testing.assert_array_equal(line.get_xdata(), table.index)
        np.testing.assert_array_equal(line.get_ydata(), table["net_benefit"])
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), curves["a"].table.loc[0.1:0.5, "treat_all"])
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["a", "b", "treat all", "treat none", "95% limits"]
    assert ax.get_xlabel() == "threshold for the risk at time 0.8"
    assert plot_decision_curve(curves["a"]).get_xlim()[1] <= D.cdf(0.8).max()
    with pytest.raises(ValueError, match="all at the same time"):
        plot_decision_curve({"a": curves["a"], "b": decision_curve(D, Y, 0.5, n_bootstrap=0)})


def test_smooth_calibration_with_limits_and_a_histogram():
    result = smooth_calibration(D, Y, 0.8, n_bootstrap=10, random_state=0)
    ax = plot_calibration(result)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), result.curve)
    assert len(ax.collections) == 1
    heights = np.array([bar.get_height() for bar in ax.patches])
    counts, _ = np.histogram(result.predicted, bins=40, range=(0.0, ax.get_xlim()[1]))
    np.testing.assert_allclose(heights / heights.max(), counts / counts.max())
    assert ax.get_title().startswith(f"ICI {result.ici:.3f}, E50 {result.e50:.3f}")
    one = plot_calibration(result, label="first", ax=plt.figure().subplots())
    two = plot_calibration(smooth_calibration(Weibull(np.ones(200) * 2, 1.4), Y, 0.8), label="second", ax=one)
    texts = [text.get_text().split(",")[0] for text in two.get_legend().get_texts()]
    assert texts == ["first", "second"]
    assert two.lines[1].get_color() != two.lines[2].get_color()


def test_kaplan_meier_curves_limits_and_numbers_at_risk():
    ax = plot_kaplan_meier(Y, BY, unit="years")
    assert ax.get_legend().get_title().get_text() == "drug"
    for i, name in enumerate(("new", "old")):
        own = Y[name == BY]
        line = ax.lines[2 * i]
        np.testing.assert_allclose(line.get_ydata(), kaplan_meier(own).survival(line.get_xdata())[0])
        assert line.get_xdata()[-1] == own["time"].max()
        marks = ax.lines[2 * i + 1]
        assert len(marks.get_xdata()) == (~own["event"]).sum()
        limits = confidence_band(own)
        edges = ax.collections[i].get_paths()[0].vertices[:, 1]
        assert np.nanmin(edges) == pytest.approx(limits["lower"].min())
    texts = [text.get_text() for text in ax.texts]
    ticks = [tick for tick in ax.get_xticks() if 0 <= tick <= Y["time"].max()]
    assert texts[:2] == ["at risk", "new"]
    expected = [str(int((Y["time"][BY == "new"] >= tick).sum())) for tick in ticks]
    assert texts[2 : 2 + len(ticks)] == expected
    assert ax.get_xlabel() == "time (years)"


def test_kaplan_meier_of_one_group_with_late_entry_and_weights():
    entry = 0.5 * Y["time"]
    late = Surv.from_arrays(Y["event"], Y["time"], entry)
    ax = plot_kaplan_meier(late, horizon=1.0, censoring=False, level=None, sample_weight=np.full(200, 2))
    assert ax.get_legend() is None
    assert ax.get_xlim() == (0.0, 1.0)
    assert not ax.collections
    tick = ax.get_xticks()[2]
    number = int(ax.texts[2 + 2].get_text())
    assert number == 2 * ((entry < tick) & (Y["time"] >= tick)).sum()
    assert not plot_kaplan_meier(Y, risk_table=False).texts
    with pytest.raises(ValueError, match=r"200 rows; got shape \(1,\)"):
        plot_kaplan_meier(Y, by=["a"])
    with pytest.raises(ValueError, match="by is missing"):
        plot_kaplan_meier(Y, by=[None, *["a"] * 199])


@pytest.mark.parametrize("groups", [1, 5, 9])
def test_every_number_at_risk_is_inside_the_picture(groups):
    ax = plot_kaplan_meier(Y, np.arange(200) % groups)
    ax.figure.draw_without_rendering()
    whole = ax.figure.bbox
    lines = [text.get_window_extent() for text in ax.texts if text.get_text()]
    assert len({round(line.y0) for line in lines}) == groups + 1  # a heading, and a line per group
    assert all(whole.x0 <= line.x0 and line.x1 <= whole.x1 and line.y0 >= whole.y0 for line in lines)
    assert max(line.y1 for line in lines) <= ax.xaxis.label.get_window_extent().y0


def test_interval_censored_rows_have_a_turnbull_curve():
    y = Surv.interval([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 4.0, np.inf])
    found = turnbull_intervals(y)
    ax = plot_kaplan_meier(y, unit="years")
    (line,) = ax.lines
    drawn = np.interp([0.5, 1.0, 2.5, 3.5, 4.0], line.get_xdata(), line.get_ydata())
    np.testing.assert_allclose(drawn, found.survival([0.5, 1.0, 2.5, 3.5, 4.0]), atol=1e-9)
    boxes = [box.get_paths()[0].get_extents() for box in ax.collections]
    assert [(box.x0, box.x1) for box in boxes] == list(zip(found.lower, found.upper))
    np.testing.assert_allclose([box.height for box in boxes], found.mass, atol=1e-9)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["not determined by the data"]
    assert ax.texts[0].get_text() == "event-free"
    two = plot_kaplan_meier(y, by=["a", "b", "a", "b"])
    assert [text.get_text() for text in two.get_legend().get_texts()][:2] == ["a", "b"]


def test_a_forest_of_hazard_ratios():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": 10 * rng.normal(size=200), "sex": rng.choice(["f", "m"], 200), "same": 1.0})
    with pytest.warns(UserWarning, match="Columns left out"):
        model = CoxPH().fit(X, Y)
    table = model.summary(0.9).coefficients
    ax = plot_hazard_ratios(model, level=0.9, per={"age": 10})
    assert [text.get_text() for text in ax.get_yticklabels()] == ["age, per 10", "sex[m]", "same"]
    ratios = ax.lines[1].get_xdata()
    assert ratios[:2] == pytest.approx([table.loc["age", "hazard_ratio"] ** 10, table.loc["sex[m]", "hazard_ratio"]])
    segments = ax.collections[0].get_segments()
    assert segments[1][:, 0] == pytest.approx(
        table.loc["sex[m]", ["hazard_ratio_lower", "hazard_ratio_upper"]].to_numpy(float)
    )
    assert ax.texts[2].get_text() == "left out"
    assert ax.get_xscale() == "log"
    with pytest.raises(ValueError, match=r"'weight'.*'age'"):
        plot_hazard_ratios(model, per={"weight": 1})
    with pytest.raises(TypeError, match="CoxPH; got KaplanMeier"):
        plot_hazard_ratios(KaplanMeier())


def test_a_band_around_survival_curves():
    data = datasets.simulate("weibull", 150, random_state=0)
    model = WeibullNet(n_members=3, max_epochs=2, random_state=0).fit(data.X, data.y)
    d, members = model.predict_distribution(data.X[:2]), model.predict_members(data.X[:2])
    ax = plot_survival(d, band=members, level=0.8, horizon=1.0)
    lower, upper = model.predict_survival_band(data.X[:2], [1.0], 0.8)
    for i in range(2):
        points = ax.collections[i].get_paths()[0].vertices
        at_end = points[np.isclose(points[:, 0], 1.0), 1]
        assert at_end.min() == pytest.approx(lower[i, 0])
        assert at_end.max() == pytest.approx(upper[i, 0])
    assert [text.get_text() for text in ax.get_legend().get_texts()][-1] == "80% of the networks"
    with pytest.raises(ValueError, match="predict_members"):
        plot_survival(d[:1], band=members)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_decision_curve(decision_curve(D, Y, 0.8, n_bootstrap=0)),
        lambda: plot_calibration(smooth_calibration(D, Y, 0.8)),
        lambda: plot_kaplan_meier(Y, BY),
        lambda: plot_hazard_ratios(CoxPH().fit(np.arange(200.0)[:, None] % 7, Y)),
    ],
)
def test_pyplot_saves_what_was_drawn(draw, tmp_path):
    draw()
    plt.savefig(tmp_path / "picture.png")
    pixels = plt.imread(tmp_path / "picture.png")[..., :3]
    assert (pixels < 0.9).any(axis=2).mean() > 0.01


def test_one_point_is_seen():
    """A model without covariates has one prediction, and a score may be drawn at one time: a line would not show."""
    same = smooth_calibration(Weibull(np.ones(200), 1.4), Y, 0.8, n_bootstrap=10, random_state=0)
    assert plot_calibration(same).lines[1].get_marker() == "o"
    assert plot_score(D, Y, times=0.8, n_bootstrap=10).lines[0].get_marker() == "o"
    assert plot_score(D, Y, times=[0.5, 0.8], n_bootstrap=0).lines[0].get_marker() == "None"


def test_what_would_be_an_empty_picture_is_refused():
    never, last = Surv.from_arrays(np.zeros(200, bool), Y["time"]), Y["time"].max()
    with pytest.raises(ValueError, match="There is nothing to draw"):
        plot_score(D, never, "cumulative_dynamic_auc")
    with pytest.raises(ValueError, match="Nobody is followed past time"):
        plot_score(D, Y, times=[2 * last])
    with pytest.raises(ValueError, match="Nobody is followed up to time"):
        plot_decision_curve(decision_curve(D, Y, 2 * last, n_bootstrap=0))


def test_calibration_of_several_models_has_the_test_of_each():
    first, second = group_calibration(D, Y, 0.8), group_calibration(Weibull(D.scale[:, 0] * 2, 1.4), Y, 0.8)
    ax = plot_calibration(second, label="second", ax=plot_calibration(first, label="first"))
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [f"first, p = {first.p_value:.3g}", f"second, p = {second.p_value:.3g}"]
    assert ax.get_title() == "At time 0.8"
    assert [c.get_color()[0].tolist() for c in ax.collections] == [list(to_rgba(c)) for c in ("#0072B2", "#D55E00")]


def test_many_groups_can_be_told_apart_and_their_legend_hides_nothing():
    ax = plot_kaplan_meier(Y, np.arange(200) % 9, level=None, censoring=False)
    looks = {(line.get_color(), str(line.get_linestyle()) + str(line._dash_pattern)) for line in ax.lines}
    assert len(looks) == 9
    ax.figure.draw_without_rendering()
    inside, legend = ax.get_window_extent(), ax.get_legend().get_window_extent()
    assert legend.x0 >= inside.x1 - 1


def test_a_penalty_path_has_a_line_for_each_coefficient():
    X = np.random.default_rng(0).normal(size=(len(Y), 4))
    model = CoxPHCV(cv=2, n_alphas=8, random_state=0).fit(X, Y)
    ax = plot_penalty_path(model, max_names=2)
    curves = [line.get_ydata() for line in ax.get_lines()[:4]]
    np.testing.assert_array_equal(curves, model.coef_path_.T)
    assert ax.get_lines()[4].get_xdata()[0] == model.alpha_
    largest = {model.terms_[j] for j in np.argsort(-np.abs(model.coef_), kind="stable")[:2]}
    assert {text.get_text() for text in ax.get_legend().get_texts()} == largest
    with pytest.raises(TypeError, match="CoxPHCV"):
        plot_penalty_path(CoxPH())
