"""Reports: one file that needs nothing else, with the figures that the library computes, for every kind of outcome."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from served_models import HOSTILE
from sumosurv import AalenJohansen, CoxPH, KaplanMeier, SumoNet, Surv, kaplan_meier, load
from sumosurv.calibrate import smooth_calibration
from sumosurv.cli import main
from sumosurv.model_files import model_digest
from sumosurv.report import make_report
from sumosurv.report.description import model_section
from sumosurv.report.document import Picture, Table, estimate, fill_figure
from sumosurv.report.groups import groups_section
from sumosurv.report.inputs import ReportInputs
from sumosurv.report.performance import _advantage, performance_section
from sumosurv.scores import cumulative_dynamic_auc, log_likelihood

pytest.importorskip("jinja2", reason="jinja2 (extra report) is not installed")
pytest.importorskip("matplotlib", reason="matplotlib (extra report) is not installed")

QUICK = {"n_bootstrap": 5, "max_rows": 30, "times": [0.5, 1.0]}
DOLLARS = r"$\frac{1} \badcommand$"


def rows(n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({
        HOSTILE: rng.normal(size=n),
        DOLLARS: np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
        "arm": rng.choice(["<b>a</b>", "b"], n),
    })  # fmt: skip
    time = rng.weibull(1.3, n) * np.exp(-0.8 * X[HOSTILE].to_numpy())
    censor = rng.exponential(2.0, n)
    return X, np.minimum(time, censor), (time <= censor), rng


X, TIME, EVENT, _ = rows()
NEW, NEW_TIME, NEW_EVENT, _ = rows(seed=1)


class Reader(HTMLParser):
    """Tags with their attributes, and the text of the document."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def cox():
    return CoxPH(alpha=0.1, missing="indicator").fit(X, Surv.from_arrays(EVENT, TIME))


@pytest.fixture(scope="module")
def plain(cox):
    net = SumoNet(n_members=2, max_epochs=4, covariate_layers=(8,), time_layers=(6,), random_state=0)
    net.fit(X, Surv.from_arrays(EVENT, TIME))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sumosurv.plots.performance._TIMES", 4)
        report = make_report(
            net, NEW, Surv.from_arrays(NEW_EVENT, NEW_TIME), against={"Cox": cox}, unit="years", **QUICK
        )
    return net, report, Reader(report.html)


def test_the_file_is_whole_and_safe(plain):
    """No script, nothing from elsewhere, all text of the data escaped, below 3 MB."""
    _, report, page = plain
    assert len(report.html.encode()) < 3_000_000
    known = {name for name, _ in page.tags}
    assert not known & {"script", "iframe", "object", "link", "form", "b"}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("data:image/", "#"))
    assert all(not image["src"].startswith("x") for image in page.all("img"))
    assert HOSTILE in page.text
    assert "<b>a</b>" in page.text
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy


def test_it_can_be_read_by_everyone(plain):
    """Language, one heading of the first level, none skipped, words for each picture, scopes of table headings."""
    _, report, page = plain
    assert page.all("html")[0]["lang"] == "en"
    assert [name for name, _ in page.tags if re.fullmatch("h[1-6]", name)].count("h1") == 1
    assert "h3" not in {name for name, _ in page.tags}
    assert all(len(image["alt"]) > 20 for image in page.all("img"))
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {table["aria-labelledby"] for table in page.all("table")} <= set(ids)
    assert {link["href"][1:] for link in page.all("a")} <= set(ids)
    assert "prefers-color-scheme: dark" in report.html
    assert "@media print" in report.html


class Captions(HTMLParser):
    """The captions of tables, with the classes and tags that they are inside of."""

    def __init__(self, html):
        super().__init__()
        self.open, self.inside = [], {}
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        if known.get("id"):
            self.inside[known["id"]] = [name for outer in self.open for name in outer]
        if tag not in ("meta", "img"):
            self.open.append((tag, *known.get("class", "").split()))

    def handle_endtag(self, tag):
        while self.open.pop()[0] != tag:
            pass


