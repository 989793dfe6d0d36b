"""Programs of strangers: they compute or they end, and the process that asked goes on."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.base.proto import framework_pb2

from nlpctl.convert.proof import CannotRun, run_program
from nlpctl.convert.source import read_static
from nlpctl.formats.operators import OPERATORS
from nlpctl.formats.program import Program, read_program, static_mode


def arrays_of(model) -> dict[str, np.ndarray]:
    return {name: variable.array for name, variable in model.variables.items()}


def test_what_a_program_computes(saved):
    model = read_static(saved.folder / "jit")
    ids = np.arange(10).reshape(2, 5)
    (output,) = run_program(model.program, arrays_of(model), {"ids": ids}, model.program.fetches).values()
    loaded = paddle.jit.load(str(saved.prefix("jit")))
    loaded.eval()
    np.testing.assert_allclose(output, loaded(paddle.to_tensor(ids)).numpy(), atol=1e-6)


def test_a_training_program_is_cut_down(saved):
    """The optimizer's operators are none that are run; what the output needs has none of them."""
    model = read_static(saved.folder / "combined")
    fetch = next(op.writes[0] for op in reversed(model.program.operators) if op.type == "elementwise_add")
    ids = np.arange(10).reshape(2, 5)
    outputs = run_program(model.program, arrays_of(model), {"ids": ids}, [fetch])
    inference = read_static(saved.folder / "inference")
    (expected,) = run_program(inference.program, arrays_of(inference), {"ids": ids}, inference.program.fetches).values()
    np.testing.assert_array_equal(outputs[fetch], expected)
    whole = dataclasses.replace(model.program, fetches=(fetch,))
    with pytest.raises(CannotRun, match="operators that nlpctl does not run: adamw"):
        run_program(whole, arrays_of(model), {"ids": ids}, [fetch])


def made(tmp_path: Path, build: Callable[[], Any]) -> tuple[Program, str]:
    """A program that `build` makes, and the name of its output."""
    with static_mode(), paddle.utils.unique_name.guard():
        main = paddle.static.Program()
        with paddle.static.program_guard(main, paddle.static.Program()):
            output = build()
    (tmp_path / "__model__").write_bytes(main.desc.serialize_to_string())
    return read_program(tmp_path / "__model__"), output.name


def test_a_program_that_fills_the_memory(tmp_path):
    program, output = made(tmp_path, lambda: paddle.full([1 << 20, 1 << 16], 1.0) * 2.0)  # 256 GiB
    with pytest.raises(CannotRun, match=r"Paddle cannot run the program \(.*(memory|Alloc)|the process that ran it"):
        run_program(program, {}, {}, [output])


def test_a_program_that_never_ends(tmp_path):
    def build() -> Any:
        count = paddle.zeros([1])
        (result,) = paddle.static.nn.while_loop(lambda value: value > -1.0, lambda value: [value + 1.0], [count])
        return result

    program, output = made(tmp_path, build)
    with pytest.raises(CannotRun, match="the process that ran it failed: no answer within 6 s"):
        run_program(program, {}, {}, [output], seconds=6)


def test_a_program_that_writes_files(tmp_path):
    trace = tmp_path / "written"

    def build() -> Any:
        value = paddle.ones([2])
        block = paddle.static.default_main_program().global_block()
        block.append_op(type="save", inputs={"X": [value]}, attrs={"file_path": str(trace)})
        return value

    program, output = made(tmp_path, build)
    assert "save" in {operator.type for operator in program.operators}
    whole = dataclasses.replace(program, fetches=(output,))
    with pytest.raises(CannotRun, match="operators that nlpctl does not run: save"):
        run_program(whole, {}, {}, [output])
    assert not trace.exists()


# What texts say among the attributes of operators that only compute: how, in which layout, with which types. Tables and
# epmap are of parameter servers, which Paddle has no more.
HARMLESS = """
    UPLO Reduce act_method act_type activation activation_type algo atol bias_type_str candidate_activation
    cell_activation combiner compute_dtype data_format data_layout driver dropout_implementation entry entry_config
    epmap equation ex_states fc_activation functor_list fuse_activation gate_activation interp_method mask_type_str
    message_op mkldnn_data_type mode norm_type normalization op_callstack op_device op_namescope op_role_var
    output_data_type output_format padding_algorithm padding_mode pooling_type pooltype reduce_op reduction rng_name
    rtol skip_eager_deletion_vars states str_value table_class table_names trans unpooling_type weight_dtype
""".split()


def test_no_operator_that_runs_takes_a_text_that_may_be_a_place_or_code():
    texts = (framework_pb2.STRING, framework_pb2.STRINGS)
    for serialized in paddle.base.core.get_all_op_protos():
        proto = framework_pb2.OpProto.FromString(bytes(serialized))
        if proto.type in OPERATORS:
            others = {each.name for each in proto.attrs if each.type in texts} - set(HARMLESS)
            assert not others, f"{proto.type}: see what it does with {others}"


def test_what_touches_files_programs_and_processes_does_not_run():
    words = "save|load|file|py_|send|recv|listen|c_|push|pull|reader|engine|program|distributed|enqueue|ap_|print"
    alike = re.compile(f"(?:^|_)(?:{words})(?:_|$)|^(?:{words})")
    read = {"graph_send_recv", "graph_send_ue_recv", "graph_send_uv"}  # messages between the nodes of a graph
    assert {name for name in OPERATORS if alike.search(name)} == read


def test_an_operator_that_paddle_lacks(saved):
    model = read_static(saved.folder / "jit")
    serialized = model.program.serialized.replace(b"lookup_table_v2", b"lookup_table_v7")
    program = dataclasses.replace(model.program, serialized=serialized)
    with pytest.raises(CannotRun, match="Paddle cannot run the program|operators that nlpctl does not run"):
        run_program(program, arrays_of(model), {"ids": np.zeros((1, 2), np.int64)}, program.fetches)
