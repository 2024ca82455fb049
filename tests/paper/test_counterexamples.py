import json

import numpy as np
import pytest
from scipy.integrate import quad

from paper import figure1, table1
from paper.counterexamples import FailsAt, example_1, example_1_curves, example_2, example_3
from paper.record import current_commit
from sumosurv.distributions import Weibull
from sumosurv.outcome import Surv
from sumosurv.scores import concordance_td, d_calibration, log_likelihood, survival_crps


def test_example_1_is_as_defined():
    """Hazards on disjoint unit intervals; the false curves put whoever is at hazard lower."""
    true, false = example_1_curves()
    middle = np.arange(10) + 0.5
    hazard = true.hazard(middle[:-1])
    assert ((hazard > 0) == [np.arange(9) % 2 == 0, np.arange(9) % 2 == 1]).all()
    s = false.survival(middle)
    assert ((s[0] < s[1]) == (np.arange(10) % 2 == 0)).all()
    data = example_1(6_000, seed=1)
    assert d_calibration(data.truth, data.y).p_value > 0.01
    assert np.isneginf(log_likelihood(data.false, data.y).mean())
    # half the pairs share X and tie; of the others the false curves get every one right
    assert concordance_td(data.false, data.y, times="exact") == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize(("make", "expected"), [(example_2, None), (example_3, (-0.5096, -0.6563))])
def test_examples_2_and_3_come_from_their_truth(make, expected):
    data = make(50_000, seed=2)
    assert d_calibration(data.truth, data.y).p_value > 0.01
    if expected is not None:
        means = [log_likelihood(d, data.y).mean() for d in (data.truth, data.false)]
        np.testing.assert_allclose(means, expected, atol=0.02)


def test_fails_at():
    d, y = FailsAt(Weibull([2.0, 2.0], 1.0), 3.0), Surv.from_arrays([True, True], [1.0, 3.0])
    np.testing.assert_allclose(d.survival([2.9, 3.0])[0], [np.exp(-1.45), 0.0])
    np.testing.assert_allclose(log_likelihood(d, y), [np.log(0.5) - 0.5, -1.5])
    np.testing.assert_allclose(d.mean(), 2 * (1 - np.exp(-1.5)))
    below = [quad(lambda t: (1 - np.exp(-t / 2)) ** 2, 0, z)[0] for z in (1.0, 3.0)]
    above = [quad(lambda t: np.exp(-t), z, 3.0)[0] for z in (1.0, 3.0)]
    np.testing.assert_allclose(survival_crps(d, y), np.add(below, above), atol=1e-10)


def test_table_1_verdicts_are_the_papers(tmp_path, capsys):
    record = table1.run(tmp_path, n_1=1000, n_2=40_000, n_3=40_000)
    rows = record["results"]["rows"]
    for row in rows:
        assert row["prefers_truth"] == row["score"].startswith("S_L"), row
        if row["published_prefers_truth"] is not None:
            assert row["prefers_truth"] == row["published_prefers_truth"]
    by_name = {(row["example"], row["score"]): row for row in rows}
    assert by_name["1", "S_L"]["false"] == -np.inf
    assert by_name["1", "S_L, floor 1e-6"]["follows_from_text"]
    assert by_name["1", "Ctd"]["follows_from_text"]
    assert not by_name["2", "S_L"]["follows_from_text"]
    assert by_name["2*", "IBLL, as printed"]["true"] == pytest.approx(-0.009, abs=0.005)
    saved = json.loads((tmp_path / "table1.json").read_text())
    assert saved["results"]["rows"][0]["false"] == "-inf"
    assert saved["configuration"]["seed"] == 0
    assert {"numpy", "torch", "sumosurv"} <= set(saved["versions"])
    assert saved["commit"] == current_commit()
    printed = capsys.readouterr().out
    assert "beyond chance" in printed
    assert "lacks the log" in printed


def test_figure_1(tmp_path):
    record = figure1.run(tmp_path)
    scores = record["results"]["scores"]
    assert scores["false"]["concordance_td"] > scores["true"]["concordance_td"] + 0.15
    assert (tmp_path / "figure1.png").stat().st_size > 10_000
    first = (tmp_path / "figure1.svg").read_bytes()
    figure1.run(tmp_path)
    assert (tmp_path / "figure1.svg").read_bytes() == first
