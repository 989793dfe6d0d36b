"""ort-static: 8 bits for ONNX Runtime, by calibration."""

from __future__ import annotations

from nlpctl.compression.strategies.base import CalibratedInt8, Making
from nlpctl.compression.strategies.onnx_int8 import OnnxInt8
from nlpctl.graphs.graph_files import ONNX_STATIC
from nlpctl.models.export_folder import Graph


class OrtStatic(OnnxInt8, CalibratedInt8):
    name = "ort-static"
    help = "8 bits for ONNX Runtime, calibrated on training rows"
    gain = 1.7
    graph = Graph("onnx", "int8", (ONNX_STATIC,), "static")

    def write(self, making: Making) -> None:
        from nlpctl.graphs.onnx_quantize import quantize_static

        quantize_static(making.fp32("onnx"), making.folder / ONNX_STATIC, making.rows())
