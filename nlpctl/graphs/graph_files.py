"""The formats of an export and the names of its graph files."""

from __future__ import annotations

FORMATS = ("paddle", "onnx")

PROGRAM, PARAMETERS = ".pdmodel", ".pdiparams"
PREFIX = "model"  # model.pdmodel model.pdiparams
INT8_PREFIX = "model.int8"
ONNX, ONNX_DYNAMIC, ONNX_STATIC = "model.onnx", "model.int8-dynamic.onnx", "model.int8-static.onnx"


def paddle_files(prefix: str) -> tuple[str, str]:
    return prefix + PROGRAM, prefix + PARAMETERS
