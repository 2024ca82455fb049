"""A study in a PostgreSQL server: one of our own, in a temporary folder, for as long as these tests take."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from sumosurv import SumoNet, SumoNetSearch, datasets

pytest.importorskip("optuna", reason="stored studies need Optuna (the extra 'search')")
pytest.importorskip("psycopg", reason="needs a driver of PostgreSQL (the extra 'search-postgres')")

LIMIT = 120  # seconds for whatever is waited for

SCRIPT = """
import sys
from sumosurv import SumoNet, SumoNetSearch, datasets
data = datasets.simulate("weibull", 120, random_state=1)
SumoNetSearch(SumoNet(max_epochs=2, device="cpu"), space={"dropout": [0.0, 0.2], "learning_rate": [0.01, 0.02]},
              n_trials=int(sys.argv[2]), random_state=0, trials_per_round=2, storage=sys.argv[1]).fit(data.X, data.y)
"""


def programs():
    """The folder of initdb and postgres, which Debian keeps off the path; None where there is none."""
    found = [Path(path).resolve().parent for name in ("initdb",) if (path := shutil.which(name))]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def unprivileged():
    """What subprocess needs to run as somebody else than root, whom initdb refuses; None where there is nobody."""
    if os.name == "nt":
        return None
    if os.geteuid() != 0:
        return {}
    import pwd

    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return None


@pytest.fixture(scope="module")
def server():
    """A URL of a fresh database."""
    folder, account = programs(), unprivileged()
    if folder is None:
        pytest.skip("there is no PostgreSQL server on this machine (apt-get install postgresql)")
    if account is None:
        pytest.skip("there is no unprivileged user to run PostgreSQL as")
    import psycopg

    home = Path(tempfile.mkdtemp(prefix="sumosurv-postgres-"))
    server = None
    try:
        if account:
            os.chown(home, account["user"], account["group"])
        options = {"cwd": home, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, **account}
        made = subprocess.run(
            [folder / "initdb", "-D", home / "data", "-U", "tester", "--auth=trust", "--no-sync", "-E", "UTF8"],
            capture_output=True,
            timeout=LIMIT,
            **options,
        )
        assert made.returncode == 0, made.stderr.decode()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [folder / "postgres", "-D", home / "data", "-p", str(port), "-h", "127.0.0.1", "-k", home, "-F"],
                stdout=log,
                stderr=log,
                **options,
            )
        until = time.monotonic() + LIMIT
        while True:
            try:
                psycopg.connect(f"host=127.0.0.1 port={port} user=tester dbname=postgres", connect_timeout=5).close()
                break
            except psycopg.OperationalError:
                text = (home / "log").read_text()
                assert server.poll() is None, text
                assert time.monotonic() < until, text
                time.sleep(0.1)
        yield f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # ends connections, then stops
            try:
                server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        shutil.rmtree(home, ignore_errors=True)


def search(storage, **options):
    data = datasets.simulate("weibull", 120, random_state=1)
    space = {"dropout": [0.0, 0.2], "learning_rate": [0.01, 0.02]}
    given = {"space": space, "n_trials": 6, "random_state": 0, "trials_per_round": 2, "storage": storage}
    return SumoNetSearch(SumoNet(max_epochs=2, device="cpu"), **(given | options)).fit(data.X, data.y)


def rows_of(server, query):
    import psycopg

    with psycopg.connect(server.replace("+psycopg", "")) as connection:
        return connection.execute(query).fetchall()


def start(server, trials):
    return subprocess.Popen([sys.executable, "-c", SCRIPT, server, str(trials)])


@pytest.mark.slow
def test_two_processes_share_a_study_and_one_is_killed(server, monkeypatch):
    """Both begin at once on an empty database; a third search ends what the killed one left, as if it had not been."""
    from sumosurv.search import study

    monkeypatch.setattr(study, "GRACE", 2.0)
    mortal, other = start(server, 10_000), start(server, 6)
    try:
        assert other.wait(timeout=LIMIT) == 0
    finally:
        mortal.kill()
        mortal.wait()
        if other.poll() is None:
            other.kill()
            other.wait()
    (done,) = rows_of(server, "select count(*) from trials where state = 'COMPLETE'")[0]
    assert done >= 6
    total = done + 3
    resumed = search(server, n_trials=total, mixture=1)
    whole = search(None, n_trials=total, mixture=1)
    np.testing.assert_array_equal(resumed.cv_results_["trial"], np.arange(total))
    assert resumed.cv_results_["params"] == whole.cv_results_["params"]
    np.testing.assert_allclose(resumed.cv_results_["valid_score"], whole.cv_results_["valid_score"], atol=1e-5)
    states = dict(rows_of(server, "select state::text, count(*) from trials group by state"))
    assert states["COMPLETE"] == total
    assert "RUNNING" not in states
    assert rows_of(server, "select count(*) from pg_stat_activity where application_name <> '' ")[0][0] <= 1


def test_tpe_and_heartbeats(server, monkeypatch):
    from sumosurv.search import study

    monkeypatch.setattr(study, "HEARTBEAT", 0.05)
    tpe = search(server, study_name="tpe", method="tpe", n_trials=4)
    assert len(tpe.cv_results_["trial"]) == 4
    monkeypatch.setattr(study, "GRACE", 1.0)
    given = {"sampler": "random", "storage": server, "name": "quiet"}
    dead, alive = (study.OptunaStudy({"dropout": [0.1, 0.2]}, 0, **given) for _ in range(2))
    try:
        dead.ask(1, 1)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert alive.ask(1, 1) == []
            time.sleep(0.2)
        dead._closed.set()  # ends its heartbeat
        deadline = time.monotonic() + LIMIT
        while not (again := alive.ask(1, 1)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [number for number, _ in again] == [0]
    finally:
        dead.close()
        alive.close()
