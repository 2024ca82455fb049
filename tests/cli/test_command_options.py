"""Every option of every command reaches what it is for, and --quiet is quiet."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io

import numpy as np
import pandas as pd
import pytest

import sumosurv
from sumosurv import WeibullNet, load
from sumosurv.cli import main
from sumosurv.cli.parser import _GROUPS, COMMANDS, make_parser
from sumosurv.datasets import simulate
from sumosurv.report import make_report
from sumosurv.scores import evaluate, evaluation
from sumosurv.search import NetworkSearch
from sumosurv.serve import Limits, serve
from sumosurv.training import Checkpoints

N = 60


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 9, N), "stage": rng.integers(1, 4, N), "patient": np.arange(N)})
    frame["entry"] = 0.01 * rng.random(N)
    frame["months"], frame["died"] = 0.1 + rng.exponential(8, N), rng.integers(0, 3, N)
    frame["low"], frame["high"] = frame["months"], np.where(frame["died"] > 0, frame["months"] + 1, np.inf)
    frame["w"], frame["one"] = rng.uniform(0.5, 2.0, N), (frame["died"] > 0).astype(int)
    return frame


OUTCOME = {"--time": "months", "--event": "one"}


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    """Two files of rows, the second with the first ten, and two model files."""
    made = tmp_path_factory.mktemp("options")
    table.to_parquet(made / "data.parquet", index=False)
    table[:10].to_parquet(made / "ten.parquet", index=False)
    for name, alpha in (("model", "0.1"), ("other", "1")):
        command = ["fit", str(made / "data.parquet"), "--time", "months", "--event", "one", "--drop"]
        command += [*table.columns.difference(["age", "stage", "months", "one"])]
        assert (
            main([*command, "--method", "coxph", "--set", f"alpha={alpha}", "--out", str(made / f"{name}.sumo")]) == 0
        )
    return made


class ReachedError(Exception):
    """What the command would have done."""

    def __init__(self, **what):
        super().__init__(what)
        self.what = what


def stop(**constant):
    def reached(*arguments, **named):
        raise ReachedError(arguments=arguments, **named, **constant)

    return reached


def flat(options):
    words = []
    for name, value in options.items():
        if value is not None:
            words += [name, *(value if isinstance(value, list) else [] if value is True else [value])]
    return [str(word) for word in words]


@pytest.fixture
def ask(folder, monkeypatch):
    """Run a command up to the call that does its work, and return the arguments of that call."""

    def of_fit(self, X, y=None, validation_data=None, **more):
        source = X if hasattr(X, "covariates") else None
        outcome = next(source.blocks([])).outcome if source is not None else y
        names = source.covariates if source is not None else list(X.columns)
        kinds = X.dtypes.astype(str).to_dict() if source is None else {}
        raise ReachedError(
            settings=self.get_params(), outcome=outcome, columns=names, kinds=kinds, valid=validation_data, **more
        )

    for method in (WeibullNet, NetworkSearch):
        monkeypatch.setattr(method, "fit", of_fit)
    monkeypatch.setattr(sumosurv.report, "make_report", stop())
    monkeypatch.setattr(sumosurv.serve, "serve", stop())

    def asked(command, **options):
        given = {"--out": str(folder / "new.file")} if command != "serve" else {}
        files = {"fit": ["data.parquet"], "search": ["data.parquet"], "serve": ["model.sumo"]}
        words = [str(folder / name) for name in files.get(command, ["model.sumo", "data.parquet"])]
        if command != "serve":
            given |= OUTCOME
        if command in ("fit", "search"):
            given |= {"--method": "WeibullNet"}
        given |= {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        with pytest.raises(ReachedError) as reached:
            main([command, *words, *flat(given)])
        return reached.value.what

    return asked


def setting(name, value):
    return lambda found, _: found["settings"][name] == value


def named(name, value):
    return lambda found, _: found[name] == value


def of_cluster(name, value):
    return lambda found, _: getattr(found["settings"]["cluster"], name) == value


def column(field, name):
    return lambda found, frame: np.allclose(getattr(found["outcome"], field), frame[name])


DATA_OPTIONS = {
    "--time": ({"time": "low"}, column("time", "low")),
    "--event": ({"event": "died"}, lambda found, frame: np.array_equal(found["outcome"].cause, frame["died"])),
    "--event-value": ({"event": "stage", "event_value": "2"},
                      lambda found, frame: np.array_equal(found["outcome"].event, frame["stage"] == 2)),
    "--lower": ({"time": None, "event": None, "lower": "low", "upper": "high"}, column("upper", "high")),
    "--upper": ({"time": None, "event": None, "lower": "low", "upper": "high"}, column("time", "low")),
    "--entry": ({"entry": "entry"}, column("entry", "entry")),
    "--weight": ({"weight": "w"}, lambda found, frame: np.allclose(
        found["outcome"].weight, frame["w"] / frame["w"].mean())),
    "--group": ({"group": "patient"}, lambda found, frame: len(set(found["outcome"].group)) == N),
}  # fmt: skip
OF_THE_ESTIMATOR = {
    "--id": ({"id": ["patient", "w"]}, lambda found, _: not {"patient", "w"} & set(found["columns"])),
    "--drop": ({"drop": ["entry", "low"]}, lambda found, _: not {"entry", "low"} & set(found["columns"])),
    "--valid": ({"valid": "ten.parquet"}, lambda found, _: len(found["valid"][0]) == len(found["valid"][1]) == 10),
    "--quiet": ({"quiet": True}, setting("verbose", False)),
    "--seed": ({"seed": 7}, setting("random_state", 7)),
}
WORKS = {
    "fit": DATA_OPTIONS | OF_THE_ESTIMATOR | {
        "--set": ({"set": ["dropout=0.25", "patience=9"]}, setting("dropout", 0.25)),
        "--method": ({"method": "weibullnet"}, setting("max_epochs", WeibullNet().max_epochs)),
        "--max-epochs": ({"max_epochs": 3}, setting("max_epochs", 3)),
        "--device": ({"device": "cpu"}, setting("device", "cpu")),
        "--n-members": ({"n_members": 4}, setting("n_members", 4)),
        "--refit": ({"refit": True}, setting("refit", True)),
        "--checkpoint": ({"checkpoint": "state"}, lambda found, _: found["checkpoint"].folder.name == "state"),
        "--checkpoint-seconds": ({"checkpoint": "state", "checkpoint_seconds": 5},
                                 lambda found, _: found["checkpoint"].seconds == 5.0),
    },
    "search": DATA_OPTIONS | OF_THE_ESTIMATOR | {
        "--set": ({"set": "dropout=0.25"}, setting("estimator__dropout", 0.25)),
        "--method": ({"method": "weibullnet"}, lambda found, _: isinstance(found["settings"]["estimator"], WeibullNet)),
        "--max-epochs": ({"max_epochs": 3}, setting("estimator__max_epochs", 3)),
        "--device": ({"device": "cpu"}, setting("estimator__device", "cpu")),
        "--trials": ({"trials": 5}, setting("n_trials", 5)),
        "--proposals": ({"proposals": "tpe"}, setting("method", "tpe")),
        "--space": ({"space": "recipe"}, setting("space", "recipe")),
        "--cv": ({"cv": 3}, setting("cv", 3)),
        "--storage": ({"storage": "trials.db"}, setting("storage", "trials.db")),
        "--categorical": ({"categorical": "stage"}, lambda found, _: found["kinds"]["stage"] == "category"),
        "--ray": ({"ray": "head:1"}, of_cluster("address", "head:1")),
        "--ray-workers": ({"ray": "head:1", "ray_workers": 3}, of_cluster("workers", 3)),
        "--ray-min-work": ({"ray": "head:1", "ray_min_work": 9}, of_cluster("min_work", 9)),
        "--ray-send-package": ({"ray": "head:1", "ray_send_package": True}, of_cluster("send_package", True)),
    },
    "report": {
        "--against": ({"against": "other.sumo"}, lambda found, _: list(found["against"]) == ["other"]),
        "--times": ({"times": "2,4"}, named("times", [2.0, 4.0])),
        "--title": ({"title": "On models"}, named("title", "On models")),
        "--unit": ({"unit": "months"}, named("unit", "months")),
        "--causes": ({"causes": ["death"]}, named("causes", ["death"])),
        "--no-subjects": ({"no_subjects": True}, named("subjects", False)),
        "--bootstrap": ({"bootstrap": 9}, named("n_bootstrap", 9)),
        "--quiet": ({"quiet": True}, named("verbose", False)),
    },
    "serve": {
        "--host": ({"host": "0.0.0.0"}, named("host", "0.0.0.0")),
        "--port": ({"port": 1234}, named("port", 1234)),
        "--allow-host": ({"allow_host": ["here", "there"]}, named("hosts", ["here", "there"])),
        "--unit": ({"unit": "months"}, named("unit", "months")),
        "--causes": ({"causes": ["death"]}, named("causes", ["death"])),
        "--max-rows": ({"max_rows": 5}, lambda found, _: found["limits"].rows == 5),
        "--timeout": ({"timeout": 2.5}, lambda found, _: found["limits"].seconds == 2.5),
        "--verbose": ({"verbose": True}, named("log_level", "info")),
    },
}  # fmt: skip


@pytest.mark.parametrize(("command", "option"), [(command, option) for command in WORKS for option in WORKS[command]])
def test_an_option_reaches_the_work(command, option, ask, folder, table, monkeypatch):
    monkeypatch.chdir(folder)
    options, is_reached = WORKS[command][option]
    assert is_reached(ask(command, **options), table)
    without = {name: value for name, value in options.items() if name.replace("_", "-") != option[2:]}
    if option not in ("--method", "--time", "--event", "--lower", "--upper"):
        found = ask(command, **without)
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # there is nothing of that name
            assert not is_reached(found, table)


def test_every_option_has_a_case():
    elsewhere = {"data", "model", "--out", "--sep", "--decimal", "--stream", "--trials-out", "--categorical"}
    outcome, cluster = ({option[0] for option in _GROUPS[name][0]} for name in ("outcome", "cluster"))
    for command, cases in WORKS.items():
        assert {option[0] for option in COMMANDS[command].options} - elsewhere <= set(cases), command
    assert outcome <= set(WORKS["fit"])
    assert outcome | cluster <= set(WORKS["search"])


@pytest.mark.parametrize("data", ["data.parquet", "folder"])
def test_a_progress_bar_is_shown_for_many_rows_unless_quiet(data, folder, table, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "folder").mkdir(exist_ok=True)
    table.to_parquet(folder / "folder" / "rows.parquet", index=False)
    shown = {}
    for rows in (N - 1, N):
        monkeypatch.setattr("sumosurv.cli.predict._BLOCK", rows)
        for quiet in ([], ["--quiet"]):
            asked = [data, "--times", "3", "--out", "predictions.parquet", *quiet]
            assert main(["predict", "model.sumo", *asked]) == 0
            shown[rows, bool(quiet)] = "predicting" in capsys.readouterr().err
    assert shown == {(N - 1, False): True, (N - 1, True): False, (N, False): False, (N, True): False}


def test_evaluate_passes_its_options_on_and_says_what_is_better(folder, table, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    plain = ["evaluate", "model.sumo", "data.parquet", "--time", "months", "--event", "one"]
    asked = ["--scores", "brier", "harrell_c", "integrated_brier", "--times", "3,5", "--range", "1,6"]
    assert main([*plain, *asked, "--bootstrap", "7", "--censoring", "marginal", "--out", "scores.csv", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = " ".join(printed.out.split())
    assert "Higher is better: harrell_c." in lines
    assert "Lower is better: brier, integrated_brier." in lines
    expected = evaluation.evaluate(
        load("model.sumo"), table[["age", "stage"]], (table["months"], table["one"]),
        scores={"brier": {"times": [3.0, 5.0]}, "harrell_c": {}, "integrated_brier": {"times": (1.0, 6.0)}},
        n_bootstrap=7, censoring="marginal",
    )  # fmt: skip
    written = pd.read_csv("scores.csv")
    np.testing.assert_allclose(written["value"], expected["value"], rtol=1e-9)
    np.testing.assert_allclose(written["low"], expected["low"], rtol=1e-9)
    assert main([*plain, "--scores", "brier", "--times", "3", "--range", "1,2"]) == 1
    assert "--range is for" in capsys.readouterr().err
    assert main([*plain, "--scores", "integrated_brier", "--range", "1,2,3"]) == 1
    assert "LOW,HIGH" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "search"])
def test_standard_input_is_read_once(command, folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("age,months,one\n1,2,1\n"))
    words = ["--time", "months", "--event", "one", "--method", "WeibullNet", "--out", str(folder / "never.sumo")]
    assert main([command, "-", "--valid", "-", *words]) == 1
    assert "only once" in capsys.readouterr().err


def test_what_was_written_is_said(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    model = ["--method", "WeibullNet", "--n-members", "1", "--max-epochs", "1", "--quiet", "--out", "net.sumo"]
    names = ["--drop", "patient", "low", "high", "w", "entry", "died"]
    assert main(["fit", "data.parquet", "--time", "months", "--event", "one", *names, *model]) == 0
    said = capsys.readouterr()
    assert (
        said.out.splitlines()[0]
        == f"{N} rows, 2 covariates, {pd.read_parquet('data.parquet')['one'].mean():.1%} events; 1 network."
    )
    assert "net.sumo" in said.out
    assert said.err == ""
    pytest.importorskip("onnx", reason="onnx is not installed (extra 'export')")
    assert main(["export", "net.sumo", "--out", "net.onnx"]) == 0
    assert "net.onnx" in capsys.readouterr().out
    assert main(["export", "net.sumo", "--out", "small.onnx", "--precision", "single"]) == 0
    assert (folder / "small.onnx").stat().st_size < (folder / "net.onnx").stat().st_size


def test_simulated_rows_follow_their_seed_and_number(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 3):
        assert main(["datasets", "weibull", "--rows", "30", "--seed", str(seed), "--out", f"{seed}.parquet"]) == 0
        made, truth = pd.read_parquet(f"{seed}.parquet"), sumosurv.datasets.simulate("weibull", 30, random_state=seed)
        np.testing.assert_allclose(made["time"], truth.y["time"])
        np.testing.assert_array_equal(made["event"], truth.y["event"])
    said = capsys.readouterr().out
    assert f"30 simulated rows, {truth.y['event'].mean():.1%} events" in said
    assert "3.parquet" in said
    assert main(["datasets"]) == 0
    assert {"support", "kkbox,"} - set(capsys.readouterr().out.replace("kkbox.", "kkbox,").split()) == set()


def test_defaults_are_those_of_the_library_and_of_the_help():
    """The number of trials is the command's own."""
    (commands,) = (part for part in make_parser()._actions if isinstance(part, argparse._SubParsersAction))
    options = {name: {part.dest: part for part in one._actions} for name, one in commands.choices.items()}
    signature = {f.__name__: inspect.signature(f).parameters for f in (evaluate, make_report, serve, Checkpoints)}
    for command, option, function, parameter in (
        ("evaluate", "bootstrap", "evaluate", "n_bootstrap"), ("report", "bootstrap", "make_report", "n_bootstrap"),
        ("serve", "port", "serve", "port"), ("serve", "host", "serve", "host"),
        ("fit", "checkpoint_seconds", "Checkpoints", "seconds"),
    ):  # fmt: skip
        assert options[command][option].default == signature[function][parameter].default, (command, option)
    assert options["search"]["trials"].default == 100
    assert options["datasets"]["rows"].default == len(simulate("weibull", random_state=0))
    assert {part["seed"].default for part in options.values() if "seed" in part} == {0}
    for option, limit in (("max_rows", "rows"), ("timeout", "seconds")):
        assert f"(default: {getattr(Limits(), limit)})" in options["serve"][option].help
