"""What the command line reads and writes: nothing is lost, whatever goes wrong."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import sumosurv
from sumosurv.cli import main
from sumosurv.training import batches

COLUMNS = ["--time", "months", "--event", "died"]
FAST = ["--n-members", "2", "--max-epochs", "4", "--quiet"]


def example(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(60, 10, n).round(1), "stage": rng.choice(["I", "II"], n)})
    frame["months"] = (rng.exponential(12, n) * np.exp((60 - frame["age"]) / 20)).round(3)
    frame["died"] = rng.integers(0, 2, n)
    return frame


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    example(120).to_csv(folder / "data.csv", index=False)
    assert main(["fit", str(folder / "data.csv"), *COLUMNS, "--out", str(folder / "model.sumo"), *FAST]) == 0
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    for name in ("data.csv", "model.sumo"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------------- lines that do not fit


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
def test_a_line_with_a_field_too_many_is_named(command, place, capsys):
    lines = (place / "data.csv").read_text().splitlines()
    (place / "bad.csv").write_text("\n".join([lines[0], *(line + ",1" for line in lines[1:])]))
    arguments = {
        "fit": ["bad.csv", *COLUMNS, "--out", "new.sumo"],
        "predict": ["model.sumo", "bad.csv"],
        "evaluate": ["model.sumo", "bad.csv", *COLUMNS],
    }[command]
    assert main([command, *arguments]) == 1
    printed = capsys.readouterr()
    assert "Line 2 of bad.csv has 5 fields and the header 4" in printed.err
    assert printed.out == ""


def test_separators_and_standard_input(place, capsys, monkeypatch):
    assert main(["predict", "model.sumo", "data.csv"]) == 0
    expected = capsys.readouterr().out
    text = (place / "data.csv").read_text()
    (place / "european.csv").write_text(text.replace(",", ";").replace(".", ","))
    assert main(["predict", "model.sumo", "european.csv", "--sep", ";", "--decimal", ","]) == 0
    assert capsys.readouterr().out == expected
    (place / "tabs.csv").write_text(text.replace(",", "\t"))
    for name in ("tab", "\\t", "\t"):
        assert main(["predict", "model.sumo", "tabs.csv", "--sep", name]) == 0
        assert capsys.readouterr().out == expected
    assert main(["predict", "model.sumo", "tabs.csv"]) == 1
    assert "give --sep tab" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["predict", "model.sumo", "-"]) == 0
    assert capsys.readouterr().out == expected
    assert main(["fit", "-", "--valid", "-", *COLUMNS, "--out", "new.sumo"]) == 1
    assert "only once; pass a file to --valid" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["predict", "model.sumo", "data.csv", "--sep", "comma"])


# ---------------------------------------------------------------------- what is read stays


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "data.csv", *COLUMNS, "--out", "data.csv"],
        ["fit", "data.csv", *COLUMNS, "--out", "./link.csv"],
        ["fit", "data.csv", *COLUMNS, "--valid", "model.sumo", "--out", "model.sumo"],
        ["predict", "model.sumo", "data.csv", "--out", "model.sumo"],
        ["predict", "model.sumo", "data.csv", "--out", "{folder}/data.csv"],
        ["evaluate", "model.sumo", "data.csv", *COLUMNS, "--out", "model.sumo"],
        ["evaluate", "model.sumo", "data.csv", *COLUMNS, "--out", "data.csv"],
        ["evaluate", "model.sumo", "data.csv", *COLUMNS, "--against", "other.sumo", "--out", "other.sumo"],
        ["report", "model.sumo", "data.csv", *COLUMNS, "--against", "other.sumo", "--out", "other.sumo"],
    ],
)
def test_the_output_never_replaces_what_is_read(arguments, place, capsys):
    (place / "link.csv").symlink_to("data.csv")
    (place / "other.sumo").write_bytes((place / "model.sumo").read_bytes())
    before = contents(place)
    assert main([part.format(folder=place) for part in arguments]) == 1
    assert "is also an input file" in capsys.readouterr().err
    assert contents(place) == before


def test_a_search_does_not_write_two_things_to_one_file(place, capsys):
    both = ["--out", "new.sumo", "--trials-out", "./new.sumo"]
    assert main(["search", "data.csv", *COLUMNS, *both]) == 1
    assert "--out and --trials-out both name new.sumo" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--out", "--trials-out"])
def test_a_search_writes_nothing_over_its_own_study(option, place, capsys):
    given = {"--out": "new.sumo", "--trials-out": "trials.csv", "--storage": "study.db"} | {option: "./study.db"}
    words = [word for pair in given.items() for word in pair]
    before = contents(place)
    assert main(["search", "data.csv", *COLUMNS, "--trials", "1", *words, "--quiet"]) == 1
    assert f"{option} and --storage both name study.db" in capsys.readouterr().err
    assert contents(place) == before


def test_checkpoints_go_to_a_folder(place, capsys):
    before = contents(place)
    assert main(["fit", "data.csv", *COLUMNS, "--out", "new.sumo", "--checkpoint", "data.csv", *FAST]) == 1
    assert "--checkpoint names data.csv, which is a file; name a folder." in capsys.readouterr().err
    assert contents(place) == before


def test_a_target_that_cannot_be_written_is_found_before_training(place, capsys, monkeypatch):
    def never(*_, **__):
        raise AssertionError("work was done")

    monkeypatch.setattr(sumosurv.SumoNet, "fit", never)
    monkeypatch.setattr(sumosurv.SumoNet, "_predict", never)
    monkeypatch.setattr("sumosurv.datasets.simulate", never)
    (place / "old").write_text("precious")
    (place / "old").chmod(0o444)
    for command in (
        ["fit", "data.csv", *COLUMNS],
        ["predict", "model.sumo", "data.csv"],
        ["evaluate", "model.sumo", "data.csv", *COLUMNS],
        ["datasets", "weibull"],
    ):
        for out, named in (("old", "old is read-only"), (str(place), str(place)), ("no/such/file", "no/such")):
            assert main([*command, "--out", out]) == 1
            assert named in capsys.readouterr().err
    assert (place / "old").read_text() == "precious"


@pytest.mark.parametrize("out", ["old.csv", "old.parquet"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(out, place, capsys, monkeypatch):
    import pyarrow.parquet

    example(60_000).to_csv(place / "many.csv", index=False)
    (place / out).write_bytes(b"old")
    before = contents(place)

    def filling(write):
        def full(content, file, *rest, **options):
            if hasattr(content, "index") and content.index[0] == 0 and out.endswith(".csv"):
                return write(content, file, *rest, **options)  # the first part still finds room
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return full

    monkeypatch.setattr(pd.DataFrame, "to_csv", filling(pd.DataFrame.to_csv))
    monkeypatch.setattr(pyarrow.parquet, "write_table", filling(None))
    assert main(["predict", "model.sumo", "many.csv", "--times", "1", "--out", out, "--quiet"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert contents(place) == before


# ---------------------------------------------------------------------- Ctrl-C


@pytest.fixture
def hears_ctrl_c():
    """Also where the tests were started in the background, with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupting(monkeypatch, at):
    original = batches.shuffled

    def shuffled(rows, seeds, epoch):
        if epoch == at:
            signal.raise_signal(signal.SIGINT)
        return original(rows, seeds, epoch)

    monkeypatch.setattr(batches, "shuffled", shuffled)


