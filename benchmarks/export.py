"""How far exported models are from the library, and how fast: one row and many, on the paper's four datasets.

    python benchmarks/export.py --out results     # also fills the table of docs/performance.md

The default SumoNet, few rows and epochs (the number of operations depends on neither). The library is asked for S and
f, the file gives both and the risk. Needs onnx and onnxruntime.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from _measure import TIMES, arguments, keep, seconds, show, start

from sumosurv import SumoNet, datasets
from sumosurv.export import export_onnx

DATASETS = ("flchain", "gbsg", "metabric", "support")
ROWS = 1500  # to fit on


def feeds(session, X, times):
    """The inputs of a file for a table."""
    about = json.loads(session.get_modelmeta().custom_metadata_map["sumosurv"])
    given = {"times": times}
    if about["numbers"]:
        given["numbers"] = X[about["numbers"]].to_numpy(np.float64)
    if about["categories"]:
        columns = X[[column["name"] for column in about["categories"]]].astype(object)
        given["categories"] = columns.where(columns.notna(), "").astype(str).to_numpy(object)
    return given


def measure(name, options, epochs, batch):
    """Errors and seconds of one dataset, for both precisions."""
    X, y = datasets.load(name)
    model = SumoNet(max_epochs=epochs, random_state=0).fit(X[:ROWS], y[:ROWS])
    times = np.linspace(0.0, 1.2 * model.last_time_, TIMES)
    own = {rows: seconds(lambda part=X[:rows]: ask(model, part, times), repeats=3, at_most=2.0) for rows in (1, batch)}
    checked = X[:batch]
    exact = (*ask(model, checked, times), model.predict(checked))
    rows = []
    for precision in ("double", "single"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            begun = time.perf_counter()
            export_onnx(model, path, precision=precision)
            written = time.perf_counter() - begun
            size = path.stat().st_size
            threads = onnxruntime.SessionOptions()
            threads.intra_op_num_threads, threads.log_severity_level = options.threads, 3
            session = onnxruntime.InferenceSession(path, threads, providers=["CPUExecutionProvider"])
        found = session.run(None, feeds(session, checked, times))
        errors = [float(np.abs(a - b).max()) for a, b in zip(found, exact)]
        errors[1] /= float(exact[1].max())
        took = {}
        for count in (1, batch):
            given = feeds(session, X[:count], times)
            took[count] = seconds(lambda given=given, run=session.run: run(None, given), repeats=3, at_most=2.0)
        rows.append(
            {
                "dataset": name,
                "precision": precision,
                "error_S": errors[0],
                "error_f": errors[1],
                "error_risk": errors[2],
                "bytes": size,
                "seconds_to_write": written,
                "one_row": took[1],
                "one_row_library": own[1],
                "batch": took[batch],
                "batch_library": own[batch],
            }
        )
    return rows


def ask(model, X, times):
    """S and f by the library."""
    return model.predict_survival_function(X, times), model.predict_density(X, times)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    start(options)
    batch = 50 if options.quick else 200
    rows = [row for name in DATASETS for row in measure(name, options, options.epochs, batch)]
    show(rows, list(rows[0]))
    settings = {"epochs": options.epochs, "rows": ROWS, "times": TIMES, "batch": batch}
    settings["onnxruntime"] = onnxruntime.__version__
    keep(options, "export", settings, {"rows": rows})


if __name__ == "__main__":
    main()
