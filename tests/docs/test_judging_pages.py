"""The snippets of the pages about calibration and uncertainty run, one after the other; their links exist."""

import re
from pathlib import Path

import pytest

PAGES = [Path(__file__).parents[2] / "docs" / name for name in ("calibration.md", "uncertainty.md")]


@pytest.mark.usefixtures("few_epochs")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run_in_order(page, tmp_path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)
    assert plt.get_fignums()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_exist(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
