"""Reads a ProgramDesc, the graph in a `__model__` (Paddle 1.x) or a `.pdmodel` (2.x) file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError
from nlpctl.formats.safe_pickle import BROKEN_HINT
from nlpctl.outputs import refuse_pipe
from nlpctl.paddle_version import described_tensor, describes_tensor
from nlpctl.upstream.eager_mode import keep_eager_mode

LARGEST = 1 << 27  # bytes; a ProgramDesc holds no parameters, and takes up to a hundred times as much memory
MOST_PARTS = 200_000  # operators and variables; a network of 100 layers has some 10,000


def read_program(file: Path) -> Program:
    """Read a program. UserError: the file is cut off, damaged or none."""
    # paddle's generated classes; importing them imports paddle, so not before a program is there to read
    from google.protobuf.message import DecodeError
    from paddle.base.proto import framework_pb2

    refuse_pipe(file)
    if file.stat().st_size > LARGEST:
        message = f"is larger than any program ({LARGEST >> 20} MiB)"
        raise UserError(message, where=str(file), hint=BROKEN_HINT)
    serialized = file.read_bytes()
    desc = framework_pb2.ProgramDesc()
    try:
        desc.ParseFromString(serialized)
        return _program(file, serialized, desc, framework_pb2.VarType.Type)
    except (DecodeError, ValueError) as error:
        reason = str(error) or "no ProgramDesc"
        raise UserError(f"the program is cut off or damaged ({reason})", where=str(file), hint=BROKEN_HINT) from None


def looks_like_program(head: bytes, size: int) -> bool:
    """Whether a file of `size` bytes that begins with `head` is a serialized ProgramDesc: field 1, a block, whose
    field 1 is its index, 0."""
    if head[:1] != b"\x0a":
        return False
    length = shift = 0
    for position, byte in enumerate(head[1:6], start=2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return length <= size and head[position : position + 2] == b"\x08\x00"
    return False


@dataclass(frozen=True)
class Program:
    """`operators`: in the order they run; those of a sub-block (a loop, a condition) stand behind the one that
    runs it. `feeds`, `fetches`: names in the order of the arguments; a training program has none.
    `version`: such as 2006002, or 0. `serialized`: the bytes of the file, for `paddle.static.deserialize_program`.
    `operator_types`: those of all blocks, whether anything runs the block or not.
    """

    file: Path
    operators: tuple[Operator, ...]
    variables: Mapping[str, ProgramVariable]
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    version: int
    serialized: bytes
    operator_types: frozenset[str]

    @cached_property
    def persistables(self) -> tuple[str, ...]:
        """The names of the persistable variables, sorted, as a combined file has them."""
        return tuple(sorted(name for name, variable in self.variables.items() if variable.persistable))


@dataclass(frozen=True)
class ProgramVariable:
    """One variable as the program declares it. `shape`: -1 where a size is free; `dtype`: as in StaticVariable.

    `persistable`: it is kept in files. `is_parameter`: it is trained; recorded in training programs of 2.x only.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    persistable: bool
    is_parameter: bool


