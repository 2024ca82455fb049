import json

import numpy as np
import pytest
from scipy.special import gamma

from paper import life_expectancy as experiment
from sumosurv import Surv, datasets
from sumosurv.distributions import Mixture, Weibull


def test_grid_against_closed_forms():
    shape = np.array([0.8, 1.0, 2.5])
    mean, restricted = experiment.on_a_grid(Weibull(10.0, shape), 5.0, 20.0)
    np.testing.assert_allclose(mean, 10 * gamma(1 + 1 / shape), rtol=2e-4)
    assert restricted[1] == pytest.approx(10 * (1 - np.exp(-0.5)), rel=1e-10)


def test_grid_against_the_library():
    d = Mixture([Weibull(3.0, [1.5, 2.0]), Weibull(12.0, [1.2, 4.0])])
    mean, restricted = experiment.on_a_grid(d, 7.0, 10.0)
    np.testing.assert_allclose(mean, d.mean(), rtol=1e-7)
    np.testing.assert_allclose(restricted, d.restricted_mean(7.0), rtol=1e-7)


def test_standard_error_by_hand():
    # no censoring: the area under Kaplan-Meier is the mean of min(T, h), whose error is known
    time = np.array([1.0, 2.0, 4.0, 5.0, 9.0, 9.5])
    y = Surv.from_arrays(np.ones(6), time)
    capped = np.minimum(time, 6.0)
    assert experiment.restricted_mean_error(y, 6.0) == pytest.approx(capped.std() / np.sqrt(6))
    assert experiment.restricted_mean_error(Surv.from_arrays([0, 0], [3.0, 4.0]), 2.0) == 0.0


def test_groups_of_the_truth_agree_with_kaplan_meier():
    data = datasets.simulate("kkbox", 5000, random_state=1)
    predicted = data.distribution.restricted_mean(200.0)
    groups = experiment.by_groups(predicted, data.y, 200.0, groups=4)
    assert [group.rows for group in groups] == [1250] * 4
    assert np.all(np.diff([group.predicted for group in groups]) > 0)
    for group in groups:
        assert abs(group.predicted - group.observed) < 3.5 * group.error


def test_run(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(experiment, "QUICK_ROWS", 500)
    monkeypatch.setattr(experiment, "QUICK", {"n_members": 2, "max_epochs": 5})
    record = experiment.run(tmp_path, quick=True, device="cpu", names=("weibull",))
    (row,) = record["results"]["rows"]
    assert row["grid_mean"] < 1e-6
    assert row["grid_restricted"] < 1e-6
    assert row["paper_infinite"] == 1.0
    assert row["true_error"] < 0.2
    assert 0 <= row["beyond"] < 1
    assert "means" not in row
    assert len(row["groups"]) == experiment.GROUPS
    assert "weibull" in capsys.readouterr().out
    stored = json.loads((tmp_path / "life_expectancy.json").read_text())
    assert stored["results"]["rows"][0]["dataset"] == "weibull"
    for ending in ("png", "svg"):
        assert (tmp_path / f"life_expectancy.{ending}").stat().st_size > 1000


def test_unknown_name(tmp_path):
    with pytest.raises(ValueError, match="no dataset 'whas'"):
        experiment.run(tmp_path, names=("whas",))
