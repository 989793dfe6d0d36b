"""ort-dynamic: 8 bits for ONNX Runtime, with activations scaled at run time."""

from __future__ import annotations

from nlpctl.compression.strategies.base import Making
from nlpctl.compression.strategies.onnx_int8 import OnnxInt8
from nlpctl.graphs.graph_files import ONNX_DYNAMIC
from nlpctl.models.export_folder import Graph


class OrtDynamic(OnnxInt8):
    name = "ort-dynamic"
    help = "8 bits for ONNX Runtime, without calibration"
    gain = 1.8
    graph = Graph("onnx", "int8", (ONNX_DYNAMIC,), "dynamic")

    def write(self, making: Making) -> None:
        from nlpctl.graphs.onnx_quantize import quantize_dynamic

        quantize_dynamic(making.fp32("onnx"), making.folder / ONNX_DYNAMIC)
