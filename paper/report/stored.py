"""The records that a table is made of: those that are stored, and searches for those that are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paper.record import load_record, save_record
from paper.searches import DATASETS, METHODS, QUICK, SIMULATED, Size, full_size, record_name, run_search
from sumosurv.datasets import DatasetUnavailableError

__all__ = ["Question", "answers", "gather"]

_FOLDS = 5


@dataclass(frozen=True)
class Question:
    """Which records are wanted, and how large the searches for missing ones are.

    Anything but the full size from seed 0 has a folder of its own, so that it never replaces a full record.
    """

    records: Path  # is read
    out: Path | None  # is read and written; nothing is written where there is none
    names: tuple[str, ...]
    methods: tuple[str, ...]
    seed: int = 0
    quick: bool = False
    trials: int | None = None
    folds: int | None = None
    device: str = "auto"
    stored: bool = False
    optional: tuple[str, ...] = ()  # datasets that are shown where they are stored, and never searched

    @classmethod
    def of(
        cls,
        out: Path | None,
        *,
        records: Path | None = None,
        names: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        trials: int | None = None,
        folds: int | None = None,
        quick: bool | None = None,
        stored: bool = False,
        **others: Any,
    ) -> Question:
        """Check what was asked for; all datasets and methods where none are named."""
        records = out if records is None else records
        if records is None:
            raise ValueError("Name the folder of the stored records, records=.")
        if out is None and not stored:
            raise ValueError("Name the folder for the records of searches that are run, out; or run none, stored=True.")
        if trials is not None and trials < 1:
            raise ValueError(f"trials is the number of settings that are tried, at least 1; got {trials}.")
        if folds is not None and not 1 <= folds <= _FOLDS:
            raise ValueError(f"folds is how many of the {_FOLDS} folds are used, from 1 to {_FOLDS}; got {folds}.")
        return cls(
            Path(records),
            None if out is None else Path(out),
            tuple(_known(names, (*DATASETS, SIMULATED), "dataset")),
            tuple(_known(methods, tuple(METHODS), "method")),
            optional=(SIMULATED,) if names is None else (),
            quick=bool(quick),
            trials=trials,
            folds=folds,
            stored=stored,
            **others,
        )

    @property
    def full(self) -> bool:
        """Whether the full size is asked for."""
        return not self.quick and self.trials is None and self.folds is None

    @property
    def whole(self) -> bool:
        """Whether all datasets and methods are asked for, or it is not the full size anyhow."""
        every = set(DATASETS) <= set(self.names) and set(METHODS) <= set(self.methods)
        return every or not self.full

    @property
    def source(self) -> Path:
        """The folder of stored records of this size."""
        return self._of_size(self.records)

    @property
    def target(self) -> Path | None:
        """The folder for new records of this size, if any are to be written."""
        return None if self.out is None else self._of_size(self.out)

    def find(self, name: str) -> Path | None:
        """The file of a stored record: a new one before an older one; None where there is neither."""
        folders = [self.source] if self.target is None else [self.target, self.source]
        return next((path for folder in folders if (path := folder / f"{name}.json").is_file()), None)

    def _of_size(self, folder: Path) -> Path:
        parts = ["quick"] if self.quick else []
        parts += [f"trials{self.trials}"] if self.trials is not None else []
        parts += [f"folds{self.folds}"] if self.folds is not None else []
        parts += [f"seed{self.seed}"] if self.seed != 0 else []
        return folder / "_".join(parts) if parts else folder

    def size(self, method: str, dataset: str) -> Size:
        """The size of a search."""
        base = QUICK if self.quick else full_size(method, dataset)
        if self.trials is not None:
            base = replace(base, trials=self.trials, slow_trials=min(self.trials, base.slow_trials))
        if self.folds is not None:
            base = replace(base, folds=tuple(range(self.folds)))
        return base

    def answers(self, record: dict[str, Any]) -> bool:
        """Whether a stored record is of the size asked for.

        In the full size the number of trials is free: how many were run is said beside the table.
        """
        own = record["configuration"]
        size = self.size(own["method"], own["dataset"])
        alike = bool(
            own["seed"] == self.seed and tuple(own["folds"]) == size.folds and own["max_epochs"] == size.max_epochs
        )
        return alike and (self.full or own["trials"] == size.for_method(own["method"]))


def answers(table: Callable[[Question], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The ``run`` of a table that is made of searches, from what it does once the question is known."""

    def run(
        out: Path | None,
        *,
        records: Path | None = None,
        seed: int = 0,
        quick: bool | None = None,
        device: str = "auto",
        names: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        trials: int | None = None,
        folds: int | None = None,
        stored: bool = False,
    ) -> dict[str, Any]:
        """Print the table, write its record to ``out``, return it.

        Parameters
        ----------
        out : path, optional
            Where the records of searches that are run, and of the table, are written; None writes nothing.
        records : path, optional
            Where the records of full searches are, ``search_<dataset>_<method>.json``; other sizes have sub-folders.
            ``out`` by default.
        seed : int
            Of the searches.
        quick : bool
            Searches that take minutes.
        device : str
            "auto", "cpu" or "cuda".
        names, methods : sequence of str, optional
            Only these datasets and methods.
        trials, folds : int, optional
            Other sizes of the searches.
        stored : bool
            Run no search: missing records are missing rows.
        """
        return table(
            Question.of(
                out,
                records=records,
                seed=seed,
                quick=quick,
                device=device,
                names=names,
                methods=methods,
                trials=trials,
                folds=folds,
                stored=stored,
            )
        )

    return run


