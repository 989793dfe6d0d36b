"""From Paddle's static graph to ONNX, by paddle2onnx in a separate process, because it may abort its process."""

from __future__ import annotations

import copy
import errno
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import paddle
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from nlpctl.errors import RunFailed
from nlpctl.files import staged_file
from nlpctl.graphs.onnx_graph import name_nodes, read_graph, read_names
from nlpctl.graphs.onnx_process import CANNOT_WRITE
from nlpctl.models.networks.bigru import BiGRUForTokenClassification
from nlpctl.runtime.worker import how_ended, run_python

OPSET = 13
MESSAGE_LINES = 5  # lines of paddle2onnx's output in a message
_MODULE = "nlpctl.graphs.onnx_process"


def write_onnx_graph(prefix: Path, file: Path, pad_id: int, where: str = "", otherwise: str = "") -> None:
    """Convert PREFIX.pdmodel to `file`. RunFailed if paddle2onnx fails, OSError if `file` cannot be written, or memory
    is exhausted.

    `where` and `otherwise` as for `extras.require_onnx`.
    """
    done = run_python("-m", _MODULE, str(prefix), str(file), str(OPSET), str(pad_id))
    if done.code == 0:
        return
    if done.code == CANNOT_WRITE:
        number = int(done.output.split()[-1])
        raise OSError(number, os.strerror(number), str(file))
    if done.code == -signal.SIGKILL:  # the system does so where memory lacks; of the network it says nothing
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), str(file))
    output = [line.strip() for line in f"{done.output}\n{done.errors}".splitlines() if line.strip()][-MESSAGE_LINES:]
    raise RunFailed(
        f"paddle2onnx could not convert the graph ({how_ended(done.code)}): " + "\n  ".join(output),
        where=where,
        hint=otherwise,
    )


# -- fp16, for ONNX Runtime on a card ---------------------------------------------------------------------------------
#
# ONNX Runtime computes a graph in the types that it is written in, so fp16 takes a file of its own. Its converter (the
# maintained form of onnxconverter-common, and part of the package) is used. On a CPU such a graph can be run to compare
# it: what has no fp16 kernel there is computed in fp32 between casts.

_LOAD = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"


def write_fp16(fp32: Path, out: Path) -> None:
    """Write weights and activations in fp16. Inputs and outputs keep their types; constants beyond 65,504 become that.
    The angles of rotary positions stay in fp32: in fp16 no odd number follows 2,048.

    UserError if `fp32` is not an ONNX graph, RunFailed if ONNX Runtime cannot load the new one. `out` is written
    atomically.
    """
    model = read_graph(fp32)
    outputs = [copy.deepcopy(output) for output in model.graph.output]
    constants = {tensor.name for tensor in model.graph.initializer}
    # The converter would define an output that is a constant (the transitions of a CRF) twice.
    _replace(model.graph.output, [each for each in outputs if each.name not in constants])
    model = convert_float_to_float16(model, keep_io_types=True, node_block_list=_angles(model.graph))
    _drop_roundings(model.graph)
    _replace(model.graph.output, outputs)
    with staged_file(out) as stream:
        stream.write(model.SerializeToString())
    # In a process of its own: ONNX Runtime 1.31 dies on the graph of a BiGRU, in its optimisation of casts.
    loaded = run_python("-c", _LOAD, str(out))
    if loaded.failure:
        raise RunFailed(f"ONNX Runtime cannot load the fp16 graph ({how_ended(loaded.code)})", hint="use it in fp32")


def _angles(graph: onnx.GraphProto) -> list[str]:
    """The names of the nodes that compute sines and cosines, and of those that these begin with."""
    name_nodes(graph)
    made_by = {name: node for node in graph.node for name in node.output}
    found: dict[str, onnx.NodeProto] = {}
    waiting = [node for node in graph.node if node.op_type in ("Cos", "Sin")]
    while waiting:
        node = waiting.pop()
        if node.name not in found:
            found[node.name] = node
            waiting += [made_by[name] for name in node.input if name in made_by]
    return list(found)


def _drop_roundings(graph: onnx.GraphProto) -> None:
    """Between two nodes that it leaves in fp32 the converter rounds to fp16: take these casts out."""
    rounded = {node.output[0]: node.input[0] for node in graph.node if node.name.endswith("_cast_to_fp16_node")}
    exact = {
        node.output[0]: rounded[node.input[0]]
        for node in graph.node
        if node.name.endswith("_cast_to_fp32_node") and node.input[0] in rounded
    }
    for node in graph.node:
        node.input[:] = [exact.get(name, name) for name in node.input]
    for casts in (exact, rounded):
        unread = casts.keys() - read_names(graph) - {output.name for output in graph.output}
        _replace(graph.node, [node for node in graph.node if node.output[0] not in unread])


def _replace(field: Any, values: Sequence[Any]) -> None:
    del field[:]
    field.extend(values)


