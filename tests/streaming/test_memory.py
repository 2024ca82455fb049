"""Memory that does not grow with the rows: a table is fitted, scored and predicted in less memory than it takes."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

CODE = """
import resource, sys
from pathlib import Path
import pandas as pd
from sumosurv import SumoNet, scores
from sumosurv.scores import blocks
from sumosurv.streaming import fitting, predicting

small, large, out = sys.argv[1:]
fitting.BUFFER = predicting._PART = 20_000  # as the rows of this test are few, so are those that are kept in memory
fitting.SAMPLED = fitting.MOST_VALIDATION = blocks._SAMPLED = 2_000
outcome = {"time": "t", "event": "d"}
settings = {"covariate_layers": (4,), "time_layers": (4,), "frequencies": 0, "max_epochs": 1, "batch_size": 4_000}
model = SumoNet(n_members=1, random_state=0, **settings)


def run(rows):
    model.fit(rows, outcome)
    scores.evaluate(model, rows, outcome, scores=["log_likelihood", "brier"])
    model.predict_to_parquet(rows, out, times=[0.5])


run(small)
pd.read_parquet(small)  # everything is imported now
taken = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize"))
most = int(taken.split()[1]) * 1024 + 100_000_000
resource.setrlimit(resource.RLIMIT_AS, (most, most))
run(large)
print("streamed", flush=True)
try:
    pd.read_parquet(large)
except MemoryError:
    print("too large for a frame")
"""


def write(path, n, columns=15):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, columns))
    made = {f"x{j}": X[:, j] for j in range(columns)}
    made |= {"t": rng.weibull(1.2, n), "d": (rng.random(n) < 0.7).astype(np.int8)}
    pq.write_table(pa.table(made), path, row_group_size=10_000)
    return str(path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the size of a process from /proc, limits its memory")
def test_a_table_that_does_not_fit_into_the_memory_that_is_left(tmp_path):
    """100 MB are left beyond what a run on few rows took; as a frame the rows take 77 MB twice, which must fail."""
    paths = [write(tmp_path / "small.parquet", 45_000), write(tmp_path / "large.parquet", 600_000)]
    paths.append(str(tmp_path / "out.parquet"))
    # every thread, and every arena of the allocator, reserves addresses of its own
    few = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *paths], capture_output=True, text=True, env=os.environ | few, check=False
    )
    assert done.stdout.splitlines() == ["streamed", "too large for a frame"], done.stderr[-3000:]
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == 600_000
