"""Every picture shows the numbers it is made of: labels, limits, legends, and numbers of lines, bands and marks."""

from __future__ import annotations

import inspect

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from sumosurv import CoxPH, CoxPHCV, Surv, plots
from sumosurv.calibrate import smooth_calibration
from sumosurv.distributions import CauseMixture, Weibull
from sumosurv.explain import Contrast, Effect, Importance, Quantity, SurvShap
from sumosurv.plots import (
    plot_calibration,
    plot_contrast,
    plot_decision_curve,
    plot_effect,
    plot_hazard_ratios,
    plot_importance,
    plot_incidences,
    plot_kaplan_meier,
    plot_penalty_path,
    plot_risk_groups,
    plot_score,
    plot_survival,
    plot_survshap,
    plot_training,
)
from sumosurv.scores import calibration, d_calibration, decision_curve, evaluate, group_calibration

mpl.use("Agg")

RNG = np.random.default_rng(0)
N = 60
SCALE = np.exp(0.7 * RNG.normal(size=N))
EVENT_TIME, END = SCALE * RNG.weibull(1.4, N), RNG.exponential(1.5, N)
D, Y = Weibull(SCALE, 1.4), Surv.from_arrays(EVENT_TIME <= END, np.minimum(EVENT_TIME, END))
ARM = pd.Series(pd.Categorical(["u", "v"] * 30, ["v", "u", "w"]), name="arm")
LAST = float(Y["time"].max())
TWO = CauseMixture(np.zeros((3, 2)), [Weibull([1.0, 2.0, 3.0], 1.0)] * 2)
TIMES = np.array([0.5, 1.0, 1.5, 2.0])
CURVE = Quantity("survival", TIMES, None, 1.2)
MEDIAN = Quantity("median", np.empty(0), None, 1.2)
LOST = Quantity("restricted_time_lost", TIMES[:1], 2, 1.2)
X = pd.DataFrame({f"x{j}": RNG.normal(size=5) for j in range(12)} | {"c": list("uvuvu")}, index=list("abcde"))
X.loc["b", "x0"] = np.nan


def effect(quantity=CURVE, method="partial dependence", kinds=("number",), limits=True, level=0.9):
    grids = {"number": np.array([-1.0, 0.0, 2.0]), "category": np.array(["u", "v"], dtype=object)}
    grid = tuple(grids[kind] for kind in kinds)
    mean = np.random.default_rng(1).random((*map(len, grid), len(quantity.columns)))
    of_rows = mean + np.linspace(-0.1, 0.1, 90)[:, None, None] if method[0] == "p" and len(kinds) == 1 else None
    observed = tuple(np.resize(values, 90) for values in grid)
    low, high = (mean - 0.1, mean + 0.2) if limits else (None, None)
    names = ("a", "b")[: len(kinds)]
    return Effect(method, names, kinds, grid, quantity, mean, low, high, level, of_rows, observed, 90)


def shapley(quantity=CURVE):
    size = np.arange(13.0, 0.0, -1.0)[:, None]  # the first column is the most important one
    values = size * np.random.default_rng(1).uniform(0.9, 1.0, size=(5, 13, len(quantity.columns)))
    base = np.full(len(quantity.columns), 0.5)
    return SurvShap(tuple(X.columns), quantity, values, base, base + values.sum(axis=1), None, X, X)


def importance(times, causes=(np.nan,), score="brier"):
    rows = [(f"x{j}", score, k, t, 1.0 / (j + 1), 0.9 / (j + 1), 1.2 / (j + 1), 0.1)
            for k in causes for j in range(14) for t in times]  # fmt: skip
    table = pd.DataFrame(rows, columns=["column", "score", "cause", "time", "value", "low", "high", "std_error"])
    return Importance(table, table[:0], 5, 0.95)


def difference(limits_from="members", quantity=CURVE):
    curves = np.stack([np.exp(-TIMES), np.exp(-2 * TIMES)])
    gap = curves[0] - curves[1]
    known = limits_from != "none"
    limits = (curves - 0.01, curves + 0.02) if known else (None, None)
    of_gap = (gap - 0.01, gap + 0.02) if known else (None, None)
    return Contrast(
        ("one", "other"), quantity, curves, *limits, gap, *of_gap, pd.DataFrame(), limits_from, 0.9, 7, "no cause"
    )


