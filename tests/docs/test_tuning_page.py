"""The snippets of the page about searches run, one after the other."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"


@pytest.mark.usefixtures("few_epochs")
def test_blocks_run_in_order():
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert len(found) == 4
    namespace: dict[str, object] = {}
    for number, block in enumerate(found):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), namespace)
    assert len(namespace["search"].cv_results_["params"]) == 8


def test_links_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (PAGE.parent / target).exists(), target
