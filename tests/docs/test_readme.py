"""Every snippet of the README runs as it stands."""

import re
import shlex
import warnings
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    found = re.findall(
        rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    assert found, f"the README has no {language} block"
    return found


def run(number, folder, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(folder)
    namespace: dict[str, object] = {}
    exec(compile(blocks("python")[number], f"README.md, python block {number}", "exec"), namespace)
    return namespace


@pytest.mark.usefixtures("few_epochs")
@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_block_runs(number, tmp_path, monkeypatch):
    namespace = run(number, tmp_path, monkeypatch)
    if number == 0:
        assert namespace["model"].score(namespace["X_test"], namespace["y_test"]) > -3.9
        assert (tmp_path / "gbsg2.sumo").stat().st_size > 1000
        assert (tmp_path / "curves.png").stat().st_size > 1000


def test_the_quick_start_fits_well(tmp_path, monkeypatch):
    namespace = run(0, tmp_path, monkeypatch)
    assert namespace["model"].score(namespace["X_test"], namespace["y_test"]) > -3.72
    weights = namespace["model"].components_.set_index("component")["weight"]
    share = weights[["proportional_hazards", "lognormal"]].sum()
    assert f"{share:.0%}".replace("%", " %") in README.read_text(encoding="utf-8")


@pytest.mark.usefixtures("few_epochs")
def test_shell_block_runs(tmp_path, monkeypatch, capsys):
    from sumosurv.cli import main

    monkeypatch.chdir(tmp_path)
    for line in blocks("sh")[0].strip().splitlines():
        command = shlex.split(line)
        assert command[0] == "sumosurv"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert main(command[1:]) == 0, line
    assert "log_likelihood" in capsys.readouterr().out
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 1001


def test_it_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_makefile_has_the_two_commands():
    text = (README.parent / "Makefile").read_text()
    assert re.search(r"^demo:", text, re.MULTILINE)
    assert re.search(r"^test:", text, re.MULTILINE)