HISTORY = pd.DataFrame(
    {"epoch": [0, 1] * 2, "member": [0, 0, 1, 1], "train": [-2.0, -1.5, -2.2, -1.7], "valid": [-2.1, -1.8, -2.3, -1.6]}
).assign(component="network")
COX = CoxPH().fit(pd.DataFrame({"age": 10 * np.log(SCALE), "site": np.arange(N) % 3}), Y)
COX_CV = CoxPHCV(cv=2, n_alphas=5, random_state=0).fit(RNG.normal(size=(N, 3)), Y)
NET = decision_curve(D, Y, 0.5, n_bootstrap=10, random_state=0)
SMOOTH = smooth_calibration(D, Y, 0.5, n_bootstrap=5, random_state=0)
GROUPS = group_calibration(D, Y, 0.5, groups=4)
BINS, PLACES = d_calibration(D, Y, bins=5), calibration(D, Y)
BRIER = evaluate(D, None, Y, scores={"brier": {"times": [0.3, 0.6]}}, n_bootstrap=10, censoring="marginal")
AUC = evaluate(D, None, Y, scores={"cumulative_dynamic_auc": {"times": [0.3, 0.6]}}, censoring="marginal")
REACH = max(SMOOTH.predicted.max(), SMOOTH.curve.max(), np.nan_to_num(SMOOTH.upper).max())
UPPER = np.append(GROUPS.observed + 1.96 * GROUPS.std_error, GROUPS.predicted).max()
BY_AGE = COX.summary(0.8).coefficients[["hazard_ratio_lower", "hazard_ratio_upper"]].to_numpy()
BENEFIT = NET.table.loc[0.1:0.3, ["net_benefit", "net_benefit_upper", "treat_all"]].max().max()
REST = "other columns together"

