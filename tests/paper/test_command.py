"""``python -m paper``: every name runs, and reading stored records writes nothing."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from paper.cli import EXPERIMENTS, main, module_of

ROOT = Path(__file__).parents[2]
OF_SEARCHES = ("table3", "table4", "ctd", "ibs", "likelihood-k", "table5", "table6")
STORED = {
    "table1": "IBLL, as printed",
    "table2": "checkerboard",
    "table7": "CoxTime, all times",
    "table8": "CoxTime, all times",
    "figure1": "Ctd 0.751",
    "figure3": "Checkerboard",
    "life-expectancy": "horizon",
}


def state(folder):
    """Bytes and time of the last change of every file."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def stored(monkeypatch):
    """The repository's own records, read from the top of the repository as users do."""
    if not (ROOT / "results" / "search_gbsg_sumonet.json").is_file():
        pytest.skip("the records of the searches, results/search_*.json, are not here")
    monkeypatch.chdir(ROOT)
    return ROOT / "results"


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_can_be_run(name):
    assert callable(import_module(module_of(name)).run)


@pytest.mark.parametrize("name", [*OF_SEARCHES, *STORED, "all"])
def test_reading_stored_records_writes_nothing(name, stored, capsys):
    before = {folder: state(ROOT / folder) for folder in ("results", "docs", "paper")}
    entries = sorted(ROOT.iterdir())
    assert main([name, "--stored"]) == 0
    assert STORED.get(name, "METABRIC" if name != "table5" else "metabric") in capsys.readouterr().out
    assert {folder: state(ROOT / folder) for folder in before} == before
    assert sorted(ROOT.iterdir()) == entries


def test_what_is_named_is_written_and_nothing_else(stored, tmp_path, capsys):
    before = state(stored)
    assert main(["table3", "--stored", "--out", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["table3.json"]
    assert main(["table4", "--stored", "--datasets", "gbsg", "--out", str(tmp_path / "part")]) == 0
    assert [path.name for path in (tmp_path / "part").iterdir()] == ["table4.json"]
    assert state(stored) == before
    assert str(tmp_path) in capsys.readouterr().out


def test_the_page_in_the_repository_is_made_from_the_records(stored, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pictures = import_module("paper.report.pictures")
    kept = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    names = re.findall(r"\(figures/results_(\w+)\.png\)", kept)
    monkeypatch.setattr(pictures, "draw_all", lambda _, folder: {n: folder / f"results_{n}.png" for n in names})
    assert main(["all", "--stored", "--page", str(tmp_path / "results.md")]) == 0
    for name in ("results.md", "results_time.md"):
        made = (tmp_path / name).read_text(encoding="utf-8").replace(os.path.relpath(stored, tmp_path), "../results")
        assert made == (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "paper", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in EXPERIMENTS:
        assert f"\n  {name} " in done.stdout


def test_wrong_names_and_options(tmp_path, capsys):
    with pytest.raises(SystemExit) as error:
        main(["table99"])
    assert error.value.code == 2
    assert main(["table3", "--stored", "--records", str(tmp_path)]) == 1
    assert f"no records of these searches in {tmp_path}" in capsys.readouterr().err
    assert main(["lemma1", "--stored", "--records", str(tmp_path)]) == 1
    assert f"no record {tmp_path / 'lemma1.json'}" in capsys.readouterr().err
    assert main(["table1", "--stored", "--quick"]) == 1
    assert "table1 --stored has no option --quick" in capsys.readouterr().err


def test_the_readme_names_every_experiment_and_its_links_exist():
    readme = ROOT / "paper" / "README.md"
    text = readme.read_text(encoding="utf-8")
    assert [name for name in EXPERIMENTS if f"`{name}`" not in text] == []
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (readme.parent / target).exists(), target
