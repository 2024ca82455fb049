import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import sumosurv
from sumosurv.cli import main

FAST = ["--n-members", "2", "--max-epochs", "2", "--quiet"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 10, n).round(1),
            "stage": rng.choice(["I", "II", "III"], n),
            "id": np.arange(n),
            "months": rng.exponential(12, n).round(2),
            "died": rng.integers(0, 2, n),
        }
    )
    frame.loc[3, "age"] = np.nan
    folder = tmp_path_factory.mktemp("cli")
    frame.to_csv(folder / "data.csv", index=False)
    sumosurv.datasets.write_parquet(frame, folder / "data.parquet")
    return folder


@pytest.fixture(scope="module")
def model_file(table):
    path = table / "model.sumo"
    columns = ["--time", "months", "--event", "died", "--drop", "id"]
    assert main(["fit", str(table / "data.csv"), *columns, "--out", str(path), *FAST]) == 0
    return path


def test_fit_says_how_it_read_the_columns(table, capsys):
    columns = ["--time", "months", "--event", "died", "--drop", "id"]
    command = ["fit", str(table / "data.csv"), *columns, "--out", str(table / "said.sumo"), *FAST]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "120 rows, 2 covariates" in told
    assert "Numeric: age." in told
    assert "Categorical: stage (3 levels)." in told
    assert main([*command, "--drop", "id", "stage"]) == 0
    assert "Categorical" not in capsys.readouterr().out


@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-12), ("single", 5e-6), (None, 5e-6)])
def test_predictions_equal_the_library(table, model_file, capsys, precision, tolerance):
    frame = pd.read_csv(table / "data.csv")
    model = sumosurv.load(model_file)
    assert list(model.feature_names_in_) == ["age", "stage"]
    capsys.readouterr()
    options = ["--times", "6,12", "--quantiles", "0.25,0.5", "--mean", "--restricted-mean", "24", "--risk"]
    options += [] if precision is None else ["--precision", precision]
    assert main(["predict", str(model_file), str(table / "data.csv"), *options]) == 0
    text = capsys.readouterr().out
    printed = pd.read_csv(pd.io.common.StringIO(text))
    d = model.predict_distribution(frame[["age", "stage"]])
    expected = {
        "survival_6": d.survival(6.0),
        "survival_12": d.survival(12.0),
        "quantile_0.25": d.quantile(0.25),
        "median": d.median(),
        "mean": d.mean(),
        "restricted_mean_24": d.restricted_mean(24.0),
        "risk": model.predict(frame[["age", "stage"]]),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(printed[name], values, rtol=tolerance)
    digits = max(len(field.replace(".", "").strip("0")) for field in text.splitlines()[1].split(","))
    assert (digits > 9) == (precision == "double")


USUAL = ["restricted_mean_{last:g}", "risk", "mean", "quantile_0.25", "median", "quantile_0.75", "extrapolated"]


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ([], USUAL),
        (["--times", "6,12"], ["survival_6", "survival_12"]),
        (["--times", "6,1e6"], ["survival_6", "survival_1e+06", "extrapolated"]),
        (["--quantiles", "0.1,0.5"], ["quantile_0.1", "median", "extrapolated"]),
        (["--mean"], ["restricted_mean_{last:g}", "mean", "extrapolated"]),
        (["--mean", "--restricted-mean", "24"], ["restricted_mean_24", "mean", "extrapolated"]),
        (["--restricted-mean", "24"], ["restricted_mean_24"]),
        (["--restricted-mean", "0"], ["restricted_mean_0"]),
        (["--risk"], ["risk"]),
        (["--risk", "--quantiles", "0.9"], ["risk", "quantile_0.9", "extrapolated"]),
    ],
)
def test_what_is_asked_for_is_predicted_and_nothing_else(table, model_file, options, columns):
    out = table / "asked.csv"
    assert main(["predict", str(model_file), str(table / "data.csv"), "--out", str(out), *options]) == 0
    last = sumosurv.load(model_file).last_time_
    assert list(pd.read_csv(out).columns) == [name.format(last=last) for name in columns]


