"""Our reading of a ProgramDesc, the graph of a `__model__` (Paddle 1.x) or a `.pdmodel` (2.x)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError


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


@dataclass(frozen=True)
class ProgramVariable:
    """One variable as the program declares it. `shape`: -1 where a size is free; `dtype`: as in StaticVariable."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    persistable: bool
    is_parameter: bool


@dataclass(frozen=True)
class Program:
    """`operators`: in the order they run; those of a sub-block (a loop, a condition) stand behind the one that
    runs it. `feeds`, `fetches`: names in the order of the arguments. `serialized`: the bytes of the file, which
    `paddle.static.deserialize_program` takes.
    """

    file: Path
    operators: tuple[Operator, ...]
    variables: Mapping[str, ProgramVariable]
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    version: int
    serialized: bytes

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the variables that are kept in files, sorted as a combined file has them."""
        return tuple(sorted(name for name, variable in self.variables.items() if variable.persistable))


def read_program(file: Path) -> Program:
    """Read a program. UserError: the file is none, or damaged."""
    raise UserError("not written yet", where=str(file))
