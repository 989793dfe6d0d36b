"""An fp32 ONNX graph in fp16, for ONNX Runtime on a card.

ONNX Runtime computes a graph in the types that it is written in, so fp16 takes a file of its own. Its converter (the
maintained form of onnxconverter-common, and part of the package) is used. On a CPU such a graph can be run to compare
it: what has no fp16 kernel there is computed in fp32 between casts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onnxruntime.transformers.float16 import convert_float_to_float16

from nlpctl.errors import RunFailed
from nlpctl.files import staged_file
from nlpctl.graphs.onnx_graph import read_graph
from nlpctl.runtime.worker import how_ended, run_python

_LOAD = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"


def write_fp16(fp32: Path, out: Path) -> None:
    """Write weights and activations in fp16. Inputs and outputs keep their types; constants beyond 65,504 become that.

    UserError if `fp32` is not an ONNX graph, RunFailed if ONNX Runtime cannot load the new one. `out` is written
    atomically.
    """
    model = read_graph(fp32)
    outputs = [copy.deepcopy(output) for output in model.graph.output]
    constants = {tensor.name for tensor in model.graph.initializer}
    # The converter would define an output that is a constant (the transitions of a CRF) twice.
    _replace(model.graph.output, [each for each in outputs if each.name not in constants])
    model = convert_float_to_float16(model, keep_io_types=True)
    _replace(model.graph.output, outputs)
    with staged_file(out) as stream:
        stream.write(model.SerializeToString())
    # In a process of its own: ONNX Runtime 1.31 dies on the graph of a BiGRU, in its optimisation of casts.
    loaded = run_python("-c", _LOAD, str(out))
    if loaded.failure:
        raise RunFailed(f"ONNX Runtime cannot load the fp16 graph ({how_ended(loaded.code)})", hint="use it in fp32")


def _replace(field: Any, values: Iterable[Any]) -> None:
    del field[:]
    field.extend(values)
