"""One pass over rows on disk gives the numbers of the same rows in memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sumosurv import Surv
from sumosurv.outcome import check_outcome
from sumosurv.sources import as_source
from sumosurv.streaming.fitting import Split, summarise

N = 240
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.normal(size=N), "t": 0.1 + RNG.exponential(size=N), "d": RNG.integers(0, 2, N)})
FRAME["w"] = RNG.integers(0, 4, N).astype(float)


def stored(folder, frame, weight=None):
    path = folder / "rows.parquet"
    frame.to_parquet(path, index=False, row_group_size=40)
    return as_source(path, {"time": "t", "event": "d"}, weight, columns=["a"])


@pytest.mark.parametrize("weight", [None, "w"])
def test_numbers_of_all_training_rows(tmp_path, weight):
    found = summarise(stored(tmp_path, FRAME, weight), Split.of(0, 0.0, N))
    kept = FRAME if weight is None else FRAME[FRAME["w"] > 0]
    w = np.ones(N) if weight is None else kept["w"].to_numpy()
    assert found.n_train == len(kept)
    assert found.validation is None
    assert found.mean_weight == (None if weight is None else pytest.approx(w.mean()))
    assert found.share_seen == pytest.approx(np.average(kept["d"], weights=w))
    y = check_outcome(Surv.from_arrays(kept["d"], kept["t"]))
    assert found.outcome.total == pytest.approx(w.sum())
    assert found.outcome.last_time == y.last_time
    sample = found.sample[0].sort_index()
    np.testing.assert_array_equal(np.sort(sample["a"]), np.sort(kept["a"]))


def test_rows_that_are_held_out_are_in_no_number(tmp_path):
    source, split = stored(tmp_path, FRAME), Split.of(3, 0.3, N)
    out = np.concatenate([split.is_held_out(block) for block in source.blocks()])
    found = summarise(source, split)
    assert 0.15 * N < out.sum() < 0.45 * N
    assert found.n_train == (~out).sum()
    assert found.share_seen == pytest.approx(FRAME["d"][~out].mean())
    np.testing.assert_array_equal(np.sort(found.validation[0]["a"]), np.sort(FRAME["a"][out]))
    np.testing.assert_array_equal(np.sort(found.sample[0]["a"]), np.sort(FRAME["a"][~out]))


def test_sorted_rows_are_told_from_rows_in_no_order(tmp_path):
    """The variance of the means of parts, by that of all rows over their number: one for random parts."""
    for frame in (FRAME, FRAME.sort_values("t")):
        parts = np.split(frame["t"].to_numpy(), 6)
        between = sum(40 * (part.mean() - frame["t"].mean()) ** 2 for part in parts) / 5
        found = summarise(stored(tmp_path, frame), Split.of(0, 0.0, N)).sorting
        assert found == pytest.approx(between / frame["t"].var(ddof=0))
    assert found > 20
    same = FRAME.assign(t=1.0)
    assert summarise(stored(tmp_path, same), Split.of(0, 0.0, N)).sorting == 1.0
