"""The examples of docs/explanations.md run one after the other, with a smaller model."""

import re
from pathlib import Path

import matplotlib as mpl

PAGE = Path(__file__).parents[2] / "docs" / "explanations.md"

mpl.use("Agg")


def test_the_page_runs():
    text = PAGE.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
    small = "SumoNet(n_members=2, max_epochs=3, covariate_layers=(8,), time_layers=(4,), random_state=0)"
    assert "SumoNet(random_state=0)" in code
    namespace: dict[str, object] = {}
    exec(compile(code.replace("SumoNet(random_state=0)", small), "explanations.md", "exec"), namespace)
    assert namespace["shap"].values.shape == (5, 8, 50)
    assert list(namespace["found"].numbers.index) == ["median", "restricted mean to 3", "restricted mean to 5"]


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target
