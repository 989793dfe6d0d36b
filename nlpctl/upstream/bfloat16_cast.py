"""A graph that casts to float32 cannot be computed in bfloat16."""

from __future__ import annotations

from typing import Any

# What paddle 2.6.2 computes in bfloat16 by itself, but "cast".
OPERATORS = frozenset(
    {
        "bilinear_interp_v2", "clip", "concat", "conv2d", "conv2d_transpose", "elementwise_add", "elementwise_mul",
        "expand_v2", "fc", "fused_conv2d", "fused_elementwise_add", "fused_elementwise_mul", "fused_matmul",
        "fused_transpose", "fusion_gru", "fusion_lstm", "gelu", "layer_norm", "matmul", "matmul_v2", "multi_gru",
        "pool2d", "prelu", "relu", "reshape2", "scale", "sigmoid", "slice", "softmax", "split", "squeeze2", "sum",
        "transpose2",
    }
)  # fmt: skip


def keep_casts(config: Any) -> None:
    """Excludes casts from the bfloat16 operators of an inference Config with enable_mkldnn_bfloat16().

    paddlepaddle 2.6.2, framework/ir/mkldnn/cpu_bfloat16_placement_pass.cc: a cast whose input was float32 is marked
    as computed in bfloat16, and a dequantize is put behind it; but it goes on writing the float32 that it names.
    Running then raises "There are no kernels which are registered in the dequantize operator". `astype("float32")`
    is such a cast, and encoders under mixed precision need it. Test: tests/upstream/test_bfloat16_cast.py.
    """
    config.set_bfloat16_op(set(OPERATORS))
