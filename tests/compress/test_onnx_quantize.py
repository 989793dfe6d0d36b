"""ONNX graphs in int8, judged in ONNX Runtime."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nlpctl.errors import UserError
from nlpctl.graphs.onnx_graph import read_graph, shrink_embeddings
from nlpctl.graphs.onnx_quantize import Int8Graph, measure_bounds, quantize_dynamic, quantize_static


def largest_error(found, expected):
    """As a share of the range of the outputs."""
    return np.abs(found - expected).max() / (expected.max() - expected.min())


def quantised(made, out, method):
    if method == "dynamic":
        return quantize_dynamic(made.folder / "model.onnx", out)
    return quantize_static(made.folder / "model.onnx", out, iter(made.batches))


def weights(file):
    """Initialisers of at least two dimensions: name to NumPy type."""
    graph = onnx.load(str(file)).graph
    return {each.name: numpy_helper.to_array(each).dtype.name for each in graph.initializer if len(each.dims) == 2}


@pytest.mark.parametrize("method", ["dynamic", "static"])
def test_answers_are_those_of_the_network(attention, tmp_path, method, caplog, capfd):
    out = tmp_path / "int8.onnx"
    assert quantised(attention, out, method) == Int8Graph(products=5, tables=1)  # the head of 3 columns is left
    found = attention.onnx(out)
    assert 0 < largest_error(found, attention.expected) < 0.1
    assert (found.argmax(1) == attention.expected.argmax(1)).mean() >= 0.95
    assert [path.name for path in tmp_path.iterdir()] == ["int8.onnx"]
    assert not caplog.records and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("method", ["dynamic", "static"])
def test_weights_are_int8_in_the_file(attention, tmp_path, method):
    out = tmp_path / "int8.onnx"
    quantised(attention, out, method)
    assert sum(dtype == "int8" for dtype in weights(out).values()) == 6  # 5 products and the table
    assert out.stat().st_size < 0.45 * (attention.folder / "model.onnx").stat().st_size


def test_products_of_activations_stay_fp32(attention, tmp_path):
    """Scores and states of attention: what is multiplied there was not int8 before."""
    quantised(attention, tmp_path / "int8.onnx", "static")
    kinds = Counter(node.op_type for node in onnx.load(str(tmp_path / "int8.onnx")).graph.node)
    assert kinds["MatMulIntegerToFloat"] == 5
    assert kinds["MatMul"] == 3  # scores, states, the head
    assert kinds["QuantizeLinear"] == 3  # what query, key and value share, and what each half of the rest takes


def test_bounds_are_the_mean_of_those_of_batches():
    value = helper.make_tensor_value_info("value", TensorProto.FLOAT, [None])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [None])
    graph = helper.make_graph([helper.make_node("Neg", ["value"], ["out"])], "g", [value], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    batches = [{"value": np.array(each, np.float32), "more": None} for each in ([1, 2], [3, -4, 0], [2])]
    bounds = measure_bounds(model, ["out", "value"], batches)
    assert bounds == {"out": pytest.approx((-7 / 3, 1 / 3)), "value": pytest.approx((-1 / 3, 7 / 3))}
    assert [each.name for each in model.graph.output] == ["out"]


def test_a_weight_has_a_scale_per_column(attention, tmp_path):
    out = tmp_path / "int8.onnx"
    quantize_static(attention.folder / "model.onnx", out, attention.batches)
    found = {each.name: numpy_helper.to_array(each) for each in onnx.load(str(out)).graph.initializer}
    expected = attention.network.inner.weight.numpy()
    (name,) = [name for name, each in found.items() if each.dtype == np.int8 and each.shape == expected.shape]
    scales = found[name.replace(".int8", ".scales")]
    assert (np.abs(found[name]).max(0) == 127).all() and scales.shape == expected.shape[1:]
    assert (np.abs(found[name] * scales - expected) <= scales * 0.5001).all()


def test_recurrent_layers(recurrent, tmp_path):
    out = tmp_path / "int8.onnx"
    assert quantize_dynamic(recurrent.folder / "model.onnx", out) == Int8Graph(products=1, tables=1)
    assert "DynamicQuantizeLSTM" in {node.op_type for node in onnx.load(str(out)).graph.node}
    assert 0 < largest_error(recurrent.onnx(out), recurrent.expected) < 0.1
    with pytest.raises(UserError, match="nothing in this graph can be int8"):
        quantize_static(recurrent.folder / "model.onnx", out, recurrent.batches)


def test_rows_of_a_table_have_scales_of_their_own(tmp_path):
    table = np.random.default_rng(1).normal(size=(2000, 8)).astype(np.float32)
    table *= np.logspace(-4, 4, 2000)[:, None].astype(np.float32)
    table[5] = 0
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [None])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [None, 8])
    gather = helper.make_node("Gather", ["table", "ids"], ["out"], "look_up")
    graph = helper.make_graph([gather], "g", [ids], [out], [numpy_helper.from_array(table, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    assert shrink_embeddings(model.graph) == 1
    onnx.checker.check_model(model)
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"ids": np.arange(2000)})
    assert (np.abs(found - table).max(1) <= np.abs(table).max(1) / 127 / 2 * 1.01).all()
    assert [each.name for each in model.graph.initializer] == ["table.rows_int8", "table.row_scales"]
    assert shrink_embeddings(model.graph) == 0


def test_no_rows(attention, tmp_path):
    with pytest.raises(UserError, match="no rows"):
        quantize_static(attention.folder / "model.onnx", tmp_path / "int8.onnx", [])
    assert not list(tmp_path.iterdir())


def test_no_graph(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(UserError, match="not an ONNX graph"):
        read_graph(tmp_path / "model.onnx")
