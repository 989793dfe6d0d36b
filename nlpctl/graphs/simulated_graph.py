"""A Paddle graph that simulates int8 in float32, with bounds learned in training.

The form is that of Paddle's own quantisers (onnx_format): quantize_linear and dequantize_linear before each product
with a weight, and dequantize_linear after the weight, which is int8 in the file. graphs/onednn_program.py turns it
into a graph that oneDNN computes in int8.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.errors import RunFailed
from nlpctl.graphs.program_edit import (
    declare,
    only,
    operator,
    read_parameters,
    replace_operators,
    set_argument,
    write_parameters,
)
from nlpctl.models.simulated_int8 import STEPS
from nlpctl.paddle_version import described_tensor

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
        if name in bounds:
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
