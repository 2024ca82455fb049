"""How fast a served model answers: requests per second and delays, against the library's own speed in the same run.

A server in a process of its own at 127.0.0.1 on a free port; clients ask for a bounded time. ``--out results`` keeps a
record.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _record import make_record, save_record

from sumosurv import SumoNet, datasets
from sumosurv import load as load_model
from sumosurv.serve import ServedModel, serve

STEPS = 101


def served_model(rows: int, epochs: int) -> Any:
    data = datasets.simulate("weibull", rows, random_state=0)
    return SumoNet(max_epochs=epochs, random_state=0).fit(data.X, data.y)


def questions(last: float) -> dict[str, dict[str, Any]]:
    times = np.linspace(0.0, last, STEPS).tolist()
    return {
        "curve of one subject": {"rows": [{"x": 0.4}], "times": times, "summaries": False},
        "curve, median, restricted mean": {"rows": [{"x": 0.4}], "times": times},
        "curves of 100 subjects": {
            "rows": [{"x": x} for x in np.linspace(0, 1, 100).tolist()],
            "times": times,
            "summaries": False,
        },
    }


def library(served: ServedModel, body: dict[str, Any], seconds: float) -> float:
    """Answers per second without a server."""
    served.answer(body)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        served.answer(body)
        count += 1
    return count / (time.perf_counter() - start)


def load(port: int, body: dict[str, Any], clients: int, seconds: float) -> tuple[list[float], int, float]:
    """Delays of the answers, how many requests failed, and for how long it was asked."""
    text, delays, failed = json.dumps(body), [], []
    end = time.perf_counter() + seconds

    def ask() -> None:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while time.perf_counter() < end:
            start = time.perf_counter()
            line.request("POST", "/predict", text, {"Content-Type": "application/json"})
            answer = line.getresponse()
            answer.read()
            delays.append(time.perf_counter() - start)
            if answer.status != 200:
                failed.append(answer.status)
        line.close()

    start = time.perf_counter()
    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return delays, len(failed), time.perf_counter() - start


def run_server(path: Path, told: Any) -> None:
    torch.set_num_threads(1)
    serve(load_model(path), port=0, on_start=told.put)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = served_model(arguments.rows, arguments.epochs)
    served = ServedModel(model)
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    path = Path(tempfile.mkdtemp()) / "model.sumo"
    model.save(path)
    server = context.Process(target=run_server, args=(path, told), daemon=True)
    server.start()
    port = int(told.get(timeout=60).rstrip("/").rpartition(":")[2])
    lines = []
    try:
        print(f"{'':34s} clients  library/s  server/s  ratio  p50 ms  p99 ms")
        for name, body in questions(served.last_time).items():
            alone = library(served, body, arguments.seconds)
            load(port, body, 1, 0.5)
            for clients in arguments.clients:
                delays, failed, wall = load(port, body, clients, arguments.seconds)
                rate = len(delays) / wall
                p50, p99 = (1000 * float(np.quantile(delays, q)) for q in (0.5, 0.99))
                print(f"{name:34s} {clients:7d} {alone:10.1f} {rate:9.1f} {rate / alone:6.2f} {p50:7.1f} {p99:7.1f}")
                lines.append({"question": name, "clients": clients, "library_per_second": alone, "per_second": rate,
                              "ratio": rate / alone, "p50_ms": p50, "p99_ms": p99, "failed": failed})  # fmt: skip
    finally:
        server.terminate()
        server.join(10)
    if arguments.out is not None:
        configuration = {"threads": 1, "rows": arguments.rows, "epochs": arguments.epochs, "times": STEPS}
        configuration |= {"networks": len(model.predict_members(datasets.simulate("weibull", 1, random_state=0).X))}
        configuration |= {"seconds": arguments.seconds}
        save_record(make_record("performance_serve_cpu", configuration, {"rows": lines}), arguments.out)


if __name__ == "__main__":
    main()
