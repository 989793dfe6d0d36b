"""The roles of parameters in a graph, by the operators that read them, and their order.

Two graphs of the same network have equally many parameters per role and shape, in the same order, whatever their names.
The query, key and value projections of an attention have equal shapes and operators; the operators that read their
results distinguish them.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nlpctl.formats.program import Operator, read_program

Shape = tuple[int, ...]
Role = tuple[str, ...]

# What one operator does under several names, and which of its inputs are what.
_ROLES: Mapping[tuple[str, str], str] = {
    ("mul", "Y"): "weight",
    ("matmul", "Y"): "weight",
    ("matmul_v2", "Y"): "weight",
    ("fc", "W"): "weight",
    ("fc", "Bias"): "bias",
    ("elementwise_add", "Y"): "bias",
    ("lookup_table", "W"): "embedding",
    ("lookup_table_v2", "W"): "embedding",
}
ATTENTION = ("query", "key", "value")
_PRODUCTS = ("matmul", "matmul_v2")
# What stands between the layers of an attention and its products, and changes neither.
_PASSED = ("elementwise_add", "reshape", "reshape2", "transpose", "transpose2", "scale", "dropout", "assign", "cast")
_TRAINING_ROLES = 0x1 | 0x2 | 0x8 | 0x10  # op_role: backward, optimizer, distributed, learning rate


@dataclass(frozen=True)
class Place:
    """A parameter where it is read first. `role`: what the operator does with it.

    `bit` stands for it in `before`, which has the bits of the parameters that the operator's inputs depend on.
    """

    name: str
    role: Role
    shape: Shape
    bit: int
    before: int


def in_line(found: Sequence[Place]) -> bool:
    """Whether each place depends on the one before, so that their order is unique."""
    return all(one.bit & other.before for one, other in pairwise(found))


def forward_part(operators: Iterable[Operator]) -> list[Operator]:
    """The operators without those of training, and without feed and fetch."""
    return [
        op
        for op in operators
        if op.type not in ("feed", "fetch") and not int(op.attributes.get("op_role", 0)) & _TRAINING_ROLES
    ]


def needed_for(operators: Sequence[Operator], outputs: Iterable[str]) -> list[Operator]:
    """Those of `operators` that `outputs` depend on, in their order."""
    wanted, kept = set(outputs), []
    for op in reversed(operators):
        if wanted.intersection(op.writes):
            wanted.update(op.reads)
            kept.append(op)
    return kept[::-1]


def leaves(operators: Sequence[Operator], inputs: Iterable[str], parameters: Iterable[str]) -> list[str]:
    """The variables that `operators` compute from `inputs` and parameters alone and that no such operator reads.

    In a training graph these are the outputs of the network: what follows needs the labels as well.
    """
    known = {*inputs, *parameters}
    fed = set(inputs)
    written: dict[str, None] = {}
    read: set[str] = set()
    for op in operators:
        if set(op.reads) <= known:
            known.update(op.writes)
            if fed.intersection(op.reads):
                fed.update(op.writes)
                read.update(op.reads)
                # Other slots hold by-products for the backward pass, such as the mask of a dropout or the shape of a
                # reshape2.
                slots = [slot for slot in op.outputs if slot in ("Out", "Y", "Output")] or list(op.outputs)
                written.update(dict.fromkeys(name for slot in slots for name in op.outputs[slot]))
    return [name for name in written if name not in read]


def places(operators: Sequence[Operator], shapes: Mapping[str, Shape]) -> list[Place]:
    """Every parameter (a name in `shapes`) that is read, in the order of its first reading."""
    graph = _Graph(operators, shapes)
    bits = {name: 1 << index for index, name in enumerate(shapes)}
    depends = dict(bits)  # variable to the bits of the parameters that it depends on
    found: dict[str, Place] = {}
    for op in operators:
        for slot, names in op.inputs.items():
            for index, name in enumerate(names):
                if name in shapes and name not in found:
                    # Sets of parameters as bits of an integer: a network has hundreds, and the union is one operation.
                    before = _all(depends, (each for each in op.reads if each not in shapes))
                    found[name] = Place(name, graph.role(op, slot, index), shapes[name], bits[name], before)
        reached = _all(depends, op.reads)
        for name in op.writes:
            depends[name] = depends.get(name, 0) | reached
    return list(found.values())


def _all(depends: Mapping[str, int], names: Iterable[str]) -> int:
    found = 0
    for name in names:
        found |= depends.get(name, 0)
    return found


class _Graph:
    def __init__(self, operators: Sequence[Operator], parameters: Iterable[str]):
        self._parameters = set(parameters)
        self._readers: dict[str, list[tuple[Operator, str]]] = {}
        self._writer: dict[str, Operator] = {}
        for op in operators:
            for slot, names in op.inputs.items():
                for name in names:
                    self._readers.setdefault(name, []).append((op, slot))
            self._writer.update(dict.fromkeys(op.writes, op))

    def role(self, op: Operator, slot: str, index: int) -> Role:
        known = _ROLES.get((op.type, slot))
        if known is None:
            return (op.type, slot, str(index))
        return (known, self._attention(op)) if known in ("weight", "bias") else (known,)

    def _attention(self, op: Operator) -> str:
        """query, key or value where the result of `op` becomes a factor of an attention's products; else ""."""
        for _ in range(20):  # operators between a layer and the product
            readers = [reader for name in op.writes for reader in self._readers.get(name, ())]
            # A result with several readers is no projection of an attention, and following one of them would be a
            # guess.
            if len(readers) != 1:
                return ""
            op, slot = readers[0]
            if op.type in _PRODUCTS and not self._parameters.intersection(op.reads):
                if slot == "X":
                    return "query"
                # Q x K^T and P x V are the same operator; only the second has the softmax before it.
                return "value" if self._comes_from_softmax(op.inputs["X"][0]) else "key"
            passed_on = op.type in _PASSED and slot == "X"
            if not passed_on or (op.type == "elementwise_add" and not self._parameters.intersection(op.reads)):
                return ""
        return ""

    def _comes_from_softmax(self, name: str) -> bool:
        for _ in range(20):
            op = self._writer.get(name)
            if op is None or op.type == "softmax":
                return op is not None
            if op.type not in _PASSED:
                return False
            name = op.inputs["X"][0]
        return False


