"""Threads of ONNX Runtime that wait."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from nlpctl.engines import onnx_runtime
from nlpctl.engines.onnx_runtime import CUDA_PROVIDER, STREAMS
from nlpctl.runtime.process import ProcessSetup
from tests.helpers.onnx_graphs import predictor_of, write_graph

TWO = ProcessSetup("cpu", threads=2, rank=0, world_size=1)


@pytest.fixture
def file(tmp_path):
    write_graph(tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_threads_do_not_spin_between_batches(file):
    for setup, most in ((TWO, 100), (replace(TWO, spin_us=1000), 1000)):
        predictor = predictor_of(file, setup)
        assert predictor.outputs({"input_ids": np.array([[3]])})[0].tolist() == [[3.0]]
        options = predictor._session.get_session_options()
        assert int(options.get_session_config_entry("session.intra_op.spin_duration_us")) == most
        assert options.intra_op_num_threads == 2


@pytest.mark.parametrize(("threads", "count", "each"), [(2, 2, 1), (12, STREAMS, 5), (1, 1, None)])
def test_streams_share_a_second_session_and_compute_the_same(file, threads, count, each):
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(300, 70)).astype(np.float32), "weight")
    write_graph(file, [helper.make_node("MatMul", ["x", "weight"], ["logits"])], [weight])
    predictor = predictor_of(file, replace(TWO, threads=threads))
    assert predictor.streams.count == count
    draw = np.random.default_rng(1)
    batches = [{"input_ids": draw.integers(0, 1000, (rows, 300))} for rows in range(1, 30)]
    whole = [predictor.outputs(batch)[0].tobytes() for batch in batches]
    file.unlink()  # as of a temporary export
    streams = predictor.streams
    with streams.open, streams.open, ThreadPoolExecutor(count, initializer=streams.enter) as pool:
        found = [outputs[0].tobytes() for outputs in pool.map(predictor.outputs, batches)]
        beside = pool.submit(lambda: predictor._beside and predictor._beside.session()).result()
        assert not predictor._beside or predictor._beside.session() is None  # this thread is none of a stream
    assert found == whole
    assert (beside and beside.get_session_options().intra_op_num_threads) == each
    assert predictor.outputs(batches[0])[0].tobytes() == whole[0]


def test_a_predictor_that_is_dropped_frees_its_graph_at_once(file):
    """Garbage collection is rare in a process with Paddle's many objects."""
    predictor = predictor_of(file, TWO)
    with predictor.streams.open:
        pass
    dropped = weakref.ref(predictor)
    gc.disable()
    try:
        del predictor
        assert dropped() is None
    finally:
        gc.enable()


def test_a_card_takes_one_batch_at_a_time(file, monkeypatch):
    monkeypatch.setattr(onnx_runtime, "open_session", lambda file, threads, setup: onnxruntime.InferenceSession(file))
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda self: [CUDA_PROVIDER])
    assert predictor_of(file, ProcessSetup("gpu:0", threads=8, rank=0, world_size=1)).streams.count == 1
