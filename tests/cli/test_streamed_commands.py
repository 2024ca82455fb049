"""Commands on folders of Parquet files, and on files for which --stream is given."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sumosurv
from sumosurv.cli import main
from sumosurv.sources import tables

OUTCOME = ["--time", "t", "--event", "died"]
FAST = ["--method", "WeibullNet", "--n-members", "1", "--max-epochs", "2", "--quiet"]
FAST += ["--set", "covariate_layers=(4,)"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    (folder / "rows").mkdir()
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame({"id": np.arange(n), "age": rng.normal(60, 9, n), "stage": rng.integers(1, 4, n)})
    frame["t"], frame["died"] = rng.exponential(8, n), np.where(rng.random(n) < 0.6, "yes", "no")
    for k, part in enumerate(np.array_split(np.arange(n), 2)):
        table = pa.Table.from_pandas(frame.iloc[part], preserve_index=False)
        pq.write_table(table, folder / "rows" / f"{k}.parquet", row_group_size=80)
    frame.to_parquet(folder / "rows.parquet", index=False)
    given = [*OUTCOME, "--event-value", "yes", "--id", "id", "--categorical", "stage"]
    assert main(["fit", str(folder / "rows"), *given, *FAST, "--out", str(folder / "model.sumo")]) == 0
    return folder, frame


def test_fit_reads_a_folder_in_pieces(place, capsys):
    folder, _ = place
    columns = sumosurv.load(folder / "model.sumo").preprocessor_.columns
    assert [column.name for column in columns] == ["age", "stage"]
    assert columns[1].levels == (1, 2, 3)
    given = [*OUTCOME, "--event-value", "yes", "--drop", "id", "stage", *FAST, "--out", str(folder / "other.sumo")]
    valid = ["--valid", str(folder / "rows.parquet")]
    assert main(["fit", str(folder / "rows.parquet"), "--stream", *given, *valid]) == 0
    assert "400 rows, 1 covariate, " in capsys.readouterr().out


def test_predict_writes_what_it_writes_for_a_table_in_memory(place, capsys):
    folder, _ = place
    asked = ["--times", "5,10", "--quantiles", "0.5", "--id", "id", "--quiet"]
    for data, out in (("rows", "streamed.parquet"), ("rows.parquet", "memory.parquet")):
        assert (
            main(["predict", str(folder / "model.sumo"), str(folder / data), *asked, "--out", str(folder / out)]) == 0
        )
    printed = capsys.readouterr()
    assert printed.out.count("400 rows written") == 2
    told = [line for line in printed.err.splitlines() if "extrapolated" in line]
    assert len(set(told)) <= 1
    streamed, memory = (pd.read_parquet(folder / name) for name in ("streamed.parquet", "memory.parquet"))
    pd.testing.assert_frame_equal(streamed, memory)
    for data, out in (("rows", "streamed.csv"), ("rows.parquet", "memory.csv")):
        assert (
            main(["predict", str(folder / "model.sumo"), str(folder / data), *asked, "--out", str(folder / out)]) == 0
        )
    assert (folder / "streamed.csv").read_text() == (folder / "memory.csv").read_text()


def test_evaluate_agrees_with_a_table_in_memory(place):
    folder, _ = place
    asked = [*OUTCOME, "--event-value", "yes", "--scores", "log_likelihood", "brier", "--times", "5", "--quiet"]
    asked += ["--against", "kaplan-meier", "--bootstrap", "5", "--censoring", "marginal"]
    for data, out in (("rows", "streamed.csv"), ("rows.parquet", "memory.csv")):
        given = [str(folder / "model.sumo"), str(folder / data), *asked, "--out", str(folder / out)]
        assert main(["evaluate", *given]) == 0
    streamed, memory = (pd.read_csv(folder / name) for name in ("streamed.csv", "memory.csv"))
    assert list(streamed["model"]) == list(memory["model"])
    np.testing.assert_allclose(streamed["value"], memory["value"], rtol=1e-9)


def test_evaluate_says_the_gain_over_the_training_curve(place, capsys):
    """In pieces as in memory, but for the standard error, which comes from groups of subjects."""
    folder, _ = place
    asked = [*OUTCOME, "--event-value", "yes", "--quiet", "--bootstrap", "5", "--scores"]
    said = {}
    for data in ("rows", "rows.parquet"):
        assert main(["evaluate", str(folder / "model.sumo"), str(folder / data), *asked, "log_likelihood"]) == 0
        words = " ".join(capsys.readouterr().out.split())
        assert "400 rows; times are" in words
        said[data] = words.partition("over the Kaplan-Meier curve of the training rows: ")[2].split()
    assert said["rows"][0] == said["rows.parquet"][0] != ""
    errors = [float(words[4].strip(").")) for words in said.values()]
    assert errors[0] == pytest.approx(errors[1], rel=0.5)
    assert main(["evaluate", str(folder / "model.sumo"), str(folder / "rows"), *asked, "d_calibration"]) == 0
    assert "Gain" not in capsys.readouterr().out


def test_events_coded_as_in_r_are_told_of_the_option(place, capsys):
    folder, frame = place
    frame.assign(died=np.where(frame["died"] == "yes", 2, 1)).to_parquet(folder / "coded.parquet")
    given = ["fit", str(folder / "coded.parquet"), "--stream", *OUTCOME, *FAST, "--out", str(folder / "coded.sumo")]
    assert main(given) == 1
    assert "--event-value 2." in capsys.readouterr().err
    assert main([*given, "--event-value", "2"]) == 0


def test_large_files_are_read_in_pieces_unasked(place, monkeypatch, capsys):
    folder, _ = place
    monkeypatch.setattr(tables, "_LARGE", 1_000)
    given = [*OUTCOME, "--event-value", "yes", *FAST, "--out", str(folder / "large.sumo")]
    monkeypatch.setattr(tables, "read_table", lambda *_, **__: pytest.fail("the whole table was read"))
    assert main(["fit", str(folder / "rows.parquet"), *given]) == 0


def test_what_cannot_be_is_said_in_a_line(place, capsys):
    folder, frame = place
    frame.to_csv(folder / "rows.csv", index=False)
    out = ["--out", str(folder / "no.sumo")]
    for words, said in (
        (["fit", str(folder / "rows.csv"), "--stream", *OUTCOME, *out], "read in blocks"),
        (["fit", str(folder / "rows"), "--time", "t", *out], "Name the outcome"),
        (["fit", str(folder / "rows"), *OUTCOME, *out], "say with --event-value"),
        (["fit", str(folder / "rows"), *OUTCOME, "--drop", "none", *out], "no column 'none'"),
        (
            ["fit", str(folder / "rows"), *OUTCOME, "--event-value", "yes", "--method", "CoxPH", *out],
            "all rows at once",
        ),
        (["search", str(folder / "rows"), *OUTCOME, *out], "There is no file"),
    ):
        assert main(words) == 1
        assert said in capsys.readouterr().err
    assert not (folder / "no.sumo").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "rows.parquet", "--stream", *OUTCOME, *FAST, "--out", "rows.parquet"],
        ["fit", "rows", *OUTCOME, *FAST, "--out", "rows/0.parquet"],
        ["fit", "rows.parquet", "--stream", *OUTCOME, *FAST, "--valid", "rows", "--out", "rows/0.parquet"],
        ["predict", "model.sumo", "rows", "--out", "rows/0.parquet"],
        ["predict", "model.sumo", "rows", "--out", "rows/2.parquet"],
        ["evaluate", "model.sumo", "rows", *OUTCOME, "--out", "rows/0.parquet"],
    ],
)
def test_the_output_never_replaces_or_joins_rows_that_are_read(arguments, place, capsys, monkeypatch):
    folder, _ = place
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*.*")) if path.is_file()}
    assert main(arguments) == 1
    assert "output file" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*.*")) if path.is_file()} == before