def test_what_lies_past_the_last_training_time_is_said(table, model_file, capsys):
    frame = pd.read_csv(table / "data.csv")
    model = sumosurv.load(model_file)
    last = float(frame["months"].max())
    assert model.last_time_ == last
    data, out = str(table / "data.csv"), table / "said.csv"
    assert main(["predict", str(model_file), data, "--mean", "--quantiles", "0.5,0.9,0.99", "--out", str(out)]) == 0
    said = capsys.readouterr().err
    written = pd.read_csv(out, keep_default_na=False)
    d = model.predict_distribution(frame[["age", "stage"]])
    restricted, mean = d.restricted_mean(last), d.mean()
    assert written.columns[0] == f"restricted_mean_{last:g}"
    np.testing.assert_allclose(written.iloc[:, 0], restricted, rtol=1e-6)
    past = {
        "mean": restricted < 0.99 * mean,
        "median": d.median() > last,
        "quantile_0.9": d.quantile(0.9) > last,
        "quantile_0.99": d.quantile(0.99) > last,
    }
    assert past["quantile_0.99"].any()
    assert not all(rows.all() for rows in past.values())
    expected = [" ".join(name for name, rows in past.items() if rows[i]) for i in range(len(frame))]
    assert written["extrapolated"].tolist() == expected
    assert f"beyond {last:g}" in said
    for name, rows in past.items():
        assert (f"{name} in {rows.sum():,} row" in said) == rows.any()
    assert main(["predict", str(model_file), data, "--risk", "--times", "1", "--out", str(out)]) == 0
    assert "extrapolated" not in capsys.readouterr().err


