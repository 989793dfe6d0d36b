"""Prepare an ONNX graph for ONNX Runtime's quantisers, which silently skip some forms of weights and tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from nlpctl.errors import UserError
from nlpctl.files import regular
from nlpctl.formats.bounds import Allowance
from nlpctl.formats.safe_pickle import reason_of
from nlpctl.graphs import NARROW, TABLE_ROWS

FOLDED = ("Concat", "Slice", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Mul")
_MOST_FOLDED = 64  # times the size of the graph; weights of an LSTM pass through some ten nodes


def read_graph(file: Path) -> onnx.ModelProto:
    """An fp32 graph with all constants as initialisers. UserError if the file is not an ONNX graph.

    paddle2onnx writes weights as `Constant` nodes, and `quantize_dynamic` skips products with them.
    """
    try:
        model = onnx.load(str(regular(file)), load_external_data=False)
        if any(tensor.external_data for tensor in model.graph.initializer):
            raise ValueError("its values are in another file")
        onnx.checker.check_model(model)
        constants_to_initializers(model.graph)
        fold_constants(model)
    except Exception as error:  # protobuf's DecodeError, onnx's ValidationError, whatever a node raises
        hint = "export the model again: `nlpctl export`"
        message = f"this is not an ONNX graph ({type(error).__name__}: {reason_of(error)})"
        raise UserError(message, str(file), hint) from None
    return model


def constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Turn every `Constant` node that holds a tensor into an initialiser of the same name."""
    kept = []
    for node in graph.node:
        value = {attribute.name: attribute for attribute in node.attribute}.get("value")
        if node.op_type != "Constant" or value is None:
            kept.append(node)
            continue
        tensor = graph.initializer.add()
        tensor.CopyFrom(value.t)
        tensor.name = node.output[0]
    del graph.node[:]
    graph.node.extend(kept)


