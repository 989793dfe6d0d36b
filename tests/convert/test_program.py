"""Programs as Paddle writes them, with sub-blocks, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle.base.proto import framework_pb2

from nlpctl.convert.parameter_sets import FileKind, kind_of
from nlpctl.errors import UserError
from nlpctl.formats.program import read_program, static_mode


def test_an_inference_program(saved):
    file = saved.prefix("jit").with_suffix(".pdmodel")
    program = read_program(file)
    assert kind_of(file) is FileKind.PROGRAM
    assert program.feeds == ("ids",) and program.version == installed_number()
    first = program.operators[1]
    assert first.type == "lookup_table_v2" and first.inputs == {"Ids": ("ids",), "W": ("embedding_0.w_0",)}
    assert first.attributes["padding_idx"] == -1
    assert first.writes == program.operators[2].inputs["X"]
    mean = next(operator for operator in program.operators if operator.type == "reduce_mean")
    assert mean.attributes["dim"] == (1,) and mean.attributes["keep_dim"] is False
    weight = program.variables["linear_0.w_0"]
    assert weight.shape == (8, 8) and weight.dtype == "float32" and weight.persistable
    assert not program.variables["ids"].persistable and program.variables["ids"].shape == (-1, -1)
    assert program.persistables == tuple(sorted(set(saved.counted.values()) - {"linear_2.w_0", "linear_2.b_0"}))
    with static_mode():
        again = paddle.static.deserialize_program(program.serialized)
    assert [operator.type for operator in again.global_block().ops] == [op.type for op in program.operators]


def installed_number() -> int:
    """2006002 for Paddle 2.6.2."""
    major, minor, patch = map(int, paddle.__version__.split(".")[:3])
    return (major * 1000 + minor) * 1000 + patch


def test_a_training_program_feeds_and_fetches_nothing(saved):
    program = read_program(saved.folder / "combined" / "__model__")
    assert program.feeds == () and program.fetches == ()
    assert "adamw" in {operator.type for operator in program.operators}
    assert set(program.persistables) == saved.trained.keys()
    trained = {name for name, variable in program.variables.items() if variable.is_parameter}
    assert trained == {"embedding_0.w_0", "fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"}


def test_operators_of_a_condition_follow_the_one_that_runs_them(tmp_path):
    class Branch(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.yes, self.no = paddle.nn.Linear(2, 2), paddle.nn.Linear(2, 2)

        def forward(self, values):
            if values.sum() > 0:
                return paddle.tanh(self.yes(values))
            return paddle.nn.functional.relu(self.no(values))

    spec = [paddle.static.InputSpec([None, 2], "float32")]
    with paddle.utils.unique_name.guard():
        network = paddle.jit.to_static(Branch(), input_spec=spec, full_graph=True)
        paddle.jit.save(network, str(tmp_path / "model"))
    types = [operator.type for operator in read_program(tmp_path / "model.pdmodel").operators]
    assert types.count("conditional_block") == 2 and types.count("tanh") == 1 and types.count("relu") == 1
    assert types.index("conditional_block") < types.index("tanh") < types.index("relu") < types.index("fetch")


def written(tmp_path: Path, desc: framework_pb2.ProgramDesc) -> Path:
    file = tmp_path / "__model__"
    file.write_bytes(desc.SerializePartialToString())
    return file


def block(desc: framework_pb2.ProgramDesc, index: int, *runs: int):
    added = desc.blocks.add(idx=index, parent_idx=index - 1)
    for inner in runs:
        operator = added.ops.add(type=f"while_{index}")
        operator.attrs.add(name="sub_block", type=framework_pb2.BLOCK, block_idx=inner)
    return added


def test_blocks_that_run_each_other_are_read_once(tmp_path):
    desc = framework_pb2.ProgramDesc()
    block(desc, 0, 1)
    block(desc, 1, 2, 0)
    block(desc, 2, 1)
    types = [operator.type for operator in read_program(written(tmp_path, desc)).operators]
    assert types == ["while_0", "while_1", "while_2", "while_1"]


def test_a_thousand_nested_blocks(tmp_path):
    desc = framework_pb2.ProgramDesc()
    for index in range(3000):
        block(desc, index, *([index + 1] if index < 2999 else []))
    assert len(read_program(written(tmp_path, desc)).operators) == 2999


def test_every_attribute_type(tmp_path):
    values = {"i": 3, "f": 0.5, "s": "x", "b": True, "l": 1 << 40, "float64": 0.1, "var_name": "v"}
    lists = {"ints": (1, 2), "floats": (0.5,), "strings": ("a", "b"), "bools": (True, False), "longs": (1 << 40,)}
    desc = framework_pb2.ProgramDesc()
    operator = block(desc, 0).ops.add(type="x")
    for name, value in {**values, **lists, "empty": ()}.items():
        attribute = operator.attrs.add(name=name, type=framework_pb2.INT)
        if name in lists:
            getattr(attribute, name).extend(value)
        elif name in values:
            setattr(attribute, name, value)
    attributes = read_program(written(tmp_path, desc)).operators[0].attributes
    assert attributes == {**values, **lists, "empty": ()}


def test_a_block_that_is_not_there(tmp_path):
    desc = framework_pb2.ProgramDesc()
    block(desc, 0, 7)
    with pytest.raises(UserError, match=r"cut off or damaged \(operator while_0 runs block 7 of 1\)"):
        read_program(written(tmp_path, desc))


def test_names_that_are_no_text(tmp_path):
    desc = framework_pb2.ProgramDesc()
    block(desc, 0).ops.add(type="some_operator")
    file = written(tmp_path, desc)
    file.write_bytes(file.read_bytes().replace(b"some_operator", b"some\xff\xfeperator"))
    with pytest.raises(UserError, match="the program is cut off or damaged"):
        read_program(file)


def test_programs_that_are_cut_off_or_flipped(saved, tmp_path):
    good = (saved.prefix("jit").with_suffix(".pdmodel")).read_bytes()
    generator = np.random.default_rng(0)
    file = tmp_path / "__model__"
    for length in range(3, len(good), 997):
        file.write_bytes(good[:length])
        with pytest.raises(UserError, match="cut off or damaged"):
            read_program(file)
    for position in generator.integers(0, len(good), 150):
        file.write_bytes(good[:position] + bytes([generator.integers(0, 256)]) + good[position + 1 :])
        kind_of(file)
        try:
            read_program(file)
        except UserError as error:
            assert "cut off or damaged" in str(error)


def test_text_is_no_program(tmp_path):
    for content in (b"\nfirst line\n", b"\n", b"\x0a\x00", b"\x0a" + b"\x80" * 6, b"\x0a\x04\x08\x01\x10\x00"):
        (tmp_path / "x").write_bytes(content)
        assert kind_of(tmp_path / "x") is FileKind.OTHER
