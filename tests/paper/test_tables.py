"""Tables, verdicts, ranks and the page from made-up records with known answers; and from very small searches."""

import json
import math

import numpy as np
import pytest

from paper import ctd, everything, ibs, likelihood_k, searches, table3, table4, table5, table6
from paper.cli import main
from paper.record import load_record, make_record, save_record
from paper.report.lines import best, make_line, score_lines
from paper.report.published import BY_HALF_WIDTH, CALIBRATION, SCORES, published
from paper.report.ranks import ranking
from paper.report.stored import Question, gather
from paper.report.text import aligned, markdown
from paper.report.verdicts import verdicts
from paper.searches import full_size

S_L = {"SumoNet": 0.0, "WeibullNet": -0.05, "LogNormalNet": -0.08, "CoxPH": -0.1}  # above the target of the dataset
TARGETS = {"metabric": -0.130, "gbsg": -0.373, "flchain": -0.356, "support": 0.715}
BASE = TARGETS | {"kkbox": 1.0}


def fold(number, method, dataset, rng):
    base = BASE[dataset] + 0.01 * (number - 2) + S_L[method]
    honest = {
        "S_L": base,
        "S_L_interval": base - 0.001,
        "resolution": 1.0,
        "IBLL": -0.5 + 0.1 * S_L[method],
        "IBS": 0.16 - 0.1 * S_L[method],
        "Ctd": 0.66 if method == "WeibullNet" else 0.65 + S_L[method],
        "D_calibration_p": [0.01, 0.5, 0.6, 0.7, 0.8][number],
        "D_calibration_shares": [0.1] * 10,
        "calibration": 0.1 * (number + 1),
        "calibration_levels": [i / 10 for i in range(1, 10)],
        "calibration_observed": [min(1.0, i / 10 + 0.02) for i in range(1, 10)],
    }
    if method == "CoxPH":
        honest |= {
            "S_L_by_k": {"1": base - 0.1, "2": base, "4": base + 0.1, "8": base + 0.2},
            "mass_by_k": {"1": 0.9, "2": 0.91, "4": 0.92, "8": 0.93},
            "S_L_constant_density": base - 0.15,
            "S_L_interval": -math.inf,
        }
        return {"fold": number, "honest": honest}
    valid = base + 0.01 * np.arange(8)
    test = base + 0.01 * np.array([0, 5, 1, 2, 3, -1, -2, -3])
    short = [{"S_L": round(t, 6), "Ctd": -t, "IBS": 0.2 - t, "IBLL": t + 0.001 * rng.random()} for t in test]
    return {
        "fold": number,
        "honest": honest,
        "single": {"S_L": test[-1], "Ctd": 0.6, "IBS": 0.17, "IBLL": -0.51},
        "oracle": {"trial": 1, "S_L": test[1]},
        "before_refit": {"S_L": base - 0.002, "Ctd": 0.6, "IBS": 0.17, "IBLL": -0.51},
        "mixture_size": 4,
        "mixture_scores": {"1": base, "2": base + 0.01, "4": base + 0.02, "8": base + 0.01},
        "best_params": {"dropout": "0.4", "time_origin": "first"},
        "valid_S_L": {"mixture": base + 0.02, "single": base},
        "trials": {"valid_S_L": valid, "test_S_L": test, "scores": short if method == "SumoNet" else []},
    }


def made_up(dataset, method, *, seed=0, n_folds=5, trials=8):
    rng = np.random.default_rng(0)
    configuration = {
        "dataset": dataset,
        "method": method,
        "trials": trials,
        "folds": list(range(n_folds)),
        "split": "made up",
        "seed": seed,
        "max_epochs": full_size(method, dataset).max_epochs,
        "device": "cpu" if method == "CoxPH" else "NVIDIA H200",
    }
    results = {"search_seconds": 12.0, "folds": [fold(i, method, dataset, rng) for i in range(n_folds)]}
    return make_record(searches.record_name(dataset, method), configuration, results)


@pytest.fixture
def folder(tmp_path):
    for dataset in TARGETS:
        for method in S_L:
            save_record(made_up(dataset, method), tmp_path)
    return tmp_path


@pytest.fixture
def records(folder):
    return gather(Question.of(folder, stored=True))


