"""ONNX graphs in int8, judged in ONNX Runtime."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nlpctl.errors import UserError
from nlpctl.graphs import smoothing
from nlpctl.graphs.onnx_graph import name_nodes, products_with_weights, read_graph, shrink_embeddings
from nlpctl.graphs.onnx_quantize import (
    Int8Graph,
    measure_columns,
    quantize_dynamic,
    quantize_static,
    smooth_activations,
)


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


def test_columns_are_measured():
    value = helper.make_tensor_value_info("value", TensorProto.FLOAT, [None, None, 2])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [None, None, 2])
    graph = helper.make_graph([helper.make_node("Neg", ["value"], ["out"])], "g", [value], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    rows = ([[[1, 2], [3, -4]]], [[[5, 6]], [[7, 8]]])
    batches = [{"value": np.array(each, np.float32), "more": None} for each in rows]
    columns = measure_columns(model, {"out": 2, "value": 2}, batches)
    assert columns["value"].lows.tolist() == [[1, -4], [5, 6]] and columns["value"].highs.tolist() == [[3, 2], [7, 8]]
    assert columns["out"].lows.tolist() == [[-3, -2], [-7, -8]]
    assert columns["out"].squares.tolist() == [[5, 10], [37, 50]]
    assert [each.name for each in model.graph.output] == ["out"]


def test_outlier_columns_cost_the_others_nothing(outliers, tmp_path, monkeypatch):
    quantize_static(outliers.folder / "model.onnx", tmp_path / "smooth.onnx", outliers.batches)
    smooth = onnx.load(str(tmp_path / "smooth.onnx")).graph
    monkeypatch.setattr(smoothing, "GAIN", np.inf)
    quantize_static(outliers.folder / "model.onnx", tmp_path / "plain.onnx", outliers.batches)
    plain = onnx.load(str(tmp_path / "plain.onnx")).graph
    answers = (outliers.onnx(tmp_path / name) for name in ("smooth.onnx", "plain.onnx"))
    rows = outliers.expected - outliers.expected.mean(0)
    with_it, without = (largest_error(each - each.mean(0), rows) for each in answers)
    assert with_it < without / 2
    # Only what has outliers pays for it.
    added = Counter(each.op_type for each in smooth.node) - Counter(each.op_type for each in plain.node)
    assert added == {"Mul": 2}


def test_a_smoothed_graph_computes_the_same(outliers, tmp_path):
    model = read_graph(outliers.folder / "model.onnx")
    name_nodes(model.graph)
    names = products_with_weights(model.graph)
    rows = {each.name: each.dims[0] for each in model.graph.initializer if len(each.dims) == 2}
    widths = {node.input[0]: rows[node.input[1]] for node in model.graph.node if node.name in names}
    columns = measure_columns(model, widths, outliers.batches)
    before = {name: each.bounds() for name, each in columns.items()}
    bounds = smooth_activations(model.graph, names, columns)
    far = before.keys() - bounds.keys()
    assert len(far) == 2 and bounds.keys() - before.keys() == {f"{name}.smooth" for name in far}
    assert all(np.ptp(before[name]) > 2 * np.ptp(bounds[f"{name}.smooth"]) for name in far)
    readers = Counter(node.input[0] for node in model.graph.node if node.name in names)
    assert sorted(readers.values()) == [1, 1, 3] and readers.keys() == bounds.keys()
    onnx.checker.check_model(model)
    onnx.save(model, str(tmp_path / "smooth.onnx"))
    np.testing.assert_allclose(outliers.onnx(tmp_path / "smooth.onnx"), outliers.expected, rtol=1e-4, atol=1e-4)


def test_weights_that_layers_share_are_not_changed(outliers, tmp_path):
    """ALBERT's layers: a weight meets another activation in each."""
    model = read_graph(outliers.folder / "model.onnx")
    name_nodes(model.graph)
    outer = next(each.name for each in model.graph.initializer if list(each.dims) == [128, 32])
    far = next(node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] == outer)
    again = helper.make_node("MatMul", list(far.input), ["again"], "again")
    model.graph.node.append(again)
    model.graph.output.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, None))
    before = model.SerializeToString()
    columns = measure_columns(model, {far.input[0]: 128}, outliers.batches)
    bounds = smooth_activations(model.graph, [far.name, "again"], columns)
    assert bounds == {far.input[0]: columns[far.input[0]].bounds()}
    assert model.SerializeToString() == before


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
