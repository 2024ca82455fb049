"""A Ray cluster of two nodes on this machine: fits, searches and predictions, undisturbed and with a worker, a node or
the driver killed on the way. The result is that of one process, nothing is lost and nothing counted twice.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason="the extra ray is not installed")

from ray_nodes import LIMIT, Nodes, environment

from sumosurv import NetworkSearch, WeibullNet, datasets

pytestmark = pytest.mark.slow

TRIALS = 10

COMMON = """
import json, sys
from pathlib import Path
from sumosurv import NetworkSearch, WeibullNet, datasets
from sumosurv.cluster import Cluster, map_blocks, ray_fit
from sumosurv.training import Checkpoints
address, folder = sys.argv[1], Path(sys.argv[2])
cluster = Cluster(address, workers=2, min_work=0)
data = datasets.simulate("weibull", 600, random_state=0)
"""

SEARCH = (
    COMMON
    + f"""
search = NetworkSearch(
    WeibullNet(max_epochs=100, device="cpu"), space={{"dropout": [0.0, 0.2], "covariate_layers": [(8,), (16, 16)]}},
    n_trials={TRIALS}, trials_per_round=2, storage=folder / "study.db", layout="grouped", random_state=0,
    cluster=cluster,
).fit(data.X, data.y)
scores = search.cv_results_["valid_score"].tolist()
result = {{"trials": search.cv_results_["trial"].tolist(), "scores": scores, "score": search.score(data.X, data.y)}}
(folder / "result.json").write_text(json.dumps(result))
"""
)

FIT = (
    COMMON
    + """
