"""Exported models give what the library gives: ONNX files, torch.export programs, and what they are made of."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_ndtr, ndtri
from torch import nn

import export_cases as cases
from sumosurv import CoxPH, KaplanMeier, NetworkSearch, SumoNet, Surv, SurvivalMixture, WeibullNet, datasets
from sumosurv.export import export_onnx, export_torch, inputs, onnx_inputs
from sumosurv.export.program import SurvivalProgram, described, spellings
from sumosurv.preprocessing import CategoricalColumn

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*were not seen in training:UserWarning", "ignore:.*never missing in training:UserWarning"
)


def open_onnx(model, path, **options):
    pytest.importorskip("onnx", reason="onnx is not installed (extra 'export')")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra 'export')")
    export_onnx(model, path, **options)
    quiet = runtime.SessionOptions()
    quiet.log_severity_level, quiet.intra_op_num_threads = 3, 1
    return runtime.InferenceSession(path, quiet, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def session_of(tmp_path_factory):
    """An open ONNX file of a case, written once for all tests that only run it."""

    @cache
    def opened(name):
        return open_onnx(cases.fitted(name), tmp_path_factory.mktemp("onnx") / "model.onnx")

    return opened


def grid(model):
    return model.last_time_ * np.array([0.0, 1e-3, 0.1, 0.5, 1.0, 1.0001, 1.5, 20.0])


def check(found, model, X, times, tolerance):
    survival, density, risk, *incidence = (np.asarray(part) for part in found)
    np.testing.assert_allclose(survival, model.predict_survival_function(X, times), rtol=0, atol=tolerance)
    exact = model.predict_density(X, times)
    np.testing.assert_allclose(density, exact, rtol=0, atol=tolerance * exact.max())
    np.testing.assert_allclose(risk, model.predict(X), rtol=0, atol=tolerance)
    assert len(incidence) == (model.n_causes_ > 1)
    if incidence:
        exact = model.predict_cumulative_incidence(X, times)
        np.testing.assert_allclose(incidence[0], exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", cases.NAMES)
def test_onnx_equals_the_library(name, session_of):
    model, X = cases.fitted(name), cases.rows_for(name)
    session, times = session_of(name), grid(model)
    check(session.run(None, cases.feeds(model, X, times)), model, X, times, 1e-12)
    one = X[3:4]
    check(session.run(None, cases.feeds(model, one, times[2:3])), model, one, times[2:3], 1e-12)


@pytest.mark.parametrize("name", ["default", "causes"])
def test_single_precision_is_close(name, tmp_path):
    model, X = cases.fitted(name), cases.rows_for(name)
    session = open_onnx(model, tmp_path / "model.onnx", precision="single")
    check(session.run(None, cases.feeds(model, X, grid(model))), model, X, grid(model), 1e-5)


@pytest.mark.parametrize("name", cases.NAMES)
def test_the_program_equals_the_library(name):
    """The torch module that both exports are made of."""
    model, X = cases.fitted(name), cases.rows_for(name)
    given = cases.feeds(model, X, grid(model))
    n = len(X)
    numbers = torch.from_numpy(given.get("numbers", np.zeros((n, 0))))
    with torch.no_grad():
        found = SurvivalProgram(model)(numbers, cases.codes(described(model), given), torch.from_numpy(given["times"]))
    check(found, model, X, grid(model), 1e-12)


@pytest.mark.parametrize("name", ["flchain", "metabric"])
@pytest.mark.real_data
def test_onnx_equals_the_library_on_real_data(name, real_data, tmp_path):
    X, y = datasets.load(name)
    model = SumoNet(max_epochs=2, random_state=0).fit(X[:800], y[:800])
    session = open_onnx(model, tmp_path / "model.onnx")
    rows, times = X[800:1000], grid(model)
    check(session.run(None, cases.feeds(model, rows, times)), model, rows, times, 1e-10)


def test_before_time_zero_nothing_happens_and_at_the_end_nobody_is_left(session_of):
    model, session = cases.fitted("default"), session_of("default")
    survival, density, *_ = session.run(None, cases.feeds(model, cases.new_rows(), [-5.0, 0.0, np.inf]))
    np.testing.assert_allclose(survival, np.tile([1.0, 1.0, 0.0], (40, 1)), rtol=0, atol=1e-15)
    assert (density[:, [0, 2]] < 1e-300).all()  # onnxruntime 1.20 keeps a denormal number


def test_a_file_describes_itself(session_of):
    model = cases.fitted("default")
    about = cases.metadata(session_of("default"))
    assert about["numbers"] == ["age", "marker", "binary"]
    assert [own["name"] for own in about["categories"]] == ["stage", "smoker", "grade"]
    assert about["last_time"] == model.last_time_
    assert about["method"] == "SumoNet"


def test_all_rows_censored(tmp_path):
    X, _, time = cases.table()
    with pytest.warns(UserWarning, match="censored"):
        model = SumoNet(max_epochs=1, random_state=0).fit(X, (time, np.zeros(len(X))))
    assert model.stack_.minimum_hazard > 0
    session = open_onnx(model, tmp_path / "model.onnx")
    times = model.last_time_ * np.array([0.5, 1.0, 30.0, 3000.0])
    check(session.run(None, cases.feeds(model, X, times)), model, X, times, 1e-12)


def test_causes_of_rows_that_nobody_survives(tmp_path):
    """Where a regression leaves nobody at the last time, its tail has no hazards whose shares could be taken."""
    X, cause, time = cases.table()
    model = SumoNet(numeric_scaling="standard", n_members=3, max_epochs=20, random_state=0).fit(
        X, Surv.from_arrays(cause, time)
    )
    far = X[:4].assign(age=[3e3, 5e3, 1e4, 2e4])
    parts = [
        part.distribution(model.preprocessor_.transform(far)).survival([model.last_time_])
        for part in model.stack_.populations
    ]
    assert (np.hstack(parts) == 0).any()
    session = open_onnx(model, tmp_path / "model.onnx")
    times = grid(model)  # at zero the density is beyond all numbers
    check(session.run(None, cases.feeds(model, far, times[1:])), model, far, times[1:], 1e-10)
    survival, _, _, incidence = session.run(None, cases.feeds(model, far, times[:1]))
    np.testing.assert_allclose(survival, 1.0, rtol=0, atol=1e-15)
    assert (incidence == 0).all()


def test_levels_may_be_spelled_in_several_ways():
    column = CategoricalColumn("c", (1, 2.5, True), missing_seen=True)
    assert spellings(column) == {"1": 2, "1.0": 2, "2.5": 3, "True": 4, "true": 4, "TRUE": 4, "": 1}
    for levels, what in ((("", "a"), "an empty text as a level"), ((1, "1"), "more than one level '1'")):
        with pytest.raises(ValueError, match=f"Column 'c' has {what}"):
            spellings(CategoricalColumn("c", levels, missing_seen=False))
    assert spellings(CategoricalColumn("c", ("a",), missing_seen=False))[""] == 0


@pytest.fixture
def operations():
    pytest.importorskip("onnx", reason="onnx is not installed (extra 'export')")
    return importlib.import_module("sumosurv.export.operations")


def test_normal_functions_equal_scipy(operations):
    p = np.linspace(1e-4, 1 - 1e-4, 20001)
    np.testing.assert_allclose(operations.ndtri(torch.from_numpy(p)), ndtri(p), rtol=0, atol=2e-13)
    z = np.concatenate([np.linspace(-40, 40, 20001), [-1e10, np.inf]])
    np.testing.assert_allclose(operations.log_ndtr(torch.from_numpy(z)), log_ndtr(z), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("right", [False, True])
def test_search_in_knots_equals_torch(right, operations):
    knots = torch.tensor([[0.0, 1.0, 1.0, 2.0], [0.0, 3.0, torch.inf, torch.inf]])
    values = torch.tensor([[-1.0, 0.0, 1.0, 2.5], [0.5, 3.0, 4.0, 0.0]])
    found = operations.searchsorted(knots, values, right=right)
    assert found.tolist() == torch.searchsorted(knots, values, right=right).tolist()


def test_methods_without_exact_curves_say_so(tmp_path):
    X, cause, time = cases.table()
    y = (time, cause > 0)
    for model in (CoxPH(alpha=0.1), KaplanMeier(), SurvivalMixture([KaplanMeier()])):
        with pytest.raises(TypeError, match="cannot be exported"):
            export_onnx(model.fit(X[["age"]], y), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_parts_that_read_other_levels_are_refused(tmp_path):
    X, cause, time = cases.table()
    few = X["stage"] != "III"
    parts = [
        WeibullNet(**cases.SMALL).fit(X[rows], (time[rows], cause[rows] > 0)) for rows in (few, np.ones(len(X), bool))
    ]
    with pytest.raises(TypeError, match="different types or levels"):
        export_onnx(SurvivalMixture.of(parts), tmp_path / "model.onnx")


def test_a_search_exports_what_it_chose(tmp_path):
    X, cause, time = cases.table()
    search = NetworkSearch(WeibullNet(max_epochs=2), space={"dropout": [0.0, 0.2]}, n_trials=3, random_state=0)
    search.fit(X, (time, cause > 0))
    session = open_onnx(search, tmp_path / "model.onnx")
    times = grid(search)
    found = session.run(None, cases.feeds(search.best_estimator_, cases.new_rows(), times))
    check(found, search, cases.new_rows(), times, 1e-12)


def test_what_cannot_be_written_is_said(tmp_path):
    model = cases.fitted("one kind")
    with pytest.raises(ValueError, match="got 'half'"):
        export_onnx(model, tmp_path / "model.onnx", precision="half")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        export_torch(model, tmp_path / "none" / "model.pt2")


def _images():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, stride=(1, 2)), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, groups=2),
        nn.SiLU(), nn.AvgPool2d(2, padding=1), nn.Flatten(), nn.LazyLinear(5), nn.Tanh(),
    )  # fmt: skip


def _sequences():
    return nn.Sequential(
        nn.Conv1d(3, 6, 5, padding=2, dilation=2), nn.GELU(), nn.AvgPool1d(2, padding=1, count_include_pad=False),
        nn.MaxPool1d(3, stride=2, padding=1), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("encoder", "shape"), [(_images, (1, 12, 16)), (_sequences, (3, 20))])
def test_encoders_of_arrays_with_convolutions(encoder, shape, tmp_path):
    """The graph, and the torch program, of rows that are no table; convolutions of onnxruntime are in float32."""
    rng = np.random.default_rng(0)
    X, time = rng.normal(size=(60, *shape)).astype(np.float32), rng.exponential(size=60)
    model = SumoNet(encoder=encoder, **cases.SMALL).fit(X, (time, rng.random(60) < 0.7))
    times = np.array([0.3, 1.0, 2.0 * model.last_time_])
    found = open_onnx(model, tmp_path / "model.onnx").run(None, {"array": X[:7], "times": times})
    check(found, model, X[:7], times, 1e-6)
    if encoder is _images:
        return  # torch follows one like the other, and takes seconds
    export_torch(model, tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    check(program(torch.from_numpy(X[:7]), torch.from_numpy(times)), model, X[:7], times, 1e-12)


class _EverySecond(nn.Module):
    """Indexing by steps, means over two axes, and flattening of the first two of three axes of a row."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(7, 3)

    def forward(self, x):
        means = x[:, :, 1::2].mean((1, 3))
        return self.last(torch.cat([means, x.flatten(1, 2)[..., -2:].sum(2)[:, :4]], dim=1))


