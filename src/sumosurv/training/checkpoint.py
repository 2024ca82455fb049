"""Checkpoints: the state of a training after an epoch, in a file from which it goes on as if it had not been ended.

A file is safetensors with a JSON header: nothing in it is executed. It is written whole or not at all, and holds a
digest of rows, settings, seeds and first weights, so that it is used for the training that it is of and for no other,
and a checksum, so that damage is noticed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sumosurv.files import replacing, system_errors
from sumosurv.networks import PopulationNetwork, Rows, Table
from sumosurv.outcome import each_field
from sumosurv.stored import as_flag, as_text, as_whole, checksum, parse_json

__all__ = ["Checkpoint", "Checkpoints", "training_digest"]

_KEY = "sumosurv checkpoint"
_CHECKSUM = "sha256"
_FORMAT = 2


@dataclass
class Checkpoints:
    """A folder with the checkpoints of one fit, one file for each population that it trains, in their order.

    Parameters
    ----------
    folder : path
        Made if it is not there. Processes on several machines must all see it.
    seconds : float
        A checkpoint is written at the end of an epoch if the last one is older, and at the end of each training.
    """

    folder: str | Path
    seconds: float = 30.0
    _begun: int = field(default=0, init=False)

    @classmethod
    def of(cls, given: Checkpoints | str | Path | None) -> Checkpoints | None:
        """The checkpoints of a new fit, from its first file on; None if nothing is kept."""
        if given is None:
            return None
        if isinstance(given, (str, Path)):
            return cls(given)
        if not isinstance(given, Checkpoints):
            raise TypeError(f"checkpoint must be a folder or Checkpoints; got {given!r}.")
        return cls(given.folder, given.seconds)

    def next(self) -> Checkpoint:
        """The file of the training that begins now."""
        folder = Path(self.folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise NotADirectoryError(
                f"Checkpoints cannot be kept in {folder}: there is a file; name a folder."
            ) from None
        self._begun += 1
        return Checkpoint(folder / f"training-{self._begun}.safetensors", self.seconds)


class Checkpoint:
    """The file of one training."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self._seconds = path, seconds
        self._written = time.monotonic()

    def due(self) -> bool:
        """Whether the last file is old enough for another one."""
        return time.monotonic() - self._written >= self._seconds

    def save(self, digest: str, state: Sequence[Tensor], history: Sequence[Tensor], *, epochs: int, done: bool) -> None:
        """Write the state after so many epochs; ``done`` if there will be no more."""
        from safetensors.torch import save_file

        tensors = {f"state.{i}": value for i, value in enumerate(state)}
        tensors |= {f"history.{i}": value for i, value in enumerate(history)}
        text = json.dumps({"format": _FORMAT, "digest": digest, "epochs": epochs, "done": done})
        with replacing(self.path) as partial:
            # copies: tensors that share memory are not written
            copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
            copies[_CHECKSUM] = torch.frombuffer(bytearray(checksum(text, copies)), dtype=torch.uint8)
            with system_errors(self.path):
                save_file(copies, str(partial), metadata={_KEY: text})
        self._written = time.monotonic()

    def load(self, digest: str, state: Sequence[Tensor]) -> tuple[int, bool, list[Tensor]]:
        """Put what is stored into the tensors of a state: epochs done, whether these were all, and the history.

        Zero epochs, and nothing changed, if there is no file.

        Raises
        ------
        ValueError
            The file is damaged, or of another training.
        """
        from safetensors import SafetensorError, safe_open

        if not self.path.is_file():
            return 0, False, []
        try:
            with safe_open(str(self.path), framework="pt") as file:
                text = (file.metadata() or {})[_KEY]
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            described = parse_json(text)
            if as_whole(described["format"], "the format") != _FORMAT:
                raise ValueError("it is of another version")
            if found.pop(_CHECKSUM).numpy().tobytes() != checksum(text, found):
                raise ValueError("its checksum does not match")
            epochs, done = as_whole(described["epochs"], "the number of epochs"), as_flag(described["done"], "done")
            same = as_text(described["digest"], "the digest") == digest
            stored = [found[f"state.{i}"] for i in range(len(state))] if same else []
            history = [found[name] for name in sorted(found) if name.startswith("history.")]
            if any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(stored, state)):
                raise ValueError("its tensors have other shapes")
            if any(a.dtype != torch.float64 or a.ndim != 2 or len(a) != epochs for a in history):
                raise ValueError(f"its history is not that of {epochs} epochs")
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path} is no checkpoint that can be gone on with ({error}); delete it.") from None
        if not same:
            raise ValueError(
                f"{self.path} is the checkpoint of other rows, settings or seeds; name another folder, or delete it."
            )
        with torch.no_grad():
            for tensor, value in zip(state, stored):
                tensor.copy_(value)
        return epochs, done, history


def training_digest(
    network: PopulationNetwork, table: Table, rows: Sequence[Rows | None], described: Sequence[object]
) -> str:
    """A fingerprint of all that decides what a training becomes: first weights, rows, who trains on which, settings."""
    text = hashlib.sha256(type(network).__name__.encode())

    def add(value: Tensor) -> None:
        text.update(f"{value.dtype}{tuple(value.shape)}".encode())
        if value.numel():
            text.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)

    for name, tensor in network.state_dict().items():
        text.update(name.encode())
        add(tensor)
    add(table.inputs.numeric)
    add(table.inputs.codes)
    each_field(add, table.outcome)
    for part in rows:
        if part is not None:
            add(part.index)
            add(part.present)
    for value in described:
        text.update(repr(_plain(value)).encode())
    return text.hexdigest()


def _plain(value: object) -> object:
    """Settings in words, rows and what is no setting left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
        return {k: v for k, v in parts.items() if isinstance(v, (int, float, str, bool, np.generic, type(None)))}
    return value
