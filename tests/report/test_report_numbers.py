"""Every table and sentence of a report, with its numbers computed one by one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sumosurv import AalenJohansen, CoxPH, Surv, WeibullNet, kaplan_meier
from sumosurv.explain import permutation_importance
from sumosurv.nonparametric import aalen_johansen
from sumosurv.outcome.checks import how_many
from sumosurv.report import build, description, explanations, groups, performance
from sumosurv.report.description import data_section, limits_section, model_section
from sumosurv.report.document import Note, Picture, Section, Table, draw, estimate, in_percent, number, shown
from sumosurv.report.explanations import drivers_section, subjects_section
from sumosurv.report.groups import groups_section
from sumosurv.report.inputs import ReportInputs
from sumosurv.report.performance import performance_section
from sumosurv.scores import evaluate, log_likelihood

pytest.importorskip("matplotlib", reason="matplotlib (extra report) is not installed")

RNG = np.random.default_rng(0)
N = 120
X = pd.DataFrame({
    "age": RNG.normal(60.0, 9.0, N),
    "site": RNG.choice(list("abcdefg"), N, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05]),
    "flag": RNG.integers(0, 2, N),
})  # fmt: skip
X.loc[:5, "age"] = np.nan
EVENT_TIME = RNG.weibull(1.3, N) * np.exp(-0.5 * (X["flag"]))
END = RNG.exponential(2.0, N)
Y = Surv.from_arrays(EVENT_TIME <= END, np.minimum(EVENT_TIME, END))
CAUSES = Surv.from_arrays(np.where(Y["event"], RNG.integers(1, 3, N), 0), Y["time"])
MODEL = CoxPH(alpha=0.5, missing="indicator").fit(X[:80], Y[:80])
TIMES = [0.2, 0.5, 0.9]


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Pictures are composed and not rendered."""
    monkeypatch.setattr("sumosurv.plots.performance._TIMES", 3)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **_: file.write(b"<svg/>"))


def inputs(y=Y, model=MODEL, **options):
    return ReportInputs(model, X, y, times=TIMES, **{"n_bootstrap": 5, "max_rows": 30} | options)


def tables(section):
    return {item.caption: item for item in section.items if isinstance(item, Table)}


def notes(section, warning=False):
    return [item.text for item in section.items if isinstance(item, Note) and item.warning == warning]


def pictures(section):
    return [item for item in section.items if isinstance(item, Picture)]


def test_numbers_as_text():
    found = [number(v) for v in (0.0, -1.5, 1234.5, 999.96, 12345.6, 2e9, 0.000123, np.nan, np.inf, -np.inf)]
    assert found == ["0", "−1.5", "1234", "1000", "12,346", "2e+09", "0.000123", "–", "∞", "−∞"]
    assert [number(v, 3) for v in (99.96, 100.4)] == ["100", "100"]
    assert [how_many(n, "row") for n in (0, 1, 2, 1000)] == ["0 rows", "1 row", "2 rows", "1,000 rows"]
    assert [in_percent(v) for v in (0.1234, 1.0, np.nan)] == ["12.3%", "100.0%", "–"]
    assert [shown(v) for v in (None, np.nan, float("nan"), 0.5, 7, "a")] == ["missing"] * 3 + ["0.5", "7", "a"]
    assert shown("a" * 80) == "a" * 80
    assert shown("a" * 81) == "a" * 79 + "…"
    assert estimate(0.05, 0.01, np.nan) == ("0.0500", "")
    assert estimate(1e-9, 0.0, 1.0)[0] == "0.000000"


def test_an_item_that_cannot_be_made_is_a_note():
    def fails(reason):
        raise ValueError(reason)

    section = Section("a", "A")
    section.attempt("Curve", fails, "No rows.")
    assert section.items == [Note("Curve: not shown. No rows.", False)]