def one(records, dataset, method):
    return next(
        r for r in records if (r["configuration"]["dataset"], r["configuration"]["method"]) == (dataset, method)
    )


# ---------------------------------------------------------------------- lines and the paper's figures


def test_lines_have_means_deviations_and_differences(records):
    line = make_line(one(records, "metabric", "SumoNet"), "S_L")
    assert line.mean == pytest.approx(-0.130)
    assert line.sd == pytest.approx(np.std([-0.02, -0.01, 0, 0.01, 0.02], ddof=1))
    assert line.published == (-0.142, 0.042)
    assert line.difference == pytest.approx(0.012)
    assert (line.label, line.density, line.split) == ("SuMo-net, selected on validation rows", "exact", "made up")


def test_the_three_lines_of_sumo_net(records):
    lines = score_lines([one(records, "gbsg", "SumoNet")], "S_L", sumo_parts=("honest", "single", "oracle"))
    target = TARGETS["gbsg"]
    assert {line.label.partition(", ")[2]: line.mean for line in lines} == pytest.approx(
        {
            "selected on validation rows": target,
            "best single trial on validation rows": target - 0.03,
            "best single trial on test rows": target + 0.05,
        }
    )


def test_a_figure_that_a_record_lacks_is_no_line(records):
    assert make_line(one(records, "gbsg", "CoxPH"), "S_L", "single") is None
    assert make_line(one(records, "gbsg", "SumoNet"), "S_L_k4") is None
    assert make_line(one(records, "gbsg", "CoxPH"), "S_L_k4").mean == pytest.approx(TARGETS["gbsg"])


def test_infinite_scores_have_no_deviation_and_are_never_best(records):
    lines = [make_line(one(records, "gbsg", method), "S_L_interval") for method in ("CoxPH", "SumoNet")]
    assert lines[0].mean == -math.inf
    assert math.isnan(lines[0].sd)
    assert best(lines).method == "SumoNet"


@pytest.mark.parametrize("table", [*SCORES.values(), *BY_HALF_WIDTH.values(), CALIBRATION])
def test_published_rows_are_whole(table):
    assert set(table) <= set(searches.METHODS)
    assert {len(row) for row in table.values()} == {5}


def test_published_figures_as_printed():
    assert published("IBLL", "SurvNode", "metabric") == (-0.477, None)
    assert published("Ctd", "DeepHit", "support") == (0.642, 0.003)
    assert published("S_L_k8", "CoxTime", "gbsg") == (-0.398, 0.036)
    assert published("S_L", "Soden", "gbsg") is None


def test_text_and_markdown_tables():
    assert aligned(["a", "bb"], [["long", "1"]]).splitlines() == ["a     bb", "--------", "long   1"]
    assert markdown(["a", "b"], [["c", "d"]]).splitlines() == ["| a | b |", "| --- | ---: |", "| c | d |"]


# ---------------------------------------------------------------------- tables


def test_table3_prints_ours_the_papers_and_the_difference(folder, capsys):
    record = table3.run(None, records=folder, stored=True, names=["metabric"])
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("SuMo-net, selected on validation rows "))
    assert "-0.1300 ± 0.0158" in row
    assert "-0.142 ± 0.042" in row
    assert "+0.012" in row
    assert "-0.1310" in row
    row = next(line for line in printed.splitlines() if line.startswith("Cox-Linear *"))
    assert "0.910" in row
    assert "-0.3800" in row
    assert "-inf" in row
    assert "split: made up" in printed
    assert "best single trial on test rows" in printed
    assert not (folder / "table3.json").exists()
    table3.run(folder, stored=True, names=["metabric"])
    assert not (folder / "table3.json").exists()  # a part of the table does not take the place of the whole
    assert record["results"]["rows"][0]["mean"] == pytest.approx(-0.130)
    assert {row["dataset"] for row in record["results"]["rows"]} == {"metabric"}
    assert record["configuration"]["records"] == [f"search_metabric_{m.lower()}" for m in S_L]


