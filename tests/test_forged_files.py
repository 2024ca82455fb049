"""Files made to do harm: each is refused as a file, before anything is built from it."""

from __future__ import annotations

import json
import multiprocessing
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import sumosurv
from forging import SETTINGS, at, edit, forged, put, read, saved, table, write
from sumosurv import ModelFileError, load

TREES = ("left", "right", "feature", "threshold", "leaf_start", "fall_time", "fall", "roots")
COLUMNS = ("fitted", "learned", "preprocessor", "columns")


def refused(name, tmp_path, change):
    with pytest.raises(ModelFileError) as caught:
        load(forged(saved(name), tmp_path / "forged", change))
    assert len(str(caught.value)) < 2000
    assert not isinstance(caught.value.__cause__, MemoryError)
    return str(caught.value)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_forger_does_not_spoil_what_he_leaves_alone(name, tmp_path):
    X, _ = table()
    again = load(forged(saved(name), tmp_path / "same", lambda *_: None))
    np.testing.assert_array_equal(again.predict(X), load(saved(name)).predict(X))


@pytest.mark.parametrize("name", SETTINGS)
def test_every_tensor_is_checked_in_every_estimator(name, tmp_path):
    """Each in turn: of another dtype, with an axis more, too long, missing, not finite."""
    _, tensors = read(saved(name))
    for key, value in tensors.items():
        wrong = [lambda v: v.to(torch.float16), lambda v: v[None]]
        if value.numel():
            wrong += [lambda v: torch.cat([v] * 5)]
        may_be_nan = {"errors", "covariance"} & set(key.split("_"))
        if value.numel() and value.is_floating_point() and not may_be_nan:
            wrong += [at(0, float("nan")), at(-1, float("inf"))]
        for make in wrong:
            refused(name, tmp_path, edit(key, make))
        refused(name, tmp_path, lambda _, tensors, key=key: tensors.pop(key))


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("left", lambda v: v + 1_000_000),
        ("left", at(0, 0)),  # its own child: predict would never end
        ("right", at(0, 10**12)),
        ("right", at(0, -7)),
        ("left", lambda v: torch.where(v >= 0, v - 1, v)),
        ("left", lambda v: -v),
        ("feature", lambda v: v + 4),
        ("feature", lambda v: v - 1),
        ("leaf_start", lambda v: v + 1),
        ("leaf_start", lambda v: v.flip(0)),
        ("leaf_start", at(-1, 10**9)),
        ("fall_time", lambda v: v + 10**6),
        ("fall_time", lambda v: v.flip(0)),
        ("fall_time", lambda v: torch.full_like(v, int(v[0]))),
        ("fall", lambda v: v + 1),
        ("fall", lambda v: -v),
        ("roots", lambda v: v + 10**6),
        ("roots", lambda v: v * 0),
        ("roots", lambda v: v + 1),
        ("roots", lambda v: v[:0]),
    ],
)
def test_trees_that_are_none(key, make, tmp_path):
    refused("RandomSurvivalForest", tmp_path, edit(f"trees.{key}", make))


def test_a_model_of_no_cause(tmp_path):
    def change(description, tensors):
        description["fitted"]["n_causes_"] = 0
        tensors["training_incidence"] = torch.zeros(0, dtype=torch.float64)

    assert "n_causes_" in refused("KaplanMeier", tmp_path, change)


def test_a_root_past_the_last_node(tmp_path):
    n = len(read(saved("RandomSurvivalForest"))[1]["trees.left"])
    for root in (n, n + 1):
        refused("RandomSurvivalForest", tmp_path, edit("trees.roots", at(-1, root)))


def test_a_child_that_is_the_root_of_the_next_tree(tmp_path):
    tensors = read(saved("RandomSurvivalForest"))[1]
    root = int(tensors["trees.roots"][1])
    inner = int((tensors["trees.left"][:root] >= 0).nonzero()[0])
    for side in ("left", "right"):
        refused("RandomSurvivalForest", tmp_path, edit(f"trees.{side}", at(inner, root)))