def test_a_large_graphic_becomes_pixels(monkeypatch):
    def plot(ax, unit):
        ax.set_xlabel(unit)
        ax.plot([0, 1], label="line")
        ax.legend()
        return ax

    monkeypatch.setattr("sumosurv.report.document._LARGEST", 5)
    assert draw("alt", "caption", plot, unit="years").source.startswith("data:image/png")
    monkeypatch.setattr("sumosurv.report.document._LARGEST", 6)
    made = draw("alt", "caption", plot, unit="years", half=True, legend=False)
    assert made == Picture("data:image/svg+xml;base64,PHN2Zy8+", "alt", "caption", True)


@pytest.mark.parametrize("kind", ["plain", "entry", "weights", "causes"])
def test_the_data(kind):
    entry, weight = 0.1 * Y["time"], RNG.integers(1, 3, N).astype(float)
    entry[::2] = 0.0
    y = {"entry": Surv.from_arrays(Y["event"], Y["time"], entry), "causes": CAUSES}.get(kind, Y)
    more = {"sample_weight": weight, "groups": np.arange(N) // 2} if kind == "weights" else {}
    model = AalenJohansen().fit(X[:80], CAUSES[:80]) if kind == "causes" else MODEL
    made = inputs(y, model, unit="years", causes=["x", "y"] if kind == "causes" else None, **more)
    section = data_section(made)
    facts = dict(tables(section)["Rows used for the evaluation"].rows)
    assert facts["rows"] == "120"
    events = Y["event"].sum()
    if kind == "causes":
        for k, name in enumerate("xy", 1):
            own = CAUSES["event"] == k
            assert facts[f"events: {name}"] == f"{own.sum()} ({own.mean():.1%})"
    else:
        assert facts["events"] == f"{events} ({events / N:.1%})"
    assert facts.get("rows with delayed entry") == ("60 (50.0%)" if kind == "entry" else None)
    assert (facts.get("sum of weights"), facts.get("subjects")) == (
        (number(made.outcome.total), "60") if kind == "weights" else (None, None)
    )
    since = Surv.from_arrays(Y["event"], Y["time"] - entry) if kind == "entry" else Y
    follow_up = kaplan_meier(since, censoring=True, sample_weight=more.get("sample_weight")).median()[0]
    assert facts["median follow-up (reverse Kaplan-Meier)"] == f"{follow_up:.4g} years"
    assert facts["longest follow-up"] == f"{Y['time'].max():.4g} years"
    assert facts["end of follow-up of the training rows"] == f"{Y['time'][:80].max():.4g} years"
    assert f"120 rows with {events} events. Horizons: 0.2 years, 0.5 years, 0.9 years." in section.summary
    curve = kaplan_meier(since, sample_weight=more.get("sample_weight"))
    parts = ", ".join(f"{curve.survival(t)[0]:.1%} at {t:g} years" for t in TIMES)
    since = " after entry" if kind == "entry" else ""
    assert f"Without an event{since}: {parts}." in pictures(section)[0].caption
    assert ("without any event" in pictures(section)[0].caption) == (kind == "causes")
    columns = {name: (values, missing) for name, values, missing in tables(section)["Columns"].rows}
    low, middle, high = np.nanquantile(X["age"], [0.0, 0.5, 1.0])
    assert columns["age"] == (f"{low:.4g} to {high:.4g}, median {middle:.4g}", f"6 ({6 / N:.1%})")
    shares = X["site"].value_counts(normalize=True)
    assert columns["site"][0].startswith(f"{shares.index[0]} {shares.iloc[0]:.1%}, {shares.index[1]}")
    assert columns["site"][0].endswith(", and 2 more")
    assert columns["flag"][0].count("%") == 2  # two values are levels


def test_wide_tables_and_arrays_are_described_in_part():
    wide = pd.DataFrame(np.zeros((N, 61))).rename(columns=str)
    made = inputs()
    made.X = wide
    section = data_section(made)
    assert len(tables(section)["Columns"].rows) == 60
    assert notes(section) == ["Only the first 60 of 61 columns are listed."]
    made.X = wide.iloc[:, :60]
    assert not notes(data_section(made))
    assert "more than 40 columns" in notes(drivers_section(made))[0]
    made.X = np.zeros((N, 2, 3))
    assert "(2, 3)" in notes(data_section(made))[0]
    assert "not a table" in notes(drivers_section(made))[0]


def test_the_limits():
    told = notes(limits_section(inputs(unit="years")), warning=True)
    end, beyond = Y["time"][:80].max(), int((Y["time"] > Y["time"][:80].max()).sum())
    first = notes(limits_section(inputs(unit="years")), warning=beyond > 0)[0]
    assert f"ends at {end:.4g} years" in first
    assert (f"{beyond} of 120 rows here are followed longer" in first) == (beyond > 0)
    outside = X["age"][80:]
    count_outside = int(((outside < X["age"][:80].min()) | (outside > X["age"][:80].max())).sum())
    assert any(f"age, {how_many(count_outside, 'row')} (outside" in text for text in told) == (count_outside > 0)
    few = next(text for text in told if text.startswith("Too few rows or events"))
    for level, part in X.groupby("site"):
        events = int(Y["event"][part.index].sum())
        small = len(part) < 50 or events < 10
        assert (f"site = {level} ({len(part)} row" in few) == small
        assert (f", {events} event" in few) or not small
    events = int(Y["event"].sum())
    assert any(f"only {events} events" in text for text in told) == (events < 100)


def test_risk_groups():
    made = inputs(unit="years")
    section = groups_section(made)
    risk = MODEL.predict_distribution(X).cdf(0.5)
    rows = tables(section)["Groups by predicted risk"].rows
    for g, part in enumerate(np.array_split(np.argsort(risk, kind="stable"), 2)):
        own = Y[part]
        observed = 1 - kaplan_meier(own).survival(0.5)[0]
        assert rows[g][:4] == [f"group {g + 1}", "60", str(own["event"].sum()), f"{risk[part].mean():.1%}"]
        assert rows[g][4].startswith(f"{observed:.1%} (")
    assert f"{rows[0][4]} in the half with the lowest predicted risk, {rows[1][4]} in the half" in section.summary[0]
    by = {row[0]: row for row in tables(section)["Groups by category"].rows}
    assert set(by) == {f"site = {level}" for level in "abcdefg"} | {"flag = 0", "flag = 1"}
    own = X["flag"] == 1
    assert by["flag = 1"][1:4] == [str(own.sum()), str(Y["event"][own].sum()), f"{risk[own].mean():.1%}"]
    assert len(pictures(section)) == 2


def test_risk_groups_of_causes():
    model = AalenJohansen().fit(X[:80], CAUSES[:80])
    section = groups_section(inputs(CAUSES, model, causes=["relapse", "death"]))
    rows = tables(section)["Groups by category: death"].rows
    own = (X["flag"] == 1).to_numpy()
    found = next(row for row in rows if row[0] == "flag = 1")
    expected = aalen_johansen(CAUSES[own], causes=2).cumulative_incidence(0.5)[0, 1]
    assert found[2] == str((CAUSES["event"][own] == 2).sum())
    assert found[4].startswith(f"{expected:.1%} (")
    assert found[3] == f"{model.predict_distribution(X[:1]).cumulative_incidence(0.5)[0, 1]:.1%}"
    assert [text.split(" at ")[0] for text in section.summary] == ["Observed risk: relapse", "Observed risk: death"]


def test_performance():
    other = CoxPH(alpha=50.0, missing="indicator").fit(X[:80], Y[:80])
    made = inputs(unit="years", against={"flat": other}, name="mine")
    section = performance_section(made)
    (table,) = tables(section).values()
    assert list(table.heading[-3:]) == ["mine", "Kaplan-Meier of the training rows", "flat"]
    lines = {row[0]: row[1:] for row in table.rows}
    found = evaluate(
        {"mine": MODEL, "flat": other}, X, Y, n_bootstrap=5,
        scores={"log_likelihood": {}, "brier": {"times": TIMES}, "cumulative_dynamic_auc": {"times": TIMES}},
        censoring="marginal",
    )  # fmt: skip
    auc = found[(found["score"] == "cumulative_dynamic_auc") & (found["model"] == "mine") & (found["against"] == "")]
    words = ", ".join(f"{number(v, 3)} at {t:g} years" for v, t in zip(auc["value"], TIMES))
    assert f"AUC: {words} (0.5 is chance)." in section.summary
    alone = found[(found["against"] == "") & (found["score"] == "log_likelihood")].set_index("model")["value"]
    label = next(name for name in lines if name.startswith("log-likelihood"))
    assert lines[label][0] == "higher"
    assert lines[label][1].split("\n")[0] == estimate(alone["mine"], 0, 0)[0]
    assert lines[label][3].split("\n")[0] == estimate(alone["flat"], 0, 0)[0]
    gain = alone["mine"] - alone["flat"]
    assert any(f"{estimate(gain, 0, 0)[0]} nats per row over flat" in text for text in section.summary)
    assert sum(name.startswith("Brier score at") for name in lines) == 3


def test_what_drives_the_predictions():
    section = drivers_section(inputs(unit="years"))
    rows = np.sort(np.random.default_rng(0).choice(N, 30, replace=False))
    possible = np.isfinite(log_likelihood(MODEL.predict_distribution(X), Y)).all()
    score = "log_likelihood" if possible else "integrated_brier"
    found = permutation_importance(
        MODEL, X.iloc[rows], Y[rows], scores=score, n_repeats=3, n_bootstrap=5, random_state=0
    ).table
    (table,) = tables(section).values()
    assert "on 30 rows drawn at random" in table.caption
    assert [row[0] for row in table.rows] == list(found["column"])
    assert table.rows[0][1:] == list(estimate(*found.iloc[0][["value", "low", "high"]]))
    assert section.summary == [f"The predictions depend most on {', '.join(found['column'])}."]
    effects = [item.caption for item in pictures(section)[1:]]
    assert len(effects) == 3
    site = next(text for text in effects if "site is set" in text)
    assert "Ticks" not in site
    assert "at a, " in site
    assert "Ticks along the axis" in next(text for text in effects if "age is set" in text)
    assert all("survival probability" in text for text in effects)
    model = AalenJohansen().fit(X[:80], CAUSES[:80])
    captions = " ".join(item.caption for item in pictures(drivers_section(inputs(CAUSES, model, causes=["x", "y"]))))
    assert "incidence of x" in captions
    assert "incidence of y" in captions
    assert "survival probability" not in captions


def test_example_subjects():
    section = subjects_section(inputs(unit="years"))
    d = MODEL.predict_distribution(X)
    order, end = np.argsort(d.cdf(0.5), kind="stable"), MODEL.last_time_
    rows = [order[round(q * (N - 1))] for q in (0.1, 0.5, 0.9)]
    lines = {row[0]: row[1:] for row in tables(section)["Predictions and covariates"].rows}
    medians = [f"{number(m)}{' (extrapolated)' if m > end else ''}" for m in d[rows].median()]
    assert lines["median"] == medians
    assert lines[f"expected time up to {end:.4g} years"] == [number(v) for v in d[rows].restricted_mean(end)]
    assert lines["survival to 0.5 years"] == [f"{v:.1%}" for v in d[rows].survival(0.5)]
    assert lines["site"] == list(X["site"].iloc[rows])
    assert lines["age"] == ["missing" if np.isnan(v) else number(v, 6) for v in X["age"].iloc[rows]]
    model = AalenJohansen().fit(X[:80], CAUSES[:80])
    made = subjects_section(inputs(CAUSES, model, causes=["relapse", "death"]))
    lines = {row[0]: row[1:] for row in tables(made)["Predictions and covariates"].rows}
    share = model.predict_distribution(X[:1]).cumulative_incidence(0.5)[0, 1]
    assert lines["death by 0.5"] == [f"{share:.1%}"] * 3
    assert len(pictures(made)) == 3


def test_the_model():
    section = model_section(inputs(unit="years"))
    facts = dict(tables(section)["About the model"].rows)
    assert (facts["method"], facts["covariates"], facts["causes"]) == ("CoxPH", "3", "one")
    settings = dict(tables(section)["Settings (None: chosen by the method)"].rows)
    assert settings == {name: str(value) for name, value in MODEL.get_params().items()}


def test_horizons_are_quartiles_of_event_times_within_the_follow_up():
    made = ReportInputs(MODEL, X, Y)
    quartiles = np.quantile(Y["time"][Y["event"]], [0.25, 0.5, 0.75])
    np.testing.assert_allclose(made.times, quartiles, rtol=0.05)
    assert made.main == made.times[1]
    assert all(float(f"{t:.3g}") == t for t in made.times)
    zero = ReportInputs(MODEL, X, Y, sample_weight=np.arange(N) % 2)
    assert len(zero.outcome) == len(zero.X) == N // 2
    for times in ([], [0.0], [np.inf], [-1.0, 1.0]):
        with pytest.raises(ValueError, match="times must be positive"):
            ReportInputs(MODEL, X, Y, times=times)
    with pytest.raises(ValueError, match=r"causes.*got 1"):
        ReportInputs(MODEL, X, Y, causes=["a"])
    with pytest.raises(ValueError, match="second model named 'CoxPH'"):
        ReportInputs(MODEL, X, Y, against={"CoxPH": MODEL})
    with pytest.raises(ValueError, match="must agree"):
        ReportInputs(MODEL, X, CAUSES)


def test_risk_groups_with_weights():
    weight = RNG.integers(1, 5, N).astype(float)
    rows = tables(groups_section(inputs(sample_weight=weight)))["Groups by category"].rows
    own = (X["flag"] == 1).to_numpy()
    found = next(row for row in rows if row[0] == "flag = 1")
    risk = MODEL.predict_distribution(X).cdf(0.5)
    observed = 1 - kaplan_meier(Y[own], sample_weight=weight[own]).survival(0.5)[0]
    mean = np.average(risk[own], weights=weight[own])
    assert found[1:4] == [str(own.sum()), str(Y["event"][own].sum()), f"{mean:.1%}"]
    assert found[4].startswith(f"{observed:.1%} (")


@pytest.fixture
def calls(monkeypatch):
    """Names and options of the functions that sections call, and of the pictures that they draw."""
    made = []

    def recorded(name, function):
        def call(*arguments, **options):
            made.append((name, options))
            return function(*arguments, **options)

        return call

    def drawing(alt, caption, plot, *arguments, **options):
        made.append((plot.__name__, options))
        return draw(alt, caption, plot, *arguments, **options)

    for module in (performance, groups, explanations, description):
        for name in ("evaluate", "smooth_calibration", "decision_curve", "permutation_importance", "partial_dependence",
                     "check_censoring"):  # fmt: skip
            if hasattr(module, name):
                monkeypatch.setattr(module, name, recorded(name, getattr(module, name)))
        if hasattr(module, "draw"):
            monkeypatch.setattr(module, "draw", drawing)
    return made


SECTIONS = (data_section, performance_section, groups_section, drivers_section, subjects_section)
NETWORKS = WeibullNet(n_members=2, max_epochs=1, random_state=0).fit(X[:80], Y[:80])


@pytest.mark.parametrize("kind", ["one cause", "causes"])
def test_sections_pass_on_seed_resamples_unit_and_cause(kind, calls):
    competing = kind == "causes"
    model = AalenJohansen().fit(X[:80], CAUSES[:80]) if competing else NETWORKS
    more = {"causes": ["relapse", "death"]} if competing else {}
    made = inputs(CAUSES if competing else Y, model, unit="years", random_state=7, n_bootstrap=3, **more)
    for section in SECTIONS:
        section(made)
    seeded = {name for name, options in calls if options.get("random_state") == 7}
    assert seeded == {
        "evaluate", "smooth_calibration", "decision_curve", "permutation_importance", "partial_dependence",
        "check_censoring",
    }  # fmt: skip
    known = {name: [options for other, options in calls if other == name] for name, _ in calls}
    for name in ("evaluate", "smooth_calibration", "decision_curve", "permutation_importance", "plot_score"):
        assert {options["n_bootstrap"] for options in known[name]} == {3}, name
    for name, options in calls:
        if name.startswith("plot_") and name not in ("plot_calibration", "plot_decision_curve", "plot_importance"):
            assert options["unit"] == "years", name
    each = [1, 2] if competing else [None]
    for name in ("plot_score", "smooth_calibration", "decision_curve", "plot_risk_groups", "partial_dependence"):
        given = [options["cause"] for options in known[name]]
        assert sorted({k for own in given for k in np.atleast_1d(own).tolist()}, key=str) == each, name
    assert known["permutation_importance"][0]["n_repeats"] == 3
    assert {options["max_rows"] for options in known["partial_dependence"]} == {100}
    assert len(known["partial_dependence"]) == (2 if competing else 3)  # one for all causes
    assert len(known["plot_effect"]) == (4 if competing else 3)
    half = {name for name, options in calls if options.get("half")}
    assert half == {"plot_score", "plot_calibration", "plot_decision_curve", "plot_effect"}
    assert all((options["legend"], options["individual"]) == (False, False) for options in known["plot_effect"])
    assert [options["formulas"] for options in known["plot_calibration"]] == [True] * len(each)
    if competing:
        assert [options["label"] for options in known["plot_risk_groups"]] == ["relapse", "death"]
        assert [options["subject"] for options in known["plot_incidences"]] == [0, 1, 2]
        assert {tuple(options["labels"]) for options in known["plot_incidences"]} == {("relapse", "death")}
        assert {options["horizon"] for options in known["plot_incidences"]} == {model.last_time_}
    else:
        (shown,) = known["plot_survival"]
        assert (shown["labels"], shown["horizon"]) == (["low risk", "medium risk", "high risk"], model.last_time_)
        assert len(shown["band"]) == 2
    curves = known["plot_kaplan_meier"]
    assert [options.get("legend", True) for options in curves] == [True, False]
    assert curves[-1]["by"].name == "group"
    assert set(curves[-1]["by"]) == {"group 1 (lowest risk)", "group 2 (highest risk)"}


def test_pictures_of_scores_and_calibration_have_at_most_a_hundred_resamples(calls, monkeypatch):
    monkeypatch.setattr(performance, "_calibration", lambda *_: Note("left out"))
    monkeypatch.setattr(performance, "_decisions", lambda *_: Note("left out"))
    for n_bootstrap, drawn in ((99, 99), (101, 100)):
        calls.clear()
        performance_section(inputs(n_bootstrap=n_bootstrap))
        assert {options["n_bootstrap"] for name, options in calls if name == "plot_score"} == {drawn}
        assert next(options["n_bootstrap"] for name, options in calls if name == "evaluate") == n_bootstrap


def test_a_report_passes_everything_on(monkeypatch):
    given = {}
    monkeypatch.setattr(build, "ReportInputs", lambda *_, **options: given.update(options) or ReportInputs(MODEL, X, Y))
    for name in ("data", "performance", "groups", "drivers", "subjects", "limits", "model"):
        monkeypatch.setattr(build, f"{name}_section", lambda made, name=name: Section(name, name))
        getattr(build, f"{name}_section").__name__ = f"{name}_section"
    options = {
        "against": {"flat": MODEL}, "times": [0.3], "name": "mine", "unit": "years", "causes": ["a"], "groups": [1],
        "sample_weight": [2.0], "n_bootstrap": 11, "max_rows": 12, "random_state": 13,
    }  # fmt: skip
    made = build.make_report(MODEL, X, Y, **options, verbose=False)
    assert given == options
    names = [section.name for section in made.sections]
    assert names == ["data", "performance", "groups", "drivers", "subjects", "limits", "model"]
    without = build.make_report(MODEL, X, Y, subjects=False, verbose=False)
    assert [section.name for section in without.sections] == [name for name in names if name != "subjects"]
    assert "<title>Report on CoxPH</title>" in without.html
    assert "<title>A title</title>" in build.make_report(MODEL, X, Y, title="A title", verbose=False).html
