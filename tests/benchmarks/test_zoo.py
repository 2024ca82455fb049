"""The summary and the scores of benchmarks/zoo.py against published tables, closed forms and counting by hand."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import Tabulated, Weibull
from sumosurv.scores import log_likelihood

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import _zoo_fits as fits
import _zoo_page
import _zoo_summary as summary
import zoo


def units(values):
    """Results from {(table, method): scores of the folds}."""
    rows = []
    for (table, method), own in values.items():
        for fold, value in enumerate(own):
            row = {"table": table, "method": method, "fold": fold, "settings": "x", "D_calibration_p": 0.5}
            row |= {"error": "ValueError: no"} if value is None else dict.fromkeys(summary.SIGN, value)
            rows.append(row | ({} if value is None else {"fit_seconds": 1.0}))
    return rows


# ------------------------------------------------------------------ ranks


def test_tied_methods_share_ranks_and_failed_ones_are_last():
    means = pd.DataFrame([[0.3, 0.1, 0.3, math.nan]], index=["t"], columns=list("abcd"))
    assert summary.ranks(means, "cells").loc["t"].tolist() == [1.5, 3.0, 1.5, 4.0]
    assert summary.ranks(means, "IBS").loc["t"].tolist() == [2.5, 1.0, 2.5, 4.0]


def test_a_fold_that_failed_fails_the_table():
    rows = units({("t", "a"): [0.1, None], ("t", "b"): [-1.0, -2.0]})
    means = summary.by_table(summary.frame(rows), "cells", ["a", "b"])
    assert math.isnan(means.loc["t", "a"])
    assert means.loc["t", "b"] == -1.5


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (9, 3.102), (10, 3.164)])
def test_the_critical_difference_has_the_published_quantiles(k, q):
    """Demšar (2006), Table 5 (a), level 0.05, and its formula."""
    assert summary.critical_difference(k, 32) == pytest.approx(q * math.sqrt(k * (k + 1) / (6 * 32)), abs=5e-4)


def test_the_critical_difference_of_the_published_example():
    """Demšar (2006), section 3.2.4: four classifiers on 14 datasets; 1.25 at level 0.05 and 1.12 at 0.10."""
    assert summary.critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert summary.critical_difference(4, 14, level=0.10) == pytest.approx(1.12, abs=0.005)


def test_methods_that_lack_a_table_are_left_out():
    rows = units({("t", "a"): [1.0, 1.0], ("t", "b"): [0.0, 0.0], ("u", "a"): [1.0, 1.0]})
    assert summary.whole(summary.frame(rows)) == (["a"], ["b"])


# ------------------------------------------------------------------ noise


def test_a_difference_counts_where_it_is_twice_its_standard_error():
    # differences 1, 2, 3: mean 2, standard error 1/√3
    found = summary.paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (found.mean, found.error, found.sign) == (2.0, pytest.approx(1 / math.sqrt(3)), 1)
    # differences 0, 1, 2: mean 1, standard error 1/√3, a ratio of 1.73
    assert summary.paired([0.0, 1.0, 2.0], [0.0, 0.0, 0.0]).sign == 0
    assert summary.paired([1.0, 1.0], [2.0, 2.0]).sign == -1  # without any spread
    assert summary.paired([1.0, 1.0], [1.0, 1.0]).sign == 0
    assert summary.paired([1.0], [2.0]).sign == 0  # one fold has no noise to compare with


def test_wins_and_losses():
    rows = units({
        ("t", "a"): [1.0, 2.0, 3.1], ("t", "b"): [0.0, 1.0, 2.0],  # better
        ("u", "a"): [1.0, 0.0, 1.0], ("u", "b"): [0.0, 1.0, 0.0],  # noise
        ("v", "a"): [1.0, None, 1.0], ("v", "b"): [0.0, 0.0, 0.0],  # failed
    })  # fmt: skip
    found = summary.frame(rows)
    assert summary.wins(found, "a", "b", "cells") == (1, 1, 1)
    assert summary.wins(found, "b", "a", "cells") == (1, 1, 1)
    assert summary.wins(found, "a", "b", "IBS") == (0, 1, 2)  # less is better


def test_behind_the_simple_methods_is_beyond_margin_and_noise():
    weibull = {("t", m): [0.50, 0.50, 0.50] for m in summary.SIMPLE}
    for own, low, high in (
        ([0.47, 0.471, 0.469], True, False),  # S_L lower by 0.03; as IBS that is better
        ([0.49, 0.491, 0.489], False, False),  # within the margin of S_L
        ([0.40, 0.55, 0.40], False, False),  # noise
        ([0.52, 0.521, 0.519], False, True),  # IBS above by 4 %
        ([0.505, 0.5051, 0.5049], False, False),  # by 1 %
    ):
        found = summary.against_simple(summary.frame(units(weibull | {("t", "SumoNet"): own})), "SumoNet").iloc[0]
        assert (bool(found["low_S_L"]), bool(found["high_IBS"])) == (low, high), own


def test_rejections_against_the_binomial_bound():
    rows = [{"table": "t", "method": "a", "fold": i, "D_calibration_p": p} for i, p in enumerate([0.01, 0.2, 0.9])]
    # three folds: P(X <= 0) = 0.857, P(X <= 1) = 0.993
    assert summary.rejections(summary.frame(rows), "a") == (1, 3, 1)


def test_groups_of_the_diagram_are_the_longest_that_are_not_told_apart():
    assert _zoo_page._groups(np.array([1.0, 2.0, 2.5, 5.0]), 1.6) == [(0, 2)]
    assert _zoo_page._groups(np.array([1.0, 2.0, 3.0]), 1.5) == [(0, 1), (1, 2)]
    assert _zoo_page._groups(np.array([1.0, 3.0]), 1.5) == []


# ------------------------------------------------------------------ scores


def test_cell_likelihood_of_exponentials_is_the_closed_form():
    y = Surv.from_arrays([True, True, False, True, False, True], [0.0, 1.5, 1.5, 5.0, 5.0, 1.0])
    scale = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    s1, s2 = np.exp(-1.0 / scale), np.exp(-2.0 / scale)
    expected = [1 - s1[0], s1[1] - s2[1], (s1[2] + s2[2]) / 2, s2[3], s2[4], 1 - s1[5]]
    found = fits.cell_likelihood(Weibull(scale, 1.0), y, np.array([1.0, 2.0]))
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-12)


def test_cell_likelihood_is_that_of_the_histogram():
    rng = np.random.default_rng(0)
    y = Surv.from_arrays(rng.random(50) < 0.6, rng.uniform(0.01, 2.9, 50))
    edges, curve = np.array([0.5, 1.0, 3.0]), Weibull(rng.uniform(1, 2, 50), 1.5)
    histogram = Tabulated(edges, curve.survival(edges), between="density")
    width = np.diff(np.concatenate([[0.0], edges]))[np.searchsorted(edges, y["time"])]
    expected = log_likelihood(histogram, y) + y["event"] * np.log(width)
    np.testing.assert_allclose(fits.cell_likelihood(curve, y, edges), expected, rtol=1e-10)


def test_the_marginal_curve_gives_mass_to_empty_cells():
    y = Surv.from_arrays([True], [1.5])
    edges = np.array([1.0, 2.0])
    flat, marginal = Tabulated([3.0], [[0.5]]), Tabulated([1.0, 2.0], [0.6, 0.2])
    assert np.isneginf(fits.cell_likelihood(flat, y, edges))
    found = fits.cell_likelihood(flat, y, edges, marginal)
    np.testing.assert_allclose(found, np.log(0.01 * 0.4), rtol=1e-12)
    later = fits.cell_likelihood(Tabulated([0.5], [[0.5]]), Surv.from_arrays([True], [9.0]), edges, marginal)
    np.testing.assert_allclose(later, np.log(0.99 * 0.5 + 0.01 * 0.2), rtol=1e-12)


def test_every_cell_has_events_of_the_rows_that_made_it():
    rng = np.random.default_rng(1)
    for n in (10, 60, 1000):
        y = Surv.from_arrays(rng.random(n) < 0.5, np.ceil(rng.exponential(10, n)))
        edges = fits.cell_edges(y)
        cell = np.searchsorted(edges, y["time"][y["event"]])
        assert set(cell) == set(range(len(edges) + 1))
        assert len(edges) < 30
        assert np.isfinite(fits.cell_likelihood(kaplan_meier(y).repeat(n), y, edges)).all()


def test_the_last_event_time_is_no_edge():
    y = Surv.from_arrays(np.ones(12, bool), [*[1.0] * 4, *[2.0] * 8])
    assert fits.cell_edges(y).tolist() == [1.0]


def test_thirty_cells_or_a_quarter_of_the_events():
    for n, cells in ((1000, 30), (40, 10), (3, 2)):
        y = Surv.from_arrays(np.ones(n, bool), np.arange(1.0, n + 1))
        assert len(fits.cell_edges(y)) + 1 == cells


def test_partial_likelihood_by_hand():
    y = Surv.from_arrays([True, True, False, True], [2.0, 1.0, 2.0, 2.0])
    eta = np.array([0.3, -0.2, 0.5, 0.1])
    all_four, last = np.log(np.exp(eta).sum()), np.log(np.exp(eta[[0, 2, 3]]).sum())
    expected = (eta[1] - all_four) + (eta[0] - last) + (eta[3] - last)
    np.testing.assert_allclose(fits.partial_likelihood(eta[:, None], y), [expected], rtol=1e-12)


def test_numbers_come_from_training_rows():
    train = pd.DataFrame({"num_a": [1.0, 2.0, 6.0, np.nan], "fac_b": ["x", "y", "z", "x"]})
    test = pd.DataFrame({"num_a": [np.nan, 5.0], "fac_b": ["w", None]})
    encoder = fits.encoder(train)
    with pytest.warns(UserWarning, match="unknown categories"):
        found = encoder.transform(fits.plain(test))
    filled = np.array([1.0, 2.0, 6.0, 2.0])
    expected = (np.array([2.0, 5.0]) - filled.mean()) / filled.std()
    np.testing.assert_allclose(found, np.column_stack([expected, np.zeros((2, 3))]))


# ------------------------------------------------------------------ running


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    n = 40
    frame = pd.DataFrame({"time": rng.exponential(2, n), "event": rng.integers(0, 2, n), "num_a": rng.normal(size=n)})
    frame.to_parquet(tmp_path / "tiny.parquet")
    return tmp_path


class Inside:
    """Runs units in this process."""

    def __init__(self, limit):
        self.limit = limit

    def run(self, path, method, fold):
        return fits.run_unit(path, method, fold)

    def stop(self):
        pass


def test_what_is_in_the_record_is_not_run_again(table, monkeypatch):
    monkeypatch.setattr(zoo, "Worker", Inside)
    wanted = [("tiny", "Kaplan-Meier", fold) for fold in range(2)]
    path = table / "out" / "zoo.json"
    assert zoo.run(zoo.Results(path), wanted[:1], table) == 1
    assert zoo.run(zoo.Results(path), wanted, table) == 1
    assert zoo.run(zoo.Results(path), wanted, table) == 0
    assert zoo.run(zoo.Results(path), wanted, table, force=True) == 2
    stored = json.loads(path.read_text())["results"]["units"]
    assert [unit["fold"] for unit in stored] == [0, 1]
    results = zoo.Results(path)
    results.units["tiny", "Kaplan-Meier", 0]["settings"] = "other"
    assert results.missing(wanted) == wanted[:1]


def test_two_runs_add_to_one_record(table, monkeypatch):
    monkeypatch.setattr(zoo, "Worker", Inside)
    path = table / "out" / "zoo.json"
    one, other = zoo.Results(path), zoo.Results(path)
    zoo.run(one, [("tiny", "Kaplan-Meier", 0)], table)
    zoo.run(other, [("tiny", "Kaplan-Meier", 1)], table)
    assert [unit["fold"] for unit in zoo.Results(path).rows()] == [0, 1]


def test_a_peer_that_fails_is_kept_with_its_error(table, monkeypatch):
    def fail(model, X, y):
        raise ValueError("no\nmore")

    method = fits.METHODS["Kaplan-Meier"]
    monkeypatch.setitem(fits.METHODS, "Kaplan-Meier", fits.Method(method.make, False, fail))
    assert fits.run_unit(table / "tiny.parquet", "Kaplan-Meier", 0)["error"] == "ValueError: no"


def test_a_table_that_is_too_slow_is_tried_once(table, monkeypatch):
    tried = []

    class Slow(Inside):
        def run(self, path, method, fold):
            tried.append(fold)
            return {"table": "tiny", "method": method, "fold": fold, "error": "no result within 300 s"}

    monkeypatch.setattr(zoo, "Worker", Slow)
    results = zoo.Results()
    zoo.run(results, [("tiny", "Kaplan-Meier", fold) for fold in range(3)], table)
    assert tried == [0]
    assert results.units["tiny", "Kaplan-Meier", 2]["error"].startswith("not tried: fold 0")


def test_the_page_names_failures_and_what_is_missing():
    rows = units({(t, m): [0.1 * i, 0.2 * i] for t in "tu" for i, m in enumerate(summary.SIMPLE)})
    rows += units({("t", "a"): [0.5, 0.6], ("u", "a"): [0.5, None]})
    rows = [row | {"processor": "q" if row["method"] == "a" else "p"} for row in rows]
    settings = {"threads": 1, "seconds_at_most": 300.0, "methods": {}}
    record = {"configuration": settings, "versions": {"torch": "2", "scikit-learn": "1"}, "results": {"units": rows}}
    text = _zoo_page.text(record, summary.frame(rows), {})
    assert "a on u, fold 1: ValueError: no" in text
    assert f"p: {', '.join(summary.SIMPLE)}; q: a; 1 thread" in text
    assert "`SumoNet` is not in the record yet." in text
    assert summary.report(rows).count("a on u, fold 1: ValueError: no") == 1
