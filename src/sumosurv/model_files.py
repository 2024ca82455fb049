"""Model files: one safetensors file whose header holds a JSON description. Nothing in it is ever executed.

Every value that is read is checked before it is used: a file may be damaged, or made to do harm.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from sumosurv._version import __version__
from sumosurv.files import check_writable, replacing, system_errors

_FORMAT = 4
_KEY = "sumosurv"
_DIGEST = "sha256"
_LONGEST_HEADER = 100_000_000  # bytes, as in safetensors
_LONGEST_NAME = 1000  # of a tensor
_PART = "part"  # prefix of the tensors of a mixture's estimators
_LARGEST = 2**64  # of a whole number in JSON


class ModelFileError(ValueError):
    """The file is not a model that this version can read."""


def save(model: Any, path: str | Path) -> None:
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
    if not hasattr(model, "_state") and not hasattr(model, "best_estimator_"):
        raise TypeError(
            f"A model file holds estimators of this library; got {type(model).__name__}. For a pipeline, use "
            "make_survival_pipeline, or save its last step."
        )
    check_writable(path)
    text, tensors = _contents(model)
    parse_json(text)  # what could not be read again is not written
    with replacing(path) as partial:
        # the digest is a tensor: safetensors writes several header entries in no fixed order, and a file should not
        # depend on chance
        digest = torch.frombuffer(bytearray(checksum(text, tensors)), dtype=torch.uint8)
        with system_errors(path):
            save_file(tensors | {_DIGEST: digest}, str(partial), metadata={_KEY: text})


def model_digest(model: Any) -> str:
    """The SHA-256 digest that a file of this model holds, in hexadecimal: the same for a model that was read."""
    return checksum(*_contents(model)).hex()


def _contents(model: Any) -> tuple[str, dict[str, Tensor]]:
    """Return the description of a model as JSON, and its tensors."""
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
    if callable(parameters.get("verbose")):
        parameters["verbose"] = False
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
    if isinstance(value, (list, tuple)):
        return any(_holds_estimators(part) for part in value)
    return hasattr(value, "_state")


def read_model(path: Path, methods: Mapping[str, Any], *, encoder: Any = None) -> Any:
    """The estimator of a model file, of one of the given classes; see `sumosurv.load`."""
    description, tensors = _read_file(path)
    return _rebuild(path, description, tensors, methods, encoder)


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the tensors of a file, once its header, checksum and format were checked."""
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
        raise ModelFileError(f"{path} has a corrupted description ({error}).") from None
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
                raise ValueError(f"unexpected tensor {name[:50]!r}")
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


def _rebuild(
    path: Path, description: dict[str, Any], tensors: dict[str, Tensor], methods: Mapping[str, Any], encoder: Any
) -> Any:
    """The inverse of `_describe`."""
    name = description.get("estimator")
    if not isinstance(name, str) or name not in methods:
        raise ModelFileError(
            f"{path} contains the estimator {name!r:.50}, which this version ({__version__}) does not support."
        )
    cls = methods[name]
    known = inspect.signature(cls).parameters
    try:
        parameters = {
            str(key): tuple(value) if isinstance(value, list) else value
            for key, value in description["parameters"].items()
        }
        unknown = sorted(set(parameters) - set(known))
        if unknown:
            raise ModelFileError(f"{path} sets parameters that {name} does not have: {', '.join(unknown):.200}.")
        if description["encoder"] and encoder is None:
            raise ModelFileError(
                f"{path} was fitted with a custom encoder; pass it to load: load(path, encoder=MyModule())."
            )
        if encoder is not None and "encoder" in known:
            parameters["encoder"] = encoder
        parts = []
        if "parts" in description:
            described = as_list(description["parts"], "parts")
            both = zip(described, _by_part(tensors, len(described)))
            parts = [_rebuild(path, part, own, methods, encoder) for part, own in both]
            parameters |= cls._settings_with(parts, as_flag(description.get("default", False), "default"))
        model = cls(**parameters)
        if parts:
            model._restore_parts(parts)
        model._check_settings()
        model._restore(description["fitted"], tensors)
    except (ModelFileError, MemoryError):
        raise
    except Exception as error:  # whatever it is, the file is at fault
        raise ModelFileError(f"{path} is not a valid {name}: {error!s:.500}") from error
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


# ---------------------------------------------------------------------- values, each checked


def parse_json(text: str | bytes) -> Any:
    """JSON by its letter: a ValueError for NaN, infinity, huge numbers, keys given twice, and nesting without end."""
    try:
        return json.loads(
            text,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def checksum(text: str, tensors: Mapping[str, Tensor]) -> bytes:
    """The SHA-256 digest of what a file says and of its tensors, by which damage is noticed."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        if value.numel():  # a Cox model without events has an empty baseline
            digest.update(value.contiguous().flatten().view(torch.uint8).numpy().data)  # no copy
    return digest.digest()


def as_number(value: Any, what: str, *, low: float = -math.inf, above: float = -math.inf) -> float:
    """A finite number, at least ``low`` and larger than ``above``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is not a number")
    number = float(value)
    if not math.isfinite(number) or number < low or not number > above:
        raise ValueError(f"{what} is {number}")
    return number


def as_whole(value: Any, what: str, *, low: int = 0) -> int:
    """A whole number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**63:
        raise ValueError(f"{what} is not an integer of at least {low}")
    return value


def as_flag(value: Any, what: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} is neither true nor false")
    return value


def as_text(value: Any, what: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is not text")
    return value


def as_list(value: Any, what: str) -> list[Any]:
    """A list; it may have come as a tuple."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{what} is not a list")
    return list(value)


def tensor_of(
    tensors: Mapping[str, Tensor],
    name: str,
    length: int | None = None,
    *,
    dtype: torch.dtype = torch.float64,
    low: float = -math.inf,
    high: float = math.inf,
    increasing: bool = False,
    never_falling: bool = False,
    may_be_nan: bool = False,
) -> Tensor:
    """A vector of a model file: of this dtype and length (None: any), in [low, high], increasing or never falling.

    It is finite, unless ``may_be_nan``: results that are shown and not used.
    """
    value = tensors[name]
    if value.dtype != dtype or value.ndim != 1 or length not in (None, len(value)):
        wanted = f"{dtype} of shape ({'any' if length is None else length},)"
        raise ValueError(f"{name} is {value.dtype} of shape {tuple(value.shape)} and not {wanted}")
    check_values(value, name, low=low, high=high, may_be_nan=may_be_nan)
    steps = torch.diff(value)
    if (increasing and not bool((steps > 0).all())) or (never_falling and not bool((steps >= 0).all())):
        raise ValueError(f"{name} is not in order")
    return value


def check_values(
    value: Tensor, name: str, *, low: float = -math.inf, high: float = math.inf, may_be_nan: bool = False
) -> None:
    """Raise a ValueError if an entry is not finite or outside [low, high]."""
    if value.is_floating_point() and not may_be_nan and not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} has entries that are not finite")
    if value.numel() and (bool((value < low).any()) or bool((value > high).any())):
        raise ValueError(f"{name} has entries outside [{low:g}, {high:g}]")


def _parse_int(text: str) -> int:
    if len(text) > 21 or abs(number := int(text)) >= _LARGEST:
        raise ValueError(f"it has a number of {len(text)} digits")
    return number


def _parse_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:20])


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"it has the number {text}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("it has a key twice")
    return made
