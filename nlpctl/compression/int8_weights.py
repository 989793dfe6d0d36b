"""Programs with weights in int8, as Paddle's quantisers write them: reading, changing, writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.compression.parameter_file import write_tensors
from nlpctl.export.graph_files import PARAMETERS, PROGRAM
from nlpctl.static_graph.lod_tensor import read_tensors
from nlpctl.static_graph.program import read_program
from nlpctl.upstream.static_int8 import LARGEST


@dataclass(frozen=True)
class Int8Weight:
    """A weight that is int8 in the file: `steps` * `bounds` / 127 along `axis`; `operator` multiplies it out.

    `bounds`: one, or one for each place along the axis.
    """

    steps: np.ndarray
    bounds: np.ndarray
    axis: int
    operator: Any

    @property
    def name(self) -> str:
        return only(self.operator.inputs, "X")

    @property
    def scale_name(self) -> str:
        return only(self.operator.inputs, "Scale")

    @property
    def product(self) -> str:
        """The variable that holds the values."""
        return only(self.operator.outputs, "Y")

    @property
    def values(self) -> np.ndarray:
        return self.steps.astype(np.float32) * (self._along(self.bounds) / LARGEST)

    @property
    def column_bounds(self) -> np.ndarray:
        """The largest value that each column of a matrix may hold, whatever the bounds belong to."""
        if self.bounds.size == 1:
            return np.full(self.steps.shape[1], self.bounds.item(), np.float32)
        return self.bounds if self.axis == 1 else np.abs(self.values).max(axis=0)

    def _along(self, bounds: np.ndarray) -> np.ndarray:
        shape = [1] * self.steps.ndim
        if bounds.size > 1:
            shape[self.axis] = -1
        return bounds.astype(np.float32).reshape(shape)


def int8_weights(desc: Any, arrays: Mapping[str, np.ndarray]) -> Iterable[Int8Weight]:
    """The weights of a program that a dequantize_linear multiplies out."""
    for op in desc.blocks[0].ops:
        if op.type == "dequantize_linear" and only(op.inputs, "X") in arrays:
            axis = next(attribute.i for attribute in op.attrs if attribute.name == "quant_axis")
            bounds = arrays[only(op.inputs, "Scale")].reshape(-1)
            yield Int8Weight(arrays[only(op.inputs, "X")], bounds, axis, copied(op))


def read_parameters(prefix: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """PREFIX.pdmodel as Paddle's protobuf message, and the parameters of PREFIX.pdiparams by name."""
    from paddle.base.proto import framework_pb2

    program, parameters = graph_files(prefix)
    described = read_program(program)
    desc = framework_pb2.ProgramDesc()
    desc.ParseFromString(described.serialized)
    return desc, dict(zip(described.persistables, map(np.array, read_tensors(parameters)), strict=True))


def write_parameters(prefix: Path, desc: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """The other way round."""
    program, parameters = graph_files(prefix)
    write_tensors(parameters, arrays)
    program.write_bytes(desc.SerializeToString())


def copied(message: Any) -> Any:
    """A protobuf message of its own."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def only(slots: Any, name: str) -> str:
    """The one variable in a slot of an operator."""
    (found,) = next(slot.arguments for slot in slots if slot.parameter == name)
    return found


def graph_files(prefix: Path) -> tuple[Path, Path]:
    return prefix.with_name(prefix.name + PROGRAM), prefix.with_name(prefix.name + PARAMETERS)
