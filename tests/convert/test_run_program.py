"""Programs of strangers: they compute or they end, and the process that asked goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from nlpctl.convert.proof import CannotRun, run_program
from nlpctl.convert.source import read_static
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


def test_an_operator_that_paddle_lacks(saved):
    model = read_static(saved.folder / "jit")
    serialized = model.program.serialized.replace(b"lookup_table_v2", b"lookup_table_v7")
    program = dataclasses.replace(model.program, serialized=serialized)
    with pytest.raises(CannotRun, match="Paddle cannot run the program|operators that nlpctl does not run"):
        run_program(program, arrays_of(model), {"ids": np.zeros((1, 2), np.int64)}, program.fetches)
