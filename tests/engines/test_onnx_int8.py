"""Products of int8 in ONNX Runtime, whose sums saturate on processors without VNNI unless it is told otherwise."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from nlpctl.engines.onnx_runtime import session_options
from nlpctl.graphs.onnx_quantize import quantize_dynamic, quantize_static
from nlpctl.runtime.machine import CpuInfo, cpu_info
from nlpctl.runtime.process import ProcessSetup
from tests.helpers.onnx_graphs import predictor_of, write_graph

IDS = np.ones((5, 96), np.int64)
SMALL = np.float32(0.01)


def constant(name, *shape):
    """A weight of equal numbers: in int8 each is 127, and the largest sums come about."""
    return numpy_helper.from_array(np.full(shape, SMALL), name)


def product():
    return [helper.make_node("MatMul", ["x", "weight"], ["logits"])], [constant("weight", 96, 64)]


def recurrent():
    nodes = [
        helper.make_node("Unsqueeze", ["x", "first"], ["sequence"]),
        helper.make_node("LSTM", ["sequence", "weight", "states"], ["all"], hidden_size=32),
        helper.make_node("Reshape", ["all", "rows"], ["logits"]),
    ]
    shapes = [numpy_helper.from_array(np.array(each), name) for name, each in (("first", [0]), ("rows", [-1, 32]))]
    return nodes, [constant("weight", 1, 128, 96), constant("states", 1, 128, 32), *shapes]


def write(made, file):
    nodes, weights = made()
    write_graph(file, nodes, weights, IDS.shape[1])


def answers(file):
    return predictor_of(file, ProcessSetup("cpu", threads=1, rank=0, world_size=1)).outputs({"input_ids": IDS})[0]


@pytest.mark.parametrize(("made", "method"), [(product, "dynamic"), (product, "static"), (recurrent, "dynamic")])
def test_the_largest_sums_are_exact(tmp_path, made, method):
    """Inputs and weights that int8 holds exactly; saturated sums are wrong by half."""
    write(made, tmp_path / "fp32.onnx")
    if method == "dynamic":
        quantize_dynamic(tmp_path / "fp32.onnx", tmp_path / "int8.onnx")
    else:
        quantize_static(tmp_path / "fp32.onnx", tmp_path / "int8.onnx", [{"input_ids": IDS}])
    found, expected = answers(tmp_path / "int8.onnx"), answers(tmp_path / "fp32.onnx")
    assert found.shape == expected.shape == ((5, 64) if made is product else (5, 32))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(("sets", "exact"), [(("avx2",), True), (("avx2", "avx512f", "avx512_vnni"), False)])
def test_the_option_is_for_processors_that_need_it(monkeypatch, sets, exact):
    """With VNNI it may select another product (docs/upstream.md)."""
    monkeypatch.setattr("nlpctl.engines.onnx_runtime.cpu_info", lambda: CpuInfo("GenuineIntel", "Core", sets))
    options = session_options(1, 0)
    if exact:
        assert options.get_session_config_entry("session.x64quantprecision") == "1"
    else:
        with pytest.raises(RuntimeError, match="does not have"):
            options.get_session_config_entry("session.x64quantprecision")


@pytest.mark.skipif(cpu_info().computes("int8"), reason="on this processor sums of int8 products do not saturate")
def test_without_the_option_sums_still_saturate(tmp_path):
    """Fails when ONNX Runtime no longer needs it."""
    write(product, tmp_path / "fp32.onnx")
    quantize_dynamic(tmp_path / "fp32.onnx", tmp_path / "int8.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "int8.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input_ids": IDS})
    assert (found < 0.75 * answers(tmp_path / "fp32.onnx")).all()