def fold_constants(model: onnx.ModelProto, kinds: Collection[str] = FOLDED) -> None:
    """Fold nodes of these kinds if all their inputs are constant.

    paddle2onnx assembles the weights of an LSTM inside the graph. It also multiplies the word embeddings of ERNIE and
    RoBERTa by a table of the same size, which is 1 except for the padding row. ValueError: what is folded becomes far
    larger than what the graph holds, as a product of a row and a column does.
    """
    graph = model.graph
    left = Allowance(_MOST_FOLDED * model.ByteSize(), "values")
    values = {tensor.name: tensor for tensor in graph.initializer}
    kept, made = [], []
    for node in graph.node:
        if node.op_type not in kinds or not all(name in values for name in node.input if name):
            kept.append(node)
            continue
        inputs = {name: numpy_helper.to_array(values[name]) for name in node.input if name}
        left.take(_folded_bytes(node, inputs))
        outputs = ReferenceEvaluator(node, opsets={"": model.opset_import[0].version}).run(None, inputs)
        tensors = [numpy_helper.from_array(array, name) for array, name in zip(outputs, node.output, strict=True)]
        values |= {tensor.name: tensor for tensor in tensors}
        made += tensors
    del graph.node[:]
    graph.node.extend(kept)
    used = read_names(graph).keys() | {tensor.name for tensor in graph.output}
    needed = [tensor for tensor in [*graph.initializer, *made] if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(needed)


def _folded_bytes(node: onnx.NodeProto, inputs: Mapping[str, np.ndarray]) -> int:
    """The most bytes that a node of FOLDED makes of its inputs: Mul and Concat make more than the largest of them."""
    if node.op_type == "Mul":
        shape = np.broadcast_shapes(*(array.shape for array in inputs.values()))
        return math.prod(shape) * max(array.itemsize for array in inputs.values())
    taken = node.input if node.op_type == "Concat" else node.input[:1]
    return sum(inputs[name].nbytes for name in taken)


def products_with_weights(graph: onnx.GraphProto) -> list[str]:
    """Names of the MatMul nodes whose second factor is a constant matrix wide enough to be worth int8."""
    widths = {tensor.name: tensor.dims[-1] for tensor in graph.initializer if len(tensor.dims) == 2}
    return [node.name for node in graph.node if node.op_type == "MatMul" and widths.get(node.input[1], 0) >= NARROW]


def name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node a unique name, since quantisers select nodes by name."""
    taken = Counter(node.name for node in graph.node)
    for index, node in enumerate(graph.node):
        if not node.name or taken[node.name] > 1:
            node.name = f"{node.op_type}.node{index}"


def sum_residuals(graph: onnx.GraphProto) -> int:
    """Replace `Add` before layer normalisations by the equivalent `Sum`; returns the number of replacements.

    ONNX Runtime fuses `Add` and LayerNormalization to SkipLayerNormalization if it knows both shapes, as in int8
    graphs. On a CPU (1.31) the fused node takes 5 times as long as the two nodes: a sixth of the whole graph.
    """
    constants = {tensor.name for tensor in graph.initializer}
    averaged = {node.input[0] for node in graph.node if node.op_type == "ReduceMean"}
    residuals = [
        node
        for node in graph.node
        if node.op_type == "Add" and node.output[0] in averaged and constants.isdisjoint(node.input)
    ]
    for node in residuals:
        node.op_type = "Sum"
    return len(residuals)


def shrink_embeddings(graph: onnx.GraphProto) -> int:
    """Store large embedding tables as int8 with a scale per row; returns their number.

    The quantisers use one scale for the whole table. On MiniLM that changes a logit by up to 0.55, a scale per row by a
    tenth of it. Rows are dequantised after the look-up.
    """
    tables = {tensor.name: tensor for tensor in graph.initializer}
    nodes, shrunk = [], {}
    for node in graph.node:
        tensor = tables.get(node.input[0]) if node.op_type == "Gather" and _axis(node) == 0 else None
        if tensor is None or not _is_table(tensor):
            nodes.append(node)
            continue
        if tensor.name not in shrunk:
            shrunk[tensor.name] = _int8_rows(graph, tensor)
        nodes.extend(_looked_up(node, *shrunk[tensor.name]))
    del graph.node[:]
    graph.node.extend(nodes)
    drop_unused(graph, shrunk)  # a tied output layer may still read the fp32 table
    return len(shrunk)


def read_names(graph: onnx.GraphProto) -> Counter[str]:
    """How often the nodes of a graph read each name, and those of the graphs in them, such as the branches of an If."""
    names = Counter(name for node in graph.node for name in node.input)
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            names += read_names(inner) + Counter(tensor.name for tensor in inner.output)
    return names


def drop_unused(graph: onnx.GraphProto, names: Iterable[str]) -> None:
    """Remove the initialisers in `names` that no node reads."""
    unused = set(names) - read_names(graph).keys()
    kept = [tensor for tensor in graph.initializer if tensor.name not in unused]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _axis(node: onnx.NodeProto) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)


def _is_table(tensor: onnx.TensorProto) -> bool:
    """Excludes the scales [rows, 1] of a table that is already int8."""
    wide = len(tensor.dims) == 2 and tensor.dims[1] > 1
    return wide and tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims[0] >= TABLE_ROWS


def _int8_rows(graph: onnx.GraphProto, tensor: onnx.TensorProto) -> tuple[str, str]:
    """Initialisers for the table [rows, width] as int8 and its scales [rows, 1]; their names."""
    rows = numpy_helper.to_array(tensor)
    scales = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(np.float32).tiny) / 127
    names = (f"{tensor.name}.rows_int8", f"{tensor.name}.row_scales")
    arrays = (np.round(rows / scales).astype(np.int8), scales.astype(np.float32))
    graph.initializer.extend(numpy_helper.from_array(array, name) for array, name in zip(arrays, names, strict=True))
    return names


def _looked_up(node: onnx.NodeProto, table: str, scales: str) -> list[onnx.NodeProto]:
    """The nodes that replace a Gather from the fp32 table; its output keeps shape and name."""
    out, ids = node.output[0], node.input[1]
    row, scale, wide = (f"{out}.{part}" for part in ("row_int8", "row_scale", "row_wide"))
    return [
        helper.make_node("Gather", [table, ids], [row], row, axis=0),
        helper.make_node("Gather", [scales, ids], [scale], scale, axis=0),
        helper.make_node("Cast", [row], [wide], wide, to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [wide, scale], [out], f"{out}.row"),
    ]