# what is drawn, and what is seen: labels (x, y), limits, names in the legend, lines, bands, bars, points, texts, title
CASES = {
    "plot_survival": (
        lambda **o: plot_survival(D[:3], horizon=3.0, labels=["a", "b", "c"], last_time=1.2, unit="years", **o),
        {"x": "time (years)", "y": "survival probability S(t|x)", "xlim": (0, 3.0), "ylim": (0, 1.02),
         "legend": ["a", "b", "c", "median", "life expectancy"], "texts": ["extrapolated"],
         "lines": 3 + (np.append(D.median()[:3], D.mean()[:3]) <= 3.0).sum()},
    ),
    "plot_survival without names": (
        lambda **o: plot_survival(D[:2], horizon=0.1, **o),
        {"x": "time", "xlim": (0, 0.1), "legend": ["median", "life expectancy"], "lines": 2, "texts": []},
    ),
    "plot_incidences": (
        lambda **o: plot_incidences(TWO, subject=1, horizon=2.0, last_time=1.9, unit="days", **o),
        {"x": "time (days)", "y": "probability", "xlim": (0, 2.0), "ylim": (0, 1), "lines": 3,
         "legend": ["cause 1", "cause 2", "no event yet"], "bands": 3, "texts": ["end of follow-up"]},
    ),
    "plot_training": (
        lambda **o: plot_training(HISTORY, baseline=-1.0, **o),
        {"x": "epoch", "y": "mean log-likelihood (nats)", "lines": 2 * (2 + 1) + 1,
         "ylim": (np.quantile(HISTORY[["train", "valid"]], 0.03), -1.0), "ylim margin": (0.05, 0.08),
         "legend": ["training rows (dropout on)", "validation rows", "Kaplan-Meier on validation rows"]},
    ),
    "plot_training without a baseline": (
        lambda **o: plot_training(HISTORY, **o),
        {"lines": 6, "ylim": (np.quantile(HISTORY[["train", "valid"]], 0.03), -1.5), "ylim margin": (0.05, 0.08),
         "legend": ["training rows (dropout on)", "validation rows"]},
    ),
    "plot_kaplan_meier": (
        lambda **o: plot_kaplan_meier(Y, unit="years", risk_table=False, **o),
        {"x": "time (years)", "y": "survival probability", "xlim": (0, LAST), "ylim": (0, 1.02), "legend": None,
         "lines": 2, "bands": 1, "texts": []},
    ),
    "plot_kaplan_meier of groups": (
        lambda **o: plot_kaplan_meier(Y, ARM, level=None, censoring=False, risk_table=False, **o),
        {"x": "time", "lines": 2, "bands": 0, "legend": ["v", "u"]},
    ),
    "plot_risk_groups": (
        lambda **o: plot_risk_groups(D, Y, groups=3, unit="years", last_time=False, **o),
        {"x": "time (years)", "y": "survival probability", "xlim": (0, LAST), "ylim": (0, 1.02), "lines": 6,
         "legend": ["group 1 (lowest risk)", "group 2", "group 3 (highest risk)", "Kaplan-Meier",
                    "predicted, mean of the group"]},
    ),
    "plot_calibration of probabilities": (
        lambda **o: plot_calibration(PLACES, **o),
        {"x": "probability p", "y": "share of subjects with F(z|x) ≤ p", "xlim": (0, 1), "ylim": (0, 1), "lines": 2,
         "title": f"Calibration, score {PLACES.score:.3g}", "legend": None},
    ),
    "plot_calibration of bins": (
        lambda **o: plot_calibration(BINS, label="a", **o),
        {"y": "share of subjects", "xlim": (0, 1), "lines": 1, "bars": 5, "legend": ["a"],
         "title": f"D-calibration, p = {BINS.p_value:.3g}"},
    ),
    "plot_calibration of groups": (
        lambda **o: plot_calibration(GROUPS, **o),
        {"x": "predicted F(0.5|x), mean of group", "y": "one minus Kaplan-Meier", "legend": None,
         "xlim": (0, min(1.0, 1.08 * UPPER)), "ylim": (0, min(1.0, 1.08 * UPPER)),
         "title": f"At time 0.5, p = {GROUPS.p_value:.3g}"},
    ),
    "plot_calibration, smooth": (
        lambda **o: plot_calibration(SMOOTH, label="a", **o),
        {"x": "predicted F(0.5|x); bars: number of rows", "y": "observed risk, smoothed", "title": "", "lines": 2,
         "bands": 1, "xlim": (0, min(1.0, 1.05 * REACH)), "ylim": (0, min(1.0, 1.05 * REACH)), "bars": 40,
         "legend": [f"a, ICI {SMOOTH.ici:.3f}"]},
    ),
    "plot_score": (
        lambda **o: plot_score(D, Y, times=[0.3, 0.6], n_bootstrap=10, unit="days", last_time=0.4, **o),
        {"x": "time (days)", "y": "Brier score (lower is better)", "xlim": (0, 0.6), "lines": 1, "bands": 1,
         "ylim": (0, 1.08 * BRIER["high"].max()), "legend": None, "texts": ["extrapolated"]},
    ),
    "plot_score that chance has too": (
        lambda **o: plot_score({"a": D, "b": D}, Y, "cumulative_dynamic_auc", times=[0.3, 0.6], n_bootstrap=0, **o),
        {"lines": 3, "legend": ["a", "b"], "ylim": (min(0.45, AUC["value"].min() - 0.02), 1.0), "texts": ["chance"]},
    ),
    "plot_decision_curve": (
        lambda **o: plot_decision_curve(NET, thresholds=(0.1, 0.3), **o),
        {"x": "threshold for the risk at time 0.5", "y": "net benefit", "xlim": (0.1, 0.3), "lines": 3, "bands": 1,
         "legend": ["model", "treat all", "treat none", "95% limits"],
         "ylim": (-0.15 * BENEFIT, 1.08 * BENEFIT)},
    ),
    "plot_penalty_path": (
        lambda **o: plot_penalty_path(COX_CV, **o),
        {"x": "penalty α", "y": "coefficient", "xlim": (COX_CV.alphas_.max(), COX_CV.alphas_.min()), "lines": 4},
    ),
    "plot_hazard_ratios": (
        lambda **o: plot_hazard_ratios(COX, level=0.8, **o),
        {"x": "hazard ratio (80% limits)", "y": "", "ylim": (-0.7, 1.7), "lines": 2, "yticks": ["age", "site"],
         "log xlim": (min(BY_AGE.min(), 1.0), max(BY_AGE.max(), 1.0)), "log xlim margin": (0.06, 0.06)},
    ),
    "plot_effect": (
        lambda **o: plot_effect(effect(), times=[0.5, 2.0], unit="years", **o),
        {"x": "a", "y": "survival probability S(t)", "xlim": (-1.0, 2.0), "lines": 3, "bands": 2,
         "legend": ["t = 0.5 years", "t = 2 years", "90% of the networks", "deciles"]},
    ),
    "plot_effect with many times": (  # four of nine, evenly spread between the ends
        lambda **o: plot_effect(effect(Quantity("survival", np.arange(9.0), None, 1.2), limits=False), **o),
        {"lines": 5, "legend": ["t = 2", "t = 3", "t = 5", "t = 6", "deciles"]},
    ),
    "plot_effect at one time": (
        lambda **o: plot_effect(effect(limits=False), times=1.0, **o),
        {"lines": 60 + 1 + 1, "bands": 0, "legend": ["t = 1", "single rows", "deciles"]},
    ),
    "plot_effect of a category": (
        lambda **o: plot_effect(effect(MEDIAN, kinds=("category",)), unit="years", individual=False, **o),
        {"x": "a (share of rows)", "y": "median time (years)", "xlim": (-0.6, 1.6), "xticks": ["u\n50%", "v\n50%"],
         "lines": 1, "bars": 2, "legend": ["partial dependence", "90% of the networks"]},
    ),
    "plot_effect, local": (
        lambda **o: plot_effect(effect(LOST, "accumulated local effects"), unit="years", **o),
        {"y": "restricted time lost of cause 2 (years),\ndifference from its mean", "lines": 3, "bands": 1,
         "legend": ["up to 0.5 years", "90% of the networks", "deciles"]},
    ),
    "plot_effect of two numbers": (
        lambda **o: plot_effect(effect(kinds=("number", "number")), **o),
        {"x": "a", "y": "b", "xlim": (-1.0, 2.0), "ylim": (-1.0, 2.0), "lines": 1,
         "scale": "survival probability S(t), t = 1.5"},
    ),
    "plot_effect of two numbers in the middle of many times": (
        lambda **o: plot_effect(
            effect(Quantity("survival", np.arange(9.0), None, 1.2), kinds=("number", "number")), **o
        ),
        {"scale": "survival probability S(t), t = 4"},
    ),
    "plot_effect of a number and a category": (
        lambda **o: plot_effect(effect(kinds=("number", "category")), times=2.0, unit="days", **o),
        {"x": "a", "y": "b", "xlim": (-1.5, 3.0), "ylim": (-0.5, 1.5), "lines": 0, "yticks": ["u", "v"],
         "number of texts": 6, "scale": "survival probability S(t), t = 2 days"},
    ),
    "plot_importance": (
        lambda **o: plot_importance(importance([np.nan]), **o),
        {"x": "rise of Brier score", "y": "", "yticks": [f"x{j}" for j in range(12)], "bars": 12 + 12,
         "top ytick": "x0"},
    ),
    "plot_importance over time": (
        lambda **o: plot_importance(importance(TIMES, (1, 2)), cause=2, max_columns=4, unit="years", **o),
        {"x": "time (years)", "y": "rise of Brier score, cause 2", "lines": 4 + 1, "bands": 4,
         "legend": ["x0", "x1", "x2", "x3"], "left": 0.0},
    ),
    "plot_importance of a gain": (
        lambda **o: plot_importance(importance([np.nan], score="harrell_c"), max_columns=2, **o),
        {"x": "loss of Harrell's C", "yticks": ["x0", "x1"], "top ytick": "x0", "bars": 4},
    ),
    "plot_survshap of all": (
        lambda **o: plot_survshap(shapley(), unit="days", **o),
        {"x": "time (days)", "y": "mean absolute contribution to\nsurvival probability S(t)", "lines": 7 + 1,
         "xlim": (0, 2.0), "bottom": 0.0, "texts": ["extrapolated"]},
    ),
    "plot_survshap of all at a time": (
        lambda **o: plot_survshap(shapley(), time=1.0, unit="days", **o),
        {"x": "contribution to survival probability S(t), t = 1 days", "y": "", "lines": 1, "n yticks": 10,
         "points": 10 * 5, "top ytick": "x0", "scale": "value of the column (rank);\ngrey: category or missing"},
    ),
    "plot_survshap of the medians of all": (
        lambda **o: plot_survshap(shapley(MEDIAN), max_columns=13, unit="days", **o),
        {"x": "contribution to median time (days)", "n yticks": 13, "points": 13 * 5},
    ),
    "plot_survshap of one": (
        lambda **o: plot_survshap(shapley(), 0, unit="days", **o),
        {"x": "time (days)", "y": "contribution to\nsurvival probability S(t)", "lines": 6 + 1 + 1 + 1,
         "last names": [REST, "sum: prediction less mean"], "xlim": (0, 2.0)},
    ),
    "plot_survshap of the median of one": (
        lambda **o: plot_survshap(shapley(MEDIAN), 1, unit="days", max_columns=3, **o),
        {"x": "median time (days), contribution", "y": "", "bars": 4, "lowest ytick": REST},
    ),
    "plot_contrast": (
        lambda **o: plot_contrast(difference(), unit="years", **o),
        {"x": "time (years)", "y": "difference in\nsurvival probability S(t)", "xlim": (0, 2.0), "lines": 2, "bands": 1,
         "legend": ["one  less  other", "90% of the networks"], "texts": ["extrapolated"]},
    ),
    "plot_contrast of curves": (
        lambda **o: plot_contrast(difference("bootstrap"), difference=False, **o),
        {"y": "survival probability S(t)", "ylim": (0, 1.02), "lines": 2, "bands": 2,
         "legend": ["one", "other", "90% of the fits to resampled rows"]},
    ),
    "plot_contrast without limits": (
        lambda **o: plot_contrast(difference("none"), difference=False, **o),
        {"lines": 2, "bands": 0, "legend": ["one", "other"]},
    ),
}  # fmt: skip


