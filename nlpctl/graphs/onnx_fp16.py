"""An fp32 ONNX graph in fp16, for ONNX Runtime on a card.

ONNX Runtime computes a graph in the types that it is written in, so fp16 takes a file of its own. Its converter (the
maintained form of onnxconverter-common, and part of the package) is used. On a CPU such a graph can be run to compare
it: what has no fp16 kernel there is computed in fp32 between casts.
"""

from __future__ import annotations

from pathlib import Path

from onnxruntime.transformers.float16 import convert_float_to_float16

from nlpctl.files import staged_file
from nlpctl.graphs.onnx_graph import read_graph


def write_fp16(fp32: Path, out: Path) -> None:
    """Write weights and activations in fp16. Inputs and outputs keep their types; constants beyond 65,504 become that.

    UserError if `fp32` is not an ONNX graph. `out` is written atomically.
    """
    model = convert_float_to_float16(read_graph(fp32), keep_io_types=True)
    with staged_file(out) as stream:
        stream.write(model.SerializeToString())