@pytest.mark.parametrize(("module", "score", "mean"), [(table4, "IBLL", -0.5), (ibs, "IBS", 0.16), (ctd, "Ctd", 0.65)])
def test_tables_of_one_score(module, score, mean, folder, capsys):
    rows = module.run(folder, stored=True)["results"]["rows"]
    stored = load_record(folder / f"{module.__name__.rpartition('.')[2]}.json")["results"]["rows"]
    assert [row["mean"] for row in stored] == [row["mean"] for row in rows]
    assert f"{score} (" in capsys.readouterr().out
    honest = [row for row in rows if row["method"] == "SumoNet" and row["part"] == "honest"]
    assert len(honest) == 4
    assert [row["mean"] for row in honest] == pytest.approx([mean] * 4)


def test_likelihood_by_half_width(folder, capsys):
    rows = likelihood_k.run(folder, stored=True, names=["gbsg"])["results"]["rows"]
    by_k = {row["k"]: row for row in rows if row["method"] == "CoxPH"}
    base = TARGETS["gbsg"] - 0.1
    assert {k: row["mean"] for k, row in by_k.items()} == pytest.approx(
        {1: base - 0.1, 2: base, 4: base + 0.1, 8: base + 0.2}
    )
    assert by_k[8]["mass"] == pytest.approx(0.93)
    assert by_k[8]["difference"] == pytest.approx(base + 0.2 - (-0.442))
    assert [row["k"] for row in rows if row["method"] == "SumoNet"] == [None]
    assert "exact" in capsys.readouterr().out


def test_rank_correlation_of_trials(folder, capsys):
    results = table5.run(folder, stored=True)["results"]
    # S_L and IBS rank alike, Ctd the other way round, IBLL almost like S_L
    np.testing.assert_allclose(np.array(results["ours"])[0], [1, -1, 1, 1], atol=0.05)
    assert results["trials"] == 4 * 5 * 8
    assert set(results["by_dataset"]) == set(TARGETS)
    assert "S_L and Ctd" in capsys.readouterr().out


def test_every_scored_trial_counts(records):
    assert len(table5.trial_scores([one(records, "gbsg", "SumoNet")])) == 5 * 8


def test_table5_says_when_no_record_has_trials(folder):
    with pytest.raises(ValueError, match="SumoNet"):
        table5.run(folder, stored=True, methods=["CoxPH"])


def test_calibration_table(folder, capsys):
    rows = table6.run(folder, stored=True, names=["gbsg"], methods=["SumoNet"])["results"]["rows"]
    assert rows[0]["mean"] == pytest.approx(0.3)
    assert rows[0]["difference"] == pytest.approx(0.3 - 0.128)
    assert rows[0]["d_calibration"]["rejected"] == 1
    assert "1 of 5" in capsys.readouterr().out


def test_fishers_combination_of_p_values():
    test = table6.d_test([0.1, 0.2])
    statistic = -2 * (math.log(0.1) + math.log(0.2))
    assert test.combined == pytest.approx(math.exp(-statistic / 2) * (1 + statistic / 2))  # chi-squared, 4 degrees
    assert table6.d_test([0.01, 0.01, 0.9]).passed is False
    assert table6.d_test([0.0, 0.9, 0.9]).passed is False


# ---------------------------------------------------------------------- verdicts and ranks


def test_verdicts(records):
    found = {(v.claim, v.dataset): v for v in verdicts(records)}
    ahead = found["S_L ahead of every other method", "support"]
    assert ahead.holds
    assert "Weibull" in ahead.reached
    assert "+0.0500" in ahead.reached
    assert "5 of 5" in ahead.reached
    behind = found["Ctd at least as good as the best other", "gbsg"]
    assert not behind.holds
    assert "0.6600 (-0.0100; better in 0 of 5 folds)" in behind.reached
    assert found["IBS at least as good as the best other", "gbsg"].holds
    assert found["D-calibration not rejected", "gbsg"].holds
    assert found["search under 60 s on one GPU", "gbsg"].holds


@pytest.mark.parametrize(("shift", "holds"), [(0.001, True), (-0.001, False)])
def test_the_target_counts_as_reached_from_its_value_on(records, shift, holds):
    record = one(records, "flchain", "SumoNet")
    for part in record["results"]["folds"]:
        part["honest"]["S_L"] += shift
    verdict = next(v for v in verdicts([record]) if v.claim == "S_L at least the target")
    assert verdict.holds is holds
    assert f"{TARGETS['flchain'] + shift:.4f}" in verdict.reached


