"""From a graph that simulates int8 to one that oneDNN computes in int8, with the right scales for every weight.

The graphs of quantisers (by calibration or by training) compute in float32 and round: quantize_linear and
dequantize_linear precede each product. Paddle Inference can replace them by int8 kernels at load time, but uses wrong
scales for the weights. So the replacement runs once, here, the scales are corrected, and the result is the file. It
needs only `enable_mkldnn()`. Weights stay int8 on disk and are dequantised at load time.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle.inference as paddle_inference

from nlpctl.errors import RunFailed
from nlpctl.graphs.program_edit import (
    TYPES,
    copied,
    declare,
    graph_files,
    only,
    operator,
    read_parameters,
    rename_variables,
    replace_operators,
    set_argument,
    write_parameters,
)
from nlpctl.models.simulated_int8 import STEPS
from nlpctl.paddle_version import described_tensor
from nlpctl.runtime.process_state import silent_stderr
from nlpctl.upstream.static_int8 import LARGEST, set_weight_scales

_ADDED = re.compile(r"(\w+/(?:in|out))/\d+")


def write_onednn_program(simulated: Path, out: Path) -> tuple[str, ...]:
    """Write OUT.pdmodel and OUT.pdiparams from SIMULATED.*, in the onnx_format of Paddle's quantisers.

    Returns the weights whose products are computed in int8. Inputs and outputs keep their names and order.
    """
    simulated_desc, simulated_arrays = read_parameters(simulated)
    weights = {weight.name: weight for weight in int8_weights(simulated_desc, simulated_arrays)}
    with tempfile.TemporaryDirectory(prefix=".int8-", dir=out.parent) as temporary:
        plain, made = Path(temporary, "plain"), Path(temporary, "_optimized")
        write_parameters(plain, *_multiplied_out(simulated_desc, simulated_arrays, weights))
        _optimise(plain, made.parent)
        desc, arrays = read_parameters(made)
    int8 = _mend_scales(desc, arrays, weights)
    unchanged = [each for name, each in weights.items() if name in arrays and np.array_equal(arrays[name], each.values)]
    _restore(desc, arrays, unchanged)
    _number_anew(desc.blocks[0])
    _sort_variables(desc.blocks[0])
    write_parameters(out, desc, arrays)
    return int8


def _number_anew(block: Any) -> None:
    """Count the variables that Paddle Inference added, such as quantize/out/28, from 0: it goes on from the last graph
    of the process."""
    counts, names = Counter[str](), dict[str, str]()
    for name in (name for op in block.ops for slot in op.outputs for name in slot.arguments):
        added = _ADDED.fullmatch(name)
        if added is not None and name not in names:
            names[name] = f"{added[1]}/{counts[added[1]]}"
            counts[added[1]] += 1
    rename_variables(block, names)


def _sort_variables(block: Any) -> None:
    """Paddle Inference writes them in an order that changes from process to process."""
    variables = sorted(map(copied, block.vars), key=lambda variable: variable.name)
    del block.vars[:]
    block.vars.extend(variables)


def _multiplied_out(
    desc: Any, arrays: Mapping[str, np.ndarray], weights: Mapping[str, Int8Weight]
) -> tuple[Any, dict[str, np.ndarray]]:
    """The same program with its weights in float32, so that Paddle Inference cannot confuse rows and columns of the
    scales."""
    desc = copied(desc)
    block = desc.blocks[0]
    kept = [op for op in block.ops if op.type != "dequantize_linear" or only(op.inputs, "X") not in weights]
    replace_operators(block, kept)
    _rename_inputs(block, {weight.product: name for name, weight in weights.items()})
    for variable in block.vars:
        if variable.name in weights:
            described_tensor(variable.type).tensor.data_type = TYPES["float32"]
    return desc, {name: weights[name].values if name in weights else array for name, array in arrays.items()}


def _optimise(prefix: Path, folder: Path) -> None:
    """Let Paddle Inference optimise a program for int8 and write the result as FOLDER/_optimized.*."""
    config = paddle_inference.Config(*map(str, graph_files(prefix)))
    config.disable_glog_info()
    config.disable_gpu()
    config.enable_mkldnn()
    config.enable_mkldnn_int8()
    config.set_optim_cache_dir(str(folder))
    config.enable_save_optim_model(True)
    with silent_stderr:
        paddle_inference.create_predictor(config)


def _mend_scales(desc: Any, arrays: Mapping[str, np.ndarray], weights: Mapping[str, Int8Weight]) -> tuple[str, ...]:
    """Set the scales of every int8 product to those of its weight's columns; returns the names of these weights.

    oneDNN's pass takes the scale of a column from other entries of the weight (docs/upstream.md, GetScales).
    """
    int8 = []
    for op in desc.blocks[0].ops:
        if op.type == "fc" and any(attribute.name == "Scale_weights" for attribute in op.attrs):
            name = only(op.inputs, "W")
            # The passes may have fused or scaled a weight; then its int8 original is no longer valid.
            known = name in weights and np.array_equal(weights[name].values, arrays[name])
            set_weight_scales(op, weights[name].column_bounds if known else np.abs(arrays[name]).max(axis=0))
            int8.append(name)
    return tuple(dict.fromkeys(int8))


def _restore(desc: Any, arrays: dict[str, np.ndarray], weights: Sequence[Int8Weight]) -> None:
    """Restore int8 weights, with operators that dequantise them.

    The operators are cast and elementwise_mul. Paddle Inference folds these constants at load time, but would run
    dequantize_linear in every batch.
    """
    block = desc.blocks[0]
    _rename_inputs(block, {weight.name: weight.product for weight in weights})
    replaced = {name for weight in weights for name in (weight.name, weight.scale_name)}
    variables = [copied(variable) for variable in block.vars if variable.name not in replaced]
    del block.vars[:]
    block.vars.extend(variables)
    made = [op for weight in weights for op in _multiplying_out(block, weight)]
    # Feed operators stay at the beginning of the block.
    first = next(index for index, op in enumerate(block.ops) if op.type != "feed")
    replace_operators(block, [*block.ops[:first], *made, *block.ops[first:]])
    for weight in weights:
        arrays[weight.name], arrays[weight.scale_name] = weight.steps, weight.step


def _multiplying_out(block: Any, weight: Int8Weight) -> Iterable[Any]:
    """Declare the variables of a weight and yield the operators that compute its values."""
    shape = weight.steps.shape
    kept = declare(block, weight.name, "int8", shape, persistable=True)
    step = declare(block, weight.scale_name, "float32", weight.step.shape, persistable=True)
    steps = declare(block, f"{weight.name}.steps", "float32", shape)
    product = declare(block, weight.product, "float32", shape)
    yield operator(block, "cast", {"X": kept}, {"Out": steps}, in_dtype=TYPES["int8"], out_dtype=TYPES["float32"])
    yield operator(block, "elementwise_mul", {"X": steps, "Y": step}, {"Out": product}, axis=-1)


def _rename_inputs(block: Any, names: Mapping[str, str]) -> None:
    for op in block.ops:
        for slot in op.inputs:
            slot.arguments[:] = [names.get(name, name) for name in slot.arguments]


# -- the int8 weights of a program, as Paddle's quantisers write them -------------------------------------------------


@dataclass(frozen=True)
class Int8Weight:
    """A weight that is int8 in the file: `steps` * `bounds` / 127 along `axis`; `operator` dequantises it.

    `bounds`: one value, or one per index along the axis.
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
    def step(self) -> np.ndarray:
        """The value of one step, in a shape that broadcasts with `steps`."""
        shape = [1] * self.steps.ndim
        if self.bounds.size > 1:
            shape[self.axis] = -1
        return self.bounds.astype(np.float32).reshape(shape) / LARGEST

    @property
    def values(self) -> np.ndarray:
        return self.steps.astype(np.float32) * self.step

    @property
    def column_bounds(self) -> np.ndarray:
        """The bound of each column of a matrix, whichever axis `bounds` belongs to."""
        if self.bounds.size == 1:
            return np.full(self.steps.shape[1], self.bounds.item(), np.float32)
        return self.bounds if self.axis == 1 else np.abs(self.values).max(axis=0)


