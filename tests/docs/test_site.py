"""The documentation site: what its pages of the API list, and that it builds without a warning."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sumosurv

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "calibrate",
    "explain",
    "plots",
    "report",
    "search",
    "serve",
    "spells",
    "streaming",
)  # of these everything public is for users
MODULES = {
    "calibrate", "datasets", "distributions", "explain", "plots", "report", "scores", "serve", "spells",
    "streaming", "__version__",
}  # fmt: skip


def listed() -> set[str]:
    """Full names on the pages of the API reference."""
    names: set[str] = set()
    for page in (ROOT / "docs" / "api").glob("*.rst"):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if found := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = found[1]
            elif module and (found := re.fullmatch(r"   (\w+)", line)):
                names.add(f"{module}.{found[1]}")
    return names


def test_the_api_reference_lists_what_users_import():
    split = [full.rsplit(".", 1) for full in listed()]
    on_pages = {getattr(importlib.import_module(module), name) for module, name in split}
    wanted = {name: getattr(sumosurv, name) for name in sumosurv.__all__ if name not in MODULES}
    for package in PACKAGES:
        module = importlib.import_module(f"sumosurv.{package}")
        wanted |= {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    missing = [name for name, found in wanted.items() if found not in on_pages]
    assert not missing, f"not in docs/api/*.rst: {missing}"


def test_addresses_agree():
    """The repository is named in several files that cannot read each other."""
    address = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
    assert f'repository-code: "{address}"' in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'repository = "{address}"' in (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    assert f"home: {address}\n" in (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    site = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Documentation"]
    assert f'\nurl: "{site}"\n' in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"doc_url: {site}\n" in (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")


def test_the_workflow_runs_every_promised_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert json.loads(re.search(r"python: (\[.*\])", workflow)[1]) == promised
    assert project["requires-python"] == f">={promised[0]}"


STANDARD_TERMS = """right-censored, left-censored, interval-censored, left-truncated, left truncation, delayed entry,
competing risks, cumulative incidence, cause-specific hazard, subdistribution hazard, Fine-Gray, time-varying,
time-dependent, counting-process, proportional hazards, accelerated failure time, hazard ratio, baseline hazard,
restricted mean survival time, life expectancy, Kaplan-Meier, Nelson-Aalen, Aalen-Johansen, Turnbull, log-rank,
concordance, C-index, Brier score, calibration, decision curve, IPCW, frailty, recurrent events, landmark"""


def test_the_glossary_contains_the_terms_that_people_search_for():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()
    assert [term for term in re.split(r",\s+", STANDARD_TERMS) if term.lower() not in text] == []


def test_citation_and_recipe_name_the_version():
    assert f"\nversion: {sumosurv.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'set version = "{sumosurv.__version__}"' in (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")


def test_the_recipe_has_the_dependencies_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # on conda-forge
    split = [text.partition(">=") for text in (*project["dependencies"], f"python{project['requires-python']}")]
    recipe = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    assert {line.strip("- ") for line in run.splitlines()} == {f"{names.get(a, a)} >={b}" for a, _, b in split}


def test_the_site_builds(tmp_path):
    """All but the gallery's scripts, which ``make docs`` runs."""
    for package in (
        "sphinx",
        "myst_parser",
        "pydata_sphinx_theme",
        "sphinx_gallery",
        "sphinx_design",
        "sphinx_copybutton",
    ):
        pytest.importorskip(package, reason="the extra docs is not installed; make docs builds the site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["-D", "plot_gallery=0", "-d", str(tmp_path / "trees"), str(ROOT / "docs"), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "api" / "generated" / "sumosurv.SumoNet.html").exists()