def test_encoders_may_index_and_average(tmp_path):
    rng = np.random.default_rng(0)
    X, time = rng.normal(size=(60, 2, 6, 5)).astype(np.float32), rng.exponential(size=60)
    model = SumoNet(encoder=_EverySecond, **cases.SMALL).fit(X, (time, rng.random(60) < 0.7))
    times = np.array([0.3, 1.0])
    found = open_onnx(model, tmp_path / "model.onnx").run(None, {"array": X[:9], "times": times})
    check(found, model, X[:9], times, 1e-12)


def test_pooling_that_onnx_has_no_words_for(tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed (extra 'export')")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 1, 8)).astype(np.float32), (rng.exponential(size=30), np.ones(30, bool))
    for layer, told in ((nn.AdaptiveAvgPool1d(2), "pool to 1"), (nn.MaxPool1d(3, ceil_mode=True), "ceil_mode"),
                        (nn.Conv1d(1, 1, 3, padding="same"), "padding='same'")):  # fmt: skip
        model = SumoNet(encoder=nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(2)), **cases.SMALL).fit(X, y)
        with pytest.raises(TypeError, match=told):
            export_onnx(model, tmp_path / "model.onnx")


def test_an_encoder_that_onnx_has_no_words_for(tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed (extra 'export')")
    X, cause, time = cases.table()
    norm = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.LayerNorm(4))
    model = SumoNet(encoder=norm, **cases.SMALL).fit(X[["age", "binary"]], (time, cause > 0))
    with pytest.raises(TypeError, match=r"'layer_norm'.*export_torch"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_torch_program_equals_the_library(tmp_path):
    model, X = cases.fitted("WeibullNet"), cases.new_rows()
    path = tmp_path / "model.pt2"
    export_torch(model, path)
    extra = {"sumosurv.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    for rows, times in ((X, grid(model)), (X[:1], grid(model)[:1])):
        given = cases.feeds(model, rows, times)
        codes = cases.codes(json.loads(extra["sumosurv.json"]), given)
        found = program(torch.from_numpy(given["numbers"]), codes, torch.from_numpy(given["times"]))
        check(found, model, rows, times, 1e-12)


def test_the_python_of_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("onnx", reason="onnx is not installed (extra 'export')")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra 'export')")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    *of_onnx, of_torch = (part.split("```")[0] for part in page.split("```python\n")[1:])
    for part in of_onnx:
        exec(part, names)
    rows, times = pd.DataFrame({"x": [0.3, np.nan]}), [0.5, 1.0]
    found = names["model"].predict_survival_function(rows, times)
    np.testing.assert_allclose(names["survival"], found, rtol=0, atol=1e-12)
    # torch takes long to follow networks that are monotone in time
    names["model"] = WeibullNet(**cases.SMALL).fit(names["data"].X, names["data"].y)
    exec(of_torch, names)
    found = names["model"].predict_survival_function(rows, times)
    np.testing.assert_allclose(names["curves"], found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["frame", "nullable", "records", "sparse records", "NA"])
def test_missing_values_are_missing_in_every_form_of_rows(form, session_of):
    model, X = cases.fitted("default"), cases.new_rows()
    X["grade"] = X["grade"].astype(object)
    X.loc[10:14, "grade"] = None
    session, times = session_of("default"), grid(model)
    rows = X if form == "frame" else X.convert_dtypes() if form == "nullable" else X.to_dict("records")
    if form == "sparse records":
        rows = [{name: value for name, value in row.items() if not pd.isna(value)} for row in rows]
    if form == "NA":
        rows = [{name: pd.NA if pd.isna(value) else value for name, value in row.items()} for row in rows]
    check(session.run(None, onnx_inputs(session, rows, times)), model, X, times, 1e-12)


_ABOUT = {
    "row_shape": None,
    "numbers": ["age"],
    "categories": [{"name": "sex", "codes": {"f": 2, "": 0}}, {"name": "ill", "codes": {"False": 2, "True": 3, "": 0}}],
}
_ROW = {"age": 61, "sex": "f", "ill": True}


@pytest.mark.parametrize("as_frame", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("age", pd.Timestamp("2021-03-04")),
        ("age", pd.Timedelta(days=3)),
        ("age", True),
        ("age", "61"),
        ("age", 1j),
        ("age", np.inf),
        ("age", -1e305),
        ("sex", pd.Timestamp("2021-03-04")),
        ("sex", ["f"]),
        ("sex", {"f": 1}),
    ],
)
def test_inputs_of_another_type_than_in_training_are_refused(name, value, as_frame):
    rows = [{**_ROW, name: value}]
    with pytest.raises(ValueError, match=f"Column '{name}'"):
        onnx_inputs(_ABOUT, pd.DataFrame(rows) if as_frame else rows, [1.0])