def test_trees_without_event_times(tmp_path):
    refused("RandomSurvivalForest", tmp_path, edit("event_times_", lambda v: v[:0]))

    def empty(_, tensors):
        for key in ("event_times_", *(f"trees.{name}" for name in TREES)):
            tensors[key] = tensors[key][:0]

    X, _ = table()
    path = forged(saved("RandomSurvivalForest"), tmp_path / "none", empty)
    assert (load(path).predict_survival_function(X, [3.0]) == 1).all()  # no event was seen, as a true file may say


@pytest.mark.parametrize(
    ("name", "key", "make"),
    [
        ("KaplanMeier", "times", lambda v: v.flip(0)),
        ("KaplanMeier", "survival", lambda v: v.flip(0)),
        ("KaplanMeier", "survival", lambda v: v + 1),
        ("KaplanMeier", "risk_times_", lambda v: v - 1000),
        ("KaplanMeier", "risk_times_", lambda v: v[:0]),
        ("CoxPH", "baseline_times_", lambda v: v.flip(0)),
        ("CoxPH", "baseline_times_", lambda v: v - 1000),
        ("CoxPH", "baseline_", lambda v: v.flip(0)),
        ("CoxPH", "baseline_", lambda v: -v.flip(0)),
        ("CoxPH", "coef_", lambda v: v[:-1]),
        ("CoxPH", "standard_errors_", lambda v: -v - 1),
        ("DeepSurv", "network.baseline", lambda v: v.flip(1)),
        ("DeepSurv", "network.baseline", lambda v: -v),
        ("DeepSurv", "network.baseline", lambda v: v[:, :-1]),
        ("DeepSurv", "network.baseline_times", lambda v: v.flip(1)),
        ("DeepSurv", "network.baseline_times", lambda v: torch.cat([v[:, :2].flip(1), v[:, 2:]], dim=1)),
        ("CoxCC", "network.baseline_times", lambda v: v - 5),
        ("CoxTime", "network.increments", lambda v: -v),
        ("CoxTime", "network.increments", lambda v: v[:, 1:]),
        ("CoxTime", "network.features.table", lambda v: v.flip(2)),
        ("SumoNet", "network.mixed.features.table", lambda v: v * 0),
        ("SumoNet", "network.mixed.features.table", lambda v: -v),
        ("SumoNet", "network.mixed.active", lambda v: torch.zeros(2, 9, dtype=torch.bool)),
        ("SumoNet", "network.encoder.active", lambda v: torch.zeros(1, 2, dtype=torch.bool)),
        ("DeepHit", "network.cuts", lambda v: v.flip(1)),
        ("DeepHit", "network.cuts", lambda v: -v.flip(1)),
        ("WeibullNet", "network.offset", lambda v: -v - 1),
        ("WeibullNet", "network.offset", lambda v: v.repeat(2, 1)),
        ("SurvivalMixture", "part0.times", lambda v: v.flip(0)),
    ],
)
def test_tables_out_of_order_or_range(name, key, make, tmp_path):
    refused(name, tmp_path, edit(key, make))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("SumoNet", put(*COLUMNS, 0, "width", value=0.0)),
        ("SumoNet", put(*COLUMNS, 0, "width", value=-1.0)),
        ("SumoNet", put(*COLUMNS, 0, "width", value="1")),
        ("SumoNet", put(*COLUMNS, 0, "centre", value=None)),
        ("SumoNet", put(*COLUMNS, 0, "knots", value=[2.0, 1.0])),
        ("SumoNet", put(*COLUMNS, 0, "knots", value={"0": 1.0})),
        ("SumoNet", put(*COLUMNS, 0, "seen", "low", value=9e9)),
        ("SumoNet", put(*COLUMNS, 0, "seen", "whole", value=1)),
        ("SumoNet", put(*COLUMNS, 0, "seen", value=[1.0, 2.0, 3.0])),
        ("SumoNet", put(*COLUMNS, 2, "common", value=3)),
        ("SumoNet", put(*COLUMNS, 2, "common", value=-1)),
        ("SumoNet", put(*COLUMNS, 0, "name", value=3)),
        ("SumoNet", put(*COLUMNS, 0, "kind", value="other")),
        ("SumoNet", put(*COLUMNS, 0, "indicator", value=9)),
        ("SumoNet", put(*COLUMNS, 2, "levels", value=["u", "u", "w"])),
        ("SumoNet", put(*COLUMNS, 2, "levels", value=[["u"], ["e"], ["w"]])),
        ("SumoNet", put("fitted", "learned", "preprocessor", "scaling", value="other")),
        ("SumoNet", put("fitted", "learned", "time_origin", value=-1.0)),
        ("SumoNet", put("fitted", "components", 0, "start", value=[])),
        ("SumoNet", put("fitted", "n_features_in_", value=2)),
        ("SumoNet", put("fitted", "feature_names_in_", value=["a"])),
        ("SumoNet", put("fitted", "feature_names_in_", value=[1, 2, 3])),
        ("KaplanMeier", put("fitted", "n_features_in_", value=True)),
        ("CoxPH", put("fitted", "preprocessor_", "columns", value=[])),
        ("CoxPH", put("fitted", "preprocessor_", "one_hot", value=True)),
        ("RandomSurvivalForest", put("fitted", "preprocessor_", "one_hot", value=True)),
        ("CoxPH", put("fitted", "n_iter_", value="x")),
        ("CoxPH", lambda description, _: description["fitted"].update(formula={})),
        ("RandomSurvivalForest", put("fitted", "preprocessor_", "columns", value=[])),
        ("SurvivalMixture", put("parameters", "weights", value=[1.0, -1.0])),
        ("SurvivalMixture", put("parameters", "weights", value=[1.0])),
        ("SurvivalMixture", put("parts", value=[])),
        ("SurvivalMixture", put("parts", value={})),
        ("SurvivalMixture", put("parts", 0, "fitted", "n_features_in_", value=7)),
    ],
)
def test_values_that_cannot_be(name, change, tmp_path):
    refused(name, tmp_path, change)


