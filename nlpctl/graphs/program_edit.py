"""Read, change and write a Paddle program with its parameters; shared by the modules of this folder."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from nlpctl.formats.lod_tensor import read_tensors, write_tensors
from nlpctl.formats.program import read_program, static_mode
from nlpctl.graphs.graph_files import paddle_files
from nlpctl.paddle_version import described_tensor

TYPES = {"float32": 5, "int32": 2, "int64": 3, "int8": 21, "uint8": 20}  # VarType.Type of framework.proto
_TENSOR = 7  # VarType.Type
_INT, _FLOAT, _BOOLEAN = 0, 1, 6  # AttrType


def read_parameters(prefix: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """PREFIX.pdmodel as Paddle's protobuf message (a ProgramDesc), and its parameters by name.

    UserError: a file is damaged.
    """
    from paddle.base.proto import framework_pb2

    program, parameters = graph_files(prefix)
    described = read_program(program)
    desc = framework_pb2.ProgramDesc()
    desc.ParseFromString(described.serialized)
    return desc, dict(zip(described.persistables, map(np.array, read_tensors(parameters)), strict=True))


def write_parameters(prefix: Path, desc: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Write PREFIX.pdmodel and PREFIX.pdiparams; every persistable variable of the program has an array."""
    program, parameters = graph_files(prefix)
    write_tensors(parameters, arrays)
    program.write_bytes(desc.SerializeToString())


def graph_files(prefix: Path) -> tuple[Path, Path]:
    """The two files of a graph."""
    program, parameters = paddle_files(prefix.name)
    return prefix.with_name(program), prefix.with_name(parameters)


# -- operators and variables of a program -----------------------------------------------------------------------------


def rename_variables(block: Any, names: Mapping[str, str]) -> None:
    """Give variables of a block other names."""
    for variable in block.vars:
        variable.name = names.get(variable.name, variable.name)
    for op in block.ops:
        for slot in (*op.inputs, *op.outputs):
            slot.arguments[:] = [names.get(name, name) for name in slot.arguments]


def declare(block: Any, name: str, dtype: str, shape: Iterable[int], *, persistable: bool = False) -> str:
    """Declare a variable of a block, new or not; -1 for a variable dimension. Returns its name."""
    variable = next((each for each in block.vars if each.name == name), None) or block.vars.add(name=name)
    variable.persistable = persistable
    variable.type.type = _TENSOR
    tensor = described_tensor(variable.type).tensor
    tensor.data_type = TYPES[dtype]
    tensor.dims[:] = shape
    return name


def operator(
    block: Any, type: str, inputs: Mapping[str, str], outputs: Mapping[str, str], **attributes: int | float
) -> Any:
    """An operator with one variable per slot, not yet in the block."""
    made = block.ops.add()
    made.type = type
    for slots, variables in ((made.inputs, inputs), (made.outputs, outputs)):
        for slot, name in variables.items():
            slots.add(parameter=slot, arguments=[name])
    for name, value in attributes.items():
        _set_attribute(made, name, value)
    # Operators live in their block; the copy can be put anywhere, and the block stays as it was.
    copy = copied(made)
    del block.ops[-1]
    return copy


def _set_attribute(op: Any, name: str, value: int | float) -> None:
    attribute = op.attrs.add(name=name)
    if isinstance(value, bool):
        attribute.type, attribute.b = _BOOLEAN, value
    elif isinstance(value, int):
        attribute.type, attribute.i = _INT, value
    else:
        attribute.type, attribute.f = _FLOAT, value


def replace_operators(block: Any, operators: Iterable[Any]) -> None:
    """Set the operators of a block, in this order."""
    copies = [copied(each) for each in operators]
    del block.ops[:]
    block.ops.extend(copies)


def set_argument(slots: Any, name: str, variable: str) -> None:
    """Put another variable into a slot of an operator."""
    next(slot.arguments for slot in slots if slot.parameter == name)[:] = [variable]


def only(slots: Any, name: str) -> str:
    """The one variable in a slot of an operator."""
    (variable,) = next(slot.arguments for slot in slots if slot.parameter == name)
    return variable


def copied(message: Any) -> Any:
    """A copy of an operator or a variable."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


# -- static mode for a while, in which programs are loaded and changed without side effects ---------------------------


@dataclass(frozen=True)
class StaticWorld:
    """An executor on the CPU with its own scope."""

    executor: paddle.static.Executor
    scope: Any


@contextlib.contextmanager
def static_world() -> Iterator[StaticWorld]:
    """Static mode with an empty scope and names counted from 0; the mode from before comes back, also after a failure.

    Quantisation always runs on the CPU, since its results are files.
    """
    with static_mode():
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope), paddle.utils.unique_name.guard():
            yield StaticWorld(paddle.static.Executor(paddle.CPUPlace()), scope)


@contextlib.contextmanager
def quiet_quantisers() -> Iterator[None]:
    """Silence Paddle's quantisers, which show their own progress bar and log every step."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(disabled)