model = WeibullNet(n_members=4, max_epochs=120, patience=None, batch_size=64, random_state=0, device="cpu")
ray_fit(cluster, model, data.X, data.y, checkpoint=Checkpoints(folder / "kept", 0.0))
result = {"score": model.score(data.X, data.y), "epochs": len(model.history_) // 4}
(folder / "result.json").write_text(json.dumps(result))
"""
)

PREDICT = (
    COMMON
    + """
from functools import partial
import numpy as np, pandas as pd
import ray_nodes
from sumosurv import load
rows = pd.DataFrame({"x": np.linspace(-1, 1, 4000), "number": np.arange(4000)})
made = []
blocks = (rows[start : start + 100] for start in range(0, 4000, 100))
for part in map_blocks(cluster, partial(ray_nodes.median, load(folder / "model.sumo")), blocks):
    made.append(part)
    (folder / "begun").touch()
pd.concat(made).to_csv(folder / "made.csv", index=False)
(folder / "result.json").write_text("{}")
"""
)


@pytest.fixture(scope="module")
def nodes():
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:  # sockets have short paths
        made = Nodes(Path(folder), cpus=(2, 2))
        yield made
        made.close()
        assert made.left_over() == []


def start(code, nodes, folder):
    words = [sys.executable, "-W", "ignore", "-c", code, nodes.address, str(folder)]
    with (folder / "driver.log").open("a") as log:
        return subprocess.Popen(words, env=environment(), stdout=log, stderr=log, cwd=folder)


def wait(driver, folder):
    try:
        assert driver.wait(timeout=LIMIT) == 0, (folder / "driver.log").read_text()[-4000:]
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
    return json.loads((folder / "result.json").read_text())


def until(condition, driver, folder):
    """What the condition gives once it holds."""
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        assert driver.poll() is None, f"too late: {(folder / 'driver.log').read_text()[-3000:]}"
        assert time.monotonic() < end, "it did not begin"
        time.sleep(0.02)
    return found


def disturb(victim, nodes, driver, folder):
    """Kill something."""
    if victim == "worker":
        workers = until(nodes.workers, driver, folder)  # between two populations there may be none
        os.kill(workers[-1], signal.SIGKILL)
    elif victim == "node":
        nodes.kill(1)
    elif victim == "driver":
        driver.kill()
        driver.wait()


def disturbed(code, nodes, folder, victim, begun):
    """The result of a driver that is disturbed once it has begun."""
    driver = start(code, nodes, folder)
    try:
        if victim != "nothing":
            until(begun, driver, folder)
            disturb(victim, nodes, driver, folder)
        if victim == "driver":
            assert not (folder / "result.json").exists()
            driver = start(code, nodes, folder)
        return wait(driver, folder)
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
        if victim == "node":
            nodes.put_back(1, cpus=2)


def completed(path):
    """Numbers of the trials that a study has, as often as it has them."""
    if not path.exists():
        return []
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as database:
        try:
            rows = database.execute(
                "select value_json from trial_user_attributes a join trials t on a.trial_id = t.trial_id "
                "where a.key = 'sumosurv_number' and t.state = 'COMPLETE'"
            ).fetchall()
        except sqlite3.OperationalError:  # its tables are being made
            return []
    database.close()
    return sorted(int(value) for (value,) in rows)


@pytest.fixture(scope="module")
def alone():
    """What one process finds."""
    data = datasets.simulate("weibull", 600, random_state=0)
    search = NetworkSearch(
        WeibullNet(max_epochs=100, device="cpu"),
        space={"dropout": [0.0, 0.2], "covariate_layers": [(8,), (16, 16)]},
        n_trials=TRIALS,
        layout="grouped",
        random_state=0,
    ).fit(data.X, data.y)
    model = WeibullNet(n_members=4, max_epochs=120, patience=None, batch_size=64, random_state=0, device="cpu")
    return data, search, model.fit(data.X, data.y)


@pytest.mark.parametrize("victim", ["nothing", "worker", "node", "driver"])
def test_search(nodes, alone, tmp_path, victim):
    data, search, _ = alone
    study = tmp_path / "study.db"
    result = disturbed(SEARCH, nodes, tmp_path, victim, lambda: len(completed(study)) >= 2)
    assert result["trials"] == list(range(TRIALS))
    assert completed(study) == list(range(TRIALS))  # each once
    np.testing.assert_allclose(result["scores"], search.cv_results_["valid_score"], atol=1e-5)
    assert result["score"] == pytest.approx(search.score(data.X, data.y), abs=1e-5)


@pytest.mark.parametrize("victim", ["nothing", "worker", "node", "driver"])
def test_fit(nodes, alone, tmp_path, victim):
    data, _, model = alone
    result = disturbed(FIT, nodes, tmp_path, victim, (tmp_path / "kept" / "training-1.safetensors").exists)
    assert result["score"] == pytest.approx(model.score(data.X, data.y), abs=1e-3)
    assert result["epochs"] == 120


@pytest.mark.parametrize("victim", ["nothing", "worker", "node"])
def test_predict(nodes, alone, tmp_path, victim):
    import pandas as pd

    _, _, model = alone
    model.save(tmp_path / "model.sumo")
    disturbed(PREDICT, nodes, tmp_path, victim, (tmp_path / "begun").exists)
    made = pd.read_csv(tmp_path / "made.csv")
    rows = pd.DataFrame({"x": np.linspace(-1, 1, 4000)})
    np.testing.assert_array_equal(made["number"], np.arange(4000))  # in their order, each once
    np.testing.assert_allclose(made["median"], model.predict_median(rows), rtol=1e-9)


def test_evaluate(nodes, alone, tmp_path):
    """The command line scores rows by the workers of the cluster as it does by itself."""
    import pandas as pd

    data, _, model = alone
    model.save(tmp_path / "model.sumo")
    rows = data.X.assign(time=data.y["time"], event=data.y["event"].astype(int))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    words = [sys.executable, "-W", "ignore", "-m", "sumosurv", "evaluate", "model.sumo", "rows.csv"]
    names = ["log_likelihood", "brier", "cumulative_dynamic_auc", "concordance_td"]
    words += [
        "--time",
        "time",
        "--event",
        "event",
        "--scores",
        *names,
        "--times",
        "0.3,0.8",
        "--against",
        "kaplan-meier",
    ]
    found = {}
    for name, more in (("here", []), ("there", ["--ray", nodes.address, "--ray-min-work", "0", "--ray-workers", "2"])):
        out = tmp_path / f"{name}.csv"
        run = [*words, *more, "--out", str(out)]
        done = subprocess.run(run, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr
        table = pd.read_csv(out)
        found[name] = {
            (row.score, str(row.times), row.model, str(row.against)): row.value for row in table.itertuples()
        }
    assert len(found["here"]) == 6 * 3
    assert found["there"] == pytest.approx(found["here"], abs=1e-9)