def test_captions_are_read_in_full_on_a_phone(plain):
    """A caption in a table, or in the box in which a wide table scrolls, is as wide as the table: words get lost."""
    _, report, page = plain
    found = Captions(report.html)
    assert "caption" not in {name for name, _ in page.tags}
    for table in page.all("table"):
        assert not {"table", "scroll"} & set(found.inside[table["aria-labelledby"]])
    assert "width=device-width" in next(m["content"] for m in page.all("meta") if m.get("name") == "viewport")
    style = re.search(r"<style>(.*?)</style>", report.html, re.DOTALL).group(1)
    rules = [rule for places, rule in re.findall(r"([^{}]*){([^{}]*)}", style) if "caption" in places]
    assert len(rules) >= 3
    assert not [rule for rule in rules if re.search(r"white-space|overflow|clamp|(?<!max-)\bwidth|\bheight", rule)]


def test_pictures_are_pictures(plain):
    sources = [image["src"] for image in plain[2].all("img")]
    assert len(sources) >= 10
    for source in sources:
        kind, _, content = source.partition(";base64,")
        raw = base64.b64decode(content, validate=True)
        assert (b"<svg" in raw) if kind == "data:image/svg+xml" else raw.startswith(b"\x89PNG")
        assert b"<script" not in raw


