"""Matches by place in the graph: the n-th parameters of a role and shape in two graphs belong together.

The role of a parameter is what the operator that reads it does with it. Two graphs of the same network have equally
many parameters per role and shape, in the same order, whatever their names. This requires a unique order: each
parameter depends on the one before, or both graphs come from the same code. If the graphs differ (in heads or poolers),
only the encoder is matched, which comes first in both.

The query, key and value projections of an attention have equal shapes and operators; the operators that read their
results distinguish them.
"""

from __future__ import annotations

import inspect
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nlpctl.convert.match import Candidate, Matcher
from nlpctl.formats.program import Operator, Program, read_program
from nlpctl.report.language import Later, later

Shape = tuple[int, ...]
Role = tuple[str, ...]
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


HOW = later("place in the graph")
_Groups = Mapping[tuple[Role, Shape], Sequence[Place]]


def by_place(matcher: Matcher, program: Program, network: Any) -> None:
    """Match what is open by role, shape and order in both graphs. Where that is not certain it is an ambiguity."""
    if not matcher.open_parameters or not matcher.free_variables:
        return
    try:
        traced = trace(network)
    except NotTraceable as error:
        matcher.notes.append(later("the place in the graph was not used: Paddle cannot trace the network ({})", error))
        return
    theirs = forward_part(program.operators)
    ours = forward_part(traced.operators)
    if program.fetches:
        # Both are cut to what their outputs need: an exported graph lacks parts that dygraph computes and drops.
        theirs, ours = needed_for(theirs, program.fetches), needed_for(ours, traced.outputs)
    parameters = {parameter.internal: parameter for parameter in matcher.parameters}
    in_source = places(theirs, {name: variable.shape for name, variable in matcher.variables.items()})
    in_network = places(ours, {internal: parameter.shape for internal, parameter in parameters.items()})
    kinds = [[(each.role, each.shape) for each in variables] for variables in (in_source, in_network)]
    same_code, same_network = kinds[0] == kinds[1], Counter(kinds[0]) == Counter(kinds[1])
    if not same_network:
        in_network = [each for each in in_network if parameters[each.name].is_needed(matcher.encoder)]
    groups, candidates = _groups(in_source), []
    heads_may_follow = not same_network and _same_depth(groups, _groups(in_network))
    for group, internals in _groups(in_network).items():
        variables, free = groups.get(group, []), matcher.free_variables
        left = [parameters[each.name] for each in internals if matcher.is_open(parameters[each.name])]
        names = [each.name for each in variables if each.name in free]
        if not names or not left:
            continue
        count = _describe_counts(group, len(variables), len(internals))
        if len(variables) < len(internals) or (len(variables) > len(internals) and not heads_may_follow):
            matcher.report_ambiguity(left, names, count)
        elif not (same_code or (in_line(variables) and in_line(internals))):
            matcher.report_ambiguity(left, names, later("{}, and their order in the two graphs is unknown", count))
        else:
            candidates += [
                Candidate((one.name,), (parameters[other.name].name,), HOW)
                for one, other in zip(variables, internals, strict=False)
                if one.name in free
            ]
    matcher.propose(candidates)


def _same_depth(theirs: _Groups, ours: _Groups) -> bool:
    """Whether both have attention in as many layers, so that what one has besides belongs to its head, behind them."""
    layers = [group for group in {**theirs, **ours} if any(name in ATTENTION for name in group[0])]
    return bool(layers) and all(len(theirs.get(group, ())) == len(ours.get(group, ())) for group in layers)


def _describe_counts(group: tuple[Role, Shape], variables: int, parameters: int) -> Later:
    role, shape = group
    name = " ".join(filter(None, role))
    return later("variables of shape {} in the role {}: {}, parameters: {}", list(shape), name, variables, parameters)


def _groups(ordered: Iterable[Place]) -> _Groups:
    groups: dict[tuple[Role, Shape], list[Place]] = {}
    for place in ordered:
        groups.setdefault((place.role, place.shape), []).append(place)
    return groups


# -- the roles of parameters and their order --------------------------------------------------------------------------


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


def in_line(ordered: Sequence[Place]) -> bool:
    """Whether each place depends on the one before, so that their order is unique."""
    return all(one.bit & other.before for one, other in pairwise(ordered))


def places(operators: Sequence[Operator], shapes: Mapping[str, Shape]) -> list[Place]:
    """Every parameter (a name in `shapes`) that is read, in the order of its first reading."""
    graph = _Graph(operators, shapes)
    bits = {name: 1 << index for index, name in enumerate(shapes)}
    depends = dict(bits)  # variable to the bits of the parameters that it depends on
    first_reads: dict[str, Place] = {}
    for op in operators:
        for slot, names in op.inputs.items():
            for index, name in enumerate(names):
                if name in shapes and name not in first_reads:
                    # Sets of parameters as bits of an integer: a network has hundreds, and the union is one operation.
                    before = _all(depends, (each for each in op.reads if each not in shapes))
                    first_reads[name] = Place(name, graph.role(op, slot, index), shapes[name], bits[name], before)
        reached = _all(depends, op.reads)
        for name in op.writes:
            depends[name] = depends.get(name, 0) | reached
    return list(first_reads.values())


def _all(depends: Mapping[str, int], names: Iterable[str]) -> int:
    """The bits of all parameters that the variables `names` depend on."""
    union = 0
    for name in names:
        union |= depends.get(name, 0)
    return union


class _Graph:
    """Which operators read and write each variable, to find out what a parameter is for."""

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


# -- parts of a program -----------------------------------------------------------------------------------------------

_TRAINING_ROLES = 0x1 | 0x2 | 0x8 | 0x10  # op_role: backward, optimizer, distributed, learning rate


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


# -- the graph of a dygraph network, in the form in which static programs are read ------------------------------------

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
