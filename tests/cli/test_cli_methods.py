"""Commands beyond the default fit: any method, its settings, searches, exports, identifiers."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from sumosurv import CoxPH, WeibullNet, load
from sumosurv.cli import main
from sumosurv.cli.parser import COMMANDS, make_parser
from sumosurv.serve import Limits

OUTCOME = ["--time", "months", "--event", "died", "--id", "patient"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 80
    frame = pd.DataFrame(
        {
            "patient": [f"P{i:03d}" for i in range(n)],
            "age": rng.normal(60, 10, n).round(1),
            "stage": rng.choice(["I", "II", "III"], n),
            "months": rng.exponential(12, n).round(2) + 0.01,
            "died": rng.integers(0, 2, n),
        }
    )
    made = tmp_path_factory.mktemp("cli")
    frame.to_csv(made / "data.csv", index=False)
    return made


def fit(folder, *options, name="model.sumo", command="fit"):
    return main([command, str(folder / "data.csv"), *OUTCOME, "--out", str(folder / name), "--quiet", *options])


def test_any_method_with_its_settings(folder, capsys):
    assert fit(folder, "--method", "coxph", "--set", "alpha=0.5") == 0
    told = capsys.readouterr().out
    assert "2 covariates" in told
    assert "CoxPH" in told
    frame = pd.read_csv(folder / "data.csv", float_precision="round_trip")  # as the command reads it
    X, y = frame[["age", "stage"]], (frame["months"], frame["died"])
    model = load(folder / "model.sumo")
    np.testing.assert_allclose(model.predict_median(X), CoxPH(alpha=0.5).fit(X, y).predict_median(X))
    settings = ["--set", "dropout=0.0", "covariate_layers=(4,)", "offset=auto", "--n-members", "2"]
    assert fit(folder, "--method", "WeibullNet", *settings, "--max-epochs", "2", "--seed", "3") == 0
    same = WeibullNet(dropout=0.0, covariate_layers=(4,), n_members=2, max_epochs=2, random_state=3).fit(X, y)
    np.testing.assert_array_equal(load(folder / "model.sumo").predict_median(X), same.predict_median(X))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "Cox"], "no method 'Cox'; --method is one of AalenJohansen, CoxCC"),
        (["--method", "SurvivalMixture"], "SurvivalMixture combines other estimators"),
        (["--method", "CoxPH", "--set", "beta=1"], "CoxPH has no setting 'beta'; it has alpha"),
        (["--method", "CoxPH", "--max-epochs", "3"], "CoxPH has no setting max_epochs; leave out --max-epochs"),
        (["--method", "CoxPH", "--valid", "data.csv"], "--valid"),
        (["--id", "nobody"], "no column 'nobody'"),
    ],
)
def test_what_cannot_be_is_said(folder, options, said, capsys):
    assert fit(folder, *options, name="none.sumo") == 1
    assert said in capsys.readouterr().err
    assert not (folder / "none.sumo").exists()


def test_a_setting_needs_a_value(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        fit(folder, "--set", "dropout")
    assert ended.value.code == 2
    assert "expected NAME=VALUE" in capsys.readouterr().err


def test_identifiers_are_passed_through(folder, capsys):
    assert fit(folder, "--method", "CoxPH", "--set", "alpha=0.5") == 0
    out = folder / "predictions.csv"
    command = ["predict", str(folder / "model.sumo"), str(folder / "data.csv"), "--times", "6", "--quiet"]
    assert main([*command, "--id", "patient", "stage", "--out", str(out)]) == 0
    frame, made = pd.read_csv(folder / "data.csv"), pd.read_csv(out)
    assert list(made.columns)[:3] == ["patient", "stage", "survival_6"]
    assert made["patient"].equals(frame["patient"])
    expected = load(folder / "model.sumo").predict_survival_function(frame[["age", "stage"]], [6.0])[:, 0]
    np.testing.assert_allclose(made["survival_6"], expected)
    assert main([*command, "--id", "name"]) == 1
    assert "no column 'name'" in capsys.readouterr().err


def test_a_search_writes_a_model_and_its_trials(folder, capsys):
    options = ["--trials", "3", "--max-epochs", "2", "--trials-out", str(folder / "trials.csv")]
    assert fit(folder, *options, "--method", "WeibullNet", "--space", "recipe", command="search", name="best.sumo") == 0
    told = capsys.readouterr().out
    assert "3 trials" in told
    assert "Best trial" in told
    trials = pd.read_csv(folder / "trials.csv")
    assert trials["rank_valid_score"].tolist() == [1, 2, 3]
    assert trials["valid_score"].is_monotonic_decreasing
    frame = pd.read_csv(folder / "data.csv")
    assert np.isfinite(load(folder / "best.sumo").predict_median(frame[["age", "stage"]])).all()
    assert fit(folder, "--method", "CoxPH", command="search", name="none.sumo") == 1
    assert "has no networks to search over" in capsys.readouterr().err


def test_export(folder, capsys):
    assert fit(folder, "--method", "CoxPH", "--set", "alpha=0.5") == 0
    assert main(["export", str(folder / "model.sumo"), "--out", str(folder / "model.bin")]) == 1
    assert ".onnx" in capsys.readouterr().err
    assert main(["export", str(folder / "model.sumo"), "--out", str(folder / "model.onnx")]) == 1
    assert "CoxPH cannot be exported" in capsys.readouterr().err
    pytest.importorskip("onnx", reason="onnx is not installed (extra 'export')")
    assert fit(folder, "--method", "WeibullNet", "--n-members", "1", "--max-epochs", "1") == 0
    assert main(["export", str(folder / "model.sumo"), "--out", str(folder / "model.onnx")]) == 0
    assert (folder / "model.onnx").stat().st_size > 1000


def test_every_command_has_help_with_defaults(capsys):
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            make_parser().parse_args([name, "--help"])
        assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "random seed (default: 0)" in told
    assert "(default: SumoNet)" in told
    assert "settings to try (default: 100)" in told
    limits = Limits()
    assert f"subjects per request (default: {limits.rows})" in told
    assert f"time limit of a request (default: {limits.seconds})" in told
    assert "None)" not in told
    assert "(default: [])" not in told


def test_the_package_can_be_run():
    made = subprocess.run([sys.executable, "-m", "sumosurv", "--version"], capture_output=True, text=True)
    assert made.returncode == 0
    assert made.stdout.startswith("sumosurv ")