def test_inputs_need_each_column_once():
    rows = pd.DataFrame([_ROW])
    with pytest.raises(ValueError, match="0 columns named 'age'"):
        onnx_inputs(_ABOUT, rows.drop(columns="age"), [1.0])
    with pytest.raises(ValueError, match="2 columns named 'age'"):
        onnx_inputs(_ABOUT, pd.concat([rows, rows[["age"]]], axis=1), [1.0])
    with pytest.raises(ValueError, match="No row has a value 'age'"):  # a typo would make it missing in all rows
        onnx_inputs(_ABOUT, [{name: value for name, value in _ROW.items() if name != "age"}], [1.0])


@pytest.mark.parametrize("rows", [_ROW, np.zeros((1, 2)), pd.Series(_ROW), None, iter([_ROW])])
def test_inputs_are_made_of_tables_and_lists_of_dictionaries(rows):
    with pytest.raises(TypeError, match=r"rows must be a DataFrame .* list"):
        onnx_inputs(_ABOUT, rows, [1.0])
    for none in ([], pd.DataFrame([_ROW])[:0]):
        with pytest.raises(ValueError, match="pass at least one row"):
            onnx_inputs(_ABOUT, none, [1.0])


@pytest.mark.parametrize("times", [[np.nan], ["1"], [[1.0]], [1j], np.array(["2020"], "M8[D]"), None])
def test_inputs_have_a_list_of_times(times):
    with pytest.raises(ValueError, match="times must be a list of numbers"):
        onnx_inputs(_ABOUT, [_ROW], times)
    assert onnx_inputs(_ABOUT, [_ROW], 1)["times"].tolist() == [1.0]


