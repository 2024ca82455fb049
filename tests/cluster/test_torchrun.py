"""Real processes started by torchrun: the result of one process, also when a worker is killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sumosurv
from sumosurv import datasets

pytestmark = pytest.mark.slow

SETTINGS = ["--quiet", "--seed", "0", "--device", "cpu", "--set", "n_members=3", "batch_size=64"]
OUTCOME = ["--time", "time", "--event", "event"]
LIMIT = 180  # seconds after which a command is taken to hang


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    data = datasets.simulate("weibull", 1500, random_state=0)
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    data.X.assign(time=data.y["time"], event=data.y["event"].astype(int)).to_csv(path, index=False)
    return path, data


def environment():
    source = str(Path(sumosurv.__file__).parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def command(table, out, *more, epochs, workers=None, restarts=0):
    launcher = [] if workers is None else [
        "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", f"--max-restarts={restarts}",
    ]  # fmt: skip
    # everything behind -- is the command's own: torchrun would take --event for one of its options
    module = ["-m", "sumosurv"] if workers is None else ["-m", "--", "sumosurv"]
    own = ["fit", str(table), *OUTCOME, "--out", str(out), *SETTINGS, "--max-epochs", str(epochs), *more]
    return [sys.executable, *launcher, *module, *own]


def run(words):
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def children(pid):
    """The workers of a launcher."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found.append(int(stat.parent.name))
    return found


def score(path, data):
    return sumosurv.load(path).score(data.X, data.y)


def test_two_processes_fit_what_one_fits(table, tmp_path):
    path, data = table
    run(command(path, tmp_path / "one.sumo", epochs=15))
    told = run(command(path, tmp_path / "two.sumo", epochs=15, workers=2))
    assert told.count("Model written to") == 1  # by the first process alone
    assert score(tmp_path / "two.sumo", data) == pytest.approx(score(tmp_path / "one.sumo", data), abs=1e-5)


def test_a_method_without_networks_is_refused(table, tmp_path):
    words = command(table[0], tmp_path / "no.sumo", "--method", "CoxPH", epochs=1, workers=2)
    words = [word for word in words if word not in ("--max-epochs", "1", "--set", "n_members=3", "batch_size=64")]
    words = [word for word in words if word not in ("--device", "cpu")]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode != 0
    assert "CoxPH has no networks" in done.stderr


@pytest.mark.parametrize("victim", [0, 1], ids=["first", "second"])
def test_a_killed_worker_goes_on_from_the_last_checkpoint(table, tmp_path, victim):
    path, data = table
    folder = tmp_path / "kept"
    keep = ["--checkpoint", str(folder), "--checkpoint-seconds", "0"]
    run(command(path, tmp_path / "one.sumo", epochs=60))
    words = command(path, tmp_path / "two.sumo", *keep, epochs=60, workers=2, restarts=2)
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as work:
        try:
            end = time.monotonic() + LIMIT
            while not (folder / "training-1.safetensors").exists():
                assert work.poll() is None, work.stderr.read()
                assert time.monotonic() < end, "no checkpoint"
                time.sleep(0.01)
            workers = sorted(children(work.pid))
            assert len(workers) == 2
            os.kill(workers[victim], signal.SIGKILL)
            _, told = work.communicate(timeout=LIMIT)
        finally:
            if work.poll() is None:
                work.kill()
    assert work.returncode == 0, told
    assert "SIGKILL" in told or "exitcode: -9" in told or "exitcode  : -9" in told  # it did die, and before its end
    assert score(tmp_path / "two.sumo", data) == pytest.approx(score(tmp_path / "one.sumo", data), abs=1e-3)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