def count(ax, *kinds):
    return [part for part in ax.collections if isinstance(part, kinds)]


def bars(ax):
    """Rectangles, and single lines such as limits of bars."""
    drawn = sum(len(container) for container in ax.containers if hasattr(container, "patches"))
    return drawn + sum(len(part.get_segments()) for part in count(ax, LineCollection))


SEEN = {
    "x": lambda ax: ax.get_xlabel(),
    "y": lambda ax: ax.get_ylabel(),
    "title": lambda ax: ax.get_title(),
    "legend": lambda ax: ax.get_legend() and [text.get_text() for text in ax.get_legend().get_texts()],
    "last names": lambda ax: [text.get_text() for text in ax.get_legend().get_texts()][-2:],
    "lines": lambda ax: len(ax.lines),
    "bands": lambda ax: len(count(ax, PolyCollection)),
    "bars": bars,
    "points": lambda ax: sum(len(part.get_offsets()) for part in count(ax, PathCollection)),
    "texts": lambda ax: [text.get_text() for text in ax.texts],
    "number of texts": lambda ax: len(ax.texts),
    "xticks": lambda ax: [text.get_text() for text in ax.get_xticklabels()],
    "yticks": lambda ax: [text.get_text() for text in ax.get_yticklabels()],
    "n yticks": lambda ax: len(ax.get_yticks()),
    "top ytick": lambda ax: max(ax.get_yticklabels(), key=lambda text: text.get_position()[1]).get_text(),
    "lowest ytick": lambda ax: min(ax.get_yticklabels(), key=lambda text: text.get_position()[1]).get_text(),
    "left": lambda ax: ax.get_xlim()[0],
    "bottom": lambda ax: ax.get_ylim()[0],
    "scale": lambda ax: ax.figure.axes[1].get_ylabel(),
}