@pytest.mark.parametrize("value", [1, 1.0, np.int64(1), True, np.True_, "True"])
def test_inputs_take_one_for_true_as_predict_does(value):
    assert onnx_inputs(_ABOUT, [{**_ROW, "ill": value}], [1.0])["categories"].tolist() == [["f", "True"]]


def test_the_inputs_can_be_made_without_the_library():
    """By a copy of one file, which imports NumPy and the standard library only."""
    code = "; ".join(
        [
            "import runpy, sys",
            f"made = runpy.run_path({inputs.__file__!r})['onnx_inputs']",
            "about = {'row_shape': None, 'numbers': ['a'], 'categories': [{'name': 'b'}]}",
            "given = made(about, [{'a': 1, 'b': float('nan')}, {'b': 'x'}], [1])",
            "assert given['categories'].tolist() == [[''], ['x']], given",
            "assert not {'sumosurv', 'torch', 'pandas'} & set(sys.modules)",
        ]
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_javascript_reads_a_file(tmp_path):
    """The consumer of docs/export.md, where node and onnxruntime are there ($SUMOSURV_NODE_MODULES names it)."""
    modules = os.environ.get("SUMOSURV_NODE_MODULES")
    if shutil.which("node") is None or modules is None:
        pytest.skip("set SUMOSURV_NODE_MODULES to a node_modules folder with onnxruntime-node or -web, and have node")
    package = "onnxruntime-node" if (Path(modules) / "onnxruntime-node").exists() else "onnxruntime-web"
    model = cases.fitted("default")
    open_onnx(model, tmp_path / "model.onnx")
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    code = page.split("```javascript\n")[1].split("```")[0].replace("onnxruntime-node", package)
    (tmp_path / "consumer.js").write_text(code, encoding="utf-8")
    (tmp_path / "node_modules").symlink_to(modules)
    row = cases.table()[0].iloc[[1]]
    (tmp_path / "row.json").write_text(row.to_json(orient="records"), encoding="utf-8")
    made = subprocess.run(
        ["node", "consumer.js", "model.onnx", "row.json", "50,100"], cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    np.testing.assert_allclose(
        json.loads(made.stdout)[0], model.predict_survival_function(row, [50, 100])[0], atol=1e-9
    )
