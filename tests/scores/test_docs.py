from pathlib import Path

import pytest

from sumosurv.scores import SCORES

PAGE = Path(__file__).parents[2] / "docs" / "scores.md"


@pytest.mark.parametrize("name", list(SCORES))
def test_the_page_says_what_the_table_of_scores_says(name):
    row = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |"))
    score = SCORES[name]
    assert ("higher" in row.split("|")[2]) == score.greater_is_better
    plain = row.replace("\\|", "|")
    assert (f"**yes**: {score.why}" if score.proper else f"no: {score.why}") in plain
    for text in (score.formula, score.cost, score.reference):
        assert text in plain


def test_pictures_exist():
    page = PAGE.read_text(encoding="utf-8")
    for name in ("figure1", "lemma1", "which_scores", "calibration"):
        assert f"figures/{name}.png" in page
        assert (PAGE.parent / "figures" / f"{name}.png").exists()
