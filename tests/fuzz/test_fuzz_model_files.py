"""Model files, bent at random: they predict, or are refused as files. Nothing crashes, hangs or fills the memory."""

from __future__ import annotations

import json
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from forging import SETTINGS, read, saved, write
from fuzz.bench import FUZZ

# Sooner or later a value of each kind meets each place.
VALUES = [
    None, True, False, -1, 0, 1, 2, 3, 17, 60_000, 10**9, 2**31, 2**62, 2**63, 2**64, 10**30,
    -1.0, 0.0, 1e-320, 0.5, 1e300, float("inf"), float("nan"), "", "x", "é" * 5000, "auto",
    [], [0], [60_000, 60_000], [[1.0, 2.0]], [None], {}, {"a": 1},
]  # fmt: skip
NUMBERS = [float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1.0, 5.0, 1e-40, 1e30, 2.0**40, 2.0**62]
DTYPES = [torch.float16, torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all values inside a description."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inside for found in places(part, (*path, key)))] if path else [
        found for key, part in inside for found in places(part, (key,))
    ]  # fmt: skip


def bend_value(draw: Any, description: dict[str, Any]) -> None:
    *way, last = draw(st.sampled_from(places(description)))
    place: Any = description
    for key in way:
        place = place[key]
    if draw(st.integers(0, 5)) == 0:
        del place[last]
    else:
        place[last] = draw(st.sampled_from(VALUES))


def bend_tensor(draw: Any, tensors: dict[str, torch.Tensor]) -> None:
    name = draw(st.sampled_from(sorted(tensors)))
    value = tensors[name].clone()
    how = draw(st.sampled_from(["entry", "entry", "entry", "shift", "flip", "cast", "shape", "drop", "rename"]))
    if how == "entry" and value.numel():
        number = draw(st.sampled_from(NUMBERS))
        whole = 0 if number != number or abs(number) > 2**62 else int(number)
        value.view(-1)[draw(st.integers(0, value.numel() - 1))] = number if value.is_floating_point() else whole
    elif how == "shift" and value.dtype != torch.bool:
        value = value + draw(st.sampled_from([-1, 1, 1000]))
    elif how == "flip" and value.ndim:
        value = value.flip(draw(st.integers(0, value.ndim - 1)))
    elif how == "cast":
        value = value.to(draw(st.sampled_from(DTYPES)))
    elif how == "shape" and value.ndim:
        other = [value.flatten(), value[None], value[:0], value[:1], torch.cat([value, value]), value.sum()]
        value = draw(st.sampled_from(other))
    if how in ("drop", "rename"):
        del tensors[name]
    if how != "drop":
        tensors[name + "x" * (how == "rename")] = value


@FUZZ
@given(st.data())
def test_bent_descriptions_and_tensors(bench, tmp_path_factory, data):
    description, tensors = read(saved(data.draw(st.sampled_from(list(SETTINGS)))))
    for _ in range(data.draw(st.integers(1, 2))):
        if data.draw(st.booleans()):
            bend_value(data.draw, description)
        else:
            bend_tensor(data.draw, tensors)
    path = write(tmp_path_factory.getbasetemp() / "bent", json.dumps(description), tensors)
    end = bench.open("open_model", path)
    assert not end.get("memory"), end
    if end["end"] != "done":
        # a file that holds together may still describe no distribution, of which predict says so
        assert end["end"] in (("ModelFileError",) if end.get("where") == "load" else ("ValueError", "TrainingError")), (
            end
        )


@FUZZ
@given(st.data())
def test_bent_bytes(bench, tmp_path_factory, data):
    content = bytearray(saved(data.draw(st.sampled_from(["KaplanMeier", "SumoNet", "SurvivalMixture"]))).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(st.binary(max_size=12))
        content[place : place + data.draw(st.sampled_from([0, len(piece), 100, len(content)]))] = piece
        content = content or bytearray(b"\0")
    path = tmp_path_factory.getbasetemp() / "bent"
    path.write_bytes(bytes(content))
    end = bench.open("open_model", path)
    assert end["end"] in ("ModelFileError", "done"), end
    assert not end.get("memory"), end