def int8_weights(desc: Any, arrays: Mapping[str, np.ndarray]) -> Iterable[Int8Weight]:
    """The weights of a program that a dequantize_linear dequantises."""
    for op in desc.blocks[0].ops:
        if op.type == "dequantize_linear" and only(op.inputs, "X") in arrays:
            axis = next(attribute.i for attribute in op.attrs if attribute.name == "quant_axis")
            bounds = arrays[only(op.inputs, "Scale")].reshape(-1)
            yield Int8Weight(arrays[only(op.inputs, "X")], bounds, axis, copied(op))


# -- a graph that simulates int8 in float32, with bounds learned in training ------------------------------------------
#
# The form is that of Paddle's own quantisers (onnx_format): quantize_linear and dequantize_linear before each product
# with a weight, and dequantize_linear after the weight, which is int8 in the file. `write_onednn_program` turns it into
# a graph that oneDNN computes in int8.

_PRODUCTS = ("matmul_v2", "matmul", "mul")
_BITS = {"bit_length": 8, "op_role": 0}


def write_simulated_graph(fp32: Path, out: Path, bounds: Mapping[str, float], *, per_column: bool) -> None:
    """Write OUT.pdmodel and OUT.pdiparams: FP32.* with products rounded.

    `bounds`: of each weight that becomes int8, by its name in the graph, the largest input of its product. Weights that
    are not in the graph are ignored, such as a pooler that no output needs. `per_column`: one scale per column of a
    weight, or one per weight. RunFailed: a weight is not used in a product of a known kind.
    """
    desc, arrays = read_parameters(fp32)
    block = desc.blocks[0]
    shapes = {variable.name: list(described_tensor(variable.type).tensor.dims) for variable in block.vars}
    rounded: dict[str, str] = {}  # input -> its rounded variable
    done: set[str] = set()
    kept: list[Any] = []
    for op in block.ops:
        name = only(op.inputs, "Y") if op.type in _PRODUCTS else None
        if name is not None and name in bounds:
            given = only(op.inputs, "X")
            if given not in rounded:
                kept += _rounding(block, arrays, given, shapes[given], bounds[name])
                rounded[given] = f"{given}.quantized.dequantized"
            if name not in done:
                kept.append(_int8_weight(block, arrays, name, per_column))
            set_argument(op.inputs, "X", rounded[given])
            set_argument(op.inputs, "Y", f"{name}.quantized.dequantized")
            done.add(name)
        kept.append(op)
    missing = sorted((bounds.keys() & arrays.keys()) - done)
    if missing:
        raise RunFailed(f"no product of the graph has the weight {missing[0]}", str(fp32), "use it in fp32 or bf16")
    replace_operators(block, kept)
    write_parameters(out, desc, arrays)