def gather(question: Question) -> list[dict[str, Any]]:
    """The records asked for, by dataset and method: read where they are stored, searched for where they are not.

    What cannot be had (a dataset that is not here, a method whose extra is not installed) is said and left out.
    """
    places = [(dataset, method) for dataset in question.names for method in question.methods]
    records = {place: _read(question, *place) for place in places}
    missing = [place for place in places if records[place] is None and place[0] not in question.optional]
    if missing and not question.stored:
        _announce(question, missing)
        for place in missing:
            records[place] = _search(question, *place)
    found = [record for record in records.values() if record is not None]
    if not found:
        raise ValueError(
            f"There are no records of these searches in {question.source}. Run without --stored to make them; --quick "
            "takes minutes."
        )
    return found


def _read(question: Question, dataset: str, method: str) -> dict[str, Any] | None:
    path = question.find(record_name(dataset, method))
    if path is None:
        return None
    record = load_record(path)
    return record if question.answers(record) else None


def _search(question: Question, dataset: str, method: str) -> dict[str, Any] | None:
    print(f"searching {METHODS[method].label} on {dataset} ...", end=" ", flush=True)
    try:
        size = question.size(method, dataset)
        record = run_search(dataset, method, size=size, seed=question.seed, device=question.device)
    except (DatasetUnavailableError, ModuleNotFoundError) as error:
        print(f"left out: {error}")
        return None
    print(f"{record['results']['search_seconds']:.0f} s", flush=True)
    assert question.target is not None  # checked by Question.of
    return load_record(save_record(record, question.target))


def _announce(question: Question, missing: Sequence[tuple[str, str]]) -> None:
    datasets = sorted({dataset for dataset, _ in missing})
    methods = [METHODS[name].label for name in METHODS if name in {method for _, method in missing}]
    print(
        f"{len(missing)} searches are not stored in {question.source} and are run now: {', '.join(methods)} on "
        f"{', '.join(datasets)}."
    )
    if question.full:
        print(
            "In the full size (300 trials of SuMo-net, 50 of most others, on five folds) that takes minutes for each "
            "on a large GPU and hours on a CPU. --quick takes minutes a dataset; --trials, --folds, --datasets and "
            "--methods make it smaller; --stored shows what is there. A finished search is stored at once: stop and "
            "go on as you like."
        )


def _known(asked: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    if asked is None:
        return list(known)
    by_lower = {name.lower(): name for name in known}
    for name in asked:
        if name.lower() not in by_lower:
            raise ValueError(f"There is no {what} {name!r} here; the names are {', '.join(known)}.")
    return [by_lower[name.lower()] for name in asked]
