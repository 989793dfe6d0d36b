"""An fp32 ONNX graph in int8, for ONNX Runtime.

paddle2onnx cannot convert Paddle's quantised graphs: it writes fp32 products with rounded weights. So the fp32 graph is
converted, and quantised here. Only products with weights become int8: between two activations (attention) it costs
accuracy and gains nothing.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

from nlpctl.data.batches.collate import Batch
from nlpctl.errors import UserError
from nlpctl.files import staged_file
from nlpctl.graphs import NO_PRODUCT
from nlpctl.graphs.onnx_graph import (
    drop_unused,
    name_nodes,
    products_with_weights,
    read_graph,
    read_names,
    shrink_embeddings,
    sum_residuals,
)
from nlpctl.graphs.ptq_settings import no_rows
from nlpctl.graphs.smoothing import Columns, columns_of


@dataclass(frozen=True)
class Int8Graph:
    """The number of parts that became int8: products with a weight, including recurrent layers, and embedding
    tables."""

    products: int
    tables: int


def quantize_dynamic(fp32: Path, out: Path) -> Int8Graph:
    """Write weights in int8 with a scale per column. Activations are scaled at run time, so no calibration is needed.

    Besides products ONNX Runtime has an LSTM in 8 bits, but no GRU. UserError if nothing in the graph can be int8.
    `out` is written atomically.
    """
    model, names, tables = _prepared(fp32, recurrent=True)
    with _written(out) as file:
        quantization.quantize_dynamic(
            model,
            file,
            nodes_to_quantize=names,
            op_types_to_quantize=["MatMul", "LSTM"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
    return Int8Graph(len(names), tables)


def quantize_static(fp32: Path, out: Path, batches: Iterable[Batch]) -> Int8Graph:
    """Write weights in int8 with a scale per column, activations in uint8 between bounds measured on `batches`.

    The bounds are means over batches, after outlier columns are divided (smoothing.py); outputs of products stay fp32.
    16 batches of 32 rows are enough. Batches may have more keys than the graph has inputs. The file uses operators of
    ONNX Runtime (com.microsoft), so no other engine reads it. UserError if nothing in the graph can be int8, or there
    are no batches. `out` is written atomically.
    """
    model, names, tables = _prepared(fp32, recurrent=False)
    remaining = iter(batches)
    first = next(remaining, None)
    if first is None:
        raise no_rows()
    # Query, key and value products read one tensor, which is measured once.
    rows = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) == 2}
    widths = {node.input[0]: rows[node.input[1]] for node in model.graph.node if node.name in names}
    columns = measure_columns(model, widths, chain([first], remaining))
    bounds = smooth_activations(model.graph, names, columns)
    products_to_int8(model, names, bounds)
    with staged_file(out) as stream:
        stream.write(model.SerializeToString())
    return Int8Graph(len(names), tables)


def refuse_without_products(fp32: Path, *, recurrent: bool) -> None:
    """UserError if nothing in the graph can be int8. `recurrent`: whether an LSTM can."""
    _products(read_graph(fp32), fp32, recurrent)


def _products(model: onnx.ModelProto, fp32: Path, recurrent: bool) -> list[str]:
    """The nodes to quantise, which get names. UserError if there is none."""
    name_nodes(model.graph)
    names = products_with_weights(model.graph)
    kinds = {node.op_type for node in model.graph.node}
    if recurrent:
        names += [node.name for node in model.graph.node if node.op_type == "LSTM"]
    if not names:
        message = f"nothing in this graph can be int8: {NO_PRODUCT}" + (" and no LSTM" if recurrent else "")
        if recurrent and "GRU" in kinds:
            message += "; ONNX Runtime computes a GRU in fp32 only"
        raise UserError(message, str(fp32), "use it in fp32")
    return names


def _prepared(fp32: Path, *, recurrent: bool) -> tuple[onnx.ModelProto, list[str], int]:
    """The graph with its embedding tables in int8, the nodes to quantise, and the number of these tables."""
    model = read_graph(fp32)
    names = _products(model, fp32, recurrent)
    tables = shrink_embeddings(model.graph)
    sum_residuals(model.graph)
    add_pre_process_metadata(model)  # else the quantiser advises the preprocessing that was done here
    return model, names, tables


@contextlib.contextmanager
def _written(out: Path) -> Iterator[str]:
    """A temporary file for the quantiser, which becomes `out` on success."""
    with tempfile.TemporaryDirectory(prefix="nlpctl-int8-") as folder:
        file = Path(folder) / "model.onnx"
        yield str(file)
        with staged_file(out) as stream:
            stream.write(file.read_bytes())


# -- products in int8, with activations quantised between bounds measured beforehand ----------------------------------
#
# Uses ONNX Runtime's MatMulIntegerToFloat, including the bias. ONNX Runtime turns a QDQ graph into the same operator,
# but adds biases separately and also rounds residual states to int8.

Bounds = tuple[float, float]
_RUNTIME = "com.microsoft"  # domain of ONNX Runtime's own operators
_ERRORS_ONLY = 3  # log severity
_TINY = np.finfo(np.float32).tiny  # a scale must not be 0


def measure_columns(
    model: onnx.ModelProto, widths: Mapping[str, int], batches: Iterable[Batch]
) -> dict[str, Columns]:
    """The columns of tensors [..., columns], by name. `widths`: how many, by name.

    Batches may have more keys than the graph has inputs, and there is at least one.
    """
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    graph, outputs = probed.graph, []
    for name, width in widths.items():
        shape = numpy_helper.from_array(np.array([-1, width], np.int64), f"{name}.shape")
        graph.initializer.append(shape)
        rows = f"{name}.rows"
        graph.node.append(helper.make_node("Reshape", [name, shape.name], [rows]))
        graph.node.append(helper.make_node("Mul", [rows, rows], [f"{rows}.squares"]))
        for kind, given in (("ReduceMin", rows), ("ReduceMax", rows), ("ReduceMean", f"{rows}.squares")):
            outputs.append(f"{name}.{kind}")
            graph.node.append(helper.make_node(kind, [given], outputs[-1:], axes=[0], keepdims=0))
            graph.output.append(helper.make_tensor_value_info(outputs[-1], TensorProto.FLOAT, [width]))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    session = onnxruntime.InferenceSession(probed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = [each.name for each in session.get_inputs()]
    seen = [session.run(outputs, {name: batch[name] for name in inputs}) for batch in batches]
    return columns_of(widths, seen)


def smooth_activations(
    graph: onnx.GraphProto, products: Collection[str], columns: Mapping[str, Columns]
) -> dict[str, Bounds]:
    """Divide the outlier columns of what the MatMul nodes `products` read, and multiply the rows of their weights;
    returns the bounds of what they read then."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    uses = read_names(graph) + Counter(tensor.name for tensor in graph.output)
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if node.name in products:
            readers.setdefault(node.input[0], []).append(node)
    bounds, before = {}, {}
    for name, nodes in readers.items():
        weights = {node.input[1]: numpy_helper.to_array(tensors[node.input[1]]) for node in nodes}
        # A weight that several products share, as ALBERT's layers do, meets several activations.
        shared = any(uses[weight] > 1 for weight in weights)
        divisors = None if shared else columns[name].divisors(list(weights.values()), symmetric=False)
        if divisors is None:
            bounds[name] = columns[name].bounds()
            continue
        smooth = f"{name}.smooth"
        bounds[smooth] = columns[name].bounds(divisors)
        factors = numpy_helper.from_array(1 / divisors, f"{name}.factors")
        graph.initializer.append(factors)
        before[nodes[0].name] = helper.make_node("Mul", [name, factors.name], [smooth], smooth)
        for weight, values in weights.items():
            tensors[weight].CopyFrom(numpy_helper.from_array(values * divisors[:, None], weight))
        for node in nodes:
            node.input[0] = smooth
    made = [each for node in graph.node for each in ([before[node.name], node] if node.name in before else [node])]
    del graph.node[:]
    graph.node.extend(made)
    return bounds


