"""Threads of ONNX Runtime that wait."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nlpctl  # noqa: F401
from nlpctl.inference import onnx_runtime
from nlpctl.inference.onnx_runtime import CUDA_PROVIDER, STREAMS, OnnxPredictor
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.runtime.process import ProcessSetup

CAST = helper.make_node("Cast", ["input_ids"], ["logits"], to=TensorProto.FLOAT)


def written(folder, nodes, weights=()):
    """The manifest of a graph from `input_ids` to `logits`, and the graph."""
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [None, None])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [None, None])
    graph = helper.make_graph(nodes, "g", [ids], [logits], list(weights))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "m.onnx")
    spec = TensorSpec("input_ids", "int64", (None, None)), TensorSpec("logits", "float32", (None, None))
    file = Graph("onnx", "fp32", ("m.onnx",))
    return ExportManifest("sequence_classification", spec[:1], spec[1:], 8, (file,), 0, "", {}), file


def test_threads_do_not_spin_between_batches(tmp_path):
    manifest, file = written(tmp_path, [CAST])
    setup = ProcessSetup("cpu", threads=2, rank=0, world_size=1)
    for each, most in ((setup, 100), (replace(setup, spin_us=1000), 1000)):
        predictor = OnnxPredictor(tmp_path, manifest, file, each)
        assert predictor.outputs({"input_ids": np.array([[3]])})[0].tolist() == [[3.0]]
        options = predictor._session.get_session_options()
        assert int(options.get_session_config_entry("session.intra_op.spin_duration_us")) == most
        assert options.intra_op_num_threads == 2


@pytest.mark.parametrize(("threads", "count", "each"), [(2, 2, 1), (12, STREAMS, 5), (1, 1, None)])
def test_streams_share_a_second_session_and_compute_the_same(tmp_path, threads, count, each):
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(300, 70)).astype(np.float32), "weight")
    nodes = [helper.make_node("Cast", ["input_ids"], ["x"], to=TensorProto.FLOAT)]
    manifest, file = written(tmp_path, [*nodes, helper.make_node("MatMul", ["x", "weight"], ["logits"])], [weight])
    predictor = OnnxPredictor(tmp_path, manifest, file, ProcessSetup("cpu", threads, rank=0, world_size=1))
    assert predictor.streams.count == count
    draw = np.random.default_rng(1)
    batches = [{"input_ids": draw.integers(0, 1000, (rows, 300))} for rows in range(1, 30)]
    whole = [predictor.outputs(batch)[0].tobytes() for batch in batches]
    (tmp_path / "m.onnx").unlink()  # as of a temporary export
    streams = predictor.streams
    with streams.open, streams.open, ThreadPoolExecutor(count, initializer=streams.enter) as pool:
        found = [outputs[0].tobytes() for outputs in pool.map(predictor.outputs, batches)]
        beside = pool.submit(lambda: predictor._beside and predictor._beside.session()).result()
        assert not predictor._beside or predictor._beside.session() is None  # this thread is none of a stream
    assert found == whole
    assert (beside and beside.get_session_options().intra_op_num_threads) == each
    assert predictor.outputs(batches[0])[0].tobytes() == whole[0]


def test_a_predictor_that_is_dropped_frees_its_graph_at_once(tmp_path):
    """Garbage collection is rare in a process with Paddle's many objects."""
    manifest, file = written(tmp_path, [CAST])
    predictor = OnnxPredictor(tmp_path, manifest, file, ProcessSetup("cpu", 2, rank=0, world_size=1))
    with predictor.streams.open:
        pass
    dropped = weakref.ref(predictor)
    gc.disable()
    try:
        del predictor
        assert dropped() is None
    finally:
        gc.enable()


def test_a_card_takes_one_batch_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_runtime, "_load", lambda file, threads, setup: onnxruntime.InferenceSession(file))
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda self: [CUDA_PROVIDER])
    manifest, file = written(tmp_path, [CAST])
    setup = ProcessSetup("gpu:0", threads=8, rank=0, world_size=1)
    assert OnnxPredictor(tmp_path, manifest, file, setup).streams.count == 1
