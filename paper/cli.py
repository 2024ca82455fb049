"""The command line ``python -m paper NAME``: which experiment, with which options."""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["EXPERIMENTS", "main", "module_of"]

EXPERIMENTS = {
    "table1": "which scores prefer a false distribution (Table 1)",
    "table2": "facts of the datasets (Table 2)",
    "table3": "log-likelihood of every method, tuned on validation rows (Table 3)",
    "table4": "integrated binomial log-likelihood (Table 4)",
    "ctd": "time-dependent concordance (appendix)",
    "ibs": "integrated Brier score (appendix)",
    "likelihood-k": "log-likelihood of step curves by half-width k = 1, 2, 4, 8 (appendix)",
    "table5": "rank correlation of scores over the trials of the searches (Table 5)",
    "table6": "calibration: the paper's score and D-calibration (Table 6)",
    "table7": "seconds of prediction and of a training epoch, method by method (Tables 7 and 8)",
    "table8": "the same as table7",
    "figure1": "true curves and curves made to win on concordance (Figure 1)",
    "lemma1": "the log-likelihood is proper, in numbers; and a search for distributions that fool the other scores",
    "figure3": "true and learned curves of the simulated datasets (Figure 3; some minutes)",
    "life-expectancy": "life expectancies against a fine grid and against Kaplan-Meier (appendix; some minutes)",
    "kkbox-streamed": "SuMo-net on the simulated KKBOX, from a Parquet file that is read in pieces (minutes on a CPU)",
    "kkbox-seconds": "table7 on the simulated KKBOX at its full size (some minutes on a GPU)",
    "all": "every stored table, the missing ones after running them, and a page of results with pictures",
}
_MODULES = {"all": "everything", "table8": "table7"}  # where the name is not the module's
_FLAGS = {"names": "datasets"}  # where the option is not called as the parameter is
_OPTIONS = ("quick", "device", "names", "methods", "trials", "folds", "stored", "page")


def main(argv: Sequence[str] | None = None) -> int:
    """Run an experiment; returns the exit code: 0 done, 1 the experiment failed, 2 wrong usage."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError) as error:
        if arguments.traceback:
            raise
        print(f"paper {arguments.name}: {error}", file=sys.stderr)
        return 1
    return 0


def module_of(experiment: str) -> str:
    """The module whose ``run`` makes an experiment.

    Examples
    --------
    >>> module_of("likelihood-k"), module_of("table8")
    ('paper.likelihood_k', 'paper.table7')
    """
    return f"paper.{_MODULES.get(experiment, experiment.replace('-', '_'))}"


def _run(arguments: argparse.Namespace) -> None:
    module = importlib.import_module(module_of(arguments.name))
    known = inspect.signature(module.run).parameters
    given = {option: getattr(arguments, option) for option in _OPTIONS}
    options: dict[str, Any] = {option: value for option, value in given.items() if value is not None}
    if arguments.stored and "stored" not in known:
        return _show(module, arguments, [*(options.keys() - {"stored"}), *(["out"] if arguments.out else [])])
    for option in options.keys() - known.keys():
        raise ValueError(f"{arguments.name} has no option --{_FLAGS.get(option, option)}.")
    if "records" in known:
        options["records"] = arguments.records
    out = arguments.out if arguments.out is not None or arguments.stored else arguments.records
    module.run(out, seed=arguments.seed, **options)
    if out is not None:
        print(f"\nRecords and pictures are in {out} (of other sizes than the full one in a folder below).")


def _show(module: ModuleType, arguments: argparse.Namespace, others: Collection[str]) -> None:
    """Print the stored record of an experiment that is not made of searches."""
    from paper.record import load_record

    for option in others:
        raise ValueError(f"{arguments.name} --stored has no option --{_FLAGS.get(option, option)}.")
    path = arguments.records / f"{module.__name__.rpartition('.')[2]}.json"
    if not path.is_file():
        raise ValueError(f"There is no record {path}. Run without --stored to make it.")
    module.show(load_record(path))


def _parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {name:16s} {what}" for name, what in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m paper",
        description=f"Make a table or figure of the paper. The names are\n\n{names}",
        epilog="table3 to table6, ctd, ibs and likelihood-k are made of the same searches: stored ones are read,\n"
        "missing ones are run. With --stored nothing is run, and nothing is written unless --out or --page says\n"
        "where. An option that an experiment does not have is an error.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", type=lambda name: name.replace("_", "-"), choices=tuple(EXPERIMENTS), metavar="NAME")
    parser.add_argument("--stored", action="store_true", default=None, help="run nothing: show what is stored")
    parser.add_argument(
        "--records", type=Path, default=Path("results"), metavar="DIR", help="where stored records are; results"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where records and pictures are written; without --stored the records"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="of 'all': where to write the page of results")
    parser.add_argument("--quick", action="store_true", default=None, help="small sizes, a few minutes at most")
    parser.add_argument("--datasets", nargs="+", dest="names", metavar="NAME", help="only these datasets")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="only these methods: SumoNet, DeepHit, ...")
    parser.add_argument("--trials", type=int, metavar="N", help="settings tried in a search; 300 of SuMo-net in full")
    parser.add_argument("--folds", type=int, metavar="N", help="how many of the five folds")
    parser.add_argument("--device", help="auto, cpu or cuda")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    return parser
