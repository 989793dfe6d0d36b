"""The formats of an export and the names of its graph files."""

from __future__ import annotations

FORMATS = ("paddle", "onnx")
OWN_GRAPHS = {"paddle": ("int8",), "onnx": ("fp16", "int8")}  # the precisions that take a graph of their own

PROGRAM, PARAMETERS = ".pdmodel", ".pdiparams"
PREFIX = "model"  # model.pdmodel model.pdiparams
INT8_PREFIX = "model.int8"
ONNX, ONNX_DYNAMIC, ONNX_STATIC = "model.onnx", "model.int8-dynamic.onnx", "model.int8-static.onnx"
ONNX_FP16 = "model.fp16.onnx"


def paddle_files(prefix: str) -> tuple[str, str]:
    """The names of the two files of a Paddle graph: PREFIX.pdmodel and PREFIX.pdiparams."""
    return prefix + PROGRAM, prefix + PARAMETERS