def margins(ax, name, ends, shares):
    """The limits of an axis are these ends with a share of their distance on both sides."""
    low, high = ends
    found = (ax.get_xlim if "x" in name else ax.get_ylim)()
    if name.startswith("log"):
        low, high, *found = np.log([low, high, *found])
    np.testing.assert_allclose(found, [low - shares[0] * (high - low), high + shares[1] * (high - low)], rtol=1e-9)


def is_grey(line):
    """Whether a line is a reference; black is the last of the colours of curves."""
    return len(set(to_rgb(line.get_color()))) == 1 and to_rgb(line.get_color()) != (0.0, 0.0, 0.0)


def check_legible(ax, name):
    """Text can be read and is not cut off, references and limits are fainter than curves, nothing hides a curve."""
    figure = ax.figure
    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] <= 7.2  # of a page
    space, edge = ax.get_window_extent(), figure.bbox.padded(1)
    assert space.width * space.height > 0.5 * figure.bbox.width * figure.bbox.height
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert all(8 <= text.get_fontsize() <= 12 for text in texts)
    assert all(edge.contains(*corner) for text in ax.texts for corner in text.get_window_extent().get_points())
    legend = ax.get_legend()
    if legend is not None:
        assert not legend.get_frame_on()
        own = legend.get_window_extent()
        assert own.overlaps(space) == (legend._loc == 0)  # "best": among the curves, where they leave room
        assert all(edge.contains(*corner) for corner in own.get_points())
        assert max(own.x0 - space.x1, space.y0 - own.y1) < 0.6 * figure.dpi  # beside the axes
    for line in ax.lines:
        thin = line.get_alpha() is not None and line.get_alpha() <= 0.5  # one of many
        if line.get_linestyle() != "None":
            lowest, highest = (0.5, 0.7) if thin else (0.8, 1.6) if is_grey(line) else (1.2, 2.2)
            assert lowest <= line.get_linewidth() <= highest
        if line.get_marker() not in ("None", None, ""):
            assert 4 <= line.get_markersize() <= 10
    for band in count(ax, PolyCollection):
        assert band.get_linewidth() == 0
        assert name == "plot_incidences" or 0.1 <= band.get_alpha() <= 0.3
        assert all(band.get_zorder() < line.get_zorder() for line in ax.lines if not is_grey(line))
    for limits in count(ax, LineCollection):
        assert (limits.get_linewidth() <= 1.8).all() or limits.get_alpha() <= 0.35
    assert all(patch.get_linewidth() == 0 for patch in ax.patches if patch.get_zorder() in (0, 3))  # shaded times
    in_colour = [to_rgb(line.get_color()) for line in ax.lines if line.get_label()[0] != "_" and not is_grey(line)]
    assert len(set(in_colour)) == len(in_colour)


