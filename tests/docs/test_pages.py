"""Pages of the documentation: their links and pictures exist, and their code runs."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from sumosurv.cli.parser import make_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), ROOT / "paper" / "README.md"])
LISTS = ("index", "guide", "evidence", "development")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Anchors of headings, as code hosts and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_exist(page):
    text = without_code(page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)\s#]*)#?([^)\s]*)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), f"{target} does not exist"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), f"{target} has no heading #{anchor}"


def contents(name: str) -> list[str]:
    """Pages in the tables of contents of a page."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    bodies = re.findall(r"^```\{toctree\}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for body in bodies for line in body.splitlines() if line and not line.startswith(":")]
    return [re.sub(r".*<(.*)>", r"\1", line) for line in lines]


def test_every_page_is_in_a_list():
    """Every page of docs/ is in one table of contents of the site, and no other is."""
    listed = [page for name in LISTS for page in contents(name)]
    # search.html is the site's own page
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert "search" not in pages
    assert sorted(name for name in listed if "/" not in name) == sorted(pages)


@pytest.mark.parametrize("name", contents("guide"))
def test_guide_pages_are_short(name):
    lines = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    prose = [line for line in lines if not (name == "scores_reference" and line.startswith("|"))]  # one row per score
    assert len(" ".join(prose).split()) <= 1200


@pytest.mark.parametrize(
    "name", ["quickstart", "encoders", "files", "large_data", "distributed", "regression", "coming_from"]
)
def test_code_runs(name, tmp_path, monkeypatch):
    if name == "coming_from":
        pytest.importorskip("lifelines", reason="the page shows code of lifelines")
        pytest.importorskip("sksurv", reason="the page shows code of scikit-survival")
    if name in ("coming_from", "regression"):
        pytest.importorskip("formulaic", reason="the page shows formulas")
    pytest.importorskip("matplotlib", reason="pages draw pictures").use("agg")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert blocks
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks):
        quick = block.replace("SumoNet(random_state=0)", "SumoNet(n_members=2, max_epochs=5, random_state=0)")
        exec(compile(quick, f"{name}.md, block {number}", "exec"), namespace)
        if "by_sex_fit =" in block:  # lines beside each other do the same
            check_lifelines_agrees(namespace)


def check_lifelines_agrees(lines):
    """The fits of lifelines and those of sumosurv that the page translates them to."""
    for theirs, own in (("cph", "fit"), ("by_sex", "by_sex_fit")):
        found = lines[own].coef_
        np.testing.assert_allclose(np.sort(lines[theirs].params_), np.sort(found), rtol=1e-4, atol=1e-6)
    weibull, own = lines["weibull"], lines["weibull_fit"]
    np.testing.assert_allclose(weibull.log_likelihood_, own.log_likelihood_, rtol=1e-8)
    np.testing.assert_allclose(weibull.params_["lambda_"][["age", "sex"]], own.coef_, rtol=1e-4)


def test_readme_has_the_figures_of_the_records(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import readme

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.neutral() in text
    assert readme.likelihoods() in text
    assert readme.speed() in text


def test_evidence_pages_have_the_figures_of_the_records(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import default_likelihood
    import page

    for name, make in page.PAGES:
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        for mark, body in make(ROOT / "results").items():
            assert f"<!-- begin {mark} -->\n{body}\n<!-- end {mark} -->" in text, f"{name}: {mark}"
    record = json.loads((ROOT / "results" / "default_likelihood.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "default_likelihood.md").read_text(encoding="utf-8") == default_likelihood.page(record)


def test_rounded_figures_of_the_guide_agree_with_the_records():
    def rows(name):
        return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))["results"]["rows"]

    page = (ROOT / "docs" / "large_data.md").read_text(encoding="utf-8")
    assert "ten million rows of 15 columns in 4 GB" in page
    assert max(row["host_gib"] for row in rows("performance_scale_cpu") if row["rows"] <= 1e7) * 2**30 < 4e9
    assert "memory stays at about 1 GB" in page
    assert max(row["peak_gib"] for row in rows("streaming")) * 2**30 < 1.05e9
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8").replace("\n", " ")
    assert "about 1e-7 for S and up to 1e-5 of the largest value for f" in page
    assert max(row["error_S"] for row in rows("performance_export_cpu")) < 2e-7
    assert max(row["error_f"] for row in rows("performance_export_cpu")) < 1.1e-5


def test_commands_on_pages_have_options_that_exist(capsys):
    """Every line of the shell on a page that begins with sumosurv is read by the parser of the command line."""
    found = 0
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for block in (text for language, text in blocks if language in ("", "sh")):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                command = re.match(r"(?:cat \S+ \| )?sumosurv (.*)", line)
                if command and "--help" not in line:
                    try:
                        make_parser().parse_args(shlex.split(command[1], comments=True))
                    except SystemExit:
                        pytest.fail(f"{page.name}: {line}\n{capsys.readouterr().err}")
                    found += 1
    assert found > 15


INTERNAL = r"\b(bars? to clear|honest(?:y|ly)?|rooms?|doors?|manners|houses?|walks?|bends)\b"


def test_pages_for_users_have_no_internal_words():
    for name in ("index", "installation", "quickstart", "guide", *contents("guide"), "coming_from", "theory"):
        text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert not re.findall(INTERNAL, text), name
    assert not re.findall(INTERNAL, (ROOT / "README.md").read_text(encoding="utf-8"))
