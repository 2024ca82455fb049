"""The default and its peers on 32 small, wide and odd tables: five folds, one protocol, one set of scores.

A model sees the training rows of a fold (stratified by event, shuffled with seed 0) and nothing else, with its default
settings and seed 0; the penalty of the Cox regression is chosen by inner folds. All are scored by the same code:

- cells: mean log-likelihood with time cut into 30 cells at quantiles of the training event times (a quarter of the
  number of events where these are fewer than 120), defined for every method. An event scores the log-probability of
  its cell, a censored row log S on the line between the edges of its cell; follow-up ends at the last edge. Methods
  without a density have 1 % of the training rows' Kaplan-Meier curve mixed in, since step curves can give a cell no
  mass at all; no other probability is changed.
- S_L: mean log-likelihood of methods that have a density, with the range of the training times as the unit of time.
- IBS: integrated Brier score at 101 times from zero to the 95 % quantile of the training times, weighted by
  Kaplan-Meier of the training rows' censoring.
- Ctd: time-dependent concordance (`concordance_td`). D-calibration: p-value with ten bins (`d_calibration`).

A difference on a table is called clear if its paired mean over the five folds is more than twice its standard error.
Methods are ranked on the means of each table; a method that fails on a fold, or does not finish in time, is ranked
last there, with the reason kept.

    python benchmarks/zoo.py --out results                              # all that the record does not hold yet
    python benchmarks/zoo.py --methods SumoNet --force --out results    # one method again
    python benchmarks/zoo.py --tables glioma,burn --methods SumoNet,Kaplan-Meier --folds 2
    python benchmarks/zoo.py --methods none --out results --page docs   # the summary, docs/zoo.md and its pictures

The record is written after every fit. A fit is done again if the settings of its method have changed. The tables are
read from ``zoo`` in ``$SUMOSURV_DATA`` or ../shared/data. One thread; --jobs for several processes.
"""

import argparse
import json
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import _zoo_fits as fits
from _measure import machine
from _record import current_commit, make_record
from _zoo_page import write_page
from _zoo_summary import report

LIMIT = 300.0  # seconds for a fit with its scores


class Results:
    """Results by table, method and fold, in a file if there is one."""

    def __init__(self, path=None):
        self.path, self.units, self.methods = path, {}, {}
        self.read()

    def read(self):
        """Take what the file holds."""
        if self.path is not None and self.path.is_file():
            record = json.loads(self.path.read_text(encoding="utf-8"))
            self.methods |= record["configuration"]["methods"]
            self.units |= {(u["table"], u["method"], u["fold"]): u for u in record["results"]["units"]}

    def missing(self, wanted):
        """Those of the wanted (table, method, fold) that are not there, or under other settings."""
        now = {method: fits.METHODS[method].settings() for _, method, _ in wanted}
        return [key for key in wanted if self.units.get(key, {}).get("settings") != now[key[1]]]

    def add(self, unit):
        """Keep a result beside what the file holds by now, since another run may have added to it, and write it."""
        self.read()
        own = unit | {"processor": machine("cpu"), "commit": current_commit()}
        self.units[unit["table"], unit["method"], unit["fold"]] = own
        self.methods[unit["method"]] = fits.METHODS[unit["method"]].describe()
        if self.path is not None:
            self.write()

    def rows(self):
        """All results, in the order of tables, methods and folds."""
        order = {method: i for i, method in enumerate(fits.METHODS)}
        return [self.units[k] for k in sorted(self.units, key=lambda k: (k[0], order.get(k[1], len(order)), k[2]))]

    def write(self):
        """A record like all others, with a line for each result."""
        settings = {"methods": self.methods, "seconds_at_most": LIMIT, "threads": 1}
        record = make_record("zoo", settings, {"units": []})
        del record["commit"]  # each unit names its own
        text = json.dumps(record, indent=2, ensure_ascii=False)
        lines = ",\n".join("      " + json.dumps(unit, ensure_ascii=False) for unit in self.rows())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(text.replace('"units": []', f'"units": [\n{lines}\n    ]') + "\n", encoding="utf-8")
        part.replace(self.path)


