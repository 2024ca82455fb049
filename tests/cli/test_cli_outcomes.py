"""The command line with late entry, intervals, weights, subjects and causes: it is the library's fit and scores."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import sumosurv
from sumosurv import SumoNet, Surv, scores
from sumosurv.cli import main

N = 120
FAST = {"n_members": 1, "max_epochs": 3, "components": "networks"}
SETTINGS = ["--n-members", "1", "--max-epochs", "3", "--set", "components=networks", "--quiet"]
COLUMNS = ("survival", "incidence_1", "incidence_2")

# columns of the outcome as they are named on the command line
OUTCOMES = {
    "entry": "--time time --event died --entry entry",
    "intervals": "--lower lower --upper upper",
    "weights": "--time time --event died --weight weight --group subject",
    "causes": "--time time --event cause",
    "intervals and causes": "--lower lower --upper upper --event cause",
    "all": "--time time --event cause --entry entry --weight weight --group subject",
    "dead": "--time time --event status --event-value dead",
    "R": "--time time --event code --event-value 2",
    "true": "--time time --event flag",
    "named causes": "--time time --event reason --event-value cancer heart",
    "one of the causes": "--time time --event reason --event-value heart",
    "numbered causes": "--time time --event cause --event-value 2 1",
    "intervals and named causes": "--lower lower --upper upper --event reason --event-value cancer heart",
}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    x = rng.normal(size=N).round(4)  # so that a file holds it exactly
    each = np.stack([np.exp(0.5 * x) * rng.weibull(1.4, N), 1.5 * rng.weibull(1.2, N)], axis=1)
    last = rng.uniform(0.4, 3.0, N)
    time = np.minimum(each.min(axis=1), last).round(4) + 0.01
    cause = np.where(each.min(axis=1) <= last, 1 + each.argmin(axis=1), 0)
    lower = np.floor(4 * time) / 4
    return pd.DataFrame(
        {
            "x": x,
            "sex": rng.choice(["f", "m"], N),
            "time": time,
            "died": (cause > 0).astype(int),
            "flag": cause > 0,
            "status": np.where(cause > 0, "dead", "alive"),
            "code": 1 + (cause > 0),
            "cause": cause,
            "reason": np.array(["alive", "cancer", "heart"])[cause],
            "entry": np.where(rng.random(N) < 0.5, 0.5 * time, 0.0).round(4),
            "lower": lower,
            "upper": np.where(cause > 0, lower + 0.25, np.inf),
            "weight": rng.integers(0, 4, N),
            "subject": np.arange(N) // 2,
        }
    )


def outcome(frame, kind):
    """The same by the library: y, and what else `fit` takes."""
    cause, time = frame["cause"].to_numpy(), frame["time"]
    more = {"sample_weight": frame["weight"], "groups": frame["subject"]}
    return {
        "entry": (Surv.from_arrays(cause > 0, time, frame["entry"]), {}),
        "intervals": (Surv.interval(frame["lower"], frame["upper"]), {}),
        "weights": (Surv.from_arrays(cause > 0, time), more),
        "causes": (Surv.from_arrays(cause, time), {}),
        "intervals and causes": (Surv.interval(frame["lower"], frame["upper"], cause), {}),
        "all": (Surv.from_arrays(cause, time, frame["entry"]), more),
        "dead": (Surv.from_arrays(cause > 0, time), {}),
        "R": (Surv.from_arrays(cause > 0, time), {}),
        "true": (Surv.from_arrays(cause > 0, time), {}),
        "named causes": (Surv.from_arrays(cause, time), {}),
        "one of the causes": (Surv.from_arrays(cause == 2, time), {}),
        "numbered causes": (Surv.from_arrays(np.array([0, 2, 1])[cause], time), {}),
        "intervals and named causes": (Surv.interval(frame["lower"], frame["upper"], cause), {}),
    }[kind]


@pytest.fixture(scope="module")
def run(frame, tmp_path_factory):
    """Runs a command on the table; models are fitted once for each kind of outcome."""
    folder = tmp_path_factory.mktemp("outcomes")
    frame.to_csv(folder / "data.csv", index=False)
    models = {}

    def fitted(kind):
        if kind not in models:
            models[kind] = folder / f"{kind}.sumo"
            columns = OUTCOMES[kind].split()
            unused = [name for name in frame.columns[2:] if name not in columns]
            command = ["fit", str(folder / "data.csv"), *columns, *SETTINGS, "--drop", *unused]
            assert main([*command, "--out", str(models[kind])]) == 0
        return models[kind]

    fitted.folder = folder
    return fitted


@pytest.mark.parametrize("kind", OUTCOMES)
def test_fit_is_that_of_the_library(kind, frame, run, capsys):
    model = sumosurv.load(run(kind))
    assert list(model.feature_names_in_) == ["x", "sex"]
    y, more = outcome(frame, kind)
    X = frame[["x", "sex"]]
    expected = SumoNet(**FAST, random_state=0).fit(X, y, **more)
    assert model.n_causes_ == expected.n_causes_
    grid = [0.5, 1.0]
    np.testing.assert_allclose(
        model.predict_survival_function(X, grid), expected.predict_survival_function(X, grid), atol=1e-6
    )
    if model.n_causes_ > 1:
        np.testing.assert_allclose(
            model.predict_cumulative_incidence(X, grid), expected.predict_cumulative_incidence(X, grid), atol=1e-6
        )


def test_evaluate_says_that_the_likelihood_is_of_cells(frame, tmp_path, capsys):
    rounded = frame[["x", "sex", "died"]].assign(time=np.ceil(2 * frame["time"]) / 2)
    rounded.to_csv(tmp_path / "d.csv", index=False)
    common = ["--time", "time", "--event", "died"]
    fit = ["fit", str(tmp_path / "d.csv"), *common, "--out", str(tmp_path / "m.sumo")]
    assert main([*fit, "--n-members", "2", "--max-epochs", "3"]) == 0
    assert sumosurv.load(tmp_path / "m.sumo").resolution_ == 0.5
    told = capsys.readouterr().out
    assert "Times are recorded to 0.5" in told
    assert main([*fit, "--max-epochs", "1"]) == 0
    assert re.search(
        r"held-out rows: network 0\.\d\d, small_network 0\.\d\d, proportional_hazards", capsys.readouterr().out
    )
    assert main([*fit, "--n-members", "2", "--max-epochs", "3"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "m.sumo"), str(tmp_path / "d.csv"), *common, "--bootstrap", "0"]) == 0
    printed = capsys.readouterr().out
    assert "cells of 0.5" in printed
    assert "Times are recorded to 0.5" in printed


@pytest.mark.parametrize("kind", ["entry", "intervals", "weights", "causes", "intervals and causes", "all"])
def test_evaluate_prints_the_scores_of_the_library(kind, frame, run, capsys):
    path = run(kind)
    capsys.readouterr()
    out = run.folder / "scores.csv"
    command = ["evaluate", str(path), str(run.folder / "data.csv"), *OUTCOMES[kind].split()]
    assert main([*command, "--bootstrap", "10", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    y, more = outcome(frame, kind)
    model, X = sumosurv.load(path), frame[["x", "sex"]]
    expected = scores.evaluate(model, X, y, n_bootstrap=10, **more)
    written = pd.read_csv(out)
    assert list(written["score"]) == list(expected["score"])
    np.testing.assert_allclose(written[["value", "low", "high"]], expected[["value", "low", "high"]], rtol=1e-9)
    if "cause" in expected:
        assert list(written["cause"].fillna(0)) == [k or 0 for k in expected["cause"]]
    names = ["log_likelihood", "d_calibration"] if "intervals" in kind else list(scores.DEFAULT_SCORES)
    assert list(dict.fromkeys(expected["score"])) == names


@pytest.mark.parametrize(
    ("kind", "curve"),
    [
        ("weights", "Kaplan-Meier curve"),
        ("entry", "marginal curve"),
        ("intervals", "marginal curve"),
        ("causes", "Aalen-Johansen curves"),
        ("all", "Aalen-Johansen curves"),
    ],
)
def test_the_gain_over_the_training_curve(kind, curve, frame, run, capsys):
    """Its mean and standard error by hand: rows count by their weights, the rows of a subject together."""
    path = run(kind)
    capsys.readouterr()
    command = ["evaluate", str(path), str(run.folder / "data.csv"), *OUTCOMES[kind].split(), "--bootstrap", "0"]
    assert main([*command, "--scores", "log_likelihood"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    model = sumosurv.load(path)
    y, more = outcome(frame, kind)
    own = scores.log_likelihood(model.predict_distribution(frame[["x", "sex"]]), y)
    gain = own - scores.log_likelihood(model.training_curve_.repeat(N), y)
    weight = frame["weight"].to_numpy() if more else np.ones(N)
    mean = np.average(gain, weights=weight)
    subjects = frame["subject"].to_numpy() if more else np.arange(N)
    parts = [(weight * (gain - mean))[subjects == one].sum() for one in np.unique(subjects)]
    error = np.sqrt(np.square(parts).sum()) / weight.sum()
    found = re.search(rf"over the {curve} of the training rows: (\S+) nats \(standard error (\S+)\)\.", printed)
    assert found[1] == f"{mean:.4f}"
    assert float(found[2]) == pytest.approx(error, rel=0.2)  # by 200 resamples of the subjects


def test_incidences_and_survival_sum_to_one(frame, run):
    out = run.folder / "incidences.csv"
    command = ["predict", str(run("causes")), str(run.folder / "data.csv"), "--times", "0.5,1.5", "--out", str(out)]
    assert main([*command, "--precision", "double"]) == 0
    written = pd.read_csv(out)
    assert list(written.columns) == [f"{what}_{t}" for t in ("0.5", "1.5") for what in COLUMNS]
    for t in ("0.5", "1.5"):
        np.testing.assert_allclose(written[[f"{what}_{t}" for what in COLUMNS]].sum(axis=1), 1.0, atol=1e-12)
    incidence = sumosurv.load(run("causes")).predict_cumulative_incidence(frame[["x", "sex"]], [0.5, 1.5])
    np.testing.assert_allclose(written[["incidence_1_0.5", "incidence_2_0.5"]], incidence[:, 0], atol=1e-12)
    np.testing.assert_allclose(written[["incidence_1_1.5", "incidence_2_1.5"]], incidence[:, 1], atol=1e-12)


def test_the_usual_predictions_of_a_model_of_causes(frame, run):
    out = run.folder / "usual.csv"
    assert main(["predict", str(run("causes")), str(run.folder / "data.csv"), "--out", str(out)]) == 0
    written = pd.read_csv(out)
    model = sumosurv.load(run("causes"))
    np.testing.assert_allclose(written["median"], model.predict_median(frame[["x", "sex"]]), rtol=1e-6)
    np.testing.assert_allclose(written["risk"], model.predict(frame[["x", "sex"]]), rtol=1e-6)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("--time time --event code", "--event-value 2."),
        ("--time time --event code", "--event-value 1 2"),
        (
            "--time time --event status",
            "which of them means an event (several for competing causes), for example --event-value dead.",
        ),
        ("--time time --event status --event-value Dead", "'status' has no value 'Dead'; its values are"),
        ("--time time --event cause --event-value 1 3", "'cause' has no value '3'; its values are"),
        ("--time time --event gaps --event-value 1", "'gaps' is missing in 2 rows"),
        ("--lower lower", "Name --time and --event, or --lower and --upper"),
        ("--upper upper", "Name --time and --event, or --lower and --upper"),
        ("--time time --event died --lower lower --upper upper", "Name --time and --event, or --lower and --upper"),
        ("--time time", "Name the outcome: --time and --event, or --lower and --upper"),
        ("--event died", "Name the outcome: --time and --event, or --lower and --upper"),
        ("--lower lower --upper upper --event-value 1", "name it with --event"),
        ("--time died --event died", "--time and --event both name the column 'died'"),
        ("--time time --event died --weight time", "--time and --weight both name the column 'time'"),
        ("--time time --event died --entry start", "There is no column 'start' (--entry); the columns are 'x', 'sex'"),
        ("--time time --event died --weight w", "There is no column 'w' (--weight)"),
        ("--time time --event died --group id", "There is no column 'id' (--group)"),
        ("--lower low --upper upper", "There is no column 'low' (--lower)"),
        ("--lower lower --upper high", "There is no column 'high' (--upper)"),
        ("--time entry --event died --entry time", "'time' is not before 'entry' in"),
        ("--lower upper --upper lower", "'upper' is infinite (inf) in"),
        ("--time time --event died --weight x", "sample_weight is negative"),
        ("--time time --event died --group gaps", "groups is missing in 2 rows"),
        ("--lower lower --upper upper --event wrong", "'wrong' contradicts the upper limits in"),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy(columns, message, frame, run, capsys):
    path, new = run.folder / "wrong.csv", run.folder / "new.sumo"
    gaps = frame["died"].astype(float).where(frame.index > 1)
    frame.assign(gaps=gaps, wrong=1).to_csv(path, index=False)
    capsys.readouterr()
    assert main(["fit", str(path), *columns.split(), *SETTINGS, "--out", str(new)]) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not new.exists()


def test_a_table_to_score_need_not_have_every_cause(frame, run, capsys):
    """Where the values of the causes are named; without their names nobody knows that a cause is missing."""
    some = frame[frame["cause"] != 1]
    some.to_csv(run.folder / "some.csv", index=False)
    model = sumosurv.load(run("named causes"))
    expected = model.score(some[["x", "sex"]], Surv.from_arrays(some["cause"], some["time"], causes=2))
    out = run.folder / "some_scores.csv"
    command = ["evaluate", str(run("named causes")), str(run.folder / "some.csv"), "--time", "time"]
    rest = ["--scores", "log_likelihood", "--bootstrap", "0", "--out", str(out)]
    assert main([*command, *["--event", "reason", "--event-value", "cancer", "heart"], *rest]) == 0
    assert pd.read_csv(out)["value"][0] == pytest.approx(expected)
    capsys.readouterr()
    assert main([*command, *["--event", "reason", "--event-value", "heart"], *rest]) == 1
    assert "fitted to 2 causes and the table has 1; list with --event-value" in capsys.readouterr().err
    assert main([*command, *["--event", "reason", "--event-value", "kidney", "lung"], *rest]) == 1
    assert "has no value 'kidney'" in capsys.readouterr().err
    assert main([*command, *["--event", "reason", "--event-value", "cancer", "heart", "alive"], *rest]) == 1
    assert "has no value 'cancer'" in capsys.readouterr().err


def test_limits_of_a_table_to_score_need_not_have_every_cause(frame, run):
    some = frame[frame["cause"] != 2]
    some.to_csv(run.folder / "some.csv", index=False)
    path, out = run("intervals and named causes"), run.folder / "some_scores.csv"
    columns = OUTCOMES["intervals and named causes"].split()
    command = ["evaluate", str(path), str(run.folder / "some.csv"), *columns, "--bootstrap", "0"]
    assert main([*command, "--out", str(out)]) == 0
    both = frame.assign(
        own=scores.log_likelihood(
            sumosurv.load(path).predict_distribution(frame[["x", "sex"]]),
            Surv.interval(frame["lower"], frame["upper"], frame["cause"]),
        )
    )
    assert pd.read_csv(out)["value"][0] == pytest.approx(both.loc[some.index, "own"].mean())


def test_one_event_is_scored_where_the_model_knows_one(run, capsys):
    capsys.readouterr()
    assert main(["evaluate", str(run("dead")), str(run.folder / "data.csv"), *OUTCOMES["causes"].split()]) == 1
    assert "fitted to 1 cause and the table has 2; list with --event-value" in capsys.readouterr().err


def test_a_validation_table_has_the_same_kind_of_outcome(frame, run, capsys):
    """Its weights count, and it need not have every cause."""
    valid = frame[frame["cause"] != 1]
    valid.to_csv(run.folder / "valid.csv", index=False)
    columns = "--time time --event reason --event-value cancer heart --entry entry --weight weight --group subject"
    unused = [name for name in frame.columns[2:] if name not in columns.split()]
    data, held_out, made = (str(run.folder / name) for name in ("data.csv", "valid.csv", "v.sumo"))
    assert main(["fit", data, "--valid", held_out, "--out", made, *columns.split(), *SETTINGS, "--drop", *unused]) == 0
    y, more = outcome(frame, "all")
    held_out = Surv.from_arrays(valid["cause"], valid["time"], valid["entry"], causes=2)
    expected = SumoNet(**FAST, random_state=0).fit(
        frame[["x", "sex"]], y, (valid[["x", "sex"]], held_out, valid["weight"]), **more
    )
    assert f"on validation rows, average network: {expected.best_valid_.mean():.4f} nats" in capsys.readouterr().out


def test_concordance_of_many_rows_compares_with_those_at_risk(frame, run, capsys, monkeypatch):
    monkeypatch.setattr("sumosurv.scores.concordance._EXACT_ROWS", N - 1)
    out = run.folder / "concordance.csv"
    command = ["evaluate", str(run("entry")), str(run.folder / "data.csv"), *OUTCOMES["entry"].split()]
    assert main([*command, "--bootstrap", "0", "--scores", "concordance_td", "--out", str(out)]) == 0
    y, _ = outcome(frame, "entry")
    expected = scores.concordance_td(sumosurv.load(run("entry")).predict_distribution(frame[["x", "sex"]]), y)
    assert pd.read_csv(out)["value"][0] == pytest.approx(float(expected), abs=1e-12)