def _rounding(block: Any, arrays: dict[str, np.ndarray], name: str, shape: list[int], bound: float) -> list[Any]:
    """The two operators that round a variable."""
    scale, zero = f"{name}@scale", f"{name}@zero_point"
    _constant(block, arrays, scale, np.array([bound], np.float32))
    _constant(block, arrays, zero, np.zeros(1, np.int32))
    steps, back = declare(block, f"{name}.quantized", "float32", shape), f"{name}.quantized.dequantized"
    declare(block, back, "float32", shape)
    given = {"Scale": scale, "ZeroPoint": zero}
    return [
        operator(block, "quantize_linear", {"X": name, **given}, {"Y": steps}, quant_axis=-1, **_BITS),
        operator(block, "dequantize_linear", {"X": steps, **given}, {"Y": back}, quant_axis=-1, **_BITS),
    ]


def _int8_weight(block: Any, arrays: dict[str, np.ndarray], name: str, per_column: bool) -> Any:
    """Make a weight int8; returns the operator that dequantises it."""
    weight = arrays[name]
    bounds = np.abs(weight).max(axis=0 if per_column else None, keepdims=False).reshape(-1)
    bounds = np.maximum(bounds, np.finfo(np.float32).tiny * STEPS).astype(np.float32)
    arrays[name] = np.round(weight / (bounds / STEPS)).astype(np.int8)
    scale, zero = f"{name}@scale", f"{name}@zero_point"
    _constant(block, arrays, scale, bounds)
    _constant(block, arrays, zero, np.zeros(bounds.shape, np.int32))
    back = declare(block, f"{name}.quantized.dequantized", "float32", weight.shape)
    inputs = {"X": name, "Scale": scale, "ZeroPoint": zero}
    axis = 1 if per_column else -1
    return operator(block, "dequantize_linear", inputs, {"Y": back}, quant_axis=axis, **_BITS)


def _constant(block: Any, arrays: dict[str, np.ndarray], name: str, value: np.ndarray) -> None:
    declare(block, name, str(value.dtype), value.shape, persistable=True)
    arrays[name] = value
