"""From a graph that simulates int8 to one that oneDNN computes in int8, by every shape of weight as it was meant.

What quantisers write (by calibration or by training) computes in float32 and rounds: quantize_linear and
dequantize_linear stand before each product. Paddle Inference could replace them by int8 kernels while it loads, but
takes wrong scales for the weights there. So it does so once, here; the scales are put right; and what it made is the
file. It needs `enable_mkldnn()` and no more. Weights stay int8 on disk: loading multiplies them out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle.inference as paddle_inference

from nlpctl.compression.parameter_file import write_tensors
from nlpctl.export.graph_files import PARAMETERS, PROGRAM
from nlpctl.runtime.silence import silent_stderr
from nlpctl.static_graph.lod_tensor import read_tensors
from nlpctl.static_graph.program import read_program
from nlpctl.upstream.static_int8 import LARGEST, set_weight_scales

FLOAT32 = 5  # VarType.Type of framework.proto


@dataclass(frozen=True)
class Int8Weight:
    """A weight that is int8 in the file: `steps` * `bounds` / 127 along `axis`; `operator` multiplies it out."""

    steps: np.ndarray
    bounds: np.ndarray
    axis: int
    operator: Any

    @property
    def name(self) -> str:
        return only(self.operator.inputs, "X")

    @property
    def product(self) -> str:
        """The variable that holds the values."""
        return only(self.operator.outputs, "Y")

    @property
    def values(self) -> np.ndarray:
        return self.steps.astype(np.float32) * (self._along(self.bounds) / LARGEST)

    @property
    def column_bounds(self) -> np.ndarray:
        """The largest value that each column may hold, whatever the bounds belong to."""
        if self.axis == 1:
            return self.bounds
        if self.bounds.size == 1:
            return np.full(self.steps.shape[1], self.bounds.item(), np.float32)
        return np.abs(self.values).max(axis=0)

    def _along(self, bounds: np.ndarray) -> np.ndarray:
        if bounds.size == 1:
            return bounds.reshape(()).astype(np.float32)
        shape = [1] * self.steps.ndim
        shape[self.axis] = -1
        return bounds.astype(np.float32).reshape(shape)


def write_onednn_program(simulated: Path, out: Path) -> tuple[str, ...]:
    """Write OUT.pdmodel and OUT.pdiparams from SIMULATED.*, in the onnx_format of Paddle's quantisers.

    Returns the weights that are multiplied in int8. Inputs and outputs keep their names and order.
    """
    with tempfile.TemporaryDirectory(prefix=".int8-", dir=out.parent) as temporary:
        plain, made = Path(temporary, "plain"), Path(temporary, "_optimized")
        desc, arrays = _read(simulated)
        weights = {weight.name: weight for weight in _int8_weights(desc, arrays)}
        variables = {variable.name: variable for variable in desc.blocks[0].vars}
        _write(plain, *_multiplied_out(desc, arrays, weights))
        _optimise(plain, made.parent)
        desc, arrays = _read(made)
    int8 = _mend_scales(desc, arrays, weights)
    _restore(desc, arrays, weights, variables)
    _write(out, desc, arrays)
    return int8


def _int8_weights(desc: Any, arrays: Mapping[str, np.ndarray]) -> Iterable[Int8Weight]:
    for op in desc.blocks[0].ops:
        if op.type == "dequantize_linear" and only(op.inputs, "X") in arrays:
            axis = next(attribute.i for attribute in op.attrs if attribute.name == "quant_axis")
            bounds = arrays[only(op.inputs, "Scale")].reshape(-1)
            yield Int8Weight(arrays[only(op.inputs, "X")], bounds, axis, _copy(op))


def _multiplied_out(
    desc: Any, arrays: Mapping[str, np.ndarray], weights: Mapping[str, Int8Weight]
) -> tuple[Any, dict[str, np.ndarray]]:
    """The same program with its weights in float32, so that nobody else has to tell rows from columns."""
    desc = _copy(desc)
    block = desc.blocks[0]
    kept = [op for op in block.ops if op.type != "dequantize_linear" or only(op.inputs, "X") not in weights]
    _replace(block.ops, kept)
    _rename_inputs(block, {weight.product: name for name, weight in weights.items()})
    for variable in block.vars:
        if variable.name in weights:
            variable.type.lod_tensor.tensor.data_type = FLOAT32
    return desc, {name: weights[name].values if name in weights else array for name, array in arrays.items()}


def _optimise(prefix: Path, folder: Path) -> None:
    """Have Paddle Inference write what it makes of a program for int8, as FOLDER/_optimized.*."""
    config = paddle_inference.Config(*map(str, _files(prefix)))
    config.disable_glog_info()
    config.disable_gpu()
    config.enable_mkldnn()
    config.enable_mkldnn_int8()
    config.set_optim_cache_dir(str(folder))
    config.enable_save_optim_model(True)
    with silent_stderr():
        paddle_inference.create_predictor(config)


def _mend_scales(desc: Any, arrays: Mapping[str, np.ndarray], weights: Mapping[str, Int8Weight]) -> tuple[str, ...]:
    """Give every int8 product the scales of its weight's columns; returns the names of these weights."""
    found = []
    for op in desc.blocks[0].ops:
        if op.type == "fc" and any(attribute.name == "Scale_weights" for attribute in op.attrs):
            name = only(op.inputs, "W")
            known = name in weights and np.array_equal(weights[name].values, arrays[name])
            set_weight_scales(op, weights[name].column_bounds if known else np.abs(arrays[name]).max(axis=0))
            found.append(name)
    return tuple(dict.fromkeys(found))