def test_a_half_width_past_all_times_is_the_whole_table(tmp_path):
    X, y = table()
    wide = load(forged(saved("KaplanMeier"), tmp_path / "wide", put("parameters", "half_width", value=2**62)))
    assert np.isfinite(wide.score(X, y))


def test_every_method_is_forged():
    assert sorted(SETTINGS) == sorted(sumosurv.estimators.METHODS)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("SumoNet", "network.mixed.out_bias"),
        ("GompertzNet", "network.head.bias"),
        ("LogLogisticNet", "network.head.bias"),
        ("WeibullNet", "network.head.bias"),
        ("CauseSpecific", "part1.network.head.bias"),
        ("Conformal", "part0.network.head.bias"),
        ("SurvivalMixture", "part1.network.head.bias"),
    ],
)
def test_weights_so_large_that_there_is_no_curve(name, key, tmp_path):
    for value in (1e6, 1e30):
        refused(name, tmp_path, edit(key, lambda v, value=value: torch.full_like(v, value)))


@pytest.mark.parametrize(("name", "part"), [("GompertzNet", ""), ("CauseSpecific", "part0.")])
def test_weights_that_fail_for_some_rows_alone_are_told_of(name, part, tmp_path):
    """A weight of the first number, which is zero in the row that is tried when a file is read."""
    X, _ = table()
    model = load(forged(saved(name), tmp_path / "forged", edit(f"{part}network.encoder.layers.0.weight", at(0, 1e30))))
    with pytest.raises(ValueError, match=r"invalid distribution .* finite"):
        model.predict(X)


