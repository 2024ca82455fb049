"""One entry for rows: a table in memory and the same rows on disk give the same blocks."""

import numpy as np
import pandas as pd
import pytest

from sumosurv import KaplanMeier, Surv
from sumosurv.scores import cross_evaluate
from sumosurv.sources import as_source, open_table


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=30), "z": rng.choice(["u", "v"], 30)})
    frame["t"], frame["d"], frame["v"] = rng.exponential(size=30), rng.integers(0, 3, 30), 0.1 * rng.random(30)
    frame["t"] += 0.1
    return frame.assign(w=rng.integers(0, 3, 30).astype(float), who=np.arange(30) // 2)


@pytest.mark.parametrize("rows", [None, 7])
def test_blocks_on_disk_equal_blocks_in_memory(frame, tmp_path, rows):
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    roles = {"time": "t", "event": "d", "entry": "v"}
    disk = as_source(tmp_path / "rows.parquet", roles, "w", "who")
    y = Surv.from_columns(frame, event="d", time="t", entry="v")
    memory = as_source(frame[["x", "z"]], y, frame["w"], frame["who"])
    assert disk.n_rows == memory.n_rows == 30
    assert disk.n_causes == memory.n_causes == 2
    assert disk.covariates == memory.covariates == ["x", "z"]
    assert memory.dispatch(lambda rows: rows is memory, lambda rows: False)
    assert disk.dispatch(lambda rows: False, lambda rows: rows is disk)
    found = [list(source.blocks(rows=rows)) for source in (disk, memory)]
    assert [max(map(len, blocks)) for blocks in found][1] == (rows or (frame["w"] > 0).sum())
    tables = [pd.concat([block.X for block in blocks]) for blocks in found]
    pd.testing.assert_frame_equal(*tables, check_index_type=False, check_dtype=False)
    for part in ("rows", "subjects"):
        joined = [np.concatenate([getattr(block, part) for block in blocks]) for blocks in found]
        np.testing.assert_array_equal(*joined)
    for field in ("event", "time", "entry", "cause", "weight"):
        joined = [np.concatenate([getattr(block.outcome, field) for block in blocks]) for blocks in found]
        np.testing.assert_array_equal(*joined)


def test_rows_without_an_outcome(frame, tmp_path):
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    for given in (frame, tmp_path / "rows.parquet"):
        blocks = list(as_source(given).blocks(["x"], rows=20))
        assert [len(block) for block in blocks] == [20, 10]
        assert all(block.outcome is None for block in blocks)
        np.testing.assert_array_equal(np.concatenate([block.X["x"] for block in blocks]), frame["x"])


def test_categories_of_numbers_stay_categories_on_disk(frame, tmp_path):
    frame["city"] = pd.Categorical(np.arange(30) % 3)
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    for in_blocks in (True, False):
        read = as_source(open_table(tmp_path / "rows.parquet", in_blocks=in_blocks))
        assert isinstance(next(read.blocks(["city"], rows=30)).X["city"].dtype, pd.CategoricalDtype)


def test_labels_in_another_order_are_noticed(frame):
    frame = frame.set_axis([f"P{i}" for i in range(30)])
    y, other = frame[["t", "d"]].assign(d=frame["d"] > 0), frame.sample(frac=1, random_state=0)
    given = {"y": y, "sample_weight": frame["w"], "groups": frame["who"]}
    for name in given:
        with pytest.warns(UserWarning, match=rf"{name} has the row labels of X in another order") as caught:
            as_source(frame[["x"]], **given | {name: given[name].loc[other.index]})
        assert len(caught) == 1
    for labels in (
        range(30),
        frame.index,
        other.index + "b",
        other["who"],
    ):  # row numbers, the same, others, not unique
        as_source(frame[["x"]], y.set_axis(labels))
    with pytest.warns(UserWarning, match="y has the row labels"):
        cross_evaluate(
            {"km": KaplanMeier()}, frame[["x"]], y.loc[other.index], 2, scores="log_likelihood", verbose=False
        )
