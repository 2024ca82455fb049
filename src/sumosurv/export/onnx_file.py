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
from sumosurv.export.program import SurvivalProgram, described
from sumosurv.export.tracing import Graph, Value
from sumosurv.files import replacing

_OPSET, _ML_OPSET, _IR = 18, 2, 9  # read by every onnxruntime since 1.14
_OUTPUTS = ("survival", "density", "risk", "incidence")
_ROWS, _TIMES = (3, 7), (5, 17)  # lengths in the two examples; see `sumosurv.export.tracing`


def write_onnx(model: SurvivalEstimator, path: str | Path, precision: Literal["double", "single"]) -> None:
    """Write the graph of a fitted model; see `sumosurv.export.export_onnx`."""
    program, about = SurvivalProgram(model, precision), described(model)
    graph, inputs, given, shape = Graph(), [], [], about["row_shape"]
    if shape is not None:
        inputs.append(helper.make_tensor_value_info("array", TensorProto.FLOAT, ["rows", *shape]))
        given.append(Value(graph, "array", [torch.zeros(n, *shape) for n in _ROWS]))
    else:
        for name, kind in (("numbers", TensorProto.DOUBLE), ("categories", TensorProto.STRING)):
            if about[name]:
                inputs.append(helper.make_tensor_value_info(name, kind, ["rows", len(about[name])]))
        given += [_numbers(graph, len(about["numbers"])), _codes(graph, about["categories"])]
    inputs.append(helper.make_tensor_value_info("times", TensorProto.DOUBLE, ["times"]))
    given.append(Value(graph, "times", [torch.ones(n, dtype=torch.float64) for n in _TIMES]))
    with torch.no_grad():
        results = program(*given)
    outputs = []
    for name, result in zip(_OUTPUTS, results):
        graph.nodes.append(helper.make_node("Identity", [result.name], [name]))
        lengths: list[Any] = ["rows", "times", model.n_causes_][: result.ndim]
        outputs.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, lengths))
    graph.prune(_OUTPUTS[: len(results)])
    made = helper.make_model(
        helper.make_graph(graph.nodes, "survival", inputs, outputs, graph.initializers),
        producer_name="sumosurv",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)],
        ir_version=_IR,
    )
    helper.set_model_props(made, {"sumosurv": json.dumps(about, allow_nan=False)})
    onnx.checker.check_model(made)
    with replacing(path) as partial:
        partial.write_bytes(made.SerializeToString())


def _numbers(graph: Graph, count: int) -> Value:
    """The numeric columns; without any, a constant that has no columns for each row of the categories."""
    examples = [torch.zeros(n, count, dtype=torch.float64) for n in _ROWS]
    if count:
        return Value(graph, "numbers", examples)
    rows = graph.add("Slice", [graph.add("Shape", ["categories"]), [0], [1]])
    return Value(graph, graph.add("Expand", [np.zeros((1, 0)), graph.add("Concat", [rows, [0]], axis=0)]), examples)


def _codes(graph: Graph, categories: list[dict[str, Any]]) -> Value:
    """The codes of the categorical columns, from their text."""
    codes = []
    for j, column in enumerate(categories):
        options: Any = {"keys_strings": list(column["codes"]), "values_int64s": list(column["codes"].values())}
        text = graph.add("Slice", ["categories", [j], [j + 1], [1]])
        codes.append(graph.add("LabelEncoder", [text], domain="ai.onnx.ml", default_int64=0, **options))
    name = graph.add("Concat", codes, axis=1) if codes else graph.name(np.zeros((0, 0), dtype=np.int64))
    return Value(graph, name, [torch.zeros(n, len(codes), dtype=torch.long) for n in _ROWS])
