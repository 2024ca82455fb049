"""Model files: what is saved comes back, what was damaged is refused, and nothing in a file is ever run."""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import sumosurv
from sumosurv import ModelFileError, SumoNet, Surv, SurvivalMixture, kaplan_meier, load
from sumosurv.fitting.plan import FitPlan

SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (6,), "time_layers": (4,), "random_state": 0}
SMALL |= {"components": "networks"}
GRID = [0.0, 0.3, 1.0, 40.0]


def data(n=80):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.exponential(size=n)),
            "text": rng.choice(["u", "é", "w"], n),
            "level": pd.Categorical(rng.integers(0, 3, n)),
            "flag": rng.random(n) > 0.5,
            "holes": pd.array(np.where(rng.random(n) < 0.3, None, "z"), "string"),
        }
    )
    return X, Surv.from_arrays(rng.random(n) < 0.7, rng.exponential(size=n) + 0.01)


X, Y = data()


def encoder():
    return nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5), nn.ReLU())


@pytest.fixture(scope="module")
def model():
    return SumoNet(**SMALL).fit(X, Y)


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "model.sumo")
    return tmp_path / "model.sumo"


def same(one, two, frame):
    for method in ("predict_survival_function", "predict_density"):
        np.testing.assert_array_equal(getattr(one, method)(frame, GRID), getattr(two, method)(frame, GRID))
    for method in ("predict", "predict_median", "predict_mean"):
        np.testing.assert_array_equal(getattr(one, method)(frame), getattr(two, method)(frame))


# ---------------------------------------------------------------------- there and back


@pytest.mark.filterwarnings("ignore:.*not seen in training")
def test_the_model_comes_back(model, path):
    again = load(path)
    assert type(again) is SumoNet
    assert again.get_params() == model.get_params()
    new = X.head(9).assign(text=["never seen", None, *"uuuuuuu"], gaps=np.nan)
    same(again, model, X)
    same(again, model, new)
    assert again.score(X, Y) == model.score(X, Y)
    assert again.feature_names_in_.tolist() == list(X.columns)
    assert again.n_features_in_ == 6
    with pytest.raises(ValueError, match="same order"):
        again.predict(X[X.columns[::-1]])
    assert load(str(path)).score(X, Y) == model.score(X, Y)


def test_saved_again_it_is_the_same_file(path, tmp_path):
    load(path).save(tmp_path / "again.sumo")
    assert (tmp_path / "again.sumo").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        {"resolution": None},
        {"n_members": 1},
        {"components": ["network", "lognormal"], "numeric_scaling": "standard"},
        {"covariate_layers": [4, 4], "time_layers": [3]},
        {"covariate_layers": (), "frequencies": 0},
        {"random_state": np.random.RandomState(3)},
        {"random_state": np.int64(3), "dropout": np.float32(0.25)},
        {"refit": True, "patience": None},
    ],
)
def test_every_setting_comes_back(options, tmp_path):
    model = SumoNet(**(SMALL | options)).fit(X, Y)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    same(again, model, X)
    for name, value in again.get_params().items():
        if name != "random_state" or not isinstance(model.random_state, np.random.RandomState):
            assert (list(value) if isinstance(value, tuple) else value) == (
                list(model.get_params()[name]) if isinstance(value, tuple) else model.get_params()[name]
            )


@pytest.mark.parametrize("array", [True, False])
def test_arrays_without_names(array, tmp_path):
    numbers = X[["number", "gaps"]].to_numpy() if array else X[["number", "gaps"]].set_axis([0, 1], axis=1)
    model = SumoNet(**SMALL).fit(numbers, Y)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert not hasattr(again, "feature_names_in_")
    same(again, model, numbers)


def test_an_encoder_of_your_own(tmp_path):
    numbers = X[["number", "flag"]].astype(float)
    model = SumoNet(**SMALL, encoder=encoder).fit(numbers, Y)
    model.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"load\(path, encoder="):
        load(tmp_path / "m")
    for given in (encoder, encoder()):
        same(load(tmp_path / "m", encoder=given), model, numbers)
    with pytest.raises(ModelFileError, match="is not a valid"):
        load(tmp_path / "m", encoder=nn.Linear(2, 5))


def test_images(tmp_path):
    images = np.random.default_rng(0).normal(size=(80, 1, 4, 4)).astype(np.float32)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    model = SumoNet(**SMALL, encoder=net).fit(images, Y)
    model.save(tmp_path / "m")
    same(load(tmp_path / "m", encoder=net), model, images)


def test_a_model_that_lost_a_member(tmp_path, monkeypatch):
    make = FitPlan.build

    def spoiled(self, *arguments):
        network = make(self, *arguments)
        with torch.no_grad():
            for p in network.parameters():
                p[0] = torch.nan
        return network

    monkeypatch.setattr(FitPlan, "build", spoiled)
    with pytest.warns(RuntimeWarning, match="Members 0"):
        model = SumoNet(**SMALL).fit(X, Y)
    monkeypatch.undo()
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.n_members_ == 1
    same(again, model, X)


