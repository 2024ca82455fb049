"""Predictions of rows on disk, written to a Parquet file part by part: a run that was killed resumes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sumosurv.files import check_apart, check_writable, replacing
from sumosurv.outcome.checks import names_in_words
from sumosurv.predicted import Figures
from sumosurv.preprocessing import telling_unseen
from sumosurv.sources import RowSource, digest_of

__all__ = ["predict_to_parquet"]

_PART = 262_144  # rows of a part, which becomes a row group
_BLOCK = 16_384  # rows predicted at a time


def predict_to_parquet(
    model: Any,
    source: Any,
    path: str | Path,
    figures: Figures | None = None,
    *,
    identifiers: Sequence[str] = (),
    verbose: bool = False,
    beyond: Counter[str] | None = None,
) -> int:
    """Write one row of predictions for each row of a table on disk.

    The rows are predicted in parts of 262,144. Each part is written as a whole to a file in a folder beside the target
    (``NAME.parts``). When all parts are written, they become the row groups of one file, which takes the target's name
    in one move, and the folder is removed. If a run is killed, the target stays as it was, and the same call resumes:
    finished parts are kept if the rows that they were predicted from are unchanged. Parts of another model or of
    another request are deleted.

    Parameters
    ----------
    model : fitted estimator
    source : path, pyarrow.dataset.Dataset, iterator of record batches or RowSource
    path : path
        The Parquet file to write.
    figures : Figures, optional
        What to predict.
    identifiers : sequence of str
        Columns to pass through, before the rest.
    verbose : bool
        Show a progress bar.
    beyond : Counter, optional
        Counts the rows in which a figure is extrapolated, by name; those of parts from an earlier run among them.

    Returns
    -------
    int
        The number of rows.
    """
    check_writable(path)
    rows, figures, target = RowSource.of(source), figures or Figures(), Path(path)
    folder = target.with_name(target.name + ".parts")
    check_apart(path, *rows.files)
    if any(file.resolve().is_relative_to(folder.resolve()) for file in rows.files):
        raise ValueError(f"{folder} is where parts of {path} are kept, and it is read; name another file to write.")
    names = _columns(model, rows, identifiers)
    parts = _Parts(folder, _signature(model, figures, identifiers))
    with _bar(rows.n_rows, verbose) as advance, telling_unseen():
        for frames in _in_parts(rows.frames(list(dict.fromkeys([*names, *identifiers])), rows=_BLOCK)):
            digest = digest_of(*frames)
            if parts.keep(digest):
                advance(sum(map(len, frames)))
                continue
            own: Counter[str] = Counter()
            made = []
            for frame in frames:
                made.append(pd.concat([frame[list(identifiers)], figures.table(model, frame[names], own)], axis=1))
                advance(len(frame))
            parts.write(pd.concat(made), own, digest)
    if beyond is not None:
        beyond.update(parts.beyond)
    parts.join(target)
    return rows.n_rows


class _Parts:
    """Finished parts of a file in a folder, with what they are parts of."""

    def __init__(self, folder: Path, signature: str) -> None:
        self._folder = folder
        told = folder / "run.json"
        if self._told(told) != signature:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with replacing(told) as partial:
                partial.write_text(json.dumps({"signature": signature}), encoding="utf-8")
        self._files: list[Path] = []
        self.beyond = Counter[str]()

    def _told(self, told: Path) -> str | None:
        """What the folder holds parts of; None if it is new or empty, and an error if it is not of this making."""
        if not self._folder.exists() or (self._folder.is_dir() and not any(self._folder.iterdir())):
            return None
        try:
            return str(json.loads(told.read_text(encoding="utf-8"))["signature"])
        except (OSError, ValueError, LookupError, TypeError):
            raise FileExistsError(
                f"{self._folder} is there already and holds no parts of predictions; move it, or name another file to "
                "write."
            ) from None

    def _next(self) -> Path:
        return self._folder / f"{len(self._files):06d}.parquet"

    def keep(self, digest: str) -> bool:
        """Whether the next part is there already, predicted from the same rows; if so, it is kept."""
        path = self._next()
        if not path.is_file():
            return False
        stored = json.loads(pq.read_metadata(path).metadata[b"sumosurv"])
        if stored["rows"] != digest:
            return False
        self._files.append(path)
        self.beyond.update(stored["beyond"])
        return True

    def write(self, frame: pd.DataFrame, beyond: Counter[str], digest: str) -> None:
        """One more part, written as a whole or not at all."""
        stored = json.dumps({"beyond": beyond, "rows": digest})
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata({"sumosurv": stored})
        path = self._next()
        with replacing(path) as partial:
            pq.write_table(table, partial, row_group_size=_PART)
        self._files.append(path)
        self.beyond.update(beyond)

    def join(self, target: Path) -> None:
        """All parts as the row groups of one file; the parts are removed."""
        schema = pq.read_schema(self._files[0]).remove_metadata()
        with replacing(target) as partial, pq.ParquetWriter(partial, schema) as writer:
            for path in self._files:
                writer.write_table(pq.read_table(path).replace_schema_metadata(None), row_group_size=_PART)
        shutil.rmtree(self._folder)


def _columns(model: Any, source: RowSource, identifiers: Sequence[str]) -> list[str]:
    """The columns that the model reads."""
    names = getattr(model, "feature_names_in_", None)
    wanted = [name for name in source.columns if name not in identifiers] if names is None else list(names)
    missing = [name for name in [*wanted, *identifiers] if name not in source.names]
    if missing:
        raise ValueError(f"{source.name} has no columns {names_in_words(missing)}.")
    return wanted


def _signature(model: Any, figures: Figures, identifiers: Sequence[str]) -> str:
    """A digest of the model and of what is predicted."""
    digest = hashlib.sha256()
    fitted, tensors = model._state()
    asked = [fitted, model.get_params(deep=False), asdict(figures), list(identifiers)]
    digest.update(json.dumps(asked, sort_keys=True, default=str).encode())
    for name, values in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(values.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _in_parts(frames: Iterator[pd.DataFrame]) -> Iterator[list[pd.DataFrame]]:
    """Some frames at a time, until they have the rows of a part."""
    held: list[pd.DataFrame] = []
    for frame in frames:
        held.append(frame)
        if sum(map(len, held)) >= _PART:
            yield held
            held = []
    if held:
        yield held


@contextmanager
def _bar(total: int, verbose: bool) -> Iterator[Callable[[int], Any]]:
    """A progress bar as a function of the rows that were added."""
    if not verbose:
        yield lambda rows: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc="predicting", unit="row") as bar:
        yield bar.update