@pytest.mark.filterwarnings("default")
def test_interrupted_training_saves_its_best_weights_and_says_so(place, capsys, monkeypatch, hears_ctrl_c):
    interrupting(monkeypatch, at=2)
    assert main(["fit", "data.csv", *COLUMNS, "--out", "new.sumo", *FAST]) == 130
    printed = capsys.readouterr()
    assert "training was interrupted" in printed.err
    assert "Traceback" not in printed.err
    assert "Model written to new.sumo" in printed.out
    assert sumosurv.load("new.sumo").predict(example(5)[["age", "stage"]]).shape == (5,)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupted_before_the_first_epoch_writes_nothing(place, capsys, monkeypatch, hears_ctrl_c):
    before = contents(place)
    interrupting(monkeypatch, at=0)
    assert main(["fit", "data.csv", *COLUMNS, "--out", "new.sumo", *FAST]) == 130
    assert "sumosurv fit: interrupted; new.sumo was not written" in capsys.readouterr().err
    assert contents(place) == before


def test_a_process_that_is_interrupted_ends_with_130(place):
    """A real signal to a real process, in the midst of reading a pipe that never ends."""
    code = (  # a process that was started in the background ignores the signal otherwise
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sumosurv.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "fit", "-", *COLUMNS, "--out", "new.sumo"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        process.stdin.write("age,stage,months,died\n")
        process.stdin.flush()
        try:
            process.wait(4)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "new.sumo was not written" in error
    assert not (place / "new.sumo").exists()


# ---------------------------------------------------------------------- many rows


def test_predictions_of_many_rows_come_in_blocks(place, capsys, monkeypatch):
    frame = example(25_000)
    frame.to_csv(place / "many.csv", index=False)
    sizes = []
    original = sumosurv.SumoNet._predict

    def counted(self, X, notes):
        sizes.append(len(X))
        return original(self, X, notes)

    monkeypatch.setattr(sumosurv.SumoNet, "_predict", counted)
    assert main(["predict", "model.sumo", "many.csv", "--times", "3", "--risk", "--out", "p.csv"]) == 0
    assert max(sizes) <= 20_000
    shown = capsys.readouterr().err
    assert "predicting: 100%" in shown
    assert "25000/25000" in shown
    assert "row/s]" in shown
    written = pd.read_csv("p.csv")
    model = sumosurv.load("model.sumo")
    X = frame[["age", "stage"]]
    np.testing.assert_allclose(written["survival_3"], model.predict_survival_function(X, [3.0])[:, 0], rtol=1e-6)
    np.testing.assert_allclose(written["risk"], model.predict(X), rtol=1e-6)


# ---------------------------------------------------------------------- the gain over Kaplan-Meier


def test_the_gain_is_over_the_curve_of_the_training_rows(place, capsys):
    """Rows of another time scale: their own curve would be far better than that of the training rows."""
    frame = example(200, seed=1).assign(months=lambda f: f["months"] / 20)
    frame.to_csv(place / "other.csv", index=False)
    assert main(["evaluate", "model.sumo", "other.csv", *COLUMNS, "--bootstrap", "0"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    model = sumosurv.load("model.sumo")
    y = sumosurv.Surv.from_columns(frame, event="died", time="months")
    training = pd.read_csv("data.csv")
    y_train = sumosurv.Surv.from_columns(training, event="died", time="months")
    curve = sumosurv.nonparametric.coarse_kaplan_meier(y_train)
    expected = model.score(frame[["age", "stage"]], y) - sumosurv.scores.log_likelihood(curve.repeat(200), y).mean()
    assert f"Kaplan-Meier curve of the training rows: {expected:.4f} nats (standard error" in printed


def test_a_gain_without_limit_has_no_standard_error(place, capsys):
    """Whoever outlives a curve that ends at zero is impossible under it: said as such, with no warning of NumPy's."""
    frame = pd.read_csv("data.csv")
    frame.loc[frame["months"].idxmax(), "died"] = 1
    y = sumosurv.Surv.from_columns(frame, event="died", time="months")
    sumosurv.KaplanMeier().fit(frame[["age", "stage"]], y).save("km.sumo")
    other = frame.iloc[:20].copy()
    other.loc[0, ["months", "died"]] = [2 * frame["months"].max(), 0]
    other.to_csv("other.csv", index=False)
    options = ["--scores", "log_likelihood", "--bootstrap", "0"]
    assert main(["evaluate", "km.sumo", "other.csv", *COLUMNS, *options]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "curve of the training rows: -inf nats (standard error nan)." in printed
