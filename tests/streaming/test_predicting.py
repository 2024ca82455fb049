"""Predictions to Parquet: those of rows in memory, there as a whole or not at all, gone on with after a kill."""

import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sumosurv import Surv, WeibullNet
from sumosurv.streaming import PredictionTable, predict_to_parquet, predicting


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": np.arange(500), "a": rng.normal(size=500), "c": rng.choice(["u", "v"], 500)})
    frame["t"], frame["d"] = rng.exponential(size=500), rng.integers(0, 2, 500)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "rows.parquet", row_group_size=60)
    X, y = frame[["a", "c"]], Surv.from_columns(frame, event="d", time="t")
    settings = {"n_members": 1, "covariate_layers": (4,), "max_epochs": 2}
    models = [WeibullNet(random_state=seed, **settings).fit(X, y) for seed in (0, 1)]
    models[0].save(folder / "model.sumo")
    return folder, frame, models


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(predicting, "_PART", 100)
    monkeypatch.setattr(predicting, "_BLOCK", 50)


def test_they_are_those_of_rows_in_memory(place, tmp_path):
    folder, frame, (model, _) = place
    X = frame[["a", "c"]]
    out = tmp_path / "out.parquet"
    assert (
        model.predict_to_parquet(folder / "rows.parquet", out, times=[0.5], quantiles=[0.5], identifiers=["id"]) == 500
    )
    read = pd.read_parquet(out)
    assert list(read.columns) == ["id", "survival_0.5", "median", "extrapolated"]
    np.testing.assert_array_equal(read["id"], frame["id"])
    np.testing.assert_allclose(read["survival_0.5"], model.predict_survival_function(X, [0.5])[:, 0], rtol=1e-12)
    np.testing.assert_allclose(read["median"], model.predict_median(X), rtol=1e-12)
    np.testing.assert_array_equal(read["extrapolated"] == "median", read["median"] > model.last_time_)
    assert pq.read_metadata(out).num_row_groups >= 4
    assert list(tmp_path.iterdir()) == [out]
    np.testing.assert_allclose(model.predict(folder / "rows.parquet"), model.predict(X), rtol=1e-12)


def test_times_that_look_alike_have_columns_of_their_own(place, tmp_path):
    folder, _, (model, _) = place
    times, out = [0.1234567, 0.1234568], tmp_path / "out.parquet"
    model.predict_to_parquet(folder / "rows.parquet", out, times=times)
    assert list(pd.read_parquet(out).columns) == ["survival_0.1234567", "survival_0.1234568"]


def test_a_run_that_is_killed_leaves_no_file_and_goes_on_where_it_stopped(place, tmp_path, monkeypatch):
    folder, _, (model, _) = place
    out = tmp_path / "out.parquet"
    code = f"""
import os, signal
import sumosurv
from sumosurv.streaming import PredictionTable, predict_to_parquet, predicting
predicting._PART, predicting._BLOCK = 100, 50
write = predicting._Parts.write
def killed(parts, frame, *more):
    if len(parts._files) >= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    write(parts, frame, *more)
predicting._Parts.write = killed
predict_to_parquet(sumosurv.load({str(folder / "model.sumo")!r}), {str(folder / "rows.parquet")!r}, {str(out)!r},
                   PredictionTable(mean=True))
"""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()
    kept = sorted(path.name for path in (tmp_path / "out.parquet.parts").iterdir())
    assert kept == ["000000.parquet", "000001.parquet", "run.json"]
    finished = sum(pq.read_metadata(tmp_path / "out.parquet.parts" / name).num_rows for name in kept[:2])
    assert finished >= 200
    predicted, table = [], PredictionTable.of_rows

    def counted(asked, own, names, identifiers, frame, *more):
        predicted.append(len(frame))
        return table(asked, own, names, identifiers, frame, *more)

    monkeypatch.setattr(PredictionTable, "of_rows", counted)
    beyond = predicting.Counter()
    predict_to_parquet(model, folder / "rows.parquet", out, PredictionTable(mean=True), beyond=beyond)
    assert sum(predicted) == 500 - finished
    whole = tmp_path / "whole.parquet"
    predict_to_parquet(model, folder / "rows.parquet", whole, PredictionTable(mean=True))
    pd.testing.assert_frame_equal(pd.read_parquet(out), pd.read_parquet(whole))
    assert beyond["mean"] == (pd.read_parquet(out)["extrapolated"] == "mean").sum()


