"""Model files: one safetensors file whose header holds a JSON description. Nothing in it is ever executed."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv import estimators
from sumosurv._version import __version__
from sumosurv.estimators import SurvivalEstimator
from sumosurv.files import check_writable, replacing, system_errors
from sumosurv.stored import as_flag, as_list, checksum, parse_json

__all__ = ["ModelFileError", "load", "model_digest", "save"]

_FORMAT = 2
_KEY = "sumosurv"
_DIGEST = "sha256"
_LONGEST_HEADER = 100_000_000  # bytes, as in safetensors
_LONGEST_NAME = 1000  # of a tensor
_PART = "part"  # prefix of the tensors of a mixture's estimators


class ModelFileError(ValueError):
    """The file is not a model that this version can read."""


def save(model: SurvivalEstimator, path: str | Path) -> None:
    """Write a fitted model to a file: weights as safetensors, the rest as JSON in its header.

    The file holds no code, no pickle and no training rows; of the data it has what prediction needs:
    column names, centres, scales, quantiles and category levels. An ``encoder`` of your own is saved as
    weights only: pass the module to `load`. A ``random_state`` that is not a number is not kept.

    The file is written under a temporary name beside the target and takes its place when it is whole: an older file
    stays as it was if anything fails.

    Raises
    ------
    OSError
        The target is a folder or read-only, its folder is missing or takes no file, or the disk is full.
    """
    from safetensors.torch import save_file
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    check_writable(path)
    text, tensors = _contents(model)
    parse_json(text)  # what could not be read again is not written
    with replacing(path) as partial:
        # the digest is a tensor: safetensors writes several header entries in no fixed order, and a file should not
        # depend on chance
        digest = torch.frombuffer(bytearray(checksum(text, tensors)), dtype=torch.uint8)
        with system_errors(path):
            save_file(tensors | {_DIGEST: digest}, str(partial), metadata={_KEY: text})


def load(path: str | Path, *, encoder: Any = None) -> Any:
    """Read a model that `save` wrote; it predicts exactly what the saved one did.

    Nothing in a file is executed, every value is checked before it is used, and reading takes a small multiple of the
    file's size. The digest in a file is a checksum against damage. It is not a signature: anyone who can write a file
    can write a matching digest, so it does not tell who made a model, or whether its predictions are sound.

    Parameters
    ----------
    path : path
    encoder : torch.nn.Module or callable, optional
        The module (or function that makes it) of a model that was fitted with an ``encoder``.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        It is truncated, was changed after writing, comes from elsewhere, or from a newer version.
    """
    description, tensors = _read(Path(path))
    return _rebuild(path, description, tensors, encoder)


def model_digest(model: SurvivalEstimator) -> str:
    """The SHA-256 digest that a file of this model holds, in hexadecimal: the same for a model that was read."""
    return checksum(*_contents(model)).hex()


def _contents(model: Any) -> tuple[str, dict[str, Tensor]]:
    """What a file holds of a model: its description as JSON, and its tensors."""
    own, tensors = _describe(model)
    text = json.dumps({"format": _FORMAT, "version": __version__, **own}, default=_plain, allow_nan=False)
    # copies: the parts of a mixture may share what they know of their rows
    return text, {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}


def _describe(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file says of a model, and its tensors; the estimators of a mixture are described one by one.

    Of a search the file keeps what it predicts with.
    """
    model = getattr(model, "best_estimator_", model)
    parameters = model.get_params(deep=False)
    has_encoder = parameters.pop("encoder", None) is not None
    parameters.pop("on_epoch", None)
    if not isinstance(parameters.get("random_state"), (int, np.integer, type(None))):
        parameters["random_state"] = None
    fitted, tensors = model._state()
    described = {"estimator": type(model).__name__, "parameters": parameters, "encoder": has_encoder, "fitted": fitted}
    parts = model._parts()
    if parts:
        described["default"] = parameters.get("estimator") is None
        described["parts"] = []
        parameters = {name: value for name, value in parameters.items() if not _holds_estimators(value)}
        described["parameters"] = {name: value for name, value in parameters.items() if name != "estimator"}
        for i, part in enumerate(parts):
            own, more = _describe(part)
            described["parts"].append(own)
            tensors |= {f"{_PART}{i}.{name}": value for name, value in more.items()}
    return described, tensors


