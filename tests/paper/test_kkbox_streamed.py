"""KKBOX's stand-in: the truth of rows that are rounded up to whole days, and a fit from a Parquet file."""

import numpy as np
import pytest

from paper import kkbox_streamed
from paper.record import load_record
from paper.scoring import Fold
from sumosurv import datasets


def test_the_truth_is_the_probability_of_the_day_before_a_recorded_time():
    fold = Fold.simulated(2_000, 0)
    true, y = datasets.true_distribution("kkbox", fold.X_test), fold.y_test
    survival = np.diagonal(true.survival(y["time"]))
    before = np.diagonal(true.survival(y["time"] - 1.0))
    own = np.where(y["event"], np.log(before - survival), np.log(survival))
    days = np.ptp(fold.y["time"][fold.train])
    assert fold.truth()["S_L_interval"] == pytest.approx(own.mean() + y["event"].mean() * np.log(days), abs=1e-9)


def test_a_fit_from_a_file_is_scored_on_test_rows_and_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kkbox_streamed, "_QUICK_ROWS", 3_000)
    kkbox_streamed.run(tmp_path, quick=True)
    record = load_record(tmp_path / "kkbox_streamed.json")
    found, truth = record["results"], Fold.simulated(3_000, 0).truth()
    assert found["truth"] == truth
    assert truth["S_L_interval"] - 1.0 < found["scores"]["S_L_interval"] < truth["S_L_interval"]
    assert found["peak_bytes"] > 2**26  # torch alone takes more
    told = capsys.readouterr().out
    assert "2 networks of SuMo-net" in told
    assert "3,000 rows" in told
    assert f"{truth['S_L_interval'] - found['scores']['S_L_interval']:.4f} behind the truth" in told
