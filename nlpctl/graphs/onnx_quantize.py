"""An fp32 ONNX graph in int8, for ONNX Runtime.

paddle2onnx cannot convert Paddle's quantised graphs: it writes fp32 products with rounded weights. So the fp32 graph is
converted, and quantised here. Only products with weights become int8: between two activations (attention) it costs
accuracy and gains nothing.
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
    """The number of parts that became int8: products with a weight, including recurrent layers, and embedding
    tables."""

    products: int
    tables: int


def quantize_dynamic(fp32: Path, out: Path) -> Int8Graph:
    """Write weights in int8 with a scale per column. Activations are scaled at run time, so no calibration is needed.

    UserError if nothing in the graph can be int8. `out` is written atomically.
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

    The bounds are means over batches, so that one outlier does not stretch them; outputs of products stay fp32. 16
    batches of 32 rows are enough. Batches may have more keys than the graph has inputs. The file uses operators of ONNX
    Runtime (com.microsoft), so no other engine reads it. UserError if nothing in the graph can be int8, or there are no
    batches. `out` is written atomically.
    """
    model, names, tables = _prepared(fp32, recurrent=False)
    # Query, key and value products read one tensor, which is measured once.
    activations = {node.input[0]: None for node in model.graph.node if node.name in names}  # an ordered set
    bounds = seen_bounds(model, activations, _some(batches))
    products_to_int8(model, names, bounds)
    with staged_file(out) as stream:
        stream.write(model.SerializeToString())
    return Int8Graph(len(names), tables)


def _prepared(fp32: Path, *, recurrent: bool) -> tuple[onnx.ModelProto, list[str], int]:
    """The graph with its embedding tables in int8, the nodes to quantise, and the number of these tables."""
    model = read_graph(fp32)
    name_nodes(model.graph)
    names = products_with_weights(model.graph)
    if recurrent:
        names += [node.name for node in model.graph.node if node.op_type == "LSTM"]
    if not names:
        message = "nothing in this graph can be int8: it has no wide product with a weight matrix"
        raise UserError(message, str(fp32), "use it in fp32")
    tables = shrink_embeddings(model.graph)
    sum_residuals(model.graph)
    add_pre_process_metadata(model)  # else the quantiser advises the preprocessing that was done here
    return model, names, tables


def _some(batches: Iterable[Batch]) -> Iterable[Batch]:
    """`batches`; UserError if there are none."""
    first = next(stream := iter(batches), None)
    if first is None:
        raise no_rows()
    return chain([first], stream)


@contextlib.contextmanager
def _written(out: Path) -> Iterator[str]:
    """A temporary file for the quantiser, which becomes `out` on success."""
    with tempfile.TemporaryDirectory(prefix="nlpctl-int8-") as folder:
        file = Path(folder) / "model.onnx"
        yield str(file)
        with staged_file(out) as stream:
            stream.write(file.read_bytes())
