from pathlib import Path

import pytest

from sumosurv.scores import SCORES

PAGE = Path(__file__).parents[2] / "docs" / "scores_reference.md"


@pytest.mark.parametrize("name", list(SCORES))
def test_the_page_says_what_the_table_of_scores_says(name):
    score = SCORES[name]
    proper = f"{'**yes**' if score.proper else 'no'}: {score.why}"
    cells = [f"`{name}`", score.direction, proper, score.needs, score.formula, score.reference]
    row = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    assert row in PAGE.read_text(encoding="utf-8").splitlines()
