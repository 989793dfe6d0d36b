"""Quantised static graphs that Paddle's oneDNN engine computes correctly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from paddle.static.quantization.quant_config import BaseQuantizer

LARGEST = 127  # int8


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


def set_weight_scales(product: Any, bounds: np.ndarray) -> None:
    """Give an int8 `fc` of an optimised program the scales of its weight's columns; `bounds`: their largest values.

    paddlepaddle 2.6.2, ir/mkldnn/compute_propagate_scales_mkldnn_pass.cc (GetScales): the bound of column c of a
    k x n weight is looked for in the entries c * k to (c + 1) * k of the memory, as if the weight lay transposed, so
    that columns larger than others are cut off, and smaller ones rounded coarsely. What the program or the passes
    before say is not asked. oneDNN's kernel takes any scales; so they are mended behind the passes, in the program that
    `Config.enable_save_optim_model` writes. `product`: an OpDesc as protobuf message.
    The pass before, quant_dequant_mkldnn_pass.cc (ConvertFromINT8ToFP32), multiplies a square int8 weight out along the
    wrong axis: nlpctl gives it weights in float32. Test: tests/upstream/test_static_int8.py.
    """
    scales = next(attribute for attribute in product.attrs if attribute.name == "Scale_weights")
    scales.floats[:] = (LARGEST / np.maximum(bounds, np.finfo(np.float32).tiny * LARGEST)).tolist()