# -- a BiGRU whose reset gate acts before the matrix product, written operator by operator ----------------------------
#
# Paddle's graph of it is a loop, which paddle2onnx cannot convert. ONNX has the same GRU (linear_before_reset 0), which
# ONNX Runtime runs far faster than a loop. Its new state is (1 - z) * candidate + z * old, so z is 1 - update, and the
# weights and biases of the update gate change their sign.

_IR_VERSION = 8


def is_own_onnx(network: paddle.nn.Layer) -> bool:
    """Whether `write_onnx_gru` writes the graph of `network`."""
    return isinstance(network, BiGRUForTokenClassification) and network.config.reset_gate == "before"


def write_onnx_gru(network: paddle.nn.Layer, input_name: str, output_names: Sequence[str], file: Path) -> None:
    """Write `network`, with or without a CRF, to `file`: int64 ids [batch, length] to float32 scores [batch, length,
    tags] and, with a CRF, its transitions.
    """
    graph = _Graph({name: value.numpy() for name, value in network.state_dict().items()})
    ids, config = input_name, network.config
    inside = graph.cast(graph.op("Not", graph.op("Equal", ids, graph.constant(np.int64(config.pad_token_id)))), "FLOAT")
    counts = graph.op("ReduceSum", graph.cast(inside, "INT32"), graph.constant(np.array([1])), keepdims=0)
    lengths = graph.op("Max", counts, graph.constant(np.array([1], np.int32)))
    embedded = graph.op("Gather", graph.parameter("bigru.embeddings.weight"), ids)
    mask = graph.op("Unsqueeze", inside, graph.constant(np.array([2])))
    sequence = graph.op("Transpose", graph.op("Mul", embedded, mask), perm=[1, 0, 2])  # time first
    for layer in range(config.num_hidden_layers):
        both = graph.gru(sequence, lengths, f"bigru.gru.layers.{layer}", config.hidden_size)
        side_by_side = graph.op("Transpose", both, perm=[0, 2, 1, 3])  # [length, 2, batch, h] to [length, batch, 2, h]
        sequence = graph.op("Reshape", side_by_side, graph.constant(np.array([0, 0, -1])))
    rows = graph.op("Transpose", sequence, perm=[1, 0, 2])
    scored = graph.op("MatMul", rows, graph.parameter("classifier.weight"))
    graph.op("Add", scored, graph.parameter("classifier.bias"), output=output_names[0])
    free = ["batch", "length"]
    outputs = [helper.make_tensor_value_info(output_names[0], TensorProto.FLOAT, [*free, config.num_labels])]
    if len(output_names) > 1:
        graph.op("Identity", graph.parameter("crf.transitions"), output=output_names[1])
        size = config.num_labels + 2
        outputs.append(helper.make_tensor_value_info(output_names[1], TensorProto.FLOAT, [size, size]))
    inputs = [helper.make_tensor_value_info(ids, TensorProto.INT64, free)]
    made = helper.make_graph(graph.nodes, "bigru", inputs, outputs, graph.tensors)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, opset_imports=opsets, producer_name="nlpctl", ir_version=_IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(file))


class _Graph:
    """Collects nodes and constants. Every method returns the name of a value."""

    def __init__(self, parameters: dict[str, np.ndarray]):
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        self._parameters = parameters

    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"node_{name}", **attributes))
        return name

    def cast(self, value: str, to: str) -> str:
        return self.op("Cast", value, to=TensorProto.DataType.Value(to))

    def constant(self, array: np.ndarray | np.generic, name: str | None = None) -> str:
        name = name or f"constant_{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def parameter(self, name: str) -> str:
        return self.constant(self._parameters[name], name)

    def gru(self, sequence: str, lengths: str, name: str, size: int) -> str:
        """Outputs [length, 2, batch, size] of a layer, 0 after the end of a row."""
        weights = self._parameters[f"{name}.input_weight"].transpose(0, 2, 1)  # [2, 3h, input]
        gates = self._parameters[f"{name}.gate_weight"].transpose(0, 2, 1)  # [2, 2h, h]
        candidate = self._parameters[f"{name}.candidate_weight"].transpose(0, 2, 1)
        recurrent = np.concatenate([gates, candidate], axis=1)
        bias = self._parameters[f"{name}.bias"][:, 0]  # [2, 3h]
        sign = np.ones(3 * size, np.float32)
        # sigmoid(-x) = 1 - sigmoid(x), so ONNX's gate z becomes 1 - update.
        sign[:size] = -1
        values = [weights * sign[:, None], recurrent * sign[:, None], np.pad(bias * sign, [(0, 0), (0, 3 * size)])]
        names = [self.constant(value, f"{name}.{part}") for value, part in zip(values, "WRB", strict=True)]
        return self.op("GRU", sequence, *names, lengths, direction="bidirectional", hidden_size=size,
                       linear_before_reset=0)  # fmt: skip
