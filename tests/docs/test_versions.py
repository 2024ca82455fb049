"""The lower bounds that are promised are those that are tested."""

import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
SITE = {"sphinx", "pydata-sphinx-theme", "myst-parser", "sphinx-gallery", "sphinx-design", "sphinx-copybutton"}
ELSEWHERE = {"torch", "ruff", "mypy"} | SITE  # pinned to one build; not needed to run tests


def test_the_lower_bounds_are_the_tested_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = chain(project["dependencies"], *project["optional-dependencies"].values())
    wanted = [Requirement(text) for text in texts if not text.startswith("sumosurv[")]
    promised = {one.name: Version(next(iter(one.specifier)).version) for one in wanted}
    assert all([part.operator for part in one.specifier] == [">="] for one in wanted)
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert {name: Version(value) for name, value in tested.items() if name not in ELSEWHERE} == {
        name: value for name, value in promised.items() if name not in ELSEWHERE
    }