def test_the_figures_are_the_librarys(plain, cox):
    net, report, page = plain
    y = Surv.from_arrays(NEW_EVENT, NEW_TIME)
    ours, theirs = (log_likelihood(m.predict_distribution(NEW), y, resolution=net.cells_).mean() for m in (net, cox))
    shown = re.search(r"(\S+) nats per row over Cox", page.text).group(1).replace("−", "-")
    assert float(shown) == pytest.approx(ours - theirs, abs=5e-4)
    auc = cumulative_dynamic_auc(net.predict_distribution(NEW), y, 1.0, censoring=kaplan_meier(y, censoring=True))
    assert f"{float(np.ravel(auc)[0]):.3g} at 1 years" in page.text
    assert model_digest(net) in page.text
    titles = [section.title for section in report.sections]
    assert titles == ["Data", "Performance", "Risk groups", "What drives the predictions", "Example subjects",
                      "Limitations", "The model"]  # fmt: skip


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures are composed and not rendered, and scores over time are few: both take most of the time."""
    monkeypatch.setattr("sumosurv.plots.performance._TIMES", 4)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **_: file.write(b"<svg/>"))


def test_unlike_rows_and_small_groups_are_told(cox, undrawn):
    odd = NEW.assign(arm="new")
    odd.iloc[0, 0] = 1e6
    with pytest.warns(UserWarning, match="not seen in training"):
        report = make_report(cox, odd, Surv.from_arrays(NEW_EVENT, NEW_TIME), subjects=False, **QUICK)
    warned = [item.text for section in report.sections for item in section.items if getattr(item, "warning", False)]
    assert any("160 rows (levels not seen in training)" in text for text in warned)
    assert any("1 row (outside" in text for text in warned)
    assert "Example subjects" not in [section.title for section in report.sections]


def test_competing_causes(undrawn):
    rng = np.random.default_rng(3)
    cause = np.where(EVENT, rng.integers(1, 3, len(X)), 0)
    net = SumoNet(n_members=2, max_epochs=2, covariate_layers=(8,), time_layers=(6,), random_state=0)
    net.fit(X, Surv.from_arrays(cause, TIME))
    new = np.where(NEW_EVENT, rng.integers(1, 3, len(X)), 0)
    report = make_report(net, NEW, Surv.from_arrays(new, NEW_TIME), causes=["relapse <1>", "death"], **QUICK)
    page = Reader(report.html)
    for name in ("relapse <1>", "death"):
        assert f"AUC of {name} over time" in page.text
        assert f"Groups by predicted risk: {name}" in page.text
    assert "Aalen-Johansen of the training rows" in page.text
    with pytest.raises(ValueError, match=r"2 competing causes; got 1"):
        make_report(net, NEW, Surv.from_arrays(new, NEW_TIME), causes=["one"], **QUICK)


@pytest.mark.parametrize("kind", ["entry", "intervals", "weights and groups"])
def test_other_outcomes(kind, undrawn):
    rng = np.random.default_rng(4)
    more = {}
    if kind == "intervals":
        lower = np.floor(NEW_TIME * 4) / 4
        y, old = Surv.interval(lower, np.where(NEW_EVENT, lower + 0.25, np.inf)), Surv.from_arrays(EVENT, TIME)
        model = KaplanMeier().fit(X, old)
    else:
        entry = 0.3 * TIME if kind == "entry" else None
        model = CoxPH(alpha=0.1, missing="indicator").fit(X, Surv.from_arrays(EVENT, TIME, entry))
        y = Surv.from_arrays(NEW_EVENT, NEW_TIME, 0.3 * NEW_TIME if kind == "entry" else None)
        if kind == "weights and groups":
            more = {"sample_weight": rng.integers(0, 3, len(NEW)), "groups": np.arange(len(NEW)) // 2}
    report = make_report(model, NEW, y, **QUICK, **more)
    page = Reader(report.html)
    assert "not shown" in page.text if kind == "intervals" else page.all("img")
    if kind == "entry":
        assert "rows with delayed entry" in page.text
    if kind == "weights and groups":
        counted = more["sample_weight"] > 0
        assert f"{counted.sum()} rows with" in page.text
        assert f"subjects{len(np.unique(more['groups'][counted]))}" in "".join(page.text.split())


def test_a_model_file_tells_of_its_networks(tmp_path):
    """The card of a loaded model has what that of the fitted one has; files hold no table of members."""
    net = SumoNet(max_epochs=1, random_state=0).fit(X[:60], Surv.from_arrays(EVENT[:60], TIME[:60]))
    net.save(tmp_path / "net.sumo")
    listed = ", ".join(f"{p.network.members} {p.name} (weight {p.weight:.2f})" for p in net.stack_.populations)
    for model in (net, load(tmp_path / "net.sumo")):
        inputs = ReportInputs(model, NEW[:40], Surv.from_arrays(NEW_EVENT[:40], NEW_TIME[:40]), times=1.0)
        assert ["components", listed] in model_section(inputs).items[0].rows


def test_scores_and_their_limits_have_equal_decimals():
    assert estimate(0.171, 0.1606, 0.17794) == ("0.171", "0.161 to 0.178")
    assert estimate(-2.9, -3.1052, -2.8) == ("−2.900", "−3.105 to −2.800")
    assert estimate(0.00362, 0.0000605, 0.00828) == ("0.00362", "0.00006 to 0.00828")
    assert estimate(0.0, np.nan, np.nan) == ("0.000", "")
    assert estimate(-np.inf, -np.inf, -1.0) == ("−∞", "−∞ to −1.000")


def observed_risks(inputs):
    return [row[-1] for item in groups_section(inputs).items if isinstance(item, Table) for row in item.rows]


def test_observed_risk_after_the_last_event_of_a_group(undrawn):
    """Curves stay where they are after everyone had an event; they are unknown after a last censored row."""
    x = pd.DataFrame({"arm": np.repeat(["a", "b"], 50)})
    time = np.concatenate([np.linspace(0.01, 0.5, 50), np.linspace(0.02, 3.0, 50)])
    for last, known in ((True, True), (False, False)):
        event = np.ones(100, dtype=bool)
        event[49] = last
        cause = np.where(event, 1 + np.arange(100) % 2, 0)
        one = KaplanMeier().fit(x, Surv.from_arrays(event, time))
        two = AalenJohansen().fit(x, Surv.from_arrays(cause, time, causes=2))
        for model, y in ((one, Surv.from_arrays(event, time)), (two, Surv.from_arrays(cause, time, causes=2))):
            texts = observed_risks(ReportInputs(model, x, y, times=1.0))
            assert ("follow-up too short" not in texts) == known
            if known:
                assert any(text.startswith("100.0%" if model is one else "50.0%") for text in texts)


def test_net_benefit_is_said_to_be_above_over_wide_ranges_only():
    """A single threshold whose pointwise limit excludes zero is noise; the kind of limits is named."""
    index = pd.Index(np.arange(1, 100) / 100, name="threshold")
    lower = pd.Series(-0.1, index=index)
    lower[0.07] = lower[0.91] = lower[0.93] = 0.01
    text = _advantage(pd.DataFrame({"advantage_lower": lower}))
    assert text.startswith("In no range of thresholds")
    assert "7%" not in text
    lower.loc[0.2:0.25] = 0.02
    text = _advantage(pd.DataFrame({"advantage_lower": lower}))
    assert "thresholds of 20% to 25%" in text
    assert "pointwise" in text
    assert not {"7%", "91%"} & set(re.findall(r"\d+%", text))
    assert _advantage(pd.DataFrame({"advantage_lower": lower * np.nan})) == ""


def test_intervals_of_the_report_contain_their_estimates(plain, monkeypatch, undrawn):
    net, report, _ = plain
    cells = [cell for section in report.sections if section.name == "performance"
             for item in section.items if isinstance(item, Table) for row in item.rows for cell in row[2:]]  # fmt: skip
    for value, low, high in (re.findall(r"[−\d.∞]+", cell) for cell in cells):
        value, low, high = (float(text.replace("−", "-").replace("∞", "inf")) for text in (value, low, high))
        assert low <= value <= high
    found = smooth_calibration(net.predict_distribution(NEW), Surv.from_arrays(NEW_EVENT, NEW_TIME), 1.0)
    for interval, shown in (((0.9 * found.ici, 2.0), True), ((1.1 * found.ici, 2.0), False)):
        made = replace(found, ici_interval=interval)
        monkeypatch.setattr("sumosurv.report.performance.smooth_calibration", lambda *_, made=made, **__: made)
        inputs = ReportInputs(net, NEW, Surv.from_arrays(NEW_EVENT, NEW_TIME), times=1.0, n_bootstrap=0)
        captions = [item.caption for item in performance_section(inputs).items if isinstance(item, Picture)]
        assert any("to 200.0" in caption for caption in captions) == shown


def test_the_command(tmp_path, cox, capsys, undrawn):
    frame = NEW.assign(years=NEW_TIME, died=NEW_EVENT.astype(int))
    frame.to_csv(tmp_path / "new.csv", index=False)
    cox.save(tmp_path / "cox.sumo")
    KaplanMeier().fit(X, Surv.from_arrays(EVENT, TIME)).save(tmp_path / "other.sumo")
    command = ["report", "cox.sumo", "new.csv", "--time", "years", "--event", "died", "--against", "other.sumo",
               "--out", "report.html", "--bootstrap", "0", "--times", "1", "--quiet", "--no-subjects"]  # fmt: skip
    words = [str(tmp_path / word) if "." in word else word for word in command]
    assert main(words) == 0
    assert "Report written to" in capsys.readouterr().out
    text = (tmp_path / "report.html").read_text()
    assert model_digest(load(tmp_path / "cox.sumo")) in text
    words[words.index(str(tmp_path / "report.html"))] = str(tmp_path / "cox.sumo")
    assert main(words) == 1
    assert "is also an input file" in capsys.readouterr().err


def test_what_cannot_be_reported_is_said(cox):
    y = Surv.from_arrays(NEW_EVENT, NEW_TIME)
    with pytest.raises(ValueError, match="times must be positive"):
        make_report(cox, NEW, y, times=[-1.0])
    with pytest.raises(ValueError, match="a second model named 'Cox'"):
        make_report(cox, NEW, y, name="Cox", against={"Cox": cox})
    with pytest.raises(ValueError, match=r"1 cause\(s\) and .* have 2"):
        make_report(cox, NEW, Surv.from_arrays(NEW_EVENT * 2, NEW_TIME, causes=2))


def test_labels_and_legends_lie_within_the_picture():
    figure = Figure(figsize=(4.8, 4.0))
    ax = figure.subplots()
    ax.plot([0, 1], [0, 100_000], label="a model")
    ax.set(xlabel="time (years)", ylabel="a quantity", title="two\nlines")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    fill_figure(figure, ax)
    outer, whole = ax.get_tightbbox(), figure.bbox
    around = np.concatenate([outer.min - whole.min, whole.max - outer.max])
    np.testing.assert_allclose(around, 3 / 72 * figure.dpi, atol=1.5)  # pixels
