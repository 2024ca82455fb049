"""Values that are refused beside the nearest ones that are accepted, where messages of other tests do not tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import SafetensorError
from scipy import stats

from sumosurv import CoxPH, SumoNet, Surv, WeibullNet
from sumosurv.calibrate import smooth_calibration
from sumosurv.cli import main
from sumosurv.datasets import _catalogue, _sources, fold_by_customer
from sumosurv.distributions import Weibull, cause_specific
from sumosurv.estimators.predictions import check_result
from sumosurv.files import system_errors
from sumosurv.model_files import as_flag, as_list, as_number, as_text, as_whole, parse_json
from sumosurv.networks.risk import check_increasing
from sumosurv.outcome import Outcome
from sumosurv.outcome.record import each_field
from sumosurv.search.space import default_space
from sumosurv.serve.run import serve
from sumosurv.sources import Roles
from sumosurv.sources.source import RowSource
from sumosurv.sources.tables import read_table
from sumosurv.training import Checkpoints

N = 30
Y = Surv.from_arrays(np.arange(N) % 3 > 0, np.arange(1.0, N + 1))
X = pd.DataFrame({"x": np.sin(np.arange(N))})
D = Weibull(np.full(N, 20.0) + np.arange(N), 1.0)
PLAIN = Outcome(np.ones(2, bool), np.ones(2))
LATE = Outcome(np.ones(2, bool), np.ones(2), entry=np.zeros(2))
ROLES = Roles(time="t", event="e")


def search_over(space):
    return default_space(space, WeibullNet(), Y)


# a function, arguments with the words of their errors, and arguments that are accepted
REFUSALS = {
    "JSON": (
        parse_json,
        {'{"a": 1, "a": 2}': "key twice", "[" * 100_000: "nested too deeply", "NaN": "number NaN",
         "1e999": "1e999", "9" * 30: "30 digits", "-Infinity": "-Infinity"},
        ['{"a": 1, "b": {"a": 2}}', "1e99", str(2**63), "-5"],
    ),
    "number in a file": (
        lambda v: as_number(v, "it", low=0.0, above=-1.0),
        {True: "not a number", "1": "not a number", -0.5: "it is -0.5", np.inf: "it is inf", np.nan: "it is nan"},
        [0, 0.0, 3],
    ),
    "number above another": (lambda v: as_number(v, "it", above=0.0), {0: "it is 0"}, [1e-300]),
    "whole number in a file": (
        lambda v: as_whole(v, "it", low=2), {False: "integer", 1: "at least 2", 2.0: "integer", 2**63: "integer"},
        [2, 2**63 - 1],
    ),
    "flag in a file": (lambda v: as_flag(v, "it"), {0: "neither true nor false", "True": "neither"}, [True, False]),
    "text in a file": (lambda v: as_text(v, "it"), {0: "it is not text", None: "not text"}, ["", "a"]),
    "list in a file": (lambda v: as_list(v, "it"), {"ab": "it is not a list", 3: "not a list"}, [[], (1,)]),
    "times of a baseline": (
        lambda v: check_increasing(torch.tensor([v]), "they"),
        {(1.0, 1.0): "they are negative or do not increase", (2.0, 1.0): "not increase", (-1.0, 1.0): "not increase"},
        [(0.0, 1.0), (1.0, 2.0)],
    ),
    "customers of five folds": (
        lambda n: fold_by_customer(np.arange(n), 0), {4: "5 folds need at least 5 customers; got 4"}, [5]),
    "number of a fold": (lambda i: fold_by_customer(np.arange(9), i), {5: "5", -1: "-1"}, [0, 4]),
    "causes": (lambda n: cause_specific([D] * n), {0: "at least one cause"}, [1, 2]),
    "records of rows": (
        lambda names: each_field(np.append, *({"plain": PLAIN, "late": LATE}[name] for name in names)),
        {("plain", "late"): "'entry' is given for some of the rows", ("late", "plain"): "'entry' is given for some"},
        [("plain", "plain"), ("late", "late")],
    ),
    "a search space": (
        lambda name: search_over({
            "empty": {}, "unknown": {"size": [1]}, "not searched": {"n_members": [1]}, "word": {"dropout": "none"},
            "number": {"dropout": 0.1}, "no choice": {"dropout": []}, "a list": [1], "name": "papers",
            "choices": {"dropout": [0.1]}, "tuple": {"dropout": (0.1, 0.2)}, "law": {"dropout": stats.uniform(0, 0.5)},
        }[name]),
        {"empty": "space is empty", "unknown": "no parameter 'size'; it has", "not searched": "not searched over",
         "word": "list of choices", "number": "list of choices", "no choice": "list of choices",
         "a list": "must be 'paper', 'recipe' or a mapping", "name": "must be 'paper', 'recipe' or a mapping"},
        ["choices", "tuple", "law"],
    ),
    "values of an event": (
        lambda v: Roles(time="t", event="e", event_value=v)._check_named(),
        {("a", "b", "a"): "lists 'a' twice"}, [("a", "b")],
    ),
    "fields of an outcome": (
        lambda name: ROLES.with_fields({"late": LATE, "plain": PLAIN}[name]),
        {"late": "Some rows have 'entry'"}, ["plain"],
    ),
    "an array for results": (
        lambda v: check_result(v[0], v[1], (2, 3)),
        {(None, "int"): "dtype must be", ("a", "float64"): "got str"}, [(None, "float32")],
    ),
    "knots of a calibration curve": (
        lambda v: smooth_calibration(D, Y, 25.0, knots=v), {2: "3, 4 or 5; got 2", 6: "got 6"}, [3, 5]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.filterwarnings("ignore:Too few events")
def test_refusals(name):
    function, refused, accepted = REFUSALS[name]
    for value in accepted:
        function(value)
    for value, words in refused.items():
        with pytest.raises((ValueError, TypeError)) as caught:
            function(value)
        assert words in str(caught.value)


def test_arrays_for_results():
    right = np.zeros((2, 3), np.float32)
    assert check_result(right, "float64", (2, 3)) is right
    wrong = [right.T, right.astype(int), np.zeros((4, 3))[::2], right[:, :2]]
    fixed = right.copy()
    fixed.flags.writeable = False
    for out in [*wrong, fixed]:
        with pytest.raises(ValueError, match="a writable, contiguous array"):
            check_result(out, "float64", (2, 3))


def test_tables_without_rows_or_with_nul(tmp_path):
    path = tmp_path / "rows.csv"
    for content, words in ((b"", "is empty"), (b"\n\n", "is empty"), (b"a,b\n1,2\n6\0,5\n", "Line 3 of .* NUL")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            read_table(path)
    path.write_bytes(b"a,b\n1,2\n")
    assert read_table(path).shape == (1, 2)


def test_files_of_a_folder_have_columns_of_one_type(tmp_path):
    def write(first, second):
        for name, values in (("a", first), ("b", second)):
            pd.DataFrame({"v": values}).to_parquet(tmp_path / f"{name}.parquet")
        return RowSource(tmp_path)

    with pytest.raises(ValueError, match=r"'v' .*a.parquet.*b.parquet; write"):
        write([1.0, 2.0], ["u", "v"])
    with pytest.raises(ValueError, match=r"'v' .*categories.*a.parquet.*b.parq"):
        write(pd.Categorical(["u", "v"]), ["u", "v"])
    with pytest.raises(ValueError, match="'v' holds categories in one of"):
        write(["u", "v"], pd.Categorical(["u", "v"]))
    assert write([1, 2], [1.5, 2.5]).n_rows == 4  # numbers are widened
    assert write(pd.Categorical(["u", "v"]), pd.Categorical(["v", "w"])).n_rows == 4
    pd.DataFrame({"v": ["u"], "c": pd.Categorical(["u"])}).to_parquet(tmp_path / "b.parquet")
    pd.DataFrame({"v": ["u"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet .*'c', .*b.parquet"):
        RowSource(tmp_path)


def test_exports_to_other_files_are_refused(tmp_path, capsys):
    CoxPH().fit(X, Y).save(tmp_path / "m.sumo")
    assert main(["export", str(tmp_path / "m.sumo"), "--out", str(tmp_path / "m.pb")]) == 1
    assert "--out must end in .onnx (ONNX) or .pt2 (torch); got" in capsys.readouterr().err


def test_a_download_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(_sources, "_LARGEST", 5)
    monkeypatch.setattr(_sources, "_download", lambda url: b"x" * size)
    entry = replace(_catalogue.CATALOGUE["gbsg"], url="https://example.org/file.csv")
    size = 5
    assert _sources._fetch(entry) == b"xxxxx"
    size = 6
    with pytest.raises(_catalogue.ChecksumError, match=r"5 bytes; .*not the file of 'gbsg'"):
        _sources._fetch(entry)


def test_damaged_checkpoints_are_refused(tmp_path):
    settings = {"n_members": 1, "max_epochs": 2, "random_state": 0, "device": "cpu"}
    WeibullNet(**settings).fit(X, Y, checkpoint=Checkpoints(tmp_path, 0.0))
    (path,) = (file for file in tmp_path.rglob("*") if file.is_file())
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"checksum does not match.*; delete it"):
        WeibullNet(**settings).fit(X, Y, checkpoint=Checkpoints(tmp_path, 0.0))


def test_errors_of_the_system_keep_their_number(tmp_path):
    with pytest.raises(OSError, match="could not be written: odd") as caught, system_errors("a.sumo"):
        raise SafetensorError("odd")
    assert caught.value.errno is None
    with pytest.raises(OSError, match="No space left") as caught, system_errors("a.sumo"):
        raise SafetensorError("I/O error: No space left on device (os error 28)")
    assert (caught.value.errno, caught.value.filename) == (28, "a.sumo")


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [("192.0.2.1", 8000, "name an address of this machine"), ("", 8000, "host must be an address"),
     ("127.0.0.1", -1, "between 0 and 65535; got -1")],
)  # fmt: skip
def test_addresses_of_a_server(host, port, words):
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    model = SumoNet(n_members=1, max_epochs=1, components="networks", random_state=0).fit(X, Y)
    with pytest.raises((OSError, ValueError)) as caught:
        serve(model, host=host, port=port)
    assert words in str(caught.value)
