"""A Ray cluster of two nodes on this machine, apart from the test's own process: so that all of it can be killed."""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import sumosurv

BIN = Path(sys.executable).parent
TOKEN = secrets.token_hex(32)  # of the clusters of this run
_WORKER = re.compile(r"ray::(_train\b|_apply\b|\w*TrainWorker)")
LIMIT = 240  # seconds after which a command is taken to hang


def environment(**more):
    """No telemetry, one thread each, and the package from where it is tested."""
    source = str(Path(sumosurv.__file__).parents[1])
    path = os.pathsep.join([source, str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
    own |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    own |= {
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }  # a node's death is seen soon
    return os.environ | own | more


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def processes():
    """Parent, group and command line of all processes."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, group = stat.read_text().rpartition(")")[2].split()[:3]
            line = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if state != "Z":
            found[int(stat.parent.name)] = (int(parent), int(group), line)
    return found


def median(model, rows):
    """What the workers of a test are asked; slow enough to be disturbed."""
    time.sleep(0.1)
    return rows[["number"]].assign(median=model.predict_median(rows[["x"]]))


class Nodes:
    """A head and a second node, each in a process group of its own, which `kill` ends as a power cut would."""

    def __init__(self, folder: Path, cpus=(1, 1)):
        self.folder, self.port = folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._nodes: list[subprocess.Popen] = []
        try:
            head = ["--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={folder}"]
            self._start(head, cpus[0])
            for count in cpus[1:]:
                self.add(count)
        except BaseException:
            self.close()
            raise

    def add(self, cpus=1):
        self._start([f"--address={self.address}"], cpus)

    def _start(self, words, cpus):
        command = [str(BIN / "ray"), "start", *words, "--node-ip-address=127.0.0.1", f"--num-cpus={cpus}", "--block",
                   "--object-store-memory=150000000", "--disable-usage-stats"]  # fmt: skip
        log = (self.folder / f"node-{len(self._nodes)}.log").open("w")
        node = subprocess.Popen(
            command, env=environment(), stdout=log, stderr=log, start_new_session=True, preexec_fn=_end_with_parent
        )
        self._nodes.append(node)
        log.close()
        self._wait_for(len(self._nodes))

    def _wait_for(self, count):
        code = (
            "import ray, sys\n"
            f"ray.init(address='{self.address}', log_to_driver=False, logging_level=50)\n"
            f"sys.exit(sum(n['Alive'] for n in ray.nodes()) != {count})"
        )
        end = time.monotonic() + 90
        while True:
            done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
            if done.returncode == 0:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"{count} nodes did not come up: {done.stderr[-2000:]}")
            time.sleep(0.5)

    def members(self, number):
        """The processes of a node: those of its session."""
        session = self._nodes[number].pid
        return [pid for pid in processes() if _session(pid) == session]

    def workers(self):
        """Processes of all nodes that train or predict, not those that watch over them."""
        table = processes()
        own = [pid for number in range(len(self._nodes)) for pid in self.members(number)]
        return [pid for pid in own if pid in table and _WORKER.match(table[pid][2])]

    def kill(self, number):
        """End all processes of a node at once."""
        for pid in self.members(number):
            _end(pid)
        self._nodes[number].wait(timeout=30)

    def put_back(self, number, cpus=1):
        """A new node in the place of one that was killed, once the cluster knows that it is gone."""
        del self._nodes[number]
        self._start([f"--address={self.address}"], cpus)

    def close(self):
        """End all nodes, and wait for the processes to be gone: a busy machine takes its time over it."""
        end = time.monotonic() + 60
        while self.left_over() and time.monotonic() < end:
            for pid in self.left_over():  # again and again: some are started while others are ended
                _end(pid)
            time.sleep(0.1)
        for node in self._nodes:
            node.wait(timeout=30)

    def left_over(self):
        return [pid for number in range(len(self._nodes)) for pid in self.members(number)]


def _end_with_parent():
    """Let the system end this process when the one that started it is gone (Linux)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _end(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
