"""The common base of strategies for ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

from nlpctl.compression.strategies.base import KEY, Int8Strategy, Strategy
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.inference.support import is_installed


class OnnxInt8(Int8Strategy):
    """8 bits for ONNX Runtime, embedding tables included."""

    runs_on = ("onnxruntime", "int8")
    holds_tables = True

    def refuse_early(self, recipe: Recipe, beside: Sequence[Strategy]) -> None:
        from nlpctl.graphs.onnx import require_paddle2onnx

        require_paddle2onnx(KEY, f"leave {self.name} out")
        if not is_installed("onnxruntime"):
            raise UserError("ONNX Runtime is not installed", KEY, f"pip install onnxruntime, or leave {self.name} out")
