"""Quantised static graphs that Paddle's oneDNN engine computes as they were meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.static.quantization.quant_config import BaseQuantizer

_MOST = 127  # the largest int8


class ProductsOnly(BaseQuantizer):
    """Quantises the operators it is given, and adds no observers after others.

    paddlepaddle 2.6.2, static/quantization/quant_config.py (observer_operation_types): with `onnx_format`, pairs of
    quantize_linear and dequantize_linear marked `only_observer` follow every operator of some 60 types. Paddle's own
    kernels skip them; oneDNN's int8 pass (ir/mkldnn/quant_dequant_mkldnn_pass.cc, CollectInputScalesFromQuantize)
    takes them for real. An attention mask of -10000 is then a multiple of 77, and so is every attention score: 60.9 %
    instead of 85.4 on SST-2. Assign it to `PostTrainingQuantization.quant_config`.
    Test: tests/upstream/test_static_int8.py.
    """

    def __init__(self, operators: Sequence[str]):
        super().__init__(list(operators))

    @property
    def observer_operation_types(self) -> list[str]:
        return []

    @property
    def activation_quant_operation_types(self) -> list[str]:
        """None: products of two activations stay as they are; a product with a weight is quantised as such."""
        return []


def scale_square_weights_by_row(
    program: paddle.static.Program, scope: Any, weights: Mapping[str, np.ndarray]
) -> list[str]:
    """Quantise the square weights of a quantised program again, with a scale per row; returns their names.

    paddlepaddle 2.6.2, ir/mkldnn/quant_dequant_mkldnn_pass.cc (ConvertFromINT8ToFP32): whether scales belong to rows
    or to columns is told by their number alone, and rows are asked first, so a matrix n x n with a scale per column
    (what PostTrainingQuantization makes) is multiplied out along the wrong axis: 1 to 2 points on SST-2. With a scale
    per row both oneDNN and Paddle's own kernels are right. `weights`: those in fp32, by name.
    Test: tests/upstream/test_static_int8.py.
    """
    block = program.global_block()
    changed = []
    for op in block.ops:
        if op.type != "dequantize_linear" or op.attr("quant_axis") != 1:
            continue
        name = op.input("X")[0]
        if name not in weights or len(set(weights[name].shape)) != 1 or weights[name].ndim != 2:
            continue
        bounds = np.maximum(np.abs(weights[name]).max(axis=1), np.finfo(np.float32).tiny)
        steps = np.round(weights[name] / bounds[:, None] * _MOST)
        _set(scope, name, steps)
        _set(scope, op.input("Scale")[0], bounds)
        op._set_attr("quant_axis", 0)
        changed.append(name)
    return changed


def _set(scope: Any, name: str, values: np.ndarray) -> None:
    """Replace a variable's values; its type stays."""
    tensor = scope.find_var(name).get_tensor()
    tensor.set(values.astype(np.array(tensor).dtype), paddle.CPUPlace())