# ---------------------------------------------------------------------- descriptions and headers


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"format": ' + '{"a": ' * 50_000 + "1" + "}" * 50_001,
        '{"format": 1' + "0" * 5000 + "}",
        '{"format": 4, "format": 4}',
        '{"format": Infinity}',
        '{"format": 4, "estimator": NaN}',
        '{"format": 4, "estimator": 1e999}',
        '{"format": 4, "estimator": "' + "x" * 100_000 + '"}',
        '{"format": 4, "version": "' + "x" * 100_000 + '", "format ": 4}',
        '{"format": 99, "version": "' + "x" * 100_000 + '"}',
        '{"format": true}',
        "null",
        "",
        "\x00",
    ],
    ids=range(14),
)
def test_descriptions_that_are_none(text, tmp_path):
    with pytest.raises(ModelFileError) as caught:
        load(write(tmp_path / "forged", text, read(saved("KaplanMeier"))[1]))
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "value", ["Infinity", "NaN", "1e999", str(2**64), "1" * 5000, '{"a": 1, "a": 2}', "[" * 3000 + "]" * 3000]
)
def test_values_that_are_no_json(value, tmp_path):
    description, tensors = read(saved("SumoNet"))
    description["fitted"]["learned"]["time_unit"] = "HERE"
    with pytest.raises(ModelFileError):
        load(write(tmp_path / "forged", json.dumps(description).replace('"HERE"', value), tensors))


def test_zero_dimensional_tensors_and_overlong_names(tmp_path):
    for name in ("risk_times_", "times", "survival"):
        refused("KaplanMeier", tmp_path, edit(name, lambda _: torch.tensor(1.0, dtype=torch.float64)))
    refused("KaplanMeier", tmp_path, lambda _, tensors: tensors.update({"x" * 100_000: torch.zeros(1)}))


@pytest.mark.parametrize(
    "digest", [torch.zeros(()), torch.zeros(32), torch.full((32,), -1), torch.zeros(10**6, dtype=torch.uint8)]
)
def test_checksums_that_are_none(digest, tmp_path):
    from safetensors.torch import save_file

    description, tensors = read(saved("KaplanMeier"))
    save_file(tensors | {"sha256": digest}, tmp_path / "forged", metadata={"sumosurv": json.dumps(description)})
    with pytest.raises(ModelFileError):
        load(tmp_path / "forged")


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"a": 3}',
        b'{"a": {"dtype": "F32", "shape": [9223372036854775807, 9], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {"dtype": "F32", "shape": [1]}}',
        b'{"__metadata__": {"sumosurv": 3}}',
        b"\xff\xfe",
    ],
)
def test_headers_that_are_none(header, tmp_path):
    path = tmp_path / "forged"
    for length in (len(header), 2**63, 2**64 - 1, 0):
        path.write_bytes(struct.pack("<Q", length) + header + bytes(4))
        with pytest.raises(ModelFileError):
            load(path)


# ---------------------------------------------------------------------- bombs: the worker has 600 MB to spare

