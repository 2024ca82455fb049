"""A fitted model as an ONNX file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from sumosurv._version import __version__
from sumosurv.estimators import SurvivalEstimator
from sumosurv.export.graph import Graph
from sumosurv.export.program import SurvivalProgram, described, preprocessor_of, spellings
from sumosurv.export.tracing import Value
from sumosurv.files import replacing
from sumosurv.preprocessing import CategoricalColumn, NumericColumn

_OPSET, _ML_OPSET, _IR = 18, 2, 9  # read by every onnxruntime since 1.14
_OUTPUTS = ("survival", "density", "risk", "incidence")


def write_onnx(model: SurvivalEstimator, path: str | Path, precision: Literal["double", "single"]) -> None:
    """Write the graph of a fitted model; see `sumosurv.export.export_onnx`."""
    program = SurvivalProgram(model, precision)
    graph, inputs, given = Graph(), [], []
    columns = preprocessor_of(model)
    if columns.row_shape is not None:
        inputs.append(helper.make_tensor_value_info("array", TensorProto.FLOAT, ["rows", *columns.row_shape]))
        rows = graph.note_size("rows", "array", 0)
        given.append(Value(graph, "array", (rows, *columns.row_shape), torch.float32))
    else:
        numeric = [column for column in columns.columns if isinstance(column, NumericColumn)]
        coded = [column for column in columns.columns if isinstance(column, CategoricalColumn)]
        if numeric:
            inputs.append(helper.make_tensor_value_info("numbers", TensorProto.DOUBLE, ["rows", len(numeric)]))
        if coded:
            inputs.append(helper.make_tensor_value_info("categories", TensorProto.STRING, ["rows", len(coded)]))
        rows = graph.note_size("rows", inputs[0].name, 0)
        given.append(_numbers(graph, rows, len(numeric)))
        given.append(_codes(graph, rows, coded))
    inputs.append(helper.make_tensor_value_info("times", TensorProto.DOUBLE, ["times"]))
    times = graph.note_size("times", "times", 0)
    given.append(Value(graph, "times", (times,), torch.float64))
    with torch.no_grad():
        results = program(*given)
    outputs = []
    for name, result in zip(_OUTPUTS, results):
        graph.nodes.append(helper.make_node("Identity", [result.name], [name]))
        shape: list[Any] = ["rows", "times", model.n_causes_][: result.ndim]
        outputs.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape))
    graph.prune(_OUTPUTS[: len(results)])
    made = helper.make_model(
        helper.make_graph(graph.nodes, "survival", inputs, outputs, graph.initializers),
        producer_name="sumosurv",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)],
        ir_version=_IR,
    )
    helper.set_model_props(made, {"sumosurv": json.dumps(described(model), allow_nan=False)})
    onnx.checker.check_model(made)
    with replacing(path) as partial:
        partial.write_bytes(made.SerializeToString())


def _numbers(graph: Graph, rows: Any, count: int) -> Value:
    if count:
        return Value(graph, "numbers", (rows, count), torch.float64)
    return Value(graph, graph.constant(np.zeros((1, 0))), (1, 0), torch.float64).expand(rows, 0)


def _codes(graph: Graph, rows: Any, columns: list[CategoricalColumn]) -> Value:
    """The codes of categories, of their text."""
    codes = []
    for j, column in enumerate(columns):
        known = spellings(column)
        own = graph.add("Slice", ["categories", *(graph.numbers(at) for at in (j, j + 1, 1))])
        name = graph.add(
            "LabelEncoder",
            [own],
            domain="ai.onnx.ml",
            keys_strings=list(known),
            values_int64s=list(known.values()),
            default_int64=0,
        )
        codes.append(Value(graph, name, (rows, 1), torch.int64))
    if not codes:
        return Value(graph, graph.constant(np.zeros((0, 0), dtype=np.int64)), (rows, 0), torch.int64)
    made: Value = torch.cat(codes, dim=1)  # type: ignore[arg-type, assignment]
    return made