def test_ranks_and_their_critical_difference(records):
    ranks = ranking(records, "S_L")
    assert ranks.ranks == {"SumoNet": 1.0, "WeibullNet": 2.0, "LogNormalNet": 3.0, "CoxPH": 4.0}
    assert ranks.blocks == 20
    assert ranks.critical == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 20)), abs=1e-3)  # Demsar 2006, Table 5
    fewer = [r for r in records if r is not one(records, "gbsg", "CoxPH")]
    assert ranking(fewer, "IBS").left_out == ("CoxPH",)


# ---------------------------------------------------------------------- which records


def test_other_sizes_have_folders_of_their_own(tmp_path):
    assert Question.of(tmp_path).source == Question.of(tmp_path).target == tmp_path
    assert Question.of(tmp_path, quick=True).source == tmp_path / "quick"
    assert Question.of(tmp_path, trials=3, folds=2, seed=1).target == tmp_path / "trials3_folds2_seed1"
    assert Question.of(tmp_path, trials=3).size("Soden", "gbsg").slow_trials == 3
    assert Question.of(tmp_path, folds=2).size("SumoNet", "gbsg").folds == (0, 1)


def test_any_number_of_trials_counts_in_the_full_size_and_nothing_else(folder):
    full, other = Question.of(folder, stored=True), Question.of(folder, stored=True, trials=3)
    assert full.answers(made_up("gbsg", "WeibullNet", trials=7))
    assert not full.answers(made_up("gbsg", "WeibullNet", seed=1))
    assert not full.answers(made_up("gbsg", "WeibullNet", n_folds=2))
    assert not other.answers(made_up("gbsg", "WeibullNet", trials=7))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["titanic"]}, "no dataset 'titanic'"),
        ({"methods": ["magic"]}, "no method 'magic'"),
        ({"trials": 0}, "at least 1"),
        ({"folds": 6}, "from 1 to 5"),
    ],
)
def test_what_cannot_be_asked_for(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        Question.of(tmp_path, **options)


def test_records_are_read_from_both_folders_and_written_to_one(folder, tmp_path_factory):
    new = tmp_path_factory.mktemp("new")
    question = Question.of(new, records=folder)
    assert question.find("search_gbsg_sumonet").parent == folder
    save_record(made_up("gbsg", "SumoNet", trials=3), new)
    assert question.find("search_gbsg_sumonet").parent == new
    assert question.find("search_gbsg_soden") is None


def test_a_search_needs_a_folder_to_be_stored_in(folder):
    with pytest.raises(ValueError, match="out"):
        table3.run(None, records=folder)
    with pytest.raises(ValueError, match="records"):
        table3.run(None, stored=True)


def test_nothing_stored_is_said(tmp_path):
    with pytest.raises(ValueError, match="no records of these searches"):
        table3.run(tmp_path, stored=True)


def test_method_names_in_any_case(tmp_path):
    assert Question.of(tmp_path, methods=["sumonet", "COXPH"]).methods == ("SumoNet", "CoxPH")


# ---------------------------------------------------------------------- page and command line


def test_the_page_from_made_up_records(folder, tmp_path, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    page = tmp_path / "docs" / "results.md"
    (folder / "table2.json").write_text(json.dumps({}))
    made = everything.run(folder, stored=True, page=page)
    text = page.read_text(encoding="utf-8")
    assert made["page"] == page
    assert str(page) in capsys.readouterr().out
    for name in ("s_l", "ibll", "ibs", "ctd", "ranks", "calibration", "rank_correlation", "selection", "mixture"):
        picture = page.parent / "figures" / f"results_{name}.png"
        assert f"(figures/{picture.name})" in text
        assert 2_000 < picture.stat().st_size < 200_000
    assert "**-0.1300 ± 0.0158**<br><sub>paper -0.142, +0.012</sub>" in text  # the best, in bold, with its difference
    assert "**missed**: 0.6500, Weibull 0.6600 (-0.0100; better in 0 of 5 folds)" in text
    assert "best trial of 5 of 5 folds" in text  # the time origin on SUPPORT
    assert "SODEN on METABRIC, GBSG, FLCHAIN, SUPPORT" in text  # not run
    assert "(../table2.json)" in text
    assert "12 s (8)" in page.with_name("results_time.md").read_text(encoding="utf-8")


def test_all_runs_what_is_not_stored_and_keeps_what_is(folder, monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.setattr(everything, "_OTHERS", ("figure1",))
    monkeypatch.setattr(everything, "write_page", lambda *arguments, **options: None)  # drawn by the test above
    options = {"names": list(TARGETS), "methods": list(S_L)}
    made = everything.run(folder, **options)
    assert "=== figure1" in capsys.readouterr().out
    first = (folder / "figure1.json").stat().st_mtime_ns
    assert everything.run(folder, **options)["others"] == made["others"] == {"figure1": folder / "figure1.json"}
    assert (folder / "figure1.json").stat().st_mtime_ns == first
    assert "=== figure1" not in capsys.readouterr().out


def test_the_page_without_pictures_and_with_few_records(tmp_path, monkeypatch, capsys):
    save_record(made_up("gbsg", "CoxPH"), tmp_path)
    monkeypatch.setattr(everything.importlib.util, "find_spec", lambda name: None)
    everything.run(tmp_path, stored=True)
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "Cox-Linear" in text
    assert "![" not in text
    assert "What holds" not in text
    assert "without pictures" in capsys.readouterr().out


def test_the_stand_in_for_kkbox_is_searched_only_when_named(folder):
    assert "kkbox" in Question.of(folder).optional
    assert Question.of(folder, names=["kkbox"]).optional == ()


def test_simulated_kkbox_is_never_compared_with_the_paper(folder, capsys):
    save_record(made_up("kkbox", "SumoNet", n_folds=1), folder)
    rows = table3.run(folder, stored=True)["results"]["rows"]
    own = next(row for row in rows if row["dataset"] == "kkbox" and row["part"] == "honest")
    assert own["simulated"] is True
    assert own["difference"] is None
    assert own["published"] == (1.553, 0.132)
    after = capsys.readouterr().out.rpartition("KKBOX: ")[2]
    row = next(line for line in after.splitlines() if line.startswith("SuMo-net"))
    assert "1.553 ± 0.132" in row
    assert "0.9800" in row


def test_the_page_says_how_far_a_likelihood_is_behind_the_truth_of_simulated_rows(folder, monkeypatch):
    monkeypatch.setattr(everything.importlib.util, "find_spec", lambda name: None)  # without pictures
    record = made_up("kkbox", "SumoNet", n_folds=1)
    own = record["results"]["folds"][0]
    own["truth"] = {"S_L_interval": own["honest"]["S_L_interval"] + 0.0123}
    save_record(record, folder)
    steps = made_up("kkbox", "CoxPH", n_folds=1)
    honest = steps["results"]["folds"][0]["honest"]
    steps["results"]["folds"][0]["truth"] = {"S_L_interval": honest["S_L_constant_density"] + 0.3}
    save_record(steps, folder)
    page = folder / "page.md"
    everything.run(folder, stored=True, page=page)
    told = page.read_text(encoding="utf-8").partition("behind the truth")[2].splitlines()[2:4]
    assert [line.split("|")[1].strip() for line in told] == ["SuMo-net", "Cox-Linear"]
    assert [line.split("|")[3].strip() for line in told] == ["0.0123", "0.3000"]


def test_the_command_line_takes_what_an_experiment_takes(folder, capsys):
    assert main(["likelihood-k", "--stored", "--records", str(folder), "--datasets", "gbsg"]) == 0
    assert main(["likelihood_k", "--stored", "--records", str(folder), "--methods", "coxph"]) == 0
    assert main(["figure1", "--trials", "3", "--out", str(folder)]) == 1
    assert "figure1 has no option --trials" in capsys.readouterr().err
    assert main(["table3", "--page", "x.md", "--out", str(folder)]) == 1


@pytest.mark.real_data
@pytest.mark.usefixtures("real_data")
def test_a_quick_table_of_real_rows(tmp_path, capsys):
    arguments = ["--quick", "--trials", "2", "--folds", "1", "--device", "cpu", "--datasets", "metabric"]
    assert main(["table3", *arguments, "--methods", "SumoNet", "--out", str(tmp_path)]) == 0
    assert "-0.142 ± 0.042" in capsys.readouterr().out
    record = load_record(tmp_path / "quick_trials2_folds1" / "table3.json")
    assert -0.6 < record["results"]["rows"][0]["mean"] < 0.1  # Kaplan-Meier reaches about -0.33
