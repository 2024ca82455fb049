"""The scores of benchmarks/neutral.py against published fold scores, and its page against the records."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import _neutral_page as page
import neutral

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def published():
    if not neutral.folder().is_dir():
        pytest.skip("needs the tables of the neutral comparison")
    scores = pd.read_parquet(neutral.folder() / "published_scores.parquet")
    return scores.set_index(["table", "iteration", "learner_id"]).sort_index()


@pytest.mark.parametrize(
    ("table", "method", "learner"),
    [
        ("veteran", "Kaplan-Meier", "KM"),
        ("grace", "Kaplan-Meier", "KM"),
        ("veteran", "Cox", "CPH"),
        ("uis", "Cox", "CPH"),
    ],
)
def test_scores_are_the_published_ones(published, table, method, learner):
    for iteration in (1, 5):
        found = neutral.run_fold(neutral.folder(), table, iteration, method)
        theirs = published.loc[table, iteration, learner].iloc[0]
        for score in neutral.SCORES:
            assert found[score] == pytest.approx(theirs[score], abs=1e-5), score


def test_holm_correction_is_that_of_its_definition():
    rng = np.random.default_rng(0)
    means = pd.DataFrame(rng.normal(size=(20, 4)), columns=["SumoNet", "a", "b", "c"])
    means["a"] += 1.0
    from scipy.stats import wilcoxon

    raw = sorted(wilcoxon(means["SumoNet"], means[name]).pvalue for name in "abc")
    expected, running = [], 0.0
    for k, p in enumerate(raw):
        running = max(running, min(1.0, p * (3 - k)))
        expected.append(running)
    np.testing.assert_allclose(sorted(page.paired_tests(means)), expected)


def test_the_page_is_made_from_the_records(published, tmp_path):
    page.write_page(ROOT / "results", neutral.folder(), tmp_path, record=False)
    assert (tmp_path / "neutral.md").read_text() == (ROOT / "docs" / "neutral.md").read_text()
