"""The bar of a search: never past its end, in step with the networks of a trial, and with the best score."""

import io

import pytest

from sumosurv.search.progress import SearchProgress


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
    with SearchProgress(4, 3, shown=True) as shown:
        after = shown.after_epoch(1.0)
        for _ in range(10):
            after(6, 10)  # two trials of three networks, ten epochs
        assert bars[0].n == pytest.approx(2.0)
        shown.after_epoch(0.5)(3, 1)
        assert bars[0].n == pytest.approx(2.5)


def test_the_bar_ends_with_the_last_trial(bars):
    """Networks that train again after the choice would move it on."""
    with SearchProgress(2, 1, shown=True) as shown:
        shown.start(1)
        for _ in range(5):
            shown.after_epoch(1.0)(1, 2)
            assert bars[0].n <= 2
        assert bars[0].n == pytest.approx(2.0)


def test_the_best_score_stays(bars):
    with SearchProgress(3, 1, shown=True) as shown:
        for score, best in ((-1.5, "-1.5000"), (-1.25, "-1.2500"), (-2.0, "-1.2500")):
            shown.found(score)
            assert bars[0].postfix == f", best {best}"


def test_nothing_is_shown_unless_it_is_wanted(bars):
    with SearchProgress(3, 1, shown=False) as hidden:
        hidden.start(1)
        hidden.after_epoch(1.0)(1, 1)
        hidden.found(1.0)
    assert bars == []
