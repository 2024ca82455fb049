"""Scores of rows on disk against those of the same rows in memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sumosurv import Surv, WeibullNet, kaplan_meier
from sumosurv.outcome import check_outcome
from sumosurv.scores import auc, blocks, evaluate, log_likelihood
from sumosurv.sources import Block, hashed

OUTCOME = {"time": "t", "event": "d"}
MEANS = ["log_likelihood", "integrated_brier", "integrated_binomial_log_likelihood", "d_calibration", "survival_crps"]


def rows(n, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "c": rng.choice(["u", "v"], n), "id": rng.integers(0, n // 3, n)})
    event, end = rng.weibull(1.5, n) * np.exp(0.7 * frame["a"]), 2 * rng.random(n)
    frame["t"], frame["d"] = np.minimum(event, end), (event <= end).astype(int)
    return frame.assign(v=0.2 * frame["t"], cause=frame["d"] * rng.integers(1, 3, n), w=rng.integers(1, 4, n))


def written(frame, path):
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=180)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    frame = rows(900, 0)
    path = written(frame, tmp_path_factory.mktemp("rows") / "rows.parquet")
    settings = {"n_members": 1, "covariate_layers": (4,), "max_epochs": 5}
    X = frame[["a", "c"]]
    fit = [WeibullNet(random_state=s, **settings).fit(X, Surv.from_columns(frame, event="d", time="t")) for s in (0, 1)]
    causes = WeibullNet(random_state=0, **settings).fit(X, Surv.from_columns(frame, event="cause", time="t"))
    return path, frame, fit, causes


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK", 100)


def compared(found, expected, **tolerance):
    assert list(found["score"]) == list(expected["score"])
    assert list(found["times"]) == list(expected["times"])
    np.testing.assert_allclose(found["value"], expected["value"], **tolerance)


def test_means_are_exact_and_so_is_the_censoring_curve(place):
    path, frame, (model, _), _ = place
    y = Surv.from_columns(frame, event="d", time="t")
    found = evaluate(model, path, OUTCOME, scores=MEANS)
    compared(found, evaluate(model, frame[["a", "c"]], y, scores=MEANS, censoring="marginal", n_bootstrap=0), rtol=1e-9)
    asked = {"scores": ["brier", "binomial_log_likelihood"], "times": [0.3, 0.8], "n_bootstrap": 0}
    at = evaluate(model, path, OUTCOME, **asked)
    direct = evaluate(model, frame[["a", "c"]], y, censoring="marginal", **asked)
    compared(at, direct, rtol=1e-9)
    assert model.score(path, OUTCOME) == pytest.approx(model.score(frame[["a", "c"]], y), rel=1e-12)


def test_the_area_under_the_curve_is_exact_for_few_rows_and_within_its_bound_for_many(place, monkeypatch):
    path, frame, (model, _), _ = place
    y = Surv.from_columns(frame, event="d", time="t")
    expected = evaluate(model, frame[["a", "c"]], y, scores="cumulative_dynamic_auc", times=0.5, censoring="marginal")
    found = evaluate(model, path, OUTCOME, scores="cumulative_dynamic_auc", times=0.5)
    compared(found, expected, rtol=1e-9)
    assert found["std_error"][0] == pytest.approx(expected["std_error"][0], rel=0.25)
    monkeypatch.setattr(auc, "_MARKERS", 16)
    rough = evaluate(model, path, OUTCOME, scores="cumulative_dynamic_auc", times=0.5)
    assert 0 < abs(rough["value"][0] - expected["value"][0]) < 0.05


def test_concordance_is_that_of_a_sample_whose_interval_covers_it(place, monkeypatch):
    path, frame, (model, _), _ = place
    y = Surv.from_columns(frame, event="d", time="t")
    expected = evaluate(model, frame[["a", "c"]], y, scores=["concordance_td", "harrell_c"], n_bootstrap=0)
    compared(evaluate(model, path, OUTCOME, scores=["concordance_td", "harrell_c"], n_bootstrap=0), expected, rtol=1e-9)
    monkeypatch.setattr(blocks, "_SAMPLED", 300)
    found = evaluate(model, path, OUTCOME, scores=["concordance_td", "harrell_c"], n_bootstrap=100)
    assert (found["low"] < expected["value"]).all()
    assert (expected["value"] < found["high"]).all()
    assert "300 rows drawn at random: concordance_td, harrell_c" in " ".join(found.notes)


def test_intervals_are_those_of_subjects(place):
    """The jackknife of a mean is its standard error, and takes the copies of a row for one where they are a subject."""
    path, frame, (model, _), _ = place
    y = check_outcome(Surv.from_columns(frame, event="d", time="t"))
    values = log_likelihood(model.predict_distribution(frame[["a", "c"]]), y)
    found = evaluate(model, path, OUTCOME, scores="log_likelihood")
    assert found["std_error"][0] == pytest.approx(values.std() / 30, rel=0.3)
    thrice = pd.concat([frame.assign(id=np.arange(900))] * 3, ignore_index=True)
    copies = written(thrice, path.parent / "thrice.parquet")
    apart = evaluate(model, copies, OUTCOME, scores="log_likelihood")["std_error"][0]
    together = evaluate(model, copies, OUTCOME, scores="log_likelihood", groups="id")["std_error"][0]
    assert together == pytest.approx(np.sqrt(3) * apart, rel=0.35)


def test_weights_entry_and_causes(place):
    path, frame, (model, _), causes = place
    y = Surv.from_columns(frame, event="d", time="t")
    asked = {"scores": ["log_likelihood", "integrated_brier"], "n_bootstrap": 0}
    found = evaluate(model, path, OUTCOME, sample_weight="w", **asked)
    direct = evaluate(model, frame[["a", "c"]], y, sample_weight=frame["w"], censoring="marginal", **asked)
    compared(found, direct, rtol=1e-8)
    late = evaluate(model, path, OUTCOME | {"entry": "v"}, **asked)
    entered = Surv.from_columns(frame, event="d", time="t", entry="v")
    compared(late, evaluate(model, frame[["a", "c"]], entered, censoring="marginal", **asked), rtol=1e-8)
    two = Surv.from_columns(frame, event="cause", time="t")
    several = evaluate(causes, path, {"time": "t", "event": "cause"}, scores=["log_likelihood", "brier"], times=[0.5])
    expected = evaluate(
        causes, frame[["a", "c"]], two, scores=["log_likelihood", "brier"], times=[0.5], censoring="marginal"
    )
    compared(several, expected, rtol=1e-8)
    assert list(several["cause"]) == list(expected["cause"])


def test_models_are_compared_on_the_same_groups(place):
    path, frame, (first, second), _ = place
    y = Surv.from_columns(frame, event="d", time="t")
    models = {"a": first, "b": second}
    found = evaluate(models, path, OUTCOME, scores=["log_likelihood", "concordance_td"], n_bootstrap=20)
    direct = evaluate(models, frame[["a", "c"]], y, scores=["log_likelihood", "concordance_td"], n_bootstrap=20)
    assert list(found["model"]) == list(direct["model"])
    assert list(found["against"]) == list(direct["against"])
    np.testing.assert_allclose(found["value"], direct["value"], rtol=1e-9)
    gap = found[(found["score"] == "log_likelihood") & (found["against"] == "a")].iloc[0]
    assert gap["std_error"] < 0.5 * found["std_error"][0]


def test_what_cannot_be_scored_in_pieces_is_refused(place):
    path, frame, (model, _), _ = place
    with pytest.raises(TypeError, match="got a distribution"):
        evaluate(model.predict_distribution(frame[["a", "c"]]), path, OUTCOME)
    with pytest.raises(TypeError, match="one censoring curve"):
        evaluate(model, path, OUTCOME, censoring=model.predict_distribution(frame[["a", "c"]]))
    y = Surv.from_columns(frame, event="d", time="t")
    own = kaplan_meier(y, censoring=True)
    given = evaluate(model, path, OUTCOME, scores="brier", times=0.5, censoring=own)
    compared(
        given, evaluate(model, frame[["a", "c"]], y, scores="brier", times=0.5, censoring=own, n_bootstrap=0), rtol=1e-9
    )
    with pytest.raises(ValueError, match=r"missing columns.*'c'"):
        evaluate(model, written(frame[["a", "t", "d"]], path.parent / "less.parquet"), OUTCOME)


@pytest.mark.parametrize("several", [False, True])
def test_rows_of_one_subject_stay_together_in_a_sample(several):
    """A sample of rows knows their subjects only if a subject has several rows."""
    rows = np.arange(10, dtype=np.uint64)
    subjects = rows // 2 if several else rows
    outcome = check_outcome(Surv.from_arrays(np.ones(10, bool), np.arange(1.0, 11.0)))
    last = np.sort(hashed(rows, 2))[5]  # the six rows with the smallest hashes
    chosen = np.flatnonzero(hashed(rows, 2) <= last)
    found = blocks.BlockTask({}, {}, [], last)(Block(pd.DataFrame({"x": rows}), outcome, rows, subjects)).sample
    np.testing.assert_array_equal(found.outcome.time, chosen + 1.0)
    np.testing.assert_array_equal(found.subjects, subjects[chosen])
    group = found.outcome.group
    assert (group is not None) == several
    if several:
        np.testing.assert_array_equal(group[:, None] == group, subjects[chosen][:, None] == subjects[chosen])