# The static graph of a dygraph network, in the same form as static programs that are read.


INPUTS = ("input_ids", "token_type_ids")


@dataclass(frozen=True)
class Traced:
    """Operators of a network and the names of its outputs. Parameters bear the names of Paddle's counter."""

    operators: tuple[Operator, ...]
    outputs: tuple[str, ...]


class NotTraceable(Exception):
    """Paddle cannot make a graph of this network. `str()` says why."""


def input_names(network: Any) -> list[str]:
    """Those of INPUTS that the network takes."""
    return [name for name in INPUTS if name in inspect.signature(network.forward).parameters]


def without_effect(network: Any) -> set[str]:
    """Internal names of the parameters that no output depends on, such as a tagger's pooler. Raises NotTraceable."""
    traced = trace(network)
    read = {name for op in needed_for(traced.operators, traced.outputs) for name in op.reads}
    return {parameter.name for parameter in network.parameters()} - read


def trace(network: Any) -> Traced:
    """Translate `network` to a static graph, leaving it as it is. Raises NotTraceable."""
    import paddle
    from paddle.static import InputSpec

    specs: Sequence[Any] = [InputSpec([None, None], "int64", name) for name in input_names(network)]
    network.eval()
    try:
        # full_graph: otherwise Paddle may fall back to running parts of the network in Python, outside the graph.
        static = paddle.jit.to_static(network.forward, input_spec=specs, full_graph=True)
        program = static.concrete_program
    except Exception as error:  # Paddle's translation raises nearly anything
        raise NotTraceable((str(error).strip().splitlines() or [type(error).__name__])[-1][:200]) from error
    finally:
        vars(network).pop("forward", None)  # where Paddle put the translated one
    with tempfile.TemporaryDirectory(prefix="nlpctl-graph-") as folder:
        file = Path(folder) / "network.pdmodel"
        file.write_bytes(program.main_program.desc.serialize_to_string())
        operators = read_program(file).operators
    return Traced(operators, tuple(each.name for each in program.outputs))


# The operators allowed in a verification: only those that compute on tensors.
#
# Excluded on purpose: save, load and similar, py_func, print, readers, and all that speaks to other processes.

_WORDS = """
abs accuracy arg_max arg_min argsort assign assign_value batch_norm bilinear_interp bmm cast ceil clip concat
conditional_block conv1d conv2d cos crf_decoding cumsum depthwise_conv2d dot dropout elementwise_add elementwise_div
elementwise_floordiv elementwise_max elementwise_min elementwise_mod elementwise_mul elementwise_pow elementwise_sub
equal erf exp expand expand_as expand_as_v2 expand_v2 eye fc fill_any_like fill_constant fill_constant_batch_size_like
fill_zeros_like fill_zeros_like2 flatten flatten2 flatten_contiguous_range flip floor fused_attention fused_feedforward
gather gather_nd gather_tree gelu greater_equal greater_than group_norm gru hard_sigmoid hard_swish increment
index_select instance_norm isfinite isfinite_v2 isinf_v2 isnan_v2 kldiv_loss label_smooth layer_norm leaky_relu
less_equal less_than linear_chain_crf lod_reset log log_softmax logical_and logical_not logical_or logsumexp
lookup_table lookup_table_v2 lstm masked_select matmul matmul_v2 max mean meshgrid min mish mul multihead_matmul norm
not_equal one_hot one_hot_v2 p_norm pad pad2d pad3d pool2d pow prelu range reciprocal reduce_all reduce_any reduce_max
reduce_mean reduce_min reduce_prod reduce_sum relu relu6 reshape reshape2 reverse rnn roll round rsqrt scale scatter
scatter_nd_add select_input select_output selu sequence_concat sequence_conv sequence_expand sequence_expand_as
sequence_mask sequence_pad sequence_pool sequence_reshape sequence_reverse sequence_softmax sequence_unpad set_value
shape sigmoid sign silu sin slice softmax softplus softsign split sqrt square squeeze squeeze2 stack stanh
strided_slice sum swish tanh tanh_shrink tensor_array_to_tensor tile top_k top_k_v2 transpose transpose2 tril_triu
unbind unfold unique unsqueeze unsqueeze2 unstack viterbi_decode where where_index while write_to_array
read_from_array lod_array_length array_length
"""
OPERATORS = frozenset(_WORDS.split())