def products_to_int8(model: onnx.ModelProto, products: Collection[str], bounds: Mapping[str, Bounds]) -> None:
    """Quantise the MatMul nodes `products`, whose second factor is a constant [inputs, columns] with a scale per
    column. `bounds` of their first factors.
    """
    graph = model.graph
    tensors = _QuantisedTensors(graph, bounds)
    biases = _biases(graph, set(products))
    added, nodes = {node.name for node in biases.values()}, []
    for node in graph.node:
        if node.name in added:
            continue
        if node.name in products:
            nodes += tensors.product(node, biases.get(node.output[0]))
        else:
            nodes.append(node)
    replaced = {node.input[1] for node in graph.node if node.name in products}
    del graph.node[:]
    graph.node.extend(nodes)
    drop_unused(graph, replaced)
    if _RUNTIME not in {each.domain for each in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(_RUNTIME, 1))


def _biases(graph: onnx.GraphProto, products: Collection[str]) -> dict[str, onnx.NodeProto]:
    """Maps the output of a product to the addition of a constant vector, if nothing else reads that output."""
    vectors = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 1}
    read = Counter(name for node in graph.node for name in node.input)
    read.update(tensor.name for tensor in graph.output)
    columns = {node.output[0] for node in graph.node if node.name in products and read[node.output[0]] == 1}
    additions = {}
    for node in graph.node:
        if node.op_type == "Add" and node.input[0] in columns and node.input[1] in vectors:
            additions[node.input[0]] = node
    return additions