def _holds_estimators(value: Any) -> bool:
    several = isinstance(value, (list, tuple))
    return any(isinstance(part, SurvivalEstimator) for part in (value if several else [value]))


def _rebuild(path: str | Path, description: dict[str, Any], tensors: dict[str, Tensor], encoder: Any) -> Any:
    """The inverse of `_describe`."""
    name = description.get("estimator")
    if not isinstance(name, str) or name not in estimators.METHODS:
        raise ModelFileError(f"{path} holds an estimator {name!r:.50} that this version ({__version__}) does not know.")
    cls = estimators.METHODS[name]
    known = inspect.signature(cls).parameters
    try:
        parameters = {str(key): _tuples(value) for key, value in description["parameters"].items()}
        unknown = sorted(set(parameters) - set(known))
        if unknown:
            raise ModelFileError(f"{path} sets parameters that {name} does not have: {', '.join(unknown):.200}.")
        if description["encoder"] and encoder is None:
            raise ModelFileError(
                f"{path} was fitted with an encoder of your own; pass it: load(path, encoder=MyModule())."
            )
        if encoder is not None and "encoder" in known:
            parameters["encoder"] = encoder
        parts = []
        if "parts" in description:
            described = as_list(description["parts"], "parts")
            both = zip(described, _by_part(tensors, len(described)))
            parts = [_rebuild(path, part, own, encoder) for part, own in both]
            parameters |= cls._settings_with(parts, as_flag(description.get("default", False), "default"))
        model = cls(**parameters)
        if parts:
            model._restore_parts(parts)
        model._check_settings()
        model._restore(description["fitted"], tensors)
    except (ModelFileError, MemoryError):
        raise
    except Exception as error:  # whatever it is, the file is at fault
        raise ModelFileError(f"{path} does not fit together as a {name}: {error!s:.500}") from error
    return model


def _by_part(tensors: dict[str, Tensor], count: int) -> list[dict[str, Tensor]]:
    """The tensors of each of a mixture's estimators."""
    parts: list[dict[str, Tensor]] = [{} for _ in range(count)]
    places = {f"{_PART}{i}": part for i, part in enumerate(parts)}
    for name, value in tensors.items():
        owner, _, rest = name.partition(".")
        if owner in places:
            places[owner][rest] = value
    return parts


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {path}.")
    _check_header(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise ModelFileError(f"{path} is a safetensors file, but not one that sumosurv wrote.")
            # copies: a file that is mapped into memory could still change
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, RuntimeError) as error:
        raise ModelFileError(f"{path} is not a model file, or is truncated ({error}).") from None
    text = metadata[_KEY]
    digest = tensors.pop(_DIGEST, torch.zeros(0, dtype=torch.uint8))
    if digest.dtype != torch.uint8 or digest.numpy().tobytes() != checksum(text, tensors):
        raise ModelFileError(f"{path} was changed after it was written: its checksum does not match.")
    try:
        description = parse_json(text)
    except ValueError as error:
        raise ModelFileError(f"{path} has a damaged description ({error}).") from None
    _check_format(path, description)
    return description, tensors


def _check_header(path: Path) -> None:
    """Raise a ModelFileError if the table of contents cannot be that of a model; no tensor is read for that."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(_LONGEST_HEADER, path.stat().st_size - 8):
                raise ValueError("it has no header")
            header = parse_json(file.read(length))
        for name, entry in header.items():
            if name != "__metadata__" and (len(name) > _LONGEST_NAME or not entry["shape"]):
                raise ValueError(f"no tensor of a model is named or shaped as {name[:50]!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{path} is not a model file, or is truncated ({error}).") from None


def _check_format(path: Path, description: Any) -> None:
    if not isinstance(description, dict) or not isinstance(description.get("format"), int) or description["format"] < 1:
        raise ModelFileError(f"{path} has no description that sumosurv understands.")
    found = f"{path} has file format {description['format']} (written by sumosurv {description.get('version')!s:.20})"
    if description["format"] < _FORMAT:
        raise ModelFileError(
            f"{found}, which this version no longer reads; it reads format {_FORMAT}. Fit the model again."
        )
    if description["format"] > _FORMAT:
        raise ModelFileError(f"{found}; this version reads {_FORMAT}. Upgrade sumosurv.")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"A model with a {type(value).__name__} among its parameters cannot be saved: {value!r}.")


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