def test_parts_of_another_run_are_thrown_away(place, tmp_path, monkeypatch):
    folder, frame, (model, other) = place
    out = tmp_path / "out.parquet"

    def stopped(parts, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(predicting._Parts, "join", stopped)
        with pytest.raises(KeyboardInterrupt):
            predict_to_parquet(model, folder / "rows.parquet", out, PredictionTable(times=[1.0]))
    predict_to_parquet(other, folder / "rows.parquet", out, PredictionTable(times=[1.0]))
    expected = other.predict_survival_function(frame[["a", "c"]], [1.0])[:, 0]
    np.testing.assert_allclose(pd.read_parquet(out)["survival_1"], expected, rtol=1e-12)
    assert np.abs(expected - model.predict_survival_function(frame[["a", "c"]], [1.0])[:, 0]).max() > 1e-4


def test_parts_of_rows_that_changed_are_predicted_again(place, tmp_path, monkeypatch):
    """Even if the file has the size and the time stamp that it had."""
    _, frame, (model, _) = place
    rows, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"

    def write(table):
        table = pa.Table.from_pandas(table, preserve_index=False)
        pq.write_table(table, rows, row_group_size=60, compression="none", use_dictionary=False, write_statistics=False)

    def stopped(parts, target):
        raise KeyboardInterrupt

    write(frame)
    before = rows.stat()
    with monkeypatch.context() as patch:
        patch.setattr(predicting._Parts, "join", stopped)
        with pytest.raises(KeyboardInterrupt):
            predict_to_parquet(model, rows, out, PredictionTable(times=[1.0]))
    changed = frame.copy()
    changed.loc[[130, 140], "a"] = changed.loc[[140, 130], "a"].to_numpy()
    write(changed)
    os.utime(rows, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert rows.stat().st_size == before.st_size
    predict_to_parquet(model, rows, out, PredictionTable(times=[1.0]))
    expected = model.predict_survival_function(changed[["a", "c"]], [1.0])[:, 0]
    np.testing.assert_allclose(pd.read_parquet(out)["survival_1"], expected, rtol=1e-12)


def test_columns_that_are_not_there_are_named(place, tmp_path):
    folder, _, (model, _) = place
    with pytest.raises(ValueError, match="no column 'name'"):
        model.predict_to_parquet(folder / "rows.parquet", tmp_path / "out.parquet", identifiers=["name"])
    with pytest.raises(ValueError, match="more than one column named 'id'"):
        model.predict_to_parquet(folder / "rows.parquet", tmp_path / "out.parquet", identifiers=["id", "id"])
    with pytest.raises(FileNotFoundError, match="does not exist"):
        model.predict_to_parquet(folder / "rows.parquet", tmp_path / "none" / "out.parquet")


def test_a_folder_of_the_users_beside_the_target_and_the_rows_themselves_survive(place, tmp_path):
    folder, _, (model, _) = place
    rows, out, own = tmp_path / "rows.parquet", tmp_path / "out.parquet", tmp_path / "out.parquet.parts"
    rows.write_bytes((folder / "rows.parquet").read_bytes())
    with pytest.raises(ValueError, match=r"rows\.parquet .*rows\.parquet"):
        predict_to_parquet(model, rows, rows)
    own.mkdir()
    for name, content in (("notes.txt", b"mine"), ("run.json", b'{"speed": 3}'), ("run.json", b"[")):
        (own / name).write_bytes(content)
        with pytest.raises(FileExistsError, match="move it"):
            predict_to_parquet(model, rows, out)
        assert (own / name).read_bytes() == content
    (own / "0.parquet").write_bytes(rows.read_bytes())
    (own / "run.json").write_text('{"signature": "of another run"}')
    with pytest.raises(ValueError, match=r"out\.parquet\.parts .* another"):
        predict_to_parquet(model, own, out)
    assert (own / "0.parquet").read_bytes() == rows.read_bytes() == (folder / "rows.parquet").read_bytes()


def test_what_is_past_the_last_training_time_is_marked(place, tmp_path):
    """Of times and horizons all rows or none are; the column is there if some prediction can be extrapolated."""
    folder, _, (model, _) = place
    last, out = model.last_time_, tmp_path / "out.parquet"

    def asked(**table):
        beyond = predicting.Counter()
        predict_to_parquet(model, folder / "rows.parquet", out, PredictionTable(**table), beyond=beyond)
        found = pd.read_parquet(out)
        return set(found["extrapolated"]) if "extrapolated" in found else None, dict(beyond)

    assert asked(times=[last]) == (None, {})
    name = f"survival_{2 * last:g}"
    assert asked(times=[last, 2 * last]) == ({name}, {name: 500})
    assert asked(restricted_mean=last) == (None, {})
    name = f"restricted_mean_{2 * last:g}"
    assert asked(restricted_mean=2 * last) == ({name}, {name: 500})
    assert asked(risk=True) == (None, {})
    assert asked(quantiles=[1e-6]) == ({""}, {})


def test_progress_is_shown_if_asked_for(place, tmp_path, capsys):
    folder, _, (model, _) = place
    for verbose in (False, True):
        predict_to_parquet(model, folder / "rows.parquet", tmp_path / "out.parquet", verbose=verbose)
        assert ("500/500" in capsys.readouterr().err) == verbose