HUGE = [60_000, 60_000]
BOMBS = {
    "members": ("SumoNet", put("fitted", "components", 0, "n_members", value=10**9)),
    "covariate layers": ("SumoNet", put("parameters", "covariate_layers", value=HUGE)),
    "many layers": ("SumoNet", put("parameters", "covariate_layers", value=[1] * 200_000)),
    "mixed layers": ("SumoNet", put("parameters", "time_layers", value=HUGE)),
    "frequencies": ("SumoNet", put("parameters", "frequencies", value=10**9)),
    "time layers": ("CoxTime", put("parameters", "time_layers", value=HUGE)),
    "hazard layers": ("Soden", put("parameters", "hazard_layers", value=HUGE)),
    "latent": ("SurvNode", put("parameters", "latent_size", value=10**9)),
    "past all": ("DeepSurv", put("parameters", "covariate_layers", value=[2**62])),
    "a part": ("SurvivalMixture", put("parts", 1, "parameters", "covariate_layers", value=HUGE)),
    "weights without entries": ("DeepSurv", edit("network.baseline", lambda v: torch.zeros(10**12, 0).double())),
    "columns": ("DeepSurv", put("fitted", "learned", "preprocessor", "one_hot", value=True)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name, tmp_path, bench):
    kind, change = BOMBS[name]
    path = forged(saved(kind), tmp_path / "bomb", change)
    end = bench.open("open_model", path)
    assert (end["end"], end.get("memory")) == ("ModelFileError", False), end


def test_a_bomb_of_images(tmp_path, bench):
    images = np.random.default_rng(0).normal(size=(60, 1, 4, 4)).astype(np.float32)
    encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 4))
    sumosurv.SumoNet(encoder=encoder, n_members=2, max_epochs=1, device="cpu").fit(images, table()[1]).save(
        tmp_path / "images"
    )
    true = bench.open("open_images", tmp_path / "images")
    assert true["where"] == "predict"  # it is loaded; the worker's table is none of images
    rows = ("fitted", "learned", "preprocessor", "row_shape")
    end = bench.open(
        "open_images", forged(tmp_path / "images", tmp_path / "bomb", put(*rows, value=[1, 30_000, 30_000]))
    )
    assert (end["end"], end.get("memory")) == ("ModelFileError", False), end


def test_hashing_and_reading_take_a_small_multiple_of_a_file(tmp_path, bench):
    def grow(description, tensors):  # 100 MB, of which nothing is used
        tensors["spare"] = torch.zeros(100 << 17, dtype=torch.float64)

    assert bench.open("open_model", forged(saved("KaplanMeier"), tmp_path / "large", grow))["end"] == "done"


# ---------------------------------------------------------------------- saving


def test_a_file_of_the_users_own_survives(tmp_path):
    mine = tmp_path / "model.sumo.partial"
    mine.write_text("mine")
    load(saved("KaplanMeier")).save(tmp_path / "model.sumo")
    assert mine.read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.sumo", "model.sumo.partial"]


def _save_often(source: Path, target: Path) -> None:
    model = load(source)
    for _ in range(20):
        model.save(target)


def test_two_savers_of_one_path(tmp_path):
    target = tmp_path / "model.sumo"
    context = multiprocessing.get_context("fork")
    savers = [context.Process(target=_save_often, args=(saved(n), target)) for n in ("KaplanMeier", "CoxPH")]
    [saver.start() for saver in savers]
    [saver.join(60) for saver in savers]
    assert [saver.exitcode for saver in savers] == [0, 0]
    assert type(load(target)).__name__ in ("KaplanMeier", "CoxPH")
    assert [p.name for p in tmp_path.iterdir()] == ["model.sumo"]


def _save_on_a_full_disk(source: Path, target: Path, tell) -> None:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    model = load(source)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # the error of a full disk's kind that anyone can have
    try:
        model.save(target)
    except OSError as error:
        tell.send((type(error).__name__, error.errno, str(error)))


def test_a_disk_without_room(tmp_path):
    target = tmp_path / "model.sumo"
    load(saved("KaplanMeier")).save(target)
    before = target.read_bytes()
    context = multiprocessing.get_context("fork")
    hear, tell = context.Pipe()
    saver = context.Process(target=_save_on_a_full_disk, args=(saved("SumoNet"), target, tell))
    saver.start()
    saver.join(60)
    kind, number, text = hear.recv()
    assert kind == "OSError"
    assert number is not None
    assert "model.sumo" in text
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.sumo"]


def test_a_target_that_is_read_only_or_a_folder(tmp_path):
    model, target = load(saved("KaplanMeier")), tmp_path / "model.sumo"
    model.save(target)
    target.chmod(0o444)
    before = target.read_bytes()
    with pytest.raises(PermissionError, match="read-only"):
        load(saved("CoxPH")).save(target)
    with pytest.raises(IsADirectoryError, match="folder"):
        model.save(tmp_path)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.sumo"]
