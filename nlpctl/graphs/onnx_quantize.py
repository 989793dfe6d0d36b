"""An fp32 ONNX graph in int8, for ONNX Runtime.

paddle2onnx cannot carry Paddle's quantised graphs over: it writes fp32 products with rounded weights. So the fp32
graph is carried over, and quantised here. Only products with weights become int8: between two activations (attention)
it costs accuracy and gains nothing.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import onnx
from onnxruntime import quantization
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

from nlpctl.data.collate import Batch
from nlpctl.errors import UserError
from nlpctl.files import staged_file
from nlpctl.graphs.calibration import no_rows
from nlpctl.graphs.onnx_graph import (
    name_nodes,
    products_with_weights,
    read_graph,
    shrink_embeddings,
    sum_residuals,
)
from nlpctl.graphs.onnx_static import products_to_int8, seen_bounds


@dataclass(frozen=True)
class Int8Graph:
    """What became int8: products with a weight, recurrent layers included, and embedding tables."""

    products: int
    tables: int


def quantize_dynamic(fp32: Path, out: Path) -> Int8Graph:
    """Weights in int8 with a scale per column; activations are scaled as they come, so nothing is calibrated.

    UserError where nothing in the graph can be int8. `out` is written whole or not at all.
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
    """Weights in int8 with a scale per column, activations in uint8 between the bounds seen in `batches`.

    The bounds are the mean of those of each batch, so that one odd row does not stretch them; outputs of products
    stay fp32. 16 batches of 32 rows are enough. Batches may hold more than the graph takes.
    The file holds operators of ONNX Runtime's own (com.microsoft), so nothing else reads it.
    UserError where nothing in the graph can be int8, or there are no batches. `out` is written whole or not at all.
    """
    model, names, tables = _prepared(fp32, recurrent=False)
    activations = {node.input[0]: None for node in model.graph.node if node.name in names}  # ordered, each once
    bounds = seen_bounds(model, activations, _some(batches))
    products_to_int8(model, names, bounds)
    with staged_file(out) as stream:
        stream.write(model.SerializeToString())
    return Int8Graph(len(names), tables)


def _prepared(fp32: Path, *, recurrent: bool) -> tuple[onnx.ModelProto, list[str], int]:
    """The graph with its embedding tables in int8, the nodes to quantise, and how many tables there were."""
    model = read_graph(fp32)
    name_nodes(model.graph)
    names = products_with_weights(model.graph)
    if recurrent:
        names += [node.name for node in model.graph.node if node.op_type == "LSTM"]
    if not names:
        message = "nothing in this graph can be int8: it holds no product with a weight matrix"
        raise UserError(message, str(fp32), "use it in fp32")
    tables = shrink_embeddings(model.graph)
    sum_residuals(model.graph)
    add_pre_process_metadata(model)  # or the quantiser advises to do what was done here
    return model, names, tables


def _some(batches: Iterable[Batch]) -> Iterable[Batch]:
    """`batches`, of which there has to be one."""
    first = next(stream := iter(batches), None)
    if first is None:
        raise no_rows()
    return chain([first], stream)


@contextlib.contextmanager
def _written(out: Path) -> Iterator[str]:
    """A file for the quantiser to write, which becomes `out` when it is done."""
    with tempfile.TemporaryDirectory(prefix="nlpctl-int8-") as folder:
        file = Path(folder) / "model.onnx"
        yield str(file)
        with staged_file(out) as stream:
            stream.write(file.read_bytes())
