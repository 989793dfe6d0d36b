"""Threads of ONNX Runtime that wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper

import nlpctl  # noqa: F401
from nlpctl.inference.onnx_runtime import OnnxPredictor
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.runtime.process import ProcessSetup


def test_threads_do_not_spin_between_batches(tmp_path):
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [None, None])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [None, None])
    cast = helper.make_node("Cast", ["input_ids"], ["logits"], to=TensorProto.FLOAT)
    graph = helper.make_graph([cast], "g", [ids], [logits])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    spec = TensorSpec("input_ids", "int64", (None, None)), TensorSpec("logits", "float32", (None, None))
    file = Graph("onnx", "fp32", ("m.onnx",))
    manifest = ExportManifest("sequence_classification", spec[:1], spec[1:], 8, (file,), 0, "", {})
    setup = ProcessSetup("cpu", threads=2, rank=0, world_size=1)
    for each, most in ((setup, 100), (replace(setup, spin_us=1000), 1000)):
        predictor = OnnxPredictor(tmp_path, manifest, file, each)
        assert predictor.outputs({"input_ids": np.array([[3]])})[0].tolist() == [[3.0]]
        options = predictor._session.get_session_options()
        assert int(options.get_session_config_entry("session.intra_op.spin_duration_us")) == most
        assert options.intra_op_num_threads == 2
