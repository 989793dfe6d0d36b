"""Small ONNX graphs as the graph of an export, and what answers with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from nlpctl.engines.onnx_runtime import OnnxPredictor
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.runtime.process import ProcessSetup

INPUT = TensorSpec("input_ids", "int64", (None, None))
OUTPUT = TensorSpec("logits", "float32", (None, None))


def write_graph(file: Path, nodes: Sequence[Any] = (), weights: Sequence[Any] = (), length: int | None = None) -> None:
    """A graph that makes `logits` of "x", which is `input_ids` of `length` taken for numbers; `x` itself by default."""
    ids = helper.make_tensor_value_info(INPUT.name, TensorProto.INT64, [None, length])
    logits = helper.make_tensor_value_info(OUTPUT.name, TensorProto.FLOAT, [None, None])
    cast = helper.make_node("Cast", [INPUT.name], ["x"], to=TensorProto.FLOAT)
    nodes = nodes or [helper.make_node("Identity", ["x"], [OUTPUT.name])]
    graph = helper.make_graph([cast, *nodes], "g", [ids], [logits], list(weights))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)


def predictor_of(file: Path, setup: ProcessSetup) -> OnnxPredictor:
    """Answers with the graph that `write_graph` wrote to `file`, or with an 8-bit one made of it."""
    graph = Graph("onnx", "fp32", (file.name,))
    manifest = ExportManifest("sequence_classification", (INPUT,), (OUTPUT,), 8, (graph,), 0, "", {})
    return OnnxPredictor(file.parent, manifest, graph, setup)
