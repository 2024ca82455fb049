"""A default fit can be followed: it goes through few modules, and the steps of docs/architecture.md are among them."""

import re
import sys
from pathlib import Path

import pytest

import sumosurv
from sumosurv import SumoNet, datasets

ROOT = Path(sumosurv.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_MODULES = 31  # one of them, networks/recorded.py, for speed alone


@pytest.fixture(scope="module")
def called():
    """The functions of the library that a default fit calls, by module; few epochs call the same ones as many."""
    data, found, before = datasets.load("gbsg2"), {}, sys.getprofile()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(frame.f_code.co_qualname)

    model = SumoNet(max_epochs=3, random_state=0)
    sys.setprofile(note)
    try:
        model.fit(data.X, data.y)
    finally:
        sys.setprofile(before)
    return found


def test_a_default_fit_goes_through_few_modules(called):
    assert len(called) <= MOST_MODULES, "\n".join(sorted(called))


def test_every_step_of_the_walk_runs_in_the_module_that_the_page_names(called):
    walk = PAGE.partition("**A default fit**")[2].partition("**An evaluation**")[0]
    steps = re.findall(r"`([\w.]+)`\s+\(`([\w/]+\.py)`\)", walk)
    assert len(steps) >= 8
    missing = [f"{name} in {path}" for name, path in steps if name not in called.get(path, ())]
    assert not missing
