"""The bar of a search: never past its end, in step with the networks of a trial, and with the best score."""

import io

import pytest

from sumosurv.search.rounds import SearchProgress


@pytest.fixture
def bars(monkeypatch):
    """What is shown, and what the bar is told."""
    import tqdm.auto

    made = []

    class Bar(tqdm.auto.tqdm):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options, file=io.StringIO())
            made.append(self)

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    return made


def test_epochs_of_all_networks_of_a_trial_make_one_trial(bars):
    progress = SearchProgress(4, 3, shown=True)
    for _ in range(10):
        progress.advance(6 / 10)  # two trials of three networks, ten epochs
    assert bars[0].n == pytest.approx(2.0)
    progress.advance(0.5 * 3)
    assert bars[0].n == pytest.approx(2.5)
    progress.close()


def test_the_bar_ends_with_the_last_trial(bars):
    """Networks that are trained again after the choice must not move it past its end."""
    progress = SearchProgress(2, 3, shown=True)
    progress.resume(1)
    assert bars[0].n == pytest.approx(1.0)
    for _ in range(5):
        progress.advance(1.5)
        assert bars[0].n <= 2
    assert bars[0].n == pytest.approx(2.0)
    progress.close()


def test_the_best_score_stays(bars):
    progress = SearchProgress(3, 1, shown=True)
    for score, best in ((-1.5, "-1.5000"), (-1.25, "-1.2500"), (-2.0, "-1.2500")):
        progress.show_best(score)
        assert bars[0].postfix == f", best {best}"
    progress.close()


def test_nothing_is_shown_by_default(bars):
    progress = SearchProgress(3, 1, shown=False)
    progress.resume(1)
    progress.advance(1.0)
    progress.show_best(1.0)
    progress.close()
    assert bars[0].disable