class Worker:
    """A process that runs one unit after another, and is replaced when one takes too long or brings it down."""

    def __init__(self, limit):
        self.limit, self.process = limit, None

    def run(self, path, method, fold):
        """The result of a unit; an error in it where the process ended or the time was up."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=_serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
            self.pipe.recv()  # it is ready
        self.pipe.send((path, method, fold))
        error = f"no result within {self.limit:g} s"
        if self.pipe.poll(self.limit):
            try:
                return self.pipe.recv()
            except EOFError:
                error = "the process came to an end"
        self.stop()
        unit = {"table": path.stem, "method": method, "fold": fold}
        return unit | {"settings": fits.METHODS[method].settings(), "error": error}

    def stop(self):
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def _serve(pipe):
    pipe.send(True)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(fits.run_unit(*task))


def run(results, wanted, folder, limit=LIMIT, jobs=1, force=False):
    """Run what is missing of the wanted units; those of a table that ran out of time once are not tried again."""
    todo = list(wanted) if force else results.missing(wanted)
    workers, idle, slow = [Worker(limit) for _ in range(jobs)], SimpleQueue(), {}
    for worker in workers:
        idle.put(worker)

    def one(key):
        table, method, fold = key
        if (table, method) in slow:
            unit = {"table": table, "method": method, "fold": fold, "settings": fits.METHODS[method].settings()}
            return unit | {"error": f"not tried: fold {slow[table, method]} had no result within {limit:g} s"}
        worker = idle.get()
        try:
            unit = worker.run(folder / f"{table}.parquet", method, fold)
        finally:
            idle.put(worker)
        if unit.get("error", "").startswith("no result within"):
            slow[table, method] = fold
        return unit

    with ThreadPoolExecutor(jobs) as pool:
        for unit in pool.map(one, todo):
            results.add(unit)
            said = unit.get("error") or f"cells {unit['cells']:.4f}, IBS {unit['IBS']:.4f}, {unit['fit_seconds']:.1f} s"
            print(f"{unit['table']}, {unit['method']}, fold {unit['fold']}: {said}", flush=True)
    for worker in workers:
        worker.stop()
    return len(todo)


def main():
    """Run what was asked for and is not in the record; print the summary of the whole record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", help="names with commas between them; all by default")
    parser.add_argument("--methods", help=f"of {', '.join(fits.METHODS)}; all by default, none for the summary alone")
    parser.add_argument("--folds", type=int, default=fits.N_FOLDS, help="how many of the five")
    parser.add_argument("--data", type=Path, default=None, help="folder of the tables")
    parser.add_argument("--out", type=Path, help="folder of the record, which is added to")
    parser.add_argument("--page", type=Path, help="write zoo.md and figures/zoo_*.png into this folder")
    parser.add_argument("--force", action="store_true", help="also do again what the record holds")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a fit with its scores may take")
    parser.add_argument("--jobs", type=int, default=1, help="fits at once")
    options = parser.parse_args()
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))  # of workers
    if not 1 <= options.folds <= fits.N_FOLDS:
        parser.error(f"--folds is between 1 and {fits.N_FOLDS}; got {options.folds}.")
    if options.page is not None and options.out is None:
        parser.error("--page needs --out: the page is made from the record.")
    methods = _names(parser, options.methods, list(fits.METHODS), "--methods")
    results = Results(None if options.out is None else options.out / "zoo.json")
    if methods:
        folder = options.data or fits.folder()
        there = sorted(path.stem for path in folder.glob("*.parquet"))
        if not there:
            parser.error(f"no tables in {folder}: set SUMOSURV_DATA to the folder that has zoo/, or give --data.")
        tables = _names(parser, options.tables, there, "--tables")
        wanted = [(table, method, fold) for method in methods for table in tables for fold in range(options.folds)]
        done = run(results, wanted, folder, options.limit, options.jobs, options.force)
        print(f"\n{done} fits done, {len(wanted) - done} were in the record.")
    rows = results.rows()
    print(report(rows))
    if options.page is not None:
        write_page(json.loads(results.path.read_text(encoding="utf-8")), options.page)


def _names(parser, text, known, option):
    """The names asked for, all that are known by default."""
    if text is None:
        return known
    names = [] if text == "none" else [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{option}: there is no {', '.join(unknown)}; there are {', '.join(known)}.")
    return names


if __name__ == "__main__":
    main()
