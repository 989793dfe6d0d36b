"""The place of parameters in graphs: roles, order, and where neither is certain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest

from nlpctl.convert.graph import by_place, forward_part, in_line, leaves, needed_for, places
from nlpctl.convert.match import Matcher, target_parameters
from nlpctl.convert.variables import StaticVariable
from nlpctl.formats.program import Operator, Program, read_program, static_mode


class Branches(paddle.nn.Layer):
    """Two layers side by side, and two one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.words = paddle.nn.Embedding(7, 4)
        self.left, self.right = paddle.nn.Linear(4, 4, bias_attr=False), paddle.nn.Linear(4, 4, bias_attr=False)
        self.first, self.second = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)
        self.unused = paddle.nn.Linear(4, 4)

    def forward(self, input_ids: paddle.Tensor) -> paddle.Tensor:
        states = self.words(input_ids)
        states = self.left(states) * self.right(states)
        return self.second(paddle.tanh(self.first(states)))


@pytest.fixture
def network() -> paddle.nn.Layer:
    with paddle.utils.unique_name.guard():
        network = Branches()
    network.eval()
    return network


def program_of(folder: Path, *, swapped: bool = False) -> Program:
    """The same network written as a program by hand, its parameters called a, b, c, d, e (words) and f, g (biases)."""
    with static_mode():
        program = paddle.static.Program()
        with paddle.static.program_guard(program, paddle.static.Program()):
            ids = paddle.static.data("input_ids", [-1, -1], "int64")

            def weight(name: str, *shape: int):
                attribute = paddle.ParamAttr(name=name)
                return paddle.static.create_parameter(list(shape), "float32", attr=attribute)

            states = paddle.nn.functional.embedding(ids, weight("e", 7, 4))
            order = ("b", "a") if swapped else ("a", "b")
            products = {name: paddle.matmul(states, weight(name, 4, 4)) for name in order}
            states = products["a"] * products["b"]
            states = paddle.tanh(paddle.matmul(states, weight("c", 4, 4)) + weight("f", 4))
            output = paddle.matmul(states, weight("d", 4, 4)) + weight("g", 4)
            content = paddle.static.serialize_program([ids], [output], program=program)
    file = folder / "model.pdmodel"
    file.write_bytes(content)
    return read_program(file)


SHAPES = {"e": (7, 4), "a": (4, 4), "b": (4, 4), "c": (4, 4), "d": (4, 4), "f": (4,), "g": (4,)}


def match(network: paddle.nn.Layer, program: Program):
    variables = {name: StaticVariable(name, np.zeros(shape, "f4")) for name, shape in SHAPES.items()}
    matcher = Matcher(target_parameters(network, "branches"), variables, "branches")
    by_place(matcher, program, network)
    return matcher.result()


def test_parameters_have_roles_and_an_order(tmp_path):
    program = program_of(tmp_path)
    found = places(needed_for(forward_part(program.operators), program.fetches), SHAPES)
    assert [(each.name, each.role[0]) for each in found] == [
        ("e", "embedding"), ("a", "weight"), ("b", "weight"), ("c", "weight"), ("f", "bias"),
        ("d", "weight"), ("g", "bias"),
    ]  # fmt: skip
    by_name = {each.name: each for each in found}
    assert in_line([by_name[name] for name in "acd"]) and in_line([by_name[name] for name in "fg"])
    assert not in_line([by_name[name] for name in "ab"])


def test_graphs_of_the_same_code_are_matched_place_by_place(network, tmp_path):
    result = match(network, program_of(tmp_path))
    found = {each.parameter.name: each.candidate.static[0] for each in result.matches}
    assert found == {
        "words.weight": "e", "left.weight": "a", "right.weight": "b", "first.weight": "c", "first.bias": "f",
        "second.weight": "d", "second.bias": "g",
    }  # fmt: skip
    assert {each.name for each in result.missing} == {"unused.weight", "unused.bias"}


def one_more_bias(program: Program) -> Program:
    """The program as other code would have made it: its first bias is added twice."""
    extra = [Operator("elementwise_add", {"X": ("x",), "Y": ("h",)}, {"Out": ("y",)}, {})]
    return dataclasses.replace(program, operators=(*program.operators, *extra), fetches=(*program.fetches, "y"))


def test_branches_of_other_code_are_not_told_apart(network, tmp_path):
    program = one_more_bias(program_of(tmp_path, swapped=True))
    variables = {name: StaticVariable(name, np.zeros(shape, "f4")) for name, shape in {**SHAPES, "h": (9,)}.items()}
    matcher = Matcher(target_parameters(network, "branches"), variables, "branches")
    by_place(matcher, program, network)
    result = matcher.result()
    (ambiguity,) = result.ambiguities
    assert {each.name for each in ambiguity.parameters} == {
        "left.weight", "right.weight", "first.weight", "second.weight"
    }  # fmt: skip
    assert set(ambiguity.candidates) == set("abcd") and "is unknown" in ambiguity.why
    found = {each.parameter.name: each.candidate.static[0] for each in result.matches}
    assert found == {"words.weight": "e", "first.bias": "f", "second.bias": "g"}  # these depend on each other


def test_the_outputs_of_a_training_graph_are_what_only_the_loss_reads():
    def op(kind: str, reads: str, writes: str) -> Operator:
        return Operator(kind, {"X": tuple(reads)}, {"Out": tuple(writes)}, {})

    operators = [op("mul", "xw", "h"), op("tanh", "h", "p"), op("mul", "hv", "l"), op("cross_entropy", "ly", "c")]
    assert leaves(operators, ["x"], ["w", "v"]) == ["p", "l"]


@pytest.mark.parametrize("role", [1, 2, 8, 16])
def test_what_trains_is_no_part_of_the_network(role: int):
    make: Callable[[int], Operator] = lambda value: Operator("mul", {}, {}, {"op_role": value})  # noqa: E731
    assert forward_part([make(0), make(role), make(256)]) == [make(0), make(256)]