@dataclass(frozen=True)
class Operator:
    """One operator. `inputs` and `outputs`: slot, such as X or Y, to the names of its variables."""

    type: str
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, Any]

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of all inputs, slot by slot."""
        return tuple(name for names in self.inputs.values() for name in names)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(name for names in self.outputs.values() for name in names)


# -- from the protobuf message ----------------------------------------------------------------------------------------


def _program(file: Path, serialized: bytes, desc: Any, types: Any) -> Program:
    if not desc.blocks:
        raise ValueError("it has no block")
    if (parts := sum(len(block.ops) + len(block.vars) for block in desc.blocks)) > MOST_PARTS:
        raise ValueError(f"it has {parts:,} operators and variables, and {MOST_PARTS:,} are read")
    feeds, fetches = _ends(desc)
    return Program(
        file=file,
        operators=tuple(_operators(desc)),
        variables={
            _text(variable.name): _variable(variable, types)
            for block in reversed(desc.blocks)  # a name means the variable of the outermost block
            for variable in block.vars
        },
        feeds=feeds,
        fetches=fetches,
        version=desc.version.version,
        serialized=serialized,
        operator_types=frozenset(_text(op.type) for block in desc.blocks for op in block.ops),
    )


_DTYPES = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "FP16": "float16",
    "BF16": "bfloat16",
    "FP32": "float32",
    "FP64": "float64",
}


def _variable(desc: Any, types: Any) -> ProgramVariable:
    """The variable of a VarDesc. Feed, fetch and reader variables are marked persistable too, but are in no file."""
    is_tensor = describes_tensor(desc.type)
    tensor = described_tensor(desc.type).tensor
    return ProgramVariable(
        name=_text(desc.name),
        shape=tuple(tensor.dims),
        dtype=_DTYPES.get(types.Name(tensor.data_type), "other") if is_tensor else "other",
        persistable=desc.persistable and is_tensor,
        is_parameter=desc.is_parameter,
    )


def _ends(desc: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The variables that the operators feed and fetch of block 0 fill and read, in the order of their column."""
    columns_of: dict[str, dict[int, str]] = {"feed": {}, "fetch": {}}
    for op in desc.blocks[0].ops:
        if op.type in columns_of:
            column = next((attribute.i for attribute in op.attrs if attribute.name == "col"), 0)
            slots = op.outputs if op.type == "feed" else op.inputs
            columns_of[op.type][column] = next((_text(name) for slot in slots for name in slot.arguments), "")
    feeds, fetches = (tuple(by_column[column] for column in sorted(by_column)) for by_column in columns_of.values())
    return feeds, fetches


def _operators(desc: Any) -> Iterator[Operator]:
    """The operators of block 0, each followed by those of the blocks it runs; a block is entered once."""
    entered = {0}
    waiting = [iter(desc.blocks[0].ops)]
    while waiting:
        op = next(waiting[-1], None)
        if op is None:
            waiting.pop()
            continue
        yield Operator(
            type=_text(op.type),
            inputs={_text(slot.parameter): tuple(map(_text, slot.arguments)) for slot in op.inputs},
            outputs={_text(slot.parameter): tuple(map(_text, slot.arguments)) for slot in op.outputs},
            attributes={_text(attribute.name): _value(attribute) for attribute in op.attrs},
        )
        # Reversed, because `waiting` is a stack: the first block is to be popped first.
        for inner in reversed(list(_blocks_of(op))):
            if not 0 <= inner < len(desc.blocks):
                raise ValueError(f"operator {op.type} runs block {inner} of {len(desc.blocks)}")
            # A forged program may refer to its own block, and the walk would not end.
            if inner not in entered:
                entered.add(inner)
                waiting.append(iter(desc.blocks[inner].ops))


def _blocks_of(op: Any) -> Iterator[int]:
    for attribute in op.attrs:
        if attribute.HasField("block_idx"):
            yield attribute.block_idx
        yield from attribute.blocks_idx


def _value(attribute: Any) -> Any:
    """The value of an OpDesc.Attr: whichever field is set; a list as a tuple."""
    # Each type of value has its own field in OpDesc.Attr; only the one that is set is listed.
    values = [value for field, value in attribute.ListFields() if field.name not in ("name", "type")]
    if not values:
        return ()  # an empty list
    value = values[0]
    is_list = not isinstance(value, bool | int | float | str) and not hasattr(value, "DESCRIPTOR")
    return tuple(value) if is_list else value


def _text(name: Any) -> str:
    """A name; what is no UTF-8 comes as bytes."""
    if not isinstance(name, str):
        raise ValueError(f"a name that is not text: {name[:40]!r}")
    return name


# -- static mode ------------------------------------------------------------------------------------------------------


@contextmanager
def static_mode() -> Iterator[None]:
    """Static mode inside, in which alone Paddle loads and runs programs; afterwards whatever was before."""
    import paddle

    was_dynamic = paddle.in_dynamic_mode()
    paddle.enable_static()
    try:
        yield
    finally:
        if was_dynamic:
            paddle.disable_static()
            keep_eager_mode()