def _restore(
    desc: Any, arrays: dict[str, np.ndarray], weights: Mapping[str, Int8Weight], variables: Mapping[str, Any]
) -> None:
    """Put the int8 weights back, with the operators that multiply them out; `variables`: those of the first program."""
    block = desc.blocks[0]
    kept = {name: each for name, each in weights.items() if np.array_equal(arrays.get(name), each.values)}
    _rename_inputs(block, {name: weight.product for name, weight in kept.items()})
    first = next(index for index, op in enumerate(block.ops) if op.type != "feed")
    _replace(block.ops, [*block.ops[:first], *(weight.operator for weight in kept.values()), *block.ops[first:]])
    there = {variable.name: variable for variable in block.vars}
    for name, weight in kept.items():
        slots = {only(weight.operator.inputs, slot) for slot in ("X", "Scale", "ZeroPoint")}
        for each in (*slots, weight.product):
            (there[each] if each in there else block.vars.add()).CopyFrom(variables[each])
        arrays[name] = weight.steps
        arrays[only(weight.operator.inputs, "Scale")] = weight.bounds
        zeros = only(weight.operator.inputs, "ZeroPoint")
        arrays[zeros] = np.zeros_like(weight.bounds)


def _read(prefix: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """A program as Paddle's protobuf message, and its parameters by name."""
    from paddle.base.proto import framework_pb2

    program, parameters = _files(prefix)
    described = read_program(program)
    desc = framework_pb2.ProgramDesc()
    desc.ParseFromString(described.serialized)
    return desc, dict(zip(described.persistables, map(np.array, read_tensors(parameters)), strict=True))


def _write(prefix: Path, desc: Any, arrays: Mapping[str, np.ndarray]) -> None:
    program, parameters = _files(prefix)
    write_tensors(parameters, arrays)
    program.write_bytes(desc.SerializeToString())


def _rename_inputs(block: Any, names: Mapping[str, str]) -> None:
    for op in block.ops:
        for slot in op.inputs:
            slot.arguments[:] = [names.get(name, name) for name in slot.arguments]


def _replace(field: Any, messages: list[Any]) -> None:
    copies = [_copy(each) for each in messages]
    del field[:]
    field.extend(copies)


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def only(slots: Any, name: str) -> str:
    """The one variable in a slot of an operator."""
    (found,) = next(slot.arguments for slot in slots if slot.parameter == name)
    return found


def _files(prefix: Path) -> tuple[Path, Path]:
    return prefix.with_name(prefix.name + PROGRAM), prefix.with_name(prefix.name + PARAMETERS)
