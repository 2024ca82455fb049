import json

import numpy as np
import pandas as pd
import pytest

from paper import table2
from paper.cli import main
from sumosurv import Surv


def test_facts_by_hand():
    X = pd.DataFrame(
        {
            "age": [50.0, 61.0, np.nan, 47.0],
            "smoker": [0.0, 1.0, 1.0, 0.0],
            "stage": pd.Categorical(["I", "II", "III", None]),
        }
    )
    counted = table2.facts("made up", X, Surv.from_arrays([1, 0, 1, 1], [2.0, 3.0, 3.0, 7.0]))
    assert (counted.rows, counted.covariates) == (4, 3)
    assert (counted.numeric, counted.binary, counted.categorical) == (1, 1, 1)
    assert (counted.unique_durations, counted.tied, counted.step) == (3, 0.5, 1.0)
    assert (counted.censored, counted.events) == (0.25, 0.75)
    assert counted.missing == pytest.approx(2 / 12)
    assert counted.published is None


def test_run_on_simulated_ones(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(table2, "QUICK_ROWS", 3000)
    record = table2.run(tmp_path, quick=True, names=("weibull", "kkbox (simulated)"))
    weibull, kkbox = record["results"]["rows"]
    assert weibull["unique_durations"] == 25_000
    assert weibull["events"] == pytest.approx(0.55, abs=0.01)
    assert (kkbox["rows"], kkbox["covariates"], kkbox["simulated"]) == (3000, 15, True)
    assert (kkbox["numeric"], kkbox["binary"], kkbox["categorical"]) == (7, 5, 3)
    printed = capsys.readouterr().out
    assert "(events -0.0" in printed  # the paper's share is one of events
    assert "rows -2,643,746" in printed
    assert json.loads((tmp_path / "table2.json").read_text())["results"]["rows"][0]["name"] == "weibull"


def test_kkbox_itself_is_left_out_without_its_files(tmp_path, monkeypatch):
    monkeypatch.setenv("SUMOSURV_DATA", str(tmp_path))
    assert table2.run(tmp_path, names=("kkbox",))["results"]["rows"] == []


def test_real_ones_agree_with_the_paper(tmp_path, real_data, capsys):
    for row in table2.run(tmp_path, names=table2.REAL)["results"]["rows"]:
        paper = row["published"]
        for key in ("rows", "covariates", "unique_durations"):
            assert row[key] == paper[key]
        assert row["censored"] == pytest.approx(paper["censored"], abs=0.005)
    assert capsys.readouterr().out.count("| -\n") == 4


def test_unknown_name(tmp_path):
    with pytest.raises(ValueError, match="no dataset 'titanic'"):
        table2.run(tmp_path, names=("titanic",))


def test_options_on_the_command_line(tmp_path, capsys):
    arguments = ["table2", "--quick", "--datasets", "normal", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "normal" in capsys.readouterr().out
    assert main([*arguments, "--device", "cpu"]) == 1
    assert "table2 has no option --device" in capsys.readouterr().err