def test_parquet_in_and_out_equals_csv(table, model_file):
    out = table / "predictions.parquet"
    assert main(["predict", str(model_file), str(table / "data.parquet"), "--out", str(out)]) == 0
    assert main(["predict", str(model_file), str(table / "data.csv"), "--out", str(table / "p.csv")]) == 0
    written = sumosurv.datasets.read_parquet(out)
    last = sumosurv.load(model_file).last_time_
    assert list(written.columns) == [name.format(last=last) for name in USUAL]
    table_of_csv = pd.read_csv(table / "p.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(written, table_of_csv.astype(written.dtypes), rtol=1e-6)


def test_evaluate_prints_the_library_s_likelihood(table, model_file, capsys):
    arguments = ["--time", "months", "--event", "died", "--bootstrap", "20", "--out", str(table / "scores.csv")]
    assert main(["evaluate", str(model_file), str(table / "data.csv"), *arguments]) == 0
    frame = pd.read_csv(table / "data.csv")
    y = sumosurv.Surv.from_columns(frame, event="died", time="months")
    expected = sumosurv.load(model_file).score(frame[["age", "stage"]], y)
    scores = pd.read_csv(table / "scores.csv").set_index("score")
    assert scores.loc["log_likelihood", "value"] == pytest.approx(expected)
    printed = capsys.readouterr().out
    assert f"{expected:.3f}" in printed
    assert "Higher is better: log_likelihood, concordance_td" in printed
    assert "Lower is better: integrated_brier, d_calibration." in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_few_rows_have_the_exact_concordance(table, model_file, capsys, monkeypatch):
    """And more than that, that at 99 times, which is said."""
    frame = pd.read_csv(table / "data.csv")
    y = sumosurv.Surv.from_columns(frame, event="died", time="months")
    d = sumosurv.load(model_file).predict_distribution(frame[["age", "stage"]])
    columns = ["--time", "months", "--event", "died", "--bootstrap", "0", "--scores", "concordance_td"]
    command = ["evaluate", str(model_file), str(table / "data.csv"), *columns, "--out", str(table / "c.csv")]
    for most in (120, 119):
        monkeypatch.setattr("sumosurv.scores.concordance._EXACT_ROWS", most)
        capsys.readouterr()
        assert main(command) == 0
        assert ("concordance_td compares curves at" in capsys.readouterr().out) == (most == 119)
        expected = sumosurv.scores.concordance_td(d, y)
        assert pd.read_csv(table / "c.csv")["value"][0] == pytest.approx(float(expected), abs=1e-12)
        exact = sumosurv.scores.concordance_td(d, y, times="exact")
        assert expected == pytest.approx(exact, abs=0.02 if most == 119 else 0.0)


def test_late_rows_and_weights_in_evaluate(table, capsys):
    """Concordance of the time since entry; the gain over Kaplan-Meier is weighted as the score is."""
    frame = pd.read_csv(table / "data.csv").assign(start=100.0, weight=np.arange(120) % 3, subject=np.arange(120) // 2)
    frame["months"] += 100.01
    frame.to_csv(table / "late.csv", index=False)
    columns = ["--time", "months", "--event", "died", "--entry", "start", "--weight", "weight", "--group", "subject"]
    data, path = str(table / "late.csv"), table / "late.sumo"
    assert main(["fit", data, *columns, "--drop", "id", "--out", str(path), *FAST]) == 0
    capsys.readouterr()
    assert (
        main(["evaluate", str(path), data, *columns, "--bootstrap", "0", "--out", str(table / "late_scores.csv")]) == 0
    )
    scores = pd.read_csv(table / "late_scores.csv").set_index("score")["value"]
    model, X = sumosurv.load(path), frame[["age", "stage"]]
    y = sumosurv.Surv.from_columns(frame, event="died", time="months", entry="start")
    own = {"sample_weight": frame["weight"], "n_bootstrap": 0, "scores": ["log_likelihood", "concordance_td"]}
    exact = sumosurv.scores.evaluate(model, X, y, **own).set_index("score")["value"]
    assert scores["concordance_td"] == pytest.approx(exact["concordance_td"])
    baseline = sumosurv.scores.log_likelihood(model.training_curve_.repeat(120), y)
    gain = exact["log_likelihood"] - np.average(baseline, weights=frame["weight"])
    assert f"{gain:.4f} nats" in " ".join(capsys.readouterr().out.split())


def test_evaluate_of_intervals_takes_the_scores_that_can_be(table):
    frame = pd.read_csv(table / "data.csv")
    frame["until"] = np.where(frame["died"] == 1, frame["months"] + 1.0, np.inf)
    frame.drop(columns=["died", "id"]).to_csv(table / "visits.csv", index=False)
    data, path, columns = (
        str(table / "visits.csv"),
        str(table / "visits.sumo"),
        ["--lower", "months", "--upper", "until"],
    )
    assert main(["fit", data, *columns, "--out", path, *FAST]) == 0
    assert main(["evaluate", path, data, *columns, "--bootstrap", "5", "--out", str(table / "visits_out.csv")]) == 0
    assert pd.read_csv(table / "visits_out.csv")["score"].tolist() == ["log_likelihood", "d_calibration"]


def test_evaluate_at_times(table, model_file, capsys):
    data = [str(model_file), str(table / "data.csv"), "--time", "months", "--event", "died", "--bootstrap", "0"]
    scores = ["--scores", "brier", "group_calibration", "integrated_brier"]
    out = table / "times.csv"
    times = ["--times", "6,12", "--range", "1,24", "--out", str(out)]
    assert main(["evaluate", *data, *scores, *times]) == 0
    frame = pd.read_csv(table / "data.csv")
    y = sumosurv.Surv.from_columns(frame, event="died", time="months")
    d = sumosurv.load(model_file).predict_distribution(frame[["age", "stage"]])
    g = sumosurv.kaplan_meier(y, censoring=True)
    expected = [
        *sumosurv.scores.brier(d, y, [6.0, 12.0], censoring=g).mean(axis=0),
        *(sumosurv.scores.group_calibration(d, y, t).score for t in (6.0, 12.0)),
        sumosurv.scores.integrated_brier(d, y, times=(1.0, 24.0), censoring=g).mean(),
    ]
    written = pd.read_csv(out)
    np.testing.assert_allclose(written["value"], expected)
    assert list(written["times"]) == ["6", "12", "6", "12", "1–24"]
    for wrong, message in (
        (["--times", "6", "--scores", "harrell_c"], "--times is for cumulative_dynamic_auc, brier, binomial_log_lik"),
        (["--range", "1,24", "--scores", "brier"], "--range is for integrated_auc, integrated_brier"),
        (["--range", "6"], "LOW,HIGH"),
        (["--scores", "ibs"], "no score 'ibs'"),
    ):
        capsys.readouterr()
        assert main(["evaluate", *data, *wrong]) == 1
        assert message in capsys.readouterr().err


def test_evaluate_against_other_models_and_the_training_curve(table, model_file, capsys):
    other = table / "other.sumo"
    data, columns = str(table / "data.csv"), ["--time", "months", "--event", "died"]
    assert main(["fit", data, *columns, "--drop", "id", "--out", str(other), *FAST, "--seed", "5"]) == 0
    capsys.readouterr()
    out = table / "against.csv"
    command = ["evaluate", str(model_file), data, *columns, "--bootstrap", "20", "--times", "6,12", "--out", str(out)]
    assert main([*command, "--against", str(other), "kaplan-meier"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "brier at 12" in printed
    name = model_file.stem
    assert f"other - {name}" in printed
    assert f"kaplan-meier - {name}" in printed
    written = pd.read_csv(out, keep_default_na=False)
    frame = pd.read_csv(data)
    y = sumosurv.Surv.from_columns(frame, event="died", time="months")
    models = [sumosurv.load(path) for path in (model_file, other)]
    values = [sumosurv.scores.log_likelihood(m.predict_distribution(frame[["age", "stage"]]), y).mean() for m in models]
    values.append(sumosurv.scores.log_likelihood(models[0].training_curve_.repeat(len(frame)), y).mean())
    found = written[written["score"] == "log_likelihood"]["value"].to_numpy()
    np.testing.assert_allclose(found, [*values, values[1] - values[0], values[2] - values[0]], rtol=1e-9)
    assert main([*command, "--against", str(model_file)]) == 1
    assert "--against" in capsys.readouterr().err


def test_help_of_evaluate_has_the_table_of_scores(capsys):
    with pytest.raises(SystemExit) as done:
        main(["evaluate", "--help"])
    assert done.value.code == 0
    printed = capsys.readouterr().out
    for name, score in sumosurv.scores.SCORES.items():
        line = next(line for line in printed.splitlines() if line.split()[:1] == [name])
        assert line.endswith(score.in_short)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the size of a process from /proc, limits its memory")
def test_memory_does_not_grow_as_the_square_of_the_rows(table, model_file, tmp_path):
    """12,000 rows, half of them events, within 200 MB: floats for events × rows would take 288 MB or more."""
    rng = np.random.default_rng(0)
    n = 12_000
    frame = pd.DataFrame({"age": rng.normal(60, 10, n), "stage": rng.choice(["I", "II", "III"], n)})
    frame["months"], frame["died"] = rng.exponential(12, n), rng.integers(0, 2, n)
    frame.to_csv(tmp_path / "large.csv", index=False)
    code = """
import resource, sys
from pathlib import Path
from sumosurv.cli import main

model, small, large, out = sys.argv[1:]


def run(data):
    assert main(["evaluate", model, data, "--time", "months", "--event", "died", "--bootstrap", "20"]) == 0
    assert main(["predict", model, data, "--times", "6,12", "--quantiles", "0.5", "--quiet", "--out", out]) == 0


run(small)  # everything is imported now
taken = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize"))
most = int(taken.split()[1]) * 1024 + 200_000_000
resource.setrlimit(resource.RLIMIT_AS, (most, most))
run(large)
"""
    paths = [str(model_file), str(table / "data.csv"), str(tmp_path / "large.csv"), str(tmp_path / "out.csv")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # every thread has memory of its own
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    assert "12,000 rows written" in done.stdout


def fitted_by_the_library(frame, *, valid=None, categorical=(), **options):
    columns = ["age", "stage", "id"] if categorical else ["age", "stage"]

    def parts(table):
        y = sumosurv.Surv.from_columns(table, event="died", time="months")
        return table[columns].astype(dict.fromkeys(categorical, "category")), y

    model = sumosurv.SumoNet(**({"n_members": 2, "max_epochs": 6, "random_state": 0} | options))
    return model.fit(*parts(frame), validation_data=None if valid is None else parts(valid)), parts(frame)[0]


def fit_on_the_command_line(table, name, *options):
    out = table / name
    given = ["--time", "months", "--event", "died", "--quiet", "--n-members", "2", "--max-epochs", "6"]
    assert main(["fit", str(table / "data.csv"), *given, *options, "--out", str(out)]) == 0
    return sumosurv.load(out)


@pytest.fixture(scope="module")
def held_out(table):
    """Rows for early stopping that ask for something else: all die within hours."""
    frame = pd.read_csv(table / "data.csv").iloc[:40]
    frame["months"], frame["died"] = 1e-3 * (1 + np.arange(40)), 1
    sumosurv.datasets.write_parquet(frame, table / "held_out.parquet")
    return frame


def test_validation_file_and_categorical(table, held_out):
    """The rows of the file stop the training, all others train; a number that is named becomes levels."""
    frame = pd.read_csv(table / "data.csv")
    frame["id"], held_out = frame["id"] % 3, held_out.assign(id=held_out["id"] % 3)
    frame.to_csv(table / "three.csv", index=False)
    sumosurv.datasets.write_parquet(held_out, table / "three.parquet")
    arguments = ["--time", "months", "--event", "died", "--n-members", "2", "--max-epochs", "6", "--quiet"]
    files = [str(table / "three.csv"), "--valid", str(table / "three.parquet"), "--out", str(table / "v.sumo")]
    assert main(["fit", *files, *arguments, "--categorical", "id"]) == 0
    model = sumosurv.load(table / "v.sumo")
    assert [type(c).__name__ for c in model.preprocessor_.columns] == [
        "NumericColumn",
        "CategoricalColumn",
        "CategoricalColumn",
    ]
    assert model.preprocessor_.columns[2].levels == (0, 1, 2)
    expected, X = fitted_by_the_library(frame, valid=held_out, categorical=["id"])
    np.testing.assert_allclose(model.predict_median(X), expected.predict_median(X), rtol=1e-5)


def test_a_validation_file_decides_when_training_stops(table, held_out):
    frame = pd.read_csv(table / "data.csv")
    path = str(table / "held_out.parquet")
    with_file = fit_on_the_command_line(table, "stopped.sumo", "--valid", path, "--drop", "id")
    without = fit_on_the_command_line(table, "plain.sumo", "--drop", "id")
    expected, X = fitted_by_the_library(frame, valid=held_out)
    np.testing.assert_allclose(with_file.predict_median(X), expected.predict_median(X), rtol=1e-5)
    plain, _ = fitted_by_the_library(frame)
    np.testing.assert_allclose(without.predict_median(X), plain.predict_median(X), rtol=1e-5)
    assert np.abs(with_file.predict_median(X) / without.predict_median(X) - 1).max() > 0.01


def test_the_seed_is_that_of_the_library(table):
    frame = pd.read_csv(table / "data.csv")
    for seed in (0, 3):
        model = fit_on_the_command_line(table, f"seed{seed}.sumo", "--seed", str(seed), "--drop", "id")
        expected, X = fitted_by_the_library(frame, random_state=seed)
        np.testing.assert_allclose(model.predict_median(X), expected.predict_median(X), rtol=1e-5)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_target_that_cannot_be_written_is_said_before_the_work(table, model_file, command, capsys):
    capsys.readouterr()
    columns = ["--time", "months", "--event", "died"] if command == "evaluate" else []
    out = ["--out", str(table / "no" / "such" / "folder.csv")]
    assert main([command, str(model_file), str(table / "data.csv"), *columns, *out]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "folder" in printed.err


@pytest.mark.parametrize(
    ("option", "setting"), [(["--refit"], {"refit": True}), (["--set", "dropout=0"], {"dropout": 0.0})]
)
def test_options_of_fit_reach_the_model(table, option, setting):
    frame = pd.read_csv(table / "data.csv")
    model = fit_on_the_command_line(table, "option.sumo", *option, "--drop", "id")
    expected, X = fitted_by_the_library(frame, **setting)
    plain, _ = fitted_by_the_library(frame)
    got = model.predict_survival_function(X, [3.0, 9.0])
    np.testing.assert_allclose(got, expected.predict_survival_function(X, [3.0, 9.0]), atol=1e-5)
    assert np.abs(got - plain.predict_survival_function(X, [3.0, 9.0])).max() > 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "nothing.csv", "--time", "t", "--event", "e", "--out", "m"], "no file nothing.csv"),
        (["fit", "{data}", "--time", "weeks", "--event", "died", "--out", "{new}"], "no column 'weeks'"),
        (["fit", "{data}", "--time", "stage", "--event", "died", "--out", "{new}"], "must hold numbers"),
        (["fit", "{data}", "--time", "months", "--event", "age", "--out", "{new}"], "must be bool or 0/1"),
        (["fit", "{data}", "--time", "months", "--event", "died", "--drop", "x", "--out", "{new}"], "no column 'x'"),
        (["fit", "{data}", "--time", "months", "--event", "died", "--out", "no/such/folder/m"], "no/such/folder"),
        (
            ["fit", "{data}", "--time", "months", "--event", "died", "--categorical", "months", "--out", "{new}"],
            "covariate",
        ),
        (
            ["fit", "{data}", "--time", "months", "--event", "stage", "--event-value", "I", "I", "--out", "{new}"],
            "lists 'I' twice",
        ),
        (["predict", "{model}", "{other}"], "no column 'age', 'stage'"),
        (["predict", "{data}", "{data}"], "not a model file"),
        (["evaluate", "nothing.sumo", "{data}", "--time", "months", "--event", "died"], "no model file"),
        (
            ["datasets", "titanic"],
            "whas, weibull, checkerboard, normal, kkbox",
        ),
    ],
)
def test_errors_are_one_line_without_traceback(arguments, message, table, model_file, capsys):
    other = table / "other.csv"
    other.write_text("a,b\n1,2\n")
    places = {"data": table / "data.csv", "model": model_file, "other": other, "new": table / "new.sumo"}
    assert main([part.format(**places) for part in arguments]) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed
    assert not (table / "new.sumo").exists()


def test_wrong_usage_exits_with_2(capsys):
    assert main([]) == 2
    with pytest.raises(SystemExit) as error:
        main(["fit"])
    assert error.value.code == 2
    with pytest.raises(SystemExit) as error:
        main(["train"])
    assert error.value.code == 2
    assert "invalid choice" in capsys.readouterr().err
    with pytest.raises(SystemExit) as error:  # an empty variable of the shell must not select other columns
        main(["predict", "model.sumo", "rows.csv", "--times", ""])
    assert error.value.code == 2


def test_datasets_writes_a_simulated_one(tmp_path, capsys):
    out = tmp_path / "weibull.csv"
    assert main(["datasets", "weibull", "--rows", "50", "--seed", "3", "--out", str(out)]) == 0
    made = sumosurv.datasets.simulate("weibull", 50, random_state=3)
    np.testing.assert_allclose(pd.read_csv(out)["time"], made.y["time"])
    assert main(["datasets"]) == 0
    assert "support" in capsys.readouterr().out


def test_help_names_every_command_and_does_not_import_torch():
    code = "\n".join(
        [
            "import sys",
            "from sumosurv.cli import main",
            "try:",
            "    main(['--help'])",
            "finally:",
            "    print('torch' in sys.modules)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    for command in ("fit", "predict", "evaluate", "datasets"):
        assert command in done.stdout