@pytest.mark.parametrize("name", CASES)
def test_what_a_picture_shows(name):
    draw, expected = CASES[name]
    ax = draw()
    check_legible(ax, name)
    for what, value in expected.items():
        if f"{what} margin" in expected:
            margins(ax, what, value, expected[f"{what} margin"])
        elif what in ("xlim", "ylim"):
            np.testing.assert_allclose(getattr(ax, f"get_{what}")(), value, rtol=1e-9, atol=1e-12)
        elif not what.endswith("margin"):
            assert SEEN[what](ax) == value, what
    if count(ax, QuadMesh) or "two numbers" in name:
        return
    assert not ax.spines["top"].get_visible()
    assert not ax.spines["right"].get_visible()
    in_colour = [line for line in ax.lines if len(set(to_rgb(line.get_color()))) > 1]
    for band in count(ax, PolyCollection):  # it has the colour of a line, which lies in it
        if name != "plot_incidences":
            lines = [line for line in in_colour if to_rgb(line.get_color()) == tuple(band.get_facecolor()[0][:3])]
            assert len(lines) == (2 if name == "plot_kaplan_meier" else 1)
            low, high = band.get_datalim(ax.transData).intervaly
            heights = np.asarray(lines[0].get_ydata(), dtype=float)
            assert low <= heights[heights != 0].min()  # at zero a Kaplan-Meier curve has no limits
            assert heights.max() <= high


@pytest.mark.parametrize("name", CASES)
def test_axes_that_are_given_are_drawn_on(name):
    own = plt.figure().subplots()
    assert CASES[name][0](ax=own) is own
    assert len(plt.get_fignums()) == 1


def test_every_picture_has_a_case():
    known = {name.partition(" ")[0].rstrip(",") for name in CASES}
    assert set(plots.__all__) == known
    for name in plots.__all__:
        assert "ax" in inspect.signature(getattr(plots, name)).parameters


def test_names_of_subjects_values_and_colours_in_pictures_of_shapley_values():
    shap = shapley()
    names = [text.get_text() for text in plot_survshap(shap, 1, max_columns=7).get_legend().get_texts()]
    assert "x0 missing" in names
    big = X.assign(x1=[1234.5, 0.123456, 3.0, 4.0, 5.0])
    shown = SurvShap(shap.columns, CURVE, shap.values, shap.base, shap.predicted, None, big, X)
    for subject, text in ((0, "x1 = 1,234"), (1, "x1 = 0.123")):
        assert text in [
            label.get_text() for label in plot_survshap(shown, subject, max_columns=7).get_legend().get_texts()
        ]
    only = SurvShap(("c",), MEDIAN, shap.values[:, :1, :1], shap.base[:1], shap.predicted[:, :1], None, X, X)
    assert [text.get_text() for text in plot_survshap(only, 0).get_yticklabels()] == ["c = u"]
    ax = plot_survshap(only)
    assert [len(part.get_offsets()) for part in ax.collections] == [5]
    assert len(ax.figure.axes) == 1  # without numbers there is no scale
    ax = plot_survshap(shap, time=0.5, max_columns=1)
    grey, ranked = ax.collections
    assert len(grey.get_offsets()) == 1  # the missing value
    order = np.argsort(X["x0"].dropna().to_numpy())
    np.testing.assert_allclose(np.asarray(ranked.get_array())[order], [0, 1 / 3, 2 / 3, 1])
