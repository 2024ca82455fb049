import json

import numpy as np
import pytest
import torch

from paper import kkbox_seconds, table7
from paper.report.seconds import seconds_part
from sumosurv import CoxTime, datasets

# of made-up rows: indicators of what is missing together, levels that few rows have
pytestmark = [
    pytest.mark.filterwarnings("ignore:Columns left out"),
    pytest.mark.filterwarnings("ignore:The likelihood has no maximum"),
    pytest.mark.filterwarnings("ignore:Column .* were not seen in training"),
]


@pytest.fixture(scope="module")
def part():
    made = datasets.simulate("kkbox", 300, random_state=0)
    return table7.Part(made.X.iloc[:200], made.y[:200], made.X.iloc[200:])


def test_every_method_is_timed_once_and_cox_time_both_ways(part):
    rows = list(table7.time_methods("made up", part, repeats=2))
    names = [row.method for row in rows]
    assert names == ["SumoNet", "CoxTime", "CoxTime, all times", *table7.METHODS[2:]]
    for row in rows:
        assert row.inference > 0
        assert np.isfinite([row.inference_sd, row.inference]).all()
        assert row.rows == 100
        assert (row.training is None) == (row.method == "CoxTime, all times")
    assert {row.n_times for row in rows} == {100, 200}
    assert torch.get_num_threads() == 1


def test_cox_time_on_a_grid_is_its_curve_at_the_grid_where_the_grid_has_all_event_times(part):
    model = CoxTime(n_members=1, max_epochs=1, random_state=0).fit(part.X, part.y)
    network = model.stack_.populations[0].network
    same = table7._gathered(network, network.baseline_times[0])
    torch.testing.assert_close(same.increments, network.increments)
    # on a coarser grid no hazard is lost
    coarse = table7._gathered(network, torch.linspace(0, 1, 20, dtype=torch.float64))
    torch.testing.assert_close(coarse.increments.sum(), network.increments.sum())
    inputs = table7._inputs(model, part.X_test)
    exact, rough = (n.distribution(inputs).survival(1.0) for n in (network, coarse))
    np.testing.assert_allclose(rough, exact, atol=0.1)
    assert coarse.baseline_times.shape[1] <= 20


def test_the_baseline_is_computed_again_and_is_the_same(part):
    model = CoxTime(n_members=1, max_epochs=1, random_state=0).fit(part.X, part.y)
    before = model.stack_.populations[0].network.increments.clone()
    table7._predict_all_times(model, part, np.unique(part.y["time"]))()
    torch.testing.assert_close(model.stack_.populations[0].network.increments, before)


def test_epochs_are_counted(part):
    model, seconds = table7._training("DeepSurv", part, table7.SETTINGS, 3)
    assert len(model.history_) == 1 + len(seconds) == 21
    assert (seconds > 0).all()
    assert len(table7._training("CoxPH", part, table7.SETTINGS, 3)[1]) == 3


def test_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(table7, "QUICK_ROWS", 400)
    record = table7.run(
        tmp_path, quick=True, names=("kkbox (simulated)",), methods=("SumoNet", "CoxTime", "CoxPH"), repeats=1
    )
    timings = record["results"]["timings"]
    assert [row["method"] for row in timings] == ["SumoNet", "CoxTime", "CoxTime, all times", "CoxPH"]
    assert timings[2]["published_inference"] == 158.141
    assert timings[1]["published_inference"] is None  # the paper did not time it on a grid
    assert timings[0]["published_training"] == 700.269
    assert json.loads((tmp_path / "table7.json").read_text())["configuration"]["batch_size"] == 1000
    assert "27.2x" in capsys.readouterr().out  # the paper's ratio


def test_the_simulated_kkbox_and_the_tables_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(table7, "QUICK_ROWS", 400)
    assert seconds_part(tmp_path) == ""
    record = kkbox_seconds.run(tmp_path, quick=True, device="cpu", methods=("SumoNet", "CoxTime"))
    sumo, _, every = record["results"]["timings"]
    page = seconds_part(tmp_path)
    prediction, epoch = page.split("Seconds per epoch")
    assert f"batches of 5,000, {sumo['rows']} rows" in prediction
    assert f"| SuMo-net | {sumo['inference']:.3g}<br><sub>paper 5.81</sub> |" in prediction
    assert f"| Cox-Time, at all times | {every['inference']:.3g}<br><sub>paper 158</sub> |" in prediction
    assert f"| SuMo-net | {sumo['training']:.3g}<br><sub>paper 700</sub> |" in epoch
    assert "at all times |" not in epoch
    assert "released" not in page


@pytest.mark.parametrize("options", [{"names": ("titanic",)}, {"methods": ("Oracle",)}])
def test_unknown_names(tmp_path, options):
    with pytest.raises(ValueError, match="There is no"):
        table7.run(tmp_path, **options)


def test_simulated_times_are_whole_days():
    part = table7._part("kkbox (simulated)", 0, True)
    assert (part.y["time"] == np.round(part.y["time"])).all()
    assert part.y["time"].min() >= 1
    assert len(part.X) + len(part.X_test) < table7.QUICK_ROWS  # validation rows take no part