def test_saving_replaces_whole_files_and_leaves_nothing_beside_them(model, path):
    model.save(path)
    assert [p.name for p in path.parent.iterdir()] == ["model.sumo"]
    with pytest.raises(FileNotFoundError):
        model.save(path.parent / "no such folder" / "m")


# ---------------------------------------------------------------------- what must not be inside


def test_no_training_data_inside(tmp_path):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"x": rng.normal(size=2000)})
    time = rng.exponential(size=2000)
    frame.loc[17, "x"], time[17] = 0.123456789012345, 0.987654321098765
    model = SumoNet(**SMALL).fit(frame, Surv.from_arrays(np.ones(2000), time))
    model.save(tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    for value in (frame.loc[17, "x"], time[17]):
        assert repr(float(value)).encode() not in content
        assert struct.pack("<d", value) not in content
        assert struct.pack("<f", value) not in content
    assert len(content) < 40_000  # 2,000 rows of two numbers alone would be 32,000 bytes beside the rest
    smaller = SumoNet(**SMALL).fit(frame.head(600), Surv.from_arrays(np.ones(600), time[:600]))
    smaller.save(tmp_path / "s")
    assert abs(len((tmp_path / "s").read_bytes()) - len(content)) < 600


@pytest.mark.parametrize("n", [12, 80, 700])
def test_the_training_curve_comes_back_and_holds_no_row(n, tmp_path):
    rng = np.random.default_rng(1)
    y = Surv.from_arrays(rng.random(n) < 0.7, rng.exponential(size=n))
    frame = pd.DataFrame({"x": rng.normal(size=n)})
    validation = (frame, Surv.from_arrays(np.ones(n), rng.exponential(9.0, n)))
    model = SumoNet(**SMALL).fit(frame, y, validation_data=validation)
    assert model.training_curve_.survival(1.0) == pytest.approx(kaplan_meier(y).survival(1.0), abs=0.3 * n**-0.4)
    for fitted in (model, SurvivalMixture.of([model, model])):
        fitted.save(tmp_path / "m")
        np.testing.assert_array_equal(load(tmp_path / "m").training_curve_.times, model.training_curve_.times)
        np.testing.assert_array_equal(load(tmp_path / "m").training_curve_.table, model.training_curve_.table)
    content = (tmp_path / "m").read_bytes()
    assert not [time for time in y["time"] if struct.pack("<d", time) in content]


def test_the_package_neither_pickles_nor_loads_torch_files():
    for source in Path(sumosurv.__file__).parent.rglob("*.py"):
        text = source.read_text(encoding="utf-8")
        pickling = ("import pickle", "pickle.", "joblib.", "joblib import load", "joblib import dump")
        for word in (*pickling, "torch.load(", "torch.save(", "eval(compile", "exec("):
            found = [line for line in text.splitlines() if word in line and not line.strip().startswith("#")]
            assert not found, f"{source.name}: {found}"


def test_the_description_is_plain_json(path):
    with safe_open(str(path), framework="pt") as file:
        description = json.loads(file.metadata()["sumosurv"])
    assert description["estimator"] == "SumoNet"
    assert description["format"] == 4
    assert description["version"] == sumosurv.__version__


# ---------------------------------------------------------------------- damage


def test_truncated_at_any_length(path, tmp_path):
    content = path.read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    lengths = {*range(12), header - 1, header, header + 1, len(content) - 1, len(content) // 2}
    for length in sorted(lengths | set(range(0, len(content), max(1, len(content) // 60)))):
        (tmp_path / "cut").write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            load(tmp_path / "cut")
    (tmp_path / "long").write_bytes(content + b"\0")
    with pytest.raises(ModelFileError):
        load(tmp_path / "long")


@pytest.mark.parametrize("mask", [0x01, 0x20, 0xFF])
def test_one_changed_byte_anywhere(path, tmp_path, mask):
    content = path.read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    rng = np.random.default_rng(mask)
    places = {*range(8), *rng.integers(8, header, 150), *rng.integers(header, len(content), 60), len(content) - 1}
    for place in sorted(int(p) for p in places):
        damaged = bytearray(content)
        damaged[place] ^= mask
        (tmp_path / "bad").write_bytes(bytes(damaged))
        with pytest.raises(ModelFileError):
            load(tmp_path / "bad")


class Trap:
    """Unpickling this would leave a file behind."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (Path.touch, (Path(self.target),))


@pytest.mark.parametrize("writer", ["pickle", "torch", "json", "empty", "text", "foreign", "directory"])
def test_files_from_elsewhere(writer, tmp_path):
    path, trap = tmp_path / "file", tmp_path / "executed"
    if writer == "pickle":
        path.write_bytes(pickle.dumps(Trap(trap)))
    elif writer == "torch":
        torch.save({"a": Trap(trap)}, path)
    elif writer == "json":
        path.write_text(json.dumps({"sumosurv": {"format": 1}}))
    elif writer == "empty":
        path.write_bytes(b"")
    elif writer == "text":
        path.write_text("time,event\n1,0\n" * 50)
    elif writer == "foreign":
        save_file({"weight": torch.zeros(3)}, path, metadata={"format": "pt"})
    else:
        path.mkdir()
    with pytest.raises((ModelFileError, FileNotFoundError)) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert not trap.exists()


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no model file"):
        load(tmp_path / "nothing")


def rewritten(path, target, change):
    """The same file with an edited description and a right checksum: as a careful forger would do it."""
    with safe_open(str(path), framework="pt") as file:
        description = json.loads(file.metadata()["sumosurv"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    del tensors["sha256"]
    change(description, tensors)
    text = json.dumps(description)
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        digest.update(value.contiguous().view(torch.uint8).numpy().tobytes())
    tensors["sha256"] = torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
    save_file(tensors, target, metadata={"sumosurv": text})
    return target


def test_a_rewritten_file_is_read_where_it_fits(path, tmp_path, model):
    same(load(rewritten(path, tmp_path / "r", lambda *_: None)), model, X)


def put(*keys, value):
    def change(description, tensors):
        place = description
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def drop(*keys):
    def change(description, tensors):
        place = description
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("format", value=5), r"format 5 .*reads 4\. Upgrade"),
        (put("format", value=1), r"format 1 .*format 4\. Fit the model"),
        (put("format", value="one"), "no description"),
        (put("format", value=0), "no description"),
        (drop("format"), "no description"),
        (put("estimator", value="os.system"), "estimator 'os.system'"),
        (put("estimator", value=None), "estimator None"),
        (put("estimator", value=["SumoNet"]), "estimator"),
        (put("parameters", "color", value=1), "SumoNet does not have: color"),
        (put("parameters", "components", value="other"), "is not a valid"),
        (put("parameters", "covariate_layers", value=[9, 9]), "is not a valid"),
        (put("parameters", "covariate_layers", value="wide"), "is not a valid"),
        (put("parameters", "numeric_scaling", value="system"), "is not a valid"),
        (put("parameters", value=[1, 2]), "is not a valid"),
        (drop("parameters"), "is not a valid"),
        (drop("encoder"), "is not a valid"),
        (drop("fitted"), "is not a valid"),
        (put("fitted", value=3), "is not a valid"),
        (drop("fitted", "learned", "time_unit"), "is not a valid"),
        (put("fitted", "learned", "time_unit", value=-1.0), "is not a valid"),
        (put("fitted", "components", 0, "start", "time_features", "kind", value="cubic"), "is not a valid"),
        (put("fitted", "components", 0, "n_members", value=7), "is not a valid"),
        (put("fitted", "learned", "preprocessor", "columns", value=[]), "is not a valid"),
        (put("fitted", "learned", "preprocessor", "columns", value="abc"), "is not a valid"),
        (lambda _, tensors: tensors.pop("risk_times_"), "is not a valid"),
        (lambda _, tensors: tensors.pop("training_times"), "is not a valid"),
        (lambda _, tensors: tensors.pop("training_survival"), "is not a valid"),
        (lambda _, tensors: tensors.update({"training_times": torch.zeros(0).double()}), "is not a valid"),
        (lambda _, tensors: tensors["training_times"].neg_(), "is not a valid"),
        (lambda _, tensors: tensors["training_survival"].fill_(2.0), "is not a valid"),
        (lambda _, tensors: tensors.pop("network.mixed.out_bias"), "is not a valid"),
        (lambda _, tensors: tensors.update({"network.extra": torch.zeros(1)}), "is not a valid"),
        (lambda _, tensors: tensors.update({"network.mixed.out_bias": torch.zeros(5)}), "is not a valid"),
    ],
)
def test_files_that_do_not_fit_together(path, tmp_path, change, message):
    with pytest.raises(ModelFileError, match=message):
        load(rewritten(path, tmp_path / "r", change))


def test_what_cannot_be_saved_says_so(tmp_path):
    frame = pd.DataFrame({"x": pd.Categorical(pd.to_datetime(["2020-01-01", "2021-01-01"] * 10))})
    with pytest.raises(ValueError, match=r"'x' .* Timestamp.*astype\(str\)"):
        SumoNet(**SMALL).fit(frame, Y[:20])
    model = SumoNet(**SMALL).fit(frame.astype(str).astype("category"), Y[:20]).set_params(device=3j)
    with pytest.raises(TypeError, match="cannot be saved"):
        model.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