class _QuantisedTensors:
    """Quantised weights and activations of a graph, each made once."""

    def __init__(self, graph: onnx.GraphProto, bounds: Mapping[str, Bounds]):
        self._graph, self._bounds = graph, bounds
        self._matrices = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
        self._done: set[str] = set()

    def product(self, node: onnx.NodeProto, bias: onnx.NodeProto | None) -> list[onnx.NodeProto]:
        """The nodes that replace a product and the addition of its bias."""
        left, right = node.input
        out = bias or node
        nodes = []
        if left not in self._done:
            self._done.add(left)
            nodes.append(self._activation(left))
        if right not in self._done:
            self._done.add(right)
            weight = numpy_helper.to_array(self._matrices[right])
            # A scale per column; int8 is used from -127 to 127, so that 0 stays 0.
            scales = np.maximum(np.abs(weight).max(axis=0), _TINY) / 127
            self._constant(np.round(weight / scales).astype(np.int8), f"{right}.int8")
            self._constant(scales.astype(np.float32), f"{right}.scales")
        inputs = [f"{left}.int8", f"{right}.int8", f"{left}.scale", f"{right}.scales", f"{left}.zero", ""]
        inputs.append(bias.input[1] if bias else "")
        nodes.append(helper.make_node("MatMulIntegerToFloat", inputs, [out.output[0]], node.name, domain=_RUNTIME))
        return nodes

    def _activation(self, name: str) -> onnx.NodeProto:
        """The node that quantises an activation to uint8; 0 stays exactly 0."""
        # Padding and ReLU give exact zeros, which must not be shifted by rounding.
        low, high = min(self._bounds[name][0], 0.0), max(self._bounds[name][1], 0.0)
        scale = max((high - low) / 255, float(_TINY))
        self._constant(np.float32(scale), f"{name}.scale")
        self._constant(np.uint8(round(-low / scale)), f"{name}.zero")
        inputs = [name, f"{name}.scale", f"{name}.zero"]
        return helper.make_node("QuantizeLinear", inputs, [f"{name}.int8"], f"{name}.quantise")

    def _constant(self, array: np.ndarray | np.generic, name: str) -> None:
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
